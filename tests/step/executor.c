/* executor.c: see executor.h. Each operation is written here from its definition; nothing of the
 * compiler's analysis is used but the list of operations, and the items with their places.
 *
 * A byte of the plan is a double here, so that an element of any type has room for one. Ranks that split
 * the layers each have an arena; the others are thought to have nothing.
 */
#include "executor_machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- operands ---- */

static int64_t element_size(const Machine *m, const Value *v)
{
    if (v->element == EL_BYTE)
        return 1;
    return v->element == EL_ACTIVATION && m->step->program->target == &targets[TARGET_CUDA] ? 2 : 4;
}

/* The order written down: forward; then group after group from the last on, each upwards again, but for the
 * last layer, and but for the last group; then downwards. */
int visit_units(int layers, int group, int unit[VISITS])
{
    int n = 0;
    for (int u = 0; u <= layers + 1; u++)
        unit[n++] = u;
    for (int u = layers; u >= 1; u--) {
        const bool last_of_group = u % group == 0 && u < layers;
        for (int v = u - group + 1; last_of_group && v < u; v++)
            unit[n++] = v;
        unit[n++] = u;
    }
    unit[n++] = 0;
    return n;
}

static int visited_unit(const Machine *m, int visit)
{
    int unit[VISITS];
    return visit >= 0 && visit < visit_units(m->m->layers, m->step->group, unit) ? unit[visit] : -1;
}

static int visits(const Machine *m)
{
    int unit[VISITS];
    return visit_units(m->m->layers, m->step->group, unit);
}

/* Whether one of the loops around it goes over the dimension. */
static bool loops_over(const Machine *m, const Op *o, LoopDim d)
{
    bool over = false;
    for (int i = o->scope; i; i = m->step->scopes.at[i].around)
        over |= m->step->scopes.at[i].kind == SCOPE_LOOP && m->step->scopes.at[i].dim == d;
    return over;
}

bool is_of_keys(const Machine *m, const Op *o) { return loops_over(m, o, LOOP_KEYS); }

static int value_index(const Machine *m, const Value *v, int next)
{
    const StepOp *o = &m->run->flow->op[m->t];
    switch (v->index) {
    case INDEX_LAYER:
    case INDEX_BOUNDARY: return o->layer + next;
    case INDEX_VISIT: return o->visit + next;
    case INDEX_CHUNK: return o->index[LOOP_TOKENS];
    case INDEX_SLOT: return o->turn[is_of_keys(m, o->op) ? LOOP_KEYS : LOOP_TOKENS] % 2;
    case INDEX_UNIT:
        if (o->op->embedding)
            return 0;
        if (o->block == BLOCK_OPTIMIZER)
            return o->unit + next;
        if (next < 0)
            return o->unit + 1;
        return next ? visited_unit(m, o->visit + next) : o->unit;
    default: return 0;
    }
}

/* Some operations work in place, some of them on a device alone: the other value's item serves where a
 * value has none. */
static int partner(const Machine *m, int value)
{
    const bool sinks = m->m->sinks;
    const char *const pairs[][2] = {{"gate_up", "d_gate_up"},
                                    {"q_flat", "q"},
                                    {"k_flat", "k"},
                                    {"v_flat", "v"},
                                    {"o_flat", sinks ? "o_sink" : "o"},
                                    {"d_o_flat", sinks ? "d_o_sink" : "d_o"}};
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
    const int other = i ? x.value : partner(m, x.value);
    if (!i && m->step->values.at[other].dim[0] == m->step->values.at[x.value].dim[0])
        i = item_of(m, other, index);
    m->lost |= !i;
    return i;
}

static bool on_host(const Machine *m, const Item *i) { return m->step->values.at[i->value].host; }

/* In bytes, of the arena. */
static int64_t address(const Machine *m, const Item *i)
{
    return i->offset + (on_host(m, i) ? m->device : 0);
}

static double *place(const Machine *m, const Item *i, int64_t size, int64_t element)
{
    return m->arena + address(m, i) + element * size;
}

static void put(Machine *m, const Item *i, int64_t size, int64_t n, const double *x)
{
    memset(m->spoiled + address(m, i), 0, (size_t)(n * size));
    for (int64_t j = 0; j < n; j++)
        *place(m, i, size, j) = x[j];
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
    if (i)
        put(m, i, size, n, copy);
}

/* ---- one operation ---- */

static const Unit *unit_of(const Machine *m, int unit) { return units_of(&m->step->units, m->m, unit); }

/* The first shard is this rank's own, the others come from elsewhere. */
static void gather(Machine *m, const Op *o)
{
    const StepOp *at = &m->run->flow->op[m->t];
    int unit = o->write[0].next ? visited_unit(m, at->visit + 1) : at->unit;
    if (o->embedding)
        unit = 0;
    m->lost |= m->ny[0] < unit_of(m, unit)->elements; /* a smaller unit's */
    for (int64_t i = 0; i < unit_of(m, unit)->elements && !m->lost; i++)
        m->y[0][i] = m->param[unit][i];
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
        m->grad[unit][i] += m->x[0][i];
}

