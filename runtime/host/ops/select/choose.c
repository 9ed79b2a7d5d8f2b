/* choose.c: scores of blocks, in float64 from what represents them in fp32, and the lists of chosen blocks.
 */
#include "burst_model.h"
#include "host/ops/select/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t end_of(const BurstSelect *s, int64_t unit, int64_t i)
{
    return select_least((i + 1) * unit, s->sequence);
}

/* ---- blocks that a tile may choose ---- */

static BurstSide side_of(const BurstSelect *s, int64_t begin, int64_t end)
{
    enum { SIDES = 16 };
    int64_t position[SIDES * BURST_TILE];
    BurstSide side[SIDES], all = {0};
    const int tables = s->tables ? s->table_count : 0;
    for (int64_t at = begin, i = 0; at < end; at += SIDES * BURST_TILE, i++) {
        const int64_t n = select_least(SIDES * BURST_TILE, end - at);
        for (int64_t j = 0; j < n; j++)
            position[j] = at + j;
        burst_sides(position, n, tables ? s->tables : NULL, tables, side);
        BurstSide part = burst_side_union(side, (int)((n + BURST_TILE - 1) / BURST_TILE));
        if (i)
            all = burst_side_union((BurstSide[]){all, part}, 2);
        else
            all = part;
    }
    return all;
}

/* Whether the static part that may be chosen has any pair of these queries and keys. */
static bool any_pair(const BurstSelect *s, int64_t q, int64_t q_end, int64_t k, int64_t k_end)
{
    uint8_t keep[BURST_TILE];
    int64_t key[BURST_TILE];
    for (int64_t from = k; from < k_end; from += BURST_TILE) {
        const int n = (int)select_least(BURST_TILE, k_end - from);
        for (int j = 0; j < n; j++)
            key[j] = from + j;
        for (int64_t i = q; i < q_end; i++) {
            s->how->open->row(i, key, n, s->tables, keep);
            if (memchr(keep, 1, (size_t)n))
                return true;
        }
    }
    return false;
}

static bool may_choose(const BurstSelect *s, const BurstSide *tile, const BurstSide *block)
{
    if (!s->how->noncausal && block->hi > tile->lo)
        return false;
    if (!select_together(s, select_least(block->hi, tile->lo), block->hi > tile->lo ? block->hi : tile->lo))
        return false;
    const int cover = s->how->open->tile(tile, block);
    return cover == BURST_FULL ||
           (cover == BURST_PARTIAL && any_pair(s, tile->lo, tile->hi + 1, block->lo, block->hi + 1));
}

/* ---- scores ---- */

static double dot_of(int d, const float *q, const float *key)
{
    double sum = 0;
    for (int c = 0; c < d; c++)
        sum += (double)q[c] * (double)key[c];
    return sum;
}

/* The greatest product with one of n keys; NaN if one is. */
static double greatest_of(int d, int64_t n, const float *q, const float *key)
{
    double most = dot_of(d, q, key);
    for (int64_t i = 1; i < n; i++) {
        const double x = dot_of(d, q, key + i * d);
        most = x > most || isnan(x) ? x : most;
    }
    return most;
}

static double product_of(const BurstSelect *s, const float *q, const float *key)
{
    const int d = s->head_dim;
    double sum = 0;
    if (s->how->key == BURST_SELECT_MAX_KEY)
        return greatest_of(d, s->how->block, q, key);
    if (s->how->key != BURST_SELECT_LIMITS)
        return dot_of(d, q, key);
    for (int c = 0; c < d; c++) {
        const double a = (double)q[c] * (double)key[c], b = (double)q[c] * (double)key[d + c];
        sum += a > b || isnan(a) ? a : b;
    }
    return sum;
}

/* Of heads first to end - 1 together. key: the block's, of all key heads. */
static double score_of(const BurstSelect *s, int first, int end, const float *q, int64_t q_width,
                       const float *key)
{
    const int64_t width = burst_select_width(s->how->key, s->how->block, s->head_dim),
                  group = s->q_heads / s->kv_heads;
    double sum = 0;
    for (int h = first; h < end; h++)
        sum += product_of(s, q + h * q_width, key + h / group * width);
    return isnan(sum) ? -INFINITY : sum;
}

/* A block and its score. The worst of those kept so far is the first of a heap. */
typedef struct Scored {
    double score;
    int64_t block;
} Scored;

static bool is_worse(Scored a, Scored b)
{
    return a.score < b.score || (a.score == b.score && a.block > b.block);
}

