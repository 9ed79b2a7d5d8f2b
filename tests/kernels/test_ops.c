/* test_ops.c: the layer's other operations against float64: forward by naive loops, backward by
 * differences of those. */
#include "burst_attend.h"
#include "burst_step.h"
#include "burst_sizes.h"
#include "base/blas.h"
#include "kernel_test.h"

#include <stdio.h>

static const int64_t counts[] = {0, 1, 7, 16, 33, 200};
enum { COUNTS = sizeof counts / sizeof *counts };

/* ---- linear ---- */
/* out[m][n] (+)= sum over k of a(m, k) b(n, k), each with its two strides. */
typedef struct Matrix {
    const float *at;
    int64_t row, col;
} Matrix;
static void naive_product(int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, double *out)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t t = 0; t < k; t++)
                out[i * n + j] += (double)a.at[i * a.row + t * a.col] * b.at[j * b.row + t * b.col];
}

/* What was there, for results that are added to. */
static double *doubles_of(int64_t n, const float *x, bool keep)
{
    double *y = zero_doubles(n);
    for (int64_t i = 0; i < n && keep; i++)
        y[i] = x[i];
    return y;
}

static void check_linear(int64_t n, int in, int out, bool add)
{
    Random r = {(uint64_t)(n * 100 + in)};
    float *x = random_array(&r, n * in), *w = random_array(&r, (int64_t)out * in),
          *dy = random_array(&r, n * out);
    float *y = random_array(&r, n * out), *dx = random_array(&r, n * in),
          *dw = random_array(&r, (int64_t)out * in);
    double *want_y = doubles_of(n * out, y, add), *want_dx = doubles_of(n * in, dx, add);
    double *want_dw = doubles_of((int64_t)out * in, dw, true);
    naive_product(n, out, in, (Matrix){x, in, 1}, (Matrix){w, in, 1}, want_y);
    naive_product(n, in, out, (Matrix){dy, out, 1}, (Matrix){w, 1, in}, want_dx);
    naive_product(out, in, n, (Matrix){dy, 1, out}, (Matrix){x, 1, in}, want_dw);
    burst_op_linear(NULL, n, in, out, 1, x, w, add ? y : NULL, y);
    burst_op_linear_dx(NULL, n, in, out, 1, dy, w, dx, add);
    burst_op_linear_dw(NULL, n, in, out, 1, dy, x, dw);
    assert_close(n * out, y, want_y, 1e-6);
    assert_close(n * in, dx, want_dx, 1e-6);
    assert_close((int64_t)out * in, dw, want_dw, 1e-6);
    free(x), free(w), free(dy), free(y), free(dx), free(dw), free(want_y), free(want_dx), free(want_dw);
}

/* [heads][n][width] of two products: x = latent w^T; and d_latent, dw of dx. k has `shared` elements more. */
static void check_latents(int64_t n, BurstLatentSizes s)
{
    Random r = {(uint64_t)(n * 100 + s.latent)};
    const int width = s.own + s.shared;
    const int64_t key_weights = (int64_t)s.heads * s.own * s.latent,
                  weights = key_weights + (int64_t)s.heads * s.value * s.latent;
    float *w = random_array(&r, weights), *latent = random_array(&r, n * s.latent),
          *every = random_array(&r, n * s.shared), *dk = random_array(&r, s.heads * n * width),
          *dv = random_array(&r, s.heads * n * s.value), *k = random_array(&r, s.heads * n * width),
          *v = random_array(&r, s.heads * n * s.value), *d_latent = random_array(&r, n * s.latent),
          *d_every = random_array(&r, n * s.shared), *dw = random_array(&r, weights);
    double *want_k = zero_doubles(s.heads * n * width), *want_v = zero_doubles(s.heads * n * s.value),
           *want_latent = doubles_of(n * s.latent, d_latent, true),
           *want_every = doubles_of(n * s.shared, d_every, true), *want_dw = doubles_of(weights, dw, true);
    for (int64_t row = 0; row < s.heads * n; row++) {
        const int64_t h = row / n, t = row % n;
        for (int i = 0; i < width + s.value; i++) {
            const bool of_key = i < width, is_own = i < s.own;
            const int64_t at = of_key ? row * width + i : row * s.value + i - width,
                          from = of_key ? (h * s.own + i) * s.latent
                                        : key_weights + (h * s.value + i - width) * s.latent;
            double *want = of_key ? want_k + at : want_v + at;
            const double d = of_key ? dk[at] : dv[at];
            if (of_key && !is_own) {
                *want = every[t * s.shared + i - s.own];
                want_every[t * s.shared + i - s.own] += d;
                continue;
            }
            for (int j = 0; j < s.latent; j++) {
                *want += (double)latent[t * s.latent + j] * w[from + j];
                want_latent[t * s.latent + j] += d * w[from + j];
                want_dw[from + j] += d * latent[t * s.latent + j];
            }
        }
    }
    burst_latents_expand(&s, n, w, latent, every, k, v);
    burst_latents_contract(&s, n, w, latent, dk, dv, d_latent, d_every, dw);
    assert_close(s.heads * n * width, k, want_k, 1e-6);
    assert_close(s.heads * n * s.value, v, want_v, 1e-6);
    assert_close(n * s.latent, d_latent, want_latent, 1e-6);
    assert_close(n * s.shared, d_every, want_every, 1e-6);
    assert_close(weights, dw, want_dw, 1e-6);
    free(w), free(latent), free(every), free(dk), free(dv), free(k), free(v), free(d_latent), free(d_every);
    free(dw), free(want_k), free(want_v), free(want_latent), free(want_every), free(want_dw);
}

