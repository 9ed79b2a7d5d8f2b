/* burst_chunks_host.h: what a rank on the host has of a chunk: its owner's tokens, with all heads. */
#ifndef BURST_CHUNKS_HOST_H
#define BURST_CHUNKS_HOST_H

#include "burst_state_host.h"

static inline int64_t plan_part_floats(const PlanState *s, int tensor, int part, int chunk)
{
    return plan_part_width[tensor][part] * plan_heads_of(s, tensor) * plan_chunk_in(s, tensor, chunk)->tokens;
}

/* Of the largest chunk of any rank. */
static inline int64_t plan_slot_floats(int pool, int tensor, int part)
{
    (void)pool;
    return plan_part_width[tensor][part] * plan_most_heads(tensor) * plan_most_tokens(tensor);
}

/* Where the rank's own chunk is. */
static inline PlanSlot *plan_own(PlanState *s, int tensor)
{
    return &s->home[tensor];
}

static inline BurstAttend plan_pair_heads(const PlanState *s)
{
    return (BurstAttend){.head_dim = PLAN_HEAD_DIM,
                         .q_heads = s->heads.queries,
                         .kv_heads = s->heads.keys,
                         .group = PLAN_KV_SHARE,
                         .scale = PLAN_SCALE};
}

/* A pair in which the mask leaves something, of chunks q and kv. Whole tiles of queries are attended. */
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
