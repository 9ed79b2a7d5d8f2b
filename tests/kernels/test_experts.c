/* test_experts.c: a layer of experts by the host's operations against the float64 oracle, forward and
 * backward, where routing is hostile: all tokens choose one expert, none chooses another, all scores are
 * equal. */
#include "burst_step.h"
#include "burst_sizes.h"
#include "base/blas.h"
#include "kernel_test.h"
#include "model64.h"

enum { TOKENS = 37, HIDDEN = 24, EXPERTS = 8, WIDTH = 16 };
typedef enum Routing { RANDOM, ALL_TO_ONE, NONE_TO_ONE, TIES, ROUTINGS } Routing;

/* Of a layer; gradients where it is called d. up [experts][2 * width][hidden], down [experts][hidden][width],
 * biases in the same order. */
typedef struct Weights {
    float *router, *router_bias, *correction, *up, *up_bias, *down, *down_bias;
} Weights;

static int64_t up_elements(void) { return (int64_t)EXPERTS * 2 * WIDTH * HIDDEN; }
static int64_t down_elements(void) { return (int64_t)EXPERTS * WIDTH * HIDDEN; }

/* The first element of each token's x is 1: a router's weight of it moves an expert's logit for all. */
static void set_router(Routing routing, float *router)
{
    for (int e = 0; e < EXPERTS; e++)
        for (int i = 0; i < HIDDEN; i++)
            router[e * HIDDEN + i] *= routing == TIES ? 0 : 0.3f;
    if (routing == ALL_TO_ONE)
        router[5 * HIDDEN] = 20;
    if (routing == NONE_TO_ONE)
        router[2 * HIDDEN] = -20;
}

static Weights weights_of(Random *r, Routing routing)
{
    Weights w = {random_array(r, EXPERTS * HIDDEN),
                 random_array(r, EXPERTS),
                 random_array(r, EXPERTS),
                 random_array(r, up_elements()),
                 random_array(r, EXPERTS * 2 * WIDTH),
                 random_array(r, down_elements()),
                 random_array(r, EXPERTS * HIDDEN)};
    set_router(routing, w.router);
    for (int e = 0; e < EXPERTS; e++) {
        w.router_bias[e] *= routing == TIES ? 0 : 0.1f;
        w.correction[e] *= routing == TIES ? 0 : 0.05f;
    }
    return w;
}

static Weights zero_weights(void)
{
    return (Weights){zero_floats(EXPERTS * HIDDEN),
                     zero_floats(EXPERTS),
                     zero_floats(EXPERTS),
                     zero_floats(up_elements()),
                     zero_floats(EXPERTS * 2 * WIDTH),
                     zero_floats(down_elements()),
                     zero_floats(EXPERTS * HIDDEN)};
}

static void free_weights(const Weights *w)
{
    free(w->router), free(w->router_bias), free(w->correction), free(w->up), free(w->up_bias), free(w->down);
    free(w->down_bias);
}

static Shape64 shape_of(const BurstExperts *m)
{
    return (Shape64){.hidden = HIDDEN,
                     .ffn = WIDTH,
                     .experts = EXPERTS,
                     .top = m->top,
                     .sigmoid = m->score == BURST_SCORE_SIGMOID,
                     .normalize = m->normalize,
                     .score_eps = m->eps,
                     .score_scale = m->scale,
                     .router_bias = m->router_bias,
                     .correction = m->correction,
                     .expert_bias = m->bias,
                     .two = m->group_score == BURST_GROUP_TWO,
                     .groups = m->groups,
                     .top_groups = m->top_groups,
                     .least = m->least,
                     .alpha = m->alpha,
                     .offset = m->offset,
                     .limit = m->limit};
}

/* An expert's matrices, then its biases, as the oracle has them. */
static void to_oracle(const Shape64 *s, const Weights *w, double *to)
{
    const int64_t up = 2 * WIDTH * HIDDEN, down = WIDTH * HIDDEN;
    for (int e = 0; e < EXPERTS; e++, to += expert64_size(s)) {
        for (int64_t i = 0; i < up; i++)
            to[i] = w->up[e * up + i];
        for (int64_t i = 0; i < down; i++)
            to[up + i] = w->down[e * down + i];
        for (int64_t i = 0; i < 2 * WIDTH && s->expert_bias; i++)
            to[up + down + i] = w->up_bias[e * 2 * WIDTH + i];
        for (int64_t i = 0; i < HIDDEN && s->expert_bias; i++)
            to[up + down + 2 * WIDTH + i] = w->down_bias[e * HIDDEN + i];
    }
}

