/* count.c: counts the work of every tile of queries of a batch exactly, with the mask: its tiles of keys
 * that are not empty. Consecutive tiles with one value in each table, as inside a document, form a segment.
 * Boxes of segments are judged from the whole sequence downwards, and a box of two segments that stays open,
 * by parts. A box that the mask leaves empty or full is not refined, which is correct since masks in
 * burst_mask.h are isotone; nor is one with a token that attends all of the other side. Segments end where
 * documents do, so only boxes on the mask's edge are open; tables that change with every token make each
 * tile a segment. */
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
    int64_t n = ceil_div(b->sequence, b->size);
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

static bool open_scratch(Balance *b)
{
    const size_t tiles = (size_t)b->tiles, ranks = (size_t)b->ranks;
    b->most_runs = b->tiles + BALANCE_SPLITS * b->ranks;
    b->run = calloc((size_t)b->most_runs, sizeof *b->run);
    b->held = calloc(ranks, sizeof *b->held);
    b->load = calloc(ranks, sizeof *b->load);
    b->order = calloc(ranks, sizeof *b->order);
    b->next = calloc(ranks, sizeof *b->next);
    b->tile = calloc(tiles + 1, sizeof *b->tile);
    b->upto = calloc(tiles + 1, sizeof *b->upto);
    b->owner = calloc(tiles, sizeof *b->owner);
    b->segment = calloc(tiles + 1, sizeof *b->segment);
    b->end = calloc(tiles + 1, sizeof *b->end);
    return open_boxes(b) && b->run && b->held && b->load && b->order && b->next && b->tile && b->upto &&
           b->owner && b->segment && b->end;
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
        b->mask[m].tile = p->masks[m]->tile;
    for (int l = 0; l < p->layers; l++)
        b->layers[p->layer_mask[l]]++;
    return true;
}

/* A GPU kernel's tile in which two runs meet is partial with every tile between their ends. So runs consist
 * of whole tiles of GPU_TILE tokens, the size of most kernels, if a rank's tokens and its runs are multiples
 * of it. */
int64_t balance_tile(int64_t max_tokens, int64_t run, bool on_gpu)
{
    enum { GPU_TILE = 2 * BURST_TILE };
    return on_gpu && max_tokens % GPU_TILE == 0 && run % GPU_TILE == 0 ? GPU_TILE : BURST_TILE;
}

Balance *balance_open(const BurstPlan *p)
{
    Balance *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->ranks = p->group, b->sequence = p->sequence,
    b->size = balance_tile(p->max_tokens, p->balanced, p->on_gpu);
    b->tiles = (int)ceil_div(p->sequence, b->size), b->share = b->tiles / b->ranks;
    b->joined = (int)(p->balanced / b->size);
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
    free(b->tile), free(b->upto), free(b->owner), free(b->segment), free(b->end);
    free(b->run), free(b->held), free(b->load), free(b->order), free(b->next);
    free(b);
}

/* ---- segments ---- */

/* From its first tile to the end of its last. */
typedef struct Range {
    int64_t begin, end;
} Range;

static inline int64_t tokens_until(const Balance *b, int64_t tile)
{
    const int64_t end = tile * b->size;
    return end < b->sequence ? end : b->sequence;
}

/* As burst_sides, for consecutive tokens: without an index per token, counting takes half as long. */
static void tile_side(BurstSide *s, int64_t begin, int64_t end, const BurstTables *t, int tables)
{
    *s = (BurstSide){.lo = begin, .hi = end - 1};
    for (int i = 0; i < tables; i++) {
        int32_t lo = t->table[i][begin], hi = lo;
        for (int64_t j = begin; j < end; j++) { /* starts at the first: whole vectors are faster */
            const int32_t v = t->table[i][j];
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
        }
        s->table_lo[i] = lo, s->table_hi[i] = hi;
    }
    for (int i = tables; i < BURST_MAX_TABLES; i++)
        s->table_lo[i] = INT32_MIN, s->table_hi[i] = INT32_MAX;
}

/* The end of the run of tiles, from `tile` on, in which a table keeps the value `same`. */
static int64_t same_until(const Balance *b, const int32_t *value, int32_t same, int64_t tile, int64_t most)
{
    for (; tile < most; tile++) {
        const int64_t begin = tokens_until(b, tile), end = tokens_until(b, tile + 1);
        int32_t apart = 0;
        for (int64_t i = begin; i < end; i++)
            apart |= value[i] ^ same;
        if (apart)
            break;
    }
    return tile;
}

