/* burst_counts.h: how many tokens chose each expert, over the sequences of a step and all ranks, the balance
 * loss of a sequence, and corrections of routers. Counts are in memory of the target. */
#ifndef BURST_COUNTS_H
#define BURST_COUNTS_H

/* ---- corrections: every rank has all of them ---- */

#ifdef PLAN_CORRECTION
static inline int plan_open_corrections(BurstCtx *c, PlanState *s, const BurstWeights *w)
{
    BURST_TRY(burst_read_corrections(c, &burst_plan, w, s->corrections));
    return plan_put_corrections(c, s);
}

#ifndef PLAN_INFER
/* Moves them by the step's choices, here and in the shards. */
static inline int plan_move_corrections(BurstCtx *c, PlanState *s, BurstWeights *w)
{
    burst_move_corrections(&burst_plan, s->choices, s->corrections);
    BURST_TRY(plan_put_corrections(c, s));
    return plan_write_corrections(c, s, w);
}
#endif
#else
static inline int plan_open_corrections(BurstCtx *c, PlanState *s, const BurstWeights *w)
{
    return (void)c, (void)s, (void)w, BURST_OK;
}
#endif

/* ---- counts ---- */

#ifdef PLAN_LOADS
static inline void plan_open_loads(PlanState *s)
{
    s->loads.choices = s->buffer.counts;
    s->loads.chosen = s->loads.choices + PLAN_LAYERS * PLAN_EXPERTS;
    s->loads.rows = s->loads.chosen + PLAN_EXPERTS;
    s->loads.softmax = s->loads.rows + 1;
    s->loads.scale = plan_experts.balance / PLAN_BATCH;
}

static inline int plan_begin_loads(BurstCtx *c, PlanState *s)
{
    s->balance_loss = 0;
    return plan_clear_counts(c, s, s->loads.choices, PLAN_LAYERS * PLAN_EXPERTS);
}

static inline int plan_begin_balance(BurstCtx *c, PlanState *s)
{
    return plan_clear_counts(c, s, s->loads.chosen, PLAN_BALANCE_COUNTS);
}

#ifdef PLAN_BALANCE
/* After forward: sums over the ranks that share each sequence. All ranks add up the numbers of all groups,
 * each of which has a place of its own. */
static inline int plan_sum_balance(BurstCtx *c, PlanState *s)
{
    double *own = s->shared + s->group * PLAN_BALANCE_COUNTS;
    burst_doing(c, "balance of experts");
    memset(s->shared, 0, sizeof s->shared);
    BURST_TRY(plan_read_counts(c, s, s->loads.chosen, PLAN_BALANCE_COUNTS, own));
    BURST_TRY(burst_sum_counts(c, s->shared, PLAN_DATA * PLAN_BALANCE_COUNTS));
    for (int g = 0; g < PLAN_DATA; g++) {
        const double *count = s->shared + g * PLAN_BALANCE_COUNTS, rows = count[PLAN_EXPERTS];
        for (int i = 0; i < PLAN_EXPERTS && rows > 0; i++)
            s->balance_loss += PLAN_EXPERTS * (count[i] / rows) * (count[PLAN_EXPERTS + 1 + i] / rows) /
                               PLAN_BATCH;
    }
    return plan_write_counts(c, s, own, PLAN_BALANCE_COUNTS, s->loads.chosen);
}
#endif

/* After the step's sequences: the choices of all ranks. */
static inline int plan_sum_choices(BurstCtx *c, PlanState *s)
{
    burst_doing(c, "loads of experts");
    BURST_TRY(plan_read_counts(c, s, s->loads.choices, PLAN_LAYERS * PLAN_EXPERTS, s->choices));
    BURST_TRY(burst_sum_counts(c, s->choices, PLAN_LAYERS * PLAN_EXPERTS));
    return burst_check_choices(c, PLAN_LAYERS, PLAN_EXPERTS, s->choices);
}

static inline int plan_end_loads(BurstCtx *c, PlanState *s, BurstWeights *w, BurstStep *result)
{
    burst_largest_loads(PLAN_LAYERS, PLAN_EXPERTS, s->choices, s->largest);
    result->loads = s->largest;
    result->balance = s->balance_loss;
#ifdef PLAN_CORRECTION
    if (plan_experts.rate > 0)
        return plan_move_corrections(c, s, w);
#endif
    (void)c, (void)w;
    return BURST_OK;
}
#else
static inline void plan_open_loads(PlanState *s) { (void)s; }
static inline int plan_begin_loads(BurstCtx *c, PlanState *s) { return (void)c, (void)s, BURST_OK; }
static inline int plan_begin_balance(BurstCtx *c, PlanState *s) { return (void)c, (void)s, BURST_OK; }
static inline int plan_sum_choices(BurstCtx *c, PlanState *s) { return (void)c, (void)s, BURST_OK; }
static inline int plan_end_loads(BurstCtx *c, PlanState *s, BurstWeights *w, BurstStep *result)
{
    return (void)c, (void)s, (void)w, (void)result, BURST_OK;
}
#endif

#endif
