/* mask_count.c: how many tiles (or, with tiles of one token, pairs) of two PosSets a mask keeps.
 *
 * Boxes that the mask decides are counted at once, others are halved. What stays open in a box is named by a key
 * (mask_walk.c), and boxes with equal keys and shapes are counted once: a causal diagonal costs O(log N). Masks that
 * depend on the place (hash, pattern files, drawn documents) are enumerated cell by cell, and past a budget sampled.
 */
#include "mask.h"

#include <string.h>

typedef struct Entry { uint64_t hash; int key, words; int64_t full, partial; } Entry; /* words 0: free */

struct MaskCounter {
    Arena *arena;
    const MaskNode *mask;
    MaskWalk walk;
    Entry *entry;          /* open addressing, a power of two */
    int64_t entries, size;
    Vec(int64_t) keys;
    int64_t left;          /* verdicts that may still be evaluated */
    int64_t sample_box;    /* boxes of at most so many tiles may be sampled; 0: exact */
    uint64_t random;
};

enum { FIRST_SIZE = 1 << 12, WALK_COST = 4, SAMPLES = 128, FEW_SAMPLES = 4 };

static MaskCount count_box(MaskCounter *c, MaskRange q, MaskRange k);

MaskCounter *mask_counter_new(Arena *a, const MaskNode *mask)
{
    MaskCounter *c = NEW(a, MaskCounter);
    *c = (MaskCounter){.arena = a, .mask = mask, .walk = {.arena = a}, .size = FIRST_SIZE};
    c->entry = NEW_ARRAY(a, Entry, FIRST_SIZE);
    return c;
}

MaskCount mask_counter_count(MaskCounter *c, MaskRange q, MaskRange k, int64_t cells)
{
    c->left = cells;
    c->sample_box = 0;
    const MaskCount exact = count_box(c, q, k);
    if (c->left >= 0)
        return exact;
    const int64_t tiles = mask_range_tiles(&q) * mask_range_tiles(&k);
    c->left = cells;
    c->sample_box = burst_max(tiles / burst_max(cells / (4 * SAMPLES), 1), 1);
    c->random = 1;
    return count_box(c, q, k);
}

/* ---- memory ---- */
static uint64_t hash_words(const int64_t *word, int n)
{
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < n; i++) {
        h = (h ^ (uint64_t)word[i]) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return h;
}

/* The entry of the key, or the free one where it belongs. */
static Entry *find(const MaskCounter *c, uint64_t hash, const int64_t *key, int words)
{
    for (uint64_t i = hash;; i++) {
        Entry *e = &c->entry[i & (uint64_t)(c->size - 1)];
        if (!e->words)
            return e;
        if (e->hash == hash && e->words == words && !memcmp(c->keys.at + e->key, key, sizeof(int64_t) * (size_t)words))
            return e;
    }
}

static void grow(MaskCounter *c)
{
    const Entry *old = c->entry;
    const int64_t size = c->size;
    c->size *= 4;
    c->entry = NEW_ARRAY(c->arena, Entry, c->size);
    for (int64_t i = 0; i < size; i++)
        if (old[i].words)
            *find(c, old[i].hash, c->keys.at + old[i].key, old[i].words) = old[i];
}

static void remember(MaskCounter *c, uint64_t hash, int begin, int words, MaskCount n)
{
    if (c->entries * 2 >= c->size)
        grow(c);
    Entry *e = find(c, hash, c->walk.key.at + begin, words);
    if (e->words)
        return;
    *e = (Entry){.hash = hash, .key = c->keys.n, .words = words, .full = n.full, .partial = n.partial};
    for (int i = 0; i < words; i++)
        *(int64_t *)vec_push(c->arena, &c->keys) = c->walk.key.at[begin + i];
    c->entries++;
}

/* ---- sums ---- */
static MaskCount sum(MaskCount x, MaskCount y)
{
    return (MaskCount){.full = x.full + y.full, .partial = x.partial + y.partial, .variance = x.variance + y.variance,
                       .estimated = x.estimated || y.estimated};
}

