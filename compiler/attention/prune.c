/* prune.c: the operations of a trace that a mask leaves, for every rank (burst_prune.h's rule in relative
 * chunks). */
#include "attention/attention.h"

_Static_assert(T_Q == (int)BURST_T_Q && T_KV == (int)BURST_T_KV && T_O == (int)BURST_T_O &&
                   T_DQ == (int)BURST_T_DQ && T_DKV == (int)BURST_T_DKV &&
                   TENSOR_COUNT == (int)BURST_TENSORS,
               "compiler and runtime number the tensors of a schedule alike");

typedef struct Pruner {
    const Schedule *s;
    const uint8_t *pair;
    const BurstPairTiles *tiles;
    Live live;
} Pruner;

BurstPruneOp prune_instance(const Schedule *s, const Instance *i)
{
    const NodeKind kind = i->node->kind;
    BurstPruneOp o = {.tensor = BURST_PRUNE_OTHER, .chunk = {i->chunk[0], i->chunk[1]}};
    if (kind == N_COMPUTE) {
        o.tensor = BURST_PRUNE_COMPUTE;
    } else if (kind == N_PASS || kind == N_RETURN) {
        o.tensor = (int)i->node->ref[0].tensor;
        o.here = i->chunk[0];
        o.there = rel_sub(s->choice, i->chunk[0], i->hop);
    }
    return o;
}

static BurstPruneOp op_of(void *asks, int at, int rank)
{
    const Pruner *p = asks;
    const Choice *c = p->s->choice;
    const Instance *i = &p->s->trace.at[at];
    BurstPruneOp o = prune_instance(p->s, i);
    if (o.tensor == BURST_PRUNE_COMPUTE) {
        const size_t pair = (size_t)rel_add(c, rank, i->chunk[0]) * (size_t)choice_chunks(c) +
                            (size_t)rel_add(c, rank, i->chunk[1]);
        o.live = p->pair[pair];
        o.tiles = p->tiles ? &p->tiles[pair] : NULL;
    } else if (o.tensor >= 0) {
        o.to = rel_add(c, rank, i->hop);
    }
    return o;
}

static void leave(void *asks, int at, int rank, int bit, BurstTileRanges moved)
{
    Live *live = &((Pruner *)asks)->live;
    const size_t cell = (size_t)at * (size_t)live->ranks + (size_t)rank;
    live->op[cell] |= (uint8_t)bit;
    if (bit == BURST_LIVE_RECV)
        live->tiles[cell] = moved;
}

int schedule_sides(const Schedule *s)
{
    int sides = 0;
    for (int at = 0; at < s->trace.n; at++) {
        const TensorId t = s->trace.at[at].node->ref[0].tensor;
        if (s->trace.at[at].node->kind != N_COMPUTE)
            sides |= 1 << (t == T_KV || t == T_DKV ? BURST_OF_KEYS : BURST_OF_QUERIES);
    }
    return sides;
}

BurstPairTiles pair_tiles_of(PairCounts *counts, int q, int k, int sides)
{
    BurstPairTiles tiles;
    for (int side = 0; side < BURST_SIDES; side++)
        tiles.side[side] = sides >> side & 1 ? pair_tiles(counts, q, k, side) : burst_all_tiles();
    return tiles;
}

const BurstPairTiles *schedule_tiles(Arena *a, const Schedule *s, PairCounts *counts)
{
    const uint8_t *live = pair_live(counts);
    const int chunks = choice_chunks(s->choice), n = s->choice->ranks * chunks, sides = schedule_sides(s);
    BurstPairTiles *tiles = s->choice->ranges ? NEW_ARRAY(a, BurstPairTiles, n) : NULL;
    for (int i = 0; i < n && tiles; i++)
        if (live[i])
            tiles[i] = pair_tiles_of(counts, i / chunks, i % chunks, sides);
    return tiles;
}

Live prune(Arena *a, const Schedule *s, const uint8_t *pair, const BurstPairTiles *tiles)
{
    const int ranks = s->choice->ranks, chunks = choice_chunks(s->choice), ops = s->trace.n;
    Pruner p = {.s = s, .pair = pair, .tiles = tiles, .live = {.ranks = ranks, .ops = ops}};
    p.live.op = arena_alloc(a, (size_t)ops * (size_t)ranks);
    p.live.tiles = NEW_ARRAY(a, BurstTileRanges, ops * ranks);
    burst_prune(&(BurstPrune){.ranks = ranks,
                              .chunks = chunks,
                              .ops = ops,
                              .backward = s->backward,
                              .asks = &p,
                              .op = op_of,
                              .left = leave,
                              .mark = NEW_ARRAY(a, BurstTileRanges, burst_prune_marks(ranks, chunks)),
                              .next = NEW_ARRAY(a, BurstTileRanges, ranks)});
    return p.live;
}