static void latents(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        check_latents(counts[i],
                      (BurstLatentSizes){.heads = 3, .own = 12, .shared = 8, .value = 10, .latent = 20});
        check_latents(counts[i],
                      (BurstLatentSizes){.heads = 1, .own = 1, .shared = 2, .value = 5, .latent = 3});
    }
}

static void linear(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        for (int add = 0; add < 2; add++) {
            check_linear(counts[i], 24, 40, add);
            check_linear(counts[i], 65, 3, add);
        }
}

/* ---- bias ---- */
static void check_bias(int64_t n, int width)
{
    Random r = {(uint64_t)(n * 100 + width)};
    float *x = random_array(&r, n * width), *b = random_array(&r, width), *y = random_array(&r, n * width),
          *db = random_array(&r, width);
    double *want_y = doubles_of(n * width, x, true), *want_db = doubles_of(width, db, true);
    for (int64_t i = 0; i < n * width; i++) {
        want_y[i] += (double)b[i % width];
        want_db[i % width] += (double)x[i];
    }
    burst_op_bias(NULL, n, width, x, b, y);
    burst_op_bias_back(NULL, n, width, x, db);
    assert_close(n * width, y, want_y, 1e-7);
    assert_close(width, db, want_db, 1e-6);
    free(x), free(b), free(y), free(db), free(want_y), free(want_db);
}

static void bias(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        check_bias(counts[i], 1);
        check_bias(counts[i], 131);
    }
}

/* ---- derivatives of float64 functions by central differences ---- */
typedef double (*Function)(const double *x, const void *with);
static void differences(Function f, const void *with, int64_t n, double *x, double *gradient)
{
    const double step = 1e-5;
    for (int64_t i = 0; i < n; i++) {
        double here = x[i];
        x[i] = here + step;
        double above = f(x, with);
        x[i] = here - step;
        gradient[i] += (above - f(x, with)) / (2 * step);
        x[i] = here;
    }
}

/* ---- RMSNorm ---- */
enum { HIDDEN = 70 };
static const double EPS = 1e-5;

static void naive_rmsnorm(const double *x, const double *w, double *y)
{
    double sum = 0;
    for (int j = 0; j < HIDDEN; j++)
        sum += x[j] * x[j];
    for (int j = 0; j < HIDDEN; j++)
        y[j] = x[j] / sqrt(sum / HIDDEN + EPS) * w[j];
}

/* x [n][HIDDEN] followed by w; with: n and dy. */
typedef struct NormLoss {
    int64_t n;
    const float *dy;
} NormLoss;
static double norm_loss(const double *x, const void *with)
{
    const NormLoss *l = with;
    double sum = 0, y[HIDDEN];
    for (int64_t i = 0; i < l->n; i++) {
        naive_rmsnorm(x + i * HIDDEN, x + l->n * HIDDEN, y);
        for (int j = 0; j < HIDDEN; j++)
            sum += y[j] * l->dy[i * HIDDEN + j];
    }
    return sum;
}

static void rmsnorm(void **state)
{
    (void)state;
    enum { N = 5, X = N * HIDDEN };
    Random r = {3};
    float *in = random_array(&r, X + HIDDEN), *dy = random_array(&r, X), *y = random_array(&r, X);
    float *grad = random_array(&r, X + HIDDEN), rstd[N];
    double *x = doubles_of(X + HIDDEN, in, true), *want = doubles_of(X + HIDDEN, grad, true), want_y[X];
    for (int i = 0; i < N; i++)
        naive_rmsnorm(x + i * HIDDEN, x + X, want_y + i * HIDDEN);
    burst_op_rmsnorm(NULL, N, HIDDEN, EPS, in, in + X, y, rstd);
    assert_close(X, y, want_y, 2e-7);
    differences(norm_loss, &(NormLoss){N, dy}, X + HIDDEN, x, want);
    burst_op_rmsnorm_back(NULL, N, HIDDEN, in, rstd, dy, in + X, grad, true, grad + X, NULL);
    assert_close(X, grad, want, 5e-7);
    assert_close(HIDDEN, grad + X, want + X, 5e-7);
    free(in), free(dy), free(y), free(grad), free(x), free(want);
}