/* The end of the segment whose first tile has this side. */
static int64_t segment_end(const Balance *b, int64_t tile, const BurstSide *s, const BurstTables *t,
                           int tables)
{
    int64_t end = b->tiles;
    for (int i = 0; i < tables; i++)
        if (s->table_lo[i] != s->table_hi[i])
            return tile + 1;
    for (int i = 0; i < tables; i++)
        end = same_until(b, t->table[i], s->table_lo[i], tile + 1, end);
    return end;
}

/* Called while they are in the cache. */
static void fill_ends(BalanceEnds *e, const BurstSide *s, const BurstTables *t, int tables)
{
    for (int i = 0; i < tables; i++)
        e->table[0][i] = t->table[i][s->lo], e->table[1][i] = t->table[i][s->hi];
}

static void fill_segments(Balance *b, const BurstTables *t, int tables)
{
    int n = 0;
    for (int64_t i = 0; i < b->tiles; n++) {
        BurstSide *s = &b->side[0][n];
        b->segment[n] = (int)i;
        tile_side(s, tokens_until(b, i), tokens_until(b, i + 1), t, tables);
        i = segment_end(b, i, s, t, tables);
        s->hi = tokens_until(b, i) - 1;
        fill_ends(&b->end[n], s, t, tables);
    }
    b->segment[n] = b->tiles;
    b->boxes[0] = n;
}

/* Computes hulls of pairs of segments, pairs of pairs, ..., up to the whole; returns that level. */
static int fill_levels(Balance *b)
{
    int l = 0;
    for (; b->boxes[l] > 1; l++) {
        b->boxes[l + 1] = (b->boxes[l] + 1) / 2;
        for (int i = 0; i < b->boxes[l + 1]; i++)
            b->side[l + 1][i] = burst_side_union(&b->side[l][2 * i], 2 * i + 1 < b->boxes[l] ? 2 : 1);
    }
    return l;
}

/* ---- counting ---- */

typedef struct Count {
    Balance *b;
    const BalanceMask *mask;
    int tables;
    int64_t layers;
    BurstSide q, k; /* parts of two segments, with the segments' tables */
} Count;

static inline int judge(const Count *c, const BurstSide *q, const BurstSide *k)
{
    return c->mask->tile ? c->mask->tile(q, k) : c->mask->cover(c->mask->of, q, k);
}

static inline void set_part(const Count *c, BurstSide *s, Range r)
{
    s->lo = r.begin * c->b->size, s->hi = tokens_until(c->b, r.end) - 1;
}

static int64_t between(int64_t x, int64_t most)
{
    if (x < 0)
        return 0;
    return x < most ? x : most;
}

static bool is_tile(Range r) { return r.end - r.begin == 1; }

/* Tiles of queries have work with every tile of keys. While counting, a tile stores its difference from the
 * previous one, and work is that with the tile itself. */
static void add_box(const Count *c, Range q, Range k)
{
    BalanceTile *tile = c->b->tile;
    const int64_t n = k.end - k.begin, keys = c->layers * n;
    if (k.end <= q.begin) {
        tile[q.begin].below += keys, tile[q.end].below -= keys;
        return;
    }
    if (k.begin >= q.end) {
        tile[q.begin].above += keys, tile[q.end].above -= keys;
        return;
    }
    for (int64_t t = q.begin; t < q.end; t++) {
        const int64_t below = c->layers * between(t - k.begin, n),
                      above = c->layers * between(k.end - t - 1, n), own = keys - below - above;
        tile[t].work += own, tile[t + 1].work -= own;
        tile[t].below += below, tile[t + 1].below -= below;
        tile[t].above += above, tile[t + 1].above -= above;
    }
}

/* Rows of open boxes with so few tiles are judged tile by tile, since most tiles are live: edges of
 * documents. */
enum { FEW = 16 };

/* An open box of a tile of queries or keys and few of the other; way: the side with few. */
static void count_strip(Count *c, BurstSide *way, Range few, Range q, Range k)
{
    const bool rows = way == &c->q;
    set_part(c, &c->q, q);
    set_part(c, &c->k, k);
    int64_t begin = few.begin;
    for (int64_t t = few.begin; t <= few.end; t++) {
        set_part(c, way, (Range){t, t + 1});
        if (t < few.end && judge(c, &c->q, &c->k) != BURST_EMPTY)
            continue;
        if (t > begin)
            add_box(c, rows ? (Range){begin, t} : q, rows ? k : (Range){begin, t});
        begin = t + 1;
    }
}

/* A tile is live if any of its pairs is kept. So if the mask keeps all pairs of one token with many tiles,
 * which one verdict shows, these need not be judged one by one. */
