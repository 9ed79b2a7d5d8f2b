/* step/verify/reference.c: numbers of what the forward blocks compute. */
#include "step/verify/internal.h"

#include <string.h>

static const Rule rules[] = {
    {.of = OP_EMBED, .kind = OP_EMBED, .read = "x0", .write = "y0", .weight = true},
    {.of = OP_NORM, .kind = OP_NORM, .read = "x0x1", .write = "y0y1", .weight = true},
    {.of = OP_SQUARES, .kind = OP_SQUARES, .read = "x0", .write = "y0"},
    {.of = OP_LINEAR, .kind = OP_LINEAR, .read = "x0x1", .write = "y0", .weight = true},
    {.of = OP_BIAS, .kind = OP_BIAS, .read = "x0", .write = "y0", .weight = true},
    {.of = OP_ROPE, .kind = OP_ROPE, .read = "x0", .write = "y0"},
    {.of = OP_ROTATE, .kind = OP_ROTATE, .read = "x0", .write = "y0"},
    {.of = OP_LAYOUT, .kind = OP_LAYOUT, .read = "x0", .write = "y0"},
    {.of = OP_JOIN, .kind = OP_JOIN, .read = "x0x1", .write = "y0"},
    {.of = OP_SELECT, .kind = OP_SELECT, .read = "x0x1", .write = "y0"},
    {.of = OP_ATTENTION, .kind = OP_ATTENTION, .read = "x0x1x2x3", .write = "y0y1", .weight = true},
    {.of = OP_CACHE, .kind = OP_CACHE, .read = "x0x1", .write = "y0y1", .weight = true},
    {.of = OP_CACHE_CONV, .kind = OP_CACHE_CONV, .read = "x0", .write = "y0"},
    {.of = OP_CACHE_SCAN, .kind = OP_CACHE_SCAN, .read = "x0x1", .write = "y0y1y2"},
    {.of = OP_LAST_TOKEN, .kind = OP_LAST_TOKEN, .read = "x0", .write = "y0"},
    {.of = OP_NEXT, .kind = OP_NEXT, .read = "x0", .write = "", .weight = true},
    {.of = OP_KEEP, .kind = OP_KEEP, .read = "x0x1", .write = "y0y1"},
    {.of = OP_ATTENTION, .kind = OP_ATTENTION_REST, .read = "x0x1x2x3k0k1", .write = "y0y1"},
    {.of = OP_SINK, .kind = OP_SINK, .read = "x0x1", .write = "y0", .weight = true},
    {.of = OP_SWIGLU, .kind = OP_SWIGLU, .read = "x0x1", .write = "y0"},
    {.of = OP_SCALE, .kind = OP_SCALE, .read = "x0x1", .write = "y0"},
    {.of = OP_GATE, .kind = OP_GATE, .read = "x0x1", .write = "y0"},
    {.of = OP_GATE_ELEMENTS, .kind = OP_GATE_ELEMENTS, .read = "x0x1", .write = "y0"},
    {.of = OP_LOGITS, .kind = OP_LOGITS, .read = "x0", .write = "y0", .weight = true},
    {.of = OP_CHOOSE, .kind = OP_CHOOSE, .read = "x0", .write = "y0y1", .weight = true},
    {.of = OP_COUNT, .kind = OP_COUNT, .read = "x0x1x2x3", .write = ""},
    {.of = OP_BALANCE, .kind = OP_BALANCE, .read = "x0x1x2", .write = ""},
    {.of = OP_ARRANGE, .kind = OP_ARRANGE, .read = "x0", .write = "y0y1y2"},
    {.of = OP_EXPERTS_UP, .kind = OP_EXPERTS_UP, .read = "x0x1x2x3", .write = "y0", .weight = true},
    {.of = OP_EXPERTS_BIAS, .kind = OP_EXPERTS_BIAS, .read = "x0x1", .write = "y0", .weight = true},
    {.of = OP_EXPERTS_ACT, .kind = OP_EXPERTS_ACT, .read = "x0x1x2", .write = "y0"},
    {.of = OP_EXPERTS_DOWN, .kind = OP_EXPERTS_DOWN, .read = "x0x1x2", .write = "y0", .weight = true},
    {.of = OP_EXPERTS_OUT_BIAS, .kind = OP_EXPERTS_OUT_BIAS, .read = "x0x1x2", .write = "y0", .weight = true},
    {.of = OP_COMBINE, .kind = OP_COMBINE, .read = "x0x1x2", .write = "y0"},
    {.of = OP_CONV, .kind = OP_CONV, .read = "x0", .write = "y0", .weight = true},
    {.of = OP_SCAN_GATES, .kind = OP_SCAN_GATES, .read = "x0", .write = "y0y1", .weight = true},
    {.of = OP_SCAN, .kind = OP_SCAN, .read = "x0x1x2", .write = "y0", .weight = true},
    {.of = OP_HALO, .kind = OP_HALO, .read = "x0", .write = "y0"},
    {.of = OP_CONV_PIECES, .kind = OP_CONV_PIECES, .read = "x0x1", .write = "y0", .weight = true},
    {.of = OP_STATES, .kind = OP_STATES, .read = "x0x1x2", .write = "y0"},
    {.of = OP_SCAN_PIECES, .kind = OP_SCAN_PIECES, .read = "x0x1x2x3", .write = "y0", .weight = true},
    {.of = OP_GATED_NORM, .kind = OP_GATED_NORM, .read = "x0x1", .write = "y0y1", .weight = true},
    {.of = OP_TENSOR_GATHER, .kind = OP_TENSOR_GATHER, .read = "x0", .write = "y0"},
    {.of = OP_TENSOR_SCATTER, .kind = OP_TENSOR_SCATTER, .read = "x0x1", .write = "y0"},
    {.of = OP_TENSOR_ALL_REDUCE, .kind = OP_TENSOR_ALL_REDUCE, .read = "x0", .write = "y0"},
    {.of = OP_EVALUATE, .kind = OP_EVALUATE, .read = "x0x1x2", .write = "", .weight = true},
    {.of = OP_LOSS, .kind = OP_LOSS, .read = "x0x1x2", .write = "d0", .weight = true, .sum = true},
    {.of = OP_EMBED, .kind = OP_EMBED_BACK, .read = "x0g0", .write = "", .sum = true},
    {.of = OP_NORM, .kind = OP_NORM_BACK, .read = "x0y1g0", .write = "d0d1", .weight = true, .sum = true},
    {.of = OP_SQUARES, .kind = OP_SQUARES_BACK, .read = "x0g0", .write = "d0"},
    {.of = OP_LINEAR, .kind = OP_LINEAR_DW, .read = "g0x0", .write = "", .sum = true},
    {.of = OP_LINEAR, .kind = OP_LINEAR_DX, .read = "g0", .write = "d0", .weight = true},
    {.of = OP_BIAS, .kind = OP_BIAS_BACK, .read = "g0", .write = "", .sum = true},
    {.of = OP_ROPE, .kind = OP_ROPE_BACK, .read = "g0", .write = "d0"},
    {.of = OP_ROTATE, .kind = OP_ROTATE_BACK, .read = "g0", .write = "d0"},
    {.of = OP_LAYOUT, .kind = OP_LAYOUT_BACK, .read = "g0", .write = "d0"},
    {.of = OP_JOIN, .kind = OP_JOIN_BACK, .read = "g0", .write = "d0d1"},
    {.of = OP_SWIGLU, .kind = OP_SWIGLU_BACK, .read = "x0g0", .write = "d0"},
    {.of = OP_SCALE, .kind = OP_SCALE_BACK, .read = "g0", .write = "d0"},
    {.of = OP_GATE, .kind = OP_GATE_BACK, .read = "x0x1g0", .write = "d0d1"},
    {.of = OP_GATE_ELEMENTS, .kind = OP_GATE_ELEMENTS_BACK, .read = "x0x1g0", .write = "d0d1"},
    {.of = OP_LOGITS, .kind = OP_LOGITS_DW, .read = "g0x0", .write = "", .sum = true},
    {.of = OP_LOGITS, .kind = OP_LOGITS_DX, .read = "g0", .write = "d0", .weight = true},
    {.of = OP_CHOOSE, .kind = OP_CHOOSE_BACK, .read = "x0y0g1", .write = "d0"},
    {.of = OP_BALANCE, .kind = OP_BALANCE_BACK, .read = "x0x1x2", .write = "d0"},
    {.of = OP_EXPERTS_UP, .kind = OP_EXPERTS_UP_DW, .read = "g0x0x1x2", .write = "", .sum = true},
    {.of = OP_EXPERTS_UP, .kind = OP_EXPERTS_UP_DX, .read = "g0x2", .write = "e0", .weight = true},
    {.of = OP_EXPERTS_UP, .kind = OP_EXPERTS_SUM, .read = "e0x3", .write = "d0"},
    {.of = OP_EXPERTS_BIAS, .kind = OP_EXPERTS_BIAS_BACK, .read = "g0x1", .write = "", .sum = true},
    {.of = OP_EXPERTS_ACT, .kind = OP_EXPERTS_ACT_BACK, .read = "x0x1x2g0", .write = "d0d1"},
    {.of = OP_EXPERTS_DOWN, .kind = OP_EXPERTS_DOWN_DW, .read = "g0x0x1x2", .write = "", .sum = true},
    {.of = OP_EXPERTS_DOWN, .kind = OP_EXPERTS_DOWN_DX, .read = "g0x1x2", .write = "d0", .weight = true},
    {.of = OP_CONV, .kind = OP_CONV_BACK, .read = "x0g0", .write = "d0", .weight = true, .sum = true},
    {.of = OP_SCAN_GATES,
     .kind = OP_SCAN_GATES_BACK,
     .read = "x0g0g1",
     .write = "d0",
     .weight = true,
     .sum = true},
    {.of = OP_SCAN, .kind = OP_SCAN_BACK, .read = "x0x1x2g0", .write = "d0d1d2", .weight = true, .sum = true},
    {.of = OP_HALO, .kind = OP_HALO_BACK, .read = "g0", .write = "d0"},
    {.of = OP_CONV_PIECES,
     .kind = OP_CONV_PIECES_BACK,
     .read = "x0x1g0",
     .write = "d0d1",
     .weight = true,
     .sum = true},
    {.of = OP_SCAN_PIECES, .kind = OP_STATES_BACK, .read = "x0x1x2g0", .write = "e0"},
    {.of = OP_SCAN_PIECES,
     .kind = OP_SCAN_PIECES_BACK,
     .read = "x0x1x2x3g0e0",
     .write = "d0d1d2",
     .weight = true,
     .sum = true},
    {.of = OP_GATED_NORM,
     .kind = OP_GATED_NORM_BACK,
     .read = "x0x1y1g0",
     .write = "d0d1",
     .weight = true,
     .sum = true},
    {.of = OP_EXPERTS_OUT_BIAS,
     .kind = OP_EXPERTS_OUT_BIAS_BACK,
     .read = "g0x0x1",
     .write = "d1",
     .weight = true,
     .sum = true},
    {.of = OP_TENSOR_GATHER, .kind = OP_TENSOR_GATHER_BACK, .read = "g0", .write = "d0"},
    {.of = OP_TENSOR_SCATTER, .kind = OP_TENSOR_SCATTER_BACK, .read = "g0", .write = "d0"},
    {.of = OP_TENSOR_ALL_REDUCE, .kind = OP_TENSOR_ALL_REDUCE_BACK, .read = "g0", .write = "d0"},
    {.of = OP_SINK, .kind = OP_SINK_BACK, .read = "g0x0x1", .write = "d0d1", .weight = true, .sum = true},
    {.of = OP_ATTENTION, .kind = OP_DELTA, .read = "y0g0g1", .write = "e0"},
    {.of = OP_ATTENTION,
     .kind = OP_ATTENTION_BACK,
     .read = "x0x1x2y1g0e0x3",
     .write = "d0d1d2d3",
     .weight = true,
     .sum = true},
};

