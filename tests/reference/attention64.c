/* attention64.c: dense masked attention in float64, forward and backward, one row of the matrix at a time. */
#include "dot64.h"
#include "model64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double *new64(int64_t count)
{
    double *p = calloc((size_t)(count > 0 ? count : 1), sizeof(double));
    if (!p) {
        fprintf(stderr, "oracle: out of memory\n");
        exit(3);
    }
    return p;
}

static void add_scaled(double *restrict y, double factor, const double *restrict x, int d)
{
    for (int i = 0; i < d; i++)
        y[i] += factor * x[i];
}

static int value_dim(const Attention64 *a) { return a->value_dim ? a->value_dim : a->head_dim; }

/* The score of query q and key k, and what its cap multiplies gradients with. */
static double score_of(const Attention64 *a, const double *q, const double *k, double *slope)
{
    double score = dot64(a->head_dim, q, k) / sqrt(a->head_dim),
           part = a->softcap > 0 ? tanh(score / a->softcap) : 0;
    *slope = 1 - part * part;
    return a->softcap > 0 ? a->softcap * part : score;
}

/* p[n] = the softmax of row i of head h over the kept keys and the head's sink, 0 elsewhere; the row's
 * lse, with the sink, comes back. */
static double softmax_row(const Attention64 *a, const uint8_t *chosen, int h, int64_t i, double *p)
{
    int d = a->head_dim, hk = h / (a->heads / a->kv_heads);
    const double *q = a->q + (h * a->n + i) * d, *k = a->k + hk * a->n * d;
    double max = a->sink ? a->sink[h] : -INFINITY, sum = 0, slope;
    for (int64_t j = 0; j < a->n; j++) {
        p[j] = select64_keeps(a, chosen, h, i, j) ? score_of(a, q, k + j * d, &slope) : -INFINITY;
        max = p[j] > max ? p[j] : max;
    }
    if (max == -INFINITY) {
        memset(p, 0, sizeof(double) * (size_t)a->n);
        return -INFINITY;
    }
    if (a->sink)
        sum = exp(a->sink[h] - max);
    for (int64_t j = 0; j < a->n; j++)
        sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - max);
    for (int64_t j = 0; j < a->n; j++)
        p[j] /= sum;
    return max + log(sum);
}

void attention64_keep(Attention64 *a, double *p, double *lse)
{
    uint8_t *chosen = select64(a);
    for (int h = 0; h < a->heads; h++)
        for (int64_t i = 0; i < a->n; i++)
            lse[h * a->n + i] = softmax_row(a, chosen, h, i, p + (h * a->n + i) * a->n);
    a->p = p, a->p_lse = lse;
    free(chosen);
}

/* Row i of head h of the probabilities, kept or computed into `room`, and its lse. */
static const double *probabilities(const Attention64 *a, const uint8_t *chosen, int h, int64_t i,
                                   double *room, double *lse)
{
    const int64_t row = h * a->n + i;
    *lse = a->p ? a->p_lse[row] : softmax_row(a, chosen, h, i, room);
    return a->p ? a->p + row * a->n : room;
}

/* o = P v; the matrix P is that of a, the values may be others. lse may be NULL. */
static void weigh_values(const Attention64 *a, const double *values, double *o, double *lse)
{
    int d = value_dim(a);
    double *room = new64(a->n);
    uint8_t *chosen = a->p ? NULL : select64(a);
    for (int h = 0; h < a->heads; h++) {
        const double *v = values + h / (a->heads / a->kv_heads) * a->n * d;
        for (int64_t i = 0; i < a->n; i++) {
            double row_lse, *row = o + (h * a->n + i) * d;
            const double *p = probabilities(a, chosen, h, i, room, &row_lse);
            if (lse)
                lse[h * a->n + i] = row_lse;
            memset(row, 0, sizeof(double) * (size_t)d);
            for (int64_t j = 0; j < a->n; j++)
                if (p[j] != 0)
                    add_scaled(row, p[j], v + j * d, d);
        }
    }
    free(room), free(chosen);
}

void attention64_forward(const Attention64 *a, double *o, double *lse)
{
    weigh_values(a, a->v, o, lse);
}

/* What backward multiplies: the true arrays, or their absolute values. delta_sign -1: dS = P (dP - delta). */
typedef struct Factors {
    const double *q, *k, *v, *o, *d_o;
    double delta_sign;
} Factors;

static void backward_row(const Attention64 *a, const Factors *f, int h, int64_t i, const double *p,
                         double *dq, double *dk, double *dv)
{
    const int d = a->head_dim, e = value_dim(a);
    const int64_t query = h * a->n + i, keys = h / (a->heads / a->kv_heads) * a->n, row = query * d;
    const double *d_o = f->d_o + query * e;
    double scale = 1 / sqrt(d), delta = dot64(e, d_o, f->o + query * e);
    for (int64_t j = 0; j < a->n; j++) {
        if (p[j] == 0)
            continue; /* would add zeros */
        const int64_t key = (keys + j) * d, value = (keys + j) * e;
        double slope = 1;
        if (a->softcap > 0)
            score_of(a, a->q + row, a->k + key, &slope);
        double ds = p[j] * slope * (dot64(e, d_o, f->v + value) + f->delta_sign * delta);
        add_scaled(dv + value, p[j], d_o, e);
        add_scaled(dk + key, ds * scale, f->q + row, d);
        add_scaled(dq + row, ds * scale, f->k + key, d);
    }
}

static void backward(const Attention64 *a, const Factors *f, double *dq, double *dk, double *dv)
{
    double *room = new64(a->n), lse;
    uint8_t *chosen = a->p ? NULL : select64(a);
    for (int h = 0; h < a->heads; h++)
        for (int64_t i = 0; i < a->n; i++) {
            const double *p = probabilities(a, chosen, h, i, room, &lse);
            const int64_t row = (h * a->n + i) * value_dim(a);
            backward_row(a, f, h, i, p, dq, dk, dv);
            if (a->d_sink)
                a->d_sink[h] -= exp(a->sink[h] - lse) * dot64(value_dim(a), f->d_o + row, f->o + row);
        }
    free(room), free(chosen);
}

void attention64_backward(const Attention64 *a, const double *o, const double *d_o, double *dq, double *dk,
                          double *dv)
{
    Factors f = {a->q, a->k, a->v, o, d_o, -1};
    backward(a, &f, dq, dk, dv);
}

static double *absolute(const double *x, int64_t count)
{
    double *y = new64(count);
    for (int64_t i = 0; i < count; i++)
        y[i] = fabs(x[i]);
    return y;
}

void attention64_magnitude(const Attention64 *a, const double *true_o, const double *d_o, double *o,
                           double *dq, double *dk, double *dv)
{
    const int64_t queries = a->heads * a->n * a->head_dim, keys = a->kv_heads * a->n * a->head_dim,
                  outputs = a->heads * a->n * value_dim(a), values = a->kv_heads * a->n * value_dim(a);
    double *x[] = {absolute(a->q, queries), absolute(a->k, keys), absolute(a->v, values),
                   absolute(true_o, outputs), absolute(d_o, outputs)};
    memset(dq, 0, sizeof(double) * (size_t)queries);
    memset(dk, 0, sizeof(double) * (size_t)keys);
    memset(dv, 0, sizeof(double) * (size_t)values);
    weigh_values(a, x[2], o, NULL);
    Factors f = {x[0], x[1], x[2], x[3], x[4], 1};
    backward(a, &f, dq, dk, dv);
    for (int i = 0; i < 5; i++)
        free(x[i]);
}
