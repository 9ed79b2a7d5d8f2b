/* executor_ops.c: what a rank computes, each operation from its definition. */
#include "executor_machine.h"

#include "dot64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations, of x and w to y; all arrays token-major ---- */

static void linear(Machine *m, int64_t in, int64_t out, const double *w, const double *add)
{
    for (int64_t t = 0; t < m->n; t++)
        for (int64_t o = 0; o < out; o++)
            m->y[0][t * out + o] = (add ? add[t * out + o] : 0) +
                                   dot64(in, m->x[0] + t * in, w + o * m->row);
}

static void add_scaled(int64_t n, double *restrict y, double by, const double *restrict x)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += by * x[i];
}

static void linear_dx(Machine *m, int64_t in, int64_t out, const double *w, bool adds)
{
    if (!adds)
        memset(m->y[0], 0, sizeof(double) * (size_t)(m->n * in));
    for (int64_t t = 0; t < m->n; t++)
        for (int64_t o = 0; o < out; o++)
            add_scaled(in, m->y[0] + t * in, m->x[0][t * out + o], w + o * m->row);
}

static void linear_dw(Machine *m, int64_t in, int64_t out, double *dw)
{
    for (int64_t t = 0; t < m->n; t++)
        for (int64_t o = 0; o < out; o++)
            add_scaled(in, dw + o * m->row, m->x[0][t * out + o], m->x[1] + t * in);
}

static const StepOp *now(const Machine *m) { return &m->run->flow->op[m->t]; }
static bool goes_on(const Machine *m) { return now(m)->turn[LOOP_KEYS] > 0; } /* keys came before these */

static bool of_latent(const Machine *m)
{
    const Dim d = m->step->values.at[now(m)->op->read[0].value].dim[1];
    return d == DIM_LATENT || d == DIM_QUERY_LATENT;
}

/* Elements of a row that ranks share, on all of them. */
static double shared_elements(const Machine *m, int64_t h) { return (double)h * m->ranks; }

/* A rank's share of the mean of squares of rows that ranks share. */
static void squares(Machine *m)
{
    const int64_t h = m->n ? m->nx[0] / m->n : 0;
    for (int64_t t = 0; t < m->n; t++) {
        m->y[0][t] = 0;
        for (int i = 0; i < h; i++)
            m->y[0][t] += m->x[0][t * h + i] * m->x[0][t * h + i] / shared_elements(m, h);
    }
}

static void squares_back(Machine *m, bool adds)
{
    const int64_t h = m->n ? m->nx[0] / m->n : 1;
    for (int64_t i = 0; i < m->nx[0]; i++)
        m->y[0][i] = (adds ? m->y[0][i] : 0) + 2 * m->x[0][i] * m->x[1][i / h] / shared_elements(m, h);
}

static bool is_activation(const Machine *m, Operand x)
{
    return x.value >= 0 && m->step->values.at[x.value].kind == VALUE_ACTIVATION;
}

static bool is_gradient(const Machine *m, Operand x)
{
    return x.value >= 0 && m->step->values.at[x.value].kind == VALUE_GRADIENT;
}

/* Rows as wide as the weights: tokens, or their heads; or a rank's part of rows whose mean of squares is
 * the second operand. */
static void norm(Machine *m, int64_t h, const double *w)
{
    const bool part = is_activation(m, now(m)->op->read[1]);
    for (int64_t t = 0; t < m->nx[0] / h; t++) {
        double sum = 0;
        for (int i = 0; i < h; i++)
            sum += m->x[0][t * h + i] * m->x[0][t * h + i];
        const double square = part ? m->x[1][t] : sum / (double)h;
        m->y[1][t] = 1 / sqrt(square + (of_latent(m) ? 1e-6 : m->m->norm_eps));
        for (int i = 0; i < h; i++)
            m->y[0][t * h + i] = m->x[0][t * h + i] * m->y[1][t] * w[i];
    }
}

