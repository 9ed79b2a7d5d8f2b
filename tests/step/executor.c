/* executor.c: see executor.h. Each operation is written here from its definition; nothing of the compiler's analysis is
 * used but the list of operations, and the items with their places.
 *
 * A byte of the plan is two doubles here, so that an element of any type has room for one.
 */
#include "executor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PER_BYTE = 2 };

typedef struct Machine {
    Run *run;
    const Step *step;
    const Model *m;
    double *arena;
    int64_t bytes, n;
    int t;         /* the operation */
    double *x[OP_READS], *y[OP_WRITES]; /* operands, copied out of the arena */
    int64_t nx[OP_READS], ny[OP_WRITES];
    int *queue, queued, begun; /* operations of the weights' stream, by their numbers; those before begun are done */
    int sequence;              /* of the operation at t */
    bool lost;
} Machine;

/* ---- operands ---- */

static int64_t element_size(const Machine *m, const Value *v)
{
    return v->element == EL_BYTE ? 1 : v->element == EL_ACTIVATION && m->step->program->target == &targets[TARGET_CUDA] ? 2 : 4;
}

static int visited_unit(const Machine *m, int visit)
{
    const int head = m->m->layers + 1;
    return visit <= head ? visit : 2 * head - visit;
}

static int value_index(const Machine *m, const Value *v, int next)
{
    const StepOp *o = &m->run->flow->op[m->t];
    switch (v->index) {
    case INDEX_LAYER:
    case INDEX_BOUNDARY: return o->layer + next;
    case INDEX_VISIT: return o->visit + next;
    case INDEX_UNIT: return o->op->embedding ? 0 : next ? visited_unit(m, o->visit + next) : o->unit;
    default: return 0;
    }
}

/* Some operations work in place, some of them on a device alone: the other value's item serves where a value has none. */
static int partner(const Machine *m, int value)
{
    const bool sinks = m->m->sinks;
    const char *const pairs[][2] = {{"gate_up", "d_gate_up"}, {"q_flat", "q"}, {"k_flat", "k"}, {"v_flat", "v"},
                                    {"o_flat", sinks ? "o_sink" : "o"}, {"d_o_flat", sinks ? "d_o_sink" : "d_o"}};
    const char *name = m->step->values.at[value].name;
    for (int i = 0; i < (m->step->program->target == &targets[TARGET_CUDA] ? countof(pairs) : 1); i++)
        for (int j = 0; j < 2; j++)
            if (strcmp(name, pairs[i][j]) == 0)
                return step_value(m->step, pairs[i][!j]);
    return value;
}

static const Item *item_of(const Machine *m, int value, int index)
{
    const Flow *f = m->run->flow;
    const Item *all = NULL;
    for (int i = 0; i < f->items; i++) {
        if (f->item[i].value == value && f->item[i].index == index)
            return &f->item[i];
        if (f->item[i].value == value && f->item[i].index < 0)
            all = &f->item[i];
    }
    return all;
}

static const Item *find_item(Machine *m, Operand x)
{
    const int index = value_index(m, &m->step->values.at[x.value], x.next);
    const Item *i = item_of(m, x.value, index);
    const int other = partner(m, x.value);
    if (!i && m->step->values.at[other].dim[0] == m->step->values.at[x.value].dim[0])
        i = item_of(m, other, index);
    m->lost |= !i;
    return i;
}

static double *place(const Machine *m, const Item *i, int64_t size, int64_t element)
{
    return m->arena + PER_BYTE * (i->offset + element * size);
}

static double *copy_out(Machine *m, Operand x, int64_t *n)
{
    const Value *v = &m->step->values.at[x.value];
    const int64_t size = element_size(m, v);
    const Item *i = v->kind == VALUE_INPUT ? NULL : find_item(m, x);
    *n = i ? i->bytes / size : 0;
    double *copy = calloc((size_t)*n + 1, sizeof *copy);
    m->lost |= !i && v->kind != VALUE_INPUT;
    for (int64_t j = 0; j < *n; j++)
        copy[j] = *place(m, i, size, j);
    return copy;
}

static void copy_in(Machine *m, Operand x, const double *copy, int64_t n)
{
    const int64_t size = element_size(m, &m->step->values.at[x.value]);
    const Item *i = find_item(m, x);
    for (int64_t j = 0; i && j < n; j++)
        *place(m, i, size, j) = copy[j];
}

/* ---- operations, of x and w to y; all arrays token-major ---- */

