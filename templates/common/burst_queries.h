/* burst_queries.h: attention of a chunk of this rank's queries with all keys, on either target (`token
 * chunks` with `attention`), or with one chunk of keys after the other (with `keys`: FPDT, arXiv
 * 2408.16978). Other functions then see the chunk as all of the rank's queries and keys. */
#ifndef BURST_QUERIES_H
#define BURST_QUERIES_H

/* The chunk of queries with all keys, which the first one exchanges, and the last one their gradients. */
static inline PlanTile plan_queries_tile(int chunk)
{
    PlanTile tile;
    memset(&tile, 0, sizeof tile);
    tile.queries = chunk;
    tile.adds = tile.has_keys = chunk > 0;
    tile.keeps_sums = chunk < PLAN_QUERY_CHUNKS - 1;
    return tile;
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

/* The chunk of queries with one chunk of keys, of those that the mask leaves it a pair with. */
static inline PlanTile plan_pair_tile(int mask, int chunk, int key)
{
    PlanTile tile;
    memset(&tile, 0, sizeof tile);
    tile.queries = chunk;
    tile.keys = key;
    tile.adds = plan_key_begun(mask, chunk, key);
    tile.resumes = key > plan_key_from(mask, chunk, 0);
    tile.suspends = plan_key_from(mask, chunk, key + 1) < PLAN_QUERY_CHUNKS;
    return tile;
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

/* What the rank has besides the tile. */
typedef struct PlanOthers {
    PlanQueries queries;
#ifdef PLAN_KEY_CHUNKS
    PlanKeys keys;
#endif
} PlanOthers;

static inline void plan_take_tile(PlanState *s, const PlanTile *tile, PlanOthers *others)
{
    s->tile = *tile;
    plan_take_queries(s, tile->queries, &others->queries);
#ifdef PLAN_KEY_CHUNKS
    plan_take_keys(s, tile->keys, &others->keys);
#endif
}

static inline void plan_put_tile(PlanState *s, const PlanOthers *others)
{
#ifdef PLAN_KEY_CHUNKS
    plan_put_keys(s, &others->keys);
#endif
    plan_put_queries(s, &others->queries);
    memset(&s->tile, 0, sizeof s->tile);
}

/* Computes o and lse of the tile's queries. k, v: of its keys. */
static inline int plan_attention_tile(BurstCtx *c, PlanState *s, int mask, PlanTile tile, const BurstAct *q,
                                      const BurstAct *k, const BurstAct *v, BurstAct *o, float *lse)
{
    PlanOthers others;
#ifdef PLAN_INFER
    if (s->infer.decodes) /* its only row is in the last chunk */
        return tile.queries < PLAN_QUERY_CHUNKS - 1 ? BURST_OK : plan_decode_attention(c, s, mask, q, o, lse);
#endif
    plan_take_tile(s, &tile, &others);
    BURST_TRY(plan_attention(c, s, mask, q, k, v, o, lse));
    plan_put_tile(s, &others);
    return BURST_OK;
}

/* Computes their dq, and dk and dv of the keys. */
static inline int plan_attention_back_tile(BurstCtx *c, PlanState *s, int mask, PlanTile tile,
                                           const BurstAct *q, const BurstAct *k, const BurstAct *v,
                                           const float *lse, const BurstAct *d_o, const float *delta,
                                           float *dq, float *dk, float *dv)
{
    PlanOthers others;
    plan_take_tile(s, &tile, &others);
    BURST_TRY(plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv));
    plan_put_tile(s, &others);
    return BURST_OK;
}

#ifdef PLAN_SELECTIONS
/* Chooses for the tile's queries among the blocks of all keys. */
static inline int plan_select_tile(BurstCtx *c, PlanState *s, int mask, PlanTile tile, const BurstAct *q,
                                   const BurstAct *k, int32_t *lists, char *scratch)
{
    s->tile = tile;
    BURST_TRY(plan_select(c, s, mask, q, k, lists, scratch));
    memset(&s->tile, 0, sizeof s->tile);
    return BURST_OK;
}

/* plan_attention_tile over the lists. */
static inline int plan_attention_tile_selected(BurstCtx *c, PlanState *s, int mask, PlanTile tile,
                                               const BurstAct *q, const BurstAct *k, const BurstAct *v,
                                               const int32_t *lists, BurstAct *o, float *lse)
{
    plan_attend_chosen(s, mask, lists);
    return plan_attention_tile(c, s, mask, tile, q, k, v, o, lse);
}

/* plan_attention_back_tile over the lists of forward. */
static inline int plan_attention_back_tile_selected(BurstCtx *c, PlanState *s, int mask, PlanTile tile,
                                                    const BurstAct *q, const BurstAct *k, const BurstAct *v,
                                                    const float *lse, const BurstAct *d_o, const float *delta,
                                                    const int32_t *lists, float *dq, float *dk, float *dv)
{
    plan_attend_chosen(s, mask, lists);
    return plan_attention_back_tile(c, s, mask, tile, q, k, v, lse, d_o, delta, dq, dk, dv);
}
#endif

#include "burst_not_alone.h"

#endif