/* x, rstd, dy to dx and dw; of a part of rows also to the gradient of their mean of squares. */
static void norm_back(Machine *m, int64_t h, const double *w, double *dw, bool adds)
{
    const bool part = is_gradient(m, now(m)->op->write[1]);
    for (int64_t t = 0; t < m->nx[0] / h; t++) {
        const double *x = m->x[0] + t * h, r = m->x[1][t], *dy = m->x[2] + t * h;
        double along = 0;
        for (int i = 0; i < h; i++) {
            along += dy[i] * w[i] * x[i];
            dw[i] += dy[i] * x[i] * r;
        }
        if (part)
            m->y[1][t] = -r * r * r * along / 2;
        along = part ? 0 : along;
        for (int i = 0; i < h; i++)
            m->y[0][t * h + i] = (adds ? m->y[0][t * h + i] : 0) + r * dy[i] * w[i] -
                                 r * r * r * along / (double)h * x[i];
    }
}

static void bias(Machine *m, int64_t width, const double *w)
{
    for (int64_t i = 0; i < m->ny[0]; i++)
        m->y[0][i] = m->x[0][i] + w[i % width];
}

static void bias_back(Machine *m, int64_t width, double *dw)
{
    for (int64_t i = 0; i < m->nx[0]; i++)
        dw[i % width] += m->x[0][i];
}

/* All elements of a head, or those that heads share, its last ones. */
static void rope(Machine *m, double turn)
{
    const int d = m->m->head_dim, turns = m->m->shared ? m->m->shared : d, half = turns / 2;
    memmove(m->y[0], m->x[0], (size_t)m->ny[0] * sizeof(double));
    for (int64_t head = 0; head + d <= m->ny[0]; head += d)
        for (int i = 0; i < half; i++) {
            const int64_t token = m->first + head / (m->ny[0] / m->n), at = head + d - turns + i;
            const double angle = turn * (double)token * pow(m->m->rope.theta, -2.0 * i / turns);
            const double a = m->y[0][at], b = m->y[0][at + half];
            m->y[0][at] = a * cos(angle) - b * sin(angle);
            m->y[0][at + half] = a * sin(angle) + b * cos(angle);
        }
}

/* Each head's own elements, and those that all share. */
static void join(Machine *m)
{
    const int d = m->m->head_dim, shared = m->m->shared, own = d - shared,
              heads = m->n ? (int)(m->ny[0] / m->n / d) : 0;
    for (int64_t i = 0; i < m->n * heads; i++) {
        memcpy(m->y[0] + i * d, m->x[0] + i * own, (size_t)own * sizeof(double));
        memcpy(m->y[0] + i * d + own, m->x[1] + i / heads * shared, (size_t)shared * sizeof(double));
    }
}

static void join_back(Machine *m, bool adds)
{
    const int d = m->m->head_dim, shared = m->m->shared, own = d - shared,
              heads = m->n ? (int)(m->nx[0] / m->n / d) : 0;
    memset(m->y[1], 0, adds ? 0 : (size_t)(m->n * shared) * sizeof(double));
    for (int64_t i = 0; i < m->n * heads; i++) {
        memcpy(m->y[0] + i * own, m->x[0] + i * d, (size_t)own * sizeof(double));
        for (int j = 0; j < shared; j++)
            m->y[1][i / heads * shared + j] += m->x[0][i * d + own + j];
    }
}

/* Rows of queries and of their keys: head h of token t. */
static int64_t q_row(const Machine *m, int64_t t, int h) { return (t * m->heads.heads + h) * m->m->head_dim; }
static int64_t k_row(const Machine *m, int64_t t, int h)
{
    return (t * m->heads.kv_heads + h / (m->heads.heads / m->heads.kv_heads)) * m->m->head_dim;
}

/* The same of outputs and of values. */
static int64_t o_row(const Machine *m, int64_t t, int h)
{
    return q_row(m, t, h) / m->m->head_dim * m->m->value_dim;
}
static int64_t v_row(const Machine *m, int64_t t, int h)
{
    return k_row(m, t, h) / m->m->head_dim * m->m->value_dim;
}

/* What attention has of keys from its first chunk of queries on, its output i, or of queries from their
 * first chunk of keys on: later chunks are wrong where it is not as that left it. */
