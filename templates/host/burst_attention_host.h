/* burst_attention_host.h: attention of one layer on the host, forward and backward, with rows by heads. */
#ifndef BURST_ATTENTION_HOST_H
#define BURST_ATTENTION_HOST_H

static int plan_forward(BurstCtx *c, PlanState *s);
static int plan_backward(BurstCtx *c, PlanState *s);
#ifdef PLAN_INFER
#include "burst_infer_host.h"
#endif

#if PLAN_PIECES > 1
/* Converts between [key heads][n][width] and [pieces][key heads][tokens of the piece][width]. */
static inline void plan_move_pieces(PlanState *s, int width, float *by_heads, float *by_pieces, bool split)
{
    for (int p = 0; p < PLAN_PIECES; p++) {
        const int64_t begin = plan_piece_begin(s->n, p), n = plan_piece_begin(s->n, p + 1) - begin;
        for (int h = 0; h < s->heads.keys && n; h++) {
            float *head = by_heads + (h * s->n + begin) * width,
                  *piece = by_pieces + (begin * s->heads.keys + h * n) * width;
            memcpy(split ? piece : head, split ? head : piece, (size_t)(n * width) * sizeof(float));
        }
    }
}
#endif

/* The rank's own keys; with pieces, a copy in which each piece is contiguous. */
static inline int plan_home_keys(PlanState *s, const float *k, const float *v)
{
#if PLAN_PIECES > 1
    plan_move_pieces(s, PLAN_HEAD_DIM, (float *)(uintptr_t)k, s->buffer.piece_k, true); /* only read */
    plan_move_pieces(s, PLAN_VALUE_DIM, (float *)(uintptr_t)v, s->buffer.piece_v, true);
    k = s->buffer.piece_k;
    v = s->buffer.piece_v;
#endif
#ifdef PLAN_LATENTS
    return plan_home_latents(s, k, v);
#else
    return plan_home(s, BURST_T_KV, k, v, NULL, NULL);
#endif
}

/* Computes o [heads][n][value_dim] and lse [heads][n] from q, k, v by heads. */
static inline int plan_attention(BurstCtx *c, PlanState *s, int mask, const float *q, const float *k,
                                 const float *v, float *o, float *lse)
{
    s->mask = mask;
#ifdef PLAN_INFER
    if (s->infer.decodes)
        return plan_decode_attention(c, s, mask, q, o, lse);
#endif
    BURST_TRY(plan_home(s, BURST_T_Q, q, NULL, NULL, NULL));
    BURST_TRY(plan_home_keys(s, k, v));
    BURST_TRY(plan_home(s, BURST_T_O, o, lse, NULL, NULL));
    BurstAttend start = {.head_dim = PLAN_HEAD_DIM,
                         .value_dim = PLAN_VALUE_DIM,
                         .q_heads = s->heads.queries,
                         .qc = &s->chunk[s->me],
                         .o = o,
                         .lse = lse};
    if (!s->tile.resumes)
        burst_attend_start(&start);
    return plan_forward(c, s);
}

/* Computes dq [heads][n][head_dim], dk [kv_heads][n][head_dim] and dv [kv_heads][n][value_dim] from d_o,
 * with the final lse and delta. */
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
           s->tile.resumes
               ? 0
               : (size_t)(s->heads.queries * PLAN_HEAD_DIM * s->chunk[s->me].tokens) * sizeof(float));
    memset(to_k, 0,
           s->tile.adds ? 0 : (size_t)(s->heads.keys * PLAN_HEAD_DIM * plan_own_keys(s)) * sizeof(float));
    memset(to_v, 0,
           s->tile.adds ? 0 : (size_t)(s->heads.keys * PLAN_VALUE_DIM * plan_own_keys(s)) * sizeof(float));
#if PLAN_PIECES > 1
    if (s->tile.adds) {
        plan_move_pieces(s, PLAN_HEAD_DIM, dk, to_k, true);
        plan_move_pieces(s, PLAN_VALUE_DIM, dv, to_v, true);
    }
#endif
    BURST_TRY(plan_home(s, BURST_T_Q, q, d_o, delta, lse));
    BURST_TRY(plan_home_keys(s, k, v));
    BURST_TRY(plan_home(s, BURST_T_DQ, dq, NULL, NULL, NULL));
    BURST_TRY(plan_home_sums(s, to_k, to_v));
    burst_part(c, BURST_P_IDLE, 0, 0);
    BURST_TRY(plan_backward(c, s));
#if PLAN_PIECES > 1
    burst_part(c, BURST_P_GRAD_END, 0, 0);
    plan_move_pieces(s, PLAN_HEAD_DIM, dk, to_k, false);
    plan_move_pieces(s, PLAN_VALUE_DIM, dv, to_v, false);
    burst_part(c, BURST_P_IDLE, 0, 0);
#endif
    return BURST_OK;
}

#ifdef PLAN_LATENTS
/* plan_attention with KV as latents: keys and values are latent [n][latent] times weight. */
static inline int plan_attention_latents(BurstCtx *c, PlanState *s, int mask, const float *q, const float *k,
                                         const float *v, const float *latent, const float *weight, float *o,
                                         float *lse)
{
    s->latents.latent = latent;
    s->latents.weight = weight;
    return plan_attention(c, s, mask, q, k, v, o, lse);
}

/* plan_attention_back for these. What other ranks add to dk and dv arrives as d_latent and, for the part
 * that all heads share, in dk of the first head; `gradient` includes what this rank adds to gradients of
 * other ranks' keys and values. */
static inline int plan_attention_back_latents(BurstCtx *c, PlanState *s, int mask, const float *q,
                                              const float *k, const float *v, const float *lse,
                                              const float *d_o, const float *delta, const float *latent,
                                              const float *weight, float *dq, float *dk, float *dv,
                                              float *d_latent, float *gradient)
{
    s->latents.latent = latent;
    s->latents.weight = weight;
    s->latents.d_latent = d_latent;
    s->latents.gradient = gradient;
    BURST_TRY(plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv));
    burst_part(c, BURST_P_GRAD_END, 0, 0);
    plan_latents_end(s);
    burst_part(c, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}
#endif

#endif
