/* step/unroll.c: the operations of a sequence in their order: blocks layer after layer, loops chunk after
 * chunk. */
#include "step/step.h"

typedef struct Walk { const Step *step; SeeOp see; void *to; int visit; } Walk;

/* Chunks of keys, a bit each. */
static uint64_t attended(const Step *s, int layer, int chunk)
{
    return s->pairs ? s->pairs[s->program->layer_mask[layer] * s->chunks + chunk] : UINT64_MAX;
}

bool step_attends(const Step *s, int layer, int chunk, int key)
{
    return attended(s, layer, chunk) >> key & 1;
}

/* That chunks of queries before this one are attended with. */
static uint64_t begun_before(const Step *s, int layer, int chunk)
{
    uint64_t begun = 0;
    for (int c = 0; c < chunk; c++)
        begun |= attended(s, layer, c);
    return begun;
}

/* Operations first to end for the i-th chunk of keys. */
static void walk_key(const Walk *w, StepOp at, int i, int key, const Op *first, const Op *end)
{
    at.key = key, at.slot = i % 2, at.goes_on = i > 0;
    for (at.op = first; at.op < end; at.op++)
        if (!at.op->sums || at.begun)
            w->see(w->to, &at);
}

/* The chunk of keys after this one that the chunk of queries is attended with; -1: none. */
static int next_key(const Step *s, const StepOp *at, int key)
{
    for (int k = key + 1; k < s->chunks; k++)
        if (step_attends(s, at->layer, at->chunk, k))
            return k;
    return -1;
}

/* Operations first to end for each chunk of keys that the chunk of queries is attended with: copies of the
 * one that follows come first, those of the first two before the loop. */
static void walk_keys(const Walk *w, StepOp at, const Op *first, const Op *end)
{
    const Op *attends = first;
    while (!first->early && attends->ahead)
        attends++;
    const uint64_t begun = begun_before(w->step, at.layer, at.chunk);
    int key = next_key(w->step, &at, -1);
    for (int i = 0; key >= 0 && (!first->early || i < 2); i++) {
        const int next = next_key(w->step, &at, key);
        at.begun = next >= 0 && begun >> next & 1;
        if (attends > first && i > 0 && next >= 0)
            walk_key(w, at, i + 1, next, first, attends);
        at.begun = begun >> key & 1;
        walk_key(w, at, i, key, attends, end);
        key = next;
    }
}

/* Operations first to end of a loop, for one of its chunks; or once. */
static void walk_chunk(const Walk *w, StepOp at, int chunks, const Op *first, const Op *end)
{
    const int chunk = at.chunk;
    for (const Op *o = first, *next; o < end; o = next) {
        next = o + 1;
        at.chunk = chunk;
        if (o->keys) {
            while (next < end && op_same_keys(o, next))
                next++;
            walk_keys(w, at, o, next);
            continue;
        }
        for (int x = chunk + (o->ahead && chunk > 0); x < chunks && x <= chunk + o->ahead; x++) {
            at.op = o, at.chunk = x, at.slot = x % 2;
            w->see(w->to, &at);
        }
    }
}

static void walk_block(Walk *w, int block, int layer, int unit)
{
    const Block *b = &w->step->block[block];
    for (int i = 0, end; i < b->ops.n; i = end) {
        const Op *first = &b->ops.at[i];
        for (end = i + 1; end < b->ops.n && op_same_loop(first, &b->ops.at[end]); end++)
            ;
        for (int c = 0, chunks = op_chunks(w->step, first); c < chunks; c++)
            walk_chunk(w,
                       (StepOp){.block = block, .layer = layer, .visit = w->visit, .unit = unit, .chunk = c},
                       chunks, first, &b->ops.at[end]);
    }
    w->visit++;
}

/* Backward of the layers first <= l < end; the last group still has their inputs. */
static void walk_group(Walk *w, int first, int end)
{
    const Step *s = w->step;
    for (int l = first; l < end - 1 && end < s->program->model.layers; l++)
        walk_block(w, BLOCK_FORWARD_AGAIN, l, l + 1);
    for (int l = end - 1; l >= first; l--)
        walk_block(w, l < s->saving.from ? BLOCK_BACKWARD_LOWER : BLOCK_BACKWARD, l, l + 1);
}

