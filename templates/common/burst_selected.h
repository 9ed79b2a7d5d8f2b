/* burst_selected.h: attention over the lists that a selection made, on each target. */
#ifndef BURST_SELECTED_H
#define BURST_SELECTED_H

/* Sets the lists of the heads that attention processes at a time. */
static inline void plan_attend_chosen(PlanState *s, int mask, const int32_t *lists)
{
    const BurstSelection *how = plan_masks[mask]->selection;
    s->chosen = how ? lists + plan_words_before(s, how) : lists;
}

/* plan_attention over the lists. */
static inline int plan_attention_selected(BurstCtx *c, PlanState *s, int mask, const BurstAct *q,
                                          const BurstAct *k, const BurstAct *v, const int32_t *lists,
                                          BurstAct *o, float *lse)
{
    plan_attend_chosen(s, mask, lists);
    return plan_attention(c, s, mask, q, k, v, o, lse);
}

#ifdef PLAN_TAIL
/* plan_attention_rest over the lists of forward. */
static inline int plan_attention_rest_selected(BurstCtx *c, PlanState *s, int mask, const BurstAct *q,
                                               const BurstAct *k, const BurstAct *v, const int32_t *lists,
                                               BurstAct *o_tail, float *lse_tail, BurstAct *o,
                                               float *lse)
{
    plan_attend_chosen(s, mask, lists);
    return plan_attention_rest(c, s, mask, q, k, v, o_tail, lse_tail, o, lse);
}
#endif

/* plan_attention_back over the lists of forward. */
static inline int plan_attention_back_selected(BurstCtx *c, PlanState *s, int mask, const BurstAct *q,
                                               const BurstAct *k, const BurstAct *v, const float *lse,
                                               const BurstAct *d_o, const float *delta, const int32_t *lists,
                                               float *dq, float *dk, float *dv)
{
    plan_attend_chosen(s, mask, lists);
    return plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv);
}

#endif
