/* pair_counts.c: the work that a mask leaves in each pair of chunks of a partition. Counts are cached for
 * both directions and for all candidates of the search with the same partition and the same pieces of key
 * chunks. */
#include "shard/shard.h"

#include <stdlib.h>

typedef struct Entry {
    int64_t pair; /* q * chunks + k */
    bool has_work, has_tiles[BURST_SIDES];
    PairWork work;
    BurstPairTiles *tiles; /* NULL: no side computed yet; most pairs never need tiles */
} Entry;

struct PairCounts {
    Arena *arena;
    MaskMap *map;
    const Partition *partition;
    int chunks;         /* chunks of keys */
    const PosSet *keys; /* [chunks] */
    Vec(Entry *) page; /* entries in the order of first use */
    int entries;
    int *place; /* [size] open addressing, a power of two: 1 + index of the entry; 0: free */
    int64_t size;
    uint8_t
        *empty; /* bit of a pair, q * chunks + k: known to have no work, and no entry; NULL: too many pairs */
    uint8_t *live;
    int parts;          /* number of parts in `share` */
    double **share;     /* [ranks][parts]; NULL: not counted yet */
    int cuts;           /* cuts of each rank's tokens in `chunk_pairs` */
    uint64_t *chunk_pairs;
    PairWork whole;
    bool has_whole;
};

enum { FIRST_SIZE = 1 << 6, PAGE = 1 << 8, MOST_BITS = 1 << 24, SHORT_LOOK = 1 << 10, LONG_LOOK = 1 << 14 };

static const PosSet *key_chunks(Arena *a, const Partition *p, int pieces)
{
    PosSet *keys = NEW_ARRAY(a, PosSet, p->ranks * pieces);
    for (int k = 0; k < p->ranks * pieces; k++)
        keys[k] = pos_share(a, &p->of[k % p->ranks], k / p->ranks, pieces);
    return keys;
}

PairCounts *pair_counts(Arena *a, MaskMap *m, const Partition *p, int pieces)
{
    PairCounts *c = NEW(a, PairCounts);
    *c = (PairCounts){.arena = a,
                      .map = m,
                      .partition = p,
                      .chunks = p->ranks * pieces,
                      .keys = pieces > 1 ? key_chunks(a, p, pieces) : p->of,
                      .size = FIRST_SIZE,
                      .place = NEW_ARRAY(a, int, FIRST_SIZE)};
    const int64_t pairs = (int64_t)p->ranks * c->chunks;
    c->empty = pairs <= MOST_BITS ? NEW_ARRAY(a, uint8_t, pairs / 8 + 1) : NULL;
    mask_map_begin(m);
    return c;
}

static Entry *entry_at(const PairCounts *c, int i) { return &c->page.at[i / PAGE][i % PAGE]; }

/* The index slot of the pair's entry, or the free slot for it. */
static int *find(const PairCounts *c, int64_t pair)
{
    uint64_t i = (uint64_t)(pair + 1) * UINT64_C(0x9e3779b97f4a7c15);
    for (i ^= i >> 32;; i++) {
        int *place = &c->place[i & (uint64_t)(c->size - 1)];
        if (!*place || entry_at(c, *place - 1)->pair == pair)
            return place;
    }
}

static void grow(PairCounts *c)
{
    c->size *= 4;
    c->place = NEW_ARRAY(c->arena, int, c->size);
    for (int i = 0; i < c->entries; i++)
        *find(c, entry_at(c, i)->pair) = i + 1;
}

static Entry *entry_of(PairCounts *c, int q, int k)
{
    const int64_t pair = (int64_t)q * c->chunks + k;
    int *place = find(c, pair);
    if (*place)
        return entry_at(c, *place - 1);
    if ((c->entries + 1) * 2 >= c->size) {
        grow(c);
        place = find(c, pair);
    }
    if (c->entries % PAGE == 0)
        *vec_push(c->arena, &c->page) = NEW_ARRAY(c->arena, Entry, PAGE);
    Entry *e = entry_at(c, c->entries);
    e->pair = pair;
    *place = ++c->entries;
    return e;
}

PairWork pair_work(PairCounts *c, int q, int k)
{
    const int64_t pair = (int64_t)q * c->chunks + k;
    if (c->empty && c->empty[pair / 8] >> pair % 8 & 1)
        return (PairWork){.cover = COVER_EMPTY};
    const int *place = find(c, pair);
    if (*place && entry_at(c, *place - 1)->has_work)
        return entry_at(c, *place - 1)->work;
    const PairWork work = mask_work(c->map, &c->partition->of[q], &c->keys[k]);
    if (c->empty && work.cover == COVER_EMPTY && work.pairs == 0) {
        c->empty[pair / 8] |= (uint8_t)(1 << pair % 8);
        return work;
    }
    Entry *e = entry_of(c, q, k);
    e->work = work;
    e->has_work = true;
    return work;
}

BurstTileRanges pair_tiles(PairCounts *c, int q, int k, int side)
{
    Entry *e = entry_of(c, q, k);
    if (!e->tiles)
        e->tiles = NEW(c->arena, BurstPairTiles);
    BurstTileRanges *tiles = &e->tiles->side[side];
    if (!e->has_tiles[side])
        *tiles = mask_pair_tiles(c->map, &c->partition->of[q], &c->keys[k], side, LONG_LOOK);
    e->has_tiles[side] = true;
    return burst_has_tiles(*tiles) ? *tiles : burst_all_tiles();
}

