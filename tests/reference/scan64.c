/* scan64.c: a recurrent layer with the gated delta rule (Gated DeltaNet, arXiv 2412.06464), token by token.
 * See model64.h. */
#include "model64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Sizes {
    int heads, key_heads, dk, dv, keys, values, columns;
} Sizes;

static Sizes sizes_of(const Shape64 *s)
{
    const Scan64 *x = &s->scan;
    const int keys = x->key_heads * x->key_dim, values = x->heads * x->value_dim;
    return (Sizes){x->heads, x->key_heads, x->key_dim, x->value_dim, keys, values, 2 * keys + values};
}

/* Everything that forward makes. */
#define KEPT(X) \
    X(raw, n *z.columns) \
    X(sum, n *z.columns) \
    X(act, n *z.columns) X(gate, n *z.values) X(b, n *z.heads) X(a, n *z.heads) X(o, n *z.values) \
        X(y, n *z.values) X(before, n *z.heads *z.dk *z.dv) \
            X(after, n *z.heads *z.dk *z.dv) /* states of tokens */
typedef struct Kept {
#define X(name, size) double *name;
    KEPT(X)
#undef X
} Kept;

static Kept kept_new(const Shape64 *s, int64_t n)
{
    const Sizes z = sizes_of(s);
#define X(name, size) .name = new64(size),
    return (Kept){KEPT(X)};
#undef X
}

static void kept_free(Kept *c)
{
#define X(name, size) free(c->name);
    KEPT(X)
#undef X
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* y [n][out] = x [n][in] w^T */
static void product(int64_t n, int in, int out, const double *x, const double *w, double *y)
{
    for (int64_t t = 0; t < n; t++)
        for (int o = 0; o < out; o++) {
            y[t * out + o] = 0;
            for (int i = 0; i < in; i++)
                y[t * out + o] += x[t * in + i] * w[o * in + i];
        }
}

static void product_back(int64_t n, int in, int out, const double *x, const double *w, const double *dy,
                         double *dx, double *dw)
{
    for (int64_t t = 0; t < n; t++)
        for (int o = 0; o < out; o++)
            for (int i = 0; i < in; i++) {
                dx[t * in + i] += dy[t * out + o] * w[o * in + i];
                dw[o * in + i] += dy[t * out + o] * x[t * in + i];
            }
}

/* Rows of the same document only: the token's place says how many there are before it. */
static void convolve(const Shape64 *s, int64_t n, const double *w, const Kept *c)
{
    const Sizes z = sizes_of(s);
    const int kernel = s->scan.kernel;
    for (int64_t t = 0; t < n; t++)
        for (int i = 0; i < z.columns; i++) {
            double *sum = &c->sum[t * z.columns + i];
            *sum = 0;
            for (int back = 0; back < kernel && back <= s->place[t]; back++)
                *sum += w[i * kernel + kernel - 1 - back] * c->raw[(t - back) * z.columns + i];
            c->act[t * z.columns + i] = *sum * sigmoid(*sum);
        }
}

/* dsum: gradients of act, which become those of the sums; draw is added to. */
static void convolve_back(const Shape64 *s, int64_t n, const double *w, const Kept *c, double *dsum,
                          double *draw, double *dw)
{
    const Sizes z = sizes_of(s);
    const int kernel = s->scan.kernel;
    for (int64_t t = 0; t < n; t++)
        for (int i = 0; i < z.columns; i++) {
            const double x = c->sum[t * z.columns + i], p = sigmoid(x);
            double *d = &dsum[t * z.columns + i];
            *d *= p * (1 + x * (1 - p));
            for (int back = 0; back < kernel && back <= s->place[t]; back++) {
                dw[i * kernel + kernel - 1 - back] += *d * c->raw[(t - back) * z.columns + i];
                draw[(t - back) * z.columns + i] += *d * w[i * kernel + kernel - 1 - back];
            }
        }
}

/* x times scale / sqrt(sum x^2 + 1e-6); the inverse length comes back. */
static double normalise(int n, const double *x, double scale, double *y)
{
    double sum = 1e-6;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = scale * x[i] / sqrt(sum);
    return 1 / sqrt(sum);
}

static void normalise_back(int n, const double *x, double scale, const double *dy, double *dx)
{
    double sum = 1e-6, dot = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i], dot += x[i] * dy[i];
    for (int i = 0; i < n; i++)
        dx[i] += scale * (dy[i] / sqrt(sum) - x[i] * dot / (sum * sqrt(sum)));
}