/* ---- numbers ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return x ^ (x >> 32);
}

uint64_t number(uint64_t kind, uint64_t a, uint64_t b)
{
    return mix(mix(kind + 1, a), b);
}

uint64_t input_number(const Machine *m, int value)
{
    return number('i', (uint64_t)value, (uint64_t)m->sequence);
}
uint64_t state_number(int value, int unit, bool after)
{
    return number(after ? 'n' : 's', (uint64_t)value, (uint64_t)unit);
}
/* The number of something that an operation computes in addition to forward's outputs; the operation
 * represents all its inputs. */
uint64_t part_number(const Machine *m, const Made *x, char what, int n)
{
    return number((uint64_t)what, (uint64_t)(x - m->made.at) * 16 + (uint64_t)n, (uint64_t)m->sequence);
}

uint64_t chunk_number(uint64_t whole, int chunk, int chunks)
{
    uint64_t first = 1;
    for (int c = 1; chunk == 0 && c < chunks; c++)
        first -= number('c', 0, (uint64_t)c);
    return whole * (chunk == 0 ? first : number('c', 0, (uint64_t)chunk));
}

uint64_t rows_number(const Machine *m, const Record *r, const StepOp *o, int value)
{
    const int chunk = op_row(m->step, o, value);
    uint64_t sum = 0;
    for (; r; r = r->before) {
        if (r->chunk < 0)
            return sum + chunk_number(r->number, chunk, op_chunks(m->step, o->op));
        sum += r->chunk == chunk ? r->part : 0;
        if (r->chunk == chunk && r->anew)
            return sum;
    }
    return sum;
}