static MaskCount times(MaskCount x, int64_t n)
{
    return (MaskCount){.full = x.full * n, .partial = x.partial * n, .variance = x.variance * (double)n * (double)n,
                       .estimated = x.estimated};
}

/* ---- samples: single tiles drawn from a box ---- */
static MaskRange draw(MaskCounter *c, const MaskRange *r)
{
    uint64_t z = c->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    const int64_t tile = (int64_t)((z ^ z >> 31) % (uint64_t)mask_range_tiles(r)) * r->tile;
    return mask_range_make(r->set, r->tile, r->first + tile, burst_min(r->tile, r->tokens - tile));
}

static int cover_of(const MaskCounter *c, const MaskRange *q, const MaskRange *k)
{
    const BurstSide a = {.lo = q->lo, .hi = q->hi}, b = {.lo = k->lo, .hi = k->hi};
    return mask_node_cover(c->mask, &a, &b);
}

/* The variance adds what n equal draws leave possible, so that it is never 0. */
static MaskCount sample(MaskCounter *c, const MaskRange *q, const MaskRange *k)
{
    const int n = c->left > 0 ? SAMPLES : FEW_SAMPLES;
    int seen[3] = {0};
    for (int i = 0; i < n; i++) {
        const MaskRange a = draw(c, q), b = draw(c, k);
        seen[cover_of(c, &a, &b)]++;
    }
    c->left -= n;
    const double tiles = (double)mask_range_tiles(q) * (double)mask_range_tiles(k), p = (double)seen[BURST_FULL] / n;
    return (MaskCount){.full = (int64_t)(tiles * p), .partial = (int64_t)(tiles * seen[BURST_PARTIAL] / n),
                       .variance = tiles * tiles * (p * (1 - p) + 1.0 / n) / n, .estimated = true};
}

/* ---- the recursion ---- */
static MaskCount count_cells(MaskCounter *c, const MaskRange *q, int nq, const MaskRange *k, int nk)
{
    MaskCount total = {0};
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nk && (c->left >= 0 || c->sample_box); j++) {
            const int cover = cover_of(c, &q[i], &k[j]);
            const int64_t tiles = mask_range_tiles(&q[i]) * mask_range_tiles(&k[j]);
            c->left--;
            if (cover == BURST_FULL)
                total.full += tiles;
            else if (cover == BURST_PARTIAL)
                total = sum(total, tiles == 1 ? (MaskCount){.partial = 1} : count_box(c, q[i], k[j]));
        }
    return total;
}

static MaskCount count_halves(MaskCounter *c, const MaskUnits *units_q, const MaskUnits *units_k, MaskRange q, MaskRange k)
{
    MaskRange left, right;
    const bool q_can = mask_range_tiles(&q) > 1, k_can = mask_range_tiles(&k) > 1;
    const bool q_first = !q.piece || (k.piece && q.hi - q.lo >= k.hi - k.lo);
    if (q_can && (!k_can || q_first)) {
        mask_range_split(&q, units_q, &left, &right);
        const MaskCount x = count_box(c, left, k);
        return sum(x, count_box(c, right, k));
    }
    mask_range_split(&k, units_k, &left, &right);
    const MaskCount x = count_box(c, q, left);
    return sum(x, count_box(c, q, right));
}

/* Nothing to remember: cell by cell where cells are few (when sampling: no more than samples), else smaller boxes. */
static MaskCount count_absolute(MaskCounter *c, MaskRange q, MaskRange k)
{
    const MaskUnits units_q = c->walk.units_q, units_k = c->walk.units_k;
    MaskRange cell_q[RANGE_CELLS], cell_k[RANGE_CELLS];
    const int nq = mask_range_cells(&q, &units_q, cell_q), nk = mask_range_cells(&k, &units_k, cell_k);
    if (nq * nk > 1 && (!c->sample_box || nq * nk <= SAMPLES))
        return count_cells(c, cell_q, nq, cell_k, nk);
    if (mask_range_tiles(&q) * mask_range_tiles(&k) <= c->sample_box)
        return sample(c, &q, &k);
    return count_halves(c, &units_q, &units_k, q, k);
}

