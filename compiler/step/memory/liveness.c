/* step/memory/liveness.c: finds when each value of the unrolled step is in use.
 *
 * A value is in use from the operation that writes it to the last one that reads it before it is rewritten.
 * A value that forward does not save has one offset for all layers, or one each (Step.by_layer); a saved
 * value, a gathered unit and a gradient sum have one each. */
#include "step/memory/memory.h"

#include <string.h>

/* ---- items ---- */

/* An item that another stream uses from this operation on, until compute waits for it. */
typedef struct Pending { int item, read_at; Stream stream; } Pending;

typedef struct Flower {
    Arena *arena;
    const Step *step;
    Flow *flow;
    int *same;      /* [values]: the value with which it shares memory; itself if none */
    Vec(Item) items;
    /* [values][1 + index]: its item, -1: not written yet; first the one of all indices without their own */
    int **item_of;
    int **since;    /* [values][index]: the operation that last wrote or read it; -1: never */
    int event[STEP_EVENTS]; /* the last operation of each; -1: none */
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

/* Whether backward recomputes one value without the other, so that it cannot share a saved value's
 * memory. */
static bool made_apart(const Step *s, int from, int to)
{
    for (int b = BLOCK_BACKWARD; b < BLOCK_EMBED_BACK; b++) {
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

/* An elementwise operation may write in place, if both values have one type and the input is not read later.
 * The memory is the saved value's. */
static void share_places(Flower *f, const Block *b, int op)
{
    const Op *o = &b->ops.at[op];
    for (int i = 0; i < 1 && op_in_place(f->step, o->kind); i++) {
        const int from = o->read[i].value, to = o->write[i].value;
        const Value *a = &f->step->values.at[from], *z = &f->step->values.at[to];
        if (z->saved && made_apart(f->step, from, to))
            continue;
        if (a->element == z->element && a->index == z->index && a->dim[0] == z->dim[0] &&
            a->all_heads == z->all_heads && (!op_spends(o->kind) || !read_later(b, op, from)))
            f->same[from] = f->same[to] = z->saved ? to : from;
    }
}

bool value_has_place(const Step *s, const Value *v, int index)
{
    const bool of_layer = v->index == INDEX_LAYER || v->index == INDEX_BOUNDARY;
    return (of_layer && (s->by_layer || v->kind == VALUE_CACHE)) || (v->saved && index >= v->saved_from) ||
           v->index == INDEX_VISIT || v->index == INDEX_UNIT || v->index == INDEX_CHUNK ||
           v->index == INDEX_SLOT;
}

static Item *item_for(Flower *f, int value, int index)
{
    const Value *v = &f->step->values.at[value];
    const bool own = value_has_place(f->step, v, index);
    int *at = &f->item_of[value][own ? index + 1 : 0];
    if (*at < 0) {
        *at = f->items.n;
        *vec_push(f->arena, &f->items) = (Item){
            .value = value,
            .index = own ? index : -1,
            .bytes = step_bytes(f->step, v, v->index == INDEX_VISIT ? unit_of_visit(f->step, index) : index)};
    }
    return &f->items.at[*at];
}

/* Most often it extends the last range. */
void item_add_range(Arena *a, Item *i, Range r)
{
    Range *last = i->live.n ? &i->live.at[i->live.n - 1] : NULL;
    if (last && last->first <= r.first && last->last >= r.first - 1) {
        last->last = r.last > last->last ? r.last : last->last;
        return;
    }
    const bool ends = !last || last->first <= r.first;
    const int from = ends ? i->live.n : first_range_to(i, r.first - 1);
    int to = from;
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

/* Marks operations first to last as in use, over consecutive sequences. */
static void mark_live(const Flower *f, Item *i, int first, int last)
{
    const int ops = f->flow->ops;
    if (last < ops) {
        item_add_range(f->arena, i, (Range){first, last});
        return;
    }
    for (int k = first, to; k <= last; k = to + 1) {
        to = (k / ops + 1) * ops - 1 < last ? (k / ops + 1) * ops - 1 : last;
        item_add_range(f->arena, i, (Range){k % ops, to % ops});
    }
}

/* At t compute waits for what the stream was given until `used`: what this read is free after t, and also
 * what the weights' stream was given before, if that was awaited there, except gathers of other events. */
static void waited(Flower *f, int t, int used, int event, Stream stream, bool weights)
{
    int left = 0;
    for (int i = 0; i < f->pending.n; i++) {
        const Pending p = f->pending.at[i];
        const StepOp *o = &f->flow->op[p.read_at % f->flow->ops];
        const bool own = event < 0 || o->op->kind != OP_GATHER || step_event(f->step, o) == event;
        if (own && p.read_at <= used && (p.stream == stream || (weights && p.stream == STREAM_WEIGHTS)))
            mark_live(f, &f->items.at[p.item], p.read_at, t);
        else
            f->pending.at[left++] = p;
    }
    f->pending.n = left;
}

static void touch(Flower *f, int t, Operand x, bool fresh)
{
    const StepOp *o = &f->flow->op[t % f->flow->ops];
    const int index = operand_index(f->step, o, x), value = f->same[x.value];
    int *since = &f->since[value][index];
    Item *item = item_for(f, value, index);
    mark_live(f, item, fresh || *since < 0 ? t : *since, t);
    *since = t;
    if (op_stream(o->op->kind) == STREAM_COMPUTE)
        return;
    f->event[step_event(f->step, o)] = t;
    *vec_push(f->arena, &f->pending) = (Pending){(int)(item - f->items.at), t, op_stream(o->op->kind)};
}

/* Whether an earlier operation of the loop reads memory of the value: then other chunks' parts of it are
 * still to be read. */
static bool loop_reads(const Flower *f, const StepOp *at, Operand x)
{
    const int index = operand_index(f->step, at, x);
    const bool own = value_has_place(f->step, &f->step->values.at[f->same[x.value]], index);
    const Op *first = f->step->block[at->block].ops.at;
    bool reads = false;
    for (const Op *o = at->op; o > first && op_same_loop(f->step, o, o - 1); o--)
        for (int i = 0; i < OP_READS && o[-1].read[i].value >= 0; i++)
            reads |= f->same[o[-1].read[i].value] == f->same[x.value] &&
                     (!own || operand_index(f->step, at, o[-1].read[i]) == index);
    return reads;
}

static void wait(Flower *f, int t)
{
    const StepOp *at = &f->flow->op[t % f->flow->ops];
    const OpKind k = at->op->awaits;
    const int event = step_event(f->step, at), used = f->event[event];
    if (used >= 0)
        waited(f, t, used, event, op_stream(k), op_follows_weights(k));
}

static void run(Flower *f, int t, bool adds)
{
    const StepOp *at = &f->flow->op[t % f->flow->ops];
    const Op *o = at->op;
    if (!op_follows(f->step, at))
        return;
    if (o->kind == OP_WAIT) {
        wait(f, t);
        return;
    }
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        if (f->step->values.at[o->read[i].value].kind != VALUE_INPUT)
            touch(f, t, o->read[i], false);
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++) {
        const bool in_place = i < OP_READS && o->read[i].value >= 0 &&
                              f->same[o->read[i].value] == f->same[o->write[i].value];
        const int value = o->write[i].value;
        /* in addition to other chunks' */
        const bool later = op_chunk(f->step, at) > 0 || op_row(f->step, at, value) > 0,
                   rows = op_takes_rows(f->step, o, value) && (later || loop_reads(f, at, o->write[i]));
        touch(f, t, o->write[i], !op_adds(f->step, at, i) && !in_place && !adds && !rows);
    }
}

/* Runs one sequence, or two if there are several: values may last from one to the next, and further
 * sequences are equal. */
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
        waited(f, all - 1, all, -1, (Stream)stream, false);
}

/* The last operation of forward and the loss, which evaluation repeats. */
static int forward_end(const Flow *f)
{
    int t = f->ops - 1;
    while (t > 0 && f->op[t].block > BLOCK_HEAD)
        t--;
    return t;
}

/* Parameters and moments are in use throughout; rounded parameters in forward, so that evaluation leaves them
 * for the next step, and at the end of a step. Caches are in use throughout. If ranks copy from each other's
 * memory when they wait, shards stay in use, since another rank may wait late. */
static void mark_ends(Flower *f)
{
    const bool stay = f->step->program->target->copies_at_wait;
    const int end = f->flow->ops - 1, loss = forward_end(f->flow);
    for (int v = 0; v < f->step->values.n; v++)
        for (int l = 0; f->step->values.at[v].kind == VALUE_CACHE && l < f->step->program->model.layers; l++)
            if (step_bytes(f->step, &f->step->values.at[v], l))
                mark_live(f, item_for(f, v, l), 0, end);
    for (int v = 0; v < f->step->values.n; v++) {
        const ValueKind kind = f->step->values.at[v].kind;
        for (int u = 0; (kind == VALUE_STATE || kind == VALUE_ROUNDED) && u < step_units(f->step); u++) {
            Item *i = item_for(f, v, u);
            const int first = i->live.n ? i->live.at[0].first : end, forward = first > loss ? first : loss;
            mark_live(f, i, 0, kind == VALUE_STATE || stay ? end : forward);
            if (kind == VALUE_ROUNDED)
                mark_live(f, i, f->since[v][u] % f->flow->ops, end);
        }
    }
}

bool item_on_host(const Flow *f, const Item *i) { return f->step->values.at[i->value].host; }

static bool is_active(const Flow *f, const Item *i)
{
    const ValueKind k = f->step->values.at[i->value].kind;
    return k == VALUE_ACTIVATION || k == VALUE_GRADIENT;
}

/* The most bytes of a memory in use, and where. */
static int64_t find_peak(Arena *a, const Flow *f, bool host, bool active, int *at)
{
    /* [t]: bytes that come into use at operation t, minus those that go out */
    int64_t *change = NEW_ARRAY(a, int64_t, f->ops + 1), bytes = 0, most = 0;
    for (int i = 0; i < f->items; i++)
        for (int r = 0; r < f->item[i].live.n && item_on_host(f, &f->item[i]) == host &&
                        (!active || is_active(f, &f->item[i]));
             r++) {
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

/* same: which values share memory; NULL: as the step allows. */
static Flow *find_flow(Arena *a, const Step *s, const int *same)
{
    Flow *flow = NEW(a, Flow);
    *flow = (Flow){.step = s};
    flow->ops = step_unroll(a, s, &flow->op);
    Flower f = {.arena = a, .step = s, .flow = flow, .same = NEW_ARRAY(a, int, s->values.n),
                .item_of = NEW_ARRAY(a, int *, s->values.n), .since = NEW_ARRAY(a, int *, s->values.n)};
    memset(f.event, -1, sizeof f.event);
    for (int i = 0; i < s->values.n; i++)
        f.same[i] = i;
    for (int b = 0; b < STEP_BLOCKS && !same; b++)
        for (int i = 0; i < s->block[b].ops.n; i++)
            share_places(&f, &s->block[b], i);
    if (same)
        memcpy(f.same, same, sizeof *same * (size_t)s->values.n);
    for (int i = 0; i < s->values.n; i++) {
        const int n = value_indices(s, &s->values.at[i]);
        f.item_of[i] = NEW_ARRAY(a, int, n + 1);
        f.since[i] = NEW_ARRAY(a, int, n);
        for (int j = 0; j < n; j++)
            f.item_of[i][j + 1] = f.since[i][j] = -1;
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

Flow *step_flow(Arena *a, const Step *s) { return find_flow(a, s, NULL); }

const Flow *flow_alone(Arena *a, const Flow *step, int64_t scratch)
{
    Step *e = step_evaluation(a, step->step);
    /* a device has rounded parameters alone */
    const int param = e->program->target->device_memory ? -1 : step_value(e, "param"),
              of_attention = step_value(e, "attention_scratch");
    Value *v = NEW_ARRAY(a, Value, e->values.n);
    memcpy(v, e->values.at, sizeof *v * (size_t)e->values.n);
    e->values.at = v;
    for (int i = 0; i < e->values.n; i++)
        if (v[i].kind == VALUE_STATE && i != param)
            v[i].kind = VALUE_INPUT; /* it is in no memory */
    if (of_attention >= 0)
        v[of_attention].bytes = scratch;
    Flow *f = find_flow(a, e, step->same);
    step_pack(a, f, step->align, (MemoryBudget){.quick = true});
    return f;
}

const Flow *flow_evaluation(Arena *a, const Flow *step)
{
    Flow *f = find_flow(a, step_evaluation(a, step->step), step->same);
    f->align = step->align;
    f->state = step->state, f->host_state = step->host_state;
    for (int i = 0; i < f->items; i++) {
        Item *x = &f->item[i];
        const Item *placed = flow_item(step, x->value, x->index < 0 ? 0 : x->index);
        x->offset = placed->offset;
        int64_t *end = item_on_host(f, x) ? &f->host : &f->packed;
        const int64_t after = x->offset + (x->bytes + f->align - 1) / f->align * f->align;
        *end = after > *end ? after : *end;
    }
    return f;
}
