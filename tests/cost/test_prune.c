/* The three who ask the rule of burst_prune.h say the same of drawn traces under drawn masks: prune.c for
 * all ranks, cost/live.c with all ranks simulated, and the runtime in absolute chunks. What the rule itself
 * says is tested by replaying what it leaves (verify/pruned). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "burst_rt.h"
#include "cost/cost.h"

#include <string.h>

enum { TRACES = 500, MOST_OPS = 40, MOST_RANKS = 12, MOST_PIECES = 2, CELLS = MOST_OPS * MOST_RANKS };
typedef struct Drawn {
    Choice choice;
    SchedText text;
    Node node[MOST_OPS];
    Instance at[MOST_OPS];
    Schedule schedule;
    uint8_t pair[MOST_RANKS * MOST_RANKS * MOST_PIECES];
    BurstPairTiles tiles[MOST_RANKS * MOST_RANKS * MOST_PIECES];
    bool ranges;
} Drawn;
static const Drawn *traced; /* a trace function has no argument of its own */
static uint64_t seed = 1;

static int below(int n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (int)((seed >> 33) % (uint64_t)n);
}

static BurstTileRanges some_tiles(void)
{
    BurstTileRanges tiles = burst_tiles_from(below(4), 5 + below(4));
    for (int i = below(4); i > 0; i--) {
        const int lo = 3 + 3 * below(8);
        tiles = burst_join(tiles, burst_tiles_from(lo, lo + 1 + below(3)));
    }
    return tiles;
}

static void draw_instance(Drawn *d, int at)
{
    static const TensorId ways[2][3] = {{T_Q, T_KV, T_O}, {T_Q, T_KV, T_DQ}};
    static const NodeKind kinds[] = {N_COMPUTE, N_COMPUTE, N_COMPUTE, N_PASS, N_PASS, N_RETURN, N_EXCHANGE};
    const int ranks = d->choice.ranks, keys = ranks * d->text.pieces;
    Node *n = &d->node[at];
    TensorId t = ways[d->schedule.backward][below(3)];
    n->kind = kinds[below(countof(kinds))];
    if (d->schedule.backward && t == T_DQ && below(2))
        t = T_DKV;
    if (n->kind == N_RETURN) /* sends partial sums home */
        t = d->schedule.backward ? T_DQ : T_O;
    n->ref[0].tensor = t;
    d->at[at] = (Instance){.node = n, .chunk = {below(ranks), below(keys)}, .hop = below(ranks)};
    if (n->kind != N_COMPUTE && (t == T_KV || t == T_DKV))
        d->at[at].chunk[0] = below(keys);
}

static void draw(Drawn *d)
{
    *d = (Drawn){.text.pieces = 1 + below(MOST_PIECES), .schedule.backward = below(2), .ranges = below(2)};
    d->choice = (Choice){.coords = 2, .size = {1 + below(3), 1 + below(4)}, .schedule = &d->text};
    d->choice.stride[0] = d->choice.size[1];
    d->choice.stride[1] = 1;
    d->choice.ranks = d->choice.size[0] * d->choice.size[1];
    d->schedule.choice = &d->choice;
    d->schedule.trace = (Trace){1 + below(MOST_OPS), d->at};
    for (int at = 0; at < d->schedule.trace.n; at++)
        draw_instance(d, at);
    const int dense = 1 + below(9);
    for (int i = 0; i < choice_chunks(&d->choice) * d->choice.ranks; i++) {
        d->pair[i] = below(10) < dense;
        for (int side = 0; side < BURST_SIDES; side++)
            d->tiles[i].side[side] = some_tiles();
    }
}

/* As emitted programs name their operations; exchanges are in no trace. */
static void trace_rank(BurstTrace *t, int me)
{
    const Choice *c = &traced->choice;
    for (int at = 0; at < traced->schedule.trace.n; at++) {
        const Instance *i = &traced->at[at];
        const int chunk = rel_add(c, me, i->chunk[0]);
        if (i->node->kind == N_COMPUTE)
            burst_trace_compute(t, chunk, rel_add(c, me, i->chunk[1]));
        else if (i->node->kind != N_EXCHANGE)
            burst_trace_pass(t, (int)i->node->ref[0].tensor, chunk, rel_add(c, me, i->hop));
    }
}

