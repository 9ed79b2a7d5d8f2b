/* step/unroll.c: the operations of a sequence in order: blocks layer after layer, loops chunk after
 * chunk. */
#include "step/step.h"

#include <string.h>

/* Operations of a block that are seen. */
typedef struct Seen { int n; const Op **op; } Seen;
typedef struct Walk {
    const Step *step;
    SeeOp see;
    void *to;
    int visit;
    Seen block[STEP_BLOCKS];
} Walk;

/* Chunks of keys with a live pair, one bit each. */
static uint64_t attended(const Step *s, int layer, int chunk)
{
    return s->pairs ? s->pairs[s->program->layer_mask[layer] * s->chunks + chunk] : UINT64_MAX;
}

bool step_attends(const Step *s, int layer, int chunk, int key)
{
    return attended(s, layer, chunk) >> key & 1;
}

bool step_begun(const Step *s, const StepOp *o)
{
    bool begun = false;
    for (int c = 0; c < o->index[LOOP_TOKENS] && !begun; c++)
        begun = step_attends(s, o->layer, c, o->index[LOOP_KEYS]);
    return begun;
}

int op_chunk(const Step *s, const StepOp *o)
{
    const LoopDim d = op_dim(s, o->op);
    return d == LOOP_DIMS ? 0 : o->index[d];
}

int op_slot(const Step *s, const StepOp *o)
{
    return o->turn[op_in_loop(s, o->op, LOOP_KEYS) ? LOOP_KEYS : LOOP_TOKENS] % 2;
}

/* The index that comes after this one, or first after -1; -1: none. */
static int next_index(const Step *s, const StepOp *at, LoopDim d, int index)
{
    const int n = d == LOOP_HEADS ? s->shape.head_chunks : s->chunks;
    do
        index++;
    while (index < n && d == LOOP_KEYS && !step_attends(s, at->layer, at->index[LOOP_TOKENS], index));
    return index < n ? index : -1;
}

static void walk_ops(const Walk *w, StepOp at, const Op **first, const Op **end, int around);

static void see_op(const Walk *w, StepOp *at)
{
    const int unit = at->unit;
    if (at->op->group)
        at->unit = step_group_unit(w->step, at->layer, at->op->group);
    w->see(w->to, at);
    at->unit = unit;
}

static void walk_loop(const Walk *w, StepOp at, const Op **first, const Op **end, int scope)
{
    const Scope *n = &w->step->scopes.at[scope];
    int *index = &at.index[n->dim], *turn = &at.turn[n->dim];
    *index = next_index(w->step, &at, n->dim, -1);
    for (*turn = 0; *index >= 0 && (!n->turns || *turn < n->turns); ++*turn) {
        walk_ops(w, at, first, end, scope);
        *index = next_index(w->step, &at, n->dim, *index);
    }
}

static void walk_scope(const Walk *w, StepOp at, const Op **first, const Op **end, int scope)
{
    const Scope *n = &w->step->scopes.at[scope];
    bool does = true;
    if (n->kind == SCOPE_LOOP) {
        walk_loop(w, at, first, end, scope);
        return;
    }
    if (n->kind == SCOPE_AHEAD) {
        at.index[n->dim] = next_index(w->step, &at, n->dim, at.index[n->dim]);
        does = at.index[n->dim] >= 0 && ++at.turn[n->dim] >= n->turns;
    } else {
        does = step_begun(w->step, &at);
    }
    if (does)
        walk_ops(w, at, first, end, scope);
}

/* Operations first to end, all inside the scope `around`. */
static void walk_ops(const Walk *w, StepOp at, const Op **first, const Op **end, int around)
{
    for (const Op **o = first, **next; o < end; o = next) {
        const int scope = scope_below(w->step, (*o)->scope, around);
        next = o + 1;
        while (scope != around && next < end && scope_below(w->step, (*next)->scope, around) == scope)
            next++;
        at.op = *o;
        if (scope == around)
            see_op(w, &at);
        else
            walk_scope(w, at, o, next, scope);
    }
}

static void walk_block(Walk *w, int block, int layer, int unit)
{
    const Seen *b = &w->block[block];
    const StepOp at = {.block = block, .layer = layer, .visit = w->visit, .unit = unit};
    walk_ops(w, at, b->op, b->op + b->n, 0);
    w->visit += block_of_layer(block) ? 1 + w->step->units.groups : 1;
}

