/* peaked.c: the right answers of causal attention with an attention sink: the first key has a score of
 * about 17 in every row, all others one of exactly 0, and the others' values are so large that together
 * they weigh as much.
 *
 * Queries lie in the first dimensions, all keys but the first in the others. Then P of a row is one weight
 * for the first key and one for all others, so every answer is a running sum over tokens of vectors and of
 * outer products, in float64: exact for every row at any length, with none of the formulas of the oracle
 * or the kernels.
 */
#include "peaked.h"
#include "draws.h"

#include <stdbool.h>
#include <stdlib.h>

enum { FRONT = 8 }; /* dimensions in which queries lie */
static const double score = 17;

/* One query head with its key head: inputs, and answers where the file has them. */
typedef struct Head {
    int64_t n;
    int d;
    double scale;
    const float *q, *d_o, *k, *v;
    double *o, *lse, *dq, *dk, *dv;
    double *sum; /* [d], then [d][d] */
} Head;
/* What a row weighs: its first key, each other key, and rowsum(dO * O). */
typedef struct Row { double first, other, delta; } Row;

static double dot(int d, const float *a, const float *b)
{
    double sum = 0;
    for (int t = 0; t < d; t++)
        sum += (double)a[t] * b[t];
    return sum;
}

static void fill_queries(int64_t n, int d, float *q, float *d_o)
{
    for (int64_t i = 0; i < n; i++)
        for (int t = 0; t < d; t++) {
            int64_t at = i * d + t;
            uint64_t draw = (uint64_t)at;
            double x = t == 0 ? sqrt(d) * (0.9 + 0.2 * uniform(11, draw)) : 0.3 * normal(0, draw);
            q[at] = t < FRONT ? rounded(x) : 0;
            d_o[at] = rounded(1 + normal(1, draw));
        }
}

static void fill_keys(int64_t n, int d, int64_t first, float *k, float *v)
{
    const double large = exp(score) / (double)n;
    for (int64_t j = 0; j < n; j++)
        for (int t = 0; t < d; t++) {
            int64_t at = j * d + t;
            double x = normal(2, (uint64_t)(first + at)), y = normal(3, (uint64_t)(first + at));
            k[at] = (j == 0) != (t < FRONT) ? 0 : rounded(x);
            if (j == 0 && t == 0)
                k[at] = (float)score;
            v[at] = rounded(j == 0 ? y : large * (1 + y));
        }
}

/* Queries: o, lse and dQ by sums over the keys so far; what rows weigh comes back for the keys. */
static void solve_queries(const Head *h, Row *row)
{
    int d = h->d;
    double *values = h->sum, *keys = values + d, *outer = keys + d; /* outer[t][c]: sum of v[t] k[c] */
    memset(h->sum, 0, sizeof(double) * (size_t)(2 * d + d * d));
    for (int64_t i = 0; i < h->n; i++) {
        const float *q = h->q + i * d, *d_o = h->d_o + i * d, *k = h->k + i * d, *v = h->v + i * d;
        for (int t = 0; t < d && i > 0; t++) {
            values[t] += v[t], keys[t] += k[t];
            for (int c = FRONT; c < d; c++)
                outer[t * d + c] += (double)v[t] * k[c];
        }
        double sink = exp(h->scale * dot(d, q, h->k)), all = sink + (double)i;
        Row r = {sink / all, 1 / all, 0};
        h->lse[i] = log(all);
        for (int t = 0; t < d; t++) {
            h->o[i * d + t] = r.first * h->v[t] + r.other * values[t];
            r.delta += h->o[i * d + t] * d_o[t];
        }
        double ds = r.first * (dot(d, d_o, h->v) - r.delta);
        for (int c = 0; c < d; c++)
            h->dq[i * d + c] = h->scale * (ds * h->k[c] - r.other * r.delta * keys[c]);
        for (int t = 0; t < d; t++)
            for (int c = FRONT; c < d; c++)
                h->dq[i * d + c] += h->scale * r.other * d_o[t] * outer[t * d + c];
        row[i] = r;
    }
}

/* Keys: dK and dV by sums over the queries from the last one back. */
static void solve_keys(const Head *h, const Row *row)
{
    int d = h->d;
    double *grads = h->sum, *queries = grads + d, *outer = queries + d; /* outer[t][c]: sum of P dO[t] q[c] */
    memset(h->sum, 0, sizeof(double) * (size_t)(2 * d + d * d));
    for (int64_t i = h->n - 1; i >= 0; i--) {
        const float *q = h->q + i * d, *d_o = h->d_o + i * d, *v = h->v + i * d;
        double ds = row[i].first * (dot(d, d_o, h->v) - row[i].delta);
        for (int t = 0; t < d; t++) {
            h->dv[t] += row[i].first * d_o[t];
            h->dk[t] += h->scale * ds * q[t];
            grads[t] += row[i].other * d_o[t];
            queries[t] += row[i].other * row[i].delta * q[t];
            for (int c = 0; c < FRONT; c++)
                outer[t * d + c] += row[i].other * d_o[t] * q[c];
        }
        for (int t = 0; t < d && i > 0; t++) {
            h->dv[i * d + t] += grads[t];
            h->dk[i * d + t] -= h->scale * queries[t];
            for (int c = 0; c < FRONT; c++)
                h->dk[i * d + c] += h->scale * v[t] * outer[t * d + c];
        }
    }
}