static void sink(Scored *heap, int n, int i)
{
    for (int child = 2 * i + 1; child < n; i = child, child = 2 * i + 1) {
        if (child + 1 < n && is_worse(heap[child + 1], heap[child]))
            child++;
        if (!is_worse(heap[child], heap[i]))
            return;
        const Scored other = heap[i];
        heap[i] = heap[child], heap[child] = other;
    }
}

static void keep_best(Scored *heap, int *n, int top, Scored x)
{
    if (*n < top) {
        heap[(*n)++] = x;
        for (int i = *n / 2 - 1; *n == top && i >= 0; i--)
            sink(heap, *n, i);
    } else if (is_worse(heap[0], x)) {
        heap[0] = x;
        sink(heap, *n, 0);
    }
}

static int by_number(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void list_of(const Scored *heap, int n, int top, int32_t *list)
{
    for (int i = 0; i < n; i++)
        list[i] = (int32_t)heap[i].block;
    qsort(list, (size_t)n, sizeof *list, by_number);
    for (int i = n; i < top; i++)
        list[i] = -1;
}

/* Heads that share the i-th list of a tile. */
static int heads_a_list(const BurstSelect *s) { return s->q_heads / s->lists; }

/* The representative of a tile: of PREVIOUS_MEAN, what the tile before has for it, if that is not none. */
static const float *query_of(const BurstSelect *s, const float *queries, int64_t tile, int64_t width)
{
    const float *own = queries + tile * s->q_heads * width;
    const int64_t first = tile * s->how->queries;
    if (s->how->query != BURST_SELECT_PREVIOUS_MEAN || tile == 0 || !select_together(s, first - 1, first))
        return own;
    return own - s->q_heads * width + s->head_dim;
}

_Static_assert(sizeof(BurstSide) == BURST_SIDE_BYTES && sizeof(Scored) == 16,
               "the compiler sizes scratch for what is kept in it");

void burst_select_blocks(const BurstSelect *s, const BurstChunk *c, const float *queries, const float *keys,
                         void *scratch, int32_t *lists)
{
    const BurstSelection *how = s->how;
    const int64_t blocks = (s->sequence + how->block - 1) / how->block,
                  words = s->kv_heads * burst_select_width(how->key, how->block, s->head_dim),
                  width = how->query == BURST_SELECT_PREVIOUS_MEAN ? 2 * s->head_dim : s->head_dim;
    const int each = heads_a_list(s), n_lists = s->lists;
    BurstSide *side = scratch;
    Scored *heap = (Scored *)(void *)(side + blocks);
    int32_t *open = (int32_t *)(void *)(heap + how->top);
    for (int64_t b = 0; b < blocks; b++)
        side[b] = side_of(s, b * how->block, end_of(s, how->block, b));
    for (int64_t at = 0; at < c->tokens; at += how->queries) {
        const int64_t tile = c->position[at] / how->queries;
        const BurstSide of_tile = side_of(s, tile * how->queries, end_of(s, how->queries, tile));
        const float *q = query_of(s, queries, tile, width);
        int64_t candidates = 0;
        for (int64_t b = 0; b < blocks && (how->noncausal || side[b].hi <= of_tile.lo); b++)
            if (may_choose(s, &of_tile, &side[b]))
                open[candidates++] = (int32_t)b;
        for (int l = 0; l < n_lists; l++, lists += how->top) {
            int n = 0;
            for (int64_t i = 0; i < candidates; i++)
                keep_best(heap, &n, how->top,
                          (Scored){score_of(s, l * each, (l + 1) * each, q, width, keys + open[i] * words),
                                   open[i]});
            list_of(heap, n, how->top, lists);
        }
    }
}

/* ---- attention over the lists ---- */

int burst_select_check(const BurstSelect *s, const BurstChunk *c, const int32_t *lists)
{
    const BurstSelection *how = s->how;
    const int n_lists = s->lists;
    for (int64_t at = 0; at < c->tokens; at += how->queries) {
        const int64_t tile = c->position[at] / how->queries;
        const BurstSide of_tile = side_of(s, tile * how->queries, end_of(s, how->queries, tile));
        for (int l = 0; l < n_lists; l++, lists += how->top)
            for (int i = 0; i < how->top; i++) {
                const int64_t block = lists[i], blocks = (s->sequence + how->block - 1) / how->block;
                const bool none = block == -1, ordered = i == 0 || lists[i - 1] < block || none;
                if (!ordered || (i > 0 && lists[i - 1] == -1 && !none) || block < -1 || block >= blocks)
                    return -1;
                if (none)
                    continue;
                const BurstSide side = side_of(s, block * how->block, end_of(s, how->block, block));
                if (!may_choose(s, &of_tile, &side))
                    return -1;
            }
    }
    return 0;
}