static bool is_of_keys(const Machine *m, int value) { return dim_of_keys(m->step->values.at[value].dim[1]); }

/* The part of a chunk of queries due to a chunk of keys, or the reverse: all that attend each other have all
 * of it. */
static uint64_t pair_number(const Machine *m, const StepOp *o, int value, uint64_t whole)
{
    const bool keys = is_of_keys(m, value);
    const int q = o->index[LOOP_TOKENS], k = o->index[LOOP_KEYS], other = keys ? q : k;
    uint64_t first = 1;
    int least = -1;
    for (int c = 0; c < m->step->chunks; c++) {
        if (!step_attends(m->step, o->layer, keys ? c : q, keys ? k : c))
            continue;
        first -= least < 0 ? 0 : number('p', 0, (uint64_t)c);
        least = least < 0 ? c : least;
    }
    return whole * (other == least ? first : number('p', 0, (uint64_t)other));
}

/* A chunk's rows. */
static uint64_t row_number(const Machine *m, const StepOp *o, int value, uint64_t whole)
{
    return op_dim(m->step, o->op) == LOOP_DIMS
               ? whole
               : chunk_number(whole, op_row(m->step, o, value), op_chunks(m->step, o->op));
}

uint64_t own_number(const Machine *m, const StepOp *o, int value, uint64_t whole)
{
    const uint64_t row = row_number(m, o, value, whole);
    const bool pairs = op_in_loop(m->step, o->op, LOOP_KEYS) && !op_copies(o->op->kind);
    return pairs ? pair_number(m, o, value, row) : row;
}