static BurstSide end_side(const Count *c, int segment, bool last)
{
    BurstSide s = c->b->side[0][segment];
    s.lo = s.hi = last ? s.hi : s.lo;
    for (int i = 0; i < c->tables; i++)
        s.table_lo[i] = s.table_hi[i] = c->b->end[segment].table[last][i];
    return s;
}

/* For two segments, one of them a tile: whether its token nearer to the other segment attends all of
 * that. */
static bool end_meets(const Count *c, int q, int k, bool q_is_tile)
{
    const BurstSide end = q_is_tile ? end_side(c, q, q < k) : end_side(c, k, k < q);
    return (q_is_tile ? judge(c, &end, &c->k) : judge(c, &c->q, &end)) == BURST_FULL;
}

/* Whether a row's last token attends all keys from the part's first up to its tile's first. */
static bool row_meets(Count *c, int64_t begin, int64_t t)
{
    c->q.lo = c->q.hi = tokens_until(c->b, t + 1) - 1;
    c->k.lo = begin * c->b->size, c->k.hi = t * c->b->size;
    return judge(c, &c->q, &c->k) == BURST_FULL;
}

static void count_parts(Count *c, Range q, Range k);
static int count_part(Count *c, Range q, Range k);

/* The number of live tiles of keys [begin, end) in a row of an open box: by one verdict if possible,
 * otherwise counted. */
static int64_t judge_row(Count *c, int64_t t, int64_t begin, int64_t end)
{
    if (begin == end)
        return 0;
    set_part(c, &c->k, (Range){begin, end});
    const int cover = judge(c, &c->q, &c->k);
    if (cover == BURST_EMPTY)
        return 0;
    if (cover == BURST_FULL || end - begin == 1)
        return end - begin;
    count_parts(c, (Range){t, t + 1}, (Range){begin, end});
    set_part(c, &c->q, (Range){t, t + 1});
    return 0;
}

/* An open box of few tiles with themselves: for each, the tiles before it, itself, and the tiles after
 * it. */
static void count_rows(Count *c, Range r)
{
    for (int64_t t = r.begin; t < r.end; t++) {
        BalanceTile *tile = &c->b->tile[t];
        const bool meets = row_meets(c, r.begin, t);
        set_part(c, &c->q, (Range){t, t + 1});
        const int64_t below = c->layers * (meets ? t - r.begin : judge_row(c, t, r.begin, t)),
                      own = c->layers * (meets ? 1 : judge_row(c, t, t, t + 1)),
                      above = c->layers * judge_row(c, t, t + 1, r.end);
        tile[0].work += own, tile[1].work -= own;
        tile[0].below += below, tile[1].below -= below;
        tile[0].above += above, tile[1].above -= above;
    }
}

/* An open box of a part with itself. If verdicts differ below and above the diagonal, the boxes on it are
 * open too. */
static void count_diagonal(Count *c, Range r)
{
    if (r.end - r.begin <= FEW) {
        count_rows(c, r);
        return;
    }
    const int64_t half = r.begin + (r.end - r.begin) / 2;
    const Range part[2] = {{r.begin, half}, {half, r.end}};
    const bool open = count_part(c, part[1], part[0]) != count_part(c, part[0], part[1]);
    for (int i = 0; i < 2; i++)
        if (open)
            count_diagonal(c, part[i]);
        else
            count_part(c, part[i], part[i]);
}

/* An open box of parts of two segments, larger than a tile. */
static void count_parts(Count *c, Range q, Range k)
{
    const int64_t rows = q.end - q.begin, columns = k.end - k.begin;
    if (q.begin == k.begin && q.end == k.end) {
        count_diagonal(c, q);
    } else if (columns == 1 && rows <= FEW) {
        count_strip(c, &c->q, q, q, k);
    } else if (rows == 1 && columns <= FEW) {
        count_strip(c, &c->k, k, q, k);
    } else {
        const int64_t q_half = q.begin + (rows + 1) / 2, k_half = k.begin + (columns + 1) / 2;
        const Range q_part[2] = {{q.begin, q_half}, {q_half, q.end}},
                    k_part[2] = {{k.begin, k_half}, {k_half, k.end}};
        for (int i = 0; i < (rows > 1 ? 2 : 1); i++)
            for (int j = 0; j < (columns > 1 ? 2 : 1); j++)
                count_part(c, q_part[i], k_part[j]);
    }
}

static int count_part(Count *c, Range q, Range k)
{
    set_part(c, &c->q, q);
    set_part(c, &c->k, k);
    const int cover = judge(c, &c->q, &c->k);
    if (cover == BURST_FULL || (cover == BURST_PARTIAL && is_tile(q) && is_tile(k)))
        add_box(c, q, k);
    else if (cover == BURST_PARTIAL)
        count_parts(c, q, k);
    return cover;
}

