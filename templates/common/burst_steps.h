/* burst_steps.h: a step on either target: units of weights, offsets of values, and the calls around the plan
 * of one sequence. */
#ifndef BURST_STEPS_H
#define BURST_STEPS_H

#ifndef PLAN_GROUP_LAYERS
#define PLAN_GROUP_LAYERS 1 /* layers of a group; the first saves its input */
#endif
#define PLAN_VISITS (burst_visits(PLAN_LAYERS, PLAN_GROUP_LAYERS, PLAN_EXPERT_GROUPS) - 1)
/* units; the visit of the head */
enum {
    PLAN_EMBED = 0,
    PLAN_HEAD = PLAN_LAYERS + 1,
    PLAN_UNITS = PLAN_HEAD + 1 + PLAN_LAYERS * PLAN_EXPERT_GROUPS,
    PLAN_HEAD_VISIT = PLAN_LAYERS * (1 + PLAN_EXPERT_GROUPS) + 1
};
#ifdef PLAN_INFER
enum { PLAN_SEQUENCES = 2 }; /* weights last from the first on */
#else
enum { PLAN_SEQUENCES = PLAN_BATCH / PLAN_DATA }; /* of this rank's group, one after the other */
#endif

/* The unit of a visit, in order of use (burst_parts.h). */
static inline int plan_unit_at(int visit)
{
    return burst_unit_at(PLAN_LAYERS, PLAN_GROUP_LAYERS, PLAN_EXPERT_GROUPS, visit);
}

/* Elements of a unit in each rank's shard. */
static inline int64_t plan_shard(int unit)
{
    return burst_unit(&burst_plan, unit)->shard;
}

static inline BurstAct *plan_act(PlanState *s, int64_t at)
{
    return (BurstAct *)(void *)(s->buffer.arena + at);
}

static inline float *plan_floats(PlanState *s, int64_t at)
{
    return (float *)(void *)(s->buffer.arena + at);
}

static inline int32_t *plan_ints(PlanState *s, int64_t at)
{
    return (int32_t *)(void *)(s->buffer.arena + at);
}

static inline char *plan_bytes(PlanState *s, int64_t at)
{
    return s->buffer.arena + at;
}

#ifdef PLAN_TAIL
/* This rank's last tokens, whose attention output layers keep. At least one token is recomputed, if there is
 * any. */
static inline int64_t plan_kept(const PlanState *s)
{
    const int64_t most = s->n > 1 ? s->n - 1 : 0;
    return most < PLAN_TAIL ? most : PLAN_TAIL;
}
#endif

#ifdef PLAN_HOST_ARENA_BYTES
static inline char *plan_staged(PlanState *s, int64_t at)
{
    return s->buffer.host + at;
}
#endif

#ifdef PLAN_KEY_CHUNKS
static inline void plan_add_key_copies(const PlanState *s, int64_t *staged, int64_t *fetched);
#endif

/* Checks that a sequence staged and fetched as many bytes as the plan says. */
static inline int plan_check_copies(BurstCtx *c, PlanState *s)
{
#ifdef PLAN_HOST_ARENA_BYTES
    const int64_t staged = s->copies.staged_bytes, fetched = s->copies.fetched_bytes;
    int64_t down = PLAN_STAGED * s->own + PLAN_STAGED_ALL * s->n,
            up = PLAN_FETCHED * s->own + PLAN_FETCHED_ALL * s->n;
#ifdef PLAN_KEY_CHUNKS
    plan_add_key_copies(s, &down, &up);
#endif
    s->copies.staged_bytes = s->copies.fetched_bytes = 0;
    if (staged != down || fetched != up)
        return burst_fail(c, BURST_E_MEMORY,
                          "a sequence staged %lld bytes and fetched %lld; the plan has %lld and %lld",
                          (long long)staged, (long long)fetched, (long long)down, (long long)up);
#else
    (void)c, (void)s;
#endif
    return BURST_OK;
}

/* ---- one sequence ---- */

/* Defined by the program: forward, loss and backward of all layers. */
static int plan_sequence(BurstCtx *c, PlanState *s);
static int plan_alloc(BurstCtx *c, PlanState *s);    /* defined by the program: allocates its buffers */

