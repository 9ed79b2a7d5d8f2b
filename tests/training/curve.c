/* curve.c: the main of an emitted program under test: its training steps against the same training in
 * float64, from the same first weights and data.
 *
 *     program STEPS DATA MASK ...          the masks' texts, one a layer (numerics/test_masks.h)
 *
 * Prints "steps N loss E norm E lr E weights E": the worst relative error of the losses, of the gradients'
 * norms and of the learning rates, and the relative L2 of what the weights have changed. Exits with 1
 * where one is over its tolerance.
 */
#include "test_masks.h"
#include "whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const BurstPlan burst_plan;

#define ERRORS(X) /* what, tolerance */ X(loss, 1e-6) X(norm, 1e-5) X(lr, 1e-12) X(weights, 1e-5)
typedef struct Errors {
#define X(what, tolerance) double what;
    ERRORS(X)
#undef X
} Errors;

typedef struct Options { int64_t steps; const TestMask **mask; } Options;

/* The training in float64; the weights and moments are everywhere, rank 0 computes. */
typedef struct Twin {
    Whole x;
    Train64 train;
    double *first, *w, *grad, *m, *v, *is; /* [x.count] */
} Twin;

static void worsen(double *worst, double is, double should)
{
    double error = fabs(is / should - 1);
    if (!(error <= *worst))
        *worst = error;
}

static int twin_open(Twin *t, BurstCtx *c, const BurstPlan *p, const BurstWeights *w)
{
    const BurstTrain *b = &p->train;
    BURST_TRY(whole_open(&t->x, c, p));
    t->train = (Train64){b->steps, b->warmup, b->lr,    b->lr_end, b->beta1,
                         b->beta2, b->eps,    b->decay, b->clip,   b->schedule == BURST_SCHEDULE_COSINE,
                          b->optimizer == BURST_OPTIMIZER_MUON, b->momentum};
    double **all[] = {&t->first, &t->w, &t->grad, &t->m, &t->v, &t->is};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = new64(t->x.count);
    BURST_TRY(whole_weights(&t->x, w->param, t->w));
    memcpy(t->first, t->w, sizeof(double) * (size_t)t->x.count);
    return BURST_OK;
}

static void twin_close(Twin *t)
{
    double *all[] = {t->first, t->w, t->grad, t->m, t->v, t->is};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    whole_close(&t->x);
}

static double sequence_loss(const Twin *t, const Options *o, const Sequence *s, double scale)
{
    const BurstPlan *p = t->x.p;
    Mask64 mask[p->layers];
    MaskView view[p->layers];
    for (int layer = 0; layer < p->layers; layer++) {
        view[layer] = (MaskView){o->mask[layer], s->doc};
        mask[layer] = (Mask64){mask_view_keep, &view[layer], view[layer].mask->select, view[layer].doc};
    }
    Batch64 b = {p->sequence, s->token, s->label, s->weight, mask};
    int32_t *place = calloc((size_t)t->x.p->sequence, sizeof *place); /* where recurrent layers restart */
    for (int64_t i = 1; i < t->x.p->sequence; i++)
        place[i] = s->doc[i] == s->doc[i - 1] ? place[i - 1] + 1 : 0;
    Shape64 shape = t->x.shape;
    shape.place = place;
    const double loss = model64_sequence(&shape, t->w, &b, scale, t->grad);
    free(place);
    return loss;
}

/* Every rank hands in its tokens, so every rank calls. */
static int twin_step(Twin *t, const Options *o, int64_t step, double *loss, double *norm)
{
    const BurstPlan *p = t->x.p;
    int64_t batch = p->train.batch;
    Sequence s[batch];
    double counted = 0, sum = 0;
    for (int64_t i = 0; i < batch; i++) {
        s[i] = sequence_new(p->sequence);
        BURST_TRY(whole_sequence(&t->x, step, i, &s[i]));
        counted += s[i].counted;
    }
    memset(t->grad, 0, sizeof(double) * (size_t)t->x.count);
    for (int64_t i = 0; i < batch; i++) {
        if (burst_rank(t->x.c) == 0)
            sum += sequence_loss(t, o, &s[i], 1 / counted);
        sequence_free(&s[i]);
    }
    *loss = sum / counted;
    *norm = update64(&t->train, step, t->x.tensors, t->x.tensor, t->w, t->grad, t->m, t->v);
    return BURST_OK;
}

static double changed_apart(const Twin *t)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < t->x.count; i++) {
        error += (t->is[i] - t->w[i]) * (t->is[i] - t->w[i]);
        size += (t->w[i] - t->first[i]) * (t->w[i] - t->first[i]);
    }
    return sqrt(error / size);
}

static int judge(const Twin *t, const Options *o, const Errors *e)
{
    bool fails = false;
    printf("steps %lld", (long long)o->steps);
#define X(what, tolerance)                \
    printf(" " #what " %.2e", e->what);   \
    fails |= !(e->what <= (tolerance));
    ERRORS(X)
#undef X
    printf("\n");
    return fails ? burst_fail(t->x.c, BURST_E_NUMERIC, "training parts from float64") : BURST_OK;
}

static int steps(Twin *t, const Options *o, void *state, BurstWeights *w)
{
    BurstCtx *c = t->x.c;
    const BurstPlan *p = t->x.p;
    Errors e = {0};
    for (int64_t step = 0; step < o->steps; step++) {
        BurstStep result = {0};
        double loss, norm;
        BURST_TRY(twin_step(t, o, step, &loss, &norm));
        BURST_TRY(p->step(c, state, w, step, &result));
        worsen(&e.loss, result.loss, loss);
        worsen(&e.norm, result.norm, norm);
        worsen(&e.lr, burst_learning_rate(p, step), learning_rate64(&t->train, step));
    }
    BURST_TRY(whole_weights(&t->x, w->param, t->is));
    e.weights = changed_apart(t);
    return burst_rank(c) == 0 ? judge(t, o, &e) : BURST_OK;
}

static int body(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstWeights w;
    Twin t;
    void *state = calloc(1, p->state_bytes + 1);
    if (!state)
        return burst_fail(c, BURST_E_MEMORY, "no memory");
    BURST_TRY(burst_weights_make(c, p, &w));
    BURST_TRY(p->start(c, state, &w));
    BURST_TRY(twin_open(&t, c, p, &w));
    BURST_TRY(steps(&t, arg, state, &w));
    twin_close(&t);
    free(state);
    return BURST_OK;
}

int main(int argc, char **argv)
{
    int layers = argc - 3;
    if (layers != burst_plan.layers || atoll(argv[1]) < 1) {
        fprintf(stderr, "usage: %s STEPS DATA MASK ... (%d layers)\n", argv[0], burst_plan.layers);
        return 2;
    }
    const TestMask *mask[layers];
    for (int i = 0; i < layers; i++)
        if (!(mask[i] = test_mask_named(argv[3 + i])))
            return 2;
    Options o = {atoll(argv[1]), mask};
    BurstPlan p = burst_plan;
    const BurstDataFile file = {argv[2], 0, 1};
    p.train.data = &file;
    p.train.data_files = 1;
    p.arena_bytes += whole_arena(&p);
    return burst_launch(&p, 1, argv, body, &o);
}