static void walk_layer(Walk *w, int phase, int layer)
{
    walk_block(w, phase + model_kind(&w->step->program->model, layer), layer, layer + 1);
}

/* Backward of the layers first <= l < end; the last group's inputs are still there. */
static void walk_group(Walk *w, int first, int end)
{
    const Step *s = w->step;
    for (int l = first; l < end - 1 && end < s->program->model.layers; l++)
        walk_layer(w, BLOCK_FORWARD_AGAIN, l);
    for (int l = end - 1; l >= first; l--)
        walk_layer(w, l < s->saving.from ? BLOCK_BACKWARD_LOWER : BLOCK_BACKWARD, l);
}

/* Layers' units, then the units of their experts in groups. */
static void walk_layer_units(Walk *w, int block)
{
    const int layers = w->step->program->model.layers;
    for (int unit = 1; unit < step_units(w->step) && w->step->block[block].ops.n; unit++)
        if (unit_is_of_layer(w->step, unit))
            walk_block(w, block, unit <= layers ? unit - 1 : (unit - layers - 2) % layers, unit);
}

static Walk walk_make(Arena *a, const Step *s, bool *const idle[], SeeOp see, void *to)
{
    Walk w = {.step = s, .see = see, .to = to};
    for (int b = 0; b < STEP_BLOCKS; b++) {
        const Block *of = &s->block[b];
        Seen *seen = &w.block[b];
        seen->op = NEW_ARRAY(a, const Op *, of->ops.n);
        for (int i = 0; i < of->ops.n; i++)
            if (!idle || !idle[b][i])
                seen->op[seen->n++] = &of->ops.at[i];
    }
    return w;
}

void step_walk(const Step *s, bool *const idle[], SeeOp see, void *to)
{
    Arena *a = arena_new();
    Walk w = walk_make(a, s, idle, see, to);
    const int layers = s->program->model.layers;
    walk_block(&w, BLOCK_EMBED, 0, 0);
    for (int l = 0; l < layers; l++)
        walk_layer(&w, BLOCK_FORWARD, l);
    walk_block(&w, BLOCK_HEAD, layers, layers + 1);
    for (int first = (layers - 1) / s->group * s->group; first >= 0; first -= s->group)
        walk_group(&w, first, first + s->group < layers ? first + s->group : layers);
    walk_block(&w, BLOCK_EMBED_BACK, 0, 0);
    walk_layer_units(&w, BLOCK_MOMENTUM);
    if (s->block[BLOCK_ORTHOGONALIZE].ops.n)
        walk_block(&w, BLOCK_ORTHOGONALIZE, 0, 0);
    walk_layer_units(&w, BLOCK_MATRICES);
    for (int unit = 0; unit < step_units(s); unit++)
        if (step_unit(s, unit)->elements) /* layers without experts have none in groups */
            walk_block(&w, BLOCK_OPTIMIZER, 0, unit);
    walk_block(&w, BLOCK_DONE, 0, layers + 1);
    arena_free(a);
}

typedef struct Unroll { Arena *arena; Vec(StepOp) ops; } Unroll;

static void push(void *to, const StepOp *at)
{
    Unroll *u = to;
    *vec_append(u->arena, &u->ops) = *at;
}

int step_unroll(Arena *a, const Step *s, const StepOp **out)
{
    Unroll u = {.arena = arena_new()}; /* as it grows it leaves copies */
    step_walk(s, NULL, push, &u);
    StepOp *ops = arena_alloc(a, sizeof *ops * (size_t)u.ops.n);
    if (u.ops.n)
        memcpy(ops, u.ops.at, sizeof *ops * (size_t)u.ops.n);
    arena_free(u.arena);
    *out = ops;
    return u.ops.n;
}

int op_visit(const Step *s, const StepOp *o)
{
    const int phase = block_phase(o->block), group = o->op->group;
    const bool down = phase == BLOCK_BACKWARD || phase == BLOCK_BACKWARD_LOWER;
    return o->visit + (down && group ? s->units.groups + 1 - group : group);
}

/* The unit that backward reduced before: a layer's is after its experts', whose last group comes first. */
static int unit_before(const Step *s, const StepOp *o)
{
    const int groups = step_groups(s, o->block), group = o->op->group;
    if (!groups || group == groups)
        return groups ? o->layer + 2 : o->unit + 1;
    return step_group_unit(s, o->layer, group + 1);
}

