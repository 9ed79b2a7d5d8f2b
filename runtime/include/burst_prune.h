/* burst_prune.h: the operations of a trace that a mask leaves: one rule for burstc (all ranks in
 * compiler/attention/prune.c, the simulated ones in compiler/cost/live.c) and for the running program
 * (runtime/core/prune.c).
 *
 * Computing is skipped if the pair has no unmasked tile. A copy is sent only if a later rank of its path
 * computes with it: found backwards in time. A partial sum is sent only if something was added to it: found
 * forwards. Every rank runs the rule for all ranks, so both ends of a transfer agree without communicating.
 * A mark is a few runs of a chunk's tiles: those that are read later, or were added to. */
#ifndef BURST_PRUNE_H
#define BURST_PRUNE_H

#include "burst_range.h"

#include <stddef.h>

enum { BURST_LIVE_COMPUTE = 1, BURST_LIVE_SEND = 2, BURST_LIVE_RECV = 4 };
/* Instead of a moving tensor: computing, and operations that masks never prune. */
enum { BURST_PRUNE_COMPUTE = -1, BURST_PRUNE_OTHER = -2 };

/* What one rank does in one operation. The caller numbers the chunks of each rank as it likes. */
typedef struct BurstPruneOp {
    int tensor; /* the same for all ranks: BURST_T_* of a transfer, or BURST_PRUNE_* */
    /* computing: chunks of queries and keys (BURST_OF_*), whether the pair has an unmasked tile, and which
     * tiles of each it has work for (NULL: all) */
    int chunk[BURST_SIDES];
    bool live;
    const BurstPairTiles *tiles;
    /* transfer: destination rank, and the chunk's number here and there */
    int to, here, there;
} BurstPruneOp;

/* The caller's ranks and operations; chunks: chunks of a tensor per rank, at most. */
typedef struct BurstPrune {
    int ranks, chunks, ops;
    bool backward;
    void *asks;
    BurstPruneOp (*op)(void *asks, int at, int rank);
    /* Called for each operation of a rank that is left; bit: BURST_LIVE_*; moved: the tiles of a transfer. */
    void (*left)(void *asks, int at, int rank, int bit, BurstTileRanges moved);
    BurstTileRanges *mark; /* [BURST_TENSORS][ranks][chunks], empty */
    BurstTileRanges *next; /* [ranks] */
} BurstPrune;

static inline size_t burst_prune_marks(int ranks, int chunks)
{
    return (size_t)BURST_TENSORS * (size_t)ranks * (size_t)chunks;
}

static inline BurstTileRanges *burst_prune_mark(const BurstPrune *p, int tensor, int rank, int chunk)
{
    const size_t row = (size_t)tensor * (size_t)p->ranks + (size_t)rank;
    return &p->mark[row * (size_t)p->chunks + (size_t)chunk];
}

static inline void burst_prune_widen(BurstTileRanges *mark, BurstTileRanges by)
{
    *mark = burst_join(*mark, by);
}

/* Computing marks the tiles of a tensor on either side; BURST_TENSORS: no tensor on that side. */
static inline void burst_prune_compute(const BurstPrune *p, int at, const int tensor[BURST_SIDES])
{
    for (int r = 0; r < p->ranks; r++) {
        const BurstPruneOp o = p->op(p->asks, at, r);
        for (int side = 0; o.live && side < BURST_SIDES; side++)
            if (tensor[side] < BURST_TENSORS)
                burst_prune_widen(burst_prune_mark(p, tensor[side], r, o.chunk[side]),
                                  o.tiles ? o.tiles->side[side] : burst_all_tiles());
    }
}

/* Moves the mark of a passed chunk from one end to the other, for all ranks at once. Backwards: what the
 * receiver's copy is needed for, the sender's is needed for. Forwards: what was added to the sender's sum is
 * in the receiver's. */
static inline void burst_prune_carry(const BurstPrune *p, int at, bool backwards)
{
    const BurstTileRanges none = {{{0, 0}}};
    for (int r = 0; r < p->ranks; r++) {
        const BurstPruneOp o = p->op(p->asks, at, r);
        BurstTileRanges *mark = backwards ? burst_prune_mark(p, o.tensor, o.to, o.there)
                                          : burst_prune_mark(p, o.tensor, r, o.here);
        p->next[r] = *mark;
        *mark = none;
        if (burst_has_tiles(p->next[r])) {
            p->left(p->asks, at, r, BURST_LIVE_SEND, p->next[r]);
            p->left(p->asks, at, o.to, BURST_LIVE_RECV, p->next[r]);
        }
    }
    for (int r = 0; r < p->ranks; r++) {
        const BurstPruneOp o = p->op(p->asks, at, r);
        burst_prune_widen(backwards ? burst_prune_mark(p, o.tensor, r, o.here)
                                    : burst_prune_mark(p, o.tensor, o.to, o.there),
                          p->next[r]);
    }
}

static inline void burst_prune_copies(const BurstPrune *p)
{
    const int read[BURST_SIDES] = {BURST_T_Q, BURST_T_KV};
    for (int at = p->ops - 1; at >= 0; at--) {
        const int tensor = p->op(p->asks, at, 0).tensor;
        if (tensor == BURST_PRUNE_COMPUTE)
            burst_prune_compute(p, at, read);
        else if (tensor >= 0 && !burst_is_sum(tensor))
            burst_prune_carry(p, at, true);
    }
}

static inline void burst_prune_sums(const BurstPrune *p)
{
    const int sums[BURST_SIDES] = {p->backward ? BURST_T_DQ : BURST_T_O,
                                   p->backward ? BURST_T_DKV : BURST_TENSORS};
    for (int at = 0; at < p->ops; at++) {
        const int tensor = p->op(p->asks, at, 0).tensor;
        if (tensor == BURST_PRUNE_COMPUTE)
            burst_prune_compute(p, at, sums);
        else if (tensor >= 0 && burst_is_sum(tensor))
            burst_prune_carry(p, at, false);
    }
}

static inline void burst_prune(const BurstPrune *p)
{
    for (int at = 0; at < p->ops; at++)
        for (int r = 0; r < p->ranks && p->op(p->asks, at, 0).tensor == BURST_PRUNE_COMPUTE; r++)
            if (p->op(p->asks, at, r).live)
                p->left(p->asks, at, r, BURST_LIVE_COMPUTE, burst_all_tiles());
    burst_prune_copies(p);
    burst_prune_sums(p);
}

#endif