/* Groups of ranks that share the weights. All have the same gradients here; the optimizer takes one
 * group's. */
static int replicas(const Machine *m) { return m->step->program->cluster.world / m->step->units.ranks; }

/* Where a shard is summed, if that is not in place. */
static void spoil_room(const Op *o, double *const *y, const int64_t *n)
{
    for (int64_t i = 0; o->write[1].value >= 0 && i < n[1]; i++)
        y[1][i] = NAN;
}

static void all_reduce(Machine *m, const Op *o)
{
    m->lost |= m->nx[0] < m->ny[0]; /* a smaller unit's */
    for (int64_t i = 0; i < m->ny[0] && !m->lost; i++)
        m->y[0][i] = m->x[0][i] * replicas(m);
    spoil_room(o, m->y, m->ny);
}

/* What an update adds to each parameter. */
static const double updated = 1;

/* This rank's shard; rounding is none here. */
static void optimizer(Machine *m, const Op *o)
{
    const int unit = m->run->flow->op[m->t].unit;
    for (int64_t i = 0; i < unit_of(m, unit)->elements && i < m->nx[0]; i++)
        m->grad[unit][i] = m->x[0][i] / replicas(m);
    for (int64_t i = 0; o->write[0].value >= 0 && i < unit_of(m, unit)->elements && i < m->ny[0]; i++)
        m->y[0][i] = m->param[unit][i] + updated;
    /* parameters and moments that came to the device */
    for (int k = 1; k < OP_WRITES && o->write[k].value >= 0; k++) {
        m->lost |= k >= OP_READS || o->read[k].value < 0 || m->nx[k] != m->ny[k];
        for (int64_t i = 0; i < m->ny[k] && !m->lost; i++)
            m->y[k][i] = m->x[k][i] + updated;
    }
}

/* Between the device's memory and the host's. */
static void copy(Machine *m)
{
    m->lost |= m->nx[0] != m->ny[0];
    for (int64_t i = 0; i < m->ny[0] && !m->lost; i++)
        m->y[0][i] = m->x[0][i];
}

/* Moments are other numbers than the parameters. */
static bool is_state(const Machine *m, int value) { return m->step->values.at[value].kind == VALUE_STATE; }
static double moment(const Machine *m, int value)
{
    return !is_state(m, value) || value == step_value(m->step, "param") ? 0 : value;
}

/* What a step finds: this rank's shards, and their moments. */
static void fill_state(Machine *m)
{
    for (int v = 0; v < m->step->values.n; v++)
        for (int u = 0;
             (is_state(m, v) || m->step->values.at[v].kind == VALUE_ROUNDED) && u < m->m->layers + 2; u++) {
            const Unit *unit = unit_of(m, u);
            const int64_t n = unit->shard < unit->elements ? unit->shard : unit->elements;
            double *x = calloc((size_t)n + 1, sizeof *x);
            const double added = moment(m, v);
            for (int64_t i = 0; i < n; i++)
                x[i] = m->param[u][i] + added;
            if (n > 0)
                put(m, item_of(m, v, u), element_size(m, &m->step->values.at[v]), n, x);
            free(x);
        }
}

/* What the next step finds: this rank's shards, updated unless the step was forward alone, as products read
 * them. */
static void check_params(Machine *m)
{
    const double more = m->step->forward ? 0 : updated;
    const int value = step_value(m->step, "param_bf16") >= 0 ? step_value(m->step, "param_bf16")
                                                             : step_value(m->step, "param_copy");
    for (int u = 0; value >= 0 && u < m->m->layers + 2; u++)
        for (int64_t i = 0; i < unit_of(m, u)->shard && i < unit_of(m, u)->elements; i++)
            m->lost |= *place(m, item_of(m, value, u), element_size(m, &m->step->values.at[value]), i) !=
                       m->param[u][i] + more;
    for (int v = 0; v < m->step->values.n; v++)
        for (int u = 0;
             is_state(m, v) && m->step->choice.optimizer == OPTIMIZER_FETCHED && u < m->m->layers + 2; u++) {
            const double added = moment(m, v);
            for (int64_t i = 0; i < unit_of(m, u)->shard && i < unit_of(m, u)->elements; i++)
                m->lost |= *place(m, item_of(m, v, u), sizeof(float), i) != m->param[u][i] + added + more;
        }
}

