/* cost/live.c: finds which transfers of the simulated ranks carry data, if the mask leaves pairs empty.
 *
 * This is the rule of burst_prune.h for the simulated ranks only, so that the time does not grow with the
 * square of the ranks. If all ranks are simulated, it agrees with prune.c (tests/cost). */
#include "cost/cost.h"

/* Caches what is the same for all ranks, which are asked for one after the other. */
typedef struct Asks {
    const AttentionInput *in;
    BurstTileRanges *live;
    int at; /* -1: none yet */
    BurstPruneOp op;
    int hop, *to; /* [ranks] target of that hop; hop -1: none yet */
} Asks;

static const int *ends_of(Asks *a, int hop)
{
    for (int r = 0; r < a->in->ranks && a->hop != hop; r++)
        a->to[r] = grid_add(a->in, r, hop);
    a->hop = hop;
    return a->to;
}

static BurstPruneOp op_of(void *asks, int at, int rank)
{
    Asks *a = asks;
    const AttentionInput *in = a->in;
    const Instance *i = &in->schedule->trace.at[at];
    const size_t cell = (size_t)at * (size_t)in->ranks + (size_t)rank;
    if (a->at != at)
        a->op = prune_instance(in->schedule, i);
    a->at = at;
    BurstPruneOp o = a->op;
    if (o.tensor == BURST_PRUNE_COMPUTE) {
        o.live = in->seconds[cell] > 0;
        o.tiles = in->tiles ? &in->tiles[cell] : NULL;
    } else if (o.tensor >= 0) {
        o.to = ends_of(a, i->hop)[rank];
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
    Asks asks = {.in = in,
                 .live = NEW_ARRAY(a, BurstTileRanges, s->trace.n * in->ranks),
                 .at = -1,
                 .hop = -1,
                 .to = NEW_ARRAY(a, int, in->ranks)};
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
