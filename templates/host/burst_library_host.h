/* burst_library_host.h: a plan's attention inside another program, on the host (burst_library.h). The
 * caller's rows are by tokens; attention works on copies by heads in the caller's workspace. */
#ifndef BURST_LIBRARY_HOST_H
#define BURST_LIBRARY_HOST_H

#include "burst_attention_host.h"
#include "burst_library.h"

#ifdef PLAN_SELECTIONS
#include "burst_select_host.h"
#endif

static int plan_alloc(BurstCtx *c, PlanState *s); /* defined by the program: allocates a batch's arrays */

static inline int plan_library_start(BurstCtx *c, void *state, const BurstTables *tables)
{
    PlanState *s = state;
    s->tables = tables;
    s->heads = plan_chunk_heads(0);
    BURST_TRY(plan_alloc(c, s));
    BURST_TRY(plan_chunks(c, s));
    return plan_live(c, s, tables);
}

static inline int plan_take_rows(PlanState *s, int heads, int d, const void *rows, float *by_heads)
{
    return burst_op_to_heads(s->exec, s->n, heads, d, rows, by_heads);
}

static inline int plan_give_rows(PlanState *s, int heads, int d, const float *by_heads, void *rows)
{
    return burst_op_to_tokens(s->exec, s->n, heads, d, by_heads, rows);
}

/* The lists of the mask's selection, if it has one: a call has its own, and those of backward are forward's,
 * since they depend on nothing but queries and keys. */
static inline int plan_choose_blocks(BurstCtx *c, PlanState *s, int mask)
{
#ifdef PLAN_SELECTIONS
    const PlanBuffers *b = &s->buffer;
    s->chosen = b->select_lists;
    return plan_select(c, s, mask, b->rows_q, b->rows_k, b->select_lists, b->select_scratch);
#else
    (void)c, (void)s, (void)mask;
    return BURST_OK;
#endif
}

static inline int plan_take_call(BurstCtx *c, PlanState *s, const BurstAttention *a)
{
    const PlanBuffers *b = &s->buffer;
    s->score_scale = a->scale;
    BURST_TRY(plan_take_rows(s, PLAN_HEADS, PLAN_HEAD_DIM, a->q, b->rows_q));
    BURST_TRY(plan_take_rows(s, PLAN_KV_HEADS, PLAN_HEAD_DIM, a->k, b->rows_k));
    BURST_TRY(plan_take_rows(s, PLAN_KV_HEADS, PLAN_VALUE_DIM, a->v, b->rows_v));
    return plan_choose_blocks(c, s, a->mask);
}

static inline int plan_library_forward(BurstCtx *c, void *state, const BurstAttention *a)
{
    PlanState *s = state;
    const PlanBuffers *b = &s->buffer;
    BURST_TRY(plan_take_call(c, s, a));
    BURST_TRY(plan_attention(c, s, a->mask, b->rows_q, b->rows_k, b->rows_v, b->rows_o, a->to_lse));
    if (a->sinks)
        BURST_TRY(burst_op_sink(s->exec, s->n, PLAN_HEADS, PLAN_VALUE_DIM, b->rows_o, a->to_lse, a->sinks,
                                b->rows_o));
    return plan_give_rows(s, PLAN_HEADS, PLAN_VALUE_DIM, b->rows_o, a->to_o);
}

/* A sink leaves the keys a share `keep` of the weight. keep * d_o is the gradient of the keys' own output,
 * and their part of delta, rowsum(d_o o) with the sink in o, is keep * delta. */
static inline void plan_sinks_back(PlanState *s, const BurstAttention *a)
{
    for (int h = 0; h < PLAN_HEADS; h++) {
        double sum = 0;
        for (int64_t i = h * s->n; i < (h + 1) * s->n; i++) {
            const float apart = a->sinks[h] - a->lse[i], keep = 1 / (1 + expf(apart));
            /* 1 - keep would round small weights */
            sum -= (double)s->buffer.rows_delta[i] / (1 + expf(-apart));
            s->buffer.rows_delta[i] *= keep;
            for (int64_t j = i * PLAN_VALUE_DIM; j < (i + 1) * PLAN_VALUE_DIM; j++)
                s->buffer.rows_do[j] *= keep;
        }
        if (a->dsinks)
            a->dsinks[h] = (float)sum;
    }
}

static inline int plan_library_backward(BurstCtx *c, void *state, const BurstAttention *a)
{
    PlanState *s = state;
    const PlanBuffers *b = &s->buffer;
    BURST_TRY(plan_take_call(c, s, a));
    BURST_TRY(plan_take_rows(s, PLAN_HEADS, PLAN_VALUE_DIM, a->d_o, b->rows_do));
    BURST_TRY(plan_take_rows(s, PLAN_HEADS, PLAN_VALUE_DIM, a->o, b->rows_dq)); /* until dq is computed */
    burst_attend_delta(PLAN_HEADS * s->n, PLAN_VALUE_DIM, b->rows_dq, b->rows_do, b->rows_delta);
    if (a->sinks)
        plan_sinks_back(s, a);
    for (int64_t i = 0; i < PLAN_HEADS * s->n && a->d_lse; i++)
        b->rows_delta[i] -= a->d_lse[i];
    BURST_TRY(plan_attention_back(c, s, a->mask, b->rows_q, b->rows_k, b->rows_v, a->lse, b->rows_do,
                                  b->rows_delta, b->rows_dq, b->rows_dk, b->rows_dv));
    BURST_TRY(plan_give_rows(s, PLAN_HEADS, PLAN_HEAD_DIM, b->rows_dq, a->dq));
    BURST_TRY(plan_give_rows(s, PLAN_KV_HEADS, PLAN_HEAD_DIM, b->rows_dk, a->dk));
    return plan_give_rows(s, PLAN_KV_HEADS, PLAN_VALUE_DIM, b->rows_dv, a->dv);
}

#endif
