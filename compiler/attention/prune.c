/* prune.c: which operations of a trace a mask leaves, for every rank.
 *
 * Computing goes where the pair has no unmasked tile. A copy travels on only where a rank further along
 * its path computes with it: found backwards in time. A partial sum travels only where something was added
 * to it: found forwards. Every rank runs the same rule on the same mask (the emitted program through
 * runtime/timeline/trace.c), so both ends of a transfer agree without talking. A mark is a few runs of the
 * chunk's tiles: those that are read further along, or were added to.
 */
#include "attention/attention.h"

#include <string.h>

typedef struct Pruner {
    const Schedule *s;
    const uint8_t *pair;
    const BurstPairTiles *tiles;
    int ranks, chunks;
    Live live;
    BurstTileRanges *state[TENSOR_COUNT]; /* [rank][relative chunk] */
    BurstTileRanges *next;                /* [rank] */
} Pruner;

static uint8_t *bits_of(Pruner *p, int at, int rank)
{
    return &p->live.op[(size_t)at * (size_t)p->ranks + (size_t)rank];
}

static BurstTileRanges *state_of(Pruner *p, TensorId t, int rank, int chunk)
{
    return &p->state[t][(size_t)rank * (size_t)p->chunks + (size_t)chunk];
}

static void mark_computing(Pruner *p)
{
    const Choice *c = p->s->choice;
    for (int at = 0; at < p->live.ops; at++) {
        const Instance *i = &p->s->trace.at[at];
        if (i->node->kind != N_COMPUTE)
            continue;
        for (int r = 0; r < p->ranks; r++) {
            size_t q = (size_t)rel_add(c, r, i->chunk[0]), k = (size_t)rel_add(c, r, i->chunk[1]);
            if (p->pair[q * (size_t)p->chunks + k])
                *bits_of(p, at, r) |= LIVE_COMPUTE;
        }
    }
}

static void widen(BurstTileRanges *mark, BurstTileRanges r)
{
    *mark = burst_join(*mark, r);
}

/* What the pair that rank r computes there reads of a side's chunk, or adds to. */
static BurstTileRanges tiles_of(const Pruner *p, const Instance *i, int r, int side)
{
    const size_t q = (size_t)rel_add(p->s->choice, r, i->chunk[0]),
                 k = (size_t)rel_add(p->s->choice, r, i->chunk[1]);
    return p->tiles ? p->tiles[q * (size_t)p->chunks + k].side[side] : burst_all_tiles();
}

/* Moves the mark of a passed chunk from one end to the other for all ranks at once; from and to are
 * relative chunks. */
static void carry(Pruner *p, int at, TensorId t, int here, int there, int hop, bool backwards)
{
    const Choice *c = p->s->choice;
    for (int r = 0; r < p->ranks; r++) {
        int to = rel_add(c, r, hop);
        BurstTileRanges *mark = backwards ? state_of(p, t, to, there) : state_of(p, t, r, here);
        p->next[r] = p->live.tiles[(size_t)at * (size_t)p->ranks + (size_t)to] = *mark;
        if (burst_has_tiles(*mark)) {
            *bits_of(p, at, r) |= LIVE_SEND;
            *bits_of(p, at, to) |= LIVE_RECV;
        }
        *mark = (BurstTileRanges){0};
    }
    for (int r = 0; r < p->ranks; r++)
        widen(backwards ? state_of(p, t, r, here) : state_of(p, t, rel_add(c, r, hop), there), p->next[r]);
}

/* tensor -1: computing does nothing to that side. */
static void mark_side(Pruner *p, int at, int side, int tensor)
{
    const Instance *i = &p->s->trace.at[at];
    for (int r = 0; r < p->ranks && tensor >= 0; r++)
        if (*bits_of(p, at, r) & LIVE_COMPUTE)
            widen(state_of(p, (TensorId)tensor, r, i->chunk[side]), tiles_of(p, i, r, side));
}

static void mark_copies(Pruner *p)
{
    const Choice *c = p->s->choice;
    for (int at = p->live.ops - 1; at >= 0; at--) {
        const Instance *i = &p->s->trace.at[at];
        TensorId t = i->node->ref[0].tensor;
        if (i->node->kind == N_COMPUTE) {
            mark_side(p, at, BURST_OF_QUERIES, T_Q);
            mark_side(p, at, BURST_OF_KEYS, T_KV);
        } else if (i->node->kind == N_PASS && !tensor_accumulates(t)) {
            carry(p, at, t, i->chunk[0], rel_sub(c, i->chunk[0], i->hop), i->hop, true);
        }
    }
}

static void mark_sums(Pruner *p)
{
    const Choice *c = p->s->choice;
    for (int at = 0; at < p->live.ops; at++) {
        const Instance *i = &p->s->trace.at[at];
        TensorId t = i->node->ref[0].tensor;
        if (i->node->kind == N_COMPUTE) {
            for (int side = 0; side < BURST_SIDES; side++)
                mark_side(p, at, side, result_tensor(p->s->backward, side));
        } else if ((i->node->kind == N_PASS || i->node->kind == N_RETURN) && tensor_accumulates(t)) {
            carry(p, at, t, i->chunk[0], rel_sub(c, i->chunk[0], i->hop), i->hop, false);
        }
    }
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
    int ranks = s->choice->ranks, chunks = choice_chunks(s->choice);
    Pruner p = {.s = s,
                .pair = pair,
                .tiles = tiles,
                .ranks = ranks,
                .chunks = chunks,
                .live = {.ranks = ranks, .ops = s->trace.n}};
    p.live.op = arena_alloc(a, (size_t)s->trace.n * (size_t)ranks);
    p.live.tiles = NEW_ARRAY(a, BurstTileRanges, s->trace.n * ranks);
    for (int t = 0; t < TENSOR_COUNT; t++)
        p.state[t] = NEW_ARRAY(a, BurstTileRanges, ranks * chunks);
    p.next = NEW_ARRAY(a, BurstTileRanges, ranks);
    mark_computing(&p);
    mark_copies(&p);
    mark_sums(&p);
    return p.live;
}
