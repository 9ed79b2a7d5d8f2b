/* ---- a step, on either backend: units of weights, places of values ---- */

enum { PLAN_EMBED = 0, PLAN_HEAD = PLAN_LAYERS + 1, PLAN_VISITS = 2 * PLAN_LAYERS + 2 };
enum { PLAN_SEQUENCES = PLAN_BATCH / PLAN_DATA }; /* of this rank's group, one after the other */

/* Units in the order of use: embedding, layers, head, layers backwards, embedding. */
static int plan_unit_at(int visit)
{
    return visit <= PLAN_HEAD ? visit : 2 * PLAN_HEAD - visit;
}

/* Elements of a unit that each rank holds. */
static BURST_MAYBE_UNUSED int64_t plan_shard(int unit)
{
    return burst_unit(&burst_plan, unit)->shard;
}

static BurstAct *plan_act(PlanState *s, int64_t at)
{
    return (BurstAct *)(void *)(s->arena + at);
}

static float *plan_floats(PlanState *s, int64_t at)
{
    return (float *)(void *)(s->arena + at);
}

static char *plan_bytes(PlanState *s, int64_t at)
{
    return s->arena + at;
}