/* Values of a layer, of so many rows of experts. */
typedef struct Values {
    float *logits, *route, *gate_up, *act, *rows, *d_logits, *d_route, *d_gate_up, *d_act, *scratch;
    int32_t *choice, *slot, *row, *first;
} Values;

static Values values_of(int top)
{
    const int64_t rows = (int64_t)TOKENS * top;
    return (Values){zero_floats(TOKENS * EXPERTS),
                    zero_floats(rows),
                    zero_floats(rows * 2 * WIDTH),
                    zero_floats(rows * WIDTH),
                    zero_floats(rows * HIDDEN),
                    zero_floats(TOKENS * EXPERTS),
                    zero_floats(rows),
                    zero_floats(rows * 2 * WIDTH),
                    zero_floats(rows * WIDTH),
                    zero_floats(burst_experts_floats(HIDDEN)),
                    calloc((size_t)rows, 4),
                    calloc((size_t)rows, 4),
                    calloc((size_t)rows, 4),
                    calloc(EXPERTS + 1, 4)};
}

static void free_values(const Values *v)
{
    free(v->logits), free(v->route), free(v->gate_up), free(v->act), free(v->rows), free(v->d_logits);
    free(v->d_route), free(v->d_gate_up), free(v->d_act), free(v->scratch);
    free(v->choice), free(v->slot), free(v->row), free(v->first);
}

static void forward(const BurstExperts *m, const Weights *w, const float *x, Values *v, float *y)
{
    burst_op_logits(NULL, TOKENS, HIDDEN, EXPERTS, x, w->router, v->logits);
    if (m->router_bias)
        burst_op_bias(NULL, TOKENS, EXPERTS, v->logits, w->router_bias, v->logits);
    if (m->correction)
        burst_op_choose_corrected(NULL, TOKENS, m, v->logits, w->correction, v->choice, v->route);
    else
        burst_op_choose(NULL, TOKENS, m, v->logits, v->choice, v->route);
    burst_op_arrange(NULL, TOKENS, m, v->choice, v->slot, v->row, v->first, NULL);
    burst_op_experts_up(NULL, TOKENS, m, HIDDEN, x, v->row, v->first, w->up, v->gate_up, v->scratch);
    if (m->bias)
        burst_op_experts_bias(NULL, TOKENS, m, v->gate_up, v->first, w->up_bias, v->gate_up);
    burst_op_experts_act(NULL, TOKENS, m, v->gate_up, v->route, v->row, v->act);
    burst_op_experts_down(NULL, TOKENS, m, HIDDEN, v->act, v->first, w->down, v->rows);
    if (m->bias)
        burst_op_experts_out_bias(NULL, TOKENS, m, HIDDEN, v->choice, v->route, y, w->down_bias, y);
    burst_op_experts_sum(NULL, TOKENS, m, HIDDEN, v->rows, v->slot, y, y);
}

/* Without adds the same numbers take the place of whatever is there. */
static void out_bias_back(const BurstExperts *m, const Weights *w, const float *dy, Values *v, Weights *d)
{
    const int64_t choices = TOKENS * m->top;
    float *begun = random_array(&(Random){7}, choices), *before = zero_floats(choices),
          *sum = zero_floats(EXPERTS * HIDDEN);
    memcpy(before, v->d_route, sizeof *before * (size_t)choices);
    begun[0] = NAN;
    burst_op_experts_out_bias_back(NULL, TOKENS, m, HIDDEN, false, dy, v->choice, v->route, w->down_bias,
                                   begun, sum);
    burst_op_experts_out_bias_back(NULL, TOKENS, m, HIDDEN, true, dy, v->choice, v->route, w->down_bias,
                                   v->d_route, d->down_bias);
    for (int64_t i = 0; i < choices; i++)
        assert_true(v->d_route[i] == before[i] + begun[i]);
    free(begun), free(before), free(sum);
}