/* The operand that is the unit's weights, or the sum of its gradients; moved to the operation's tensor. */
static double *tensor_in(Machine *m, const Op *o, double **at, const int64_t *n, const Operand *operand,
                         bool weights, int most)
{
    const UnitTensor *t = op_tensor(m->step, o, &m->step->block[m->run->flow->op[m->t].block]);
    for (int i = 0; i < most && operand[i].value >= 0; i++) {
        const ValueKind k = m->step->values.at[operand[i].value].kind;
        if (t && (weights ? k == VALUE_WEIGHT || k == VALUE_STATE || k == VALUE_ROUNDED
                          : k == VALUE_SUM || k == VALUE_SHARD))
            /* none: a smaller unit's */
            return t->offset + t->rows * t->cols <= n[i] ? at[i] + t->offset : NULL;
    }
    return NULL;
}

static bool sums_all(const Op *o)
{
    return o->kind == OP_TENSOR_ALL_REDUCE || o->kind == OP_TENSOR_ALL_REDUCE_BACK;
}

/* A number a token, of all tokens, on every rank. */
static void sum_all(const Machine *m, double *x[RANKS][OP_READS], double *y[RANKS][OP_WRITES])
{
    for (int64_t i = 0; i < m->run->tokens; i++) {
        double sum = 0;
        for (int r = 0; r < m->ranks; r++)
            sum += x[r][0][i];
        for (int r = 0; r < m->ranks; r++)
            y[r][0][i] = sum;
    }
}

/* Among the ranks: x and y of each. Tokens of all in order of the ranks; or parts of sums, of which each
 * gets its own tokens'. */
static void run_tensor(const Machine *m, const Op *o, double *x[RANKS][OP_READS], double *y[RANKS][OP_WRITES])
{
    if (sums_all(o)) {
        sum_all(m, x, y);
        return;
    }
    const bool gathers = o->kind == OP_TENSOR_GATHER || o->kind == OP_TENSOR_SCATTER_BACK;
    const int64_t width = model_dim(m->m, &m->step->shape, m->heads,
                                    m->step->values.at[o->read[0].value].dim[1]);
    for (int r = 0; r < m->ranks; r++)
        for (int64_t i = 0; i < own_tokens(m, r) * width; i++) {
            const int64_t at = first_own(m, r) * width + i;
            double sum = 0;
            if (o->adds[0])
                sum = y[r][0][i];
            else if (o->read[1].value >= 0)
                sum = x[r][1][i];
            for (int k = 0; k < m->ranks; k++)
                if (gathers)
                    y[k][0][at] = x[r][0][i];
                else
                    sum += x[k][0][at];
            if (!gathers)
                y[r][0][i] = sum;
        }
}

/* Neighbours that have the same of a tensor: all where it is not split. */
static int copies_of(const Machine *m, const UnitTensor *t)
{
    const bool key = strstr(t->name, "k_proj") || strstr(t->name, "v_proj") || strstr(t->name, "k_norm");
    if (t->split == SPLIT_NONE)
        return m->ranks;
    return key ? m->step->shape.key_copies : 1;
}

