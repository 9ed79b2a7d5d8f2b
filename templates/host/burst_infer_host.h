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

static int plan_move_row(BurstCtx *c, PlanState *s, int64_t row, int64_t width, BurstAct *x)
{
    (void)c, (void)s;
    memmove(x, x + row * width, (size_t)width * sizeof *x);
    return BURST_OK;
}

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

static inline double plan_score(const float *q, const float *k)
{
    double sum = 0;
    for (int i = 0; i < PLAN_HEAD_DIM; i++)
        sum += (double)q[i] * (double)k[i];
    sum *= (double)PLAN_SCALE;
    if (!(PLAN_SOFTCAP > 0))
        return sum;
    const double cap = (double)PLAN_SOFTCAP;
    return cap * (1 - 2 / (exp(2 * sum / cap) + 1)); /* cap tanh(sum / cap) */
}

/* One head's queries with a tile of rows: o, its sum of exp(score - *top), and *top. */
static inline void plan_attend_rows(const float *q, const float *k, const float *v, int n,
                                    const uint8_t *keep, double *o, double *sum, double *top)
{
    for (int i = 0; i < n; i++) {
        if (!keep[i])
            continue;
        const double score = plan_score(q, k + i * PLAN_HEAD_DIM);
        if (score > *top) {
            const double less = exp(*top - score); /* 0 for the first */
            for (int j = 0; j < PLAN_VALUE_DIM; j++)
                o[j] *= less;
            *sum *= less;
            *top = score;
        }
        const double weight = exp(score - *top);
        *sum += weight;
        for (int j = 0; j < PLAN_VALUE_DIM; j++)
            o[j] += weight * (double)v[i * PLAN_VALUE_DIM + j];
    }
}

/* This rank's part of a head: its output over the rows that are here, and their log-sum-exp. */
static inline void plan_part_of_head(const PlanState *s, int mask, int head, const float *q, float *part)
{
    const PlanInfer *f = &s->infer;
    const int kv = head / (PLAN_HEADS / PLAN_KV_HEADS);
    const int64_t turns = f->more + PLAN_GROUP - s->me, rows = f->kept + turns / PLAN_GROUP,
                  all = plan_cache_rows[mask];
    double o[PLAN_VALUE_DIM] = {0}, sum = 0, top = -HUGE_VAL;
    for (int64_t row = 0; row < rows; row += BURST_TILE) {
        const int n = (int)(rows - row < BURST_TILE ? rows - row : BURST_TILE);
        uint8_t keep[BURST_TILE];
        plan_rows_seen(s, mask, row, n, keep);
        plan_attend_rows(q, f->k + (kv * all + row) * PLAN_HEAD_DIM, f->v + (kv * all + row) * PLAN_VALUE_DIM,
                         n, keep, o, &sum, &top);
    }
    for (int j = 0; j < PLAN_VALUE_DIM; j++)
        part[j] = sum > 0 ? (float)(o[j] / sum) : 0;
    part[PLAN_VALUE_DIM] = sum > 0 ? (float)(top + log(sum)) : -HUGE_VALF;
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
