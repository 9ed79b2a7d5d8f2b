/* balance.h: who has which tokens of one batch, where the plan decides that for each batch (`partition
 * balanced(B)`): the sequence is cut into runs of B tokens, and every rank gets as many of them as any
 * other. Work is what the masks leave, in tiles, so any mask with per-token tables balances. The same batch
 * gives the same answer on every rank: nothing is exchanged, and all arithmetic is in integers.
 */
#ifndef BURST_DATA_BALANCE_H
#define BURST_DATA_BALANCE_H

#include "burst_rt.h"

/* Keys that one run of queries needs, as runs of the sequence: [lo, hi), ascending, apart. */
enum { BALANCE_SPANS = 6 };
typedef struct BalanceSpan {
    int32_t lo, hi;
} BalanceSpan;
typedef struct BalanceNeed {
    int n;
    BalanceSpan span[BALANCE_SPANS];
} BalanceNeed;

/* A mask's verdict on a box of two sides: BURST_EMPTY, ... */
typedef struct BalanceMask {
    int (*cover)(const void *of, const BurstSide *q, const BurstSide *k);
    const void *of;
} BalanceMask;

typedef struct BalanceRank {
    int *run;       /* [each] ascending */
    int64_t work;
    int64_t keys;   /* runs of keys that it receives, for every layer */
    bool done;      /* no exchange helps */
} BalanceRank;

typedef struct Balance {
    int ranks, each, runs; /* each: runs of a rank; runs = ranks * each */
    int masks;
    int64_t run;           /* tokens */
    int64_t sequence;
    int64_t *work;         /* [runs] live tiles, those of a mask counted once for every layer that has it */
    BalanceNeed *need;     /* [masks][runs] */
    int *layers;           /* [masks] that have it */
    BalanceMask *mask;     /* [masks] the plan's; a plan without masks leaves them to the caller */
    int all_layers;
    int *owner;            /* [runs] */
    /* scratch */
    int levels;            /* of boxes: tiles, pairs of tiles, ... */
    int *boxes;            /* [levels] */
    BurstSide **side;      /* [levels][boxes] */
    BalanceRank *rank;     /* [ranks] */
    int *held, *trial;     /* [runs] of each rank, ascending; [2 * each] */
    BalanceSpan *spans;    /* [each * BALANCE_SPANS] */
    int64_t *next;         /* [ranks] */
} Balance;

/* Of a plan with `balanced` runs; NULL: out of memory. */
Balance *balance_open(const BurstPlan *p);
void balance_close(Balance *b);
/* Fills work and need from the tables of a batch. */
void balance_count(Balance *b, const BurstTables *tables, int table_count);
/* Fills owner from work and need. */
void balance_assign(Balance *b);
/* Fills position[sequence], chunk by chunk, each ascending, from owner; false: some chunk has not its
 * equal share, or a run has no owner. */
bool balance_positions(const Balance *b, int64_t *position);

#endif
