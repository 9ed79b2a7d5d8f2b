/* cost/live.c: which transfers of the simulated ranks carry something, where the mask leaves pairs empty.
 *
 * The rule of burst_prune.h, asked for the simulated ranks alone, so that the time does not grow with the
 * square of the ranks. Where all ranks are simulated it says what prune.c says (tests/cost).
 */
#include "cost/cost.h"

typedef struct Asks { const AttentionInput *in; BurstTileRanges *live; } Asks;

static BurstPruneOp op_of(void *asks, int at, int rank)
{
    const AttentionInput *in = ((const Asks *)asks)->in;
    const Instance *i = &in->schedule->trace.at[at];
    const size_t cell = (size_t)at * (size_t)in->ranks + (size_t)rank;
    BurstPruneOp o = prune_instance(in->schedule, i);
    if (o.tensor == BURST_PRUNE_COMPUTE) {
        o.live = in->seconds[cell] > 0;
        o.tiles = in->tiles ? &in->tiles[cell] : NULL;
    } else if (o.tensor >= 0) {
        o.to = grid_add(in, rank, i->hop);
    }
    return o;
}

static void leave(void *asks, int at, int rank, int bit, BurstTileRanges moved)
{
    const Asks *a = asks;
    if (bit == BURST_LIVE_RECV)
        a->live[(size_t)at * (size_t)a->in->ranks + (size_t)rank] = moved;
}

BurstTileRanges *cost_live(Arena *a, const AttentionInput *in)
{
    const Schedule *s = in->schedule;
    const int chunks = choice_chunks(s->choice);
    Asks asks = {.in = in, .live = NEW_ARRAY(a, BurstTileRanges, s->trace.n * in->ranks)};
    burst_prune(&(BurstPrune){.ranks = in->ranks,
                              .chunks = chunks,
                              .ops = s->trace.n,
                              .backward = s->backward,
                              .asks = &asks,
                              .op = op_of,
                              .left = leave,
                              .mark = NEW_ARRAY(a, BurstTileRanges, burst_prune_marks(in->ranks, chunks)),
                              .next = NEW_ARRAY(a, BurstTileRanges, in->ranks)});
    return asks.live;
}
