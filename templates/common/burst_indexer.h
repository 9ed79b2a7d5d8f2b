/* burst_indexer.h: the queries and keys by which a selection scores blocks: the layer's, or an indexer's. */
#ifndef BURST_INDEXER_H
#define BURST_INDEXER_H

#ifndef PLAN_INDEX_HEADS /* no selection has an indexer */
#define PLAN_INDEX_HEADS 0
#define PLAN_INDEX_KV_HEADS 0
#define PLAN_INDEX_DIM 0
#endif

/* lists: of a tile, as many as the layer's heads need. */
typedef struct PlanScoring {
    int q_heads, kv_heads, dim, lists;
} PlanScoring;

static inline PlanScoring plan_scoring(const BurstSelection *how)
{
    const int lists = burst_select_lists(how->heads, PLAN_HEADS, PLAN_KV_HEADS);
    const PlanScoring own = {PLAN_HEADS, PLAN_KV_HEADS, PLAN_HEAD_DIM, lists},
                      index = {PLAN_INDEX_HEADS, PLAN_INDEX_KV_HEADS, PLAN_INDEX_DIM, lists};
    return how->indexer ? index : own;
}

#endif
