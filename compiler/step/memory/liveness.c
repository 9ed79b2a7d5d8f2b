/* step/memory/liveness.c: the step unrolled, and when each value is in use.
 *
 * A value is in use from the operation that writes it to the last one that reads it before it is written anew. Values that
 * forward does not save have one place for all layers, or one each (Step.by_layer); a saved one, a gathered unit and a sum of gradients have one each.
 */
#include "step/step.h"

#include <string.h>

typedef struct Unroll { Arena *arena; const Step *step; Vec(StepOp) ops; int visit; } Unroll;

static bool has_begun(const Step *s, int layer, int chunk, int key)
{
    bool begun = false;
    for (int c = 0; c < chunk; c++)
        begun |= step_attends(s, layer, c, key);
    return begun;
}

/* Operations first to end for the i-th chunk of keys. */
static void push_keys(Unroll *u, StepOp at, int i, int key, const Op *first, const Op *end)
{
    at.key = key, at.slot = i % 2, at.goes_on = i > 0, at.begun = has_begun(u->step, at.layer, at.chunk, key);
    for (at.op = first; at.op < end; at.op++)
        if (!at.op->sums || at.begun)
            *vec_push(u->arena, &u->ops) = at;
}

/* Operations first to end for each chunk of keys that the chunk of queries is attended with: copies of the one that follows come first, those
 * of the first two before the loop. */
static void unroll_keys(Unroll *u, StepOp at, const Op *first, const Op *end)
{
    const Step *s = u->step;
    int *key = NEW_ARRAY(u->arena, int, s->chunks), keys = 0;
    for (int k = 0; k < s->chunks; k++)
        if (step_attends(s, at.layer, at.chunk, k))
            key[keys++] = k;
    const Op *attends = first;
    while (!first->early && attends->ahead)
        attends++;
    for (int i = 0; i < keys && (!first->early || i < 2); i++) {
        if (first->early)
            push_keys(u, at, i, key[i], first, end);
        else if (i > 0 && i + 1 < keys)
            push_keys(u, at, i + 1, key[i + 1], first, attends);
        if (!first->early)
            push_keys(u, at, i, key[i], attends, end);
    }
}

/* Operations first to end of a loop, for one of its chunks; or once. */
static void unroll_chunk(Unroll *u, StepOp at, int chunks, const Op *first, const Op *end)
{
    const int chunk = at.chunk;
    for (const Op *o = first, *next; o < end; o = next) {
        for (next = o + 1; next < end && op_same_keys(o, next); next++)
            ;
        at.chunk = chunk;
        if (o->keys)
            unroll_keys(u, at, o, next);
        for (int x = chunk + (o->ahead && chunk > 0); x < chunks && x <= chunk + o->ahead && !o->keys; x++) {
            at.op = o, at.chunk = x, at.slot = x % 2;
            *vec_push(u->arena, &u->ops) = at;
        }
    }
}

static void unroll_block(Unroll *u, int block, int layer, int unit)
{
    const Block *b = &u->step->block[block];
    for (int i = 0, end; i < b->ops.n; i = end) {
        const Op *first = &b->ops.at[i];
        for (end = i + 1; end < b->ops.n && op_same_loop(first, &b->ops.at[end]); end++)
            ;
        for (int c = 0, chunks = op_chunks(u->step, first); c < chunks; c++)
            unroll_chunk(u, (StepOp){.block = block, .layer = layer, .visit = u->visit, .unit = unit, .chunk = c}, chunks, first, &b->ops.at[end]);
    }
    u->visit++;
}

static void unroll_all(Unroll *u)
{
    const int layers = u->step->program->model.layers;
    unroll_block(u, BLOCK_EMBED, 0, 0);
    for (int l = 0; l < layers; l++)
        unroll_block(u, BLOCK_FORWARD, l, l + 1);
    unroll_block(u, BLOCK_HEAD, layers, layers + 1);
    for (int l = layers - 1; l >= 0; l--)
        unroll_block(u, l < u->step->saving.from ? BLOCK_BACKWARD_LOWER : BLOCK_BACKWARD, l, l + 1);
    unroll_block(u, BLOCK_EMBED_BACK, 0, 0);
    for (int unit = 0; unit < layers + 2; unit++)
        unroll_block(u, BLOCK_OPTIMIZER, 0, unit);
    unroll_block(u, BLOCK_DONE, 0, layers + 1);
}

