/* test_weights.c: first values, sharding, the optimizer's step and the learning rate, against formulas in
 * double. */
#include "check.h"
#include "mini.h"
#include "burst_step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { WIDE = 300, ROWS = 70 /* more than a block of an update */, ELEMENTS = WIDE * ROWS + WIDE, UNITS = 3 };

static const BurstTensor tensors[] = {{"norm.weight", 1, WIDE, 0, 0},
                                      {"proj.weight", ROWS, WIDE, WIDE, 0.25f}};

/* One unit twice, and one of a few elements: fewer than ranks, so that some hold nothing but padding. */
static const BurstTensor few[] = {{"bias", 1, 3, 0, 1}};
static const BurstTensor vectors[] = {{"norm.weight", 1, 3, 0, 0}, {"bias", 1, 5, 3, -1}};

typedef struct Shape { BurstUnit unit[2]; BurstPlan plan; } Shape;

static void shape_for(Shape *s, int world)
{
    s->unit[0] = (BurstUnit){"layers.%d", ELEMENTS, (ELEMENTS + world - 1) / world, 2, tensors, 2};
    s->unit[1] = (BurstUnit){"few", 3, (3 + world - 1) / world, 1, few, 1};
    s->plan = bare_plan(world, 0);
    s->plan.units = s->unit;
    s->plan.unit_rows = 2;
    s->plan.train = (BurstTrain){
        .seed = 11, .lr = 0.1, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .decay = 0.2, .clip = 1.5};
    s->plan.arena_bytes = burst_weights_bytes(&s->plan);
}

/* All elements of all units, put together from the shards. */
typedef struct Whole {
    float param[UNITS][ELEMENTS];
    float padding; /* the sum of its magnitudes */
    double norm;
} Whole;

static int64_t elements_of(const BurstPlan *p, int unit)
{
    return burst_unit(p, unit)->elements;
}

static void put_together(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, Whole *out)
{
    for (int u = 0; u < w->units; u++)
        for (int64_t i = 0, n = burst_unit(p, u)->shard; i < n; i++) {
            int64_t at = burst_rank(c) * n + i;
            if (at < elements_of(p, u))
                out->param[u][at] = w->param[u][i];
            else
                out->padding += fabsf(w->param[u][i]);
        }
}

static int make_only(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstWeights w;
    BURST_TRY(burst_weights_make(c, p, &w));
    CHECK(c, w.units == UNITS && burst_unit_count(p) == UNITS);
    CHECK(c, burst_arena_used(c) == burst_weights_bytes(p));
    put_together(c, p, &w, arg);
    return BURST_OK;
}

static double gradient_of(int step, int unit, int64_t i)
{
    return sin(1.0 + 0.37 * (double)i + 5 * unit + 11 * step) * (step == 1 ? 0.001 : 1);
}

static int make_and_step(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstWeights w;
    Whole *out = arg;
    double norm;
    BURST_TRY(burst_weights_make(c, p, &w));
    for (int step = 0; step < 3; step++) {
        for (int u = 0; u < w.units; u++)
            for (int64_t i = 0, n = burst_unit(p, u)->shard; i < n; i++)
                if (burst_rank(c) * n + i < elements_of(p, u))
                    w.grad[u][i] = (float)gradient_of(step, u, burst_rank(c) * n + i);
        BURST_TRY(burst_op_update(c, p, &w, step, &norm));
        for (int u = 0; u < w.units; u++)
            for (int64_t i = 0; i < burst_unit(p, u)->shard; i++)
                CHECK(c, w.grad[u][i] == 0);
    }
    out->norm = norm;
    put_together(c, p, &w, out);
    return BURST_OK;
}

/* Gradients that bf16 holds exactly, given as floats, or as a device keeps them. */
static int step_rounded(BurstCtx *c, const BurstPlan *p, Whole *out, bool bf16)
{
    BurstWeights w;
    BurstAdamW o;
    BURST_TRY(burst_weights_make(c, p, &w));
    for (int u = 0; u < w.units; u++) {
        const int64_t n = burst_unit(p, u)->shard;
        for (int64_t i = 0; i < n && burst_rank(c) * n + i < elements_of(p, u); i++)
            w.grad[u][i] = (float)gradient_of(0, u, burst_rank(c) * n + i);
        burst_keep_bf16(n, w.grad[u]);
        if (!bf16)
            continue;
        w.grad_bf16[u] = malloc((size_t)n * sizeof **w.grad_bf16);
        burst_round_bf16(n, w.grad[u], w.grad_bf16[u]);
        w.grad[u] = NULL;
    }
    BURST_TRY(burst_update_begin(c, p, &w, 0, &out->norm, &o));
    for (int u = 0; u < w.units; u++) {
        burst_update_unit(c, p, &w, u, &o, NULL);
        free(w.grad_bf16[u]);
    }
    put_together(c, p, &w, out);
    return BURST_OK;
}

