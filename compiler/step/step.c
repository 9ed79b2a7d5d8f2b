/* step.c: values and operations of a step: names and sizes; and a step as text (--emit=step). */
#include "step/step.h"
#include "burst_attend.h"
#include "burst_sizes.h"

#include <stdlib.h>
#include <string.h>

static const char *const dim_text[] = {
#define X(id, text) text,
    DIMS(X)
#undef X
};
static const OpRow ops[OP_KINDS] = {
#define OPERATION(id, text, of_part, on, ...) \
    [OP_##id] = {.name = text, .part = BURST_P_##of_part, .stream = STREAM_##on, __VA_ARGS__},
#include "step/operations.def"
#undef OPERATION
};

const OpRow *op_row_of(OpKind k)
{
    return &ops[k];
}

const char *op_name(OpKind k)
{
    return ops[k].name;
}

Stream op_stream(OpKind k)
{
    return ops[k].stream;
}

bool op_follows_compute(OpKind k)
{
    return op_stream(k) == STREAM_COMPUTE || op_stream(k) == STREAM_TENSOR;
}

WorkKind op_work_kind(OpKind k)
{
    return ops[k].work;
}

int64_t step_sequences(const Step *s)
{
    return s->sequences;
}

bool op_runs(const Op *o, int64_t sequence, int64_t sequences)
{
    return o->when == WHEN_ALWAYS || sequence == (o->when == WHEN_FIRST ? 0 : sequences - 1);
}

/* Products are projections, except the feed-forward network's. */
int op_part(const Op *o)
{
    return ops[o->kind].part == BURST_P_PROJECT && o->weight && strncmp(o->weight, "mlp.", 4) == 0
               ? BURST_P_FFN
               : ops[o->kind].part;
}

int step_value(const Step *s, const char *name)
{
    for (int i = 0; i < s->values.n; i++)
        if (strcmp(s->values.at[i].name, name) == 0)
            return i;
    return -1;
}

int step_add_value(Step *s, Value v)
{
    *vec_push(s->arena, &s->values) = v;
    return s->values.n - 1;
}

Op op_make(OpKind k)
{
    Op o = {.kind = k, .tensors = 1};
    for (int i = 0; i < OP_READS; i++)
        o.read[i].value = -1;
    for (int i = 0; i < OP_WRITES; i++)
        o.write[i].value = -1;
    return o;
}

Op op_wait(OpKind awaits)
{
    Op o = op_make(OP_WAIT);
    o.awaits = awaits;
    return o;
}

int value_indices(const Step *s, const Value *v)
{
    const int layers = s->program->model.layers;
    switch (v->index) {
    case INDEX_CHUNK: return s->chunks;
    case INDEX_SLOT: return 2;
    case INDEX_UNIT: return step_units(s);
    case INDEX_NONE: return v->host ? layers - !v->of_last : 1;
    case INDEX_VISIT: return v->host ? layers - !v->of_last : step_visits(s);
    default: return v->host ? layers - !v->of_last : layers + (v->index == INDEX_BOUNDARY);
    }
}

bool op_touches(const Step *s, const Op *o, bool (*is)(const Value *v))
{
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        if (is(&s->values.at[o->read[i].value]))
            return true;
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        if (is(&s->values.at[o->write[i].value]))
            return true;
    return false;
}

bool op_takes_rows(const Step *s, const Op *o, int value)
{
    const Value *v = &s->values.at[value];
    const Dim d = v->dim[v->dim[0] == DIM_HEADS]; /* [heads][tokens] */
    const LoopDim loop = op_dim(s, o);
    if (loop == LOOP_HEADS)
        return v->all_heads;
    return loop == LOOP_TOKENS && (d == DIM_TOKENS || d == DIM_ALL_TOKENS || d == DIM_TILES) &&
           !op_takes_keys(s, o, value);
}

bool op_takes_keys(const Step *s, const Op *o, int value)
{
    const Dim d = s->values.at[value].dim[1];
    return (op_work_kind(o->kind) == WORK_ATTENTION && dim_of_keys(d)) ||
           (o->kind == OP_SELECT && (dim_of_keys(d) || d == DIM_INDEX_KEY));
}

bool op_takes_whole(const Step *s, const Op *o, int value)
{
    const LoopDim loop = op_dim(s, o);
    if (loop == LOOP_HEADS)
        return !is_of_heads(&s->values.at[value]);
    return loop == LOOP_TOKENS && !op_in_loop(s, o, LOOP_KEYS) && op_takes_keys(s, o, value);
}

int op_row(const Step *s, const StepOp *o, int value)
{
    return op_in_loop(s, o->op, LOOP_KEYS) && dim_of_keys(s->values.at[value].dim[1]) ? o->index[LOOP_KEYS]
                                                                                      : op_chunk(s, o);
}

bool op_adds(const Step *s, const StepOp *o, int i)
{
    const int value = o->op->write[i].value;
    if (op_in_loop(s, o->op, LOOP_KEYS) && op_work_kind(o->op->kind) == WORK_ATTENTION)
        return dim_of_keys(s->values.at[value].dim[1]) && s->values.at[value].kind == VALUE_GRADIENT
                   ? step_begun(s, o)
                   : o->turn[LOOP_KEYS] > 0;
    return o->op->adds[i] || (op_chunk(s, o) > 0 && op_takes_whole(s, o->op, value) &&
                              (s->values.at[value].kind != VALUE_SCRATCH || op_takes_keys(s, o->op, value)));
}

bool op_is_short(const Step *s, const StepOp *o)
{
    return op_in_loop(s, o->op, LOOP_HEADS) &&
           o->index[LOOP_HEADS] >= s->shape.head_chunks - s->shape.short_chunks;
}

bool op_copies(OpKind k)
{
    return op_work_kind(k) == WORK_COPY;
}

/* On a device rotation works in place, and there is one layout. */
bool op_in_place(const Step *s, OpKind k)
{
    const bool moves = k == OP_ROPE || k == OP_LAYOUT || k == OP_LAYOUT_BACK;
    return op_spends(k) || (moves && s->program->target->one_layout);
}

bool op_spends(OpKind k) { return k == OP_SWIGLU_BACK || k == OP_EXPERTS_ACT_BACK; }

int op_first(const Block *b, OpKind k)
{
    int i = 0;
    while (b->ops.at[i].kind != k)
        i++;
    return i;
}

bool op_in_block(const Block *b, OpKind k)
{
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.at[i].kind == k)
            return true;
    return false;
}

