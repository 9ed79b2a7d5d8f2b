/* update.c: the optimizer on the host's cores: norm of the gradients, AdamW unit by unit, rounded parameters
 * for a device. */
#include "core/context.h"
#include "core/weights.h"
#include "optimizer/decay.h"
#include "optimizer/muon.h"
#include "burst_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* elements that are updated and rounded while in cache; results do not depend on the number of threads */
enum { BLOCK = 1 << 14 };

/* Converts a device's bf16 values to fp32, as many as the next loop takes. */
static const float *widened(const uint16_t *bf16, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)bf16[i] << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
    return to;
}

/* ---- the norm ---- */

/* elements per partial sum of squares; partial sums are added in order, for any number of threads */
enum { SEGMENT = 1 << 22 };
typedef struct Squares {
    const BurstCtx *c;
    const BurstPlan *p;
    const BurstWeights *w;
    double *of;
} Squares;

static int64_t segments_of(const BurstPlan *p, const BurstUnit *u)
{
    return unit_is_split(p, u) ? 1 : (u->shard + SEGMENT - 1) / SEGMENT;
}

static double squares_between(const BurstWeights *w, int unit, int64_t begin, int64_t end)
{
    float block[BLOCK];
    double squares = 0;
    if (!w->grad_bf16[unit])
        return burst_sum_squares(end - begin, w->grad[unit] + begin);
    for (int64_t at = begin; at < end; at += BLOCK) {
        const int64_t count = end - at < BLOCK ? end - at : BLOCK;
        squares += burst_sum_squares(count, widened(w->grad_bf16[unit] + at, count, block));
    }
    return squares;
}

/* Counts elements that several ranks have once. */
static double squares_of(const BurstPlan *p, int rank, const BurstWeights *w, int unit, int64_t segment)
{
    const BurstUnit *u = burst_unit(p, unit);
    const int64_t at = segment * SEGMENT;
    double squares = 0;
    if (!unit_is_split(p, u))
        return squares_between(w, unit, at, u->shard - at < SEGMENT ? u->shard : at + SEGMENT);
    for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++) {
        const ElementRange s = tensor_part(p, rank, u, t);
        if (s.begin < s.end && tensor_is_written(p, rank, u, t))
            squares += squares_between(w, unit, s.begin, s.end);
    }
    return squares;
}

static void square_part(const void *what, int part, int parts)
{
    const Squares *s = what;
    int64_t n = 0;
    for (int u = 0; u < s->w->units; u++)
        for (int64_t k = 0; k < segments_of(s->p, burst_unit(s->p, u)); k++, n++)
            if (n % parts == part)
                s->of[n] = squares_of(s->p, s->c->rank, s->w, u, k);
}

static int global_norm(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, double *norm)
{
    int64_t segments = 0;
    for (int u = 0; u < w->units; u++)
        segments += segments_of(p, burst_unit(p, u));
    double squares = 0, *of = calloc((size_t)segments, sizeof *of);
    if (!of)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for %lld partial sums of the gradient norm",
                          (long long)segments);
    in_parts(c, square_part, &(Squares){c, p, w, of});
    for (int64_t i = 0; i < segments; i++)
        squares += of[i];
    free(of);
    BURST_TRY(burst_allreduce(c, burst_shard_group(c), &squares, 1)); /* replicas each have all of it */
    *norm = sqrt(squares);
    return BURST_OK;
}

int burst_update_begin(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int64_t step, double *norm,
                       BurstAdamW *o)
{
    const BurstTrain *t = &p->train;
    BURST_TRY(global_norm(c, p, w, norm));
    if (!isfinite(*norm))
        return burst_fail(c, BURST_E_NUMERIC, "the gradient norm is not finite in step %lld",
                          (long long)step + 1);
    *o = (BurstAdamW){.lr = burst_learning_rate(p, step),
                      .beta1 = t->beta1,
                      .beta2 = t->beta2,
                      .eps = t->eps,
                      .decay = t->decay,
                      .step = step + 1,
                      .grad_scale = t->clip > 0 && *norm > t->clip ? t->clip / *norm : 1,
                      .momentum = t->momentum};
    return BURST_OK;
}

/* ---- one unit ---- */

typedef struct Update {
    const BurstCtx *c;
    const BurstPlan *p;
    const BurstUnit *u;
    int unit;
    const BurstAdamW *o;
    float *param, *grad, *m, *v;
    uint16_t *grad_bf16, *bf16;
} Update;

static void update_block(const Update *x, int64_t begin, int64_t end)
{
    float block[BLOCK];
    const float *grad = x->grad_bf16 && x->o ? widened(x->grad_bf16 + begin, end - begin, block)
                                             : x->grad + begin;
    for (const BurstTensor *t = x->u->tensor; x->o && t < x->u->tensor + x->u->tensors; t++) {
        const ElementRange s = tensor_part(x->p, x->c->rank, x->u, t);
        const int64_t from = s.begin > begin ? s.begin : begin, to = s.end < end ? s.end : end;
        if (from < to && !muon_updates(x->p, x->unit, t))
            burst_adamw(x->o, to - from, tensor_decays(t), x->param + from, grad + (from - begin),
                        x->m + from, x->v + from);
    }
    if (x->bf16)
        burst_round_bf16(end - begin, x->param + begin, x->bf16 + begin);
}

