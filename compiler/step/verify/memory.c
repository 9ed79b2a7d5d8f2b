/* step/verify/memory.c: the packed memories as stretches, and memory that other streams may be using. Host
 * memory has addresses after the device's. */
#include "step/verify/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

bool overlap(int64_t a, int64_t a_end, int64_t b, int64_t b_end) { return a < b_end && b < a_end; }

static int by_address(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int cell_at(const Cells *c, int64_t address)
{
    int low = 0, high = c->n;
    while (low < high) {
        const int mid = low + (high - low) / 2;
        if (c->begin[mid] < address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void set_first(Cells *c, int cell, bool to)
{
    const uint64_t bit = UINT64_C(1) << cell % 64;
    c->first[cell / 64] = to ? c->first[cell / 64] | bit : c->first[cell / 64] & ~bit;
}

/* The first cell of the cell's stretch. */
static int stretch_of(const Cells *c, int cell)
{
    int word = cell / 64;
    uint64_t bits = c->first[word] & (UINT64_MAX >> (63 - cell % 64));
    while (!bits)
        bits = c->first[--word];
    return 64 * word + 63 - __builtin_clzll(bits);
}

/* The record that the whole item holds; NULL with *other: the record in its way, or NULL if it is not
 * written. */
const Record *held(const Machine *m, const Item *i, const Record **other)
{
    const Cells *c = &m->cells;
    const int end = cell_at(c, i->offset + i->bytes);
    const Record *r = NULL;
    bool whole = true;
    *other = NULL;
    for (int k = cell_at(c, i->offset) < end ? stretch_of(c, cell_at(c, i->offset)) : end; k < end;
         k = c->end[k]) {
        const Record *x = c->record[k];
        whole &= x != NULL;
        if (x && (x->begin != i->offset || x->end != i->offset + i->bytes || (r && r != x)))
            *other = x;
        r = x ? x : r;
    }
    return *other || !whole ? NULL : r;
}

/* Splits stretches so that one begins at the cell. */
static void cut(Cells *c, int cell)
{
    const int from = cell < c->n ? stretch_of(c, cell) : cell;
    if (from == cell)
        return;
    c->end[cell] = c->end[from], c->record[cell] = c->record[from];
    c->end[from] = cell;
    set_first(c, cell, true);
}

void store(Machine *m, Record r)
{
    Cells *c = &m->cells;
    const int begin = cell_at(c, r.begin), end = cell_at(c, r.end);
    Record *kept = NEW(m->arena, Record);
    *kept = r;
    if (begin == end)
        return;
    cut(c, begin);
    cut(c, end);
    for (int k = c->end[begin]; k < end; k = c->end[k])
        set_first(c, k, false);
    c->end[begin] = end, c->record[begin] = kept;
}

/* Marks cells of parameters, and for each cell the next of these. */
static void find_shards(Machine *m)
{
    Cells *c = &m->cells;
    const int param = step_value(m->step, step_param(m->step));
    c->shard = NEW_ARRAY(m->arena, int, c->n + 1);
    c->unit = NEW_ARRAY(m->arena, int, c->n);
    memset(c->unit, -1, sizeof *c->unit * (size_t)c->n);
    for (int u = m->units - 1; u >= 0; u--) {
        const Item *x = m->item[param * m->span + u];
        for (int k = x ? cell_at(c, x->offset) : 0; x && c->begin[k] < x->offset + x->bytes; k++)
            c->unit[k] = u;
    }
    c->shard[c->n] = c->n;
    for (int k = c->n - 1; k >= 0; k--)
        c->shard[k] = c->unit[k] < 0 ? c->shard[k + 1] : k;
}

int shard_at(const Machine *m, const Item *i)
{
    const Cells *c = &m->cells;
    const int next = c->shard ? c->shard[cell_at(c, i->offset)] : c->n;
    return next < c->n && c->begin[next] < i->offset + i->bytes ? c->unit[next] : -1;
}

/* Starts with nothing written. */
static void find_cells(Machine *m, const Item *const *item)
{
    Cells *c = &m->cells;
    const int items = m->flow->items;
    int64_t *at = NEW_ARRAY(m->arena, int64_t, 2 * items + 1);
    for (int i = 0; i < items; i++)
        at[2 * i] = item[i]->offset, at[2 * i + 1] = item[i]->offset + item[i]->bytes;
    qsort(at, (size_t)(2 * items), sizeof *at, by_address);
    int bounds = 0;
    for (int i = 0; i < 2 * items; i++)
        if (!bounds || at[i] != at[bounds - 1])
            at[bounds++] = at[i];
    c->begin = at;
    c->n = bounds ? bounds - 1 : 0;
    c->first = NEW_ARRAY(m->arena, uint64_t, c->n / 64 + 1);
    c->end = NEW_ARRAY(m->arena, int, c->n + 1);
    c->record = NEW_ARRAY(m->arena, const Record *, c->n + 1);
    c->end[0] = c->n;
    set_first(c, 0, true);
    if (m->step->program->target->copies_at_wait)
        find_shards(m);
}

/* ---- items ---- */

bool in_place(const Machine *m, OpKind k)
{
    return k == OP_SWIGLU_BACK || k == OP_EXPERTS_ACT_BACK || k == OP_ALL_REDUCE || k == OP_TENSOR_SUM ||
           k == OP_LAST_TOKEN || k == OP_CACHE_SCAN ||
           (m->step->program->target->one_layout && (k == OP_ROPE || k == OP_LAYOUT || k == OP_LAYOUT_BACK));
}

/* If an operation works in place, one of the two values may have no item of its own. */
static void share(Machine *m, const bool *placed)
{
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (int i = 0; i < m->step->block[b].ops.n; i++)
            for (int j = 0; j < 2 && in_place(m, m->step->block[b].ops.at[i].kind); j++) {
                const Op *o = &m->step->block[b].ops.at[i];
                const int from = o->read[j].value, to = o->write[j].value;
                if (from >= 0 && to >= 0 && placed[from] != placed[to])
                    m->shared[placed[from] ? to : from] = placed[from] ? from : to;
            }
}

/* At its address. */
static const Item *addressed(Machine *m, const Item *x)
{
    static const int64_t host_at = INT64_C(1) << 60;
    if (!m->step->values.at[x->value].host)
        return x;
    Item *moved = NEW(m->arena, Item);
    *moved = *x;
    moved->offset += host_at;
    return moved;
}

void find_items(Machine *m)
{
    bool *placed = NEW_ARRAY(m->arena, bool, m->step->values.n);
    const Item **item = NEW_ARRAY(m->arena, const Item *, m->flow->items);
    for (int i = 0; i < m->step->values.n; i++)
        m->shared[i] = i;
    for (int i = 0; i < m->flow->items; i++) {
        const Item *x = item[i] = addressed(m, &m->flow->item[i]);
        placed[x->value] = true;
        const Item **of = &m->item[x->value * m->span];
        if (x->index >= 0 && x->index < m->span)
            of[x->index] = x;
        for (int k = 0; x->index < 0 && k < m->span; k++)
            of[k] = of[k] ? of[k] : x;
    }
    share(m, placed);
    find_cells(m, item);
}

/* Of a layer's visits: its own, then those of its experts, whose units are numbered after the head. */
static int unit_of_layer(const Machine *m, int unit, int nth, bool backward)
{
    const int groups = m->step->units.groups, group = backward ? groups - nth : nth - 1;
    return nth ? m->layers + 1 + group * m->layers + unit : unit;
}

/* Visits are embedding, layers, head, layers backwards, embedding. */
int unit_at(const Machine *m, int visit)
{
    const int group = m->step->group, each = 1 + m->step->units.groups, head = 1 + each * m->layers;
    int at = m->layers + 2, first = (m->layers - 1) / group * group, nth = 0;
    if (visit <= 0 || visit == head)
        return visit ? m->layers + 1 : 0;
    if (visit < head)
        return unit_of_layer(m, 1 + (visit - 1) / each, (visit - 1) % each, false);
    nth = (visit - head - 1) % each;
    visit = at + (visit - head - 1) / each;
    /* from the last group on: repeated forward, except of its last layer and of the last group; backward */
    for (; first >= 0; first -= group) {
        const int end = first + group < m->layers ? first + group : m->layers,
                  again = end < m->layers ? end - 1 - first : 0;
        if (visit < at + again)
            return unit_of_layer(m, first + 1 + visit - at, nth, false);
        if (visit < at + again + end - first)
            return unit_of_layer(m, end - (visit - at - again), nth, true);
        at += again + end - first;
    }
    return visit == at && nth == 0 ? 0 : -1;
}

/* Backward reduces a layer's experts from the last group to the first, and then the rest of it. */
static int reduced_before(const Machine *m, const StepOp *o)
{
    const int groups = step_groups(m->step, o->block), group = o->op->group;
    if (groups && group < groups)
        return unit_of_layer(m, o->layer + 1, group + 1, false);
    return o->layer + 2;
}

static int unit_index(const Machine *m, const StepOp *o, Operand x)
{
    if (o->op->embedding)
        return 0;
    if (o->block >= BLOCK_MOMENTUM)
        return o->unit + x.next;
    if (x.next < 0)
        return block_of_layer(o->block) ? reduced_before(m, o) : o->unit + 1;
    return x.next ? unit_at(m, op_visit(m->step, o) + x.next) : o->unit;
}

int index_of(const Machine *m, const StepOp *o, Operand x)
{
    switch (m->step->values.at[x.value].index) {
    case INDEX_LAYER:
    case INDEX_BOUNDARY: return o->layer + x.next;
    case INDEX_VISIT: return op_visit(m->step, o) + x.next;
    case INDEX_CHUNK: return op_chunk(m->step, o);
    case INDEX_SLOT: return op_slot(m->step, o);
    case INDEX_UNIT: return unit_index(m, o, x);
    default: return 0;
    }
}

Place place_at(Machine *m, int value, int index)
{
    const Item *i = index >= 0 && index < m->span ? m->item[m->shared[value] * m->span + index] : NULL;
    if (!i)
        reject(m, STEP_VALUES, "%s[%d] has no place", name_of(m, value), index);
    return (Place){value, index, i};
}

/* Offsets are multiples of the alignment, and inside the size that the packing claims, which must be
 * minimal. */
void check_places(Machine *m)
{
    const Flow *f = m->flow;
    int64_t ends[2] = {0};
    m->now = -1;
    for (int i = 0; i < f->items; i++) {
        const Item *x = &f->item[i];
        const Value *v = &m->step->values.at[x->value];
        const int64_t room = (x->bytes + f->align - 1) / f->align * f->align,
                      packed = v->host ? f->host : f->packed;
        int64_t *end = &ends[v->host];
        const int index = x->index < 0 ? 0 : x->index;
        if (x->bytes != step_bytes(m->step, v, v->index == INDEX_VISIT ? unit_at(m, x->index) : index))
            reject(m, STEP_VALUES, "the place of %s[%d] is not as large as the value", v->name, x->index);
        if (x->offset < 0 || x->offset % f->align || x->offset + room > packed)
            reject(m, STEP_VALUES,
                   "the place of %s[%d] at %lld is not aligned, or not inside the %lld bytes of the packing",
                   v->name, x->index, (long long)x->offset, (long long)packed);
        *end = x->offset + room > *end ? x->offset + room : *end;
    }
    if (ends[0] != f->packed || ends[1] != f->host)
        reject(m, STEP_VALUES,
               "the packing claims %lld bytes, and %lld on the host; its items take %lld and %lld",
               (long long)f->packed, (long long)f->host, (long long)ends[0], (long long)ends[1]);
}

/* ---- streams ---- */

static bool follows_weights(const Machine *m, const Under *u)
{
    return op_follows_weights(m->flow->op[u->op].op->kind);
}

/* The arrivals of gathers: visits use two in turn, and a tied embedding has its own. */
enum { OWN_ARRIVAL = 2 };
static int arrival_of(const Machine *m, const StepOp *o, Operand x)
{
    return m->step->values.at[x.value].index == INDEX_NONE ? OWN_ARRIVAL
                                                           : (op_visit(m->step, o) + x.next) % 2;
}

/* Whether both have one mark in the program: the arrival of gathers; for fetches, one for every other layer,
 * chunk or slot. */
static bool awaits(const Machine *m, const StepOp *wait, const Under *u)
{
    const StepOp *o = &m->flow->op[u->op];
    const OpKind k = wait->op->awaits;
    if (k == OP_REDUCE || k == OP_ALL_REDUCE || k == OP_TENSOR_SUM)
        return u->stream == STREAM_WEIGHTS && o->op->kind != OP_GATHER;
    if (k != OP_GATHER && k != OP_FETCH)
        return op_stream(k) == STREAM_TENSOR ? u->stream == STREAM_TENSOR : o->op->kind == k;
    const Operand x = wait->op->read[0], made = o->op->write[0];
    if (k == OP_GATHER)
        return o->op->kind == k && arrival_of(m, wait, x) == arrival_of(m, o, made);
    return o->op->kind == k && (index_of(m, wait, x) + index_of(m, o, made)) % 2 == 0;
}

/* Each arrival has one gather at a time: a second one would overwrite its requests, so that neither
 * completes. */
void check_arrival(Machine *m, const StepOp *o)
{
    for (int i = 0; i < m->under.n; i++) {
        const Under *u = &m->under.at[i];
        const StepOp *before = &m->flow->op[u->op];
        if (u->writes && before->op->kind == OP_GATHER &&
            arrival_of(m, before, before->op->write[0]) == arrival_of(m, o, o->op->write[0]))
            reject(m, STEP_STREAMS, "it gathers %s[%d] before %s of %s[%d] is awaited",
                   name_of(m, o->op->write[0].value), index_of(m, o, o->op->write[0]), op_text(m, u->op),
                   name_of(m, u->value), u->index);
    }
}

/* Also for what the weights' stream was given before the last of these that began after that stream. A
 * gather is done only when it is awaited itself. */
void wait_for(Machine *m, const StepOp *wait)
{
    int done = -1, followed = -1, left = 0;
    for (int i = 0; i < m->under.n; i++)
        done = awaits(m, wait, &m->under.at[i]) ? i : done;
    const Stream stream = done < 0 ? STREAM_COMPUTE : m->under.at[done].stream;
    for (int i = 0; i <= done; i++)
        followed = m->under.at[i].stream == stream && follows_weights(m, &m->under.at[i]) ? i : followed;
    for (int i = 0; i < m->under.n; i++) {
        const Under u = m->under.at[i];
        const bool before = (i <= done && u.stream == stream) ||
                            (i <= followed && u.stream == STREAM_WEIGHTS);
        const bool other = m->flow->op[u.op].op->kind == OP_GATHER && !awaits(m, wait, &u);
        if (!before || other)
            m->under.at[left++] = u;
    }
    m->under.n = left;
}

void check_apart(Machine *m, Place p, bool writes, OpKind k)
{
    for (int i = 0; i < m->under.n; i++) {
        const Under *u = &m->under.at[i];
        const bool after = u->stream == op_stream(k) ||
                           (u->stream == STREAM_WEIGHTS && op_follows_weights(k));
        if (!after && overlap(u->begin, u->end, p.item->offset, p.item->offset + p.item->bytes) &&
            (writes || u->writes))
            reject(m, STEP_STREAMS, "it %s %s[%d], where %s may still be %s %s[%d]",
                   writes ? "writes" : "reads", name_of(m, p.value), p.index, op_text(m, u->op),
                   u->writes ? "writing" : "reading", name_of(m, u->value), u->index);
    }
}
