/* burst_layer_host.h: what a step on the host does beside its operations: attention of a layer, begin and
 * end of a sequence. */
#ifndef BURST_LAYER_HOST_H
#define BURST_LAYER_HOST_H

static int plan_forward(BurstCtx *c, PlanState *s);
static int plan_backward(BurstCtx *c, PlanState *s);

#include "burst_steps.h"

/* ---- attention of one layer ---- */

#if PLAN_PIECES > 1
/* Between [key heads][n][head_dim] and [pieces][key heads][tokens of the piece][head_dim]. */
static inline void plan_move_pieces(PlanState *s, float *by_heads, float *by_pieces, bool split)
{
    for (int p = 0; p < PLAN_PIECES; p++) {
        const int64_t begin = plan_piece_begin(s->n, p), n = plan_piece_begin(s->n, p + 1) - begin;
        for (int h = 0; h < s->heads.keys && n; h++) {
            float *head = by_heads + (h * s->n + begin) * PLAN_HEAD_DIM,
                  *piece = by_pieces + (begin * s->heads.keys + h * n) * PLAN_HEAD_DIM;
            memcpy(split ? piece : head, split ? head : piece, (size_t)(n * PLAN_HEAD_DIM) * sizeof(float));
        }
    }
}
#endif

/* The rank's own keys: with pieces a copy, in which each piece is contiguous. */
static inline int plan_home_keys(PlanState *s, const float *k, const float *v)
{
#if PLAN_PIECES > 1
    plan_move_pieces(s, (float *)(uintptr_t)k, s->buffer.piece_k, true); /* only read */
    plan_move_pieces(s, (float *)(uintptr_t)v, s->buffer.piece_v, true);
    k = s->buffer.piece_k;
    v = s->buffer.piece_v;
#endif
    return plan_home(s, BURST_T_KV, k, v, NULL, NULL);
}

/* o [heads][n][head_dim] and lse [heads][n] from q, k, v by heads. */
static inline int plan_attention(BurstCtx *c, PlanState *s, int mask, const float *q, const float *k,
                                 const float *v, float *o, float *lse)
{
    s->mask = mask;
    BURST_TRY(plan_home(s, BURST_T_Q, q, NULL, NULL, NULL));
    BURST_TRY(plan_home_keys(s, k, v));
    BURST_TRY(plan_home(s, BURST_T_O, o, lse, NULL, NULL));
    BurstAttend start = {
        .head_dim = PLAN_HEAD_DIM, .q_heads = s->heads.queries, .qc = &s->chunk[s->me], .o = o, .lse = lse};
    if (!s->goes_on)
        burst_attend_start(&start);
    return plan_forward(c, s);
}

#ifdef PLAN_TAIL
/* Rows of `width` from one matrix to another, `heads` of each: `rows` from row `from` on of `n`. */
static inline void plan_move_rows(const PlanState *s, int64_t rows, int64_t width, const float *x,
                                  int64_t x_n, int64_t x_from, float *y, int64_t y_n, int64_t y_from)
{
    for (int h = 0; h < s->heads.queries; h++)
        memcpy(y + (h * y_n + y_from) * width, x + (h * x_n + x_from) * width,
               (size_t)(rows * width) * sizeof *y);
}

/* Rows of the last tokens of o and lse; o_tail [heads][PLAN_TAIL][head_dim], lse_tail [heads][PLAN_TAIL]. */
static inline int plan_keep(BurstCtx *c, PlanState *s, const float *o, const float *lse, float *o_tail,
                            float *lse_tail)
{
    const int64_t kept = plan_kept(s);
    (void)c;
    plan_move_rows(s, kept, PLAN_HEAD_DIM, o, s->n, s->n - kept, o_tail, PLAN_TAIL, 0);
    plan_move_rows(s, kept, 1, lse, s->n, s->n - kept, lse_tail, PLAN_TAIL, 0);
    return BURST_OK;
}

