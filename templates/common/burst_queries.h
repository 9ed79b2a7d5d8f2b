/* burst_queries.h: attention of a chunk of this rank's queries with all keys, on either target (`token
 * chunks` with `attention`), or with one chunk of keys after the other (with `keys`: FPDT, arXiv
 * 2408.16978). Other functions then see the chunk as all of the rank's queries and keys. */
#ifndef BURST_QUERIES_H
#define BURST_QUERIES_H

/* Selects a chunk of queries with all keys. The first chunk sets up what the others reuse. */
static inline void plan_take_row(PlanState *s, int chunk, PlanQueries *all)
{
    plan_take_queries(s, chunk, all);
    s->adds = s->keys_there = chunk > 0;
    s->more = chunk < PLAN_QUERY_CHUNKS - 1;
}

/* Computes o and lse of the chunk's queries. */
static inline int plan_attention_rows(BurstCtx *c, PlanState *s, int mask, int chunk, const BurstAct *q,
                                      const BurstAct *k, const BurstAct *v, BurstAct *o, float *lse)
{
    PlanQueries all;
    plan_take_row(s, chunk, &all);
    BURST_TRY(plan_attention(c, s, mask, q, k, v, o, lse));
    plan_put_queries(s, &all);
    return BURST_OK;
}

/* Computes their dq, and adds to dk and dv, which the first chunk begins. */
static inline int plan_attention_back_rows(BurstCtx *c, PlanState *s, int mask, int chunk, const BurstAct *q,
                                           const BurstAct *k, const BurstAct *v, const float *lse,
                                           const BurstAct *d_o, const float *delta, float *dq, float *dk,
                                           float *dv)
{
    PlanQueries all;
    plan_take_row(s, chunk, &all);
    BURST_TRY(plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv));
    plan_put_queries(s, &all);
    return BURST_OK;
}

#ifdef PLAN_KEY_CHUNKS
/* The first chunk of keys from `key` on that has a live pair with the chunk of queries; PLAN_QUERY_CHUNKS:
 * none. */
static inline int plan_key_from(int mask, int chunk, int key)
{
    while (key < PLAN_QUERY_CHUNKS && !(plan_key_pairs[mask][chunk] >> key & 1))
        key++;
    return key;
}

/* Whether earlier chunks of queries have begun the gradient sums of the chunk of keys. */
static inline bool plan_key_begun(int mask, int chunk, int key)
{
    bool begun = false;
    for (int i = 0; i < chunk; i++)
        begun = begun || (plan_key_pairs[mask][i] >> key & 1);
    return begun;
}

/* Selects a pair, and whether it is the first or the last of the chunk of queries. */
static inline void plan_take_pair(PlanState *s, int mask, int chunk, int key, PlanQueries *queries,
                                  PlanKeys *keys)
{
    plan_take_queries(s, chunk, queries);
    plan_take_keys(s, key, keys);
    s->adds = plan_key_begun(mask, chunk, key);
    s->goes_on = key > plan_key_from(mask, chunk, 0);
    s->follows = plan_key_from(mask, chunk, key + 1) < PLAN_QUERY_CHUNKS;
}

static inline void plan_put_pair(PlanState *s, const PlanQueries *queries, const PlanKeys *keys)
{
    plan_put_keys(s, keys);
    plan_put_queries(s, queries);
}

/* Adds a chunk of keys to o and lse of the chunk's queries. k, v: of the chunk of keys. */
static inline int plan_attention_keys(BurstCtx *c, PlanState *s, int mask, int chunk, int key,
                                      const BurstAct *q, const BurstAct *k, const BurstAct *v, BurstAct *o,
                                      float *lse)
{
    PlanQueries queries;
    PlanKeys keys;
    plan_take_pair(s, mask, chunk, key, &queries, &keys);
    BURST_TRY(plan_attention(c, s, mask, q, k, v, o, lse));
    plan_put_pair(s, &queries, &keys);
    return BURST_OK;
}

/* Adds to dq of the chunk of queries, and to dk and dv of the chunk of keys, which the first chunk of
 * queries that attends it begins. */
static inline int plan_attention_back_keys(BurstCtx *c, PlanState *s, int mask, int chunk, int key,
                                           const BurstAct *q, const BurstAct *k, const BurstAct *v,
                                           const float *lse, const BurstAct *d_o, const float *delta,
                                           float *dq, float *dk, float *dv)
{
    PlanQueries queries;
    PlanKeys keys;
    plan_take_pair(s, mask, chunk, key, &queries, &keys);
    BURST_TRY(plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv));
    plan_put_pair(s, &queries, &keys);
    return BURST_OK;
}

/* Adds the bytes that a sequence copies of keys and their sums, over all pairs of chunks. */
static inline void plan_add_key_copies(const PlanState *s, int64_t *staged, int64_t *fetched)
{
    for (int m = 0; m < PLAN_MASKS; m++)
        for (int q = 0; q < PLAN_QUERY_CHUNKS; q++)
            for (int k = plan_key_from(m, q, 0); k < PLAN_QUERY_CHUNKS; k = plan_key_from(m, q, k + 1)) {
                const int64_t rows = plan_key_rows(s->n, k);
                *fetched += rows *
                            (plan_key_copies[m][0] + (plan_key_begun(m, q, k) ? plan_key_copies[m][1] : 0));
                *staged += rows * plan_key_copies[m][2];
            }
}
#endif

#include "burst_not_alone.h"

#endif
