/* attend_sides.c: bounds of a chunk's tiles, and whether a pair of chunks has live tiles. */
#include "burst_rt.h"

static void side_tables(const int64_t *position, int64_t n, const int32_t *table, int32_t *least,
                        int32_t *greatest)
{
    *least = *greatest = table[position[0]];
    for (int64_t i = 1; i < n; i++) {
        int32_t value = table[position[i]];
        *least = value < *least ? value : *least;
        *greatest = value > *greatest ? value : *greatest;
    }
}

static void side_positions(const int64_t *position, int64_t n, BurstSide *side)
{
    side->lo = side->hi = position[0];
    for (int64_t i = 1; i < n; i++) {
        side->lo = position[i] < side->lo ? position[i] : side->lo;
        side->hi = position[i] > side->hi ? position[i] : side->hi;
    }
}

static void side_of(const int64_t *position, int64_t n, const BurstTables *tables, int table_count,
                    BurstSide *side)
{
    side_positions(position, n, side);
    for (int t = 0; t < BURST_MAX_TABLES; t++) {
        side->table_lo[t] = INT32_MIN; /* a missing table may have any value */
        side->table_hi[t] = INT32_MAX;
        if (tables && t < table_count)
            side_tables(position, n, tables->table[t], &side->table_lo[t], &side->table_hi[t]);
    }
}

void burst_sides(const int64_t *position, int64_t tokens, const BurstTables *tables, int table_count,
                 BurstSide *side)
{
    for (int64_t i = 0; i < tokens; i += BURST_TILE) {
        int64_t n = tokens - i < BURST_TILE ? tokens - i : BURST_TILE;
        side_of(position + i, n, tables, table_count, side++);
    }
}

BurstSide burst_side_union(const BurstSide *side, int n)
{
    BurstSide all = side[0];
    for (int i = 1; i < n; i++) {
        const BurstSide *s = &side[i];
        all.lo = s->lo < all.lo ? s->lo : all.lo;
        all.hi = s->hi > all.hi ? s->hi : all.hi;
        for (int t = 0; t < BURST_MAX_TABLES; t++) {
            all.table_lo[t] = s->table_lo[t] < all.table_lo[t] ? s->table_lo[t] : all.table_lo[t];
            all.table_hi[t] = s->table_hi[t] > all.table_hi[t] ? s->table_hi[t] : all.table_hi[t];
        }
    }
    return all;
}

/* ---- live tiles ---- */

/* The hulls of a tile's tokens at either side of its widest gap (the first of equal ones), if that is wider
 * than a tile; else the hull of all. Same rule as mask_range_apart in compiler/mask/range.c. */
static int sides_apart(const BurstChunk *c, int tile, BurstSide side[2])
{
    const int64_t *position = c->position + (int64_t)tile * BURST_TILE,
                  left = c->tokens - (int64_t)tile * BURST_TILE;
    const int64_t n = left < BURST_TILE ? left : BURST_TILE;
    int64_t cut = 0, widest = BURST_TILE;
    for (int64_t i = 1; i < n; i++)
        if (position[i] - position[i - 1] > widest)
            cut = i, widest = position[i] - position[i - 1];
    side[0] = side[1] = c->side[tile];
    if (cut == 0)
        return 1;
    side_positions(position, cut, &side[0]);
    side_positions(position + cut, n - cut, &side[1]);
    return 2;
}

int burst_tile_cover(const BurstMask *m, const BurstChunk *q, int q_tile, const BurstChunk *k, int k_tile)
{
    const int cover = m->tile(&q->side[q_tile], &k->side[k_tile]);
    BurstSide a[2], b[2];
    if (cover != BURST_PARTIAL)
        return cover;
    const int parts = sides_apart(q, q_tile, a), others = sides_apart(k, k_tile, b);
    for (int i = 0; i < parts * others && parts * others > 1; i++)
        if (m->tile(&a[i / others], &b[i % others]) != BURST_EMPTY)
            return BURST_PARTIAL;
    return parts * others > 1 ? BURST_EMPTY : BURST_PARTIAL;
}

/* Tiles of a chunk. */
typedef struct Tiles { const BurstChunk *chunk; int first, n; } Tiles;

static Tiles part_of(Tiles t, int first, int n)
{
    return (Tiles){t.chunk, t.first + first, n};
}

/* EMPTY of a union of tiles proves each of them empty, so whole regions are decided at once. Otherwise the
 * union is halved, down to single tiles, whose own verdict counts. */
static bool live(const BurstMask *m, Tiles q, Tiles k)
{
    if (q.n == 1 && k.n == 1)
        return burst_tile_cover(m, q.chunk, q.first, k.chunk, k.first) != BURST_EMPTY;
    const BurstSide all_q = burst_side_union(q.chunk->side + q.first, q.n),
                    all_k = burst_side_union(k.chunk->side + k.first, k.n);
    if (m->tile(&all_q, &all_k) == BURST_EMPTY)
        return false;
    if (q.n >= k.n)
        return live(m, part_of(q, 0, q.n / 2), k) || live(m, part_of(q, q.n / 2, q.n - q.n / 2), k);
    return live(m, q, part_of(k, 0, k.n / 2)) || live(m, q, part_of(k, k.n / 2, k.n - k.n / 2));
}

static Tiles all_tiles(const BurstChunk *c)
{
    return (Tiles){c, 0, c->tiles};
}

bool burst_pair_live(const BurstMask *m, const BurstChunk *q, const BurstChunk *k)
{
    return q->tiles > 0 && k->tiles > 0 && live(m, all_tiles(q), all_tiles(k));
}

typedef struct Look { const BurstMask *m; const BurstChunk *q, *k; int side; } Look;

static bool any_live(const void *of, int32_t first, int32_t tiles)
{
    const Look *l = of;
    const Tiles q = all_tiles(l->q), k = all_tiles(l->k);
    return l->side == BURST_OF_QUERIES ? live(l->m, part_of(q, first, tiles), k)
                                       : live(l->m, q, part_of(k, first, tiles));
}

BurstTileRanges burst_pair_tiles(const BurstMask *m, const BurstChunk *q, const BurstChunk *k, int side)
{
    const Look look = {m, q, k, side};
    const int of_side = side == BURST_OF_QUERIES ? q->tiles : k->tiles;
    const int tiles = q->tiles && k->tiles ? of_side : 0;
    return burst_find_ranges(any_live, &look, burst_find_hull(any_live, &look, tiles));
}
