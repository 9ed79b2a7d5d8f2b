/* decay.h: the tensors whose weights AdamW makes smaller in each step. */
#ifndef BURST_OPTIMIZER_DECAY_H
#define BURST_OPTIMIZER_DECAY_H

#include "burst_plan.h"

#include <string.h>

/* Matrices, but an indexer's: these have no gradient, and with no decay they stay as they are. */
static inline bool tensor_decays(const BurstTensor *t)
{
    return t->init_std > 0 && strncmp(t->name, BURST_INDEXER_TENSORS, sizeof BURST_INDEXER_TENSORS - 1) != 0;
}

#endif