void op_insert(Step *s, Block *b, int at, Op o)
{
    vec_push(s->arena, &b->ops);
    memmove(&b->ops.at[at + 1], &b->ops.at[at], sizeof(Op) * (size_t)(b->ops.n - 1 - at));
    b->ops.at[at] = o;
}

/* The last operand is always none, so that loops over operands end. */
static Operand *next_operand(Operand *at, int most)
{
    int i = 0;
    while (at[i].value >= 0)
        i++;
    if (i >= most - 1)
        abort(); /* OP_READS or OP_WRITES is too small for a rule */
    return &at[i];
}

void op_read(Op *o, int value, int next)
{
    *next_operand(o->read, OP_READS) = (Operand){value, next};
}

void op_write(Op *o, int value, int next, bool adds)
{
    Operand *x = next_operand(o->write, OP_WRITES);
    *x = (Operand){value, next};
    o->adds[x - o->write] = adds;
}

/* ---- sizes ---- */

int64_t select_tiles(const Program *p, const Selection *s)
{
    return (p->sequence + s->queries - 1) / s->queries;
}

int64_t select_words(Heads h, const Selection *s)
{
    const int lists = s->for_each > 0 ? h.heads : h.kv_heads;
    return s->top * (s->for_each < 0 ? 1 : lists);
}

int64_t select_row(const Model *m, const Selection *s, Heads rank, bool keys)
{
    if (s->indexer)
        return (int64_t)(keys ? m->indexer.kv_heads : m->indexer.heads) * m->indexer.dim;
    return (int64_t)(keys ? rank.kv_heads : rank.heads) * m->head_dim;
}

int64_t select_key_words(const Program *p, const Selection *s, Heads rank)
{
    const bool halves = p->target->device_memory && s->key == BURST_SELECT_MAX_KEY; /* bf16 */
    return s->key_rows * select_row(&p->model, s, rank, true) / (halves ? 2 : 1);
}

