/* prune.c: prunes a schedule's operations by a mask at run time (the rule of burst_prune.h, in absolute
 * chunks). The emitted trace function gives the operations of any rank; each rank replays all ranks. */
#include "burst_prune.h"
#include "burst_rt.h"
#include "base/plural.h"

#include <stdlib.h>
#include <string.h>

typedef struct TraceOp {
    int16_t tensor; /* or BURST_PRUNE_COMPUTE */
    int32_t a, b; /* q and kv chunk; chunk and destination */
} TraceOp;
struct BurstTrace { TraceOp *op; int n, cap; bool out_of_memory; };

static void add_op(BurstTrace *t, int tensor, int a, int b)
{
    if (t->n == t->cap) {
        int cap = t->cap ? t->cap * 2 : 256;
        TraceOp *grown = realloc(t->op, sizeof *grown * (size_t)cap);
        if (!grown) {
            t->out_of_memory = true;
            return;
        }
        t->op = grown;
        t->cap = cap;
    }
    t->op[t->n++] = (TraceOp){(int16_t)tensor, a, b};
}

void burst_trace_compute(BurstTrace *t, int q_chunk, int kv_chunk)
{
    add_op(t, BURST_PRUNE_COMPUTE, q_chunk, kv_chunk);
}

void burst_trace_pass(BurstTrace *t, int tensor, int chunk, int to)
{
    add_op(t, tensor, chunk, to);
}

/* ops of rank r are op[r * ops ...] */
typedef struct Replay {
    int group, keys, ops; /* keys: number of key chunks, the most that any tensor has */
    int me;
    const TraceOp *op;
    const uint8_t *pair;
    const BurstPairTiles *pair_tiles; /* NULL: whole chunks */
    BurstLive *out;
} Replay;

static BurstPruneOp op_of(void *asks, int at, int rank)
{
    const Replay *z = asks;
    const TraceOp *t = &z->op[(size_t)rank * (size_t)z->ops + (size_t)at];
    BurstPruneOp o = {.tensor = t->tensor, .chunk = {t->a, t->b}};
    if (t->tensor == BURST_PRUNE_COMPUTE) {
        const size_t pair = (size_t)t->a * (size_t)z->keys + (size_t)t->b;
        o.live = z->pair[pair];
        o.tiles = z->pair_tiles ? &z->pair_tiles[pair] : NULL;
    } else {
        o.to = t->b;
        o.here = o.there = t->a;
    }
    return o;
}

/* Called for every rank; records the operations of this one. */
static void leave(void *asks, int at, int rank, int bit, BurstTileRanges moved)
{
    const Replay *z = asks;
    if (rank != z->me)
        return;
    if (bit == BURST_LIVE_COMPUTE) {
        z->out->compute[at] = 1;
        return;
    }
    const bool sends = bit == BURST_LIVE_SEND;
    (sends ? z->out->send : z->out->recv)[at] = 1;
    if (z->pair_tiles)
        (sends ? z->out->sent : z->out->received)[at] = moved;
}

int burst_live_make(BurstCtx *c, int max_ops, BurstLive *out)
{
    uint8_t *bytes = burst_take(c, 3 * (size_t)(max_ops ? max_ops : 1));
    if (!bytes)
        return BURST_E_MEMORY;
    *out = (BurstLive){.ops = max_ops,
                       .compute = bytes,
                       .send = bytes + max_ops,
                       .recv = bytes + 2 * (size_t)max_ops};
    return BURST_OK;
}

int burst_live_make_ranges(BurstCtx *c, BurstLive *out)
{
    BurstTileRanges *ranges = burst_take(c, 2 * sizeof *ranges * (size_t)(out->ops ? out->ops : 1));
    if (!ranges)
        return BURST_E_MEMORY;
    out->sent = ranges;
    out->received = ranges + out->ops;
    return BURST_OK;
}

static int solve(BurstCtx *c, Replay z, bool backward)
{
    const size_t marks = burst_prune_marks(z.group, z.keys);
    BurstTileRanges *mark = calloc(marks + (size_t)z.group, sizeof *mark);
    if (!mark)
        return burst_fail(c, BURST_E_MEMORY, "out of memory while the schedule of %d rank%s is replayed",
                          z.group, plural(z.group));
    memset(z.out->compute, 0, (size_t)z.ops);
    memset(z.out->send, 0, (size_t)z.ops);
    memset(z.out->recv, 0, (size_t)z.ops);
    burst_prune(&(BurstPrune){.ranks = z.group,
                              .chunks = z.keys,
                              .ops = z.ops,
                              .backward = backward,
                              .asks = &z,
                              .op = op_of,
                              .left = leave,
                              .mark = mark,
                              .next = mark + marks});
    free(mark);
    return BURST_OK;
}

int burst_live_fill(BurstCtx *c, burst_trace_fn trace, int group, int keys, int me, bool backward,
                    const uint8_t *pair_live, const BurstPairTiles *pair_tiles, BurstLive *out)
{
    BurstTrace t = {0};
    for (int r = 0; r < group; r++)
        trace(&t, r);
    int status = BURST_OK;
    if (t.out_of_memory)
        status = burst_fail(c, BURST_E_MEMORY, "out of memory while tracing the schedule of %d rank%s", group,
                            plural(group));
    else if (t.n % group != 0 || t.n / group > out->ops)
        status =
            burst_fail(c, BURST_E_PLAN,
                       "the schedule's trace has %d operation%s for %d rank%s, but the plan has %d per rank",
                       t.n, plural(t.n), group, plural(group), out->ops);
    else
        status = solve(c,
                       (Replay){.group = group,
                                .keys = keys,
                                .ops = t.n / group,
                                .me = me,
                                .op = t.op,
                                .pair = pair_live,
                                .pair_tiles = pair_tiles,
                                .out = out},
                       backward);
    free(t.op);
    return status;
}