/* Two ranks have half of each row: both together are the whole norm, and its gradients. */
static void rmsnorm_of_parts(void **state)
{
    (void)state;
    enum { N = 5, RANKS = 2, PART = HIDDEN / RANKS, X = N * HIDDEN };
    Random r = {31};
    float *in = random_array(&r, X + HIDDEN), *dy = random_array(&r, X), *grad = random_array(&r, X + HIDDEN);
    float x[RANKS][N * PART], d_y[RANKS][N * PART], y[N * PART], dx[RANKS][N * PART], part[N], rstd[N];
    float square[N] = {0}, d_square[N] = {0};
    double *all = doubles_of(X + HIDDEN, in, true), *want = doubles_of(X + HIDDEN, grad, true);
    double want_y[HIDDEN];
    differences(norm_loss, &(NormLoss){N, dy}, X + HIDDEN, all, want);
    for (int k = 0; k < RANKS; k++)
        for (int i = 0; i < N; i++) {
            memcpy(x[k] + i * PART, in + i * HIDDEN + k * PART, sizeof(float) * PART);
            memcpy(d_y[k] + i * PART, dy + i * HIDDEN + k * PART, sizeof(float) * PART);
            memcpy(dx[k] + i * PART, grad + i * HIDDEN + k * PART, sizeof(float) * PART);
        }
    for (int k = 0; k < RANKS; k++) {
        burst_op_squares(NULL, N, PART, RANKS, x[k], part);
        for (int i = 0; i < N; i++)
            square[i] += part[i];
    }
    for (int k = 0; k < RANKS; k++) {
        burst_op_rmsnorm_part(NULL, N, PART, EPS, x[k], square, in + X + k * PART, y, rstd);
        for (int i = 0; i < N; i++) {
            naive_rmsnorm(all + i * HIDDEN, all + X, want_y);
            assert_close(PART, y + i * PART, want_y + k * PART, 2e-7);
        }
        burst_op_rmsnorm_part_back(NULL, N, PART, x[k], rstd, d_y[k], in + X + k * PART, dx[k], true, part,
                                   grad + X + k * PART, NULL);
        for (int i = 0; i < N; i++)
            d_square[i] += part[i];
    }
    for (int k = 0; k < RANKS; k++) {
        burst_op_squares_back(NULL, N, PART, RANKS, x[k], d_square, dx[k], true);
        for (int i = 0; i < N; i++)
            assert_close(PART, dx[k] + i * PART, want + i * HIDDEN + k * PART, 5e-7);
    }
    assert_close(HIDDEN, grad + X, want + X, 5e-7);
    free(in), free(dy), free(grad), free(all), free(want);
}

/* All zeros: eps alone keeps the row finite. */
static void rmsnorm_of_zeros(void **state)
{
    (void)state;
    float x[HIDDEN] = {0}, w[HIDDEN] = {1}, y[HIDDEN], rstd;
    burst_op_rmsnorm(NULL, 1, HIDDEN, EPS, x, w, y, &rstd);
    assert_true(y[0] == 0 && fabs(rstd * sqrt(EPS) - 1) < 1e-6);
}

/* ---- heads ---- */
static void heads_and_tokens(void **state)
{
    (void)state;
    enum { N = 5, H = 3, D = 7 };
    Random r = {4};
    float *x = random_array(&r, N * H * D), *y = random_array(&r, N * H * D),
          *back = random_array(&r, N * H * D);
    burst_op_to_heads(NULL, N, H, D, x, y);
    for (int i = 0; i < N; i++)
        for (int h = 0; h < H; h++)
            assert_memory_equal(x + (i * H + h) * D, y + (h * N + i) * D, D * sizeof *x);
    burst_op_to_tokens(NULL, N, H, D, y, back);
    assert_memory_equal(x, back, N * H * D * sizeof *x);
    free(x), free(y), free(back);
}

/* The matrix of one head's rotation, written out: rows of the result over elements of the input. */
static double rope_entry(int d, double theta, int64_t position, int row, int col)
{
    int half = d / 2, pair = row % half;
    if (row >= 2 * half || col >= 2 * half || pair != col % half)
        return row == col && row >= 2 * half;
    double angle = (double)position / pow(theta, 2.0 * pair / d);
    if (row == col)
        return cos(angle);
    return row < half ? -sin(angle) : sin(angle);
}

static void check_rope(int n, int heads, int d, double theta)
{
    Random r = {(uint64_t)d};
    int64_t size = (int64_t)n * heads * d, position[8];
    float *x = random_array(&r, size), *y = random_array(&r, size), *dy = random_array(&r, size),
          *dx = random_array(&r, size);
    double *want_y = zero_doubles(size), *want_dx = zero_doubles(size);
    for (int i = 0; i < n; i++)
        position[i] = i < 2 ? i : (int64_t)(random_bits(&r) % (4 << 20));
    for (int i = 0; i < n; i++)
        for (int h = 0; h < heads; h++)
            for (int row = 0; row < d; row++)
                for (int col = 0; col < d; col++) {
                    int64_t token = ((int64_t)i * heads + h) * d, head = ((int64_t)h * n + i) * d;
                    double entry = rope_entry(d, theta, position[i], row, col);
                    want_y[head + row] += entry * x[token + col];
                    want_dx[token + col] += entry * dy[head + row];
                }
    burst_op_rope(NULL, n, heads, d, &(BurstRope){.theta = theta}, position, x, y);
    burst_op_rope_back(NULL, n, heads, d, &(BurstRope){.theta = theta}, position, dy, dx);
    assert_close(size, y, want_y, 2e-7);
    assert_close(size, dx, want_dx, 2e-7);
    free(x), free(y), free(dy), free(dx), free(want_y), free(want_dx);
}

static void rope(void **state)
{
    (void)state;
    const int dims[] = {2, 7, 8, 64, 128, 160};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        check_rope(6, 3, dims[i], 10000);
        check_rope(1, 1, dims[i], 500000);
    }
}

/* As transformers computes them (modeling_rope_utils.py, 5.24), by its own steps: wave lengths, and a ramp
 * over the pairs. */