int64_t select_scratch(const Program *p, const Shape *shape, int ranks, int64_t tokens)
{
    int64_t most = 0;
    for (int i = 0; i < p->selection_count; i++) {
        const Selection *s = &p->selections[i];
        const BurstSelectSizes n = {.tokens = tokens,
                                    .sequence = p->sequence,
                                    .ranks = ranks,
                                    .block = s->block,
                                    .queries = s->queries,
                                    .key_words = select_key_words(p, s, shape->rank),
                                    .query_words = s->query_rows *
                                                   select_row(&p->model, s, shape->rank, false),
                                    .list_words = select_words(shape->rank, s),
                                    .top = s->top,
                                    .device = p->target->device_memory,
                                    .tables = p->table_count};
        const int64_t bytes = burst_select_places(&n).bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

int expert_rows(const Model *m, const Shape *s)
{
    const int most = m->experts.experts / (s->expert_groups ? s->expert_groups : 1);
    return most < m->experts.top ? most : m->experts.top;
}

int64_t model_dim(const Model *m, const Shape *s, Heads h, Dim d)
{
    switch (d) {
    case DIM_HIDDEN: return m->hidden;
    case DIM_QUERY: return (int64_t)h.heads * m->head_dim;
    case DIM_KEY: return (int64_t)h.kv_heads * m->head_dim;
    case DIM_VALUE: return (int64_t)h.kv_heads * m->value_dim;
    case DIM_OUTPUT: return (int64_t)h.heads * m->value_dim;
    case DIM_OWN: return (int64_t)h.kv_heads * (m->head_dim - m->shared);
    case DIM_SHARED: return m->shared;
    case DIM_LATENT: return m->latent;
    case DIM_QUERY_LATENT: return m->query_latent;
    case DIM_HEADS: return h.heads;
    case DIM_KEY_HEADS: return h.kv_heads;
    case DIM_HEAD: return m->head_dim;
    case DIM_FFN: return s->ffn;
    case DIM_PAIR: return 2 * (int64_t)s->ffn;
    case DIM_VOCAB: return m->vocab;
    case DIM_EXPERTS: return m->experts.experts;
    case DIM_BOUNDS: return m->experts.experts / (s->expert_groups ? s->expert_groups : 1) + 1;
    case DIM_TOP:
    case DIM_SLOTS: return m->experts.top;
    case DIM_TOP_ROWS: return expert_rows(m, s);
    case DIM_EXPERT_WIDTH: return m->experts.width / s->tensor;
    case DIM_TOP_PAIR: return (int64_t)expert_rows(m, s) * 2 * (m->experts.width / s->tensor);
    case DIM_TOP_WIDTH: return (int64_t)expert_rows(m, s) * (m->experts.width / s->tensor);
    case DIM_TOP_HIDDEN: return (int64_t)expert_rows(m, s) * m->hidden;
    case DIM_SHARED_FFN: return m->experts.shared / s->tensor;
    case DIM_SHARED_PAIR: return 2 * (int64_t)(m->experts.shared / s->tensor);
    case DIM_SCAN_COLUMNS: return m->scan.columns / s->tensor;
    case DIM_SCAN_VALUES: return (int64_t)(m->scan.heads / s->tensor) * m->scan.value_dim;
    case DIM_SCAN_GATES: return (m->scan.read ? 2 : 1) * (int64_t)(m->scan.heads / s->tensor);
    case DIM_SCAN_GROUPS: return (m->scan.read ? m->scan.heads : m->scan.key_heads) / s->tensor;
    case DIM_SCAN_HEADS: return m->scan.heads / s->tensor;
    case DIM_SCAN_VALUE: return m->scan.value_dim;
    case DIM_SCAN_STATE: return burst_scan_state(&m->scan) / s->tensor;
    case DIM_KERNEL: return m->scan_kernel;
    case DIM_INDEX_QUERY: return (int64_t)m->indexer.heads * m->indexer.dim;
    case DIM_INDEX_KEY: return (int64_t)m->indexer.kv_heads * m->indexer.dim;
    case DIM_INDEX_HEADS: return m->indexer.heads;
    case DIM_INDEX_KEY_HEADS: return m->indexer.kv_heads;
    case DIM_INDEX: return m->indexer.dim;
    default: return 1;
    }
}

bool dim_of_heads(Dim d)
{
    return dim_of_queries(d) || dim_of_keys(d) || d == DIM_HEADS || d == DIM_KEY_HEADS || d == DIM_OWN ||
           d == DIM_LISTS;
}

bool dim_of_indexer(Dim d)
{
    return d == DIM_INDEX_QUERY || d == DIM_INDEX_KEY || d == DIM_INDEX_HEADS || d == DIM_INDEX_KEY_HEADS;
}

bool dim_of_scan(Dim d)
{
    return d == DIM_SCAN_COLUMNS || d == DIM_SCAN_VALUES || d == DIM_SCAN_GATES || d == DIM_SCAN_GROUPS ||
           d == DIM_SCAN_HEADS || d == DIM_SCAN_STATE;
}

BurstScan scan_of_rank(const Model *m, int tensor)
{
    BurstScan s = m->scan;
    int *const split[] = {&s.heads, &s.key_heads, &s.columns, &s.q, &s.k, &s.v};
    for (int i = 0; i < countof(split); i++)
        *split[i] /= tensor;
    return s;
}

bool dim_of_pairs(Dim d) { return d == DIM_PAIR || d == DIM_SHARED_PAIR; }
bool dim_of_keys(Dim d) { return d == DIM_KEY || d == DIM_VALUE; }
bool dim_of_queries(Dim d) { return d == DIM_QUERY || d == DIM_OUTPUT; }

Dim dim_of(const Model *m, Dim d)
{
    const bool same = m->value_dim == m->head_dim;
    if (d == DIM_VALUE && same)
        return DIM_KEY;
    if (!burst_activation_gates(m->experts.activation) && (d == DIM_TOP_PAIR || d == DIM_SHARED_PAIR))
        return d == DIM_TOP_PAIR ? DIM_TOP_WIDTH : DIM_SHARED_FFN;
    return d == DIM_OUTPUT && same ? DIM_QUERY : d;
}

static int64_t dim_size(const Step *s, Dim d)
{
    switch (d) {
    case DIM_TOKENS: return s->tokens;
    case DIM_ALL_TOKENS: return s->all_tokens;
    case DIM_CHUNK: return s->chunk;
    case DIM_TAIL: return s->tail;
    case DIM_SCAN_PIECES: return s->pieces;
    case DIM_HALO: return (int64_t)s->pieces * (s->program->model.scan_kernel - 1);
    default: return model_dim(&s->program->model, &s->shape, s->shape.chunk, d);
    }
}

int step_units(const Step *s) { return step_group_unit(s, 0, s->units.groups + 1); }

/* As burst_unit_at numbers them. */
int step_group_unit(const Step *s, int layer, int group)
{
    const int layers = s->program->model.layers;
    return layers + 2 + (group - 1) * layers + layer;
}

bool unit_is_of_layer(const Step *s, int unit)
{
    return unit > 0 && unit != s->program->model.layers + 1 && step_unit(s, unit)->elements > 0;
}

int step_groups(const Step *s, int block)
{
    return block_of_layer(block) && model_with_kind(&s->program->model, block_kind(block)).experts.experts
               ? s->units.groups
               : 0;
}

int step_unit_row(const Step *s, const Op *o, const Block *b)
{
    return o->group ? s->units.head + o->group : b->unit;
}

int step_visits(const Step *s) { return burst_visits(s->program->model.layers, s->group, s->units.groups); }

int unit_of_visit(const Step *s, int visit)
{
    return burst_unit_at(s->program->model.layers, s->group, s->units.groups, visit);
}

const Unit *step_unit(const Step *s, int unit) { return units_of(&s->units, &s->program->model, unit); }

int step_kinds(const Step *s) { return model_kinds(&s->program->model); }

/* The first blocks of phases that have one for each kind of layers. */
static const int phases[] = {BLOCK_FORWARD, BLOCK_FORWARD_AGAIN, BLOCK_BACKWARD, BLOCK_BACKWARD_LOWER};

int block_phase(int block)
{
    for (int i = 0; i < countof(phases); i++)
        if (block >= phases[i] && block < phases[i] + LAYER_KINDS)
            return phases[i];
    return block;
}

int block_kind(int block) { return block - block_phase(block); }

int step_layer_blocks(const Step *s, int blocks[STEP_BLOCKS])
{
    static const int of[] = {BLOCK_FORWARD, BLOCK_BACKWARD, BLOCK_BACKWARD_LOWER};
    int n = 0;
    for (int i = 0; i < countof(of); i++)
        for (int k = 0; k < step_kinds(s); k++)
            blocks[n++] = of[i] + k;
    return n;
}

bool block_of_layer(int block)
{
    bool of = false;
    for (int i = 0; i < countof(phases); i++)
        of |= block_phase(block) == phases[i];
    return of;
}

bool step_has_value(const Step *s, int kind, int value)
{
    if (s->values.at[value].kind != VALUE_ACTIVATION)
        return true;
    const Block *b = &s->block[BLOCK_FORWARD + kind];
    for (int i = 0; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        for (int j = 0; j < OP_READS && o->read[j].value >= 0; j++)
            if (o->read[j].value == value && !op_copies(o->kind) && o->kind != OP_WAIT)
                return true;
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0; j++)
            if (o->write[j].value == value && !op_copies(o->kind))
                return true;
    }
    return false;
}

bool step_replicates(const Step *s)
{
    return s->units.ranks < s->program->cluster.world;
}

static bool rounds(const Step *s)
{
    return s->program->target->activation_bytes < (int)sizeof(float);
}

bool step_copies_params(const Step *s) { return rounds(s) || s->choice.optimizer; }

const char *step_param(const Step *s)
{
    if (rounds(s))
        return "param_bf16";
    return s->choice.optimizer ? "param_copy" : "param";
}

bool op_follows_weights(OpKind k)
{
    return k == OP_DOWNLOAD;
}

static int64_t element_bytes(const Step *s, Element e)
{
    if (e == EL_ACTIVATION)
        return s->program->target->activation_bytes;
    return e == EL_BYTE ? 1 : 4;
}

int64_t step_bytes(const Step *s, const Value *v, int unit)
{
    const int64_t size = element_bytes(s, v->element);
    const Unit *u = step_unit(s, unit);
    if (v->bytes)
        return v->bytes;
    if (v->kind == VALUE_CACHE && unit >= 0 &&
        !(v->dim[0] == DIM_CACHE ? step_keeps_keys(s, unit) : step_is_recurrent(s, unit)))
        return 0; /* the layer keeps something else, or nothing */
    if (v->dim[0] == DIM_UNIT || v->dim[0] == DIM_SHARD)
        return (v->dim[0] == DIM_UNIT ? unit_gathered(u) : u->shard) * size;
    const int64_t rows = v->dim[0] == DIM_CACHE ? step_cache_tokens(s, unit) : dim_size(s, v->dim[0]),
                  bytes = rows * dim_size(s, v->dim[1]) * size;
    return v->all_heads ? bytes / s->shape.chunk.kv_heads * s->shape.rank.kv_heads : bytes;
}

int64_t step_row_bytes(const Step *s, const Value *v)
{
    return dim_size(s, v->dim[1]) * element_bytes(s, v->element);
}

const UnitTensor *unit_tensor(const Unit *u, const char *name)
{
    for (int i = 0; i < u->tensors; i++)
        if (strcmp(u->tensor[i].name, name) == 0)
            return &u->tensor[i];
    return NULL;
}

const UnitTensor *op_tensor(const Step *s, const Op *o, const Block *b)
{
    const UnitTensor *t = o->weight ? unit_tensor(&s->units.at[step_unit_row(s, o, b)], o->weight) : NULL;
    return o->weight && !t ? &s->units.at[0].tensor[0] : t; /* a head tied to the embedding */
}

/* Whether its layer has slices of experts. */
static bool combines_slices(const Step *s, const Block *b)
{
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.at[i].kind == OP_EXPERTS_DOWN && op_tensor(s, &b->ops.at[i], b)->slice)
            return true;
    return false;
}

