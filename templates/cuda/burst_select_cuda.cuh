/* burst_select_cuda.cuh: tiles of queries choose blocks of keys, on GPUs (burst_select_host.h says how). */
#ifndef BURST_SELECT_CUDA_CUH
#define BURST_SELECT_CUDA_CUH

#include "burst_indexer.h"
#include "cuda_select.cuh"

/* Makes the lists of this rank's tiles for a mask; burst_pairs_cuda.cuh. */
static cudaError_t plan_choose(PlanState *s, int mask, const BurstChoose &x, int head_dim,
                               const float *queries, const float *keys, char *work, int32_t *lists);

/* The queries of a rank that choose. */
static inline BurstChoosing plan_choosing(const PlanState *s, int rank)
{
    const int64_t first = plan_choosing_first(s, rank);
    const BurstChoosing c = {(int)(plan_choosing_end(s, rank) - first), s->tokens[rank].position + first};
    return c;
}

/* Its keys. */
static inline BurstChoosing plan_chosen_among(const PlanState *s, int rank)
{
    const BurstChoosing c = {(int)s->chunk[rank].tokens, s->tokens[rank].position};
    return c;
}

/* Sends `words` of each rank's own to all ranks: parts [ranks][words], of which each rank has as many as its
 * chunk. No other transfer of the plan is under way. */
static inline int plan_share_words(PlanState *s, const float *own, int64_t words, float *parts)
{
    BurstPiece send[PLAN_GROUP], receive[PLAN_GROUP];
    const cudaStream_t compute = burst_gpu_compute(s->exec), channel = burst_gpu_channel(s->exec, 0);
    const size_t bytes = (size_t)words * sizeof *own;
    for (int i = 0; i < PLAN_GROUP; i++) {
        const int peer = plan_peer(s, i);
        send[i] = BurstPiece{peer, (void *)own, bytes, 1, bytes, parts + s->me * words, bytes};
        receive[i] = BurstPiece{peer, parts + i * words, bytes, 1, bytes, NULL, 0};
    }
    BURST_TRY(burst_gpu_mark(s->exec, compute, &s->choosing[0]));
    BURST_TRY(burst_gpu_after(s->exec, channel, &s->choosing[0]));
    BURST_TRY(burst_gpu_exchange(s->exec, 0, send, PLAN_GROUP, receive, PLAN_GROUP, NULL, 0));
    BURST_TRY(burst_gpu_mark(s->exec, channel, &s->choosing[1]));
    return burst_gpu_after(s->exec, compute, &s->choosing[1]);
}

/* Places what each rank has of its units in the sequence: word w of unit u at u * unit_step + w * word_step.
 * Units are tiles of the queries that choose, or blocks of all keys. */
static inline int plan_share_units(BurstCtx *c, PlanState *s, bool of_tiles, int64_t unit, int64_t words,
                                   const float *own, float *parts, int64_t unit_step, int64_t word_step,
                                   void *all)
{
    const int64_t tokens = of_tiles ? PLAN_CHOOSING_TOKENS : PLAN_TOKENS,
                  most = (tokens + unit - 1) / unit * words;
    if (PLAN_GROUP > 1)
        BURST_TRY(plan_share_words(s, own, most, parts));
    for (int r = 0; r < PLAN_GROUP; r++)
        PLAN_CUDA(burst_choose_place(of_tiles ? plan_choosing(s, r) : plan_chosen_among(s, r), unit, words,
                                     PLAN_GROUP > 1 ? parts + r * most : own, unit_step, word_step, all,
                                     burst_gpu_compute(s->exec)));
    return BURST_OK;
}

/* The tables of the batch by position. */
static inline int plan_choose_tables(BurstCtx *c, PlanState *s, int32_t *tables, BurstChoose *x)
{
    for (int t = 0; t < PLAN_TABLES; t++) {
        burst_by_position_kernel<<<(PLAN_SEQUENCE + 255) / 256, 256, 0, burst_gpu_compute(s->exec)>>>(
            PLAN_SEQUENCE, s->buffer.device_positions, s->buffer.device_values + t * PLAN_SEQUENCE,
            tables + t * PLAN_SEQUENCE);
        PLAN_CUDA(cudaGetLastError());
        x->table[t] = tables + t * PLAN_SEQUENCE;
    }
    return BURST_OK;
}

