/* burst_chunks_host.h: a rank's part of a chunk on the host: all of its owner's tokens, with all heads. */
#ifndef BURST_CHUNKS_HOST_H
#define BURST_CHUNKS_HOST_H

#include "burst_state_host.h"
#include "burst_chunks.h"

static inline BurstAttend plan_pair_heads(const PlanState *s)
{
    return (BurstAttend){.head_dim = PLAN_HEAD_DIM,
                         .value_dim = PLAN_VALUE_DIM,
                         .q_heads = s->heads.queries,
                         .kv_heads = s->heads.keys,
                         .group = PLAN_KV_SHARE,
                         .scale = PLAN_SCALE};
}

/* Runs a live pair of chunks q and kv, over whole tiles of queries. */
static inline void plan_run_pair(PlanState *s, BurstAttend a, int q, int kv,
                                 void (*run)(const BurstAttend *a))
{
    BurstChunk queries = s->chunk[q];
    queries.tiles = s->again ? (int)((s->again + BURST_TILE - 1) / BURST_TILE) : queries.tiles;
    a.qc = &queries;
    a.kc = &s->key[kv];
    run(&a);
}

#endif
