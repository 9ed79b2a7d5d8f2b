/* internal.h: shared by the files of this folder. */
#ifndef BURST_DATA_BALANCE_INTERNAL_H
#define BURST_DATA_BALANCE_INTERNAL_H

#include "data/balance/balance.h"

/* Limits of a rank: exchanges in level.c, each with two splits, and four splits before. */
enum { BALANCE_EXCHANGES = 4, BALANCE_SPLITS = 4 + 2 * BALANCE_EXCHANGES };

static inline int64_t work_of(const Balance *b, int64_t begin, int64_t end)
{
    return b->upto[end] - b->upto[begin];
}

static inline int tiles_of(const Balance *b, int run) { return b->run[run].end - b->run[run].begin; }

static inline int64_t run_work(const Balance *b, int run)
{
    return work_of(b, b->run[run].begin, b->run[run].end);
}

/* Tiles of keys that cross a cut before the tile, if the two sides have different ranks. */
static inline int64_t cut_cost(const Balance *b, int tile)
{
    return tile > 0 && tile < b->tiles ? b->tile[tile].below + b->tile[tile - 1].above : 0;
}

/* The run keeps its first tiles; returns the rest as a run that is in no list. */
int balance_split(Balance *b, int run, int tiles);

/* ---- pool.c ---- */

void pool_empty(BalancePool *pool);
void pool_put(Balance *b, int run);
/* Removes and returns the first run of a density, which must have one. */
int pool_take(Balance *b, int density);
/* The nearest density with a run, at or below `density`, or at or above; -1: none. */
int pool_down(const BalancePool *pool, int density);
int pool_up(const BalancePool *pool, int density);
static inline int pool_lightest(const BalancePool *pool) { return pool_up(pool, 0); }
static inline int pool_densest(const BalancePool *pool) { return pool_down(pool, BALANCE_DENSITIES - 1); }
/* Work of the lightest so many tiles of the pool: in the density where these end, some runs are read exactly
 * and the others count by their mean. */
int64_t pool_light_work(const Balance *b, int64_t tiles);

/* level.c: exchanges parts of runs until all ranks nearly have the mean. */
void balance_level(Balance *b);

#endif