bool pair_tiles_suffice(PairCounts *c, int q, int k, int side, BurstTileRanges ranges)
{
    return mask_tiles_within(c->map, &c->partition->of[q], &c->keys[k], side, ranges);
}

static PosSet sequence_of(const PairCounts *c, Piece *piece)
{
    const int64_t n = c->partition->sequence;
    *piece = (Piece){0, n, n, 1};
    return (PosSet){n, 1, piece};
}

PairWork pair_whole(PairCounts *c)
{
    Piece piece;
    const PosSet all = sequence_of(c, &piece);
    if (!c->has_whole)
        c->whole = mask_work(c->map, &all, &all);
    c->has_whole = true;
    return c->whole;
}

PairWork pair_row(const PairCounts *c, int q)
{
    Piece piece;
    const PosSet all = sequence_of(c, &piece);
    return mask_work(c->map, &c->partition->of[q], &all);
}

double pair_share_before(const PairCounts *c, int q, int64_t tokens)
{
    Piece piece;
    const PosSet all = sequence_of(c, &piece), first = pos_first(c->arena, &c->partition->of[q], tokens);
    const double pairs = (double)pair_row(c, q).pairs;
    return pairs > 0 ? (double)mask_work(c->map, &first, &all).pairs / pairs : 0;
}

const double *pair_shares(PairCounts *c, int q, int parts)
{
    if (c->parts != parts)
        c->parts = parts, c->share = NEW_ARRAY(c->arena, double *, c->partition->ranks);
    if (c->share[q])
        return c->share[q];
    double before = 0, *share = c->share[q] = NEW_ARRAY(c->arena, double, parts);
    for (int i = 0; i < parts; i++) {
        const double all = pair_share_before(c, q, c->partition->of[q].tokens * (i + 1) / parts);
        share[i] = all - before;
        before = all;
    }
    return share;
}

/* ---- one chunk of all ranks together ---- */

static int by_begin(const void *x, const void *y)
{
    const Piece *a = x, *b = y;
    return (a->start > b->start) - (a->start < b->start);
}

/* Merges runs that touch or overlap. */
static PosSet joined(Piece *run, int n)
{
    int last = 0;
    qsort(run, (size_t)n, sizeof *run, by_begin);
    for (int i = 1; i < n; i++) {
        const int64_t end = run[last].start + run[last].run, next = run[i].start + run[i].run;
        if (run[i].start > end)
            run[++last] = run[i];
        else
            run[last].run = (next > end ? next : end) - run[last].start;
    }
    PosSet all = {.npieces = n ? last + 1 : 0, .pieces = run};
    for (int i = 0; i < all.npieces; i++)
        run[i].stride = run[i].run, all.tokens += run[i].run;
    return all;
}

/* The positions of every rank's i-th chunk, as runs. Each run covers everything from a piece's first to its
 * last position. */
static PosSet chunk_of_all(const PairCounts *c, int i)
{
    Vec(Piece) runs = {0};
    for (int r = 0; r < c->partition->ranks; r++) {
        const PosSet part = pos_share(c->arena, &c->partition->of[r], i, c->cuts);
        for (int p = 0; p < part.npieces; p++) {
            const Piece *x = &part.pieces[p];
            *vec_push(c->arena, &runs) = (Piece){x->start, (x->count - 1) * x->stride + x->run, 0, 1};
        }
    }
    return joined(runs.at, runs.n);
}

const uint64_t *pair_chunks(PairCounts *c, int chunks)
{
    if (c->cuts == chunks)
        return c->chunk_pairs;
    c->cuts = chunks;
    c->chunk_pairs = NEW_ARRAY(c->arena, uint64_t, chunks);
    for (int q = 0; q < chunks && c->partition->kind == PART_BALANCED; q++)
        c->chunk_pairs[q] = chunks < 64 ? (UINT64_C(1) << chunks) - 1 : UINT64_MAX;
    if (c->partition->kind == PART_BALANCED) /* any token may be in any chunk */
        return c->chunk_pairs;
    PosSet *part = NEW_ARRAY(c->arena, PosSet, chunks);
    for (int i = 0; i < chunks; i++)
        part[i] = chunk_of_all(c, i);
    for (int q = 0; q < chunks; q++)
        for (int k = 0; k < chunks; k++)
            if (q == k || mask_pair_live(c->map, &part[q], &part[k], LONG_LOOK) != 0)
                c->chunk_pairs[q] |= UINT64_C(1) << k;
    return c->chunk_pairs;
}

/* If a short look does not tell, the count decides, which caches repeated boxes. */
static bool is_live(PairCounts *c, int q, int k)
{
    const int live = mask_pair_live(c->map, &c->partition->of[q], &c->keys[k], SHORT_LOOK);
    return live < 0 ? pair_work(c, q, k).cover != COVER_EMPTY : live;
}

const uint8_t *pair_live(PairCounts *c)
{
    const int n = c->partition->ranks * c->chunks;
    if (c->live)
        return c->live;
    c->live = NEW_ARRAY(c->arena, uint8_t, (size_t)n);
    for (int i = 0; i < n; i++)
        c->live[i] = is_live(c, i / c->chunks, i % c->chunks);
    return c->live;
}
