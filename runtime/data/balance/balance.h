/* balance.h: assigns the tokens of one batch to ranks, if the plan does so for each batch (`partition
 * balanced(B)`). The sequence is cut into runs of whole tiles, and all ranks get equally many tiles. Work is
 * counted in unmasked tiles, so any mask with per-token tables can be balanced. All ranks compute the same
 * result without communication: all arithmetic is in integers. */
#ifndef BURST_DATA_BALANCE_H
#define BURST_DATA_BALANCE_H

#include "burst_rt.h"

/* A mask's verdict on a box of two sides: BURST_EMPTY, ... A plan's mask has `tile`; others have `cover`. */
typedef struct BalanceMask {
    int (*tile)(const BurstSide *q, const BurstSide *k);
    int (*cover)(const void *of, const BurstSide *q, const BurstSide *k);
    const void *of;
} BalanceMask;

/* Counts of a tile of queries, in tiles of keys; a mask's tiles are counted once for each layer that has
 * it. */
typedef struct BalanceTile {
    int64_t work;         /* all live tiles */
    int64_t below, above; /* live tiles before and after the tile itself: its owner receives them */
} BalanceTile;

/* Tokens of a tile: as many tiles are dealt to each rank, in the order of the sequence. */
int64_t balance_tile(int64_t max_tokens, int64_t run, bool on_gpu);

/* Tiles [begin, end), in the list of a rank or of a density (pool.c). */
typedef struct BalanceRun {
    int32_t begin, end;
    int next; /* -1: the last of its list */
} BalanceRun;

/* Runs without a rank, by work per tile: for each density, 2 % apart, a list and a node of a Fenwick
 * tree. */
enum { BALANCE_DENSITIES = 1024 };
typedef struct BalancePool {
    int first[BALANCE_DENSITIES];              /* -1: none */
    uint64_t filled[BALANCE_DENSITIES / 64];   /* bits */
    int64_t tiles[BALANCE_DENSITIES + 1], work[BALANCE_DENSITIES + 1]; /* sums of the Fenwick tree */
    int64_t all_tiles;
} BalancePool;

/* The tables' values at the first and the last token of a segment. */
typedef struct BalanceEnds {
    int32_t table[2][BURST_MAX_TABLES];
} BalanceEnds;

typedef struct Balance {
    int ranks, tiles, share; /* share: tiles per rank */
    int joined;              /* adjacent short components are joined to runs of up to so many tiles */
    int masks;
    int64_t sequence, size;  /* size: tokens per tile */
    int *layers;       /* [masks] layers that have it */
    BalanceMask *mask; /* [masks] the plan's; for a plan without masks the caller sets them */
    int all_layers;
    BalanceTile *tile; /* [tiles + 1] */
    int64_t *upto;     /* [tiles + 1] work of all earlier tiles */
    int *owner;        /* [tiles] */
    /* scratch */
    int *segment;     /* [tiles + 1] first tile of each, and the end of the last */
    BalanceEnds *end; /* [tiles + 1] of each segment */
    int levels;       /* of boxes: segments, pairs of segments, ...; enough for segments of one tile */
    int *boxes;       /* [levels] in this batch */
    BurstSide **side; /* [levels][boxes] */
    BalanceRun *run;  /* [most_runs] */
    int runs, most_runs;
    BalancePool pool;
    int open;      /* run whose end earlier ranks have taken; -1: none */
    int slice;     /* tiles of its beginning for each of them */
    int *held;     /* [ranks] first run of each */
    int64_t *load; /* [ranks] work */
    int *order;    /* [ranks] by ascending work */
    int64_t *next; /* [ranks] */
} Balance;

/* For a plan with `balanced` runs; NULL: out of memory. */
Balance *balance_open(const BurstPlan *p);
void balance_close(Balance *b);
/* Sets tile and upto from the tables of a batch. */
void balance_count(Balance *b, const BurstTables *tables, int table_count);
/* Sets owner from tile and upto. */
void balance_assign(Balance *b);
/* Sets position[sequence] from owner, chunk by chunk, each ascending. Returns false if chunks have unequal
 * shares, or a tile has no owner. */
bool balance_positions(const Balance *b, int64_t *position);

/* Assigns the sequences of a batch to groups, equally many each: the heaviest first, each to the group with
 * least work that has room (Graham, 1969). order: sequences of the first group, ascending, of the second,
 * ... */
typedef struct BalanceGroups {
    int sequences, groups; /* the groups divide the sequences */
    int64_t *work;         /* [sequences] */
    int *order;            /* [sequences] */
    int *group;            /* [sequences] */
    int64_t *load;         /* [groups] scratch */
    int *has;              /* [groups] */
} BalanceGroups;
void balance_groups(const BalanceGroups *of);

#endif