static void find_keys(const Machine *m, int i)
{
    const double mark = 0.5;
    const bool stays = is_of_keys(m, now(m)->op) || step_value(m->step, "attention_keys") >= 0;
    for (int64_t k = 0; stays && k < m->ny[i]; k++)
        if (is_of_keys(m, now(m)->op) ? !goes_on(m) : m->first == 0)
            m->y[i][k] = mark;
        else if (m->y[i][k] != mark)
            m->y[0][0] = NAN;
}

/* Of the keys that are there those that query q sees: the end of them. */
static int64_t keys_end(const Machine *m, int64_t q)
{
    const int64_t seen = m->first + q + 1 - m->key_first;
    return seen < m->key_n ? seen : m->key_n;
}

/* Where keys and values travel as latents, every other token is another rank's: its key's own elements and
 * its value are the rank's no more, but are made of its latent here. */
static bool arrives(int64_t k) { return k % 2; }

typedef struct Latents {
    const double *x, *key, *value; /* latent, weights of both */
    double *dx, *d_key, *d_value;  /* NULL in forward */
    int own, shared, latent;
} Latents;

static Latents latents_of(const Machine *m, const double *x, double *dx, const double *w, double *dw)
{
    const int own = m->m->head_dim - m->m->shared, latent = m->m->latent;
    const int64_t values = (int64_t)m->heads.kv_heads * own * latent;
    return (Latents){x, w, w + values, dx, dw, dw ? dw + values : NULL, own, m->m->shared, latent};
}

/* Of a copy of keys and values those of tokens that arrive. */
static void expand(const Machine *m, const Latents *l, double *k, double *v)
{
    for (int64_t t = 0; t < m->n; t++)
        for (int h = 0; h < m->heads.kv_heads && arrives(t); h++) {
            double *key = k + k_row(m, t, h), *value = v + v_row(m, t, h);
            for (int i = 0; i < l->own; i++)
                key[i] = dot64(l->latent, l->x + t * l->latent, l->key + (h * l->own + i) * l->latent);
            for (int i = 0; i < l->shared; i++) /* of the first head */
                key[l->own + i] = k[k_row(m, t, 0) + l->own + i];
            for (int i = 0; i < m->m->value_dim; i++)
                value[i] = dot64(l->latent, l->x + t * l->latent,
                                 l->value + (h * m->m->value_dim + i) * l->latent);
        }
}

/* A gradient that reaches one element of a key or value, to its row of the weights and the latent. */
static void contract_one(const Latents *l, int64_t t, const double *w, double *dw, double *d)
{
    for (int i = 0; i < l->latent; i++) {
        l->dx[t * l->latent + i] += *d * w[i];
        dw[i] += *d * l->x[t * l->latent + i];
    }
    *d = 0;
}

/* Gradients of what arrived leave dk and dv: the shared elements' are those of the first head. */
static void contract(const Machine *m, const Latents *l, double *dk, double *dv)
{
    const int e = m->m->value_dim;
    for (int64_t t = 0; t < m->n; t++)
        for (int h = 0; h < m->heads.kv_heads && arrives(t); h++) {
            double *key = dk + k_row(m, t, h), *value = dv + v_row(m, t, h);
            for (int i = 0; i < l->own; i++)
                contract_one(l, t, l->key + (h * l->own + i) * l->latent,
                             l->d_key + (h * l->own + i) * l->latent, &key[i]);
            for (int i = 0; i < e; i++)
                contract_one(l, t, l->value + (h * e + i) * l->latent, l->d_value + (h * e + i) * l->latent,
                             &value[i]);
            for (int i = 0; i < l->shared && h; i++) {
                dk[k_row(m, t, 0) + l->own + i] += key[l->own + i];
                key[l->own + i] = 0;
            }
        }
}

static double *copied(const double *x, int64_t n)
{
    double *copy = malloc((size_t)n * sizeof *copy);
    return memcpy(copy, x, (size_t)n * sizeof *copy);
}

/* Runs attention, forward or backward, with keys and values that arrived. */
static void with_latents(Machine *m, const Latents *l, void (*run)(Machine *m))
{
    double *k = m->x[1], *v = m->x[2];
    m->x[1] = copied(k, m->nx[1]);
    m->x[2] = copied(v, m->nx[2]);
    expand(m, l, m->x[1], m->x[2]);
    run(m);
    free(m->x[1]);
    free(m->x[2]);
    m->x[1] = k;
    m->x[2] = v;
}