bool step_has_slices(const Step *s, const Block *b, const Op *o)
{
    if (!s->units.slices)
        return false;
    if (o->kind == OP_COMBINE)
        return combines_slices(s, b);
    return (o->kind == OP_LINEAR || o->kind == OP_EMBED || o->kind == OP_NEXT) && op_tensor(s, o, b)->slice;
}

/* ---- text ---- */

static const char *index_text(const Value *v, int next)
{
    static const char *const index[] = {"", "[layer]", "[layer]", "[visit]", "[unit]", "[chunk]", "[slot]"};
    if (next == 0)
        return index[v->index];
    if (next > 0)
        return v->index == INDEX_VISIT ? "[visit + 1]" : "[layer + 1]";
    if (v->index == INDEX_LAYER || v->index == INDEX_BOUNDARY)
        return "[layer - 1]";
    return v->kind == VALUE_STATE ? "[unit - 1]" : "[visit - 1]";
}

/* Of a group of a layer's experts, its unit's: "weight[visit of group 2]" */
static void print_operand(const Step *s, const Op *o, Operand x, bool adds, Text *out)
{
    static const char *const next[] = {"before", "of", "after"};
    const Value *v = &s->values.at[x.value];
    text_printf(out, "%s%s", adds ? "+" : "", v->name);
    if (o->group && (v->index == INDEX_VISIT || v->index == INDEX_UNIT))
        text_printf(out, "[%s %s group %d]", v->index == INDEX_VISIT ? "visit" : "unit", next[x.next + 1],
                    o->group);
    else
        text_add(out, index_text(v, x.next));
}

