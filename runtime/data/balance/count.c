/* count.c: work of every tile of queries of a batch, counted by the mask itself. Boxes of tiles are judged
 * from the whole sequence downwards: one that the mask leaves empty or full is not looked into, which
 * burst_mask.h allows, as masks are isotone. */
#include "data/balance/internal.h"

#include <stdlib.h>
#include <string.h>

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int levels_of(int64_t tiles)
{
    int levels = 1;
    for (; tiles > 1; tiles = (tiles + 1) / 2)
        levels++;
    return levels;
}

static bool open_boxes(Balance *b)
{
    int64_t n = ceil_div(b->sequence, BURST_TILE);
    b->levels = levels_of(n);
    b->boxes = calloc((size_t)b->levels, sizeof *b->boxes);
    b->side = calloc((size_t)b->levels, sizeof *b->side);
    bool whole = b->boxes && b->side;
    for (int l = 0; whole && l < b->levels; l++, n = (n + 1) / 2) {
        b->boxes[l] = (int)n;
        b->side[l] = calloc((size_t)n, sizeof *b->side[l]);
        whole = b->side[l] != NULL;
    }
    return whole;
}

static int plan_cover(const void *of, const BurstSide *q, const BurstSide *k)
{
    return ((const BurstMask *)of)->tile(q, k);
}

static bool open_scratch(Balance *b)
{
    const size_t tiles = (size_t)b->tiles, ranks = (size_t)b->ranks;
    b->most_runs = b->tiles + BALANCE_SPLITS * b->ranks;
    b->run = calloc((size_t)b->most_runs, sizeof *b->run);
    b->held = calloc(ranks, sizeof *b->held);
    b->load = calloc(ranks, sizeof *b->load);
    b->next = calloc(ranks, sizeof *b->next);
    b->tile = calloc(tiles + 1, sizeof *b->tile);
    b->upto = calloc(tiles + 1, sizeof *b->upto);
    b->owner = calloc(tiles, sizeof *b->owner);
    return open_boxes(b) && b->run && b->held && b->load && b->next && b->tile && b->upto && b->owner;
}

static bool open_masks(Balance *b, const BurstPlan *p)
{
    for (int l = 0; l < p->layers; l++)
        b->masks = p->layer_mask[l] >= b->masks ? p->layer_mask[l] + 1 : b->masks;
    b->layers = calloc((size_t)b->masks, sizeof *b->layers);
    b->mask = calloc((size_t)b->masks, sizeof *b->mask);
    if (!b->layers || !b->mask)
        return false;
    b->all_layers = p->layers;
    for (int m = 0; m < b->masks && p->masks; m++)
        b->mask[m] = (BalanceMask){plan_cover, p->masks[m]};
    for (int l = 0; l < p->layers; l++)
        b->layers[p->layer_mask[l]]++;
    return true;
}

Balance *balance_open(const BurstPlan *p)
{
    Balance *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->ranks = p->group, b->sequence = p->sequence;
    b->tiles = (int)ceil_div(p->sequence, BURST_TILE), b->share = b->tiles / b->ranks;
    b->joined = (int)(p->balanced / BURST_TILE);
    if (open_masks(b, p) && open_scratch(b))
        return b;
    balance_close(b);
    return NULL;
}

void balance_close(Balance *b)
{
    if (!b)
        return;
    for (int l = 0; b->side && l < b->levels; l++)
        free(b->side[l]);
    free(b->boxes), free(b->side), free(b->layers), free(b->mask);
    free(b->tile), free(b->upto), free(b->owner);
    free(b->run), free(b->held), free(b->load), free(b->next);
    free(b);
}

/* ---- sides of boxes ---- */

/* As burst_sides, of consecutive tokens: without an index a token, counting takes half as long. */
static void tile_side(BurstSide *s, int64_t begin, int64_t end, const BurstTables *t, int tables)
{
    *s = (BurstSide){.lo = begin, .hi = end - 1};
    for (int i = 0; i < tables; i++) {
        int32_t lo = t->table[i][begin], hi = lo;
        for (int64_t j = begin + 1; j < end; j++) {
            const int32_t v = t->table[i][j];
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
        }
        s->table_lo[i] = lo, s->table_hi[i] = hi;
    }
    for (int i = tables; i < BURST_MAX_TABLES; i++)
        s->table_lo[i] = INT32_MIN, s->table_hi[i] = INT32_MAX;
}