static void linear(Machine *m, int64_t in, int64_t out, const double *w, const double *add)
{
    for (int64_t t = 0; t < m->n; t++)
        for (int64_t o = 0; o < out; o++) {
            double sum = add ? add[t * out + o] : 0;
            for (int64_t i = 0; i < in; i++)
                sum += m->x[0][t * in + i] * w[o * in + i];
            m->y[0][t * out + o] = sum;
        }
}

static void linear_dx(Machine *m, int64_t in, int64_t out, const double *w, bool adds)
{
    for (int64_t t = 0; t < m->n; t++)
        for (int64_t i = 0; i < in; i++) {
            double sum = adds ? m->y[0][t * in + i] : 0;
            for (int64_t o = 0; o < out; o++)
                sum += m->x[0][t * out + o] * w[o * in + i];
            m->y[0][t * in + i] = sum;
        }
}

static void linear_dw(Machine *m, int64_t in, int64_t out, double *dw)
{
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t t = 0; t < m->n; t++)
                dw[o * in + i] += m->x[0][t * out + o] * m->x[1][t * in + i];
}

/* Rows as wide as the weights: tokens, or their heads. */
static void norm(Machine *m, int64_t h, const double *w)
{
    for (int64_t t = 0; t < m->nx[0] / h; t++) {
        double sum = 0;
        for (int i = 0; i < h; i++)
            sum += m->x[0][t * h + i] * m->x[0][t * h + i];
        m->y[1][t] = 1 / sqrt(sum / (double)h + m->m->norm_eps);
        for (int i = 0; i < h; i++)
            m->y[0][t * h + i] = m->x[0][t * h + i] * m->y[1][t] * w[i];
    }
}

