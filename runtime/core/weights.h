/* weights.h: the shards of all weights: which elements a rank holds, and their first values. */
#ifndef BURST_CORE_WEIGHTS_H
#define BURST_CORE_WEIGHTS_H

#include "burst_plan.h"

void weights_close(BurstCtx *c);
/* The two halves of burst_weights_make: zeroed shards, and first values from the seed. */
int weights_take(BurstCtx *c, const BurstPlan *p, BurstWeights *w);
void weights_fill(BurstCtx *c, const BurstPlan *p, BurstWeights *w);
/* Where a rank's shard of a unit has elements of this tensor; end <= begin: nowhere. */
typedef struct ElementRange { int64_t begin, end; } ElementRange;
ElementRange tensor_part(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t);
int plan_tensor(const BurstPlan *p);
bool unit_is_split(const BurstPlan *p, const BurstUnit *u); /* over tensor ranks */
/* tensor ranks, neighbours, that have the same of it */
int tensor_copies(const BurstPlan *p, const BurstTensor *t);
BurstGroup copies_group(const BurstCtx *c, const BurstTensor *t); /* these ranks */
/* Whether it is this rank, of tensor ranks that have the same of the tensor, that writes it into files. */
bool tensor_is_written(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t);
/* How many ranks share the weights. */
static inline int plan_shards(const BurstPlan *p) { return p->shard_ranks ? p->shard_ranks : p->world; }
/* Whether it is this rank, of those that hold the same shards, that writes item `n` of a file: they take
 * turns. */
static inline bool plan_writes(const BurstPlan *p, int rank, int n)
{
    return n % (p->world / plan_shards(p)) == rank / plan_shards(p);
}

#endif
