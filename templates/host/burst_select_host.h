/* burst_select_host.h: tiles of queries choose blocks of keys, on the host. Each rank represents its own
 * tiles and blocks, and chooses for its own tiles; the ranks of a sequence send each other what they have
 * made, so that all have the lists of all tiles, whichever rank attends them. */
#ifndef BURST_SELECT_HOST_H
#define BURST_SELECT_HOST_H

#include "burst_indexer.h"

/* Sends `words` of each rank's own to all ranks: parts [ranks][words], of which each rank has as many as its
 * chunk. No other transfer of the plan is under way. */
static inline int plan_share_words(BurstCtx *c, PlanState *s, const float *own, int64_t words, float *parts)
{
    BurstReq sent[PLAN_GROUP] = {{0}}, received[PLAN_GROUP] = {{0}};
    const size_t bytes = (size_t)words * sizeof *own;
    for (int i = 1; i < PLAN_GROUP; i++) {
        const int to = (s->me + i) % PLAN_GROUP, from = (s->me + PLAN_GROUP - i) % PLAN_GROUP;
        BURST_TRY(burst_send(c, 0, plan_peer(s, to), own, bytes, &sent[to]));
        BURST_TRY(burst_recv(c, 0, plan_peer(s, from), parts + from * words, bytes, &received[from]));
    }
    memcpy(parts + s->me * words, own, bytes);
    for (int i = 0; i < PLAN_GROUP; i++)
        BURST_TRY(burst_wait(c, &received[i]));
    for (int i = 0; i < PLAN_GROUP; i++)
        BURST_TRY(burst_wait(c, &sent[i]));
    return BURST_OK;
}

/* The queries of a rank that choose. */
static inline BurstChunk plan_choosing(const PlanState *s, int rank)
{
    BurstChunk c = s->chunk[rank];
    const int64_t first = plan_choosing_first(s, rank);
    c.tokens = plan_choosing_end(s, rank) - first;
    c.position += first;
    return c;
}

/* Sends each rank's own units, `words` each, and places them where they are in the sequence: unit u at u *
 * step. Units are tiles of the queries that choose, or blocks of all keys. */
static inline int plan_share_units(BurstCtx *c, PlanState *s, bool tiles, int64_t unit, int64_t words,
                                   const float *own, float *parts, int64_t step, float *all)
{
    const int64_t tokens = tiles ? PLAN_CHOOSING_TOKENS : PLAN_TOKENS,
                  most = (tokens + unit - 1) / unit * words;
    BURST_TRY(plan_share_words(c, s, own, most, parts));
    for (int r = 0; r < PLAN_GROUP; r++) {
        const BurstChunk of = tiles ? plan_choosing(s, r) : s->chunk[r];
        burst_select_place(&of, unit, words, parts + r * most, step, all);
    }
    return BURST_OK;
}

/* lists [tiles of the sequence][lists of a tile][top] of the mask's selection, if it has one: those of the
 * heads that attention processes at a time. */
static inline int plan_select(BurstCtx *c, PlanState *s, int mask, const float *q, const float *k,
                              int32_t *lists, char *scratch)
{
    const BurstSelection *how = plan_masks[mask]->selection;
    const BurstChunk chunk = plan_choosing(s, s->me);
    if (!how)
        return BURST_OK;
    const PlanScoring of = plan_scoring(s, how);
    const BurstSelect x = {.how = how,
                           .q_heads = of.q_heads,
                           .kv_heads = of.kv_heads,
                           .head_dim = of.dim,
                           .lists = of.lists,
                           .sequence = PLAN_SEQUENCE,
                           .tables = s->tables,
                           .table_count = PLAN_TABLES};
    const BurstSelectSizes n = {.tokens = PLAN_TOKENS,
                                .sequence = PLAN_SEQUENCE,
                                .ranks = PLAN_GROUP,
                                .block = how->block,
                                .queries = how->queries,
                                .key_words = of.kv_heads * burst_select_width(how->key, how->block, of.dim),
                                .query_words = of.q_heads * burst_select_query_width(how->query, of.dim),
                                .list_words = of.lists * how->top,
                                .top = how->top,
                                .device = 0,
                                .tables = PLAN_TABLES};
    const BurstSelectPlaces at = burst_select_places(&n);
    float *own = (float *)(void *)(scratch + at.own), *parts = (float *)(void *)(scratch + at.parts),
          *keys = (float *)(void *)(scratch + at.keys), *tiles = (float *)(void *)(scratch + at.tiles);
    burst_doing(c, "choosing blocks");
    burst_select_keys(&x, &s->chunk[s->me], k, own);
    BURST_TRY(plan_share_units(c, s, false, how->block, n.key_words, own, parts, n.key_words, keys));
    burst_select_queries(&x, &chunk, q + of.before * chunk.tokens * of.dim, own);
    if (how->query == BURST_SELECT_PREVIOUS_MEAN) /* the rank after a tile's needs it */
        BURST_TRY(
            plan_share_units(c, s, true, how->queries, n.query_words, own, parts, n.query_words, tiles));
    else
        burst_select_place(&chunk, how->queries, n.query_words, own, n.query_words, tiles);
    burst_select_blocks(&x, &chunk, tiles, keys, scratch + at.work, (int32_t *)(void *)own);
#ifdef PLAN_CHECKED
    if (burst_select_check(&x, &chunk, (int32_t *)(void *)own))
        return burst_fail(c, BURST_E_PLAN, "rank %d chose a block that its selection may not choose",
                          burst_rank(c));
#endif
    BURST_TRY(plan_share_units(c, s, true, how->queries, n.list_words, own, parts, plan_tile_words(how),
                               (float *)(void *)(lists + plan_words_before(s, how))));
#ifdef PLAN_SEE_CHOSEN /* of tests */
    if (plan_last_chosen(s))
        PLAN_SEE_CHOSEN(how, (PLAN_SEQUENCE + how->queries - 1) / how->queries, plan_tile_words(how), lists);
#endif
    return BURST_OK;
}

#include "burst_selected.h"

#endif
