/* balance_work.c: work and needed keys of every run of a batch, counted by the mask itself. Boxes of tiles
 * are judged from the whole sequence downwards: one that the mask leaves empty or full is not looked into,
 * which burst_mask.h allows, as masks are isotone. */
#include "data/balance.h"

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

Balance *balance_open(const BurstPlan *p)
{
    Balance *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->ranks = p->group, b->run = p->balanced, b->sequence = p->sequence;
    b->runs = (int)(p->sequence / p->balanced), b->each = b->runs / p->group;
    for (int l = 0; l < p->layers; l++)
        b->masks = p->layer_mask[l] >= b->masks ? p->layer_mask[l] + 1 : b->masks;
    const size_t runs = (size_t)b->runs;
    b->work = calloc(runs, sizeof *b->work);
    b->need = calloc(runs * (size_t)b->masks, sizeof *b->need);
    b->layers = calloc((size_t)b->masks, sizeof *b->layers);
    b->mask = calloc((size_t)b->masks, sizeof *b->mask);
    b->owner = calloc(runs, sizeof *b->owner);
    b->rank = calloc((size_t)b->ranks, sizeof *b->rank);
    b->held = calloc(runs, sizeof *b->held);
    b->trial = calloc(2 * (size_t)b->each, sizeof *b->trial);
    b->next = calloc((size_t)b->ranks, sizeof *b->next);
    b->spans = calloc((size_t)b->each * BALANCE_SPANS, sizeof *b->spans);
    if (!open_boxes(b) || !b->work || !b->need || !b->layers || !b->mask || !b->owner || !b->rank ||
        !b->held || !b->trial || !b->spans || !b->next) {
        balance_close(b);
        return NULL;
    }
    b->all_layers = p->layers;
    for (int m = 0; m < b->masks && p->masks; m++)
        b->mask[m] = (BalanceMask){plan_cover, p->masks[m]};
    for (int l = 0; l < p->layers; l++)
        b->layers[p->layer_mask[l]]++;
    return b;
}

void balance_close(Balance *b)
{
    if (!b)
        return;
    for (int l = 0; b->side && l < b->levels; l++)
        free(b->side[l]);
    free(b->boxes), free(b->side), free(b->work), free(b->need), free(b->layers), free(b->mask),
        free(b->owner);
    free(b->rank), free(b->held), free(b->trial), free(b->spans), free(b->next);
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
    BalanceNeed *need;
} Count;

/* Spans come in ascending order; where there is no room for one more, the last grows. */
static void add_span(BalanceNeed *n, int32_t lo, int32_t hi)
{
    BalanceSpan *last = n->n ? &n->span[n->n - 1] : NULL;
    if (last && (lo <= last->hi || n->n == BALANCE_SPANS))
        last->hi = hi > last->hi ? hi : last->hi;
    else
        n->span[n->n++] = (BalanceSpan){lo, hi};
}

/* Tiles [first, end) of queries have work with every tile [k_first, k_end) of keys. */
static void add_box(const Count *c, int64_t first, int64_t end, int64_t k_first, int64_t k_end)
{
    Balance *b = c->b;
    const int64_t last_key = k_end * BURST_TILE < b->sequence ? k_end * BURST_TILE : b->sequence;
    const int32_t lo = (int32_t)(k_first * BURST_TILE / b->run), hi = (int32_t)ceil_div(last_key, b->run);
    const int64_t tiles = b->run / BURST_TILE; /* of a run */
    for (int64_t r = first / tiles; r * tiles < end; r++) {
        const int64_t begin = r * tiles > first ? r * tiles : first,
                      until = (r + 1) * tiles < end ? (r + 1) * tiles : end;
        b->work[r] += c->layers * (until - begin) * (k_end - k_first);
        add_span(&c->need[r], lo, hi);
    }
}

static void count_box(const Count *c, int level, int q, int k)
{
    const Balance *b = c->b;
    if (q >= b->boxes[level] || k >= b->boxes[level])
        return;
    const int cover = c->mask->cover(c->mask->of, &b->side[level][q], &b->side[level][k]);
    if (cover == BURST_EMPTY)
        return;
    if (cover == BURST_FULL || level == 0) {
        const int64_t first = (int64_t)q << level, end = first + (1 << level), k_first = (int64_t)k << level,
                      k_end = k_first + (1 << level), tiles = b->boxes[0];
        add_box(c, first, end < tiles ? end : tiles, k_first, k_end < tiles ? k_end : tiles);
        return;
    }
    for (int i = 0; i < 4; i++)
        count_box(c, level - 1, 2 * q + i / 2, 2 * k + i % 2);
}

void balance_count(Balance *b, const BurstTables *tables, int table_count)
{
    fill_sides(b, tables, table_count);
    memset(b->work, 0, sizeof *b->work * (size_t)b->runs);
    memset(b->need, 0, sizeof *b->need * (size_t)b->runs * (size_t)b->masks);
    for (int m = 0; m < b->masks; m++) {
        const Count c = {b, &b->mask[m], b->layers[m], b->need + (size_t)m * (size_t)b->runs};
        if (c.layers)
            count_box(&c, b->levels - 1, 0, 0);
    }
}