uint64_t taken_number(const Machine *m, const StepOp *o, int value, uint64_t whole)
{
    return op_takes_whole(m->step, o->op, value) ? whole : row_number(m, o, value, whole);
}

/* The kept rows of a value. */
static uint64_t kept_number(uint64_t whole) { return number('k', whole, 0); }

bool one_layout(const Machine *m, OpKind k) { return k == OP_LAYOUT && m->step->program->target->one_layout; }
bool passes(const Machine *m, const Made *x, int n)
{
    const OpKind k = x->op->kind;
    const bool residual = k == OP_LINEAR || k == OP_SCALE || k == OP_TENSOR_SCATTER;
    const bool bias = k == OP_BIAS || k == OP_EXPERTS_BIAS;
    return (residual && n == 1) || (k == OP_COMBINE && n != 1) || (bias && n == 0) ||
           (k == OP_EXPERTS_OUT_BIAS && n == 2) || one_layout(m, k);
}

const Rule *rule_of(OpKind k)
{
    for (int i = 0; i < countof(rules); i++)
        if (rules[i].kind == k)
            return &rules[i];
    return NULL;
}

bool adds_to_sum(const Op *o)
{
    for (int i = 0; i < countof(rules) && o->weight; i++)
        if (rules[i].of == o->kind && rules[i].sum)
            return true;
    return false;
}

/* What an operation adds to an operand's gradient. If only the output's gradient determines it, so does its
 * number: branches of a sum have equal gradients, and which of them is gathered or scaled first does not
 * matter. */
static uint64_t gradient_number(const Machine *m, const Made *x, int n)
{
    const OpKind k = x->op->kind;
    if (passes(m, x, n))
        return x->g[0];
    if (k == OP_TENSOR_SCATTER || k == OP_SCALE)
        return number('f', x->g[0], (uint64_t)k * BURST_SCALES + (uint64_t)x->op->scale);
    return part_number(m, x, 'd', n);
}

uint64_t word_number(const Machine *m, const Made *x, const char *word)
{
    const int n = word[1] - '0';
    switch (word[0]) {
    case 'k': return kept_number(x->y[n]);
    case 'x': return x->x[n];
    case 'y': return x->y[n];
    case 'g': return x->g[n];
    case 'd': return gradient_number(m, x, n);
    default: return part_number(m, x, word[0], n);
    }
}

/* ---- forward ---- */