static int depth_of(const Step *s, int scope)
{
    int depth = 0;
    for (; scope; scope = s->scopes.at[scope].around)
        depth++;
    return depth;
}

static void print_op(const Step *s, const Op *o, Text *out)
{
    const char *comma = "";
    text_printf(out, "  %*s%s%-14s ", 2 * depth_of(s, o->scope), "", o->again ? "again " : "      ",
                op_name(o->kind));
    if (o->kind == OP_WAIT)
        text_printf(out, "%s of ", op_name(o->awaits));
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++, comma = ", ") {
        text_add(out, comma);
        print_operand(s, o, o->read[i], false, out);
    }
    if (o->weight)
        text_printf(out, "%s%s", comma, o->weight);
    comma = " -> ";
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++, comma = ", ") {
        text_add(out, comma);
        print_operand(s, o, o->write[i], o->adds[i], out);
    }
    static const char *const when[] = {"\n", ", first sequence\n", ", last sequence\n"};
    text_add(out, when[o->when]);
}

const char *step_value_text(Arena *a, const Step *s, int value)
{
    const Value *v = &s->values.at[value];
    const char *second = v->dim[1] == DIM_ONE ? "" : arena_printf(a, "[%s]", dim_text[v->dim[1]]);
    return arena_printf(a, "%s %s[%s]%s%s", v->name, v->all_heads ? "[chunks of heads]" : "",
                        dim_text[v->dim[0]], second, v->saved ? ", saved" : "");
}