void step_walk(const Step *s, SeeOp see, void *to)
{
    Walk w = {s, see, to, 0};
    const int layers = s->program->model.layers;
    walk_block(&w, BLOCK_EMBED, 0, 0);
    for (int l = 0; l < layers; l++)
        walk_block(&w, BLOCK_FORWARD, l, l + 1);
    walk_block(&w, BLOCK_HEAD, layers, layers + 1);
    for (int first = (layers - 1) / s->group * s->group; first >= 0; first -= s->group)
        walk_group(&w, first, first + s->group < layers ? first + s->group : layers);
    walk_block(&w, BLOCK_EMBED_BACK, 0, 0);
    for (int l = 0; l < layers && s->block[BLOCK_MOMENTUM].ops.n; l++)
        walk_block(&w, BLOCK_MOMENTUM, l, l + 1);
    if (s->block[BLOCK_ORTHOGONALIZE].ops.n)
        walk_block(&w, BLOCK_ORTHOGONALIZE, 0, 0);
    for (int l = 0; l < layers && s->block[BLOCK_MATRICES].ops.n; l++)
        walk_block(&w, BLOCK_MATRICES, l, l + 1);
    for (int unit = 0; unit < layers + 2; unit++)
        walk_block(&w, BLOCK_OPTIMIZER, 0, unit);
    walk_block(&w, BLOCK_DONE, 0, layers + 1);
}

typedef struct Unroll { Arena *arena; Vec(StepOp) ops; } Unroll;

static void push(void *to, const StepOp *at)
{
    Unroll *u = to;
    *vec_push(u->arena, &u->ops) = *at;
}

int step_unroll(Arena *a, const Step *s, const StepOp **out)
{
    Unroll u = {.arena = a};
    step_walk(s, push, &u);
    *out = u.ops.at;
    return u.ops.n;
}

static int unit_index(const Step *s, const StepOp *o, Operand x)
{
    if (o->op->embedding)
        return 0;
    if (o->block >= BLOCK_MOMENTUM)
        return o->unit + x.next;
    if (x.next < 0)
        return o->unit + 1; /* backward came to it before */
    return x.next ? unit_of_visit(s, o->visit + x.next) : o->unit;
}

int operand_index(const Step *s, const StepOp *o, Operand x)
{
    switch (s->values.at[x.value].index) {
    case INDEX_LAYER:
    case INDEX_BOUNDARY: return o->layer + x.next;
    case INDEX_VISIT: return o->visit + x.next;
    case INDEX_CHUNK: return o->chunk;
    case INDEX_SLOT: return o->slot;
    case INDEX_UNIT: return unit_index(s, o, x);
    default: return 0;
    }
}

/* Operations of these kinds set one mark. */
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
    return EVENT_SLOTS * (int)k + (apart ? 2 : (operand_index(s, o, x) + 2) % 2);
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

/* Of the layer before the first, or one of which nothing is copied. */
static bool names_no_layer(const Step *s, const StepOp *o)
{
    const Operand x = o->op->read[0];
    const Index i = x.value >= 0 ? s->values.at[x.value].index : INDEX_NONE;
    if (i != INDEX_LAYER && i != INDEX_BOUNDARY)
        return false;
    const Range r = copied_layers(s, o->op);
    return o->layer + x.next < r.first || o->layer + x.next > r.last ||
           (o->layer + x.next) % copied_group(s, o->op);
}

bool op_follows(const Step *s, const StepOp *o)
{
    if (names_no_layer(s, o) || (o->block == BLOCK_OPTIMIZER && o->unit + o->op->read[0].next < 0))
        return false;
    if (o->op->kind != OP_GATHER || o->op->embedding)
        return true;
    /* the embedding's backward, the last visit, needs no weights */
    return o->visit + o->op->write[0].next <= step_visits(s) - 2;
}
