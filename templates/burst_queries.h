/* burst_queries.h: attention of a chunk of this rank's queries with all keys, on either target (`token chunks` with `attention`). What
 * other functions know of its queries is then the chunk.
 */
#ifndef BURST_QUERIES_H
#define BURST_QUERIES_H

/* o and lse of the chunk's queries. */
static inline int plan_attention_rows(BurstCtx *c, PlanState *s, int mask, int chunk, const BurstAct *q, const BurstAct *k, const BurstAct *v,
                                      BurstAct *o, float *lse)
{
    PlanQueries all;
    plan_take_queries(s, chunk, &all);
    BURST_TRY(plan_attention(c, s, mask, q, k, v, o, lse));
    plan_put_queries(s, &all);
    return BURST_OK;
}

/* Their dq, and what they add to dk and dv, which the first chunk begins. */
static inline int plan_attention_back_rows(BurstCtx *c, PlanState *s, int mask, int chunk, const BurstAct *q, const BurstAct *k,
                                           const BurstAct *v, const float *lse, const BurstAct *d_o, const float *delta, float *dq, float *dk,
                                           float *dv)
{
    PlanQueries all;
    plan_take_queries(s, chunk, &all);
    BURST_TRY(plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv));
    plan_put_queries(s, &all);
    return BURST_OK;
}

/* ---- attention alone: there is none of one chunk after the other ---- */

static inline int plan_attention_forward(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q, const float *k,
                                         const float *v, float *o, float *lse)
{
    (void)state, (void)mask, (void)t, (void)q, (void)k, (void)v, (void)o, (void)lse;
    return burst_fail(c, BURST_E_PLAN, "attention of this program goes through chunks of queries, with the rest of a layer");
}

static inline int plan_attention_backward(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q, const float *k,
                                          const float *v, const float *o, const float *lse, const float *d_o, float *dq, float *dk, float *dv)
{
    (void)o, (void)d_o, (void)lse, (void)dq;
    return plan_attention_forward(c, state, mask, t, q, k, v, dk, dv);
}

#endif