static double turn_of(const BurstRope *r, int d, int pair)
{
    const double pi = acos(-1), wave = 2 * pi * pow(r->theta, 2.0 * pair / d), f = 2 * pi / wave;
    if (r->kind == BURST_ROPE_LINEAR)
        return f / r->factor;
    if (r->kind == BURST_ROPE_LONGROPE)
        return f / (r->length > r->original ? r->factors->long_factor : r->factors->short_factor)[pair];
    if (r->kind == BURST_ROPE_DYNAMIC) {
        const double base = r->theta *
                            pow(r->factor * r->length / r->original - (r->factor - 1), d / (d - 2.0));
        return 1 / pow(base, 2.0 * pair / d);
    }
    if (r->kind == BURST_ROPE_LLAMA3) {
        const double smooth = (r->original / wave - r->low) / (r->high - r->low);
        if (wave < r->original / r->high)
            return f;
        return wave > r->original / r->low ? f / r->factor : (1 - smooth) * f / r->factor + smooth * f;
    }
    double low = floor(d * log(r->original / (r->high * 2 * pi)) / (2 * log(r->theta))),
           high = ceil(d * log(r->original / (r->low * 2 * pi)) / (2 * log(r->theta)));
    low = low < 0 ? 0 : low;
    high = high > d - 1 ? d - 1 : high;
    const double ramp = (pair - low) / (high == low ? 0.001 : high - low), share = fmin(fmax(ramp, 0), 1);
    return f / r->factor * share + f * (1 - share);
}

static void check_scaled(const BurstRope *r, int d)
{
    enum { N = 3 };
    const int64_t position[N] = {1, 77, 130000};
    Random random = {7};
    float *x = random_array(&random, N * d), *y = random_array(&random, N * d),
          *back = random_array(&random, N * d);
    double *want = zero_doubles(N * d), *again = zero_doubles(N * d);
    const double amplitude = r->attention > 0 ? r->attention : 1;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < d / 2; j++) {
            const double angle = (double)position[i] * turn_of(r, d, j), c = amplitude * cos(angle),
                         s = amplitude * sin(angle), a = x[i * d + j], b = x[i * d + j + d / 2];
            want[i * d + j] = a * c - b * s;
            want[i * d + j + d / 2] = b * c + a * s;
            again[i * d + j] = amplitude * amplitude * a;
            again[i * d + j + d / 2] = amplitude * amplitude * b;
        }
    burst_op_rope(NULL, N, 1, d, r, position, x, y);
    burst_op_rope_back(NULL, N, 1, d, r, position, y, back);
    assert_close(N * d, y, want, 3e-7);
    assert_close(N * d, back, again, 6e-7);
    free(x), free(y), free(back), free(want), free(again);
}

static void scaled_rope(void **state)
{
    (void)state;
    static const BurstRope ropes[] = {
        {.theta = 10000, .kind = BURST_ROPE_LINEAR, .factor = 4},
        {.theta = 500000, .kind = BURST_ROPE_LLAMA3, .factor = 8, .original = 8192, .low = 1, .high = 4},
        {.theta = 500000, .kind = BURST_ROPE_LLAMA3, .factor = 32, .original = 64, .low = 0.5, .high = 9},
        {.theta = 1e6,
         .kind = BURST_ROPE_YARN,
         .factor = 4,
         .original = 32768,
         .low = 1,
         .high = 32,
         .attention = 1.1386},
        {.theta = 10000,
         .kind = BURST_ROPE_YARN,
         .factor = 40,
         .original = 4096,
         .low = 1,
         .high = 32,
         .attention = 1},
        {.theta = 10000,
         .kind = BURST_ROPE_YARN,
         .factor = 2,
         .original = 5,
         .low = 1,
         .high = 2,
         .attention = 0.5},
        {.theta = 10000, .kind = BURST_ROPE_DYNAMIC, .factor = 2, .original = 2048, .length = 131072},
        {.theta = 10000, .kind = BURST_ROPE_DYNAMIC, .factor = 3, .original = 64, .length = 64},
    };
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++) {
        check_scaled(&ropes[i], 128);
        check_scaled(&ropes[i], 16);
    }
    BurstRopeFactors factors = {.count = BURST_ROPE_PAIRS};
    for (int i = 0; i < BURST_ROPE_PAIRS; i++)
        factors.short_factor[i] = 1 + 0.01 * i, factors.long_factor[i] = 1 + 0.3 * i;
    for (int length = 4095; length <= 4097; length++) { /* longer than 4096: the long ones */
        const BurstRope r = {.theta = 10000,
                             .kind = BURST_ROPE_LONGROPE,
                             .original = 4096,
                             .attention = 1.19,
                             .length = length,
                             .factors = &factors};
        check_scaled(&r, 96);
        check_scaled(&r, 256);
    }
}

/* ---- SwiGLU, add ---- */
static double swiglu_of(const double *gu, const void *with)
{
    (void)with;
    return gu[0] / (1 + exp(-gu[0])) * gu[1];
}

static void check_swiglu(int64_t n, float spread, double tolerance)
{
    Random r = {(uint64_t)n};
    float *g = random_array(&r, 2 * n), *u = g + n, *da = random_array(&r, n);
    float *a = random_array(&r, n), *dg = random_array(&r, 2 * n), *du = dg + n;
    double *want_a = zero_doubles(n), *want_dg = zero_doubles(n), *want_du = zero_doubles(n);
    for (int64_t i = 0; i < n; i++) {
        g[i] *= spread;
        double gu[2] = {g[i], u[i]}, gradient[2] = {0};
        want_a[i] = swiglu_of(gu, NULL);
        differences(swiglu_of, NULL, 2, gu, gradient);
        want_dg[i] = gradient[0] * da[i];
        want_du[i] = gradient[1] * da[i];
    }
    burst_op_swiglu(NULL, n, 1, g, a);
    burst_op_swiglu_back(NULL, n, 1, g, da, dg);
    assert_close(n, a, want_a, tolerance);
    assert_close(n, dg, want_dg, tolerance);
    assert_close(n, du, want_du, tolerance);
    free(g), free(da), free(a), free(dg), free(want_a), free(want_dg), free(want_du);
}

