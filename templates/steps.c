/* ---- a step, on either backend ---- */

static BurstGroup plan_world(void)
{
    const BurstGroup g = {0, 1, PLAN_WORLD};
    return g;
}

enum { PLAN_EMBED = 0, PLAN_HEAD = PLAN_LAYERS + 1, PLAN_VISITS = 2 * PLAN_LAYERS + 2 };

/* Units in the order of use: embedding, layers, head, then the layers backwards. */
static int plan_unit_at(int visit)
{
    return visit <= PLAN_HEAD ? visit : 2 * PLAN_HEAD - visit;
}

enum { PLAN_SEQUENCES = PLAN_BATCH / PLAN_DATA }; /* of this rank's group, one after the other */

/* Tokens whose labels count, in the sequences of all ranks. */
static int plan_count(BurstCtx *c, PlanState *s, int64_t step, double *tokens)
{
    const int group = burst_rank(c) / PLAN_GROUP;
    BurstBatch b;
    *tokens = 0;
    for (int i = 0; i < PLAN_SEQUENCES; i++) {
        BURST_TRY(burst_batch_read(c, &burst_plan, step, group * PLAN_SEQUENCES + i, &b));
        for (int64_t j = 0; j < s->n; j++)
            *tokens += b.label[j] < 0 ? 0 : (double)b.weight[j];
    }
    return burst_allreduce(c, plan_world(), tokens, 1);
}