/* Defined in burst_layer_host.h or burst_layer_cuda.cuh. */
#ifndef PLAN_INFER
static int plan_sequence_loss(BurstCtx *c, PlanState *s); /* defined by the program: forward and loss alone */
static int plan_begin(BurstCtx *c, PlanState *s, const BurstBatch *b, double loss);
static int plan_end(BurstCtx *c, PlanState *s, double *loss);
#endif
static int plan_open(BurstCtx *c, BurstWeights *w, BurstExec **exec, PlanWeights *weights);
static int plan_ready(BurstCtx *c, PlanState *s, BurstWeights *w);
#include "burst_counts.h"
#ifdef PLAN_INFER
#include "burst_infer.h"
#else

static inline int plan_take_sequence(BurstCtx *c, PlanState *s, const BurstBatch *b, double loss)
{
    BURST_TRY(plan_begin_balance(c, s));
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, s, &b->tables)); /* the live pairs change with the documents */
    return plan_begin(c, s, b, loss);
}

static inline int plan_sequence_step(BurstCtx *c, void *state, BurstWeights *w, const BurstBatch *b,
                                     double scale, double *loss_sum)
{
    PlanState *s = (PlanState *)state;
    (void)w;
    s->scale = scale;
    BURST_TRY(plan_take_sequence(c, s, b, *loss_sum));
    BURST_TRY(plan_sequence(c, s));
    BURST_TRY(plan_check_copies(c, s));
    s->sequence++;
    return plan_end(c, s, loss_sum);
}

/* The loss of a sequence. What forward stages, nothing fetches. */
static inline int plan_evaluate_sequence(BurstCtx *c, PlanState *s, const BurstBatch *b, double *loss_sum)
{
    BURST_TRY(plan_take_sequence(c, s, b, *loss_sum));
    BURST_TRY(plan_sequence_loss(c, s));
#ifdef PLAN_HOST_ARENA_BYTES
    s->copies.staged_bytes = s->copies.fetched_bytes = 0;
#endif
    s->sequence++;
    return plan_end(c, s, loss_sum);
}

/* ---- the optimizer in host memory ---- */

#ifdef PLAN_HOST_OPTIMIZER
#ifdef PLAN_BF16_GRADIENTS
typedef BurstAct PlanGrad;
#else
typedef float PlanGrad;
#endif
/* Defined by the program: updates a unit and starts its upload. */
static int plan_step_optimizer(BurstCtx *c, PlanState *s, int visit);
static int plan_step_done(BurstCtx *c, PlanState *s);                 /* waits for all uploads */

/* Checks that since the last update each unit's gradients were copied to the host and its parameters back
 * once; or its parameters and moments were fetched and written back. */
static inline int plan_check_units(BurstCtx *c, PlanState *s)
{
    const int64_t down = s->copies.down_bytes, up = s->copies.up_bytes;
    int64_t shards = 0;
    for (int unit = 0; unit < PLAN_UNITS; unit++)
        shards += plan_shard(unit);
#ifdef PLAN_DEVICE_UPDATE
    const int64_t grads = 3 * shards * (int64_t)sizeof(float), params = grads;
#else
    const int64_t grads = s->adamw ? shards * (int64_t)sizeof(PlanGrad) : 0,
                  params = shards * (int64_t)sizeof(BurstAct);
#endif
    s->copies.down_bytes = s->copies.up_bytes = 0;
    if (down != grads || up != params)
        return burst_fail(
            c, BURST_E_MEMORY,
            "an update downloaded %lld bytes of units and uploaded %lld; the plan has %lld and %lld",
            (long long)down, (long long)up, (long long)grads, (long long)params);
    return BURST_OK;
}

static inline int plan_update_units(BurstCtx *c, PlanState *s)
{
    for (int unit = 0; unit < PLAN_UNITS; unit++)
        if (plan_shard(unit)) /* a layer without experts has none in groups */
            BURST_TRY(plan_step_optimizer(c, s, unit));
    BURST_TRY(plan_step_done(c, s));
#ifdef PLAN_DEVICE_UPDATE
    BURST_TRY(burst_op_all_back(s->exec));
#endif
    return plan_check_units(c, s);
}

static inline int plan_update(BurstCtx *c, PlanState *s, int64_t step, double *norm)
{
    BurstAdamW adamw;
#ifdef PLAN_DEVICE_UPDATE
    BURST_TRY(burst_op_norm_fetched(s->exec, c, &burst_plan, &s->fetched, step, norm, &adamw));
#else
    BURST_TRY(burst_op_norm(s->exec, c, &burst_plan, &s->weights, step, norm, &adamw));
#endif
    s->adamw = &adamw;
    const int status = plan_update_units(c, s);
    s->adamw = NULL;
    return status;
}
#elif defined PLAN_MUON
/* defined by the program: the whole update except the norm */
static int plan_muon(BurstCtx *c, PlanState *s);

