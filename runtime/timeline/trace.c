/* trace.c: which operations of a schedule a mask leaves, at run time (the rule of
 * compiler/attention/prune.c, in absolute chunks).
 *
 * The emitted trace function names the operations of any rank; all ranks replay all ranks, so both ends of
 * a transfer decide alike without talking. Copies: needed further along their path, found backwards in
 * time. Sums: something was added, found forwards. A mark is a few runs of the chunk's tiles.
 */
#include "burst_rt.h"
#include "core/plural.h"

#include <stdlib.h>
#include <string.h>

typedef struct TraceOp {
    int16_t tensor; /* -1: compute */
    int32_t a, b; /* q and kv chunk; chunk and destination */
} TraceOp;
struct BurstTrace { TraceOp *op; int n, cap; bool out_of_memory; };
enum { LIVE_COMPUTE = 1, LIVE_SEND = 2, LIVE_RECV = 4 };

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
    add_op(t, -1, q_chunk, kv_chunk);
}

void burst_trace_pass(BurstTrace *t, int tensor, int chunk, int to)
{
    add_op(t, tensor, chunk, to);
}

/* ops of rank r are op[r * ops ...]; live likewise; mark[tensor][rank][chunk]; next[rank] */
typedef struct Replay {
    int group, keys, ops; /* keys: chunks of them, and the most that any tensor has */
    int me;
    const TraceOp *op;
    uint8_t *live;
    BurstTileRanges *mark[BURST_TENSORS], *next;
    const uint8_t *pair;
    const BurstPairTiles *pair_tiles; /* NULL: whole chunks */
    BurstLive *out;
} Replay;

static bool is_sum(int tensor)
{
    return tensor == BURST_T_O || tensor == BURST_T_DQ || tensor == BURST_T_DKV;
}

static BurstTileRanges *mark_at(Replay *z, int tensor, int rank, int chunk)
{
    return &z->mark[tensor][(size_t)rank * (size_t)z->keys + (size_t)chunk];
}

static size_t index_of(const Replay *z, int rank, int at)
{
    return (size_t)rank * (size_t)z->ops + (size_t)at;
}

static void widen(BurstTileRanges *mark, BurstTileRanges r)
{
    *mark = burst_join(*mark, r);
}

/* tensor -1: computing does nothing to that side. */
static void mark_compute(Replay *z, int at, const int tensor[BURST_SIDES])
{
    for (int r = 0; r < z->group; r++) {
        const TraceOp *o = &z->op[index_of(z, r, at)];
        const size_t pair = (size_t)o->a * (size_t)z->keys + (size_t)o->b;
        if (!z->pair[pair])
            continue;
        z->live[index_of(z, r, at)] |= LIVE_COMPUTE;
        for (int side = 0; side < BURST_SIDES; side++)
            if (tensor[side] >= 0)
                widen(mark_at(z, tensor[side], r, side == BURST_OF_QUERIES ? o->a : o->b),
                      z->pair_tiles ? z->pair_tiles[pair].side[side] : burst_all_tiles());
    }
}

static void note_ranges(Replay *z, int at, int r, int to, BurstTileRanges moved)
{
    if (z->pair_tiles && r == z->me)
        z->out->sent[at] = moved;
    if (z->pair_tiles && to == z->me)
        z->out->received[at] = moved;
}

static void carry(Replay *z, int at, bool backwards)
{
    for (int r = 0; r < z->group; r++) {
        const TraceOp *o = &z->op[index_of(z, r, at)];
        BurstTileRanges *mark = mark_at(z, o->tensor, backwards ? o->b : r, o->a);
        z->next[r] = *mark;
        if (burst_has_tiles(*mark)) {
            z->live[index_of(z, r, at)] |= LIVE_SEND;
            z->live[index_of(z, o->b, at)] |= LIVE_RECV;
            note_ranges(z, at, r, o->b, *mark);
        }
        *mark = (BurstTileRanges){0};
    }
    for (int r = 0; r < z->group; r++) {
        const TraceOp *o = &z->op[index_of(z, r, at)];
        widen(mark_at(z, o->tensor, backwards ? r : o->b, o->a), z->next[r]);
    }
}

static void replay(Replay *z, bool backward)
{
    const int copies[] = {BURST_T_Q, BURST_T_KV},
              sums[] = {backward ? BURST_T_DQ : BURST_T_O, backward ? BURST_T_DKV : -1};
    for (int at = z->ops - 1; at >= 0; at--) {
        int tensor = z->op[at].tensor;
        if (tensor < 0)
            mark_compute(z, at, copies);
        else if (!is_sum(tensor))
            carry(z, at, true);
    }
    for (int at = 0; at < z->ops; at++) {
        int tensor = z->op[at].tensor;
        if (tensor < 0)
            mark_compute(z, at, sums);
        else if (is_sum(tensor))
            carry(z, at, false);
    }
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

static void copy_out(const Replay *z)
{
    BurstLive *out = z->out;
    for (int i = 0; i < z->ops; i++) {
        uint8_t bits = z->live[index_of(z, z->me, i)];
        out->compute[i] = (bits & LIVE_COMPUTE) != 0;
        out->send[i] = (bits & LIVE_SEND) != 0;
        out->recv[i] = (bits & LIVE_RECV) != 0;
    }
}

static int solve(BurstCtx *c, Replay z, bool backward)
{
    const size_t square = (size_t)z.group * (size_t)z.keys, ops = (size_t)z.ops * (size_t)z.group;
    z.live = calloc(1, ops + 1);
    BurstTileRanges *marks = calloc(BURST_TENSORS * square + (size_t)z.group, sizeof *marks);
    if (z.live && marks) {
        for (int i = 0; i < BURST_TENSORS; i++)
            z.mark[i] = marks + (size_t)i * square;
        z.next = marks + BURST_TENSORS * square;
        replay(&z, backward);
        copy_out(&z);
    }
    const bool done = z.live && marks;
    free(z.live);
    free(marks);
    return done ? BURST_OK
                : burst_fail(c, BURST_E_MEMORY, "out of memory while replaying the schedule of %d rank%s",
                             z.group, plural(z.group));
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
