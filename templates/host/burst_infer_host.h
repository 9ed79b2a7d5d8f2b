/* burst_infer_host.h: a prompt and the tokens that continue it, on the host.
 *
 * A prompt goes through the plan of the shortest length that holds it, filled up with tokens that nothing
 * attends to: masks show no later keys. Each layer keeps its keys and values where they were computed
 * (plan_cache_rows, fewer in layers whose mask hides earlier ones). A later token goes through the
 * same list of operations as a sequence of one token, on all ranks alike; its keys and values are kept by the
 * ranks in turn. Its queries attend on each rank the rows that are there, and the parts are merged by their
 * log-sum-exp (FlashAttention-2, section 3.1). */
#ifndef BURST_INFER_HOST_H
#define BURST_INFER_HOST_H

#ifdef PLAN_SCAN_COLUMNS
#include "burst_infer_scan_host.h"
#endif

/* A head's output, and the log-sum-exp of its scores. */
enum { PLAN_PART_ROW = PLAN_VALUE_DIM + 1 };

static int plan_infer_begin(BurstCtx *c, PlanState *s)
{
    PlanInfer *f = &s->infer;
    (void)c;
    s->position = f->decodes ? f->at : s->chunk[s->me].position;
    s->token = f->decodes ? f->token : f->own;
    f->found = &f->next;
#ifdef PLAN_SCAN_COLUMNS
    plan_running_pieces(s);
    for (int64_t i = 0; i < s->n; i++)
        s->buffer.places[i] = (int32_t)s->position[i];
    s->place = s->buffer.places;
#endif
    return BURST_OK;
}

static int plan_infer_run(BurstCtx *c, PlanState *s) { return plan_sequence(c, s); }

static int plan_infer_end(BurstCtx *c, PlanState *s, int32_t *next)
{
    (void)c;
    *next = s->infer.next;
    return BURST_OK;
}

static int plan_infer_logits(BurstCtx *c, PlanState *s, float **logits)
{
    (void)c;
    *logits = plan_floats(s, PLAN_AT_NEXT_SCRATCH);
    return BURST_OK;
}

static void plan_infer_one(PlanState *s) { s->position = s->infer.at; }

/* Adds what is 0 on all other ranks. */
static int plan_move_row(BurstCtx *c, PlanState *s, int64_t width, BurstAct *x, char *scratch)
{
    const BurstGroup ranks = {s->turn, burst_world(c) / PLAN_GROUP, PLAN_GROUP};
    const int64_t row = s->infer.end;
    (void)scratch;
    if (row < 0)
        memset(x, 0, (size_t)width * sizeof *x);
    else
        memmove(x, x + row * width, (size_t)width * sizeof *x);
    return PLAN_GROUP > 1 ? burst_sum_over(c, ranks, x, width) : BURST_OK;
}

#if defined PLAN_SPLIT_PRODUCTS || defined PLAN_SLICES
/* Adds what is 0 on all other ranks. */
static int plan_gather_rows(BurstCtx *c, PlanState *s, int unit, int64_t first, int64_t each, int64_t rows,
                            BurstAct *y)
{
    (void)s;
    memset(y, 0, (size_t)first * sizeof *y);
    memset(y + first + each, 0, (size_t)(rows - first - each) * sizeof *y);
    return burst_sum_over(c, burst_unit_group(c, unit), y, rows);
}
#endif

#ifdef PLAN_SLICES
static int plan_embed_slice(BurstCtx *c, PlanState *s, int64_t first, int hidden, const int32_t *token,
                            const float *slice, float *x, char *scratch)
{
    const int64_t row = token[0] - first;
    (void)s, (void)scratch;
    if (row >= 0 && row < PLAN_SLICES)
        memcpy(x, slice + row * hidden, (size_t)hidden * sizeof *x);
    else
        memset(x, 0, (size_t)hidden * sizeof *x);
    return burst_sum_over(c, burst_unit_group(c, PLAN_EMBED), x, hidden);
}