static void swiglu(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        check_swiglu(counts[i], 1, 3e-7);
        check_swiglu(counts[i], 30, 1e-6);
    }
}

static void swiglu_saturates(void **state)
{
    (void)state;
    float g[8] = {1e4f, -1e4f, 1e30f, -1e30f, 1, 1, 1, 1}, a[4], dg[8], *du = dg + 4;
    burst_op_swiglu(NULL, 1, 4, g, a);
    burst_op_swiglu_back(NULL, 1, 4, g, g + 4, dg);
    for (int i = 0; i < 4; i++) {
        float open = i % 2 == 0; /* positive: the identity; negative: 0 */
        assert_true(fabsf(a[i] - open * g[i]) < 1e-3f && fabsf(dg[i] - open) < 1e-3f);
        assert_true(fabsf(du[i] - open * g[i]) < 1e-3f);
    }
}

static void add(void **state)
{
    (void)state;
    for (int c = 0; c < COUNTS; c++) {
        Random r = {7};
        float *x = random_array(&r, counts[c]), *y = random_array(&r, counts[c]),
              *was = copy_array(y, counts[c]);
        burst_add(counts[c], x, y);
        for (int64_t i = 0; i < counts[c]; i++)
            assert_true(y[i] == was[i] + x[i]);
        free(x), free(y), free(was);
    }
}

/* ---- embedding ---- */
static void embedding(void **state)
{
    (void)state;
    enum { N = 6, V = 5, D = 9 };
    const int32_t token[N] = {3, 0, 3, 4, 3, 1};
    Random r = {9};
    float *table = random_array(&r, V * D), *x = random_array(&r, N * D), *dx = random_array(&r, N * D);
    float *dtable = random_array(&r, V * D);
    double *want = doubles_of(V * D, dtable, true);
    burst_op_embed(NULL, N, D, token, table, x);
    int32_t scratch[2 * N];
    assert_int_equal(burst_embed_ints(N), 2 * N);
    burst_op_embed_back(NULL, N, D, token, dx, dtable, scratch);
    for (int i = 0; i < N; i++) {
        assert_memory_equal(x + i * D, table + token[i] * D, D * sizeof *x);
        for (int j = 0; j < D; j++)
            want[token[i] * D + j] += dx[i * D + j];
    }
    assert_close(V * D, dtable, want, 2e-7);
    free(table), free(x), free(dx), free(dtable), free(want);
}

/* One token is percent of all, the others have one of 3000 others. */
static void check_frequent(int percent)
{
    enum { N = 4 << 20, V = 100003, D = 2, FREQUENT = 70001 };
    Random r = {(uint64_t)percent};
    int32_t *token = calloc(N, sizeof *token),
            *scratch = calloc((size_t)burst_embed_ints(N), sizeof *scratch);
    float *dx = random_array(&r, (int64_t)N * D), *dtable = calloc((size_t)V * D, sizeof *dtable);
    double *want = calloc((size_t)V * D, sizeof *want), worst = 0;
    assert_true(token && scratch && dtable && want);
    for (int64_t i = 0; i < N; i++) {
        token[i] = i % 100 < percent ? FREQUENT : (int32_t)(i * 7919 % 3000 * 33);
        for (int j = 0; j < D; j++) {
            dx[i * D + j] += 1; /* as a mean that all have */
            want[token[i] * D + j] += dx[i * D + j];
        }
    }
    burst_op_embed_back(NULL, N, D, token, dx, dtable, scratch);
    for (int64_t i = 0; i < (int64_t)V * D; i++)
        worst = fmax(worst, fabs(dtable[i] - want[i]) / fmax(fabs(want[i]), 1));
    printf("embedding's gradient of %d tokens, one of them %d %%: relative error %.1e\n", N, percent, worst);
    assert_true(worst < 1e-5);
    free(token), free(scratch), free(dx), free(dtable), free(want);
}

static void frequent_tokens(void **state)
{
    (void)state;
    check_frequent(100);
    check_frequent(99);
    check_frequent(90);
}

/* ---- loss ---- */
typedef struct LossCase {
    int64_t n, tile;
    int hidden, vocab;
    const float *x, *w, *weight;
    const int32_t *label;
    double scale;
    const float *bias; /* [vocab], after w; NULL: none */
    double softcap; /* of logits; 0: none */
    double bias_scale;
} LossCase;

static double lse_of(int n, const double *logit)
{
    double top = logit[0], sum = 0;
    for (int i = 1; i < n; i++)
        top = fmax(top, logit[i]);
    for (int i = 0; i < n; i++)
        sum += exp(logit[i] - top);
    return top + log(sum);
}

static double capped(double cap, double x) { return cap > 0 ? cap * tanh(x / cap) : x; }

/* The textbook formulae, token by token, logits written out: loss, dx = scale * weight * (p - onehot) W,
 * dw likewise. */