static void print_value(const Value *v, Text *out)
{
    static const char *const element[] = {"activation", "fp32", "int32", "bytes"};
    static const char *const kind[] = {"input", "activation", "gradient", "weight", "sum",
                                       "shard", "rounded",    "cache",    "state",  "scratch"};
    const bool two = v->dim[1] != DIM_ONE;
    text_printf(out, "  %-14s %-10s %-10s %s[%s]%s%s%s", v->name, kind[v->kind], element[v->element],
                v->all_heads ? "[chunks of heads]" : "", dim_text[v->dim[0]], two ? "[" : "",
                two ? dim_text[v->dim[1]] : "", two ? "]" : "");
    if (v->saved && v->saved_from)
        text_printf(out, ", saved from layer %d on\n", v->saved_from);
    else if (v->host)
        text_add(out, ", on the host\n");
    else
        text_add(out, v->saved ? ", saved\n" : "\n");
}

static void print_heading(const Step *s, const Block *b, Text *out)
{
    static const char *const each[] = {"", ": for each layer", ": for each layer, from the last to the first",
                                       ": for each unit", ": for each unit of layers"};
    const bool some = (b->repeat == REPEAT_UP || b->repeat == REPEAT_DOWN) &&
                      b->end - b->first < s->program->model.layers;
    text_add(out, b->name);
    if (block_phase((int)(b - s->block)) == BLOCK_FORWARD_AGAIN) {
        text_printf(out,
                    ": for each layer but the last of a group of %d, before their backward; not of the "
                    "last group\n",
                    s->group);
        return;
    }
    if (some)
        text_printf(out, ": for layers %d to %d", b->end - 1, b->first);
    text_printf(out, "%s%s\n", some ? "" : each[b->repeat],
                step_kinds(s) > 1 && block_of_layer((int)(b - s->block)) ? ", of its kind" : "");
}

