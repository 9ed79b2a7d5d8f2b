/* test_model64.c: is the oracle right? Its gradients against finite differences of its own loss, and both
 * against what Hugging Face transformers' Llama gives for the same weights (golden_hf.h). */
#include "model64.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TENSORS = 32, TOKENS = 23, LAYERS = 2 };
typedef struct Golden {
    const char *name;
    int kv_heads;
    bool tied;
    int64_t window; /* 0: plain causal */
    double loss;
    double along[MAX_TENSORS]; /* gradient of each tensor times uniform(2000, its elements) */
} Golden;
#include "golden_hf.h"

/* The same splitmix64 as golden_hf.py: in [-0.5, 0.5). */
static double uniform(uint64_t stream, uint64_t i)
{
    uint64_t z = stream * 0x9E3779B97F4A7C15u + (i + 1) * 0xD1B54A32D192ED03u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53 - 0.5;
}

static bool keep_full(int64_t q, int64_t k, const void *ctx)
{
    (void)q, (void)k, (void)ctx;
    return true;
}

/* ctx: the width of the window, or NULL for plain causal. */
static bool keep_causal(int64_t q, int64_t k, const void *ctx)
{
    return k <= q && (!ctx || q - k < *(const int64_t *)ctx);
}

/* Rows 0, 5, 10 ... have no key at all. */
static bool keep_gaps(int64_t q, int64_t k, const void *ctx)
{
    (void)ctx;
    return q % 5 != 0 && (q + 2 * k) % 3 != 0;
}

/* A model with formula weights and one sequence. */
typedef struct Case {
    Shape64 s;
    Tensor64 tensor[MAX_TENSORS];
    int tensors;
    int64_t count;
    double *w, *grad, weight[TOKENS];
    int32_t token[TOKENS], label[TOKENS];
    Mask64 mask[LAYERS];
    Batch64 b;
    double step; /* of finite differences */
} Case;

static void fill_batch(Case *c)
{
    for (int t = 0; t < TOKENS; t++)
        c->token[t] = (int32_t)((uniform(1000, (uint64_t)t) + 0.5) * c->s.vocab);
    for (int t = 0; t < TOKENS; t++) {
        c->label[t] = t % 7 && t + 1 < TOKENS ? c->token[t + 1] : -1;
        c->weight[t] = uniform(1001, (uint64_t)t) + 1;
    }
    c->b = (Batch64){TOKENS, c->token, c->label, c->weight, c->mask};
}

static void case_of(Case *c, Shape64 s, Mask64 first, Mask64 second)
{
    *c = (Case){.s = s, .mask = {first, second}, .step = 1e-3};
    c->tensors = tensor64_count(&c->s);
    assert_true(c->tensors <= MAX_TENSORS);
    c->count = tensor64_table(&c->s, c->tensor);
    c->w = new64(c->count), c->grad = new64(c->count);
    for (int i = 0; i < c->tensors; i++)
        for (int64_t j = 0; j < c->tensor[i].rows * c->tensor[i].cols; j++)
            c->w[c->tensor[i].offset + j] = uniform((uint64_t)i, (uint64_t)j) + (c->tensor[i].cols == 1);
    fill_batch(c);
}

static void case_make(Case *c, int kv_heads, bool tied, double softcap, bool sinks, Mask64 first,
                      Mask64 second)
{
    case_of(c, (Shape64){LAYERS, 12, 4, kv_heads, 6, 20, 17, 1e-5, 100.0, tied, softcap, .sinks = sinks},
            first, second);
}

static void case_free(Case *c) { free(c->w), free(c->grad); }

/* ---- against transformers ---- */

static double along(const Case *c, const Tensor64 *t)
{
    double sum = 0;
    for (int64_t j = 0; j < t->rows * t->cols; j++)
        sum += c->grad[t->offset + j] * uniform(2000, (uint64_t)j);
    return sum;
}

/* 2e-5: transformers rounds the angles of RoPE and what it normalises to float32. */
static void test_equals_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        const Golden *g = &goldens[i];
        Mask64 mask = {keep_causal, g->window ? &g->window : NULL};
        Case c;
        case_make(&c, g->kv_heads, g->tied, 0, false, mask, mask);
        double loss = model64_sequence(&c.s, c.w, &c.b, 1, c.grad), worst = 0;
        for (int t = 0; t < c.tensors; t++)
            worst = fmax(worst, fabs(along(&c, &c.tensor[t]) - g->along[t]) / fmax(fabs(g->along[t]), 0.1));
        printf("%s: loss differs by %.1e, gradients by at most %.1e\n", g->name, fabs(loss / g->loss - 1),
               worst);
        assert_true(fabs(loss / g->loss - 1) < 2e-7);
        assert_true(worst < 2e-5);
        case_free(&c);
    }
}