static int plan_share_head_row(BurstCtx *c, PlanState *s, int hidden, const float **x, char *scratch)
{
    const BurstGroup ranks = burst_tensor_group(c);
    float *row = (float *)(void *)scratch;
    if (ranks.count == 1)
        return BURST_OK;
    if (s->own > 0)
        memcpy(row, *x, (size_t)hidden * sizeof *row);
    else
        memset(row, 0, (size_t)hidden * sizeof *row);
    *x = row;
    return burst_sum_over(c, ranks, row, hidden);
}

#ifdef PLAN_SLICE_EXPERTS
static int plan_add_slices(BurstCtx *c, PlanState *s, int hidden, float *x, char *scratch)
{
    (void)s, (void)scratch;
    return burst_sum_over(c, burst_unit_group(c, 1), x, hidden);
}
#endif
#endif

#ifndef PLAN_KEEPS_LATENTS
/* Keeps the layer's keys and values: those of a prompt, or of the running token if it is this rank's turn. */
static inline int plan_cache(BurstCtx *c, PlanState *s, int mask, const float *k, const float *v,
                             float *cache_k, float *cache_v, char *parts)
{
    PlanInfer *f = &s->infer;
    (void)c;
    f->k = cache_k;
    f->v = cache_v;
    f->parts = (float *)(void *)parts;
    plan_find_kept(s, mask);
    if (f->decodes && f->more % PLAN_GROUP != s->me)
        return BURST_OK;
    const int64_t row = f->decodes ? f->kept + f->more / PLAN_GROUP : 0, first = f->decodes ? 0 : f->first,
                  rows = f->decodes ? 1 : f->kept, all = plan_cache_rows[mask];
    for (int h = 0; h < PLAN_KV_HEADS; h++) {
        memcpy(cache_k + (h * all + row) * PLAN_HEAD_DIM, k + (h * s->n + first) * PLAN_HEAD_DIM,
               (size_t)(rows * PLAN_HEAD_DIM) * sizeof *k);
        memcpy(cache_v + (h * all + row) * PLAN_VALUE_DIM, v + (h * s->n + first) * PLAN_VALUE_DIM,
               (size_t)(rows * PLAN_VALUE_DIM) * sizeof *v);
    }
    return BURST_OK;
}
#else
/* Elements of a head's keys that it does not share with others. */
enum { PLAN_OWN_DIM = PLAN_HEAD_DIM - PLAN_SHARED };

/* Keeps the layer's latents [tokens][latent] and what all heads' keys share: those of a prompt, or of the
 * running token if it is this rank's turn. weight: keys' own elements, then values, from a latent. */
static inline int plan_cache_latents(BurstCtx *c, PlanState *s, int mask, const float *latent, const float *k,
                                     const float *weight, float *cache_latent, float *cache_shared,
                                     char *parts)
{
    PlanInfer *f = &s->infer;
    (void)c;
    f->k = cache_latent;
    f->v = cache_shared;
    f->weight = weight;
    f->parts = (float *)(void *)parts;
    plan_find_kept(s, mask);
    if (f->decodes && f->more % PLAN_GROUP != s->me)
        return BURST_OK;
    const int64_t row = f->decodes ? f->kept + f->more / PLAN_GROUP : 0, first = f->decodes ? 0 : f->first,
                  rows = f->decodes ? 1 : f->kept;
    memcpy(cache_latent + row * PLAN_LATENT, latent + first * PLAN_LATENT,
           (size_t)(rows * PLAN_LATENT) * sizeof *latent);
    for (int64_t i = 0; i < rows; i++)
        memcpy(cache_shared + (row + i) * PLAN_SHARED, k + (first + i) * PLAN_HEAD_DIM + PLAN_OWN_DIM,
               PLAN_SHARED * sizeof *k);
    return BURST_OK;
}
#endif

/* Positions of up to BURST_TILE rows of the cache from `row` on, and which of them the running token sees. */
static inline void plan_rows_seen(const PlanState *s, int mask, int64_t row, int n, uint8_t *keep)
{
    const PlanInfer *f = &s->infer;
    int64_t position[BURST_TILE];
    for (int i = 0; i < n; i++)
        position[i] = row + i < f->kept ? s->chunk[s->me].position[f->first + row + i]
                                        : f->prompt + (row + i - f->kept) * PLAN_GROUP + s->me;
    plan_masks[mask]->row(f->at[0], position, n, NULL, keep);
    for (int i = 0; i < n; i++) /* a prompt's filling has the positions of the tokens that follow */
        keep[i] = keep[i] && (row + i >= f->kept || position[i] < f->prompt);
}