int step_unroll(Arena *a, const Step *s, const StepOp **out)
{
    Unroll u = {.arena = a, .step = s};
    unroll_all(&u);
    *out = u.ops.at;
    return u.ops.n;
}

int operand_index(const Step *s, const StepOp *o, Operand x)
{
    switch (s->values.at[x.value].index) {
    case INDEX_LAYER:
    case INDEX_BOUNDARY: return o->layer + x.next;
    case INDEX_VISIT: return o->visit + x.next;
    case INDEX_CHUNK: return o->chunk;
    case INDEX_SLOT: return o->slot;
    case INDEX_UNIT: return o->op->embedding ? 0 : o->block >= BLOCK_OPTIMIZER ? o->unit + x.next : x.next ? unit_of_visit(s, o->visit + x.next) : o->unit;
    default: return 0;
    }
}

Range copied_layers(const Step *s, const Op *o)
{
    const Value *host = &s->values.at[(o->kind == OP_STAGE ? o->write : o->read)[0].value];
    return host->host ? (Range){host->every ? 0 : host->saved_from, host->of_last ? s->program->model.layers - 1 : s->staged_layers - 1} : (Range){0, s->program->model.layers};
}

/* Of the layer before the first, or one of which nothing is copied. */
static bool names_no_layer(const Step *s, const StepOp *o)
{
    const Operand x = o->op->read[0];
    const Index i = x.value >= 0 ? s->values.at[x.value].index : INDEX_NONE;
    if (i != INDEX_LAYER && i != INDEX_BOUNDARY)
        return false;
    const Range r = copied_layers(s, o->op);
    return o->layer + x.next < r.first || o->layer + x.next > r.last;
}

bool op_follows(const Step *s, const StepOp *o)
{
    const int last = 2 * s->program->model.layers + 1;
    if (names_no_layer(s, o) || (o->block == BLOCK_OPTIMIZER && o->unit + o->op->read[0].next < 0))
        return false;
    return o->op->kind != OP_GATHER || o->op->embedding || o->visit + o->op->write[0].next <= last;
}

/* ---- items ---- */

/* What a stream beside compute uses from this operation on, until compute waits for it. */
typedef struct Pending { int item, read_at; Stream stream; } Pending;

typedef struct Flower {
    Arena *arena;
    const Step *step;
    Flow *flow;
    int *same;      /* [values]: the value whose place it shares, itself where none */
    Vec(Item) items;
    int **item_of;  /* [values][1 + index]: its item, -1: not written yet; first the one of all indices without their own */
    int **since;    /* [values][index]: the operation that last wrote or read it; -1: never */
    int **written;  /* [values][index]: the operation of a stream beside compute that last wrote it; -1: none did */
    Vec(Pending) pending;
} Flower;

static bool read_later(const Block *b, int op, int value)
{
    for (int i = op + 1; i < b->ops.n; i++)
        for (int j = 0; j < OP_READS; j++)
            if (b->ops.at[i].read[j].value == value)
                return true;
    return false;
}

/* Backward makes one again without the other: its place is not that of a saved one. */
static bool made_apart(const Step *s, int from, int to)
{
    for (int b = BLOCK_BACKWARD; b <= BLOCK_BACKWARD_LOWER; b++) {
        bool one = false, other = false;
        for (int i = 0; i < s->block[b].ops.n; i++)
            for (int j = 0; j < OP_WRITES; j++) {
                one |= s->block[b].ops.at[i].write[j].value == from;
                other |= s->block[b].ops.at[i].write[j].value == to;
            }
        if (one && !other)
            return true;
    }
    return false;
}

