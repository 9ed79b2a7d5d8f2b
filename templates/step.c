/* ---- one sequence ---- */

static int plan_sequence_step(BurstCtx *c, void *state, BurstWeights *w, const BurstBatch *b, double scale, double *loss_sum)
{
    PlanState *s = (PlanState *)state;
    int visit = 0;
    (void)w;
    // @insert tables_changed
    s->scale = scale;
    BURST_TRY(plan_begin(c, s, b, *loss_sum));
    // @insert blocks
    s->sequence++;
    return plan_end(c, s, loss_sum);
}

/* ---- one optimizer step ---- */

/* Tokens whose labels count, in the sequences of all ranks. */
static int plan_count(BurstCtx *c, PlanState *s, int64_t step, double *tokens)
{
    const int group = burst_rank(c) / PLAN_GROUP;
    const BurstGroup world = {0, 1, PLAN_WORLD};
    BurstBatch b;
    *tokens = 0;
    for (int i = 0; i < PLAN_SEQUENCES; i++) {
        BURST_TRY(burst_batch_read(c, &burst_plan, step, group * PLAN_SEQUENCES + i, &b));
        for (int64_t j = 0; j < s->n; j++)
            *tokens += b.label[j] < 0 ? 0 : (double)b.weight[j];
    }
    return burst_allreduce(c, world, tokens, 1);
}

static int plan_step(BurstCtx *c, void *state, BurstWeights *w, int64_t step, BurstStep *result)
{
    PlanState *s = (PlanState *)state;
    const int group = burst_rank(c) / PLAN_GROUP;
    const BurstGroup world = {0, 1, PLAN_WORLD};
    double tokens, loss = 0;
    BurstBatch b;
    BURST_TRY(plan_count(c, s, step, &tokens));
    s->sequence = 0;
    for (int i = 0; i < PLAN_SEQUENCES; i++) {
        BURST_TRY(burst_batch_read(c, &burst_plan, step, group * PLAN_SEQUENCES + i, &b));
        BURST_TRY(plan_sequence_step(c, s, w, &b, tokens > 0 ? 1 / tokens : 0, &loss));
    }
    BURST_TRY(burst_allreduce(c, world, &loss, 1));
    result->tokens = tokens;
    result->loss = tokens > 0 ? loss / tokens : 0;
    burst_doing(c, "optimizer");
    BURST_TRY(burst_op_part(s->exec, BURST_P_OPTIMIZER));
    return burst_op_update(s->exec, &burst_plan, &s->weights, step, &result->norm);
}

/* ---- start ---- */

static int plan_start(BurstCtx *c, void *state, BurstWeights *w)
{
    PlanState *s = (PlanState *)state;
    BURST_TRY(plan_open(c, w, &s->exec, &s->weights));
    // @insert takes
    for (int unit = 0; unit <= PLAN_HEAD; unit++) {
        // @insert shards
    }
    BURST_TRY(plan_chunks(c, s));
    // @insert live_make
    BURST_TRY(plan_ready(c, s, w));
    return plan_live(c, s, NULL);
}

/* ---- the plan ---- */

// @insert units
// @insert watching