static void update_part(const void *what, int part, int parts)
{
    const Update *x = what;
    const int64_t blocks = (x->u->shard + BLOCK - 1) / BLOCK;
    for (int64_t b = blocks * part / parts; b < blocks * (part + 1) / parts; b++)
        update_block(x, b * BLOCK, (b + 1) * BLOCK < x->u->shard ? (b + 1) * BLOCK : x->u->shard);
}

void burst_update_unit(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int unit, const BurstAdamW *o,
                       uint16_t *bf16)
{
    in_parts(c, update_part,
             &(Update){c, p, burst_unit(p, unit), unit, o, w->param[unit], w->grad[unit], w->m[unit],
                       w->v[unit], w->grad_bf16[unit], bf16});
}

/* ---- corrections of routers ---- */

static int each_run(BurstCtx *c, const BurstPlan *p, int unit, const BurstTensor *t, BurstCorrectionRun *run,
                    void *with)
{
    const int64_t layer = (int64_t)(unit - 1) * p->experts.experts;
    for (BurstRun r = {0}; burst_next_run(p, c->rank, burst_unit(p, unit), t, &r);)
        BURST_TRY(run(with, unit, &r, layer + r.from));
    return BURST_OK;
}

int burst_each_correction(BurstCtx *c, const BurstPlan *p, BurstCorrectionRun *run, void *with)
{
    for (int unit = 1; unit <= p->layers; unit++) {
        const BurstUnit *u = burst_unit(p, unit);
        for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
            if (strcmp(t->name, "mlp.router.correction") == 0)
                BURST_TRY(each_run(c, p, unit, t, run, with));
    }
    return BURST_OK;
}

/* ---- in shards ---- */

typedef struct Shards {
    const BurstWeights *w;
    double *sum, *ranks; /* of what each rank has, and how many have it */
} Shards;

static int add_run(void *with, int unit, const BurstRun *r, int64_t from)
{
    const Shards *s = with;
    for (int64_t i = 0; i < r->count; i++) {
        s->sum[from + i] += (double)s->w->param[unit][r->at + i];
        s->ranks[from + i]++;
    }
    return BURST_OK;
}

/* A sum of equal floats and its quotient by their number are exact. */
int burst_read_corrections(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, float *corrections)
{
    const int64_t all = (int64_t)p->layers * p->experts.experts;
    double *sum = calloc((size_t)(2 * all), sizeof *sum);
    if (!sum)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the corrections of routers");
    Shards s = {w, sum, sum + all};
    int status = burst_each_correction(c, p, add_run, &s);
    if (status == BURST_OK)
        status = burst_sum_counts(c, sum, 2 * all);
    for (int64_t i = 0; i < all; i++)
        corrections[i] = (float)(s.ranks[i] > 0 ? s.sum[i] / s.ranks[i] : 0);
    free(sum);
    return status;
}

typedef struct Written {
    const float *from;
    BurstWeights *to;
} Written;

static int write_run(void *with, int unit, const BurstRun *r, int64_t from)
{
    const Written *w = with;
    memcpy(w->to->param[unit] + r->at, w->from + from, (size_t)r->count * sizeof *w->from);
    return BURST_OK;
}

void burst_write_corrections(BurstCtx *c, const BurstPlan *p, const float *corrections, BurstWeights *w)
{
    burst_each_correction(c, p, write_run, &(Written){corrections, w});
}

/* ---- by loads ---- */

/* Numbers of choices are whole, so nothing is rounded. Layers without a router have none. */
void burst_move_corrections(const BurstPlan *p, const double *choices, float *corrections)
{
    const int experts = p->experts.experts;
    for (int l = 0; l < p->layers; l++, choices += experts, corrections += experts) {
        double all = 0;
        for (int i = 0; i < experts; i++)
            all += choices[i];
        for (int i = 0; i < experts; i++) {
            const double load = choices[i] * experts;
            corrections[i] += (float)(p->experts.rate * ((load < all) - (load > all)));
        }
    }
}

/* ---- operations of the step ---- */

int burst_op_norm(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int64_t step,
                  double *norm, BurstAdamW *o)
{
    (void)e;
    return burst_update_begin(c, p, w, step, norm, o);
}

int burst_op_norm_fetched(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstShards *w, int64_t step,
                          double *norm, BurstAdamW *o)
{
    return burst_op_norm(e, c, p, w, step, norm, o);
}

int burst_op_adamw(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int unit, const BurstAdamW *o,
                   void *to)
{
    burst_update_unit(c, p, w, unit, o, NULL);
    memcpy(to, w->param[unit], (size_t)burst_unit(p, unit)->shard * sizeof(float));
    return BURST_OK;
}

int burst_op_adamw_fetched(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstShards *w, int unit,
                           const BurstAdamW *o, void *to)
{
    (void)e;
    return burst_op_adamw(c, p, w, unit, o, to);
}

int burst_op_adamw_rest(BurstExec *e, const BurstPlan *p, const BurstShards *w, int unit, const BurstAdamW *o)
{
    burst_update_unit(e, p, w, unit, o, NULL);
    return BURST_OK;
}

int burst_op_all_updated(BurstExec *e)
{
    (void)e;
    return BURST_OK;
}

int burst_op_update(BurstExec *e, const BurstPlan *p, BurstShards *w, int64_t step, double *norm)
{
    BurstAdamW o;
    BURST_TRY(burst_update_begin(e, p, w, step, norm, &o));
    for (int u = 0; u < w->units; u++) {
        burst_update_unit(e, p, w, u, &o, NULL);
        memset(w->grad[u], 0, (size_t)burst_unit(p, u)->shard * sizeof(float));
    }
    return BURST_OK;
}