static void backward(const BurstExperts *m, const Weights *w, const float *x, const float *dy, Values *v,
                     float *dx, Weights *d)
{
    burst_op_experts_down_dw(NULL, TOKENS, m, HIDDEN, dy, v->act, v->row, v->first, d->down, v->scratch);
    burst_op_experts_down_dx(NULL, TOKENS, m, HIDDEN, dy, v->row, v->first, w->down, v->d_act, v->scratch);
    burst_op_experts_act_back(NULL, TOKENS, m, v->gate_up, v->route, v->row, v->d_act, v->d_gate_up,
                              v->d_route);
    if (m->bias) {
        out_bias_back(m, w, dy, v, d);
        burst_op_experts_bias_back(NULL, TOKENS, m, v->d_gate_up, v->first, d->up_bias);
    }
    burst_op_experts_up_dw(NULL, TOKENS, m, HIDDEN, v->d_gate_up, x, v->row, v->first, d->up, v->scratch);
    burst_op_experts_up_dx(NULL, TOKENS, m, HIDDEN, v->d_gate_up, v->first, w->up, v->rows);
    burst_op_experts_sum(NULL, TOKENS, m, HIDDEN, v->rows, v->slot, NULL, dx);
    burst_op_choose_back(NULL, TOKENS, m, v->logits, v->choice, v->d_route, v->d_logits);
    if (m->router_bias)
        burst_op_bias_back(NULL, TOKENS, EXPERTS, v->d_logits, d->router_bias);
    burst_op_logits_dw(NULL, TOKENS, HIDDEN, EXPERTS, v->d_logits, x, d->router, NULL);
    burst_op_logits_dx(NULL, TOKENS, HIDDEN, EXPERTS, v->d_logits, w->router, dx, true, NULL);
}

