/* burst_not_alone.h: replaces the attention functions of tests and benchmarks in programs whose attention
 * cannot run alone: it processes chunks of queries in turn, or needs the layer's weights. */
#ifndef BURST_NOT_ALONE_H
#define BURST_NOT_ALONE_H

static inline int plan_attention_forward(BurstCtx *c, void *state, int mask, const BurstTables *t,
                                         const float *q, const float *k, const float *v, float *o, float *lse)
{
    (void)state, (void)mask, (void)t, (void)q, (void)k, (void)v, (void)o, (void)lse;
    return burst_fail(c, BURST_E_PLAN,
                      "attention of this program is a part of its layers and cannot be called alone");
}

static inline int plan_attention_backward(BurstCtx *c, void *state, int mask, const BurstTables *t,
                                          const float *q, const float *k, const float *v, const float *o,
                                          const float *lse, const float *d_o, float *dq, float *dk, float *dv)
{
    (void)o, (void)d_o, (void)lse, (void)dq;
    return plan_attention_forward(c, state, mask, t, q, k, v, dk, dv);
}

#endif