/* An operation that works element by element may write where it reads: values of one type, the one not read again. The place
 * is that of a saved one. */
static void share_places(Flower *f, const Block *b, int op)
{
    const Op *o = &b->ops.at[op];
    for (int i = 0; i < 1 && op_in_place(f->step, o->kind); i++) {
        const int from = o->read[i].value, to = o->write[i].value;
        const Value *a = &f->step->values.at[from], *z = &f->step->values.at[to];
        if (z->saved && made_apart(f->step, from, to))
            continue;
        if (a->element == z->element && a->index == z->index && a->dim[0] == z->dim[0] && a->all_heads == z->all_heads && (o->kind != OP_SWIGLU_BACK || !read_later(b, op, from)))
            f->same[from] = f->same[to] = z->saved ? to : from;
    }
}

int value_indices(const Step *s, const Value *v)
{
    const int layers = s->program->model.layers;
    static const int more[] = {[INDEX_LAYER] = 0, [INDEX_BOUNDARY] = 1, [INDEX_UNIT] = 2};
    return v->index == INDEX_CHUNK ? s->chunks : v->index == INDEX_SLOT ? 2 : v->host && v->index != INDEX_UNIT ? layers - !v->of_last : v->index == INDEX_NONE ? 1 : v->index == INDEX_VISIT ? 2 * layers + 3 : layers + more[v->index];
}

bool value_has_place(const Step *s, const Value *v, int index)
{
    const bool of_layer = v->index == INDEX_LAYER || v->index == INDEX_BOUNDARY;
    return (of_layer && s->by_layer) || (v->saved && index >= v->saved_from) || v->index == INDEX_VISIT || v->index == INDEX_UNIT || v->index == INDEX_CHUNK || v->index == INDEX_SLOT;
}

static Item *item_for(Flower *f, int value, int index)
{
    const Value *v = &f->step->values.at[value];
    const bool own = value_has_place(f->step, v, index);
    int *at = &f->item_of[value][own ? index + 1 : 0];
    if (*at < 0) {
        *at = f->items.n;
        *vec_push(f->arena, &f->items) = (Item){.value = value, .index = own ? index : -1,
                                                .bytes = step_bytes(f->step, v, v->index == INDEX_VISIT ? unit_of_visit(f->step, index) : index)};
    }
    return &f->items.at[*at];
}

/* Most often it joins the last. */
void item_add_range(Arena *a, Item *i, Range r)
{
    const bool ends = i->live.n == 0 || i->live.at[i->live.n - 1].first <= r.first;
    int from = ends && i->live.n ? i->live.n - 1 : first_range_to(i, r.first - 1), to = ends ? i->live.n : from;
    from += ends && i->live.n && i->live.at[from].last < r.first - 1;
    while (to < i->live.n && i->live.at[to].first <= r.last + 1)
        to++;
    const int after = i->live.n - to;
    if (to > from) {
        r.first = i->live.at[from].first < r.first ? i->live.at[from].first : r.first;
        r.last = i->live.at[to - 1].last > r.last ? i->live.at[to - 1].last : r.last;
    } else {
        vec_push(a, &i->live);
    }
    memmove(i->live.at + from + 1, i->live.at + to, sizeof(Range) * (size_t)after);
    i->live.n = from + 1 + after;
    i->live.at[from] = r;
}

/* Operations first to last of sequences one after the other. */
static void mark_live(const Flower *f, Item *i, int first, int last)
{
    const int ops = f->flow->ops;
    for (int k = first, to; k <= last; k = to + 1) {
        to = (k / ops + 1) * ops - 1 < last ? (k / ops + 1) * ops - 1 : last;
        item_add_range(f->arena, i, (Range){k % ops, to % ops});
    }
}

/* Compute reads at t what a stream wrote at `used`: all that the stream read until then is free after t, and so is what the weights'
 * stream read if it was waited for there. */