static inline double plan_dot(int n, const double *x, const float *y)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * (double)y[i];
    return sum;
}

static inline double plan_score(double product)
{
    product *= (double)PLAN_SCALE;
    if (!(PLAN_SOFTCAP > 0))
        return product;
    const double cap = (double)PLAN_SOFTCAP;
    return cap * (1 - 2 / (exp(2 * product / cap) + 1)); /* cap tanh(product / cap) */
}

#ifdef PLAN_KEEPS_LATENTS
/* Rows of the cache are latents: a query's own elements are multiplied by the weights of keys first, and the
 * output of latents by those of values last. */
enum { PLAN_ROW_KEY = PLAN_LATENT + PLAN_SHARED, PLAN_ROW_VALUE = PLAN_LATENT };

static inline void plan_row_query(const PlanState *s, int head, const float *q, double *query)
{
    const float *w = s->infer.weight + (int64_t)head * PLAN_OWN_DIM * PLAN_LATENT;
    for (int l = 0; l < PLAN_LATENT; l++)
        query[l] = 0;
    for (int i = 0; i < PLAN_OWN_DIM; i++)
        for (int l = 0; l < PLAN_LATENT; l++)
            query[l] += (double)q[i] * (double)w[i * PLAN_LATENT + l];
    for (int i = 0; i < PLAN_SHARED; i++)
        query[PLAN_LATENT + i] = (double)q[PLAN_OWN_DIM + i];
}

static inline double plan_row_score(const PlanState *s, int mask, int head, int64_t row, const double *query)
{
    (void)mask, (void)head;
    return plan_score(plan_dot(PLAN_LATENT, query, s->infer.k + row * PLAN_LATENT) +
                      plan_dot(PLAN_SHARED, query + PLAN_LATENT, s->infer.v + row * PLAN_SHARED));
}

static inline const float *plan_row_value(const PlanState *s, int mask, int head, int64_t row)
{
    (void)mask, (void)head;
    return s->infer.k + row * PLAN_LATENT;
}

static inline double plan_row_output(const PlanState *s, int head, int j, const double *o)
{
    const float *w = s->infer.weight + (int64_t)PLAN_HEADS * PLAN_OWN_DIM * PLAN_LATENT;
    return plan_dot(PLAN_LATENT, o, w + ((int64_t)head * PLAN_VALUE_DIM + j) * PLAN_LATENT);
}
#else
enum { PLAN_ROW_KEY = PLAN_HEAD_DIM, PLAN_ROW_VALUE = PLAN_VALUE_DIM };

/* The cache's row of a query head's key head. */
static inline int64_t plan_key_row(int mask, int head, int64_t row)
{
    return head / (PLAN_HEADS / PLAN_KV_HEADS) * plan_cache_rows[mask] + row;
}

static inline void plan_row_query(const PlanState *s, int head, const float *q, double *query)
{
    (void)s, (void)head;
    for (int i = 0; i < PLAN_HEAD_DIM; i++)
        query[i] = (double)q[i];
}

static inline double plan_row_score(const PlanState *s, int mask, int head, int64_t row, const double *query)
{
    return plan_score(
        plan_dot(PLAN_HEAD_DIM, query, s->infer.k + plan_key_row(mask, head, row) * PLAN_HEAD_DIM));
}

static inline const float *plan_row_value(const PlanState *s, int mask, int head, int64_t row)
{
    return s->infer.v + plan_key_row(mask, head, row) * PLAN_VALUE_DIM;
}

static inline double plan_row_output(const PlanState *s, int head, int j, const double *o)
{
    (void)s, (void)head;
    return o[j];
}
#endif

/* One head's output over the rows that are here: the sum of exp(score - top), and of that times values. */
typedef struct PlanRows {
    double o[PLAN_ROW_VALUE], sum, top;
} PlanRows;