/* "layers\n  ffn: 0, 1; moe: 2 .. 7" */
static void print_kinds(const Step *s, Text *out)
{
    const Model *m = &s->program->model;
    if (step_kinds(s) == 1)
        return;
    text_add(out, "layers\n");
    for (int k = 0; k < step_kinds(s); k++) {
        const char *comma = " ";
        text_printf(out, "  %s:", model_kind_name(m, k));
        for (int l = 0, end; l < m->layers; l = end + 1) {
            for (end = l; end + 1 < m->layers && model_kind(m, end + 1) == model_kind(m, l);)
                end++;
            if (model_kind(m, l) != k)
                continue;
            text_printf(out, "%s%d", comma, l);
            if (end > l)
                text_printf(out, " .. %d", end);
            comma = ", ";
        }
        text_add(out, "\n");
    }
}

static void print_heads(const Step *s, Text *out)
{
    const Heads few = shape_chunk(&s->shape, true);
    text_printf(out, "%d chunks of %d heads and %d kv_heads", s->shape.head_chunks, s->shape.chunk.heads,
                s->shape.chunk.kv_heads);
    if (s->shape.short_chunks)
        text_printf(out, "; of the last %d, %d and %d", s->shape.short_chunks, few.heads, few.kv_heads);
}

static void print_loop(const Step *s, const Scope *n, Text *out)
{
    static const char *const which[] = {"for each of ", "for the first of ", "for the first two of "};
    text_add(out, which[n->turns]);
    if (n->dim == LOOP_HEADS)
        print_heads(s, out);
    else if (n->dim == LOOP_TOKENS)
        text_printf(out, "%d chunks of %lld tokens", s->chunks, (long long)s->chunk);
    else
        text_add(out, "the chunks of keys that it attends to");
}

/* What begins with the operation, from the outside in. */
static void print_scopes(const Step *s, int before, int scope, Text *out)
{
    const Scope *n = &s->scopes.at[scope];
    if (scope_inside(s, before, scope))
        return;
    print_scopes(s, before, n->around, out);
    text_printf(out, "      %*s", 2 * depth_of(s, scope), "");
    if (n->kind == SCOPE_LOOP)
        print_loop(s, n, out);
    else if (n->kind == SCOPE_AHEAD)
        text_printf(out, n->turns > 1 ? "for the next after the first two" : "for the next");
    else
        text_add(out, "if its sums are begun");
    text_add(out, "\n");
}

static void print_block(const Step *s, const Block *b, Text *out)
{
    for (int j = 0; j < b->ops.n; j++) {
        const Op *o = &b->ops.at[j];
        print_scopes(s, j ? o[-1].scope : 0, o->scope, out);
        print_op(s, o, out);
    }
}

static void print_evaluation(const Step *s, Text *out)
{
    Arena *a = arena_new();
    const Step *e = step_evaluation(a, s);
    text_printf(out, "%s: of evaluation, after embed and forward\n", e->block[BLOCK_HEAD].name);
    print_block(e, &e->block[BLOCK_HEAD], out);
    arena_free(a);
}

void print_step(const Step *s, Text *out)
{
    text_add(out, "burst-step 1\nvalues\n");
    for (int i = 0; i < s->values.n; i++)
        print_value(&s->values.at[i], out);
    print_kinds(s, out);
    for (int i = 0; i < STEP_BLOCKS; i++) {
        if (!s->block[i].ops.n)
            continue;
        print_heading(s, &s->block[i], out);
        print_block(s, &s->block[i], out);
    }
    if (s->block[BLOCK_OPTIMIZER].ops.n)
        print_evaluation(s, out);
}

bool is_of_heads(const Value *v)
{
    for (int i = 0; i < countof(v->dim); i++)
        if (dim_of_heads(v->dim[i]))
            return true;
    return false;
}
