/* burst_range.h: masks on tiles of the tokens of a chunk, and the tiles that a transfer carries, as a few
 * runs; the compiler and the runtime find them by the rule of burst_prune.h. */
#ifndef BURST_RANGE_H
#define BURST_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens of a tile, the unit by which masks are evaluated. */
enum { BURST_TILE = 64, BURST_ALL_TILES = INT32_MAX };
/* Runs of a chunk, at most, and the number of cells in which gaps are searched. A gap shorter than two cells
 * does not justify another message. */
enum { BURST_RANGES = 4, BURST_CELLS = 32 };
/* Tiles [lo, hi) of a chunk in its local order; empty if hi <= lo. hi BURST_ALL_TILES: to the end of the
 * chunk. */
typedef struct BurstTileRange { int32_t lo, hi; } BurstTileRange;
/* Ascending and not adjacent; unused entries are empty. */
typedef struct BurstTileRanges { BurstTileRange at[BURST_RANGES]; } BurstTileRanges;
/* For a pair of chunks: the tiles of queries that attend to any key, and the tiles of keys that are read. */
enum { BURST_OF_QUERIES, BURST_OF_KEYS, BURST_SIDES };
typedef struct BurstPairTiles { BurstTileRanges side[BURST_SIDES]; } BurstPairTiles;
/* The tensors that a schedule passes. In backward, BURST_T_Q stands for Q, dO, D and lse together. */
enum { BURST_T_Q, BURST_T_KV, BURST_T_O, BURST_T_DQ, BURST_T_DKV, BURST_TENSORS };

static inline bool burst_is_sum(int tensor)
{
    return tensor == BURST_T_O || tensor == BURST_T_DQ || tensor == BURST_T_DKV;
}

static inline bool burst_range_has(BurstTileRange r)
{
    return r.lo < r.hi;
}

static inline int burst_ranges_count(const BurstTileRanges *r)
{
    int n = 0;
    while (n < BURST_RANGES && burst_range_has(r->at[n]))
        n++;
    return n;
}

static inline bool burst_has_tiles(BurstTileRanges r)
{
    return burst_range_has(r.at[0]);
}

static inline BurstTileRanges burst_tiles_from(int32_t lo, int32_t hi)
{
    BurstTileRanges r = {{{0, 0}}};
    r.at[0].lo = lo;
    r.at[0].hi = hi;
    return r;
}

static inline BurstTileRanges burst_all_tiles(void)
{
    return burst_tiles_from(0, BURST_ALL_TILES);
}

static inline bool burst_is_whole(BurstTileRanges r)
{
    return r.at[0].lo == 0 && r.at[0].hi == BURST_ALL_TILES;
}

/* Closes the smallest gap of n runs, the first of equal ones. */
static inline void burst_close_gap(BurstTileRange *run, int n)
{
    int least = 1;
    for (int i = 2; i < n; i++)
        least = run[i].lo - run[i - 1].hi < run[least].lo - run[least - 1].hi ? i : least;
    run[least - 1].hi = run[least].hi;
    for (int i = least; i + 1 < n; i++)
        run[i] = run[i + 1];
}

/* The union; closes the smallest gaps if there are too many runs. */
static inline BurstTileRanges burst_join(BurstTileRanges a, BurstTileRanges b)
{
    BurstTileRange run[2 * BURST_RANGES] = {{0, 0}};
    const int na = burst_ranges_count(&a), nb = burst_ranges_count(&b);
    int n = 0;
    for (int i = 0, j = 0; i < na || j < nb;) {
        const BurstTileRange next = j == nb || (i < na && a.at[i].lo <= b.at[j].lo) ? a.at[i++] : b.at[j++];
        if (n == 0 || next.lo > run[n - 1].hi)
            run[n++] = next;
        else if (next.hi > run[n - 1].hi)
            run[n - 1].hi = next.hi;
    }
    for (; n > BURST_RANGES; n--)
        burst_close_gap(run, n);
    BurstTileRanges both = {{{0, 0}}};
    for (int i = 0; i < n; i++)
        both.at[i] = run[i];
    return both;
}

/* The first token of a tile; `tokens` if the tile is beyond the chunk. */
static inline int64_t burst_tile_begin(int32_t tile, int64_t tokens)
{
    return (int64_t)tile * BURST_TILE < tokens ? (int64_t)tile * BURST_TILE : tokens;
}

