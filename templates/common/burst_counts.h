/* burst_counts.h: how many tokens chose each expert, over the sequences of a step and all ranks, and the
 * balance loss of a sequence. */
#ifndef BURST_COUNTS_H
#define BURST_COUNTS_H

#ifdef PLAN_LOADS
static inline void plan_open_loads(PlanState *s)
{
    s->loads.choices = s->choices;
    s->loads.chosen = s->balance;
    s->loads.softmax = s->balance + PLAN_EXPERTS;
    s->loads.scale = plan_experts.balance / PLAN_BATCH;
}

static inline void plan_begin_loads(PlanState *s)
{
    memset(s->choices, 0, sizeof s->choices);
    s->balance_loss = 0;
}

static inline void plan_begin_balance(PlanState *s)
{
    memset(s->balance, 0, sizeof s->balance);
    s->loads.rows = 0;
}

/* After forward: sums over the ranks that share each sequence. All ranks add up the numbers of all groups,
 * each of which has a place of its own. */
static inline int plan_sum_balance(BurstCtx *c, PlanState *s)
{
#ifdef PLAN_BALANCE
    double *own = s->shared + s->group * PLAN_BALANCE_COUNTS;
    burst_doing(c, "balance of experts");
    memset(s->shared, 0, sizeof s->shared);
    for (int i = 0; i < PLAN_EXPERTS; i++) {
        own[i] = s->loads.chosen[i];
        own[PLAN_EXPERTS + 1 + i] = s->loads.softmax[i];
    }
    own[PLAN_EXPERTS] = s->loads.rows;
    BURST_TRY(burst_sum_counts(c, s->shared, PLAN_DATA * PLAN_BALANCE_COUNTS));
    for (int g = 0; g < PLAN_DATA; g++) {
        const double *count = s->shared + g * PLAN_BALANCE_COUNTS, rows = count[PLAN_EXPERTS];
        for (int i = 0; i < PLAN_EXPERTS && rows > 0; i++)
            s->balance_loss += PLAN_EXPERTS * (count[i] / rows) * (count[PLAN_EXPERTS + 1 + i] / rows) /
                               PLAN_BATCH;
    }
    for (int i = 0; i < PLAN_EXPERTS; i++)
        s->loads.chosen[i] = own[i];
    s->loads.rows = own[PLAN_EXPERTS];
#else
    (void)c, (void)s;
#endif
    return BURST_OK;
}

/* After the step's sequences. */
static inline int plan_end_loads(BurstCtx *c, PlanState *s, BurstWeights *w, BurstStep *result)
{
    burst_doing(c, "loads of experts");
    BURST_TRY(burst_sum_counts(c, s->choices, PLAN_LAYERS * PLAN_EXPERTS));
    burst_largest_loads(PLAN_LAYERS, PLAN_EXPERTS, s->choices, s->largest);
    if (plan_experts.rate > 0)
        burst_move_corrections(c, &burst_plan, s->choices, w);
    result->loads = s->largest;
    result->balance = s->balance_loss;
    return BURST_OK;
}
#else
static inline void plan_open_loads(PlanState *s) { (void)s; }
static inline void plan_begin_loads(PlanState *s) { (void)s; }
static inline void plan_begin_balance(PlanState *s) { (void)s; }
static inline int plan_end_loads(BurstCtx *c, PlanState *s, BurstWeights *w, BurstStep *result)
{
    (void)c, (void)s, (void)w, (void)result;
    return BURST_OK;
}
#endif

#endif