/* A head's token. */
typedef struct Token {
    const double *q_raw, *k_raw, *v;
    double q[256], k[256], beta, decay, rate, x;
} Token;

static Token token_of(const Shape64 *s, const Scan64Weights *w, const Kept *c, int64_t t, int head)
{
    const Sizes z = sizes_of(s);
    const double *row = c->act + t * z.columns;
    const int of = head / (z.heads / z.key_heads);
    Token k = {.q_raw = row + of * z.dk,
               .k_raw = row + z.keys + of * z.dk,
               .v = row + 2 * z.keys + head * z.dv};
    normalise(z.dk, k.q_raw, 1 / sqrt(z.dk), k.q);
    normalise(z.dk, k.k_raw, 1, k.k);
    k.beta = sigmoid(c->b[t * z.heads + head]);
    k.x = c->a[t * z.heads + head] + w->dt_bias[head];
    k.rate = -exp(w->a_log[head]);
    k.decay = exp(k.rate * log1p(exp(k.x)));
    return k;
}

static double *state_at(const Sizes *z, double *states, int64_t t, int head)
{
    return states + (t * z->heads + head) * z->dk * z->dv;
}

/* what[dv] = sum over k of the decayed state */
static void read_state(const Sizes *z, const Token *k, const double *state, double *what)
{
    for (int j = 0; j < z->dv; j++) {
        what[j] = 0;
        for (int i = 0; i < z->dk; i++)
            what[j] += k->k[i] * k->decay * state[i * z->dv + j];
    }
}

static void scan(const Shape64 *s, int64_t n, const Scan64Weights *w, const Kept *c)
{
    const Sizes z = sizes_of(s);
    double read[4096];
    for (int64_t t = 0; t < n; t++)
        for (int head = 0; head < z.heads; head++) {
            const Token k = token_of(s, w, c, t, head);
            double *state = state_at(&z, c->before, t, head), *next = state_at(&z, c->after, t, head),
                   *o = c->o + t * z.values + head * z.dv;
            if (s->place[t] > 0)
                memcpy(state, state_at(&z, c->after, t - 1, head), sizeof *state * (size_t)(z.dk * z.dv));
            read_state(&z, &k, state, read);
            for (int j = 0; j < z.dv; j++) {
                o[j] = 0;
                for (int i = 0; i < z.dk; i++) {
                    next[i * z.dv + j] = k.decay * state[i * z.dv + j] + k.k[i] * k.beta * (k.v[j] - read[j]);
                    o[j] += next[i * z.dv + j] * k.q[i];
                }
            }
        }
}

/* A token's part of backward. later [dk][dv]: the gradient of the state after it, which becomes that before.
 */
static void token_back(const Shape64 *s, const Scan64Weights *w, const Kept *c, int64_t t, int head,
                       const double *d_o, double *later, double *dact, double *db, double *da,
                       const Scan64Weights *dw)
{
    const Sizes z = sizes_of(s);
    const Token k = token_of(s, w, c, t, head);
    const double *state = state_at(&z, c->before, t, head), *next = state_at(&z, c->after, t, head);
    const int of = head / (z.heads / z.key_heads);
    double read[4096], dq[256] = {0}, dk[256] = {0}, written[4096], d_beta = 0, d_log = 0;
    double *row = dact + t * z.columns;
    read_state(&z, &k, state, read);
    for (int i = 0; i < z.dk; i++)
        for (int j = 0; j < z.dv; j++) {
            dq[i] += next[i * z.dv + j] * d_o[j];
            later[i * z.dv + j] += k.q[i] * d_o[j];
        }
    for (int j = 0; j < z.dv; j++) {
        written[j] = 0;
        for (int i = 0; i < z.dk; i++) {
            written[j] += later[i * z.dv + j] * k.k[i];
            dk[i] += later[i * z.dv + j] * k.beta * (k.v[j] - read[j]);
        }
        d_beta += written[j] * (k.v[j] - read[j]);
        row[2 * z.keys + head * z.dv + j] += k.beta * written[j];
    }
    for (int i = 0; i < z.dk; i++)
        for (int j = 0; j < z.dv; j++) {
            const double before = k.decay * state[i * z.dv + j], r = -k.beta * written[j];
            dk[i] += before * r;
            const double d = later[i * z.dv + j] + k.k[i] * r;
            d_log += d * before;
            later[i * z.dv + j] = s->place[t] == 0 ? 0 : k.decay * d;
        }
    normalise_back(z.dk, k.q_raw, 1 / sqrt(z.dk), dq, row + of * z.dk);
    normalise_back(z.dk, k.k_raw, 1, dk, row + z.keys + of * z.dk);
    db[t * z.heads + head] = d_beta * k.beta * (1 - k.beta);
    da[t * z.heads + head] = d_log * k.rate * sigmoid(k.x);
    dw->dt_bias[head] += da[t * z.heads + head];
    dw->a_log[head] += d_log * k.rate * log1p(exp(k.x));
}