static void fill_sides(Balance *b, const BurstTables *t, int tables)
{
    for (int i = 0; i < b->boxes[0]; i++) {
        const int64_t begin = (int64_t)i * BURST_TILE, end = begin + BURST_TILE;
        tile_side(&b->side[0][i], begin, end < b->sequence ? end : b->sequence, t, tables);
    }
    for (int l = 1; l < b->levels; l++)
        for (int i = 0; i < b->boxes[l]; i++)
            b->side[l][i] = burst_side_union(&b->side[l - 1][2 * i], 2 * i + 1 < b->boxes[l - 1] ? 2 : 1);
}

/* ---- counting ---- */

typedef struct Count {
    Balance *b;
    const BalanceMask *mask;
    int64_t layers;
} Count;

static int64_t between(int64_t x, int64_t most)
{
    if (x < 0)
        return 0;
    return x < most ? x : most;
}

/* While counting, a tile has what it has more than the one before it. */
static void add(BalanceTile *tile, int64_t begin, int64_t end, BalanceTile more)
{
    tile[begin].work += more.work, tile[end].work -= more.work;
    tile[begin].below += more.below, tile[end].below -= more.below;
    tile[begin].above += more.above, tile[end].above -= more.above;
}

/* Tiles [begin, end) of queries have work with every tile [k_begin, k_end) of keys. */
static void add_box(const Count *c, int64_t begin, int64_t end, int64_t k_begin, int64_t k_end)
{
    const int64_t keys = c->layers * (k_end - k_begin);
    if (k_end <= begin || k_begin >= end) {
        const bool below = k_end <= begin;
        add(c->b->tile, begin, end, (BalanceTile){keys, below ? keys : 0, below ? 0 : keys});
        return;
    }
    for (int64_t t = begin; t < end; t++) {
        const int64_t below = c->layers * between(t - k_begin, k_end - k_begin),
                      above = c->layers * between(k_end - t - 1, k_end - k_begin);
        add(c->b->tile, t, t + 1, (BalanceTile){keys, below, above});
    }
}

static void count_boxes(const Count *c, int level, int q, int k, int side);

/* A box, of 1 << level tiles a side. */
static inline void count_box(const Count *c, int level, int q, int k)
{
    const Balance *b = c->b;
    const int cover = c->mask->cover(c->mask->of, &b->side[level][q], &b->side[level][k]);
    if (cover == BURST_EMPTY)
        return;
    if (cover == BURST_FULL || level == 0) {
        const int64_t begin = (int64_t)q << level, end = begin + (1 << level), k_begin = (int64_t)k << level,
                      k_end = k_begin + (1 << level), tiles = b->tiles;
        add_box(c, begin, end < tiles ? end : tiles, k_begin, k_end < tiles ? k_end : tiles);
        return;
    }
    count_boxes(c, level - 1, 2 * q, 2 * k, 2);
}

static void count_boxes(const Count *c, int level, int q, int k, int side)
{
    const int boxes = c->b->boxes[level], q_end = q + side < boxes ? q + side : boxes,
              k_end = k + side < boxes ? k + side : boxes;
    for (int i = q; i < q_end; i++)
        for (int j = k; j < k_end; j++)
            count_box(c, level, i, j);
}

static void sum_up(Balance *b)
{
    for (int t = 0; t < b->tiles; t++) {
        const BalanceTile *before = &b->tile[t];
        BalanceTile *next = &b->tile[t + 1];
        b->upto[t + 1] = b->upto[t] + before->work;
        next->work += before->work, next->below += before->below, next->above += before->above;
    }
}

void balance_count(Balance *b, const BurstTables *tables, int table_count)
{
    fill_sides(b, tables, table_count);
    memset(b->tile, 0, sizeof *b->tile * ((size_t)b->tiles + 1));
    for (int m = 0; m < b->masks; m++) {
        const Count c = {b, &b->mask[m], b->layers[m]};
        if (c.layers)
            count_boxes(&c, b->levels - 1, 0, 0, 1);
    }
    sum_up(b);
}