/* Tiles of a box of 1 << level segments. */
static inline Range tiles_of_box(const Balance *b, int level, int at)
{
    const int64_t begin = (int64_t)at << level, end = begin + (1 << level), n = b->boxes[0];
    return (Range){b->segment[begin], b->segment[end < n ? end : n]};
}

/* An open box of two segments. */
static void count_segments(Count *c, int q, int k)
{
    const Range q_tiles = tiles_of_box(c->b, 0, q), k_tiles = tiles_of_box(c->b, 0, k);
    if (is_tile(q_tiles) && is_tile(k_tiles)) {
        add_box(c, q_tiles, k_tiles);
        return;
    }
    c->q = c->b->side[0][q], c->k = c->b->side[0][k];
    if ((is_tile(q_tiles) || is_tile(k_tiles)) && end_meets(c, q, k, is_tile(q_tiles)))
        add_box(c, q_tiles, k_tiles);
    else
        count_parts(c, q_tiles, k_tiles);
}

static int count_box(Count *c, int level, int q, int k);

/* An open box of two tiles a side whose tables all vary. */
static void count_tiles(Count *c, int q, int k)
{
    const Balance *b = c->b;
    for (int i = q; i < q + 2 && i < b->tiles; i++) {
        int live = 0;
        for (int j = k; j < k + 2 && j < b->tiles; j++)
            live += judge(c, &b->side[0][i], &b->side[0][j]) != BURST_EMPTY;
        BalanceTile *tile = &c->b->tile[i];
        const int64_t below = k < q ? c->layers * live : 0, above = k < q ? 0 : c->layers * live;
        tile[0].below += below, tile[1].below -= below;
        tile[0].above += above, tile[1].above -= above;
    }
}

/* An open box of several segments per side. */
static void count_open(Count *c, int level, int q, int k)
{
    if (level == 1 && c->b->boxes[0] == c->b->tiles) {
        count_tiles(c, 2 * q, 2 * k);
        return;
    }
    const int below = level - 1, n = c->b->boxes[below], q_next = 2 * q + 1, k_next = 2 * k + 1;
    count_box(c, below, 2 * q, 2 * k);
    if (k_next < n)
        count_box(c, below, 2 * q, k_next);
    if (q_next < n)
        count_box(c, below, q_next, 2 * k);
    if (k_next < n && q_next < n)
        count_box(c, below, q_next, k_next);
}

/* As count_diagonal, for a box of several segments with themselves. */
static void count_open_diagonal(Count *c, int level, int at)
{
    const int first = 2 * at, n = c->b->boxes[level - 1] - first < 2 ? 1 : 2;
    const bool open = n == 2 &&
                      count_box(c, level - 1, first + 1, first) != count_box(c, level - 1, first, first + 1);
    for (int i = first; i < first + n; i++)
        if (open && level > 1)
            count_open_diagonal(c, level - 1, i);
        else
            count_box(c, level - 1, i, i);
}

static int count_box(Count *c, int level, int q, int k)
{
    const int cover = judge(c, &c->b->side[level][q], &c->b->side[level][k]);
    if (cover == BURST_EMPTY)
        return cover;
    if (cover == BURST_FULL)
        add_box(c, tiles_of_box(c->b, level, q), tiles_of_box(c->b, level, k));
    else if (level == 0)
        count_segments(c, q, k);
    else if (q == k)
        count_open_diagonal(c, level, q);
    else
        count_open(c, level, q, k);
    return cover;
}

static void sum_up(Balance *b)
{
    BalanceTile sum = {0};
    for (int t = 0; t < b->tiles; t++) {
        BalanceTile *tile = &b->tile[t];
        sum.work += tile->work, sum.below += tile->below, sum.above += tile->above;
        *tile = (BalanceTile){sum.work + sum.below + sum.above, sum.below, sum.above};
        b->upto[t + 1] = b->upto[t] + tile->work;
    }
}

void balance_count(Balance *b, const BurstTables *tables, int table_count)
{
    fill_segments(b, tables, table_count);
    const int whole = fill_levels(b);
    memset(b->tile, 0, sizeof *b->tile * ((size_t)b->tiles + 1));
    for (int m = 0; m < b->masks; m++) {
        Count c = {.b = b, .mask = &b->mask[m], .tables = table_count, .layers = b->layers[m]};
        if (c.layers)
            count_box(&c, whole, 0, 0);
    }
    sum_up(b);
}