static void gated_norm(const Shape64 *s, int64_t rows, const double *w, const Kept *c)
{
    const int dv = s->scan.value_dim;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int j = 0; j < dv; j++)
            sum += c->o[r * dv + j] * c->o[r * dv + j];
        for (int j = 0; j < dv; j++) {
            const double g = c->gate[r * dv + j];
            c->y[r * dv + j] = c->o[r * dv + j] / sqrt(sum / dv + s->norm_eps) * w[j] * g * sigmoid(g);
        }
    }
}

static void gated_norm_back(const Shape64 *s, int64_t rows, const double *w, const Kept *c, const double *dy,
                            double *d_o, double *d_gate, double *dw)
{
    const int dv = s->scan.value_dim;
    for (int64_t r = 0; r < rows; r++) {
        const double *o = c->o + r * dv, *gate = c->gate + r * dv;
        double sum = 0, dot = 0;
        for (int j = 0; j < dv; j++)
            sum += o[j] * o[j];
        const double rstd = 1 / sqrt(sum / dv + s->norm_eps);
        for (int j = 0; j < dv; j++) {
            const double p = sigmoid(gate[j]), d = dy[r * dv + j];
            d_gate[r * dv + j] = d * o[j] * rstd * w[j] * p * (1 + gate[j] * (1 - p));
            dw[j] += d * o[j] * rstd * gate[j] * p;
            dot += d * w[j] * gate[j] * p * o[j];
        }
        for (int j = 0; j < dv; j++)
            d_o[r * dv + j] = rstd * (dy[r * dv + j] * w[j] * gate[j] * sigmoid(gate[j]) -
                                      o[j] * rstd * rstd * dot / dv);
    }
}

static Kept forward(const Shape64 *s, int64_t n, const double *x, const Scan64Weights *w)
{
    const Sizes z = sizes_of(s);
    const Kept c = kept_new(s, n);
    product(n, s->hidden, z.columns, x, w->qkv, c.raw);
    product(n, s->hidden, z.values, x, w->z, c.gate);
    product(n, s->hidden, z.heads, x, w->b, c.b);
    product(n, s->hidden, z.heads, x, w->a, c.a);
    convolve(s, n, w->conv, &c);
    scan(s, n, w, &c);
    gated_norm(s, n * z.heads, w->norm, &c);
    return c;
}

void scan64_forward(const Shape64 *s, int64_t n, const double *x, const Scan64Weights *w, double *y)
{
    Kept c = forward(s, n, x, w);
    product(n, sizes_of(s).values, s->hidden, c.y, w->out, y);
    kept_free(&c);
}

void scan64_backward(const Shape64 *s, int64_t n, const double *x, const Scan64Weights *w, const double *dy,
                     double *dx, const Scan64Weights *dw)
{
    const Sizes z = sizes_of(s);
    Kept c = forward(s, n, x, w), d = kept_new(s, n);
    product_back(n, z.values, s->hidden, c.y, w->out, dy, d.y, dw->out);
    gated_norm_back(s, n * z.heads, w->norm, &c, d.y, d.o, d.gate, dw->norm);
    for (int head = 0; head < z.heads; head++) {
        double *later = new64(z.dk * z.dv);
        for (int64_t t = n - 1; t >= 0; t--)
            token_back(s, w, &c, t, head, d.o + t * z.values + head * z.dv, later, d.act, d.b, d.a, dw);
        free(later);
    }
    convolve_back(s, n, w->conv, &c, d.act, d.raw, dw->conv);
    product_back(n, s->hidden, z.columns, x, w->qkv, d.raw, dx, dw->qkv);
    product_back(n, s->hidden, z.values, x, w->z, d.gate, dx, dw->z);
    product_back(n, s->hidden, z.heads, x, w->b, d.b, dx, dw->b);
    product_back(n, s->hidden, z.heads, x, w->a, d.a, dx, dw->a);
    kept_free(&c), kept_free(&d);
}