static inline void plan_attend_row(double score, const float *value, PlanRows *r)
{
    if (score > r->top) {
        const double less = exp(r->top - score); /* 0 for the first */
        for (int j = 0; j < PLAN_ROW_VALUE; j++)
            r->o[j] *= less;
        r->sum *= less;
        r->top = score;
    }
    const double weight = exp(score - r->top);
    r->sum += weight;
    for (int j = 0; j < PLAN_ROW_VALUE; j++)
        r->o[j] += weight * (double)value[j];
}

/* This rank's part of a head: its output over the rows that are here, and their log-sum-exp. */
static inline void plan_part_of_head(const PlanState *s, int mask, int head, const float *q, float *part)
{
    const PlanInfer *f = &s->infer;
    const int64_t turns = f->more + PLAN_GROUP - s->me, rows = f->kept + turns / PLAN_GROUP;
    double query[PLAN_ROW_KEY];
    PlanRows r = {.top = -HUGE_VAL};
    plan_row_query(s, head, q, query);
    for (int64_t row = 0; row < rows; row += BURST_TILE) {
        const int n = (int)(rows - row < BURST_TILE ? rows - row : BURST_TILE);
        uint8_t keep[BURST_TILE];
        plan_rows_seen(s, mask, row, n, keep);
        for (int i = 0; i < n; i++)
            if (keep[i])
                plan_attend_row(plan_row_score(s, mask, head, row + i, query),
                                plan_row_value(s, mask, head, row + i), &r);
    }
    for (int j = 0; j < PLAN_VALUE_DIM; j++)
        part[j] = r.sum > 0 ? (float)(plan_row_output(s, head, j, r.o) / r.sum) : 0;
    part[PLAN_VALUE_DIM] = r.sum > 0 ? (float)(r.top + log(r.sum)) : -HUGE_VALF;
}

/* Merges a head's parts of all ranks. */
static inline void plan_merge_parts(const float *part, int64_t stride, float *o, float *lse)
{
    double top = -HUGE_VAL, sum = 0, all[PLAN_VALUE_DIM] = {0};
    for (int r = 0; r < PLAN_GROUP; r++)
        top = fmax(top, (double)part[r * stride + PLAN_VALUE_DIM]);
    for (int r = 0; r < PLAN_GROUP && top > -HUGE_VAL; r++) {
        const double weight = exp((double)part[r * stride + PLAN_VALUE_DIM] - top);
        sum += weight;
        for (int j = 0; j < PLAN_VALUE_DIM && weight > 0; j++)
            all[j] += weight * (double)part[r * stride + j];
    }
    for (int j = 0; j < PLAN_VALUE_DIM; j++)
        o[j] = sum > 0 ? (float)(all[j] / sum) : 0;
    *lse = sum > 0 ? (float)(top + log(sum)) : -HUGE_VALF;
}

/* Attention of the running token with all that is kept: o [heads][1][value_dim], lse [heads]. */
static inline int plan_decode_attention(BurstCtx *c, PlanState *s, int mask, const float *q, float *o,
                                        float *lse)
{
    enum { ROWS = PLAN_HEADS * PLAN_PART_ROW };
    const BurstGroup ranks = {s->turn, burst_world(c) / PLAN_GROUP, PLAN_GROUP};
    float *parts = s->infer.parts;
    burst_part(c, BURST_P_IDLE, 0, 0);
    memset(parts, 0, (size_t)(PLAN_GROUP * ROWS) * sizeof *parts);
    for (int h = 0; h < PLAN_HEADS; h++)
        plan_part_of_head(s, mask, h, q + h * PLAN_HEAD_DIM, parts + s->me * ROWS + h * PLAN_PART_ROW);
    if (PLAN_GROUP > 1)
        BURST_TRY(burst_sum_over(c, ranks, parts, PLAN_GROUP * ROWS));
    for (int h = 0; h < PLAN_HEADS; h++)
        plan_merge_parts(parts + h * PLAN_PART_ROW, ROWS, o + h * PLAN_VALUE_DIM, &lse[h]);
    return BURST_OK;
}

#endif
