/* burst_layer_host.h: functions of a step on the host other than its operations: attention of a layer, begin
 * and end of a sequence. */
#ifndef BURST_LAYER_HOST_H
#define BURST_LAYER_HOST_H

#include "burst_steps.h"

#include "burst_attention_host.h"

#ifdef PLAN_TAIL
/* Copies rows of `width` from one matrix to another, for each of `heads`: `rows` rows from row `from` of
 * `n`. */
static inline void plan_move_rows(const PlanState *s, int64_t rows, int64_t width, const float *x,
                                  int64_t x_n, int64_t x_from, float *y, int64_t y_n, int64_t y_from)
{
    for (int h = 0; h < s->heads.queries; h++)
        memcpy(y + (h * y_n + y_from) * width, x + (h * x_n + x_from) * width,
               (size_t)(rows * width) * sizeof *y);
}

/* Saves rows of o and lse of the last tokens: o_tail [heads][PLAN_TAIL][value_dim], lse_tail
 * [heads][PLAN_TAIL]. */
static inline int plan_keep(BurstCtx *c, PlanState *s, const float *o, const float *lse, float *o_tail,
                            float *lse_tail)
{
    const int64_t kept = plan_kept(s);
    (void)c;
    plan_move_rows(s, kept, PLAN_VALUE_DIM, o, s->n, s->n - kept, o_tail, PLAN_TAIL, 0);
    plan_move_rows(s, kept, 1, lse, s->n, s->n - kept, lse_tail, PLAN_TAIL, 0);
    return BURST_OK;
}

/* plan_attention of the leading tokens, completed by the kept rows (BurstEngine, arXiv 2509.19836). */
static inline int plan_attention_rest(BurstCtx *c, PlanState *s, int mask, const float *q, const float *k,
                                      const float *v, const float *o_tail, const float *lse_tail, float *o,
                                      float *lse)
{
    const int64_t kept = plan_kept(s);
    s->again = s->n - kept;
    BURST_TRY(plan_attention(c, s, mask, q, k, v, o, lse));
    s->again = 0;
    plan_move_rows(s, kept, PLAN_VALUE_DIM, o_tail, PLAN_TAIL, 0, o, s->n, s->n - kept);
    plan_move_rows(s, kept, 1, lse_tail, PLAN_TAIL, 0, lse, s->n, s->n - kept);
    return BURST_OK;
}
#endif

#ifdef PLAN_SELECTIONS
#include "burst_select_host.h"
#endif
#ifdef PLAN_QUERY_CHUNKS
#include "burst_queries.h"
#elif defined PLAN_LATENTS || defined PLAN_SELECTIONS
#include "burst_not_alone.h"
#elif !defined PLAN_INFER
/* ---- attention alone, for tests and benchmarks ---- */

/* The live pairs of other masks are found when those attend. */
static inline int plan_find_one(BurstCtx *c, PlanState *s, int mask, const BurstTables *t)
{
    plan_take_batch(s, t);
    return plan_find_mask(c, s, mask);
}

static inline int plan_attention_forward(BurstCtx *c, void *state, int mask, const BurstTables *t,
                                         const float *q, const float *k, const float *v, float *o, float *lse)
{
    PlanState *s = state;
    s->tables = t;
    s->heads = plan_chunk_heads(0);
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_find_one(c, s, mask, t));
    return plan_attention(c, s, mask, q, k, v, o, lse);
}

static inline int plan_attention_backward(BurstCtx *c, void *state, int mask, const BurstTables *t,
                                          const float *q, const float *k, const float *v, const float *o,
                                          const float *lse, const float *d_o, float *dq, float *dk, float *dv)
{
    PlanState *s = state;
    float *delta = plan_floats(s, PLAN_AT_DELTA);
    s->tables = t;
    s->heads = plan_chunk_heads(0);
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_find_one(c, s, mask, t));
    BURST_TRY(burst_op_delta(s->exec, s->n, s->heads.queries, PLAN_VALUE_DIM, o, d_o, delta));
    return plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv);
}
#endif

/* ---- begin and end of a sequence, and of the program ---- */

#ifndef PLAN_INFER
static int plan_begin(BurstCtx *c, PlanState *s, const BurstBatch *b, double loss)
{
    (void)c;
    s->tables = &b->tables;
    s->token = b->token;
    s->label = b->label;
    s->label_weight = b->weight;
    s->loss[0] = loss;
    return BURST_OK;
}

static int plan_end(BurstCtx *c, PlanState *s, double *loss)
{
    (void)c;
    *loss = s->loss[0];
    return BURST_OK;
}
#endif

static int plan_open(BurstCtx *c, BurstWeights *w, BurstExec **exec, PlanWeights *weights)
{
    *exec = c;
    *weights = *w;
    return BURST_OK;
}

#ifdef PLAN_DEVICE_UPDATE
/* Sets where units are fetched for their update, in tables that the program fills. */
static int plan_take_fetched(BurstCtx *c, PlanState *s)
{
    (void)c;
    s->fetched = s->weights;
    s->fetched.param = s->fetched_at[0], s->fetched.m = s->fetched_at[1], s->fetched.v = s->fetched_at[2];
    return BURST_OK;
}
#endif

static int plan_ready(BurstCtx *c, PlanState *s, BurstWeights *w)
{
    (void)c, (void)w;
    s->position = s->chunk[s->me].position;
    return BURST_OK;
}

/* Weights are where checkpoints read them. */
#define plan_save NULL

#endif