static double *wide(int64_t n, const float *x)
{
    double *y = zero_doubles(n);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

/* Rows by expert: whether the routing is what it should be. */
static void check_rows(const BurstExperts *m, Routing routing, const int32_t *first)
{
    assert_int_equal(first[EXPERTS], TOKENS * m->top);
    if (routing == ALL_TO_ONE && !m->correction) /* which may prefer another among sigmoids of nearly 1 */
        assert_int_equal(first[6] - first[5], TOKENS);
    if (routing == NONE_TO_ONE)
        assert_int_equal(first[3] - first[2], 0);
    for (int e = 0; e < EXPERTS && routing == TIES && !m->groups; e++)
        assert_int_equal(first[e + 1] - first[e], e < m->top ? TOKENS : 0);
}

static double norm(int64_t n, const double *x)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Where a score is nearly 1, or the only one, its gradient cancels: errors are those of gradients of about
 * this scale. */
static void check_near(int64_t n, const float *is, const double *want, double scale)
{
    double apart = 0;
    for (int64_t i = 0; i < n; i++)
        apart += ((double)is[i] - want[i]) * ((double)is[i] - want[i]);
    if (!(sqrt(apart) <= 1e-5 * (norm(n, want) + scale)))
        fail_msg("%.1e apart, of %.1e and a scale of %.1e", sqrt(apart), norm(n, want), scale);
}

static void check(const BurstExperts *m, Routing routing)
{
    Random r = {(uint64_t)routing + 17};
    const Shape64 s = shape_of(m);
    float *x = random_array(&r, TOKENS * HIDDEN), *dy = random_array(&r, TOKENS * HIDDEN),
          *y = zero_floats(TOKENS * HIDDEN), *dx = zero_floats(TOKENS * HIDDEN);
    for (int t = 0; t < TOKENS; t++)
        x[t * HIDDEN] = 1;
    Weights w = weights_of(&r, routing), d = zero_weights();
    Values v = values_of(m->top);
    forward(m, &w, x, &v, y);
    backward(m, &w, x, dy, &v, dx, &d);
    check_rows(m, routing, v.first);

    const int64_t all = EXPERTS * expert64_size(&s);
    double *x64 = wide(TOKENS * HIDDEN, x), *dy64 = wide(TOKENS * HIDDEN, dy),
           *y64 = zero_doubles(TOKENS * HIDDEN), *dx64 = zero_doubles(TOKENS * HIDDEN),
           *got = zero_doubles(all);
    Experts64 o = {wide(EXPERTS * HIDDEN, w.router), m->router_bias ? wide(EXPERTS, w.router_bias) : NULL,
                   m->correction ? wide(EXPERTS, w.correction) : NULL, zero_doubles(all)};
    Experts64 g = {zero_doubles(EXPERTS * HIDDEN), m->router_bias ? zero_doubles(EXPERTS) : NULL, NULL,
                   zero_doubles(all)};
    to_oracle(&s, &w, o.w);
    experts64_forward(&s, TOKENS, x64, &o, y64);
    experts64_backward(&s, TOKENS, x64, &o, dy64, dx64, &g);
    to_oracle(&s, &d, got);
    assert_close(TOKENS * HIDDEN, y, y64, 1e-5);
    assert_close(TOKENS * HIDDEN, dx, dx64, 1e-5);
    const double scale = norm(TOKENS * HIDDEN, dx64);
    check_near(EXPERTS * HIDDEN, d.router, g.router, scale);
    if (m->router_bias)
        check_near(EXPERTS, d.router_bias, g.bias, scale);
    double apart = 0, size = 0;
    for (int64_t i = 0; i < all; i++)
        apart += (got[i] - g.w[i]) * (got[i] - g.w[i]), size += g.w[i] * g.w[i];
    if (!(sqrt(apart / size) < 1e-5))
        fail_msg("routing %d, top %d: gradients of experts are %.1e apart", (int)routing, m->top,
                 sqrt(apart / size));
    free(x), free(dy), free(y), free(dx), free(x64), free(dy64), free(y64), free(dx64), free(got);
    free(o.router), free(o.bias), free(o.correction), free(o.w), free(g.router), free(g.bias), free(g.w);
    free_weights(&w), free_weights(&d), free_values(&v);
}

static void hostile(void **state)
{
    (void)state;
    static const BurstExperts kinds[] = {
        {.top = 2, .scale = 1, .alpha = 1},
        {.top = 1, .scale = 1, .alpha = 1, .normalize = 1, .eps = 1e-20},
        {.top = EXPERTS, .scale = 2.5, .alpha = 1, .normalize = 1},
        {.top = 3, .scale = 2.5, .alpha = 1, .score = BURST_SCORE_SIGMOID, .normalize = 1, .correction = 1},
        {.top = 3, .scale = 1, .alpha = 1, .normalize = 1, .groups = 4, .top_groups = 2, .least = 0.6},
        {.top = 4,
         .scale = 1.5,
         .alpha = 1,
         .score = BURST_SCORE_SIGMOID,
         .normalize = 1,
         .correction = 1,
         .groups = 2,
         .top_groups = 1,
         .group_score = BURST_GROUP_TWO},
        {.top = 2,
         .scale = 1,
         .normalize = 1,
         .router_bias = 1,
         .bias = 1,
         .alpha = 1.702,
         .offset = 1,
         .limit = 3},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int routing = 0; routing < ROUTINGS; routing++) {
            BurstExperts m = kinds[i];
            m.experts = EXPERTS, m.width = WIDTH;
            if (m.top == EXPERTS && (routing == ALL_TO_ONE || routing == NONE_TO_ONE))
                continue; /* each token has all of them */
            if (m.groups && routing == NONE_TO_ONE)
                continue; /* of a group that is kept it may be one that is needed */
            check(&m, (Routing)routing);
        }
}

/* NaN is not skipped: choices stay distinct, and weights are NaN. */
static void nan_logits(void **state)
{
    (void)state;
    const BurstExperts m = {.experts = EXPERTS, .top = 3, .scale = 1, .alpha = 1, .normalize = 1};
    float logits[EXPERTS] = {0.5f, NAN, 1}, route[3];
    int32_t choice[3];
    burst_op_choose(NULL, 1, &m, logits, choice, route);
    for (int i = 0; i < 3; i++) {
        assert_in_range(choice[i], 0, EXPERTS - 1);
        assert_true(isnan(route[i]));
        for (int j = 0; j < i; j++)
            assert_int_not_equal(choice[i], choice[j]);
    }
}

/* Of groups and experts of equal scores the first. */
static void tied_groups(void **state)
{
    (void)state;
    const BurstExperts m = {
        .experts = EXPERTS, .top = 3, .scale = 1, .alpha = 1, .groups = 4, .top_groups = 2};
    float logits[EXPERTS] = {0, 0, 0, 0, 0, 0, 1, 0}, route[3];
    int32_t choice[3];
    burst_op_choose(NULL, 1, &m, logits, choice, route);
    assert_int_equal(choice[0], 6);
    assert_int_equal(choice[1], 0);
    assert_int_equal(choice[2], 1);
}

int main(void)
{
    burst_blas_setup();
    const struct CMUnitTest tests[] = {cmocka_unit_test(hostile), cmocka_unit_test(nan_logits),
                                       cmocka_unit_test(tied_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
