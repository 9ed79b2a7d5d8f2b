/* balance.h: who has which tokens of one batch, where the plan decides that for each batch (`partition
 * balanced(B)`). The sequence is cut into runs of whole tiles, and every rank gets as many tiles as any
 * other. Work is what the masks leave, in tiles, so any mask with per-token tables balances. The same batch
 * gives the same answer on every rank: nothing is exchanged, and all arithmetic is in integers.
 */
#ifndef BURST_DATA_BALANCE_H
#define BURST_DATA_BALANCE_H

#include "burst_rt.h"

/* A mask's verdict on a box of two sides: BURST_EMPTY, ... A plan's mask has `tile`; others have `cover`. */
typedef struct BalanceMask {
    int (*tile)(const BurstSide *q, const BurstSide *k);
    int (*cover)(const void *of, const BurstSide *q, const BurstSide *k);
    const void *of;
} BalanceMask;

/* Of a tile of queries, in tiles of keys, those of a mask counted once for every layer that has it. */
typedef struct BalanceTile {
    int64_t work;         /* all that are live */
    int64_t below, above; /* those before and behind the tile itself: who has it receives them */
} BalanceTile;

/* Tiles [begin, end), in the list of a rank or of a density (pool.c). */
typedef struct BalanceRun {
    int32_t begin, end;
    int next; /* -1: the last of its list */
} BalanceRun;

/* Runs that have no rank yet, by their work a tile: a list and a node of a Fenwick tree for each of some
 * densities, 2 % apart. */
enum { BALANCE_DENSITIES = 1024 };
typedef struct BalancePool {
    int first[BALANCE_DENSITIES];              /* -1: none */
    uint64_t filled[BALANCE_DENSITIES / 64];   /* bits */
    int64_t tiles[BALANCE_DENSITIES + 1], work[BALANCE_DENSITIES + 1]; /* sums, as the tree has them */
    int64_t all_tiles;
} BalancePool;

/* What tables have at the first and the last token of a segment. */
typedef struct BalanceEnds {
    int32_t table[2][BURST_MAX_TABLES];
} BalanceEnds;

typedef struct Balance {
    int ranks, tiles, share; /* share: tiles of a rank */
    int joined;              /* short components side by side are one run, up to so many tiles */
    int masks;
    int64_t sequence, size;  /* size: tokens of a tile */
    int *layers;       /* [masks] that have it */
    BalanceMask *mask; /* [masks] the plan's; a plan without masks leaves them to the caller */
    int all_layers;
    BalanceTile *tile; /* [tiles + 1] */
    int64_t *upto;     /* [tiles + 1] work of all tiles before */
    int *owner;        /* [tiles] */
    /* scratch */
    int *segment;     /* [tiles + 1] first tile of each, and the end of the last */
    BalanceEnds *end; /* [tiles + 1] of each segment */
    int levels;       /* of boxes: segments, pairs of segments, ...; as many as if each tile were one */
    int *boxes;       /* [levels] of this batch */
    BurstSide **side; /* [levels][boxes] */
    BalanceRun *run;  /* [most_runs] */
    int runs, most_runs;
    BalancePool pool;
    int open;      /* run whose end the ranks before have taken; -1: none */
    int slice;     /* tiles of its beginning that each of them gets */
    int *held;     /* [ranks] first run of each */
    int64_t *load; /* [ranks] work */
    int *order;    /* [ranks] ascending by it */
    int64_t *next; /* [ranks] */
} Balance;

/* Of a plan with `balanced` runs; NULL: out of memory. */
Balance *balance_open(const BurstPlan *p);
void balance_close(Balance *b);
/* Fills tile and upto from the tables of a batch. */
void balance_count(Balance *b, const BurstTables *tables, int table_count);
/* Fills owner from tile and upto. */
void balance_assign(Balance *b);
/* Fills position[sequence], chunk by chunk, each ascending, from owner; false: some chunk has not its
 * equal share, or a tile has no owner. */
bool balance_positions(const Balance *b, int64_t *position);

/* Sequences of a batch, as many for each group: the heaviest first, each to the group with least work that
 * has room (Graham, 1969). order: those of the first group, ascending, of the second, ... */
typedef struct BalanceGroups {
    int sequences, groups; /* the groups divide the sequences */
    int64_t *work;         /* [sequences] */
    int *order;            /* [sequences] */
    int *group;            /* [sequences] */
    int64_t *load;         /* [groups] scratch, as is: */
    int *has;              /* [groups] */
} BalanceGroups;
void balance_groups(const BalanceGroups *of);

#endif
