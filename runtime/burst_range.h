/* burst_range.h: which tiles of a chunk of keys a transfer carries: one run of them, found by the compiler (compiler/prune.c) and by the
 * runtime (trace.c) by one rule.
 */
#ifndef BURST_RANGE_H
#define BURST_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens of a tile, by which masks are judged. */
enum { BURST_TILE = 64, BURST_ALL_TILES = INT32_MAX };
/* Tiles of a chunk in its local order, from lo up to hi; none where hi <= lo. hi BURST_ALL_TILES: to the chunk's end. */
typedef struct BurstTileRange { int32_t lo, hi; } BurstTileRange;

static inline bool burst_has_tiles(BurstTileRange r)
{
    return r.lo < r.hi;
}

static inline BurstTileRange burst_all_tiles(void)
{
    const BurstTileRange all = {0, BURST_ALL_TILES};
    return all;
}

/* The least range that has both. */
static inline BurstTileRange burst_hull(BurstTileRange a, BurstTileRange b)
{
    const BurstTileRange both = {a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
    return !burst_has_tiles(a) ? b : !burst_has_tiles(b) ? a : both;
}

/* The first token of a tile; of one behind the chunk, its tokens. */
static inline int64_t burst_tile_begin(int32_t tile, int64_t tokens)
{
    return (int64_t)tile * BURST_TILE < tokens ? (int64_t)tile * BURST_TILE : tokens;
}

static inline int64_t burst_range_tokens(BurstTileRange r, int64_t tokens)
{
    return burst_has_tiles(r) ? burst_tile_begin(r.hi, tokens) - burst_tile_begin(r.lo, tokens) : 0;
}

#endif