/* Causal; q, k, v to o and lse of the first queries, beside those of keys before. */
static void attention(Machine *m, int64_t queries)
{
    const int d = m->m->head_dim, e = m->m->value_dim;
    for (int h = 0; h < m->heads.heads; h++)
        for (int64_t q = 0; q < queries; q++) {
            double *o = m->y[0] + o_row(m, q, h), sum = goes_on(m) ? exp(m->y[1][h * m->n + q]) : 0;
            for (int i = 0; i < e; i++)
                o[i] = sum > 0 ? sum * o[i] : 0;
            for (int64_t k = 0; k < keys_end(m, q); k++) {
                const double p = exp(dot64(d, m->x[0] + q_row(m, q, h), m->x[1] + k_row(m, k, h)) / sqrt(d));
                sum += p;
                for (int i = 0; i < e; i++)
                    o[i] += p * m->x[2][v_row(m, k, h) + i];
            }
            for (int i = 0; i < e; i++)
                o[i] = sum > 0 ? o[i] / sum : 0;
            m->y[1][h * m->n + q] = log(sum);
        }
}

/* One at least is not kept. */
static int64_t kept_tokens(const Machine *m) { return m->step->tail < m->n ? m->step->tail : m->n - 1; }

/* Of o and lse the rows of the last tokens. */
static void keep(Machine *m)
{
    const int64_t kept = kept_tokens(m), first = m->n - kept, row = (int64_t)m->heads.heads * m->m->value_dim;
    memcpy(m->y[0], m->x[0] + first * row, (size_t)(kept * row) * sizeof(double));
    for (int h = 0; h < m->heads.heads; h++)
        memcpy(m->y[1] + h * m->step->tail, m->x[1] + h * m->n + first, (size_t)kept * sizeof(double));
}

/* q, k, v and what was kept to o and lse. */
static void attention_rest(Machine *m)
{
    const int64_t kept = kept_tokens(m), first = m->n - kept, row = (int64_t)m->heads.heads * m->m->value_dim;
    attention(m, first);
    memcpy(m->y[0] + first * row, m->x[3], (size_t)(kept * row) * sizeof(double));
    for (int h = 0; h < m->heads.heads; h++)
        memcpy(m->y[1] + h * m->n + first, m->x[4] + h * m->step->tail, (size_t)kept * sizeof(double));
}

/* q, k, v, lse, d_o, delta to dq, dk, dv. */
static void attention_back(Machine *m)
{
    const int d = m->m->head_dim, e = m->m->value_dim;
    const bool keys = is_of_keys(m, now(m)->op),
               adds[] = {keys && goes_on(m), keys ? step_begun(m->step, now(m)) : m->first > 0};
    for (int i = 0; i < 3; i++) /* a chunk of queries adds to what those before it have added for keys */
        memset(m->y[i], 0, adds[i > 0] ? 0 : (size_t)m->ny[i] * sizeof(double));
    for (int h = 0; h < m->heads.heads; h++)
        for (int64_t q = 0; q < m->n; q++)
            for (int64_t k = 0; k < keys_end(m, q); k++) {
                const int64_t a = q_row(m, q, h), b = k_row(m, k, h);
                const double *d_o = m->x[4] + o_row(m, q, h);
                const double p = exp(dot64(d, m->x[0] + a, m->x[1] + b) / sqrt(d) - m->x[3][h * m->n + q]);
                const double ds = p * (dot64(e, d_o, m->x[2] + v_row(m, k, h)) - m->x[5][h * m->n + q]) /
                                  sqrt(d);
                for (int i = 0; i < d; i++) {
                    m->y[0][a + i] += ds * m->x[1][b + i];
                    m->y[1][b + i] += ds * m->x[0][a + i];
                }
                for (int i = 0; i < e; i++)
                    m->y[2][v_row(m, k, h) + i] += p * d_o[i];
            }
}

/* The weight that keys have beside the head's sink. */
static double keep_of(const double *sink, const double *lse, const Machine *m, int64_t t, int h)
{
    return 1 / (1 + exp(sink[h] - lse[h * m->n + t]));
}