#if defined PLAN_CHECKED || defined PLAN_SEE_CHOSEN
/* Checks this rank's lists, and shows those of the sequence to a test. */
static inline int plan_see_chosen(BurstCtx *c, PlanState *s, const BurstChoose *x, int64_t words,
                                  const int32_t *lists)
{
    const BurstSelection *how = &x->how;
    const int64_t tiles = (PLAN_SEQUENCE + how->queries - 1) / how->queries;
    BurstChunk chunk = s->chunk[s->me];
    const int64_t first = plan_choosing_first(s, s->me);
    const BurstSelect of = {how,      x->q_heads,    x->kv_heads,     plan_scoring(s, how).dim,
                            x->lists, PLAN_SEQUENCE, s->table_values, PLAN_TABLES};
    const int64_t step = plan_tile_words(how), before = plan_words_before(s, how);
    int32_t *all = (int32_t *)malloc((size_t)(2 * tiles * step) * sizeof *all), *own = all + tiles * step;
    int wrong = -1;
    if (!all)
        return burst_fail(c, BURST_E_MEMORY, "no memory for the lists of %lld tiles", (long long)tiles);
    int status = burst_gpu_download(s->exec, lists, (size_t)(tiles * step) * sizeof *all, all);
    chunk.tokens = plan_choosing_end(s, s->me) - first, chunk.position += first;
    for (int64_t at = 0; at < chunk.tokens && status == BURST_OK; at += how->queries)
        memcpy(own + at / how->queries * words, all + chunk.position[at] / how->queries * step + before,
               (size_t)words * sizeof *all);
    if (status == BURST_OK)
        wrong = burst_select_check(&of, &chunk, own);
#ifdef PLAN_SEE_CHOSEN /* of tests */
    if (status == BURST_OK && plan_last_chosen(s))
        PLAN_SEE_CHOSEN(how, tiles, step, all);
#endif
    free(all);
    if (status == BURST_OK && wrong)
        return burst_fail(c, BURST_E_PLAN, "rank %d chose a block that its selection may not choose",
                          burst_rank(c));
    return status;
}
#endif

/* lists [tiles of the sequence][lists of a tile][top] of the mask's selection, if it has one. */
static inline int plan_select(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q, const BurstBf16 *k,
                              int32_t *lists, char *scratch)
{
    const BurstSelection *how = plan_masks[mask]->selection;
    if (!how)
        return BURST_OK;
    const PlanScoring of = plan_scoring(s, how);
    const BurstSelectSizes n = {PLAN_TOKENS,
                                PLAN_SEQUENCE,
                                PLAN_GROUP,
                                how->block,
                                how->queries,
                                of.kv_heads * burst_select_device_words(how->key, how->block, of.dim),
                                of.q_heads * burst_select_query_width(how->query, of.dim),
                                of.lists * how->top,
                                how->top,
                                1,
                                PLAN_TABLES};
    const BurstSelectPlaces at = burst_select_places(&n);
    float *own = (float *)(scratch + at.own), *parts = (float *)(scratch + at.parts),
          *keys = (float *)(scratch + at.keys), *tiles = (float *)(scratch + at.tiles);
    const cudaStream_t compute = burst_gpu_compute(s->exec);
    const BurstChoosing mine = plan_choosing(s, s->me);
    const int64_t blocks = (PLAN_SEQUENCE + how->block - 1) / how->block;
    BurstChoose x = {*how, of.q_heads, of.kv_heads, of.lists, PLAN_SEQUENCE, {}};
    burst_doing(c, "choosing blocks");
    BURST_TRY(plan_choose_tables(c, s, (int32_t *)(scratch + at.tables), &x));
    PLAN_CUDA(burst_choose_keys(x, plan_chosen_among(s, s->me), plan_rows((char *)k, of.kv_heads, of.dim),
                                of.dim, own, compute));
    const bool whole = how->key == BURST_SELECT_MAX_KEY; /* all words of a block follow each other */
    BURST_TRY(plan_share_units(c, s, false, how->block, n.key_words, own, parts, whole ? n.key_words : 1,
                               whole ? 1 : blocks, keys));
    PLAN_CUDA(burst_choose_queries(x, mine, plan_rows((char *)(q + of.before * of.dim), of.row, of.dim),
                                   of.dim, own, compute));
    if (how->query == BURST_SELECT_PREVIOUS_MEAN) /* the rank after a tile's needs it */
        BURST_TRY(
            plan_share_units(c, s, true, how->queries, n.query_words, own, parts, n.query_words, 1, tiles));
    else
        PLAN_CUDA(
            burst_choose_place(mine, how->queries, n.query_words, own, n.query_words, 1, tiles, compute));
    PLAN_CUDA(plan_choose(s, mask, x, of.dim, tiles, keys, scratch + at.work, (int32_t *)own));
    BURST_TRY(plan_share_units(c, s, true, how->queries, n.list_words, own, parts, plan_tile_words(how), 1,
                               lists + plan_words_before(s, how)));
#if defined PLAN_CHECKED || defined PLAN_SEE_CHOSEN
    BURST_TRY(plan_see_chosen(c, s, &x, n.list_words, lists));
#endif
    return BURST_OK;
}

#include "burst_selected.h"

#endif
