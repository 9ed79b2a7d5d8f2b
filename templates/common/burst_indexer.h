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

/* Whether no heads of the layer follow these, and no chunk of its queries. */
static inline bool plan_last_chosen(const PlanState *s)
{
#ifdef PLAN_QUERY_CHUNKS
    if (s->tile.queries < PLAN_QUERY_CHUNKS - 1)
        return false;
#endif
    return s->heads.first_query + s->heads.queries == PLAN_ALL_HEADS;
}

/* The tokens of a rank that choose, in its order: all, or a chunk of them. */
static inline int64_t plan_choosing_first(const PlanState *s, int rank)
{
#ifdef PLAN_QUERY_CHUNKS
    return plan_query_begin(s->chunk[rank].tokens, s->tile.queries);
#else
    (void)s, (void)rank;
    return 0;
#endif
}

static inline int64_t plan_choosing_end(const PlanState *s, int rank)
{
#ifdef PLAN_QUERY_CHUNKS
    return plan_query_begin(s->chunk[rank].tokens, s->tile.queries + 1);
#else
    return s->chunk[rank].tokens;
#endif
}

/* The most tokens of a rank that choose. */
#ifdef PLAN_QUERY_CHUNKS
enum { PLAN_CHOOSING_TOKENS = (PLAN_TOKENS + PLAN_QUERY_CHUNKS - 1) / PLAN_QUERY_CHUNKS };
#else
enum { PLAN_CHOOSING_TOKENS = PLAN_TOKENS };
#endif

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
