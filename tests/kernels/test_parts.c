/* test_parts.c: operations that only some families have (scales, LayerNorm, activations, a part of a head
 * that turns) against float64: forward from the definitions, backward by differences of those.
 */
#include "burst_step.h"
#include "kernel_test.h"

static const int64_t counts[] = {0, 1, 7, 16, 33, 200};
enum { COUNTS = sizeof counts / sizeof *counts };

/* ---- scale ---- */
static void check_scale(int64_t n, double scale)
{
    Random r = {(uint64_t)n + 1};
    float *x = random_array(&r, n), *add = random_array(&r, n), *y = random_array(&r, n);
    double *alone = zero_doubles(n), *sum = zero_doubles(n);
    for (int64_t i = 0; i < n; i++) {
        alone[i] = scale * x[i];
        sum[i] = scale * x[i] + add[i];
    }
    burst_op_scale(NULL, n, 1, scale, x, NULL, y);
    assert_close(n, y, alone, 2e-7);
    burst_op_scale(NULL, n, 1, scale, x, add, y);
    assert_close(n, y, sum, 2e-7);
    burst_op_scale(NULL, n, 1, scale, x, add, add); /* in place, as a gradient is added to */
    assert_close(n, add, sum, 2e-7);
    free(x), free(add), free(y), free(alone), free(sum);
}

static void scale(void **state)
{
    (void)state;
    const double scales[] = {1, 0.22, -3, 45.254833995939045};
    for (int i = 0; i < COUNTS; i++)
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++)
            check_scale(counts[i], scales[k]);
}

/* ---- LayerNorm ---- */
static const double EPS = 1e-5;

static void naive_layernorm(int d, const double *x, const double *w, double *y)
{
    double mean = 0, square = 0;
    for (int j = 0; j < d; j++)
        mean += x[j] / d;
    for (int j = 0; j < d; j++)
        square += (x[j] - mean) * (x[j] - mean) / d;
    for (int j = 0; j < d; j++)
        y[j] = (x[j] - mean) / sqrt(square + EPS) * w[j];
}

/* sum of y dy over all rows; x [n][d], then w [d]. */
static double norm_of(int64_t n, int d, const double *x, const float *dy)
{
    double sum = 0, *y = zero_doubles(d);
    for (int64_t i = 0; i < n; i++) {
        naive_layernorm(d, x + i * d, x + n * d, y);
        for (int j = 0; j < d; j++)
            sum += y[j] * dy[i * d + j];
    }
    free(y);
    return sum;
}

/* offset: of all elements, beside which their differences are small. */
static void check_layernorm(int64_t n, int d, float offset, double tolerance)
{
    const int64_t all = n * d + d;
    const double step = 1e-5;
    Random r = {(uint64_t)(n + d)};
    float *in = random_array(&r, all), *dy = random_array(&r, n * d), *y = random_array(&r, n * d),
          *rstd = random_array(&r, n), *grad = random_array(&r, all);
    double *x = zero_doubles(all), *want_y = zero_doubles(n * d), *want = zero_doubles(all);
    for (int64_t i = 0; i < all; i++) {
        in[i] += i < n * d ? offset : 0;
        x[i] = in[i];
        want[i] = grad[i];
    }
    for (int64_t i = 0; i < n; i++)
        naive_layernorm(d, x + i * d, x + n * d, want_y + i * d);
    for (int64_t i = 0; i < all; i++) {
        const double here = x[i];
        x[i] = here + step;
        const double above = norm_of(n, d, x, dy);
        x[i] = here - step;
        want[i] += (above - norm_of(n, d, x, dy)) / (2 * step);
        x[i] = here;
    }
    burst_op_layernorm(NULL, n, d, EPS, in, in + n * d, y, rstd);
    assert_close(n * d, y, want_y, tolerance);
    burst_op_layernorm_back(NULL, n, d, in, rstd, dy, in + n * d, grad, true, grad + n * d, NULL);
    assert_close(n * d, grad, want, tolerance);
    assert_close(d, grad + n * d, want + n * d, tolerance);
    free(in), free(dy), free(y), free(rstd), free(grad), free(x), free(want_y), free(want);
}

static void layernorm(void **state)
{
    (void)state;
    check_layernorm(1, 2, 0, 1e-6);
    check_layernorm(5, 70, 0, 1e-6);
    check_layernorm(3, 129, 0, 1e-6);
    check_layernorm(0, 8, 0, 1e-6);
    check_layernorm(4, 64, 100, 2e-5); /* inputs are rounded to 4e-6 of their differences */
}

/* ---- activations ---- */
/* From their definitions (arXiv 1606.08415, 2109.08668). */
static double activation_of(int kind, double x)
{
    switch (kind) {
    case BURST_ACTIVATION_SWIGLU: return x / (1 + exp(-x));
    case BURST_ACTIVATION_GEGLU:
    case BURST_ACTIVATION_GELU: return x * (1 + erf(x / sqrt(2))) / 2;
    case BURST_ACTIVATION_RELU2: return fmax(x, 0) * fmax(x, 0);
    default: return x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3)))) / 2;
    }
}