/* plan_attention of the first tokens, beside the rows that were kept (BurstEngine, arXiv 2509.19836). */
static inline int plan_attention_rest(BurstCtx *c, PlanState *s, int mask, const float *q, const float *k,
                                      const float *v, const float *o_tail, const float *lse_tail, float *o,
                                      float *lse)
{
    const int64_t kept = plan_kept(s);
    s->again = s->n - kept;
    BURST_TRY(plan_attention(c, s, mask, q, k, v, o, lse));
    s->again = 0;
    plan_move_rows(s, kept, PLAN_HEAD_DIM, o_tail, PLAN_TAIL, 0, o, s->n, s->n - kept);
    plan_move_rows(s, kept, 1, lse_tail, PLAN_TAIL, 0, lse, s->n, s->n - kept);
    return BURST_OK;
}
#endif

/* dq [heads][n][head_dim], dk, dv [kv_heads][n][head_dim] from d_o, with the final lse and delta. */
static inline int plan_attention_back(BurstCtx *c, PlanState *s, int mask, const float *q, const float *k,
                                      const float *v, const float *lse, const float *d_o, const float *delta,
                                      float *dq, float *dk, float *dv)
{
#if PLAN_PIECES > 1
    float *to_k = s->buffer.piece_dk, *to_v = s->buffer.piece_dv;
#else
    float *to_k = dk, *to_v = dv;
#endif
    s->mask = mask;
    burst_part(c, BURST_P_GRAD_BEGIN, 0, 0);
    memset(dq, 0,
           s->goes_on ? 0
                      : (size_t)(s->heads.queries * PLAN_HEAD_DIM * s->chunk[s->me].tokens) * sizeof(float));
    memset(to_k, 0, s->adds ? 0 : (size_t)(s->heads.keys * PLAN_HEAD_DIM * plan_own_keys(s)) * sizeof(float));
    memset(to_v, 0, s->adds ? 0 : (size_t)(s->heads.keys * PLAN_HEAD_DIM * plan_own_keys(s)) * sizeof(float));
#if PLAN_PIECES > 1
    if (s->adds) {
        plan_move_pieces(s, dk, to_k, true);
        plan_move_pieces(s, dv, to_v, true);
    }
#endif
    BURST_TRY(plan_home(s, BURST_T_Q, q, d_o, delta, lse));
    BURST_TRY(plan_home_keys(s, k, v));
    BURST_TRY(plan_home(s, BURST_T_DQ, dq, NULL, NULL, NULL));
    BURST_TRY(plan_home(s, BURST_T_DKV, to_k, to_v, NULL, NULL));
    burst_part(c, BURST_P_IDLE, 0, 0);
    BURST_TRY(plan_backward(c, s));
#if PLAN_PIECES > 1
    burst_part(c, BURST_P_GRAD_END, 0, 0);
    plan_move_pieces(s, dk, to_k, false);
    plan_move_pieces(s, dv, to_v, false);
    burst_part(c, BURST_P_IDLE, 0, 0);
#endif
    return BURST_OK;
}

#ifdef PLAN_QUERY_CHUNKS
#include "burst_queries.h"
#else
/* ---- attention alone, for tests and benchmarks ---- */

static inline int plan_attention_forward(BurstCtx *c, void *state, int mask, const BurstTables *t,
                                         const float *q, const float *k, const float *v, float *o, float *lse)
{
    PlanState *s = state;
    s->tables = t;
    s->heads = plan_chunk_heads(0);
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, s, t));
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
        BURST_TRY(plan_live(c, s, t));
    BURST_TRY(burst_op_delta(s->exec, s->n, s->heads.queries, PLAN_HEAD_DIM, o, d_o, delta));
    return plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv);
}
#endif

/* ---- begin and end of a sequence, and of the program ---- */

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

static int plan_open(BurstCtx *c, BurstWeights *w, BurstExec **exec, PlanWeights *weights)
{
    *exec = c;
    *weights = *w;
    return BURST_OK;
}

#ifdef PLAN_DEVICE_UPDATE
/* Where units come to be updated, in tables that the program fills. */
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
static int (*const plan_save)(BurstCtx *c, void *state, BurstWeights *w) = NULL;

#endif