/* x, rstd, dy to dx and dw. */
static void norm_back(Machine *m, int64_t h, const double *w, double *dw, bool adds)
{
    for (int64_t t = 0; t < m->nx[0] / h; t++) {
        const double *x = m->x[0] + t * h, r = m->x[1][t], *dy = m->x[2] + t * h;
        double along = 0;
        for (int i = 0; i < h; i++) {
            along += dy[i] * w[i] * x[i];
            dw[i] += dy[i] * x[i] * r;
        }
        for (int i = 0; i < h; i++)
            m->y[0][t * h + i] = (adds ? m->y[0][t * h + i] : 0) + r * dy[i] * w[i] - r * r * r * along / (double)h * x[i];
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

static void rope(Machine *m, double turn)
{
    const int d = m->m->head_dim, half = d / 2;
    for (int64_t at = 0; at + d <= m->ny[0]; at += d)
        for (int i = 0; i < half; i++) {
            const int64_t token = at / (m->ny[0] / m->n);
            const double angle = turn * (double)token * pow(m->m->rope_theta, -2.0 * i / d);
            const double a = m->x[0][at + i], b = m->x[0][at + half + i];
            m->y[0][at + i] = a * cos(angle) - b * sin(angle);
            m->y[0][at + half + i] = a * sin(angle) + b * cos(angle);
        }
}

/* Rows of queries and of their keys: head h of token t. */
static int64_t q_row(const Machine *m, int64_t t, int h) { return (t * m->m->heads + h) * m->m->head_dim; }
static int64_t k_row(const Machine *m, int64_t t, int h)
{
    return (t * m->m->kv_heads + h / (m->m->heads / m->m->kv_heads)) * m->m->head_dim;
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Causal; q, k, v to o and lse of the first queries. */
static void attention(Machine *m, int64_t queries)
{
    const int d = m->m->head_dim;
    for (int h = 0; h < m->m->heads; h++)
        for (int64_t q = 0; q < queries; q++) {
            double sum = 0, *o = m->y[0] + q_row(m, q, h);
            memset(o, 0, (size_t)d * sizeof *o);
            for (int64_t k = 0; k <= q; k++) {
                const double p = exp(dot(m->x[0] + q_row(m, q, h), m->x[1] + k_row(m, k, h), d) / sqrt(d));
                sum += p;
                for (int i = 0; i < d; i++)
                    o[i] += p * m->x[2][k_row(m, k, h) + i];
            }
            for (int i = 0; i < d; i++)
                o[i] /= sum;
            m->y[1][h * m->n + q] = log(sum);
        }
}

/* Of o and lse the rows of the last tokens. */
static void keep(Machine *m)
{
    const int64_t tail = m->step->tail, first = m->n - tail, row = (int64_t)m->m->heads * m->m->head_dim;
    memcpy(m->y[0], m->x[0] + first * row, (size_t)(tail * row) * sizeof(double));
    for (int h = 0; h < m->m->heads; h++)
        memcpy(m->y[1] + h * tail, m->x[1] + h * m->n + first, (size_t)tail * sizeof(double));
}

/* q, k, v and what was kept to o and lse. */
static void attention_rest(Machine *m)
{
    const int64_t tail = m->step->tail, first = m->n - tail, row = (int64_t)m->m->heads * m->m->head_dim;
    attention(m, first);
    memcpy(m->y[0] + first * row, m->x[3], (size_t)(tail * row) * sizeof(double));
    for (int h = 0; h < m->m->heads; h++)
        memcpy(m->y[1] + h * m->n + first, m->x[4] + h * tail, (size_t)tail * sizeof(double));
}

/* q, k, v, lse, d_o, delta to dq, dk, dv. */
static void attention_back(Machine *m)
{
    const int d = m->m->head_dim;
    for (int i = 0; i < 3; i++)
        memset(m->y[i], 0, (size_t)m->ny[i] * sizeof(double));
    for (int h = 0; h < m->m->heads; h++)
        for (int64_t q = 0; q < m->n; q++)
            for (int64_t k = 0; k <= q; k++) {
                const int64_t a = q_row(m, q, h), b = k_row(m, k, h);
                const double p = exp(dot(m->x[0] + a, m->x[1] + b, d) / sqrt(d) - m->x[3][h * m->n + q]);
                const double ds = p * (dot(m->x[4] + a, m->x[2] + b, d) - m->x[5][h * m->n + q]) / sqrt(d);
                for (int i = 0; i < d; i++) {
                    m->y[0][a + i] += ds * m->x[1][b + i];
                    m->y[1][b + i] += ds * m->x[0][a + i];
                    m->y[2][b + i] += p * m->x[4][a + i];
                }
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
    for (int h = 0; h < m->m->heads; h++)
        for (int64_t t = 0; t < m->n; t++)
            for (int i = 0; i < m->m->head_dim; i++)
                m->y[0][q_row(m, t, h) + i] = m->x[0][q_row(m, t, h) + i] * keep_of(w, m->x[1], m, t, h);
}

/* d_out, o, lse to d_o and d_lse; dw. */
static void sink_back(Machine *m, const double *w, double *dw)
{
    for (int h = 0; h < m->m->heads; h++)
        for (int64_t t = 0; t < m->n; t++) {
            const double keep = keep_of(w, m->x[2], m, t, h);
            const double slope = keep * (1 - keep) * dot(m->x[0] + q_row(m, t, h), m->x[1] + q_row(m, t, h), m->m->head_dim);
            for (int i = 0; i < m->m->head_dim; i++)
                m->y[0][q_row(m, t, h) + i] = m->x[0][q_row(m, t, h) + i] * keep;
            m->y[1][h * m->n + t] = slope;
            dw[h] -= slope;
        }
}

/* o, d_o and the gradient of lse, where it has one, to delta. */
static void delta(Machine *m, bool lse)
{
    for (int h = 0; h < m->m->heads; h++)
        for (int64_t t = 0; t < m->n; t++)
            m->y[0][h * m->n + t] = dot(m->x[0] + q_row(m, t, h), m->x[1] + q_row(m, t, h), m->m->head_dim) -
                                    (lse ? m->x[2][h * m->n + t] : 0);
}

/* Gate and up of a token side by side. */
static void swiglu(Machine *m)
{
    for (int64_t i = 0; i < m->ny[0]; i++) {
        const double *gate = m->x[0] + i + i / m->m->ffn * m->m->ffn;
        m->y[0][i] = gate[0] / (1 + exp(-gate[0])) * gate[m->m->ffn];
    }
}

static void swiglu_back(Machine *m)
{
    for (int64_t i = 0; i < m->nx[1]; i++) {
        const int64_t at = i + i / m->m->ffn * m->m->ffn, up = at + m->m->ffn;
        const double g = m->x[0][at], sigmoid = 1 / (1 + exp(-g));
        m->y[0][at] = m->x[1][i] * m->x[0][up] * sigmoid * (1 + g * (1 - sigmoid));
        m->y[0][up] = m->x[1][i] * g * sigmoid;
    }
}

/* Of the batch. */
static int64_t row(const Machine *m, int64_t t) { return m->sequence * m->n + t; }

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
            sum += p[i] = exp(dot(x, w + (int64_t)i * h, h));
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

/* ---- one operation ---- */

static const Unit *unit_of(const Machine *m, int unit)
{
    return &m->step->units.at[unit == 0 ? 0 : unit > m->m->layers ? 2 : 1];
}

/* The first shard is this rank's own, the others come from elsewhere. */
static void gather(Machine *m, const Op *o)
{
    const StepOp *at = &m->run->flow->op[m->t];
    const int unit = o->embedding ? 0 : o->write[0].next ? visited_unit(m, at->visit + 1) : at->unit;
    m->lost |= m->ny[0] < unit_of(m, unit)->elements; /* a smaller unit's */
    for (int64_t i = 0; i < unit_of(m, unit)->elements && !m->lost; i++)
        m->y[0][i] = m->run->param[unit][i];
    m->lost |= o->read[0].value >= 0 && m->nx[0] > m->ny[0]; /* a larger unit's */
    if (o->read[0].value >= 0 && !m->lost)
        memcpy(m->y[0], m->x[0], (size_t)m->nx[0] * sizeof(double));
}

/* The other ranks' parts of the sum are nothing; what they get of it goes to them. */
static void reduce(Machine *m, const Op *o)
{
    const int unit = o->embedding ? 0 : m->run->flow->op[m->t].unit;
    const bool adds = o->adds[0] || (m->sequence > 0 && o->when != WHEN_LAST);
    m->lost |= m->nx[0] < unit_of(m, unit)->elements || m->nx[0] < m->ny[0]; /* a smaller unit's */
    if (m->lost)
        return;
    for (int64_t i = 0; i < m->ny[0]; i++)
        m->y[0][i] = m->x[0][i] + (adds ? m->y[0][i] : 0);
    for (int64_t i = m->ny[0]; i < unit_of(m, unit)->elements; i++)
        m->run->grad[unit][i] += m->x[0][i];
}

/* Groups of ranks that share the weights. All have the same gradients here; the optimizer takes one group's. */
static int replicas(const Machine *m) { return m->step->program->cluster.world / m->step->units.ranks; }

static void all_reduce(Machine *m)
{
    m->lost |= m->nx[0] < m->ny[0]; /* a smaller unit's */
    for (int64_t i = 0; i < m->ny[0] && !m->lost; i++)
        m->y[0][i] = m->x[0][i] * replicas(m);
}

/* This rank's shard; rounding is none here. */
static void optimizer(Machine *m, const Op *o)
{
    const int unit = m->run->flow->op[m->t].unit;
    for (int64_t i = 0; i < unit_of(m, unit)->elements && i < m->nx[0]; i++)
        m->run->grad[unit][i] = m->x[0][i] / replicas(m);
    for (int64_t i = 0; o->write[0].value >= 0 && i < unit_of(m, unit)->elements && i < m->ny[0]; i++)
        m->y[0][i] = m->run->param[unit][i];
}

/* What a step finds: this rank's shards. */
static void fill_state(Machine *m)
{
    static const char *const names[] = {"param", "param_bf16"};
    for (int v = 0; v < countof(names); v++) {
        const int value = step_value(m->step, names[v]);
        for (int u = 0; value >= 0 && u < m->m->layers + 2; u++)
            for (int64_t i = 0; i < unit_of(m, u)->shard && i < unit_of(m, u)->elements; i++)
                *place(m, item_of(m, value, u), element_size(m, &m->step->values.at[value]), i) = m->run->param[u][i];
    }
}

/* The operand that is the unit's weights, or the sum of its gradients; moved to the operation's tensor. */
static double *tensor_in(Machine *m, const Op *o, double **at, const int64_t *n, const Operand *operand, bool weights, int most)
{
    const UnitTensor *t = op_tensor(m->step, o, &m->step->block[m->run->flow->op[m->t].block]);
    for (int i = 0; i < most && operand[i].value >= 0; i++) {
        const ValueKind k = m->step->values.at[operand[i].value].kind;
        if (t && (weights ? k == VALUE_WEIGHT || k == VALUE_STATE || k == VALUE_ROUNDED : k == VALUE_SUM || k == VALUE_SHARD))
            return t->offset + t->rows * t->cols <= n[i] ? at[i] + t->offset : NULL; /* none: a smaller unit's */
    }
    return NULL;
}

static void run_op(Machine *m, const Op *o)
{
    const UnitTensor *t = op_tensor(m->step, o, &m->step->block[m->run->flow->op[m->t].block]);
    const int64_t in = t ? t->cols : 0, out = t ? t->rows * o->tensors : 0;
    const double *w = tensor_in(m, o, m->x, m->nx, o->read, true, OP_READS);
    double *dw = tensor_in(m, o, m->y, m->ny, o->write, false, OP_WRITES);
    const bool residual = o->read[1].value >= 0 && m->step->values.at[o->read[1].value].kind == VALUE_ACTIVATION;
    const bool reads = o->kind <= OP_BIAS || o->kind == OP_SINK || o->kind == OP_SINK_BACK || o->kind == OP_LOSS ||
                       o->kind == OP_NORM_BACK || o->kind == OP_LINEAR_DX;
    const bool adds = o->kind == OP_LOSS || o->kind == OP_EMBED_BACK || o->kind == OP_NORM_BACK || o->kind == OP_LINEAR_DW ||
                      o->kind == OP_BIAS_BACK || o->kind == OP_SINK_BACK;
    m->lost |= (reads && !w) || (adds && !dw);
    if (m->lost)
        return;
    switch (o->kind) {
    case OP_EMBED: embed(m, w); break;
    case OP_NORM: norm(m, in, w); break;
    case OP_LINEAR: linear(m, in, out, w, residual ? m->x[1] : NULL); break;
    case OP_BIAS: bias(m, in, w); break;
    case OP_BIAS_BACK: bias_back(m, in, dw); break;
    case OP_ROPE: rope(m, 1); break;
    case OP_ROPE_BACK: rope(m, -1); break;
    case OP_LAYOUT:
    case OP_LAYOUT_BACK: memcpy(m->y[0], m->x[0], (size_t)m->ny[0] * sizeof(double)); break;
    case OP_ATTENTION: attention(m, m->n); break;
    case OP_KEEP: keep(m); break;
    case OP_ATTENTION_REST: attention_rest(m); break;
    case OP_SWIGLU: swiglu(m); break;
    case OP_LOSS: loss(m, w, dw); break;
    case OP_EMBED_BACK: embed_back(m, dw); break;
    case OP_NORM_BACK: norm_back(m, in, w, dw, o->adds[0]); break;
    case OP_LINEAR_DW: linear_dw(m, in, out, dw); break;
    case OP_LINEAR_DX: linear_dx(m, in, out, w, o->adds[0]); break;
    case OP_SWIGLU_BACK: swiglu_back(m); break;
    case OP_DELTA: delta(m, o->read[2].value >= 0); break;
    case OP_SINK: sink(m, w); break;
    case OP_SINK_BACK: sink_back(m, w, dw); break;
    case OP_ATTENTION_BACK: attention_back(m); break;
    case OP_WAIT: break;
    case OP_ZERO: memset(m->y[0], 0, (size_t)m->ny[0] * sizeof(double)); break;
    case OP_GATHER: gather(m, o); break;
    case OP_REDUCE: reduce(m, o); break;
    case OP_ALL_REDUCE: all_reduce(m); break;
    case OP_OPTIMIZER: optimizer(m, o); break;
    default: m->lost = true;
    }
}

/* What is not in use after the operation is worth nothing. */
static void spoil(Machine *m)
{
    const Flow *f = m->run->flow;
    char *used = calloc((size_t)m->bytes, 1);
    const int next = m->t + 1 < f->ops ? m->t + 1 : 0; /* of the next sequence */
    for (int i = 0; i < f->items; i++)
        if (m->t >= 0 && item_live(&f->item[i], next) && item_live(&f->item[i], m->t))
            memset(used + f->item[i].offset, 1, (size_t)f->item[i].bytes);
    for (int64_t i = 0; i < m->bytes; i++)
        if (!used[i])
            m->arena[PER_BYTE * i] = m->arena[PER_BYTE * i + 1] = NAN;
    free(used);
}

static bool skipped(const Machine *m, const Op *o)
{
    const StepOp *at = &m->run->flow->op[m->t];
    return o->kind == OP_GATHER && !o->embedding && at->visit + o->write[0].next > 2 * m->m->layers + 1;
}

/* Of a chunk's operation: the operand's rows of it, in the copy of the operand. */
static double *chunk_rows(const Machine *m, Operand x, double *copy, int64_t *n)
{
    const Dim d = m->step->values.at[x.value].dim[0];
    const int64_t all = d == DIM_TOKENS ? m->step->tokens : m->step->chunk;
    if (d != DIM_TOKENS && d != DIM_CHUNK)
        return copy;
    const int64_t cols = *n / all;
    *n = m->n * cols;
    return copy + (d == DIM_TOKENS ? m->run->flow->op[m->t].chunk * m->step->chunk * cols : 0);
}

static void run_chunk(Machine *m, const Op *o)
{
    const int64_t left = m->step->tokens - m->run->flow->op[m->t].chunk * m->step->chunk;
    m->n = left < m->step->chunk ? left : m->step->chunk;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        m->x[i] = chunk_rows(m, o->read[i], m->x[i], &m->nx[i]);
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        m->y[i] = chunk_rows(m, o->write[i], m->y[i], &m->ny[i]);
    run_op(m, o);
    m->n = m->step->tokens;
}

static void step_one(Machine *m)
{
    const Op *o = m->run->flow->op[m->t].op;
    if (skipped(m, o))
        return;
    int reads = 0, writes = 0;
    double *x[OP_READS], *y[OP_WRITES];
    int64_t ny[OP_WRITES];
    for (; reads < OP_READS && o->read[reads].value >= 0; reads++)
        m->x[reads] = x[reads] = copy_out(m, o->read[reads], &m->nx[reads]);
    for (; writes < OP_WRITES && o->write[writes].value >= 0; writes++) {
        m->y[writes] = y[writes] = copy_out(m, o->write[writes], &m->ny[writes]);
        ny[writes] = m->ny[writes];
    }
    if (!m->lost && reads + writes > 0)
        (o->chunked ? run_chunk : run_op)(m, o);
    for (int i = 0; i < writes && !m->lost; i++)
        if (m->step->values.at[o->write[i].value].kind != VALUE_SCRATCH)
            copy_in(m, o->write[i], y[i], ny[i]);
    for (int i = 0; i < reads; i++)
        free(x[i]);
    for (int i = 0; i < writes; i++)
        free(y[i]);
}

static bool is_among(Machine *m, int t, const Operand *list, int most, Operand x)
{
    const int now = m->t, index = value_index(m, &m->step->values.at[x.value], x.next);
    bool same = false;
    m->t = t;
    for (int i = 0; i < most && list[i].value >= 0; i++)
        same |= list[i].value == x.value && value_index(m, &m->step->values.at[x.value], list[i].next) == index;
    m->t = now;
    return same;
}

/* Does what is queued, in its order, up to and with the operation at `last` of the queue. */
static void flush(Machine *m, int last)
{
    const int now = m->t, sequence = m->sequence, ops = m->run->flow->ops;
    for (; m->begun <= last; m->begun++) {
        m->t = m->queue[m->begun] % ops;
        m->sequence = m->queue[m->begun] / ops;
        step_one(m);
    }
    m->t = now;
    m->sequence = sequence;
}

/* Compute waits for what it reads. */
static void wait_for(Machine *m, Operand x)
{
    for (int j = m->queued - 1; j >= m->begun; j--) {
        const int t = m->queue[j] % m->run->flow->ops;
        const Op *o = m->run->flow->op[t].op;
        if (is_among(m, t, o->write, OP_WRITES, x)) {
            flush(m, j);
            return;
        }
    }
}

static void advance(Machine *m)
{
    const Op *o = m->run->flow->op[m->t].op;
    if ((o->when == WHEN_FIRST && m->sequence > 0) || (o->when == WHEN_LAST && m->sequence + 1 < m->run->sequences))
        return;
    if (m->run->late && (o->kind == OP_GATHER || o->kind == OP_REDUCE || o->kind == OP_ALL_REDUCE)) {
        m->queue[m->queued++] = m->sequence * m->run->flow->ops + m->t;
        return;
    }
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        wait_for(m, o->read[i]);
    step_one(m);
}

bool step_run(Run *r)
{
    Machine m = {.run = r, .step = r->flow->step, .m = &r->flow->step->program->model, .n = r->flow->step->tokens};
    for (int i = 0; i < r->flow->items; i++) {
        const int64_t end = r->flow->item[i].offset + r->flow->item[i].bytes;
        m.bytes = end > m.bytes ? end : m.bytes;
    }
    m.arena = calloc((size_t)m.bytes + 1, PER_BYTE * sizeof(double));
    m.queue = calloc((size_t)(r->flow->ops * r->sequences), sizeof *m.queue);
    r->loss = 0;
    m.t = -1;
    spoil(&m);
    fill_state(&m);
    for (m.sequence = 0; m.sequence < r->sequences; m.sequence++)
        for (m.t = 0; m.t < r->flow->ops && !m.lost; m.t++) {
            advance(&m);
            spoil(&m);
        }
    free(m.queue);
    free(m.arena);
    return !m.lost;
}
