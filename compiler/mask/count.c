/* mask/count.c: counts the tiles (or, with tiles of one token, pairs) of two PosSets that a mask keeps.
 *
 * Boxes that the mask decides are counted at once; others are halved. A key (mask/walk.c) describes what
 * stays open in a box, and boxes with equal keys and shapes are counted once: a causal diagonal costs
 * O(log N). Masks that depend on absolute positions (hash, pattern files, drawn documents) are enumerated
 * cell by cell. What would take too long is sampled (mask/sample.c). */
#include "mask/internal.h"

#include <math.h>

struct MaskCounter {
    Arena *arena;
    const MaskNode *mask;
    MaskWalk walk;
    MaskMemory boxes, pairs; /* counts of boxes by key; counts of set pairs that took long */
    MaskBox *ring;           /* work buffer of mask_sample */
    MaskSpare spare;         /* nodes for masks simplified inside a box of cells */
    MaskEffort *effort;
    double trust;
    int64_t left;            /* work budget of the current count; negative: given up */
};

enum { WALK_COST = 4, NAME_COST = 64, WORD_COST = 2, HIT_REWARD = 4, HIT_TILES = 16, SPARE_NODES = 64 };
enum { DOCUMENT_CELLS = 64 };

static MaskCount count_box(MaskCounter *c, MaskRange q, MaskRange k);

MaskCounter *mask_counter_new(Arena *a, const MaskNode *mask, MaskEffort *effort)
{
    MaskCounter *c = NEW(a, MaskCounter);
    *c = (MaskCounter){.arena = a,
                       .mask = mask,
                       .walk = {.arena = a},
                       .boxes = {.arena = a},
                       .pairs = {.arena = a},
                       .effort = effort,
                       .trust = 1};
    return c;
}

void mask_counter_trust(MaskCounter *c)
{
    c->trust = 1;
}

MaskCount mask_counter_count(MaskCounter *c, MaskRange q, MaskRange k, double share)
{
    int64_t key[PAIR_WORDS];
    const int words = mask_pair_key(q.set, k.set, key);
    const MaskCount *known = mask_memory_find(&c->pairs, key, words);
    if (known)
        return *known;
    const int64_t allowed = mask_effort_for(c->effort, share, c->trust);
    const bool tried = allowed >= WALK_COST * c->mask->work;
    c->left = allowed;
    MaskCount n = tried ? count_box(c, q, k) : (MaskCount){0};
    const bool long_work = mask_effort_spend(c->effort, &c->trust, allowed, c->left),
               given_up = !tried || c->left < 0;
    if (given_up)
        n = mask_sample(c->arena, &c->ring, c->mask, q, k, c->effort, share);
    if (long_work || given_up)
        mask_memory_add(&c->pairs, key, words, n);
    return n;
}

/* ---- sums ---- */
static MaskCount sum(MaskCount x, MaskCount y)
{
    return (MaskCount){.full = x.full + y.full, .partial = x.partial + y.partial};
}

static MaskCount times(MaskCount x, int64_t n)
{
    return (MaskCount){.full = x.full * n, .partial = x.partial * n};
}

/* ---- the recursion ---- */
static MaskCount count_cell(MaskCounter *c, const MaskNode *mask, const MaskRange *q, const MaskRange *k)
{
    const int cover = mask_box_cover(mask, q, k);
    c->left -= mask->work;
    if (cover == BURST_EMPTY)
        return (MaskCount){0};
    const int64_t tiles = mask_range_tiles(q) * mask_range_tiles(k);
    if (cover == BURST_FULL)
        return (MaskCount){.full = tiles};
    return tiles == 1 ? (MaskCount){.partial = 1} : count_box(c, *q, *k);
}

/* Counts the box q, k cell by cell. */
static MaskCount count_cells(MaskCounter *c, const MaskRange *q, const MaskRange *k, const MaskRange *cell_q,
                             int nq, const MaskRange *cell_k, int nk)
{
    const BurstSide a = {.lo = q->lo, .hi = q->hi}, b = {.lo = k->lo, .hi = k->hi};
    const MaskNode *mask = c->mask;
    if (!c->spare.size)
        c->spare = (MaskSpare){.node = NEW_ARRAY(c->arena, MaskNode, SPARE_NODES), .size = SPARE_NODES};
    const MaskSpare spare = c->spare;
    mask_node_within(&c->spare, &mask, &a, &b);
    c->left -= mask->work;
    MaskCount total = {0};
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nk && c->left >= 0; j++)
            total = sum(total, count_cell(c, mask, &cell_q[i], &cell_k[j]));
    c->spare = spare;
    return total;
}