static int unit_index(const Step *s, const StepOp *o, Operand x)
{
    if (o->op->embedding)
        return 0;
    if (o->block >= BLOCK_MOMENTUM)
        return o->unit + x.next;
    if (x.next < 0)
        return unit_before(s, o);
    return x.next ? unit_of_visit(s, op_visit(s, o) + x.next) : o->unit;
}

int operand_index(const Step *s, const StepOp *o, Operand x)
{
    switch (s->values.at[x.value].index) {
    case INDEX_LAYER:
    case INDEX_BOUNDARY: return o->layer + x.next;
    case INDEX_VISIT: return op_visit(s, o) + x.next;
    case INDEX_CHUNK: return op_chunk(s, o);
    case INDEX_SLOT: return op_slot(s, o);
    case INDEX_UNIT: return unit_index(s, o, x);
    default: return 0;
    }
}

/* Operations of these kinds share one mark. */
static OpKind event_kind(OpKind k)
{
    const bool sums = k == OP_ALL_REDUCE || k == OP_TENSOR_SUM;
    if (op_stream(k) == STREAM_TENSOR)
        return OP_TENSOR_GATHER;
    return sums ? OP_REDUCE : k;
}

int step_event(const Step *s, const StepOp *o)
{
    const bool waits = o->op->kind == OP_WAIT;
    const OpKind k = event_kind(waits ? o->op->awaits : o->op->kind);
    const Operand x = waits ? o->op->read[0] : o->op->write[0];
    if (k != OP_GATHER && k != OP_FETCH)
        return EVENT_SLOTS * (int)k;
    const bool apart = s->values.at[x.value].index == INDEX_NONE; /* a tied embedding */
    const int turn = k == OP_GATHER ? op_visit(s, o) + x.next : operand_index(s, o, x);
    return EVENT_SLOTS * (int)k + (apart ? 2 : (turn + 2) % 2);
}

static const Value *copied(const Step *s, const Op *o)
{
    return &s->values.at[(o->kind == OP_STAGE ? o->write : o->read)[0].value];
}

int copied_group(const Step *s, const Op *o)
{
    return copied(s, o)->host && copied(s, o)->index == INDEX_BOUNDARY ? s->group : 1;
}

Range copied_layers(const Step *s, const Op *o)
{
    const Value *host = copied(s, o);
    const int layers = s->program->model.layers, kept = (layers - 1) / s->group * s->group;
    int last = host->of_last ? layers - 1 : s->offload_layers - 1;
    if (copied_group(s, o) > 1 && last >= kept) /* forward leaves the last group's on the device */
        last = kept - 1;
    return host->host ? (Range){host->every ? 0 : host->saved_from, last} : (Range){0, layers};
}

bool copied_kind(const Step *s, const Op *o, int kind)
{
    const Value *v = copied(s, o);
    return !v->host || v->index == INDEX_BOUNDARY || v->index == INDEX_UNIT ||
           step_has_value(s, kind, v->original);
}

/* Whether it copies of a layer that lacks the value, or waits for that. */
static bool copies_nothing(const Step *s, const Op *o, int layer)
{
    return step_kinds(s) > 1 && (op_copies(o->kind) || o->kind == OP_WAIT) &&
           layer < s->program->model.layers && !copied_kind(s, o, model_kind(&s->program->model, layer));
}

/* Whether it is of a layer before the first, or of one without such copies. */
static bool names_no_layer(const Step *s, const StepOp *o)
{
    const Operand x = o->op->read[0];
    const Index i = x.value >= 0 ? s->values.at[x.value].index : INDEX_NONE;
    if (i != INDEX_LAYER && i != INDEX_BOUNDARY)
        return false;
    const Range r = copied_layers(s, o->op);
    return o->layer + x.next < r.first || o->layer + x.next > r.last ||
           (o->layer + x.next) % copied_group(s, o->op) || copies_nothing(s, o->op, o->layer + x.next);
}

bool op_follows(const Step *s, const StepOp *o)
{
    if (names_no_layer(s, o) || (o->block == BLOCK_OPTIMIZER && o->unit + o->op->read[0].next < 0))
        return false;
    if (o->op->kind != OP_GATHER || o->op->embedding)
        return true;
    /* the embedding's backward, the last visit, needs no weights */
    return op_visit(s, o) + o->op->write[0].next <= step_visits(s) - 2;
}