/* o and lse to what the sink leaves of o. */
static void sink(Machine *m, const double *w)
{
    for (int h = 0; h < m->heads.heads; h++)
        for (int64_t t = 0; t < m->n; t++)
            for (int i = 0; i < m->m->value_dim; i++)
                m->y[0][o_row(m, t, h) + i] = m->x[0][o_row(m, t, h) + i] * keep_of(w, m->x[1], m, t, h);
}

/* d_out, o, lse to d_o and d_lse; dw. */
static void sink_back(Machine *m, const double *w, double *dw)
{
    for (int h = 0; h < m->heads.heads; h++)
        for (int64_t t = 0; t < m->n; t++) {
            const double keep = keep_of(w, m->x[2], m, t, h);
            const double slope = keep * (1 - keep) *
                                 dot64(m->m->value_dim, m->x[0] + o_row(m, t, h), m->x[1] + o_row(m, t, h));
            for (int i = 0; i < m->m->value_dim; i++)
                m->y[0][o_row(m, t, h) + i] = m->x[0][o_row(m, t, h) + i] * keep;
            m->y[1][h * m->n + t] = slope;
            dw[h] -= slope;
        }
}

/* o, d_o and the gradient of lse, where it has one, to delta. */
static void delta(Machine *m, bool lse)
{
    for (int h = 0; h < m->heads.heads; h++)
        for (int64_t t = 0; t < m->n; t++)
            m->y[0][h * m->n + t] = dot64(m->m->value_dim, m->x[0] + o_row(m, t, h),
                                          m->x[1] + o_row(m, t, h)) -
                                    (lse ? m->x[2][h * m->n + t] : 0);
}

/* Gate and up of a token side by side. */
static void swiglu(Machine *m)
{
    for (int64_t i = 0; i < m->ny[0]; i++) {
        const double *gate = m->x[0] + i + i / m->step->shape.ffn * m->step->shape.ffn;
        m->y[0][i] = gate[0] / (1 + exp(-gate[0])) * gate[m->step->shape.ffn];
    }
}

static void swiglu_back(Machine *m)
{
    for (int64_t i = 0; i < m->nx[1]; i++) {
        const int64_t at = i + i / m->step->shape.ffn * m->step->shape.ffn, up = at + m->step->shape.ffn;
        const double g = m->x[0][at], sigmoid = 1 / (1 + exp(-g));
        m->y[0][at] = m->x[1][i] * m->x[0][up] * sigmoid * (1 + g * (1 - sigmoid));
        m->y[0][up] = m->x[1][i] * g * sigmoid;
    }
}

int64_t first_own(const Machine *m, int rank)
{
    const int64_t first = rank * m->step->tokens;
    return first < m->run->tokens ? first : m->run->tokens;
}

int64_t own_tokens(const Machine *m, int rank) { return first_own(m, rank + 1) - first_own(m, rank); }

/* Of the batch. */
static int64_t row(const Machine *m, int64_t t)
{
    return m->sequence * m->run->tokens + first_own(m, m->rank) + m->first + t;
}

/* h, labels, weights to dh; dw. */
static void loss(Machine *m, const double *w, double *dw)
{
    const int h = m->m->hidden, vocab = m->m->vocab;
    double *p = calloc((size_t)vocab, sizeof *p);
    memset(m->y[0], 0, (size_t)m->ny[0] * sizeof(double));
    for (int64_t t = 0; t < m->n; t++) {
        const double *x = m->x[0] + t * h, weight = m->run->label_weight[row(m, t)];
        double sum = 0;
        for (int i = 0; i < vocab; i++)
            sum += p[i] = exp(dot64(h, x, w + (int64_t)i * h));
        m->run->loss -= weight * log(p[m->run->label[row(m, t)]] / sum);
        for (int i = 0; i < vocab; i++) {
            const double dl = m->run->scale * weight * (p[i] / sum - (i == m->run->label[row(m, t)]));
            for (int j = 0; j < h; j++) {
                m->y[0][t * h + j] += dl * w[(int64_t)i * h + j];
                dw[(int64_t)i * h + j] += dl * x[j];
            }
        }
    }
    free(p);
}

