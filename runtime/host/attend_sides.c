/* attend_sides.c: bounds of a chunk's tiles, and whether a pair of chunks has anything to compute. */
#include "burst_rt.h"

static void side_tables(const int64_t *position, int64_t n, const int32_t *table, int32_t *least, int32_t *greatest)
{
    *least = *greatest = table[position[0]];
    for (int64_t i = 1; i < n; i++) {
        int32_t value = table[position[i]];
        *least = value < *least ? value : *least;
        *greatest = value > *greatest ? value : *greatest;
    }
}

static void side_of(const int64_t *position, int64_t n, const BurstTables *tables, int table_count, BurstSide *side)
{
    side->lo = side->hi = position[0];
    for (int64_t i = 1; i < n; i++) {
        side->lo = position[i] < side->lo ? position[i] : side->lo;
        side->hi = position[i] > side->hi ? position[i] : side->hi;
    }
    for (int t = 0; t < BURST_MAX_TABLES; t++) {
        side->table_lo[t] = INT32_MIN; /* nothing is known of a table that is not there */
        side->table_hi[t] = INT32_MAX;
        if (tables && t < table_count)
            side_tables(position, n, tables->table[t], &side->table_lo[t], &side->table_hi[t]);
    }
}

void burst_sides(const int64_t *position, int64_t tokens, const BurstTables *tables, int table_count, BurstSide *side)
{
    for (int64_t i = 0; i < tokens; i += BURST_TILE) {
        int64_t n = tokens - i < BURST_TILE ? tokens - i : BURST_TILE;
        side_of(position + i, n, tables, table_count, side++);
    }
}

static BurstSide side_union(const BurstSide *side, int n)
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

/* EMPTY of a union of tiles is a proof for each of them, so whole regions are settled at once; only where the union
 * proves nothing is it halved, down to single tiles, whose own answer counts. */
static bool live(const BurstMask *m, const BurstSide *q, int nq, const BurstSide *k, int nk)
{
    BurstSide all_q = side_union(q, nq), all_k = side_union(k, nk);
    int kind = m->tile(&all_q, &all_k);
    if (kind == BURST_EMPTY || (nq == 1 && nk == 1))
        return kind != BURST_EMPTY;
    if (nq >= nk)
        return live(m, q, nq / 2, k, nk) || live(m, q + nq / 2, nq - nq / 2, k, nk);
    return live(m, q, nq, k, nk / 2) || live(m, q, nq, k + nk / 2, nk - nk / 2);
}

bool burst_pair_live(const BurstMask *m, const BurstChunk *q, const BurstChunk *k)
{
    return q->tiles > 0 && k->tiles > 0 && live(m, q->side, q->tiles, k->side, k->tiles);
}

typedef struct Look { const BurstMask *m; const BurstChunk *q, *k; int side; } Look;

static bool any_live(const void *of, int32_t first, int32_t tiles)
{
    const Look *l = of;
    if (l->side == BURST_OF_QUERIES)
        return live(l->m, l->q->side + first, tiles, l->k->side, l->k->tiles);
    return live(l->m, l->q->side, l->q->tiles, l->k->side + first, tiles);
}

BurstTileRanges burst_pair_tiles(const BurstMask *m, const BurstChunk *q, const BurstChunk *k, int side)
{
    const Look look = {m, q, k, side};
    const int tiles = q->tiles == 0 || k->tiles == 0 ? 0 : side == BURST_OF_QUERIES ? q->tiles : k->tiles;
    return burst_find_ranges(any_live, &look, burst_find_hull(any_live, &look, tiles));
}