/* In the shard of each rank, what several ranks have. */
static void tensor_sum(const Machine *m, double *x[RANKS][OP_READS], double *y[RANKS][OP_WRITES])
{
    const Unit *u = unit_of(m, m->run->flow->op[m->t].unit);
    for (const UnitTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
        for (int64_t i = t->offset; i < t->offset + t->rows * t->cols && i < m->nx[0]; i++)
            for (int first = 0, copies = copies_of(m, t); first < m->ranks; first += copies) {
                double sum = 0;
                for (int r = first; r < first + copies; r++)
                    sum += x[r][0][i];
                for (int r = first; r < first + copies; r++)
                    y[r][0][i] = sum;
            }
}

static bool is_of_some_heads(const Machine *m, Operand x)
{
    const Dim *d = m->step->values.at[x.value].dim;
    for (int i = 0; i < 2; i++)
        if (d[i] == DIM_QUERY || d[i] == DIM_KEY || d[i] == DIM_HEADS || d[i] == DIM_KEY_HEADS ||
            d[i] == DIM_VALUE || d[i] == DIM_OUTPUT || d[i] == DIM_OWN)
            return true;
    return false;
}

/* Key heads of a chunk, and of those before it: the last ones have one less than the others. */
static int chunk_heads(const Machine *m, int chunk)
{
    const Shape *s = &m->step->shape;
    return s->chunk.kv_heads - (chunk + s->short_chunks >= s->head_chunks);
}

static int heads_before(const Machine *m, int chunk)
{
    int heads = 0;
    for (int i = 0; i < chunk; i++)
        heads += chunk_heads(m, i);
    return heads;
}

/* Of a chunk of heads: its rows of the tensor, or its columns. */
static void run_op(Machine *m, const Op *o)
{
    const StepOp *at = &m->run->flow->op[m->t];
    const UnitTensor *t = op_tensor(m->step, o, &m->step->block[at->block]);
    const Split split = t && loops_over(m, o, LOOP_HEADS) ? t->heads : SPLIT_NONE;
    const int64_t all = heads_before(m, m->step->shape.head_chunks), chunk = at->index[LOOP_HEADS],
                  mine = chunk_heads(m, (int)chunk), before = heads_before(m, (int)chunk);
    int64_t in = t ? t->cols : 0, out = t ? t->rows * o->tensors : 0, first = 0;
    if (split == SPLIT_COLS) {
        in = t->cols / all * mine;
        first = t->cols / all * before;
    } else if (split == SPLIT_ROWS) {
        out = t->rows / all * mine;
        first = t->rows / all * before * in;
    }
    const double *w = tensor_in(m, o, m->x, m->nx, o->read, true, OP_READS);
    double *dw = tensor_in(m, o, m->y, m->ny, o->write, false, OP_WRITES);
    w = w ? w + first : NULL;
    dw = dw ? dw + first : NULL;
    m->row = t ? t->cols : 0;
    const int sum = o->kind == OP_JOIN_BACK; /* its output that is a sum over heads */
    m->adds = o->adds[sum] || (loops_over(m, o, LOOP_HEADS) && chunk > 0 && o->write[sum].value >= 0 &&
                               !is_of_some_heads(m, o->write[sum]));
    const bool reads = o->kind <= OP_BIAS || o->kind == OP_SINK || o->kind == OP_SINK_BACK ||
                       o->kind == OP_EVALUATE || o->kind == OP_LOSS || o->kind == OP_NORM_BACK ||
                       o->kind == OP_LINEAR_DX || (op_work_kind(o->kind) == WORK_ATTENTION && o->weight);
    const bool adds = o->kind == OP_LOSS || o->kind == OP_EMBED_BACK || o->kind == OP_NORM_BACK ||
                      o->kind == OP_LINEAR_DW || o->kind == OP_BIAS_BACK || o->kind == OP_SINK_BACK ||
                      (o->kind == OP_ATTENTION_BACK && o->weight);
    m->lost |= (reads && !w) || (adds && !dw);
    if (m->lost)
        return;
    if (compute(m, o, in, out, w, dw))
        return;
    switch (o->kind) {
    case OP_ZERO: memset(m->y[0], 0, (size_t)m->ny[0] * sizeof(double)); break;
    case OP_GATHER: gather(m, o); break;
    case OP_REDUCE: reduce(m, o); break;
    case OP_ALL_REDUCE: all_reduce(m, o); break;
    case OP_OPTIMIZER: optimizer(m, o); break;
    case OP_STAGE:
    case OP_FETCH:
    case OP_DOWNLOAD:
    case OP_UPLOAD:
    case OP_WRITE_BACK: copy(m); break;
    default: m->lost = true;
    }
}

enum { SPOILED = 1 }; /* of a byte; 0: it has been written since */

static void spoil_bytes(Machine *m, int64_t from, int64_t to)
{
    const char *fine = m->spoiled;
    for (int64_t at = from, end; at < to; at = end) {
        const char *written = memchr(fine + at, 0, (size_t)(to - at));
        const int64_t first = written ? written - fine : to;
        for (end = first; end < to && fine[end] == 0;)
            end++;
        for (int r = 0; r < m->ranks; r++) /* all bits set */
            memset(m->arenas[r] + first, 0xff, sizeof(double) * (size_t)(end - first));
        memset(m->spoiled + first, SPOILED, (size_t)(end - first));
    }
}

/* What is not in use after the operation is worth nothing: not a number, which it stays until it is written.
 */
static void spoil(Machine *m)
{
    const Flow *f = m->run->flow;
    const int next = m->t + 1 < f->ops ? m->t + 1 : 0; /* of the next sequence */
    int64_t at = 0;
    for (int i = 0; i < f->items; i++) {
        const Item *item = &f->item[m->order[i]];
        if (m->t < 0 || !item_live(item, next) || !item_live(item, m->t))
            continue;
        const int64_t begin = address(m, item), end = begin + item->bytes;
        if (begin > at)
            spoil_bytes(m, at, begin);
        at = end > at ? end : at;
    }
    spoil_bytes(m, at, m->bytes);
}

/* Items by address. */
static void put_in_order(Machine *m)
{
    const Flow *f = m->run->flow;
    for (int i = 0; i < f->items; i++) {
        int place = i;
        for (; place > 0 && address(m, &f->item[m->order[place - 1]]) > address(m, &f->item[i]); place--)
            m->order[place] = m->order[place - 1];
        m->order[place] = i;
    }
}

static bool skipped(const Machine *m, const Op *o)
{
    const StepOp *at = &m->run->flow->op[m->t];
    const Operand named[] = {o->read[0], o->write[0]};
    for (int i = 0; i < 2; i++) { /* of layers that do not stage it, as the program says */
        const Value *v = named[i].value < 0 ? NULL : &m->step->values.at[named[i].value];
        const int layer = at->layer + (v ? named[i].next : 0);
        if (v && v->host && v->index != INDEX_UNIT &&
            ((layer < v->saved_from && !v->every) || (layer >= m->step->offload_layers && !v->of_last)))
            return true;
        const int group = m->step->group;
        if (v && v->host && v->index == INDEX_BOUNDARY && group > 1 &&
            (layer % group || layer / group == (m->m->layers - 1) / group))
            return true; /* the first layer of a group has it, but for the last group */
    }
    if (at->block == BLOCK_OPTIMIZER && o->kind == OP_WAIT && at->unit + o->read[0].next < 0)
        return true; /* no unit is before it */
    return o->kind == OP_GATHER && !o->embedding && at->visit + o->write[0].next > visits(m) - 2;
}

/* Which chunk of the rows: beside keys and what is of them, of queries. */
static int row_chunk(const Machine *m, Operand x)
{
    const StepOp *o = &m->run->flow->op[m->t];
    const Dim d = m->step->values.at[x.value].dim[1];
    return o->index[is_of_keys(m, o->op) && (d == DIM_KEY || d == DIM_VALUE) ? LOOP_KEYS : LOOP_TOKENS];
}

static int64_t rows_in(const Machine *m, int chunk)
{
    const int64_t left = m->run->tokens - chunk * m->step->chunk;
    if (left < 0)
        return 0;
    return left < m->step->chunk ? left : m->step->chunk;
}

/* Of a chunk's operation: the operand's rows of it, in the copy of the operand. */
static double *chunk_rows(const Machine *m, Operand x, double *copy, int64_t *n)
{
    const Value *v = &m->step->values.at[x.value];
    const Dim d = v->dim[v->dim[0] == DIM_HEADS]; /* of statistics a chunk's heads follow each other */
    const OpKind k = m->run->flow->op[m->t].op->kind;
    const bool tokens = d == DIM_TOKENS || d == DIM_ALL_TOKENS;
    const int64_t all = tokens ? m->step->all_tokens : m->step->chunk;
    /* all of its keys */
    if ((!tokens && d != DIM_CHUNK) ||
        ((k == OP_ATTENTION || k == OP_ATTENTION_BACK) && (v->dim[1] == DIM_KEY || v->dim[1] == DIM_VALUE)))
        return copy;
    const int64_t cols = *n / all;
    *n = rows_in(m, row_chunk(m, x)) * cols;
    return copy + (tokens ? row_chunk(m, x) * m->step->chunk * cols : 0);
}

static void run_chunk(Machine *m, const Op *o)
{
    const StepOp *at = &m->run->flow->op[m->t];
    m->n = rows_in(m, at->index[LOOP_TOKENS]);
    m->first = at->index[LOOP_TOKENS] * m->step->chunk;
    m->key_first = is_of_keys(m, o) ? at->index[LOOP_KEYS] * m->step->chunk : 0;
    m->key_n = is_of_keys(m, o) ? rows_in(m, at->index[LOOP_KEYS]) : m->run->tokens;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        m->x[i] = chunk_rows(m, o->read[i], m->x[i], &m->nx[i]);
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        m->y[i] = chunk_rows(m, o->write[i], m->y[i], &m->ny[i]);
    run_op(m, o);
}

/* Rows that are there, of those that there is room for; of what has chunks of heads, each with room, when
 * it is copied, all. */
static int64_t true_size(const Machine *m, Operand x, int64_t n)
{
    const Value *v = &m->step->values.at[x.value];
    if (v->all_heads && !loops_over(m, m->run->flow->op[m->t].op, LOOP_HEADS))
        return n;
    const int64_t room = v->dim[0] == DIM_TOKENS ? m->step->tokens : m->step->all_tokens;
    return v->dim[0] == DIM_TOKENS || v->dim[0] == DIM_ALL_TOKENS ? n / room * m->n : n;
}

/* All chunks of heads lie one after the other; of what has one chunk it is that, where there is room for
 * the largest. */
static double *heads_of_chunk(const Machine *m, Operand x, double *copy, int64_t *n)
{
    const int chunk = m->run->flow->op[m->t].index[LOOP_HEADS];
    const bool all = m->step->values.at[x.value].all_heads;
    const int64_t heads = all ? heads_before(m, m->step->shape.head_chunks) : m->step->shape.chunk.kv_heads;
    const int64_t head = is_of_some_heads(m, x) ? *n / heads : 0;
    *n = true_size(m, x, head ? head * chunk_heads(m, chunk) : *n);
    return copy + (all ? head * heads_before(m, chunk) : 0);
}

static void run_heads(Machine *m, const Op *o)
{
    const Heads largest = m->heads;
    m->heads.kv_heads = chunk_heads(m, m->run->flow->op[m->t].index[LOOP_HEADS]);
    m->heads.heads = largest.heads / largest.kv_heads * m->heads.kv_heads;
    m->n = m->key_n = m->run->tokens;
    m->first = m->key_first = 0;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        m->x[i] = heads_of_chunk(m, o->read[i], m->x[i], &m->nx[i]);
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        m->y[i] = heads_of_chunk(m, o->write[i], m->y[i], &m->ny[i]);
    run_op(m, o);
    m->heads = largest;
}

static bool has_all_tokens(const Machine *m, Operand x)
{
    const Value *v = x.value < 0 ? NULL : &m->step->values.at[x.value];
    return v && (v->dim[0] == DIM_ALL_TOKENS || v->dim[1] == DIM_ALL_TOKENS);
}

static void run_whole(Machine *m, const Op *o)
{
    m->first = m->key_first = 0;
    m->key_n = m->run->tokens;
    m->n = has_all_tokens(m, o->read[0]) ? m->run->tokens : own_tokens(m, m->rank);
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        m->nx[i] = true_size(m, o->read[i], m->nx[i]);
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        m->ny[i] = true_size(m, o->write[i], m->ny[i]);
    run_op(m, o);
}

static void use_rank(Machine *m, int rank)
{
    m->rank = rank;
    m->arena = m->arenas[rank];
    m->param = m->params[rank];
    m->grad = m->grads[rank];
}

typedef struct Operands {
    double *x[RANKS][OP_READS], *y[RANKS][OP_WRITES];
    int64_t nx[OP_READS], ny[OP_WRITES];
    int reads, writes;
} Operands;

static void copy_all_out(Machine *m, const Op *o, Operands *all)
{
    for (int r = 0; r < m->ranks; r++) {
        use_rank(m, r);
        for (all->reads = 0; all->reads < OP_READS && o->read[all->reads].value >= 0; all->reads++)
            all->x[r][all->reads] = copy_out(m, o->read[all->reads], &all->nx[all->reads]);
        for (all->writes = 0; all->writes < OP_WRITES && o->write[all->writes].value >= 0; all->writes++)
            all->y[r][all->writes] = copy_out(m, o->write[all->writes], &all->ny[all->writes]);
    }
}

/* Scratch of which nothing stays for the next chunk is worth nothing afterwards. */
static bool is_spent(const Machine *m, const Op *o, int value)
{
    return m->step->values.at[value].kind == VALUE_SCRATCH && !is_of_keys(m, o) &&
           !op_takes_keys(m->step, o, value);
}

static void copy_all_in(Machine *m, const Op *o, const Operands *all)
{
    for (int r = 0; r < m->ranks; r++) {
        use_rank(m, r);
        for (int i = 0; i < all->writes && !m->lost; i++) {
            const bool spent = is_spent(m, o, o->write[i].value);
            for (int64_t k = 0; k < all->ny[i] && spent; k++)
                all->y[r][i][k] = NAN;
            copy_in(m, o->write[i], all->y[r][i], all->ny[i]);
        }
        for (int i = 0; i < all->reads; i++)
            free(all->x[r][i]);
        for (int i = 0; i < all->writes; i++)
            free(all->y[r][i]);
    }
}

static void run_ranks(Machine *m, const Op *o, Operands *all)
{
    for (int r = 0; r < m->ranks && !m->lost; r++) {
        use_rank(m, r);
        memcpy(m->x, all->x[r], sizeof m->x);
        memcpy(m->y, all->y[r], sizeof m->y);
        memcpy(m->nx, all->nx, sizeof m->nx);
        memcpy(m->ny, all->ny, sizeof m->ny);
        if (loops_over(m, o, LOOP_HEADS))
            run_heads(m, o);
        else if (loops_over(m, o, LOOP_TOKENS))
            run_chunk(m, o);
        else
            run_whole(m, o);
    }
}

/* What a mutant reads or writes may be of another size. */
static bool tensor_fits(const Machine *m, const Op *o, const Operands *all)
{
    if (sums_all(o))
        return all->nx[0] >= m->run->tokens && all->ny[0] >= m->run->tokens;
    const bool gathers = o->kind == OP_TENSOR_GATHER || o->kind == OP_TENSOR_SCATTER_BACK;
    const int64_t width = model_dim(m->m, &m->step->shape, m->heads,
                                    m->step->values.at[o->read[0].value].dim[1]),
                  own = m->step->tokens * width;
    return (gathers ? all->ny[0] : all->nx[0]) >= own * m->ranks &&
           (gathers ? all->nx[0] : all->ny[0]) >= own && (o->read[1].value < 0 || all->nx[1] >= own);
}

static void step_one(Machine *m)
{
    const Op *o = m->run->flow->op[m->t].op;
    Operands all = {0};
    if (skipped(m, o))
        return;
    copy_all_out(m, o, &all);
    const bool runs = !m->lost && all.reads + all.writes > 0;
    if (runs && op_work_kind(o->kind) == WORK_TENSOR) {
        m->lost |= !tensor_fits(m, o, &all);
        if (!m->lost)
            run_tensor(m, o, all.x, all.y);
    } else if (runs && o->kind == OP_TENSOR_SUM) {
        m->nx[0] = all.nx[0];
        m->lost |= all.nx[0] < all.ny[0];
        for (int r = 0; r < m->ranks && !m->lost; r++)
            memcpy(all.y[r][0], all.x[r][0], (size_t)all.ny[0] * sizeof(double)),
                spoil_room(o, all.y[r], all.ny);
        if (!m->lost)
            tensor_sum(m, all.x, all.y);
    } else if (runs) {
        run_ranks(m, o, &all);
    }
    copy_all_in(m, o, &all);
}

/* Which mark the operation at t of the list sets, of those that its stream has: gathers take two in turn and
 * one for a tied embedding, fetches two in turn, reductions have one, and others one a kind. */
static int mark_of(Machine *m, int t, OpKind k, Operand x)
{
    const int now = m->t;
    m->t = t;
    const Value *v = k == OP_GATHER || k == OP_FETCH ? &m->step->values.at[x.value] : NULL;
    const int index = v && v->index != INDEX_NONE ? (value_index(m, v, x.next) + 2) % 2 : 2;
    const int slot = v ? index : 0;
    m->t = now;
    return 3 * (int)(k == OP_ALL_REDUCE || k == OP_TENSOR_SUM ? OP_REDUCE : k) + slot;
}

/* Does what is queued, in its order, up to and with the operation at `last` of the queue; gathers of other
 * marks stay. */
static void flush(Machine *m, Queue *q, int last, int mark)
{
    const int now = m->t, sequence = m->sequence, ops = m->run->flow->ops;
    int stay = 0, *staying = calloc((size_t)q->n + 1, sizeof *staying);
    for (; q->begun <= last; q->begun++) {
        const int t = q->at[q->begun] % ops;
        const Op *o = m->run->flow->op[t].op;
        if (o->kind == OP_GATHER && mark_of(m, t, o->kind, o->write[0]) != mark) {
            staying[stay++] = q->at[q->begun];
            continue;
        }
        m->t = t;
        m->sequence = q->at[q->begun] / ops;
        step_one(m);
    }
    q->begun -= stay;
    for (int i = 0; i < stay; i++)
        q->at[q->begun + i] = staying[i];
    free(staying);
    m->t = now;
    m->sequence = sequence;
}

static Stream stream_of(const Op *o)
{
    switch (o->kind) {
    case OP_GATHER:
    case OP_REDUCE:
    case OP_ALL_REDUCE:
    case OP_TENSOR_SUM: return STREAM_WEIGHTS;
    case OP_STAGE:
    case OP_FETCH:
    case OP_DOWNLOAD:
    case OP_UPLOAD: return STREAM_COPIES;
    case OP_WRITE_BACK: return STREAM_DOWNLOADS;
    case OP_TENSOR_GATHER:
    case OP_TENSOR_SCATTER:
    case OP_TENSOR_GATHER_BACK:
    case OP_TENSOR_SCATTER_BACK:
    case OP_TENSOR_ALL_REDUCE:
    case OP_TENSOR_ALL_REDUCE_BACK: return STREAM_TENSOR;
    default: return STREAM_COMPUTE;
    }
}

/* Compute waits for the last operation of the stream that set the mark. */
static void wait_as_listed(Machine *m, const Op *wait)
{
    Op awaited = {.kind = wait->awaits};
    const Stream stream = stream_of(&awaited);
    Queue *q = &m->queue[stream];
    const int mark = mark_of(m, m->t, wait->awaits, wait->read[0]);
    for (int j = q->n - 1; j >= q->begun; j--) {
        const int t = q->at[j] % m->run->flow->ops;
        const Op *o = m->run->flow->op[t].op;
        if (stream == STREAM_TENSOR || mark_of(m, t, o->kind, o->write[0]) == mark) {
            flush(m, q, j, mark);
            return;
        }
    }
}

static void advance(Machine *m)
{
    const Op *o = m->run->flow->op[m->t].op;
    if ((o->when == WHEN_FIRST && m->sequence > 0) ||
        (o->when == WHEN_LAST && m->sequence + 1 < m->run->sequences))
        return;
    const Stream stream = stream_of(o);
    if (o->kind == OP_WAIT) {
        wait_as_listed(m, o);
        return;
    }
    if (stream != STREAM_COMPUTE && m->run->late[stream]) {
        m->queue[stream].at[m->queue[stream].n++] = m->sequence * m->run->flow->ops + m->t;
        return;
    }
    if (o->kind == OP_DOWNLOAD) /* after what the weights' stream was given */
        flush(m, &m->queue[STREAM_WEIGHTS], m->queue[STREAM_WEIGHTS].n - 1, -1);
    step_one(m);
}

/* ---- units of one rank, and whole ---- */

/* Where element i of what a rank has of a tensor is in the whole tensor. */
static int64_t whole_element(const Machine *m, const UnitTensor *t, int rank, int64_t i)
{
    const int copies = copies_of(m, t), part = rank / copies;
    if (t->split == SPLIT_ROWS)
        return part * t->rows * t->cols + i;
    return t->split == SPLIT_COLS ? i / t->cols * t->cols * (m->ranks / copies) + part * t->cols + i % t->cols
                                  : i;
}

/* Calls for each element of each rank: its unit, where it is in the rank's and in the whole, and how many
 * ranks have it. */
static void each_element(Machine *m,
                         void (*call)(Machine *m, int unit, int64_t here, int64_t whole, int copies))
{
    for (int r = 0; r < m->ranks; r++)
        for (int u = 0; u < m->m->layers + 2; u++) {
            const Unit *unit = unit_of(m, u);
            int64_t whole = 0;
            use_rank(m, r);
            for (const UnitTensor *t = unit->tensor; t < unit->tensor + unit->tensors; t++) {
                for (int64_t i = 0; i < t->rows * t->cols; i++)
                    call(m, u, t->offset + i, whole + whole_element(m, t, r, i), copies_of(m, t));
                whole += t->rows * t->cols * (m->ranks / copies_of(m, t));
            }
        }
}

static void take_param(Machine *m, int unit, int64_t here, int64_t whole, int copies)
{
    (void)copies;
    m->param[unit][here] = m->run->param[unit][whole];
}

/* Of what several ranks have of a layer, a shard was summed over them, and the first has it; what other
 * ranks hold was not. Tokens are each rank's own, and so is its part of the gradients of embedding and
 * head. */
static void give_grad(Machine *m, int unit, int64_t here, int64_t whole, int copies)
{
    const Unit *u = unit_of(m, unit);
    const bool layer = unit > 0 && unit <= m->m->layers, summed = layer && here < u->shard;
    const int first = summed ? m->rank / copies * copies : m->rank;
    if (m->rank == first)
        m->run->grad[unit][whole] += m->grad[unit][here];
    else
        m->lost |= !(fabs(m->grad[unit][here] - m->grads[first][unit][here]) <=
                     1e-9 * (1 + fabs(m->grad[unit][here])));
}

static double **unit_arrays(const Machine *m)
{
    double **at = calloc((size_t)m->m->layers + 2, sizeof *at);
    for (int u = 0; u < m->m->layers + 2; u++)
        at[u] = calloc((size_t)unit_of(m, u)->elements, sizeof **at);
    return at;
}

static void free_units(const Machine *m, double **at)
{
    for (int u = 0; u < m->m->layers + 2; u++)
        free(at[u]);
    free(at);
}

static void open_ranks(Machine *m)
{
    for (int r = 0; r < m->ranks; r++) {
        m->arenas[r] = calloc((size_t)m->bytes + 1, sizeof(double));
        m->params[r] = unit_arrays(m);
        m->grads[r] = unit_arrays(m);
    }
    each_element(m, take_param);
}

static void close_ranks(Machine *m)
{
    for (int r = 0; r < m->ranks; r++) {
        free(m->arenas[r]);
        free_units(m, m->params[r]);
        free_units(m, m->grads[r]);
    }
}

bool step_run(Run *r)
{
    Machine m = {.run = r,
                 .step = r->flow->step,
                 .m = &r->flow->step->program->model,
                 .heads = r->flow->step->shape.chunk,
                 .ranks = r->flow->step->shape.tensor};
    int64_t host = 0;
    for (int i = 0; i < r->flow->items; i++) {
        const int64_t end = r->flow->item[i].offset + r->flow->item[i].bytes;
        int64_t *bytes = on_host(&m, &r->flow->item[i]) ? &host : &m.device;
        *bytes = end > *bytes ? end : *bytes;
    }
    m.bytes = m.device + host;
    m.spoiled = calloc((size_t)m.bytes + 1, 1);
    m.order = calloc((size_t)r->flow->items + 1, sizeof *m.order);
    put_in_order(&m);
    open_ranks(&m);
    for (int q = 0; q < STREAMS; q++)
        m.queue[q].at = calloc((size_t)(r->flow->ops * r->sequences), sizeof *m.queue[q].at);
    r->loss = 0;
    m.t = -1;
    spoil(&m);
    for (int k = 0; k < m.ranks; k++) {
        use_rank(&m, k);
        fill_state(&m);
    }
    for (m.sequence = 0; m.sequence < r->sequences; m.sequence++)
        for (m.t = 0; m.t < r->flow->ops && !m.lost; m.t++) {
            advance(&m);
            spoil(&m);
        }
    each_element(&m, give_grad);
    for (int k = 0; k < m.ranks && !m.lost; k++) {
        use_rank(&m, k);
        check_params(&m);
    }
    close_ranks(&m);
    free(m.spoiled);
    free(m.order);
    for (int q = 0; q < STREAMS; q++)
        free(m.queue[q].at);
    return !m.lost;
}