/* The loss without gradients. */
static void evaluate(Machine *m, const double *w)
{
    const int h = m->m->hidden, vocab = m->m->vocab;
    for (int64_t t = 0; t < m->n; t++) {
        const double *x = m->x[0] + t * h;
        double sum = 0;
        for (int i = 0; i < vocab; i++)
            sum += exp(dot64(h, x, w + (int64_t)i * h));
        m->run->loss += m->run->label_weight[row(m, t)] *
                        (log(sum) - dot64(h, x, w + (int64_t)m->run->label[row(m, t)] * h));
    }
}

static void embed(Machine *m, const double *table)
{
    const int h = m->m->hidden;
    for (int64_t t = 0; t < m->n; t++)
        memcpy(m->y[0] + t * h, table + (int64_t)m->run->token[row(m, t)] * h, (size_t)h * sizeof(double));
}

static void embed_back(Machine *m, double *dtable)
{
    const int h = m->m->hidden;
    for (int64_t t = 0; t < m->n; t++)
        for (int i = 0; i < h; i++)
            dtable[(int64_t)m->run->token[row(m, t)] * h + i] += m->x[1][t * h + i];
}

static void attention_of_all(Machine *m) { attention(m, m->n); }

static void latent_attention(Machine *m, const double *w)
{
    const Latents l = latents_of(m, m->x[3], NULL, w, NULL);
    with_latents(m, &l, attention_of_all);
}

static void latent_attention_back(Machine *m, const double *w, double *dw)
{
    const Latents l = latents_of(m, m->x[6], m->y[3], w, dw);
    memset(m->y[3], 0, (size_t)m->ny[3] * sizeof(double));
    with_latents(m, &l, attention_back);
    contract(m, &l, m->y[1], m->y[2]);
}

bool compute(Machine *m, const Op *o, int64_t in, int64_t out, const double *w, double *dw)
{
    const bool has_residual = o->read[1].value >= 0 &&
                              m->step->values.at[o->read[1].value].kind == VALUE_ACTIVATION;
    const double *residual = has_residual ? m->x[1] : NULL;
    switch (o->kind) {
    case OP_EMBED: embed(m, w); break;
    case OP_NORM: norm(m, in, w); break;
    case OP_SQUARES: squares(m); break;
    case OP_SQUARES_BACK: squares_back(m, m->adds); break;
    case OP_LINEAR: linear(m, in, out, w, m->adds ? m->y[0] : residual); break;
    case OP_BIAS: bias(m, in, w); break;
    case OP_BIAS_BACK: bias_back(m, in, dw); break;
    case OP_ROPE:
    case OP_ROTATE: rope(m, 1); break;
    case OP_ROPE_BACK:
    case OP_ROTATE_BACK: rope(m, -1); break;
    case OP_LAYOUT:
    case OP_LAYOUT_BACK: memcpy(m->y[0], m->x[0], (size_t)m->ny[0] * sizeof(double)); break;
    case OP_JOIN: join(m); break;
    case OP_JOIN_BACK: join_back(m, m->adds); break;
    case OP_ATTENTION:
        if (o->weight)
            latent_attention(m, w);
        else
            attention(m, m->n), find_keys(m, 2);
        break;
    case OP_KEEP: keep(m); break;
    case OP_ATTENTION_REST: attention_rest(m); break;
    case OP_SWIGLU: swiglu(m); break;
    case OP_EVALUATE: evaluate(m, w); break;
    case OP_LOSS: loss(m, w, dw); break;
    case OP_EMBED_BACK: embed_back(m, dw); break;
    case OP_NORM_BACK: norm_back(m, in, w, dw, m->adds); break;
    case OP_LINEAR_DW: linear_dw(m, in, out, dw); break;
    case OP_LINEAR_DX: linear_dx(m, in, out, w, m->adds); break;
    case OP_SWIGLU_BACK: swiglu_back(m); break;
    case OP_DELTA: delta(m, o->read[2].value >= 0); break;
    case OP_SINK: sink(m, w); break;
    case OP_SINK_BACK: sink_back(m, w, dw); break;
    case OP_ATTENTION_BACK:
        if (o->weight)
            latent_attention_back(m, w, dw);
        else
            attention_back(m), find_keys(m, 3);
        break;
    default: return false;
    }
    return true;
}