static double naive_loss(const LossCase *c, double *dx, double *dw, double *d_bias)
{
    double loss = 0, *logit = zero_doubles(c->vocab);
    for (int64_t i = 0; i < c->n; i++) {
        if (c->label[i] < 0)
            continue;
        memset(logit, 0, (size_t)c->vocab * sizeof *logit);
        const float *x = c->x + i * c->hidden;
        naive_product(1, c->vocab, c->hidden, (Matrix){x, c->hidden, 1}, (Matrix){c->w, c->hidden, 1}, logit);
        for (int v = 0; v < c->vocab; v++)
            logit[v] = capped(c->softcap, logit[v] + (c->bias ? c->bias_scale * c->bias[v] : 0));
        double lse = lse_of(c->vocab, logit);
        loss += c->weight[i] * (lse - logit[c->label[i]]);
        for (int v = 0; v < c->vocab; v++) {
            double d = c->scale * c->weight[i] * (exp(logit[v] - lse) - (v == c->label[i]));
            d *= c->softcap > 0 ? 1 - pow(logit[v] / c->softcap, 2) : 1;
            d_bias[v] += c->bias_scale * d;
            for (int j = 0; j < c->hidden; j++) {
                dx[i * c->hidden + j] += d * c->w[(int64_t)v * c->hidden + j];
                dw[(int64_t)v * c->hidden + j] += d * x[j];
            }
        }
    }
    free(logit);
    return loss;
}

static void check_loss(const LossCase *c, double tolerance)
{
    Random r = {21};
    int64_t nx = c->n * c->hidden, nw = (int64_t)c->vocab * c->hidden;
    float *dx = random_array(&r, nx), *dw = random_array(&r, nw + c->vocab), *d_bias = dw + nw,
          *scratch = random_array(&r, burst_loss_floats(c->n, c->tile, c->hidden, c->vocab));
    double *want_dx = zero_doubles(nx), *want_dw = doubles_of(nw, dw, true),
           *want_bias = doubles_of(c->vocab, d_bias, true), got = 1000;
    double want = naive_loss(c, want_dx, want_dw, want_bias);
    burst_op_loss_head(NULL, c->n, c->hidden, c->vocab, c->tile, c->bias ? 2 : 1, c->softcap,
                       c->bias_scale, c->x, c->w, c->label, c->weight, c->scale, &got, dx, dw, scratch);
    if (!(fabs(got - 1000 - want) <= 1e-6 * fmax(1, fabs(want))))
        fail_msg("loss %.9g, not %.9g", got - 1000, want);
    got = 1000;
    burst_op_evaluate(NULL, c->n, c->hidden, c->vocab, c->tile, c->bias ? 2 : 1, c->softcap, c->bias_scale,
                      c->x, c->w, c->label, c->weight, &got, scratch);
    if (!(fabs(got - 1000 - want) <= 1e-6 * fmax(1, fabs(want))))
        fail_msg("the loss alone is %.9g, not %.9g", got - 1000, want);
    assert_close(nx, dx, want_dx, tolerance);
    assert_close(nw, dw, want_dw, tolerance);
    if (c->bias)
        assert_close(c->vocab, d_bias, want_bias, tolerance);
    free(dx), free(dw), free(scratch), free(want_dx), free(want_dw), free(want_bias);
}

/* ignore: one label of how many is ignored, 1: all; spread: of the logits. */
static void random_loss(int64_t n, int hidden, int vocab, int ignore, float spread, double tolerance)
{
    Random r = {(uint64_t)(n + vocab)};
    float *x = random_array(&r, n * hidden), *w = random_array(&r, (int64_t)vocab * (hidden + 1)),
          *bias = w + (int64_t)vocab * hidden, *weight = random_array(&r, n);
    int32_t *label = malloc((size_t)n * sizeof *label + 1);
    assert_non_null(label);
    for (int64_t i = 0; i < n * hidden; i++)
        x[i] *= spread;
    for (int64_t i = 0; i < n; i++) {
        if (i % ignore == 0)
            label[i] = i % 2 ? -1 : -100;
        else
            label[i] = (int32_t)(random_bits(&r) % (uint32_t)vocab);
        weight[i] = i % 7 == 3 ? 0 : fabsf(weight[i]);
    }
    /* some of the tokens, more than there are */
    for (int64_t tile = 16; tile < 16 + 4 * n; tile = 5 * tile + 3)
        for (int with = 0; with < 4; with++) /* neither, bias, cap, both */
            check_loss(&(LossCase){n, tile, hidden, vocab, x, w, weight, label, 0.37, with % 2 ? bias : NULL,
                                   with / 2 ? 2.5 : 0, tile == 16 ? 1 : 0.25},
                       tolerance);
    free(x), free(w), free(weight), free(label);
}

static void loss(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++)
        random_loss(counts[i], 20, 37, 5, 1, 1e-6);
    random_loss(600, 12, 50, 4, 1, 1e-6);
    random_loss(150, 4, 70001, 3, 1, 1e-6);
    random_loss(40, 8, 1, 3, 1, 1e-6); /* one word: no loss, no gradient */
}

static void loss_of_sharp_logits(void **state)
{
    (void)state;
    random_loss(50, 16, 300, 5, 40, 1e-4);
}

/* The head's gradient of many tiles: as exact as that of few. All tokens have one label, as padding has:
 * addends of one sign, whose roundings add up. */
static void loss_of_many_tiles(void **state)
{
    (void)state;
    enum { N = 1 << 20, TILE = 16, WIDTH = 4, VOCAB = 3 };
    static float x[N * WIDTH], weight[N];
    static int32_t label[N];
    Random r = {5};
    for (int64_t i = 0; i < N; i++) {
        weight[i] = 1;
        for (int j = 0; j < WIDTH; j++)
            x[i * WIDTH + j] = 1 + (float)j / 3;
    }
    float *w = random_array(&r, VOCAB * WIDTH);
    check_loss(&(LossCase){N, TILE, WIDTH, VOCAB, x, w, weight, label, 0.37}, 1e-6);
    /* the most that go to dw itself */
    check_loss(&(LossCase){512 * TILE, TILE, WIDTH, VOCAB, x, w, weight, label, 0.37}, 1e-5);
    free(w);
}