static void waited(Flower *f, int t, int used, Stream stream, bool weights)
{
    int left = 0;
    for (int i = 0; i < f->pending.n; i++) {
        const Pending p = f->pending.at[i];
        if (p.read_at <= used && (p.stream == stream || (weights && p.stream == STREAM_WEIGHTS)))
            mark_live(f, &f->items.at[p.item], p.read_at, t);
        else
            f->pending.at[left++] = p;
    }
    f->pending.n = left;
}

static void touch(Flower *f, int t, Operand x, bool writes, bool fresh)
{
    const StepOp *o = &f->flow->op[t % f->flow->ops];
    const int index = operand_index(f->step, o, x), value = f->same[x.value];
    int *since = &f->since[value][index];
    Item *item = item_for(f, value, index);
    mark_live(f, item, fresh || *since < 0 ? t : *since, t);
    *since = t;
    const int used = f->written[value][index];
    const OpKind k = used < 0 ? OP_KINDS : f->flow->op[used % f->flow->ops].op->kind;
    if (used >= 0 && op_waits(o->op->kind))
        waited(f, t, used, op_stream(k), op_follows_weights(k));
    if (op_stream(o->op->kind) == STREAM_COMPUTE)
        return;
    if (writes)
        f->written[value][index] = t;
    *vec_push(f->arena, &f->pending) = (Pending){(int)(item - f->items.at), t, op_stream(o->op->kind)};
}

/* Whether an operation before this one in its loop reads what has the value's place: other chunks' parts are then still to be read. */
static bool loop_reads(const Flower *f, const StepOp *at, Operand x)
{
    const int index = operand_index(f->step, at, x);
    const bool own = value_has_place(f->step, &f->step->values.at[f->same[x.value]], index);
    const Op *first = f->step->block[at->block].ops.at;
    bool reads = false;
    for (const Op *o = at->op; o > first && op_same_loop(o, o - 1); o--)
        for (int i = 0; i < OP_READS && o[-1].read[i].value >= 0; i++)
            reads |= f->same[o[-1].read[i].value] == f->same[x.value] && (!own || operand_index(f->step, at, o[-1].read[i]) == index);
    return reads;
}

static void run(Flower *f, int t, bool adds)
{
    const StepOp *at = &f->flow->op[t % f->flow->ops];
    const Op *o = at->op;
    if (!op_follows(f->step, at))
        return;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        if (f->step->values.at[o->read[i].value].kind != VALUE_INPUT)
            touch(f, t, o->read[i], false, false);
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++) {
        const bool in_place = i < OP_READS && o->read[i].value >= 0 && f->same[o->read[i].value] == f->same[o->write[i].value];
        const int value = o->write[i].value;
        const bool rows = op_takes_rows(f->step, o, value) && (at->chunk > 0 || op_row(f->step, at, value) > 0 || loop_reads(f, at, o->write[i])); /* beside other chunks' */
        touch(f, t, o->write[i], true, !op_adds(f->step, at, i) && !in_place && !adds && !rows);
    }
}

/* One sequence; or two of several, which are all that can differ: what the second reads of the first lasts from one to the next. */
static void run_all(Flower *f)
{
    const int sequences = step_sequences(f->step) > 1 ? 2 : 1, all = sequences * f->flow->ops;
    for (int t = 0; t < all; t++) {
        const Op *o = f->flow->op[t % f->flow->ops].op;
        const int sequence = t / f->flow->ops;
        if (op_runs(o, sequence, sequences))
            run(f, t, o->kind == OP_REDUCE && o->when == WHEN_ALWAYS && sequence > 0);
    }
    for (int stream = STREAM_COMPUTE + 1; stream < STREAMS; stream++)
        waited(f, all - 1, all, (Stream)stream, false);
}

/* Parameters and moments are there throughout; rounded parameters when a step begins and when it ends. Where a rank copies out of others'
 * memory when it waits, their shards stay, since another one may wait late. */