static MaskCount count_halves(MaskCounter *c, const MaskUnits *units_q, const MaskUnits *units_k, MaskRange q,
                              MaskRange k)
{
    MaskRange left, right;
    if (mask_range_first(&q, &k)) {
        mask_range_split(&q, units_q, &left, &right);
        const MaskCount x = count_box(c, left, k);
        return sum(x, count_box(c, right, k));
    }
    mask_range_split(&k, units_k, &left, &right);
    const MaskCount x = count_box(c, q, left);
    return sum(x, count_box(c, q, right));
}

/* Counts a box whose key cannot be reused: cell by cell if it has few cells, else by halves. A split at a
 * document's begin often decides a half; no split decides a hash. */
static MaskCount count_absolute(MaskCounter *c, MaskRange q, MaskRange k)
{
    const MaskUnits units_q = c->walk.units_q, units_k = c->walk.units_k;
    const bool documents = units_q.end || units_k.end;
    if (documents && mask_range_tiles(&q) * mask_range_tiles(&k) > DOCUMENT_CELLS)
        return count_halves(c, &units_q, &units_k, q, k);
    MaskRange cell_q[RANGE_CELLS], cell_k[RANGE_CELLS];
    const int nq = mask_range_cells(&q, &units_q, cell_q), nk = mask_range_cells(&k, &units_k, cell_k);
    if (nq * nk > 1)
        return count_cells(c, &q, &k, cell_q, nq, cell_k, nk);
    return count_halves(c, &units_q, &units_k, q, k);
}

static MaskOpen walk_box(MaskCounter *c, const MaskRange *q, const MaskRange *k)
{
    c->left -= WALK_COST * c->mask->work;
    return mask_walk_box(&c->walk, c->mask, q, k);
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
    c->left -= NAME_COST; /* a lookup costs more than walking a small mask */
    const MaskCount *known = mask_memory_find(&c->boxes, c->walk.key.at + begin, words);
    if (known) { /* repeated boxes extend the budget by part of the work that they saved */
        const int64_t saved = burst_min(mask_range_tiles(&q) * mask_range_tiles(&k) / HIT_TILES,
                                        HIT_REWARD * WALK_COST) *
                              c->mask->work;
        const double reward = fmin((double)saved, c->effort->reward);
        c->effort->reward -= reward;
        c->left += (int64_t)reward;
        return *known;
    }
    c->left -= WORD_COST * words;
    const MaskUnits units_q = c->walk.units_q, units_k = c->walk.units_k;
    n = count_halves(c, &units_q, &units_k, q, k);
    if (c->left >= 0)
        mask_memory_add(&c->boxes, c->walk.key.at + begin, words, n);
    return n;
}

/* Counts a box whose tiles are open in different ways. */
static MaskCount count_open(MaskCounter *c, int begin, int depends, MaskRange q, MaskRange k)
{
    const int64_t nq = mask_range_tiles(&q), nk = mask_range_tiles(&k);
    if (nq > 1 && !(depends & DEPENDS_Q))
        return times(count_box(c, mask_range_part(&q, 0, burst_min(q.tile, q.tokens)), k), nq);
    if (nk > 1 && !(depends & DEPENDS_K))
        return times(count_box(c, q, mask_range_part(&k, 0, burst_min(k.tile, k.tokens))), nk);
    if (c->walk.absolute)
        return count_absolute(c, q, k);
    if (q.piece && k.piece)
        return count_named(c, begin, q, k);
    const MaskUnits units_q = c->walk.units_q, units_k = c->walk.units_k;
    return count_halves(c, &units_q, &units_k, q, k);
}

static MaskCount count_box(MaskCounter *c, MaskRange q, MaskRange k)
{
    if (c->left < 0)
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