static int step_floats(BurstCtx *c, const BurstPlan *p, void *arg) { return step_rounded(c, p, arg, false); }
static int step_bf16(BurstCtx *c, const BurstPlan *p, void *arg) { return step_rounded(c, p, arg, true); }

static Whole *run_shape(Shape *s, int world, Body body)
{
    Whole *w = shared_memory(sizeof *w);
    shape_for(s, world);
    Outcome o = run_job(&s->plan, "20", body, w);
    assert_string_equal(o.text, "");
    assert_int_equal(o.code, 0);
    assert_true(w->padding == 0);
    return w;
}

/* Norms begin as ones, biases as zeros, and neither decays. */
static int make_vectors(BurstCtx *c, const BurstPlan *p, void *arg)
{
    static const float first[] = {1, 1, 1, 0, 0, 0, 0, 0};
    BurstWeights w;
    double norm;
    (void)arg;
    BURST_TRY(burst_weights_make(c, p, &w));
    for (int step = 0; step < 2; step++) {
        for (int64_t i = 0; i < 8; i++)
            CHECK(c, w.param[0][i] == first[i]);
        BURST_TRY(burst_op_update(c, p, &w, step, &norm));
    }
    return BURST_OK;
}

static void vectors_begin_as_said(void **unused)
{
    (void)unused;
    const BurstUnit unit = {"vectors", 8, 8, 2, vectors, 1};
    BurstPlan p = bare_plan(1, 0);
    p.units = &unit;
    p.unit_rows = 1;
    p.train = (BurstTrain){.seed = 11, .lr = 0.1, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .decay = 0.2};
    p.arena_bytes = burst_weights_bytes(&p);
    Outcome o = run_job(&p, "20", make_vectors, NULL);
    assert_string_equal(o.text, "");
    assert_int_equal(o.code, 0);
}

static void first_values_ignore_the_world(void **unused)
{
    (void)unused;
    Shape s;
    Whole *one = run_shape(&s, 1, make_only);
    for (int world = 2; world <= 8; world++)
        assert_memory_equal(one->param, run_shape(&s, world, make_only)->param, sizeof one->param);
    assert_memory_not_equal(one->param[0], one->param[1], sizeof one->param[0]);
}

static void first_values_are_normal(void **unused)
{
    (void)unused;
    Shape s;
    Whole *w = run_shape(&s, 3, make_only);
    double moment[5] = {0}, lag = 0, n = WIDE * ROWS;
    for (int i = 0; i < WIDE; i++)
        assert_true(w->param[0][i] == 1);
    for (int i = WIDE; i < ELEMENTS; i++) {
        double x = w->param[0][i] / 0.25;
        for (int k = 1; k <= 4; k++)
            moment[k] += pow(x, k) / n;
        lag += i > WIDE ? x * (w->param[0][i - 1] / 0.25) / n : 0;
    }
    /* five standard errors of each mean: sqrt(var(x^k) / n), var = 1, 2, 15, 96 */
    assert_true(fabs(moment[1]) < 5 * sqrt(1 / n));
    assert_true(fabs(moment[2] - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(moment[3]) < 5 * sqrt(15 / n));
    assert_true(fabs(moment[4] - 3) < 5 * sqrt(96 / n));
    assert_true(fabs(lag) < 5 * sqrt(1 / n));
}

/* AdamW as its paper writes it, on one unit's element. */
static double adamw(const BurstTrain *t, double x, int unit, int64_t i, bool decays, const double *scale)
{
    double m = 0, v = 0;
    for (int step = 0; step < 3; step++) {
        double g = (float)gradient_of(step, unit, i) * scale[step];
        m = t->beta1 * m + (1 - t->beta1) * g;
        v = t->beta2 * v + (1 - t->beta2) * g * g;
        double unbiased = m / (1 - pow(t->beta1, step + 1)), spread = sqrt(v / (1 - pow(t->beta2, step + 1)));
        x -= t->lr * (unbiased / (spread + t->eps) + (decays ? t->decay * x : 0));
    }
    return x;
}

static double norm_of(const BurstPlan *p, int step)
{
    double squares = 0;
    for (int u = 0; u < UNITS; u++)
        for (int64_t i = 0; i < elements_of(p, u); i++)
            squares += pow((float)gradient_of(step, u, i), 2);
    return sqrt(squares);
}

static void update_is_clipped_adamw(void **unused)
{
    (void)unused;
    for (int world = 1; world <= 7; world += 3) {
        Shape s;
        Whole *first = run_shape(&s, world, make_only), *last = run_shape(&s, world, make_and_step);
        const BurstTrain *t = &s.plan.train;
        double scale[3];
        for (int step = 0; step < 3; step++)
            scale[step] = fmin(1, t->clip / norm_of(&s.plan, step));
        assert_true(scale[0] < 0.1 && scale[1] == 1); /* one step is clipped, one is not */
        assert_true(fabs(last->norm / norm_of(&s.plan, 2) - 1) < 1e-12);
        for (int u = 0; u < UNITS; u++)
            for (int64_t i = 0; i < elements_of(&s.plan, u); i++) {
                bool decays = u == 2 || i >= WIDE;
                double want = adamw(t, first->param[u][i], u, i, decays, scale);
                assert_true(fabs(last->param[u][i] - want) < 2e-6); /* a few roundings of values near 1 */
            }
    }
}

static int poisoned(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstWeights w;
    double norm;
    (void)arg;
    BURST_TRY(burst_weights_make(c, p, &w));
    if (burst_rank(c) == 1)
        w.grad[0][0] = NAN;
    return burst_op_update(c, p, &w, 7, &norm);
}

static void poisoned_gradients_stop(void **unused)
{
    (void)unused;
    Shape s;
    shape_for(&s, 2);
    Outcome o = run_job(&s.plan, "20", poisoned, NULL);
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.text, "the gradient norm is not finite in step 8"));
}