static void ignored_labels_leave_nothing(void **state)
{
    (void)state;
    random_loss(600, 8, 40, 1, 1, 0);
}

/* A label that is certain: 1 - p must not be lost to rounding of p. */
static void loss_gradient_near_certainty(void **state)
{
    (void)state;
    const float x[1] = {1}, w[2] = {12, 0}, weight[1] = {1};
    const int32_t label[1] = {0};
    float dx[1], dw[2] = {0};
    double sum = 0, p = 1 / (1 + exp(-12.0));
    float *scratch = malloc((size_t)burst_loss_floats(1, 1, 1, 2) * sizeof *scratch);
    assert_non_null(scratch);
    burst_op_loss(NULL, 1, 1, 2, 1, x, w, label, weight, 1, &sum, dx, dw, scratch);
    assert_true(fabs(sum / -log(p) - 1) < 1e-6);
    assert_true(fabs(dw[0] / (p - 1) - 1) < 1e-6);
    free(scratch);
}

/* ---- optimizer ---- */
static void naive_adamw(const BurstAdamW *o, bool decays, double g, double *p, double *m, double *v)
{
    g *= o->grad_scale;
    if (decays)
        *p -= o->lr * o->decay * *p;
    *m = o->beta1 * *m + (1 - o->beta1) * g;
    *v = o->beta2 * *v + (1 - o->beta2) * g * g;
    double m_hat = *m / (1 - pow(o->beta1, (double)o->step)),
           v_hat = *v / (1 - pow(o->beta2, (double)o->step));
    *p -= o->lr * m_hat / (sqrt(v_hat) + o->eps);
}

static void check_adamw(int64_t n, bool decays)
{
    Random r = {(uint64_t)n + 2};
    float *p = random_array(&r, n), *m = zero_floats(n), *v = zero_floats(n);
    double *want_p = doubles_of(n, p, true), *want_m = zero_doubles(n), *want_v = zero_doubles(n);
    for (int step = 1; step <= 20; step++) {
        BurstAdamW o = {.lr = 0.01,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .eps = 1e-8,
                        .decay = 0.1,
                        .step = step,
                        .grad_scale = 0.25};
        float *g = random_array(&r, n);
        for (int64_t i = 0; i < n; i++)
            naive_adamw(&o, decays, g[i], &want_p[i], &want_m[i], &want_v[i]);
        burst_adamw(&o, n, decays, p, g, m, v);
        free(g);
    }
    assert_close(n, p, want_p, 1e-6);
    assert_close(n, m, want_m, 1e-6);
    assert_close(n, v, want_v, 1e-6);
    free(p), free(m), free(v), free(want_p), free(want_m), free(want_v);
}

static void adamw(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        check_adamw(counts[i], true);
        check_adamw(counts[i], false);
    }
}

static void sum_squares(void **state)
{
    (void)state;
    for (int c = 0; c < COUNTS; c++) {
        Random r = {13};
        float *x = random_array(&r, counts[c]);
        double want = 0;
        for (int64_t i = 0; i < counts[c]; i++)
            want += (double)x[i] * x[i];
        assert_true(fabs(burst_sum_squares(counts[c], x) - want) <= 1e-14 * want);
        free(x);
    }
    enum { MANY = 1 << 20 }; /* fp32 sums would stop growing or drift here */
    float *x = malloc(MANY * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < MANY; i++)
        x[i] = 0.1f;
    assert_true(fabs(burst_sum_squares(MANY, x) / (MANY * ((double)0.1f * 0.1f)) - 1) < 1e-10);
    free(x);
}

/* ---- what is not finite ---- */
/* It stays so in each operation that could drop it by a maximum, a clamp or a comparison: in whole vectors
 * and behind the last one. */
enum { WIDE = 37 };
static const float NOT_FINITE[] = {NAN, INFINITY, -INFINITY};

static void check_gates(int at, float bad)
{
    for (int input = 0; input < 3; input++) {
        float in[3][WIDE], y[WIDE], dx[2 * WIDE], *const up = dx + WIDE;
        for (int i = 0; i < 3 * WIDE; i++)
            in[i / WIDE][i % WIDE] = i % WIDE == at && i / WIDE == input ? bad : 0.5f;
        burst_op_swiglu_back(NULL, 1, WIDE, in[0], in[2], dx);
        assert_false(isfinite(dx[at]) || (isfinite(up[at]) && input != 1));
        burst_op_swiglu(NULL, 1, WIDE, in[0], y);
        assert_true(isfinite(y[at]) == (input == 2));
        for (int kind = 0; kind < BURST_ACTIVATIONS && isnan(bad); kind++) {
            const bool gated = kind <= BURST_ACTIVATION_GEGLU_TANH;
            burst_op_activate(NULL, kind, 1, 1, WIDE, in[0], y);
            assert_true(isnan(y[at]) == (input == 0 || (gated && input == 1)));
            burst_op_activate_back(NULL, kind, 1, 1, WIDE, in[0], in[2], dx);
            assert_true(isnan(dx[at]) == (input != 1 || gated));
            assert_true(!gated || isnan(up[at]) == (input != 1));
        }
    }
}

