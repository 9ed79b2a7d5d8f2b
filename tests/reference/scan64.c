/* scan64.c: a recurrent layer with the gated delta rule (Gated DeltaNet, arXiv 2412.06464), or without it
 * (Mamba-2, arXiv 2405.21060), token by token. See model64.h. */
#include "dot64.h"
#include "model64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* at: of the first query, key and value in a row. */
typedef struct Sizes {
    int heads, key_heads, dk, dv, keys, values, columns, q, k, v;
} Sizes;

static Sizes sizes_of(const Shape64 *s)
{
    const Scan64 *x = &s->scan;
    const int keys = x->key_heads * x->key_dim, values = x->heads * x->value_dim;
    if (x->plain)
        return (Sizes){x->heads, x->key_heads,      x->key_dim,    x->value_dim, keys,
                       values,   2 * keys + values, values + keys, values,       0};
    return (Sizes){x->heads, x->key_heads,      x->key_dim, x->value_dim, keys,
                   values,   2 * keys + values, 0,          keys,         2 * keys};
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
        for (int o = 0; o < out; o++)
            y[t * out + o] = dot64(in, x + t * in, w + o * in);
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
static void convolve(const Shape64 *s, int64_t n, const double *w, const double *bias, const Kept *c)
{
    const Sizes z = sizes_of(s);
    const int kernel = s->scan.kernel;
    for (int64_t t = 0; t < n; t++)
        for (int i = 0; i < z.columns; i++) {
            double *sum = &c->sum[t * z.columns + i];
            *sum = bias ? bias[i] : 0;
            for (int back = 0; back < kernel && back <= s->place[t]; back++)
                *sum += w[i * kernel + kernel - 1 - back] * c->raw[(t - back) * z.columns + i];
            c->act[t * z.columns + i] = *sum * sigmoid(*sum);
        }
}

/* dsum: gradients of act, which become those of the sums; draw is added to. */
static void convolve_back(const Shape64 *s, int64_t n, const double *w, const Kept *c, double *dsum,
                          double *draw, double *dw, double *dbias)
{
    const Sizes z = sizes_of(s);
    const int kernel = s->scan.kernel;
    for (int64_t t = 0; t < n; t++)
        for (int i = 0; i < z.columns; i++) {
            const double x = c->sum[t * z.columns + i], p = sigmoid(x);
            double *d = &dsum[t * z.columns + i];
            *d *= p * (1 + x * (1 - p));
            if (dbias)
                dbias[i] += *d;
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
    double q[256], k[256], beta, decay, rate, x, step;
} Token;

static Token token_of(const Shape64 *s, const Scan64Weights *w, const Kept *c, int64_t t, int head)
{
    const Sizes z = sizes_of(s);
    const double *row = c->act + t * z.columns;
    const int of = head / (z.heads / z.key_heads);
    Token k = {.q_raw = row + z.q + of * z.dk, .k_raw = row + z.k + of * z.dk, .v = row + z.v + head * z.dv};
    k.x = c->a[t * z.heads + head] + w->dt_bias[head];
    k.rate = -exp(w->a_log[head]);
    k.step = log1p(exp(k.x));
    if (s->scan.plain) {
        k.step = fmin(fmax(k.step, s->scan.step_least), s->scan.step_most);
        memcpy(k.q, k.q_raw, sizeof *k.q * (size_t)z.dk);
        memcpy(k.k, k.k_raw, sizeof *k.k * (size_t)z.dk);
        k.beta = k.step;
    } else {
        normalise(z.dk, k.q_raw, 1 / sqrt(z.dk), k.q);
        normalise(z.dk, k.k_raw, 1, k.k);
        k.beta = sigmoid(c->b[t * z.heads + head]);
    }
    k.decay = exp(k.rate * k.step);
    return k;
}

/* Whether a step is within its bounds. */
static bool is_free(const Shape64 *s, double step)
{
    return !s->scan.plain || (above64(step - s->scan.step_least) && above64(s->scan.step_most - step));
}

static double *state_at(const Sizes *z, double *states, int64_t t, int head)
{
    return states + (t * z->heads + head) * z->dk * z->dv;
}

/* left[dv]: values less what the key reads of the decayed state, where it reads */
static void left_of(const Shape64 *s, const Sizes *z, const Token *k, const double *state, double *left)
{
    memcpy(left, k->v, sizeof *left * (size_t)z->dv);
    for (int i = 0; i < z->dk && !s->scan.plain; i++)
        for (int j = 0; j < z->dv; j++)
            left[j] -= k->k[i] * k->decay * state[i * z->dv + j];
}

/* What is written to the state. */
static void written_of(const Shape64 *s, const Sizes *z, const Token *k, const double *state, double *written)
{
    left_of(s, z, k, state, written);
    for (int j = 0; j < z->dv; j++)
        written[j] *= k->beta;
    round64(z->dv, written);
}

static void scan(const Shape64 *s, int64_t n, const Scan64Weights *w, const Kept *c)
{
    const Sizes z = sizes_of(s);
    double written[4096];
    for (int64_t t = 0; t < n; t++)
        for (int head = 0; head < z.heads; head++) {
            const Token k = token_of(s, w, c, t, head);
            double *state = state_at(&z, c->before, t, head), *next = state_at(&z, c->after, t, head),
                   *o = c->o + t * z.values + head * z.dv;
            if (s->place[t] > 0)
                memcpy(state, state_at(&z, c->after, t - 1, head), sizeof *state * (size_t)(z.dk * z.dv));
            written_of(s, &z, &k, state, written);
            for (int j = 0; j < z.dv; j++)
                o[j] = w->d ? w->d[head] * k.v[j] : 0;
            for (int i = 0; i < z.dk; i++)
                for (int j = 0; j < z.dv; j++) {
                    next[i * z.dv + j] = k.decay * state[i * z.dv + j] + k.k[i] * written[j];
                    o[j] += next[i * z.dv + j] * k.q[i];
                }
        }
}

/* Outputs as devices compute them: of the state before the token's chunk, and of what the chunk's tokens
 * wrote, each times a factor that is rounded. */
static void round_outputs(const Shape64 *s, int64_t n, const Scan64Weights *w, const Kept *c)
{
    enum { CHUNK = 64 };
    const Sizes z = sizes_of(s);
    double written[4096];
    for (int64_t t = 0; t < n; t++)
        for (int head = 0; head < z.heads; head++) {
            const Token q = token_of(s, w, c, t, head);
            const int64_t chunk = t % CHUNK, begin = t - (s->place[t] < chunk ? s->place[t] : chunk);
            double *o = c->o + t * z.values + head * z.dv, decay = 1;
            for (int j = 0; j < z.dv; j++)
                o[j] = w->d ? w->d[head] * q.v[j] : 0;
            for (int64_t at = t; at >= begin; at--) {
                const Token k = token_of(s, w, c, at, head);
                double factor = decay * dot64(z.dk, q.q, k.k);
                round64(1, &factor);
                written_of(s, &z, &k, state_at(&z, c->before, at, head), written);
                for (int j = 0; j < z.dv; j++)
                    o[j] += factor * written[j];
                decay *= k.decay;
            }
            const double *state = state_at(&z, c->before, begin, head);
            for (int i = 0; i < z.dk; i++)
                for (int j = 0; j < z.dv; j++)
                    o[j] += decay * q.q[i] * state[i * z.dv + j];
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
    double left[4096], dq[256], dk[256], written[4096] = {0}, d_beta = 0, d_log = 0;
    double *row = dact + t * z.columns;
    left_of(s, &z, &k, state, left);
    for (int i = 0; i < z.dk; i++) {
        double *of_later = later + i * z.dv;
        dq[i] = dot64(z.dv, next + i * z.dv, d_o);
        for (int j = 0; j < z.dv; j++) {
            of_later[j] += k.q[i] * d_o[j];
            written[j] += of_later[j] * k.k[i];
        }
        dk[i] = k.beta * dot64(z.dv, of_later, left);
    }
    round64(z.dv, written);
    for (int j = 0; j < z.dv; j++) {
        d_beta += written[j] * left[j];
        row[z.v + head * z.dv + j] += k.beta * written[j] + (w->d ? w->d[head] * d_o[j] : 0);
        if (w->d)
            dw->d[head] += k.v[j] * d_o[j];
    }
    const double reads = s->scan.plain ? 0 : -k.beta, goes_on = s->place[t] == 0 ? 0 : k.decay;
    for (int i = 0; i < z.dk; i++) {
        const double *before = state + i * z.dv;
        double *of_later = later + i * z.dv;
        dk[i] += k.decay * reads * dot64(z.dv, before, written);
        for (int j = 0; j < z.dv; j++)
            of_later[j] += k.k[i] * reads * written[j];
        d_log += k.decay * dot64(z.dv, of_later, before);
        for (int j = 0; j < z.dv; j++)
            of_later[j] *= goes_on;
    }
    const double d_step = d_log * k.rate + (s->scan.plain ? d_beta : 0);
    for (int i = 0; i < z.dk && s->scan.plain; i++) {
        row[z.q + of * z.dk + i] += dq[i];
        row[z.k + of * z.dk + i] += dk[i];
    }
    if (!s->scan.plain) {
        normalise_back(z.dk, k.q_raw, 1 / sqrt(z.dk), dq, row + z.q + of * z.dk);
        normalise_back(z.dk, k.k_raw, 1, dk, row + z.k + of * z.dk);
        db[t * z.heads + head] = d_beta * k.beta * (1 - k.beta);
    }
    da[t * z.heads + head] = is_free(s, log1p(exp(k.x))) ? d_step * sigmoid(k.x) : 0;
    dw->dt_bias[head] += da[t * z.heads + head];
    dw->a_log[head] += d_log * k.rate * k.step;
}

/* Groups of a row, of heads, or as many as key heads; the weights of group g begin at g * width, or are one
 * group's. */
typedef struct Groups {
    int64_t count;
    int width, weights;
} Groups;
static Groups groups_of(const Shape64 *s, int64_t n)
{
    const Sizes z = sizes_of(s);
    if (s->scan.plain)
        return (Groups){n * z.key_heads, z.values / z.key_heads, z.key_heads};
    return (Groups){n * z.heads, z.dv, 1};
}

static double silu(double x) { return x * sigmoid(x); }

static double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

/* What is normed: outputs, or these times their gates. */
static double normed(const Shape64 *s, double o, double gate) { return s->scan.before ? o * silu(gate) : o; }

static double rstd_of(const Shape64 *s, const Groups *g, const double *o, const double *gate)
{
    double sum = 0;
    if (s->scan.bare)
        return 1;
    for (int j = 0; j < g->width; j++)
        sum += normed(s, o[j], gate[j]) * normed(s, o[j], gate[j]);
    return 1 / sqrt(sum / g->width + s->norm_eps);
}

static void gated_norm(const Shape64 *s, int64_t n, const double *w, const Kept *c)
{
    const Groups g = groups_of(s, n);
    for (int64_t r = 0; r < g.count; r++) {
        const double *o = c->o + r * g.width, *gate = c->gate + r * g.width,
                     *of = w ? w + r % g.weights * g.width : NULL, rstd = rstd_of(s, &g, o, gate);
        for (int j = 0; j < g.width; j++)
            c->y[r * g.width + j] = normed(s, o[j], gate[j]) * rstd * (of ? of[j] : 1) *
                                    (s->scan.before ? 1 : silu(gate[j]));
    }
}

static void gated_norm_back(const Shape64 *s, int64_t n, const double *w, const Kept *c, const double *dy,
                            double *d_o, double *d_gate, double *dw)
{
    const Groups g = groups_of(s, n);
    const bool before = s->scan.before;
    for (int64_t i = 0; i < n * s->scan.heads * s->scan.value_dim && !w; i++) { /* the gate alone */
        d_o[i] = dy[i] * silu(c->gate[i]);
        d_gate[i] = dy[i] * c->o[i] * silu_slope(c->gate[i]);
    }
    for (int64_t r = 0; r < g.count && w; r++) {
        const int64_t at = r * g.width, of = r % g.weights * g.width;
        const double *o = c->o + at, *gate = c->gate + at, rstd = rstd_of(s, &g, o, gate);
        double dot = 0;
        for (int j = 0; j < g.width; j++) {
            const double x = normed(s, o[j], gate[j]), by = before ? 1 : silu(gate[j]);
            dw[of + j] += dy[at + j] * x * rstd * by;
            dot += dy[at + j] * by * w[of + j] * x;
        }
        for (int j = 0; j < g.width; j++) {
            const double x = normed(s, o[j], gate[j]), by = before ? 1 : silu(gate[j]);
            const double d = rstd * (dy[at + j] * by * w[of + j] - x * rstd * rstd * dot / g.width);
            d_o[at + j] = before ? d * silu(gate[j]) : d;
            d_gate[at + j] = silu_slope(gate[j]) * (before ? d * o[j] : dy[at + j] * x * rstd * w[of + j]);
        }
    }
}

static Kept forward(const Shape64 *s, int64_t n, const double *x, const Scan64Weights *w)
{
    const Sizes z = sizes_of(s);
    const Kept c = kept_new(s, n);
    product(n, s->hidden, z.columns, x, w->qkv, c.raw);
    product(n, s->hidden, z.values, x, w->z, c.gate);
    if (!s->scan.plain)
        product(n, s->hidden, z.heads, x, w->b, c.b);
    product(n, s->hidden, z.heads, x, w->a, c.a);
    round64(n * z.columns, c.raw), round64(n * z.values, c.gate);
    round64(n * z.heads, c.a), round64(n * z.heads, c.b);
    convolve(s, n, w->conv, w->conv_bias, &c);
    round64(n * z.columns, c.act);
    scan(s, n, w, &c);
    if (rounds64)
        round_outputs(s, n, w, &c);
    round64(n * z.values, c.o);
    gated_norm(s, n, w->norm, &c);
    round64(n * z.values, c.y);
    return c;
}

void scan64_forward(const Shape64 *s, int64_t n, const double *x, const Scan64Weights *w, double *y)
{
    Kept c = forward(s, n, x, w);
    product(n, sizes_of(s).values, s->hidden, c.y, w->out, y);
    round64(n * s->hidden, y);
    kept_free(&c);
}

void scan64_backward(const Shape64 *s, int64_t n, const double *x, const Scan64Weights *w, const double *dy,
                     double *dx, const Scan64Weights *dw)
{
    const Sizes z = sizes_of(s);
    Kept c = forward(s, n, x, w), d = kept_new(s, n);
    product_back(n, z.values, s->hidden, c.y, w->out, dy, d.y, dw->out);
    round64(n * z.values, d.y);
    gated_norm_back(s, n, w->norm, &c, d.y, d.o, d.gate, dw->norm);
    round64(n * z.values, d.o), round64(n * z.values, d.gate);
    for (int head = 0; head < z.heads; head++) {
        double *later = new64(z.dk * z.dv);
        for (int64_t t = n - 1; t >= 0; t--)
            token_back(s, w, &c, t, head, d.o + t * z.values + head * z.dv, later, d.act, d.b, d.a, dw);
        free(later);
    }
    round64(n * z.columns, d.act), round64(n * z.heads, d.a), round64(n * z.heads, d.b);
    convolve_back(s, n, w->conv, &c, d.act, d.raw, dw->conv, dw->conv_bias);
    round64(n * z.columns, d.raw);
    product_back(n, s->hidden, z.columns, x, w->qkv, d.raw, dx, dw->qkv);
    product_back(n, s->hidden, z.values, x, w->z, d.gate, dx, dw->z);
    if (!s->scan.plain)
        product_back(n, s->hidden, z.heads, x, w->b, d.b, dx, dw->b);
    product_back(n, s->hidden, z.heads, x, w->a, d.a, dx, dw->a);
    round64(n * s->hidden, dx);
    kept_free(&c), kept_free(&d);
}