static inline int plan_update(BurstCtx *c, PlanState *s, int64_t step, double *norm)
{
    BurstAdamW adamw;
    BURST_TRY(burst_op_norm_fetched(s->exec, c, &burst_plan, &s->weights, step, norm, &adamw));
    s->adamw = &adamw;
    const int status = plan_muon(c, s);
    s->adamw = NULL;
    return status == BURST_OK ? burst_op_all_updated(s->exec) : status;
}
#else
static inline int plan_update(BurstCtx *c, PlanState *s, int64_t step, double *norm)
{
    (void)c;
    return burst_op_update(s->exec, &burst_plan, &s->weights, step, norm);
}
#endif

/* ---- one optimizer step ---- */

/* Counts the tokens whose labels count, in the sequences of all ranks. */
static inline int plan_count(BurstCtx *c, PlanState *s, int64_t step, double *tokens)
{
    const BurstGroup world = {0, 1, PLAN_WORLD};
    BurstBatch b;
    *tokens = 0;
    for (int i = 0; i < PLAN_SEQUENCES; i++) {
        BURST_TRY(burst_batch_read(c, &burst_plan, step, s->group * PLAN_SEQUENCES + i, &b));
        for (int64_t j = 0; j < s->own; j++)
            *tokens += b.label[j] < 0 ? 0 : (double)b.weight[j];
    }
    return burst_allreduce(c, world, tokens, 1);
}

/* Computes the loss of a batch; backward: also its gradients, which are left in the shards. */
static inline int plan_losses(BurstCtx *c, PlanState *s, BurstWeights *w, int64_t step, bool backward,
                              BurstStep *result)
{
    const BurstGroup world = {0, 1, PLAN_WORLD};
    double tokens, loss = 0;
    BurstBatch b;
    BURST_TRY(plan_count(c, s, step, &tokens));
    BURST_TRY(plan_begin_loads(c, s));
    s->sequence = 0;
    for (int i = 0; i < PLAN_SEQUENCES; i++) {
        BURST_TRY(burst_batch_read(c, &burst_plan, step, s->group * PLAN_SEQUENCES + i, &b));
        if (backward)
            BURST_TRY(plan_sequence_step(c, s, w, &b, tokens > 0 ? 1 / tokens : 0, &loss));
        else
            BURST_TRY(plan_evaluate_sequence(c, s, &b, &loss));
    }
    BURST_TRY(plan_sum_choices(c, s));
    BURST_TRY(burst_allreduce(c, world, &loss, 1));
    result->tokens = tokens;
    result->loss = tokens > 0 ? loss / tokens : 0;
    return BURST_OK;
}

static inline int plan_step(BurstCtx *c, void *state, BurstWeights *w, int64_t step, BurstStep *result)
{
    PlanState *s = (PlanState *)state;
    BURST_TRY(plan_losses(c, s, w, step, true, result));
    BURST_TRY(plan_end_loads(c, s, w, result));
    burst_doing(c, "optimizer");
    BURST_TRY(burst_op_part(s->exec, BURST_P_OPTIMIZER));
    return plan_update(c, s, step, &result->norm);
}

static inline int plan_evaluate(BurstCtx *c, void *state, BurstWeights *w, int64_t step, BurstStep *result)
{
    return plan_losses(c, (PlanState *)state, w, step, false, result);
}

#endif

/* ---- start ---- */

static inline int plan_start(BurstCtx *c, void *state, BurstWeights *w)
{
    PlanState *s = (PlanState *)state;
    s->heads = plan_chunk_heads(0);
    s->alone = burst_evaluates_alone(c);
    BURST_TRY(plan_open(c, w, &s->exec, &s->weights));
    BURST_TRY(plan_alloc(c, s));
    BURST_TRY(plan_chunks(c, s));
    BURST_TRY(plan_ready(c, s, w));
    BURST_TRY(plan_open_corrections(c, s, w));
    plan_open_loads(s);
#ifdef PLAN_HOST_OPTIMIZER
    if (!s->alone)
        BURST_TRY(plan_update_units(c, s));
#endif
    return plan_live(c, s, NULL);
}

#endif