static void check_norms(int at, float bad)
{
    for (int input = 0; input < 3; input++) {
        float in[3][WIDE], y[WIDE], rstd[1], dx[2][WIDE] = {{0}}, dw[2][WIDE] = {{0}};
        for (int i = 0; i < 3 * WIDE; i++)
            in[i / WIDE][i % WIDE] = i % WIDE == at && i / WIDE == input ? bad : (float)(1 + i % 3);
        burst_op_rmsnorm(NULL, 1, WIDE, 1e-5, in[0], in[1], y, rstd);
        assert_true(isfinite(y[at]) == (input == 2));
        burst_op_rmsnorm_back(NULL, 1, WIDE, in[0], rstd, in[2], in[1], dx[0], false, dw[0], NULL);
        burst_op_layernorm(NULL, 1, WIDE, 1e-5, in[0], in[1], y, rstd);
        assert_true(isfinite(y[at]) == (input == 2));
        burst_op_layernorm_back(NULL, 1, WIDE, in[0], rstd, in[2], in[1], dx[1], false, dw[1], NULL);
        for (int norm = 0; norm < 2; norm++)
            assert_false(isfinite(dx[norm][at]) || (isfinite(dw[norm][at]) && input != 1));
    }
}

/* A logit at `at`, of the label or not; a cap makes a number of an infinite one. */
static void check_loss_not_finite(int at, float bad, double softcap)
{
    float w[2 * WIDE] = {0}, dw[2 * WIDE] = {0}, dx[1], *const d_bias = dw + WIDE;
    const float x[1] = {1}, weight[1] = {1};
    const int32_t label[1] = {17};
    double sum = 0;
    float *scratch = random_array(&(Random){3}, burst_loss_floats(1, 1, 1, WIDE));
    w[WIDE + at] = bad;
    burst_op_loss_head(NULL, 1, 1, WIDE, 1, 2, softcap, 1, x, w, label, weight, 1, &sum, dx, dw, scratch);
    /* a logit of -inf is a word that never comes */
    const bool number = isinf(bad) && (softcap > 0 || (bad < 0 && at != label[0]));
    assert_true(isfinite(sum) == number);
    assert_true(isfinite(d_bias[at]) == number || (bad < 0 && at == label[0]));
    free(scratch);
}

static void check_sinks_not_finite(float bad)
{
    for (int input = 0; input < 3; input++) {
        const float o[2] = {input ? 1 : bad, 2}, lse[1] = {input == 1 ? NAN : 1};
        const float sink[1] = {input == 2 ? NAN : 0};
        float out[2], d_o[2], d_lse[1], d_sink[1] = {0};
        burst_op_sink(NULL, 1, 1, 2, o, lse, sink, out);
        burst_op_sink_back(NULL, 1, 1, 2, (const float[]){1, 1}, o, lse, sink, d_o, d_lse, d_sink);
        assert_false(isfinite(out[0]) || isfinite(d_lse[0]) || isfinite(d_sink[0]));
    }
}

static void check_rest_not_finite(int at, float bad)
{
    float x[WIDE] = {0}, y[WIDE] = {0}, p[WIDE] = {0}, m[WIDE] = {0}, v[WIDE] = {0};
    uint16_t rounded[WIDE];
    x[at] = bad;
    burst_op_scale(NULL, 1, WIDE, 0.5, x, NULL, y);
    assert_false(isfinite(y[at]) || isfinite(burst_sum_squares(WIDE, x)));
    burst_add(WIDE, x, p);
    assert_false(isfinite(p[at]));
    burst_adamw(&(BurstAdamW){.lr = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1, .grad_scale = 1},
                WIDE, false, p, x, m, v);
    assert_false(isfinite(p[at]) || isfinite(m[at]) || isfinite(v[at]));
    burst_round_bf16(WIDE, x, rounded);
    burst_keep_bf16(WIDE, x);
    assert_true((rounded[at] & 0x7f80) == 0x7f80 && isnan(x[at]) == isnan(bad) && !isfinite(x[at]));
}

static void not_finite_stays(void **state)
{
    (void)state;
    const int places[] = {0, 17, WIDE - 1};
    for (int i = 0; i < 9; i++) {
        const int at = places[i / 3];
        const float bad = NOT_FINITE[i % 3];
        check_gates(at, bad);
        check_norms(at, bad);
        check_loss_not_finite(at, bad, 0);
        check_loss_not_finite(at, bad, 5);
        check_sinks_not_finite(bad);
        check_rest_not_finite(at, bad);
    }
}

int main(void)
{
    burst_blas_setup();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents),
        cmocka_unit_test(linear),
        cmocka_unit_test(bias),
        cmocka_unit_test(rmsnorm),
        cmocka_unit_test(rmsnorm_of_parts),
        cmocka_unit_test(rmsnorm_of_zeros),
        cmocka_unit_test(heads_and_tokens),
        cmocka_unit_test(rope),
        cmocka_unit_test(scaled_rope),
        cmocka_unit_test(swiglu),
        cmocka_unit_test(swiglu_saturates),
        cmocka_unit_test(add),
        cmocka_unit_test(embedding),
        cmocka_unit_test(frequent_tokens),
        cmocka_unit_test(loss),
        cmocka_unit_test(loss_of_sharp_logits),
        cmocka_unit_test(loss_of_many_tiles),
        cmocka_unit_test(ignored_labels_leave_nothing),
        cmocka_unit_test(loss_gradient_near_certainty),
        cmocka_unit_test(adamw),
        cmocka_unit_test(sum_squares),
        cmocka_unit_test(not_finite_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