static void rounded_gradients_are_read(void **unused)
{
    (void)unused;
    Shape s;
    for (int world = 1; world <= 3; world++) {
        const Whole *right = run_shape(&s, world, step_floats), *is = run_shape(&s, world, step_bf16);
        assert_true(fabs(is->norm / right->norm - 1) < 1e-12);
        assert_memory_equal(is->param, right->param, sizeof is->param);
    }
}

static void learning_rate(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(1, 0);
    p.train =
        (BurstTrain){.steps = 110, .warmup = 10, .lr = 2, .lr_end = 1, .schedule = BURST_SCHEDULE_COSINE};
    static const struct { int64_t step; double lr;
    } wanted[] = {{0, 0.2},  {4, 1},
                  {9, 2},    {34, 1.5 + 0.5 * M_SQRT1_2},
                  {59, 1.5}, {84, 1.5 - 0.5 * M_SQRT1_2},
                  {109, 1},  {110, 1},
                  {200, 1}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_true(fabs(burst_learning_rate(&p, wanted[i].step) - wanted[i].lr) < 1e-12);
    p.train.schedule = BURST_SCHEDULE_CONSTANT;
    assert_true(burst_learning_rate(&p, 100) == 2);
    p.train.warmup = 0;
    assert_true(burst_learning_rate(&p, 0) == 2);
}

/* Every step of short schedules, against the formula of docs/language.md: step number s of 1 to steps. */
static void learning_rate_of_every_step(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(1, 0);
    for (int steps = 1; steps <= 12; steps++)
        for (int warmup = 0; warmup <= steps; warmup++) {
            const double lr = 1e-2, end = 1e-4, top = warmup > 1 ? warmup : 1;
            p.train = (BurstTrain){
                .steps = steps, .warmup = warmup, .lr = lr, .lr_end = end, .schedule = BURST_SCHEDULE_COSINE};
            for (int s = 1; s <= steps; s++) {
                const double rate = s <= top
                                        ? lr * s / top
                                        : end + (lr - end) * (1 + cos(M_PI * (s - top) / (steps - top))) / 2;
                assert_true(fabs(burst_learning_rate(&p, s - 1) - rate) <= 1e-15);
            }
            if (steps > top)
                assert_true(burst_learning_rate(&p, steps - 1) == end &&
                            burst_learning_rate(&p, steps) == end);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_begin_as_said),
        cmocka_unit_test(first_values_ignore_the_world), cmocka_unit_test(first_values_are_normal),
        cmocka_unit_test(update_is_clipped_adamw),       cmocka_unit_test(poisoned_gradients_stop),
        cmocka_unit_test(rounded_gradients_are_read),    cmocka_unit_test(learning_rate),
        cmocka_unit_test(learning_rate_of_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
