/* burst_indexer.h: the queries and keys by which a selection scores blocks: the layer's, or an indexer's. */
#ifndef BURST_INDEXER_H
#define BURST_INDEXER_H

#ifndef PLAN_INDEX_HEADS /* no selection has an indexer */
#define PLAN_INDEX_HEADS 0
#define PLAN_INDEX_KV_HEADS 0
#define PLAN_INDEX_DIM 0
#endif

/* Of a tile's lists, their numbers, and those before the heads' that attention processes at a time. */
static inline int plan_tile_words(const BurstSelection *how)
{
    return burst_select_lists(how->heads, PLAN_ALL_HEADS, PLAN_ALL_KV_HEADS) * how->top;
}

static inline int plan_words_before(const PlanState *s, const BurstSelection *how)
{
    return burst_select_lists(how->heads, s->heads.first_query, s->heads.first_key) * how->top *
           (how->heads != BURST_SELECT_OF_ALL);
}

/* Whether no heads of the layer follow these. */
static inline bool plan_last_heads(const PlanState *s)
{
    return s->heads.first_query + s->heads.queries == PLAN_ALL_HEADS;
}

/* lists: of a tile, as many as the heads need that attention processes at a time. An indexer's heads are
 * those that score for these, after `before` others; row: of a token's queries. */
typedef struct PlanScoring {
    int q_heads, kv_heads, dim, lists, before, row;
} PlanScoring;

static inline PlanScoring plan_scoring(const PlanState *s, const BurstSelection *how)
{
    const int lists = burst_select_lists(how->heads, s->heads.queries, s->heads.keys),
              each = PLAN_INDEX_HEADS * how->top / plan_tile_words(how);
    const PlanScoring own = {s->heads.queries, s->heads.keys, PLAN_HEAD_DIM, lists, 0, s->heads.queries},
                      index = {lists * each,
                               PLAN_INDEX_KV_HEADS,
                               PLAN_INDEX_DIM,
                               lists,
                               each * (plan_words_before(s, how) / how->top),
                               PLAN_INDEX_HEADS};
    return how->indexer ? index : own;
}

#endif