static void check_activation(int kind, double scale, int64_t n, float spread, double tolerance)
{
    const bool gated = kind <= BURST_ACTIVATION_GEGLU_TANH;
    const double step = 1e-5;
    Random r = {(uint64_t)(n + kind)};
    float *x = random_array(&r, 2 * n), *up = x + n, *dy = random_array(&r, n), *y = random_array(&r, n),
          *dx = random_array(&r, 2 * n), *dup = dx + n;
    double *want_y = zero_doubles(n), *want_dx = zero_doubles(n), *want_dup = zero_doubles(n);
    for (int64_t i = 0; i < n; i++) {
        x[i] *= spread;
        const double by = gated ? (double)up[i] : 1, at = scale * x[i], value = activation_of(kind, at);
        want_y[i] = value * by;
        want_dup[i] = value * dy[i];
        want_dx[i] = (activation_of(kind, at + step) - activation_of(kind, at - step)) / (2 * step) * scale *
                     by * dy[i];
    }
    burst_op_activate(NULL, kind, scale, n, 1, x, y);
    burst_op_activate_back(NULL, kind, scale, n, 1, x, dy, dx);
    assert_close(n, y, want_y, tolerance);
    assert_close(n, dx, want_dx, tolerance);
    if (gated)
        assert_close(n, dup, want_dup, tolerance);
    burst_op_activate_back(NULL, kind, scale, n, 1, x, dy, x); /* over what it reads */
    assert_memory_equal(x, dx, (size_t)n * sizeof *x);
    if (gated)
        assert_memory_equal(up, dup, (size_t)n * sizeof *up);
    free(x), free(dy), free(y), free(dx), free(want_y), free(want_dx), free(want_dup);
}

static void activations(void **state)
{
    (void)state;
    for (int kind = 0; kind < BURST_ACTIVATIONS; kind++)
        for (int i = 0; i < COUNTS; i++) {
            check_activation(kind, 1, counts[i], 1, 1e-6);
            check_activation(kind, 1, counts[i], 12, 1e-6);
            check_activation(kind, 0.4, counts[i], 3, 1e-6);
        }
}

/* Far from 0 slopes are 0 or 1, and no number is lost. */
static void activations_saturate(void **state)
{
    (void)state;
    const float x[] = {-1e4f, -100, 100, 1e4f, 1, 1, 1, 1};
    for (int kind = BURST_ACTIVATION_SWIGLU; kind < BURST_ACTIVATION_RELU2; kind++) {
        float y[4], dx[8];
        burst_op_activate(NULL, kind, 1, 1, 4, x, y);
        burst_op_activate_back(NULL, kind, 1, 1, 4, x, x + 4, dx);
        for (int i = 0; i < 4; i++) {
            assert_true(fabsf(y[i] - (x[i] > 0 ? x[i] : 0)) <= 1e-6f);
            assert_true(fabsf(dx[i] - (x[i] > 0)) <= 1e-6f);
        }
    }
}

/* ---- a part of a head turns ---- */
/* Which pair an element is of, and whether it is its first; -1: it does not turn. */
static int pair_of(const BurstRope *rope, int d, int element, bool *first)
{
    const int turns = rope->rotary ? rope->rotary : d, half = turns / 2;
    *first = rope->interleaved ? element % 2 == 0 : element < half;
    if (element >= turns)
        return -1;
    return rope->interleaved ? element / 2 : element % half;
}

static void check_rotary(int n, int heads, int d, int rotary, bool interleaved)
{
    const BurstRope rope = {.theta = 10000, .rotary = rotary, .interleaved = interleaved};
    const int turns = rotary ? rotary : d;
    const int64_t size = (int64_t)n * heads * d;
    Random r = {(uint64_t)(d + rotary)};
    int64_t position[8];
    float *x = random_array(&r, size), *y = random_array(&r, size), *back = random_array(&r, size);
    double *want = zero_doubles(size), *again = zero_doubles(size);
    for (int i = 0; i < n; i++)
        position[i] = i < 2 ? i : (int64_t)(random_bits(&r) % (4 << 20));
    for (int i = 0; i < n; i++)
        for (int h = 0; h < heads; h++)
            for (int j = 0; j < d; j++) {
                const float *token = x + ((int64_t)i * heads + h) * d;
                const int apart = interleaved ? 1 : turns / 2;
                bool first;
                const int pair = pair_of(&rope, d, j, &first);
                const double angle = pair < 0 ? 0 : (double)position[i] * pow(10000, -2.0 * pair / turns);
                double *at = &want[((int64_t)h * n + i) * d + j];
                if (pair < 0)
                    *at = token[j];
                else if (first)
                    *at = token[j] * cos(angle) - token[j + apart] * sin(angle);
                else
                    *at = token[j] * cos(angle) + token[j - apart] * sin(angle);
                again[((int64_t)i * heads + h) * d + j] = token[j];
            }
    burst_op_rope(NULL, n, heads, d, &rope, position, x, y);
    assert_close(size, y, want, 2e-7);
    burst_op_rope_back(NULL, n, heads, d, &rope, position, y, back); /* turned back it is what it was */
    assert_close(size, back, again, 4e-7);
    free(x), free(y), free(back), free(want), free(again);
}

static void partial_rotary(void **state)
{
    (void)state;
    const int shapes[][2] = {{16, 4}, {80, 32}, {64, 16}, {8, 2}, {160, 130}, {128, 0}, {6, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            check_rotary(6, 3, shapes[i][0], shapes[i][1], interleaved);
            check_rotary(1, 1, shapes[i][0], shapes[i][1], interleaved);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale),          cmocka_unit_test(layernorm),
        cmocka_unit_test(activations),    cmocka_unit_test(activations_saturate),
        cmocka_unit_test(partial_rotary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