typedef struct Def { int made, output; bool there; } Def;

static void add_made(Machine *m, const Op *o, int block, int layer, int unit, Def *def)
{
    Made x = {.op = o, .block = block, .unit = unit};
    const WorkKind work = op_work_kind(o->kind);
    const int own = o->group ? step_group_unit(m->step, layer, o->group) : unit;
    x.weights = (work == WORK_LOSS || work == WORK_NEXT) && m->step->program->model.tied ? 0 : own;
    x.tensor = op_tensor(m->step, o, &m->step->block[block]);
    uint64_t all = number(o->kind, x.tensor ? (uint64_t)x.tensor->offset : 0, (uint64_t)own);
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++) {
        const ValueKind k = m->step->values.at[o->read[i].value].kind;
        const Value *v = &m->step->values.at[o->read[i].value];
        const Def *d = &def[(v->copy ? v->original : o->read[i].value) * m->span + layer + o->read[i].next];
        if (k != VALUE_INPUT && k != VALUE_ACTIVATION)
            continue;
        /* kept rows and counts need no gradient, nor numbers of blocks, and a scan's backward has that of the
         * states that it begins with */
        const bool chosen = d->there && m->made.at[d->made].op->kind == OP_SELECT,
                   none = o->kind == OP_KEEP || o->kind == OP_COUNT || o->kind == OP_STATES ||
                          o->kind == OP_SELECT || chosen;
        x.from[x.ins] = k == VALUE_ACTIVATION && d->there && !none ? d->made : -1;
        x.chosen[x.ins] = chosen;
        x.output[x.ins] = d->output;
        x.x[x.ins] = !d->there ? input_number(m, o->read[i].value) : m->made.at[d->made].y[d->output];
        all = mix(all, x.x[x.ins++]);
    }
    for (int i = 0; i < OUTS && o->write[i].value >= 0; i++) {
        x.y[i] = o->kind == OP_KEEP ? kept_number(x.x[i]) : mix(all, (uint64_t)i);
        x.y[i] = one_layout(m, o->kind) ? x.x[0] : x.y[i];
        if (m->step->values.at[o->write[i].value].kind == VALUE_ACTIVATION)
            def[o->write[i].value * m->span + layer + o->write[i].next] = (Def){m->made.n, i, true};
    }
    *vec_push(m->arena, &m->made) = x;
}

static void add_block(Machine *m, int block, int layer, int unit, Def *def)
{
    const Block *b = &m->step->block[block];
    m->made_from[unit] = m->made.n;
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.at[i].kind <= OP_LOSS)
            add_made(m, &b->ops.at[i], block, layer, unit, def);
    m->made_to[unit] = m->made.n;
    for (int g = 1; g <= step_groups(m->step, block); g++) {
        const int of_group = step_group_unit(m->step, layer, g);
        m->made_from[of_group] = m->made_from[unit], m->made_to[of_group] = m->made_to[unit];
    }
}

/* Gradients, from the last operation to the first: all readers of an output come after it. */
static void add_gradients(Machine *m)
{
    for (int i = m->made.n - 1; i >= 0; i--) {
        Made *x = &m->made.at[i];
        x->trains |= x->op->kind == OP_LOSS || x->op->kind == OP_BALANCE;
        for (int n = 0; n < x->ins && x->trains; n++)
            if (x->from[n] >= 0) {
                m->made.at[x->from[n]].g[x->output[n]] += gradient_number(m, x, n);
                m->made.at[x->from[n]].trains = true;
            }
        if (adds_to_sum(x->op) && x->trains)
            m->sum[x->block == BLOCK_HEAD][x->weights] += part_number(m, x, 'w', 0);
    }
}

void read_forward(Machine *m)
{
    Def *def = NEW_ARRAY(m->arena, Def, m->step->values.n * m->span);
    m->made.n = 0;
    add_block(m, BLOCK_EMBED, 0, 0, def);
    for (int l = 0; l < m->layers; l++)
        add_block(m, BLOCK_FORWARD + model_kind(&m->step->program->model, l), l, l + 1, def);
    add_block(m, BLOCK_HEAD, m->layers, m->layers + 1, def);
    for (int k = 0; k < 2; k++)
        memset(m->sum[k], 0, sizeof(uint64_t) * (size_t)m->units);
    add_gradients(m);
    for (int u = 0; u < m->units; u++)
        m->all[u] += m->sum[0][u] + m->sum[1][u];
}