static MaskOpen walk_box(MaskCounter *c, const MaskRange *q, const MaskRange *k)
{
    MaskWalk *w = &c->walk;
    w->q = (BurstSide){.lo = q->lo, .hi = q->hi};
    w->k = (BurstSide){.lo = k->lo, .hi = k->hi};
    w->width_q = mask_range_width(q);
    w->width_k = mask_range_width(k);
    w->absolute = false;
    w->units_q.n = w->units_k.n = 0;
    w->units_q.end = w->units_k.end = 0;
    c->left -= WALK_COST;
    return mask_walk(w, c->mask);
}

static void put_shape(MaskCounter *c, const MaskRange *r)
{
    int64_t shape[SHAPE_WORDS];
    mask_range_shape(r, shape);
    for (int i = 0; i < SHAPE_WORDS; i++)
        *(int64_t *)vec_push(c->arena, &c->walk.key) = shape[i];
}

static MaskCount count_named(MaskCounter *c, int begin, MaskRange q, MaskRange k)
{
    MaskCount n;
    if (mask_count_line(c->walk.key.at + begin, c->walk.key.n - begin, &q, &k, &n))
        return n;
    put_shape(c, &q);
    put_shape(c, &k);
    const int words = c->walk.key.n - begin;
    const uint64_t hash = hash_words(c->walk.key.at + begin, words);
    const Entry *known = find(c, hash, c->walk.key.at + begin, words);
    if (known->words)
        return (MaskCount){.full = known->full, .partial = known->partial};
    if (c->left <= 0 && mask_range_tiles(&q) * mask_range_tiles(&k) <= c->sample_box)
        return sample(c, &q, &k);
    const MaskUnits units_q = c->walk.units_q, units_k = c->walk.units_k;
    n = count_halves(c, &units_q, &units_k, q, k);
    if (!n.estimated && c->left >= 0)
        remember(c, hash, begin, words, n);
    return n;
}

/* A box that the mask leaves open in different ways for different tiles. */
static MaskCount count_open(MaskCounter *c, int begin, int depends, MaskRange q, MaskRange k)
{
    const int64_t nq = mask_range_tiles(&q), nk = mask_range_tiles(&k);
    if (nq > 1 && !(depends & DEPENDS_Q))
        return times(count_box(c, mask_range_make(q.set, q.tile, q.first, burst_min(q.tile, q.tokens)), k), nq);
    if (nk > 1 && !(depends & DEPENDS_K))
        return times(count_box(c, q, mask_range_make(k.set, k.tile, k.first, burst_min(k.tile, k.tokens))), nk);
    if (c->walk.absolute)
        return count_absolute(c, q, k);
    if (q.piece && k.piece)
        return count_named(c, begin, q, k);
    const MaskUnits units_q = c->walk.units_q, units_k = c->walk.units_k;
    return count_halves(c, &units_q, &units_k, q, k);
}

static MaskCount count_box(MaskCounter *c, MaskRange q, MaskRange k)
{
    if (c->left < 0 && !c->sample_box)
        return (MaskCount){0};
    const int begin = c->walk.key.n;
    const MaskOpen open = walk_box(c, &q, &k);
    const int64_t tiles = mask_range_tiles(&q) * mask_range_tiles(&k);
    MaskCount n = {0};
    if (open.cover == BURST_FULL)
        n.full = tiles;
    else if (open.cover == BURST_PARTIAL && (open.same || tiles == 1))
        n.partial = tiles;
    else if (open.cover == BURST_PARTIAL)
        n = count_open(c, begin, open.depends, q, k);
    c->walk.key.n = begin;
    return n;
}