static inline int64_t burst_range_tokens(BurstTileRange r, int64_t tokens)
{
    return burst_range_has(r) ? burst_tile_begin(r.hi, tokens) - burst_tile_begin(r.lo, tokens) : 0;
}

static inline int64_t burst_ranges_tokens(BurstTileRanges r, int64_t tokens)
{
    int64_t sum = 0;
    for (int i = 0; i < BURST_RANGES; i++)
        sum += burst_range_tokens(r.at[i], tokens);
    return sum;
}

/* ---- the tiles of one side that a pair has work for ---- */

/* Whether any of these tiles has work; true if unknown. */
typedef bool (*burst_any_fn)(const void *of, int32_t first, int32_t tiles);

/* The first or last tile with work in a run that has some. */
static inline int32_t burst_tile_edge(burst_any_fn any, const void *of, BurstTileRange in, bool last)
{
    while (in.hi - in.lo > 1) {
        const int32_t middle = in.lo + (in.hi - in.lo) / 2;
        if (last ? any(of, middle, in.hi - middle) : !any(of, in.lo, middle - in.lo))
            in.lo = middle;
        else
            in.hi = middle;
    }
    return in.lo;
}

/* The smallest run that contains all tiles with work. */
static inline BurstTileRange burst_find_hull(burst_any_fn any, const void *of, int32_t tiles)
{
    BurstTileRange hull = {0, 0};
    if (tiles > 0 && any(of, 0, tiles)) {
        BurstTileRange rest = {0, tiles};
        hull.lo = rest.lo = burst_tile_edge(any, of, rest, false);
        hull.hi = burst_tile_edge(any, of, rest, true) + 1;
    }
    return hull;
}

/* The same without its gaps, which are found in whole cells and refined to tiles. */
static inline BurstTileRanges burst_find_ranges(burst_any_fn any, const void *of, BurstTileRange hull)
{
    const int32_t cell = (hull.hi - hull.lo + BURST_CELLS - 1) / BURST_CELLS;
    BurstTileRanges found = {{{0, 0}}};
    for (int32_t at = hull.lo; at < hull.hi; at += cell) {
        const int32_t end = at + cell < hull.hi ? at + cell : hull.hi;
        if (any(of, at, end - at))
            found = burst_join(found, burst_tiles_from(at, end));
    }
    for (int i = 0; i < burst_ranges_count(&found); i++) {
        BurstTileRange *run = &found.at[i], first = *run, last = *run;
        first.hi = run->lo + cell < run->hi ? run->lo + cell : run->hi;
        last.lo = hull.lo + (run->hi - 1 - hull.lo) / cell * cell;
        run->lo = burst_tile_edge(any, of, first, false);
        run->hi = burst_tile_edge(any, of, last, true) + 1;
    }
    return found;
}

/* ---- masks: the program has one BurstMask for each mask of the plan ---- */
enum { BURST_EMPTY = 0, BURST_PARTIAL = 1, BURST_FULL = 2 };
enum { BURST_MAX_TABLES = 4 };
/* What masks read of a batch. */
typedef struct BurstTables {
    const int32_t *table[BURST_MAX_TABLES]; /* [N] by global position */
    /* [N] positions of all chunks' tokens, chunk by chunk, ascending in each; NULL: the plan's own */
    const int64_t *position;
    /* position of the first key in the table of chosen keys, which has those of one tile */
    int64_t chosen_from;
} BurstTables;
/* One side of a tile: the least and greatest global position and table values of its tokens. */
typedef struct BurstSide {
    int64_t lo, hi;
    int32_t table_lo[BURST_MAX_TABLES], table_hi[BURST_MAX_TABLES];
} BurstSide;
typedef struct BurstMask {
    const char *text;
    /* EMPTY and FULL are proofs; PARTIAL makes no claim. */
    int (*tile)(const BurstSide *q, const BurstSide *k);
    /* keep[j] = 1 if (q, k[j]) is unmasked, else 0; n <= BURST_TILE. */
    void (*row)(int64_t q, const int64_t *k, int n, const BurstTables *t, uint8_t *keep);
#ifdef __cplusplus /* which warns of what is not initialised */
    const struct BurstSelection *selection = nullptr;
#else
    const struct BurstSelection *selection; /* that it uses; NULL: none */
#endif
} BurstMask;
/* Positions of one chunk, and the side of every BURST_TILE tokens (the last tile may be shorter). */
typedef struct BurstChunk {
    int64_t tokens;
    const int64_t *position;
    const BurstSide *side;
    int tiles;
} BurstChunk;

#endif