static void mark_ends(Flower *f)
{
    const bool stay = f->step->program->target->copies_at_wait;
    for (int v = 0; v < f->step->values.n; v++) {
        const ValueKind kind = f->step->values.at[v].kind;
        for (int u = 0; (kind == VALUE_STATE || kind == VALUE_ROUNDED) && u < step_units(f->step); u++) {
            Item *i = item_for(f, v, u);
            const int first = i->live.n ? i->live.at[0].first : f->flow->ops - 1;
            mark_live(f, i, 0, kind == VALUE_STATE || stay ? f->flow->ops - 1 : first);
            if (kind == VALUE_ROUNDED)
                mark_live(f, i, f->since[v][u] % f->flow->ops, f->flow->ops - 1);
        }
    }
}

bool item_on_host(const Flow *f, const Item *i) { return f->step->values.at[i->value].host; }

static bool is_active(const Flow *f, const Item *i)
{
    const ValueKind k = f->step->values.at[i->value].kind;
    return k == VALUE_ACTIVATION || k == VALUE_GRADIENT;
}

/* Of one memory: the most bytes in use, and where. */
static int64_t find_peak(Arena *a, const Flow *f, bool host, bool active, int *at)
{
    int64_t *change = NEW_ARRAY(a, int64_t, f->ops + 1), bytes = 0, most = 0; /* [t]: what comes into use at operation t, less what goes out */
    for (int i = 0; i < f->items; i++)
        for (int r = 0; r < f->item[i].live.n && item_on_host(f, &f->item[i]) == host && (!active || is_active(f, &f->item[i])); r++) {
            change[f->item[i].live.at[r].first] += f->item[i].bytes;
            change[f->item[i].live.at[r].last + 1] -= f->item[i].bytes;
        }
    for (int t = 0; t < f->ops; t++) {
        bytes += change[t];
        if (bytes > most)
            most = bytes, *at = t;
    }
    return most;
}

int64_t flow_active_peak(Arena *a, const Flow *f, bool host)
{
    int at = 0;
    return find_peak(a, f, host, true, &at);
}

const Item *flow_item(const Flow *f, int value, int index)
{
    const bool own = value_has_place(f->step, &f->step->values.at[f->same[value]], index);
    const int item = f->item_of[f->same[value]][own ? index + 1 : 0];
    return item < 0 ? NULL : &f->item[item];
}

int first_range_to(const Item *i, int op)
{
    int low = 0, high = i->live.n;
    while (low < high) {
        const int mid = (low + high) / 2;
        if (i->live.at[mid].last < op)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool item_live(const Item *i, int op)
{
    const int r = first_range_to(i, op);
    return r < i->live.n && i->live.at[r].first <= op;
}

Flow *step_flow(Arena *a, const Step *s)
{
    Flow *flow = NEW(a, Flow);
    *flow = (Flow){.step = s};
    flow->ops = step_unroll(a, s, &flow->op);
    Flower f = {.arena = a, .step = s, .flow = flow, .same = NEW_ARRAY(a, int, s->values.n),
                .item_of = NEW_ARRAY(a, int *, s->values.n), .since = NEW_ARRAY(a, int *, s->values.n),
                .written = NEW_ARRAY(a, int *, s->values.n)};
    for (int i = 0; i < s->values.n; i++)
        f.same[i] = i;
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (int i = 0; i < s->block[b].ops.n; i++)
            share_places(&f, &s->block[b], i);
    for (int i = 0; i < s->values.n; i++) {
        const int n = value_indices(s, &s->values.at[i]);
        f.item_of[i] = NEW_ARRAY(a, int, n + 1);
        f.since[i] = NEW_ARRAY(a, int, n);
        f.written[i] = NEW_ARRAY(a, int, n);
        for (int j = 0; j < n; j++)
            f.item_of[i][j + 1] = f.since[i][j] = f.written[i][j] = -1;
        f.item_of[i][0] = -1;
    }
    run_all(&f);
    mark_ends(&f);
    flow->items = f.items.n;
    flow->item = f.items.at;
    flow->same = f.same;
    flow->item_of = f.item_of;
    flow->live_peak = find_peak(a, flow, false, false, &flow->peak_at);
    flow->host_peak = find_peak(a, flow, true, false, &flow->host_peak_at);
    return flow;
}