/* ---- the file: two cases of one run, the first key's gradients by themselves since they are e^17
 * times the others' ---- */

static uint64_t place(Expected *e, int64_t count, size_t size)
{
    uint64_t at = e->bytes;
    e->bytes += ((uint64_t)count * size + 7) / 8 * 8;
    return at;
}

static void scale_case(const Expected *e, ExpectedCase *c, const int64_t *count)
{
    for (int i = 0; i < OUT_COUNT; i++) {
        const double *x = expected_at(e, c->out[i]);
        for (int64_t j = 0; j < count[i]; j++)
            c->scale[i] += isnan(x[j]) ? 0 : x[j] * x[j];
        c->scale[i] = sqrt(c->scale[i]);
    }
}

/* Splits the answers of the first case over both: each row in one of them, NaN in the other. */
static void split_cases(const Expected *e, ExpectedCase *c, const int64_t *count)
{
    for (int i = 0; i < OUT_COUNT; i++) {
        double *rest = expected_at(e, c[0].out[i]), *sink = expected_at(e, c[1].out[i]);
        for (int64_t j = 0; j < count[i]; j++) {
            bool first = (i == OUT_dk || i == OUT_dv) && j % (e->n * e->head_dim) < e->head_dim;
            sink[j] = first ? rest[j] : NAN;
            rest[j] = first ? NAN : rest[j];
        }
    }
    scale_case(e, &c[0], count), scale_case(e, &c[1], count);
}

static void solve(const Expected *e, const ExpectedCase *c, double *sum, Row *row)
{
    int64_t n = e->n, d = e->head_dim;
    for (int h = 0; h < e->heads; h++) {
        int64_t g = h / (e->heads / e->kv_heads);
#define AT(type, offset, head) ((type *)expected_at(e, offset) + (head) * n * d)
        Head x = {n,
                  e->head_dim,
                  1 / sqrt((double)d),
                  AT(float, e->in[IN_q], h),
                  AT(float, e->in[IN_d_o], h),
                  AT(float, e->in[IN_k], g),
                  AT(float, e->in[IN_v], g),
                  AT(double, c->out[OUT_o], h),
                  (double *)expected_at(e, c->out[OUT_lse]) + h * n,
                  AT(double, c->out[OUT_dq], h),
                  AT(double, c->out[OUT_dk], g),
                  AT(double, c->out[OUT_dv], g),
                  sum};
#undef AT
        solve_queries(&x, row);
        solve_keys(&x, row);
    }
}

Expected *peaked_make(const int *shape)
{
    const int64_t n = shape[3], d = shape[2], queries = shape[0] * n * d, keys = shape[1] * n * d;
    const int64_t in[IN_COUNT] = {queries, queries, keys, keys},
                  out[OUT_COUNT] = {queries, shape[0] * n, queries, keys, keys};
    Expected head = {EXPECTED_MAGIC, n, shape[0], shape[1], shape[2], 1, 1, 2, .bytes = sizeof head};
    ExpectedCase cases[2] = {{0}};
    for (int i = 0; i < IN_COUNT; i++)
        head.in[i] = place(&head, in[i], sizeof(float));
    head.table = place(&head, n, sizeof(int32_t));
    head.case_at = place(&head, 2, sizeof *cases);
    for (int i = 0; i < 2 * OUT_COUNT; i++)
        cases[i / OUT_COUNT].out[i % OUT_COUNT] = place(&head, out[i % OUT_COUNT], sizeof(double));
    Expected *e = calloc(1, head.bytes);
    double *sum = malloc(sizeof *sum * (size_t)(d * d + 2 * d));
    Row *row = malloc(sizeof *row * (size_t)n);
    if (!e || !sum || !row)
        return NULL;
    *e = head;
    ExpectedCase *c = expected_at(e, e->case_at);
    memcpy(c, cases, sizeof cases);
    fill_queries(e->heads * n, shape[2], expected_at(e, e->in[IN_q]), expected_at(e, e->in[IN_d_o]));
    for (int h = 0; h < e->kv_heads; h++)
        fill_keys(n, shape[2], h * n * d, (float *)expected_at(e, e->in[IN_k]) + h * n * d,
                  (float *)expected_at(e, e->in[IN_v]) + h * n * d);
    solve(e, c, sum, row);
    split_cases(e, c, out);
    free(sum), free(row);
    return e;
}