static void runtime_agrees(const Drawn *d, const Live *expected, int me)
{
    uint8_t compute[MOST_OPS], send[MOST_OPS], recv[MOST_OPS];
    BurstTileRanges sent[MOST_OPS], received[MOST_OPS];
    BurstLive live = {MOST_OPS, compute, send, recv, sent, received};
    traced = d;
    assert_int_equal(burst_live_fill(NULL, trace_rank, d->choice.ranks, choice_chunks(&d->choice), me,
                                     d->schedule.backward, d->pair, d->ranges ? d->tiles : NULL, &live),
                     BURST_OK);
    for (int at = 0, op = 0; at < d->schedule.trace.n; at++) {
        const int row = at * d->choice.ranks, bits = expected->op[row + me];
        if (d->node[at].kind == N_EXCHANGE)
            continue;
        assert_int_equal(compute[op], (bits & BURST_LIVE_COMPUTE) != 0);
        assert_int_equal(send[op], (bits & BURST_LIVE_SEND) != 0);
        assert_int_equal(recv[op], (bits & BURST_LIVE_RECV) != 0);
        const int to = rel_add(&d->choice, me, d->at[at].hop);
        if (d->ranges && send[op])
            assert_memory_equal(&sent[op], &expected->tiles[row + to], sizeof *sent);
        if (d->ranges && recv[op])
            assert_memory_equal(&received[op], &expected->tiles[row + me], sizeof *received);
        op++;
    }
}

static void cost_agrees(Arena *a, const Drawn *d, const Live *expected)
{
    static double seconds[CELLS];
    static BurstPairTiles tiles[CELLS];
    const Choice *c = &d->choice;
    AttentionInput in = {.schedule = &d->schedule, .ranks = c->ranks, .seconds = seconds};
    in.tiles = d->ranges ? tiles : NULL;
    memcpy(in.size, c->size, sizeof in.size);
    memcpy(in.stride, c->stride, sizeof in.stride);
    for (int cell = 0; cell < d->schedule.trace.n * c->ranks; cell++) {
        const Instance *i = &d->at[cell / c->ranks];
        const int pair = rel_add(c, cell % c->ranks, i->chunk[0]) * choice_chunks(c);
        const int k = i->node->kind == N_COMPUTE ? rel_add(c, cell % c->ranks, i->chunk[1]) : 0;
        seconds[cell] = i->node->kind == N_COMPUTE && d->pair[pair + k] ? 1e-3 : 0;
        tiles[cell] = i->node->kind == N_COMPUTE ? d->tiles[pair + k] : (BurstPairTiles){0};
    }
    const BurstTileRanges *live = cost_live(a, &in);
    for (int cell = 0; cell < d->schedule.trace.n * c->ranks; cell++)
        assert_memory_equal(&live[cell], &expected->tiles[cell], sizeof *live);
}

static void all_three_agree(void **state)
{
    (void)state;
    static Drawn d;
    int sends = 0, kept = 0;
    for (int n = 0; n < TRACES; n++) {
        Arena *a = arena_new();
        draw(&d);
        const Live live = prune(a, &d.schedule, d.pair, d.ranges ? d.tiles : NULL);
        for (int rank = 0; rank < d.choice.ranks; rank++)
            runtime_agrees(&d, &live, rank);
        cost_agrees(a, &d, &live);
        for (int cell = 0; cell < live.ops * live.ranks; cell++) {
            sends += d.node[cell / live.ranks].kind == N_PASS;
            kept += d.node[cell / live.ranks].kind == N_PASS && (live.op[cell] & BURST_LIVE_SEND) != 0;
        }
        arena_free(a);
    }
    assert_true(kept > sends / 8 && kept < sends - sends / 8); /* the draws show both */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_three_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