/* ---- against finite differences ---- */

static double loss_at(Case *c, int64_t i, double value)
{
    double kept = c->w[i];
    c->w[i] = value;
    double loss = model64_sequence(&c->s, c->w, &c->b, 1, NULL);
    c->w[i] = kept;
    return loss;
}

/* Fourth order: the error of truncation is far below the tolerance. */
static double difference(Case *c, int64_t i)
{
    const double h = c->step, w = c->w[i];
    double near = loss_at(c, i, w + h) - loss_at(c, i, w - h),
           far = loss_at(c, i, w + 2 * h) - loss_at(c, i, w - 2 * h);
    return (8 * near - far) / (12 * h);
}

static double rms(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

/* The worst relative error of `samples` coordinates of every tensor. */
static double worst_difference(Case *c, int samples, double scale)
{
    double worst = 0;
    for (int t = 0; t < c->tensors; t++) {
        int64_t size = c->tensor[t].rows * c->tensor[t].cols, offset = c->tensor[t].offset;
        double typical = rms(c->grad + offset, size);
        for (int i = 0; i < samples; i++) {
            int64_t at = offset + (int64_t)((uniform(3000 + (uint64_t)t, (uint64_t)i) + 0.5) * (double)size);
            double expected = scale * difference(c, at);
            worst = fmax(worst, fabs(c->grad[at] - expected) / fmax(fabs(expected), 0.1 * typical));
        }
    }
    return worst;
}

static void test_finite_differences(void **state)
{
    (void)state;
    static const int64_t narrow = 3;
    Mask64 full = {keep_full, NULL}, causal = {keep_causal, NULL}, window = {keep_causal, &narrow},
           gaps = {keep_gaps, NULL};
    Mask64 pairs[][LAYERS] = {{full, causal}, {window, gaps}, {gaps, gaps}};
    for (int m = 0; m < 3; m++)
        for (int tied = 0; tied < 2; tied++) {
            Case c;
            case_make(&c, m == 0 ? 4 : m, tied, 0.5 * m, m > 0, pairs[m][0], pairs[m][1]);
            model64_sequence(&c.s, c.w, &c.b, 0.25, c.grad);
            double worst = worst_difference(&c, 5, 0.25);
            printf("masks %d, %s: worst relative error %.1e\n", m, tied ? "tied" : "untied", worst);
            assert_true(worst < 1e-6);
            case_free(&c);
        }
}

/* A scan and attention, documents of 1, 2, 5 and 15 tokens, the most columns of the convolution and fewer;
 * then both in a layer, each with its scale, with a norm of the scan's output and without. */
static void test_scans(void **state)
{
    (void)state;
    static const bool scans[LAYERS] = {true, false};
    static const int begins[] = {0, 1, 3, 8};
    const Mask64 causal = {keep_causal, NULL};
    int32_t place[TOKENS];
    for (int t = 0, d = 0; t < TOKENS; t++) {
        while (d + 1 < 4 && begins[d + 1] <= t)
            d++;
        place[t] = t - begins[d];
    }
    for (int i = 0; i < 9; i++) {
        Case c;
        const int kernel = 2 + i % 3;
        Scan64 scan = {4, 1 + kernel % 2, 5, 3, kernel};
        const bool gate = i % 2;
        if (i >= 3)
            scan.plain = scan.bias = scan.skip = scan.before = true, scan.step_least = 0.2,
            scan.step_most = 1.5;
        scan.beside = i >= 6, scan.bare = i > 6;
        case_of(&c,
                (Shape64){LAYERS, 12, 4, 2, 6, 20, 17, 1e-5, 100.0, .scan = scan, .scans = scans,
                          .place = place, .attention_gate = gate, .attention_out = i == 7 ? 0.7 : 0,
                          .scan_out = i == 8 ? 1.3 : 0},
                causal, causal);
        c.step = 1e-4; /* lengths of queries and keys bend the loss */
        model64_sequence(&c.s, c.w, &c.b, 0.25, c.grad);
        const double worst = worst_difference(&c, 5, 0.25);
        printf("scan, kernel %d%s%s: worst relative error %.1e\n", kernel, scan.plain ? ", plain" : "",
               scan.beside ? ", beside attention" : "", worst);
        assert_true(worst < 1e-6);
        case_free(&c);
    }
}

/* ---- one expert alone ---- */

/* The gradient of the first weight of its gate, by which the value is that weight. */
static double gate_slope(double gate, double near, bool other)
{
    const Shape64 s = {
        .hidden = 2, .ffn = 1, .experts = 1, .top = 1, .score_scale = 1, .alpha = 1, .limit = 0.5};
    double x[] = {1, 0}, dy[] = {1, 2}, dx[2] = {0}, router[2] = {0}, d_router[2] = {0}, dw[6] = {0};
    double w[] = {gate, 0, 0.3, 0.2, 1, 1};
    const Experts64 of = {router, NULL, NULL, w, NULL}, to = {d_router, NULL, NULL, dw, NULL};
    kinks64 = (Kinks64){.near = near, .other = {other}};
    experts64_backward(&s, 1, x, &of, dy, dx, &to);
    kinks64.near = 0;
    return dw[0];
}

/* Only a value near the clamp's limit has two slopes: its own, and the one beyond the limit. */
static void test_values_near_a_bound(void **state)
{
    (void)state;
    const double at = 0.5 + 1e-9, slope = gate_slope(0.5 - 1e-9, 0, false);
    assert_true(slope > 0.1 && gate_slope(at, 0, true) == 0);
    assert_int_equal(kinks64.found, 0);
    assert_true(gate_slope(at, 1e-6, false) == 0 && fabs(gate_slope(at, 1e-6, true) - slope) < 1e-8);
    assert_int_equal(kinks64.found, 1);
    assert_true(gate_slope(0.51, 1e-6, true) == 0);
    assert_int_equal(kinks64.found, 0);
}

/* ---- attention alone ---- */

static void test_rows_without_keys(void **state)
{
    (void)state;
    enum { N = 11, H = 4, HK = 2, D = 3 };
    double q[H * N * D], k[HK * N * D], v[HK * N * D], o[H * N * D], lse[H * N], dq[H * N * D] = {0};
    double dk[HK * N * D] = {0}, dv[HK * N * D] = {0};
    for (int i = 0; i < H * N * D; i++)
        q[i] = uniform(1, (uint64_t)i), o[i] = 7;
    for (int i = 0; i < HK * N * D; i++)
        k[i] = uniform(2, (uint64_t)i), v[i] = uniform(3, (uint64_t)i);
    Attention64 a = {N, H, HK, D, {keep_gaps, NULL}, q, k, v};
    attention64_forward(&a, o, lse);
    attention64_backward(&a, o, q, dq, dk, dv);
    for (int row = 0; row < H * N; row++) {
        assert_int_equal(isinf(lse[row]) != 0, row % N % 5 == 0);
        for (int i = 0; i < D && row % N % 5 == 0; i++) {
            assert_true(o[row * D + i] == 0);
            assert_true(dq[row * D + i] == 0);
        }
    }
    assert_true(rms(dk, HK * N * D) > 0 && rms(dv, HK * N * D) > 0);
}

/* With all values one, every row with keys averages to one and nothing depends on q and k. */
static void test_probabilities_sum_to_one(void **state)
{
    (void)state;
    enum { N = 13, D = 4 };
    double q[N * D], v[N * D], o[N * D], lse[N], dq[N * D] = {0}, dk[N * D] = {0}, dv[N * D] = {0};
    for (int i = 0; i < N * D; i++)
        q[i] = uniform(4, (uint64_t)i), v[i] = 1;
    Attention64 a = {N, 1, 1, D, {keep_causal, NULL}, q, q, v};
    attention64_forward(&a, o, lse);
    attention64_backward(&a, o, q, dq, dk, dv);
    for (int i = 0; i < N * D; i++) {
        assert_true(fabs(o[i] - 1) < 1e-14);
        assert_true(fabs(dq[i]) < 1e-14 && fabs(dk[i]) < 1e-14);
    }
}

/* ---- the update ---- */

static void test_learning_rate(void **state)
{
    (void)state;
    Train64 t = {.steps = 110, .warmup = 10, .lr = 2, .lr_end = 1, .cosine = true};
    static const struct {
        int64_t step;
        double lr;
    } points[] = {{0, 0.2}, {9, 2}, {59, 1.5}, {109, 1}, {110, 1}, {34, 1.8535533905932737}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        assert_true(fabs(learning_rate64(&t, points[i].step) - points[i].lr) < 1e-14);
    t.cosine = false;
    assert_true(learning_rate64(&t, 99) == 2);
}

/* First step by hand: the moments' corrections cancel, so every weight moves by lr against its gradient's
 * sign. */
static void test_adamw_first_step(void **state)
{
    (void)state;
    Tensor64 tensor[] = {{"a", 2, 1, 0, true}, {"b", 1, 1, 2, false}};
    Train64 t = {.steps = 1, .lr = 0.1, .lr_end = 0.1, .beta1 = 0.9, .beta2 = 0.95, .decay = 0.5, .clip = 1};
    double w[] = {1, 2, 3}, g[] = {3, -4, 12}, m[3] = {0}, v[3] = {0};
    assert_true(fabs(update64(&t, 0, 2, tensor, w, g, m, v) - 13) < 1e-14);
    static const double expected[] = {1 - 0.1 - 0.05, 2 + 0.1 - 0.1, 3 - 0.1};
    for (int i = 0; i < 3; i++)
        assert_true(fabs(w[i] - expected[i]) < 1e-14);
    assert_true(fabs(m[2] - 0.1 * 12 / 13) < 1e-14); /* clipped to norm 1 first */
}

/* Rotations of rows and columns commute with the iterations, which leave a diagonal matrix one: its entries
 * follow a polynomial of their own. */
static void rotate(int rows, int cols, double *x, bool of_rows, double angle)
{
    const int lines = of_rows ? rows : cols, step = of_rows ? cols : 1, along = of_rows ? 1 : cols;
    for (int line = 0; line + 1 < lines; line++)
        for (int i = 0; i < (of_rows ? cols : rows); i++) {
            double *a = x + line * step + i * along, *b = a + step, was = *a;
            *a = cos(angle) * was - sin(angle) * *b;
            *b = sin(angle) * was + cos(angle) * *b;
        }
}

static void check_orthogonal(int rows, int cols)
{
    double x[64] = {0}, want[64] = {0}, squares = 0;
    for (int i = 0; i < rows && i < cols; i++) {
        x[i * cols + i] = want[i * cols + i] = 3 - i;
        squares += (3 - i) * (3 - i);
    }
    for (int i = 0; i < rows && i < cols; i++) {
        double *s = &want[i * cols + i];
        *s /= sqrt(squares) + 1e-7;
        for (int turn = 0; turn < 5; turn++)
            *s = 3.4445 * *s - 4.7750 * pow(*s, 3) + 2.0315 * pow(*s, 5);
        assert_true(*s > 0.6 && *s < 1.3); /* what Muon calls near 1 */
    }
    double *both[] = {x, want};
    for (int k = 0; k < 2; k++) {
        rotate(rows, cols, both[k], true, 0.7);
        rotate(rows, cols, both[k], false, 0.4);
    }
    orthogonal64(rows, cols, x);
    for (int i = 0; i < rows * cols; i++)
        assert_true(fabs(x[i] - want[i]) < 1e-13);
}

static void test_orthogonal(void **state)
{
    (void)state;
    check_orthogonal(3, 3);
    check_orthogonal(3, 7);
    check_orthogonal(7, 3);
}

/* A matrix of one row and one column would be no matrix; of rank one, the first step is by its direction. */
static void test_muon_first_step(void **state)
{
    (void)state;
    Tensor64 tensor[] = {{"model.layers.0.a", 2, 2, 0, true}, {"model.layers.0.norm", 1, 2, 4, false}};
    Train64 t = {.steps = 1,
                 .lr = 0.1,
                 .lr_end = 0.1,
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .decay = 0.5,
                 .muon = true,
                 .momentum = 0.95};
    double w[] = {1, 2, 3, 4, 1, 1}, g[] = {2, 0, 0, 0, 5, -5}, m[6] = {0}, v[6] = {0}, s = 1;
    update64(&t, 0, 2, tensor, w, g, m, v);
    for (int turn = 0; turn < 5; turn++)
        s = 3.4445 * s - 4.7750 * pow(s, 3) + 2.0315 * pow(s, 5);
    const double want[] = {0.95 - 0.1 * 0.2 * sqrt(2) * s, 2 * 0.95, 3 * 0.95, 4 * 0.95, 0.9, 1.1};
    for (int i = 0; i < 6; i++)
        assert_true(fabs(w[i] - want[i]) < 1e-7);
    assert_true(m[0] == 2 && v[0] == 0 && v[4] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_transformers),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_scans),
        cmocka_unit_test(test_values_near_a_bound),
        cmocka_unit_test(test_rows_without_keys),
        cmocka_unit_test(test_probabilities_sum_to_one),
        cmocka_unit_test(test_learning_rate),
        cmocka_unit_test(test_adamw_first_step),
        cmocka_unit_test(test_orthogonal),
        cmocka_unit_test(test_muon_first_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
