/* step/memory/pack.c: finds offsets of all items in the arena of their memory, so that no two items in use
 * at the same time overlap.
 *
 * Items are placed one after the other, each at the lowest offset that is free whenever it is in use. The
 * order determines how much is lost between them: several orders are tried, and the tightest is kept. While
 * much is lost, the topmost item moves half-way to the begin of the order, and all are placed once more.
 * Parameters and moments always come first, in their own order: they are in use throughout, and the runtime
 * allocates them first.
 *
 * One offset for all layers may separate much: layers that stage alternate between two offsets, and memory
 * between these must be free in all layers. If much is still lost, each layer has its own offset. */
#include "step/memory/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 2000 }; /* number of items up to which further orders are tried */

/* Adjacent items, or items of one value in order with gaps, the widest of which is known: each is in use
 * only while the previous one is (rising: while the next one is). What overlaps one of them in time overlaps
 * all outer ones, so a run is searched in a few steps for any number of layers. Or one place, with all its
 * uses. */
typedef struct Run { int64_t begin, end, widest; bool rising; Vec(const Item *) item; Item *place; } Run;
typedef struct Packer {
    Arena *arena;
    Flow *flow;
    int64_t align, begin, packed; /* begin: after parameters and moments; packed: size of the last order */
    bool host;            /* which memory's items */
    int items, *order;    /* indices into `flow` */
    Vec(Run *) run;       /* sorted by begin */
    int states;
    /* runs may have gaps: in the first order, where a value's items are consecutive; in others too many
     * would be searched */
    bool gaps;
    /* [flow->items][flow->items], if all pairs can be tested: whether in use together. NULL: runs are
     * used */
    const bool *together;
    struct Placed *placed; /* placed items, sorted by begin */
    int placed_items;
    int *rank;             /* [flow->items]: index into `order` */
    struct Moved *moved;   /* items whose place differs from that in the last order */
    int moved_items;
} Packer;
typedef struct Placed { int64_t begin, end; int item; } Placed;
typedef struct Moved { int64_t before, begin, end; int item; } Moved;

static bool together(const Item *a, const Item *b)
{
    if (a->live.at[0].first > b->live.at[b->live.n - 1].last ||
        b->live.at[0].first > a->live.at[a->live.n - 1].last)
        return false;
    if (a->live.n == 1 && b->live.n == 1)
        return true;
    const Item *few = a->live.n < b->live.n ? a : b, *many = few == a ? b : a;
    for (int r = 0; r < few->live.n; r++) {
        const int at = first_range_to(many, few->live.at[r].first);
        if (at < many->live.n && many->live.at[at].first <= few->live.at[r].last)
            return true;
    }
    return false;
}

static int64_t room(const Packer *p, const Item *i)
{
    return (i->bytes + p->align - 1) / p->align * p->align;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static bool is_state(const Packer *p, int item)
{
    return p->flow->step->values.at[p->flow->item[item].value].kind == VALUE_STATE;
}

/* ---- placed items ---- */

static int64_t end_of(const Packer *p, const Item *i)
{
    return i->offset + room(p, i);
}

/* The number of a run's items in use together with it: the outermost ones. */
static int used_together(const Run *r, const Item *i)
{
    int low = 0, high = r->item.n;
    if (r->place)
        return together(r->place, i);
    while (low < high) {
        const int mid = (low + high) / 2;
        if (together(r->item.at[r->rising ? r->item.n - 1 - mid : mid], i))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The lowest gap of so many bytes from `at` on between the run's items first to last. */
static int64_t lowest_between(const Packer *p, const Run *r, int first, int last, int64_t bytes, int64_t at)
{
    for (int high = last + 1; first < high;) {
        const int mid = (first + high) / 2;
        if (end_of(p, r->item.at[mid]) <= at)
            first = mid + 1;
        else
            high = mid;
    }
    for (; first <= last && r->item.at[first]->offset < at + bytes; first++)
        at = end_of(p, r->item.at[first]);
    return at;
}

/* The lowest begin after the run's items that are in its way; `at` if there are none. */
static int64_t behind(const Packer *p, const Run *r, const Item *i, int64_t at)
{
    const int64_t bytes = room(p, i);
    const int n = r->end > at && r->begin < at + bytes ? used_together(r, i) : 0;
    if (!n)
        return at;
    const int first = r->rising ? r->item.n - n : 0, last = first + n - 1;
    if (bytes <= r->widest)
        return lowest_between(p, r, first, last, bytes, at);
    const int64_t end = end_of(p, r->item.at[last]);
    return r->item.at[first]->offset < at + bytes && end > at ? end : at;
}

/* The lowest gap among placed items in use with it. */
static int64_t lowest(const Packer *p, const Item *i)
{
    int64_t at = p->begin, before;
    do {
        before = at;
        for (int r = 0; r < p->run.n && p->run.at[r]->begin < at + room(p, i); r++)
            at = behind(p, p->run.at[r], i, at);
    } while (at != before);
    return at;
}

/* Whether one is in use only while the other is. */
static bool within(const Item *one, const Item *other)
{
    for (int r = 0; r < one->live.n; r++) {
        const int at = first_range_to(other, one->live.at[r].last);
        if (at == other->live.n || other->live.at[at].first > one->live.at[r].first)
            return false;
    }
    return true;
}

/* Merges the uses of both in order. */
static void add_all(Arena *a, Item *to, const Item *x, const Item *y)
{
    for (int i = 0, j = 0; i < x->live.n || j < y->live.n;) {
        const bool first = j == y->live.n || (i < x->live.n && x->live.at[i].first <= y->live.at[j].first);
        item_add_range(a, to, first ? x->live.at[i++] : y->live.at[j++]);
    }
}

/* Joins a run at the same offset. A place's uses are copied only for an item with many: copies for each of
 * many layers joining one by one would take quadratic memory. */
static bool joins(Packer *p, Run *r, const Item *i)
{
    enum { MERGES = 8 };
    if (r->item.n > 1 || r->begin != i->offset || r->end != end_of(p, i))
        return false;
    if (r->place && MERGES * i->live.n < r->place->live.n) {
        for (int k = 0; k < i->live.n; k++)
            item_add_range(p->arena, r->place, i->live.at[k]);
        return true;
    }
    Item *both = NEW(p->arena, Item);
    add_all(p->arena, both, r->place ? r->place : r->item.at[0], i);
    r->place = both;
    return true;
}

static bool continues(Packer *p, Run *r, const Item *i)
{
    const Item *last = r->item.at[r->item.n - 1];
    const bool gap = p->gaps && last->value == i->value && r->end < i->offset;
    if (r->place || (r->end != i->offset && !gap))
        return false;
    const bool falls = (r->item.n == 1 || !r->rising) && within(i, last);
    if (!falls && ((r->item.n > 1 && !r->rising) || !within(last, i)))
        return false;
    r->rising = !falls;
    r->widest = larger(r->widest, i->offset - r->end);
    *vec_push(p->arena, &r->item) = i;
    r->end = end_of(p, i);
    return true;
}

static void insert(Packer *p, const Item *i)
{
    for (int r = 0; r < p->run.n; r++)
        if (joins(p, p->run.at[r], i) || continues(p, p->run.at[r], i))
            return;
    Run *new = NEW(p->arena, Run);
    *new = (Run){.begin = i->offset, .end = end_of(p, i)};
    *vec_push(p->arena, &new->item) = i;
    vec_push(p->arena, &p->run);
    int at = p->run.n - 1;
    for (; at > 0 && p->run.at[at - 1]->begin > new->begin; at--)
        p->run.at[at] = p->run.at[at - 1];
    p->run.at[at] = new;
}

/* ---- few items ---- */

static void find_together(Packer *p)
{
    const int n = p->flow->items;
    bool *pair = NEW_ARRAY(p->arena, bool, n * n);
    Range *span = NEW_ARRAY(p->arena, Range, p->items); /* most pairs are apart: their ranges are not read */
    for (int x = p->states; x < p->items; x++) {
        const Item *i = &p->flow->item[p->order[x]];
        span[x] = (Range){i->live.at[0].first, i->live.at[i->live.n - 1].last};
    }
    for (int x = p->states; x < p->items; x++)
        for (int y = p->states; y <= x; y++) {
            const int i = p->order[x], j = p->order[y];
            if (span[x].first <= span[y].last && span[y].first <= span[x].last)
                pair[i * n + j] = pair[j * n + i] = together(&p->flow->item[i], &p->flow->item[j]);
        }
    p->together = pair;
    p->placed = NEW_ARRAY(p->arena, Placed, p->items);
    p->moved = NEW_ARRAY(p->arena, Moved, p->items);
    p->rank = NEW_ARRAY(p->arena, int, n);
}

/* The same as lowest, pair by pair, among the items before it in the order. */
static int64_t lowest_among(const Packer *p, int index)
{
    const int item = p->order[index];
    const bool *with = &p->together[item * p->flow->items];
    const int64_t bytes = room(p, &p->flow->item[item]);
    int64_t at = p->begin;
    /* unpredictable, so without a branch */
    for (const Placed *k = p->placed, *end = k + p->placed_items; k < end && k->begin < at + bytes; k++)
        at = larger(at, (with[k->item] & (p->rank[k->item] < index)) * k->end);
    return at;
}

/* Places an item at an offset. k: where it is in `placed`, or its end. */
static void place_at(Packer *p, int item, int64_t at, int k)
{
    for (; k > 0 && p->placed[k - 1].begin > at; k--)
        p->placed[k] = p->placed[k - 1];
    for (; k + 1 < p->placed_items && p->placed[k + 1].begin < at; k++)
        p->placed[k] = p->placed[k + 1];
    p->placed[k] = (Placed){at, at + room(p, &p->flow->item[item]), item};
    p->flow->item[item].offset = at;
}

static void place_next(Packer *p, int index)
{
    const int item = p->order[index];
    p->rank[item] = index;
    const int64_t at = lowest_among(p, index);
    place_at(p, item, at, p->placed_items++);
}

static void move(Packer *p, int item, int64_t at)
{
    Moved *m = &p->moved[p->moved_items++];
    const int64_t before = p->flow->item[item].offset;
    int k = 0;
    while (p->placed[k].item != item)
        k++;
    place_at(p, item, at, k);
    *m = (Moved){before, at, at + room(p, &p->flow->item[item]), item};
}

/* Whether an item that moved is now where this one was, or may have left a lower gap. */
static bool disturbed(const Packer *p, int item)
{
    const bool *with = &p->together[item * p->flow->items];
    const int64_t begin = p->flow->item[item].offset, end = end_of(p, &p->flow->item[item]);
    for (const Moved *m = p->moved; m < p->moved + p->moved_items; m++)
        if (with[m->item] && ((m->begin < end && m->end > begin) || m->before < begin))
            return true;
    return false;
}

/* Places all items after the one at `index` came there from `top`. Only those that are disturbed can have
 * another place than in the last order. */
static int64_t place_again(Packer *p, int index, int top)
{
    int64_t end = p->begin;
    p->moved_items = 0;
    for (int j = index; j <= top; j++)
        p->rank[p->order[j]] = j;
    for (int j = index; j < p->items; j++) {
        const int item = p->order[j];
        if (j > index && !disturbed(p, item))
            continue;
        const int64_t at = lowest_among(p, j);
        if (j == index || at != p->flow->item[item].offset)
            move(p, item, at);
    }
    for (int k = 0; k < p->placed_items; k++)
        end = larger(end, p->placed[k].end);
    return end;
}

/* ---- all items ---- */

static int64_t place_all(Packer *p)
{
    int64_t end = p->begin;
    p->run.n = p->placed_items = 0;
    for (int j = p->states; j < p->items; j++) {
        Item *i = &p->flow->item[p->order[j]];
        if (p->together) {
            place_next(p, j);
        } else {
            i->offset = lowest(p, i);
            insert(p, i);
        }
        end = end_of(p, i) > end ? end_of(p, i) : end;
    }
    return end;
}

/* Places the items in use throughout, one after the other; they are first in every order. */
static void place_states(Packer *p)
{
    for (; p->states < p->items && is_state(p, p->order[p->states]); p->states++) {
        Item *i = &p->flow->item[p->order[p->states]];
        i->offset = p->begin;
        p->begin += room(p, i);
    }
}

/* ---- orders ---- */

static int live_ops(const Item *i)
{
    int n = 0;
    for (int r = 0; r < i->live.n; r++)
        n += i->live.at[r].last - i->live.at[r].first + 1;
    return n;
}

/* Items of one value with equal keys are consecutive, so that their offsets have a stride. */
typedef struct Key { double key, then; int state, value, index, item; } Key;

static int by_key(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    if (x->state != y->state)
        return y->state - x->state;
    if (x->key != y->key)
        return (x->key < y->key) - (x->key > y->key);
    if (x->then != y->then)
        return (x->then < y->then) - (x->then > y->then);
    return x->value != y->value ? x->value - y->value : x->index - y->index;
}

typedef enum Rule {
    LARGEST, LONGEST, PRODUCT,
    FIRST, LAST, /* in use first; in use last */
    /* By powers of two, largest first: of bytes, then those in use first; of time, then the largest; of
     * both, then the largest product. */
    SIZES, TIMES, BOTH,
    RULES
} Rule;

static Key key_of(const Packer *p, int item, Rule rule)
{
    const Item *i = &p->flow->item[item];
    const double bytes = (double)i->bytes, ops = live_ops(i), first = i->live.at[0].first,
                 last = i->live.at[i->live.n - 1].last;
    const double size = floor(log2(bytes)), time = floor(log2(ops));
    const double key[RULES] = {
        [LARGEST] = bytes, [LONGEST] = ops, [PRODUCT] = bytes * ops, [FIRST] = -first,
        [LAST] = last,     [SIZES] = size,  [TIMES] = time,          [BOTH] = 64 * size + time};
    const double then[RULES] = {[SIZES] = -first, [TIMES] = bytes, [BOTH] = bytes * ops};
    const bool state = is_state(p, item);
    return (Key){state ? 0 : key[rule], state ? 0 : then[rule], state, i->value, i->index, item};
}

static void put_in_order(Packer *p, Key *key, Rule rule)
{
    const Flow *f = p->flow;
    p->items = 0;
    for (int i = 0; i < f->items; i++)
        if (item_on_host(f, &f->item[i]) == p->host)
            key[p->items++] = key_of(p, i, rule);
    qsort(key, (size_t)p->items, sizeof *key, by_key);
    for (int i = 0; i < p->items; i++)
        p->order[i] = key[i].item;
}

typedef struct Best { int64_t end, *offset; int *order; } Best;

/* Keeps the order if it is the tightest. */
static void keep_tightest(const Packer *p, Best *best)
{
    if (p->packed >= best->end)
        return;
    best->end = p->packed;
    memcpy(best->order, p->order, sizeof(int) * (size_t)p->items);
    for (int i = 0; i < p->items; i++)
        best->offset[i] = p->flow->item[p->order[i]].offset;
}

static void try_order(Packer *p, Best *best)
{
    p->packed = place_all(p);
    keep_tightest(p, best);
}

static void take(Packer *p, const Best *best)
{
    p->packed = best->end;
    memcpy(p->order, best->order, sizeof(int) * (size_t)p->items);
    for (int i = 0; i < p->items; i++)
        p->flow->item[p->order[i]].offset = best->offset[i];
}

/* Moves the last item in order that ends at the top half-way to the begin, and places all once more. */
static void raise_top(Packer *p)
{
    int top = p->items - 1;
    while (top > p->states && end_of(p, &p->flow->item[p->order[top]]) < p->packed)
        top--;
    const int to = (p->states + top) / 2, item = p->order[top];
    memmove(&p->order[to + 1], &p->order[to], sizeof(int) * (size_t)(top - to));
    p->order[to] = item;
    p->packed = p->placed_items ? place_again(p, to, top) : place_all(p);
}

/* Size at which no more is tried: the peak plus a small share, or plus little. Other orders and offsets by
 * layer take longer than raising items of the first order, and are tried only if more is lost. */
enum { FOR_RAISING = 64, FOR_MORE = 32 };
static int64_t enough(int64_t peak, int64_t fits, int share)
{
    enum { LITTLE = 64 << 20 };
    return larger(fits, peak + larger(peak / share, LITTLE));
}

/* With few items, tries so many raised orders from this one while that much is lost. */
static void raise(Packer *p, Best *best, int64_t until, int times)
{
    if (!p->together && best->end > until)
        find_together(p);
    for (int n = 0; n < times && p->items && best->end > until; n++) {
        raise_top(p);
        keep_tightest(p, best);
    }
}

/* Packs the items of one memory and returns its size; *state: the size of parameters and moments at its
 * begin. fits: a size that need not be improved; quick: as in MemoryBudget. */
static int64_t pack(Arena *a, Flow *f, bool host, int64_t fits, bool quick, int64_t *state)
{
    enum {
        MANY = 10000, /* with so many items only the first order is tried, which has the fewest runs */
        RAISED = 64,
        QUICK = 8
    };
    Packer p = {.gaps = f->items >= MANY,
                .arena = a,
                .flow = f,
                .align = f->align,
                .host = host,
                .order = NEW_ARRAY(a, int, f->items)};
    Key *key = NEW_ARRAY(a, Key, f->items);
    Best best = {INT64_MAX, NEW_ARRAY(a, int64_t, f->items), NEW_ARRAY(a, int, f->items)};
    const int64_t peak = host ? f->host_peak : f->live_peak, until = enough(peak, fits, FOR_RAISING);
    for (Rule rule = 0; rule < (f->items < MANY ? FIRST : LONGEST) && best.end > fits; rule++) {
        put_in_order(&p, key, rule);
        place_states(&p);
        try_order(&p, &best);
    }
    take(&p, &best);
    if (f->items < FEW)
        raise(&p, &best, until, quick ? QUICK : RAISED);
    for (Rule rule = FIRST;
         rule < RULES && f->items < FEW && !quick && best.end > enough(peak, fits, FOR_MORE); rule++) {
        put_in_order(&p, key, rule);
        try_order(&p, &best);
        raise(&p, &best, until, RAISED / 2);
    }
    take(&p, &best);
    *state = p.begin;
    return p.packed;
}

void step_pack(Arena *a, Flow *f, int64_t align, MemoryBudget fits)
{
    f->align = align;
    f->packed = pack(a, f, false, fits.device, fits.quick, &f->state);
    f->host = pack(a, f, true, fits.host, fits.quick, &f->host_state);
}

/* ---- offsets by layer ---- */

void step_place_by_layer(Step *s, bool by_layer)
{
    static const char *const of_attention[] = {"attention_scratch", "attention_keys"};
    s->by_layer = by_layer;
    for (int i = 0; i < countof(of_attention); i++) {
        const int v = step_value(s, of_attention[i]);
        if (v >= 0)
            s->values.at[v].index = by_layer ? INDEX_LAYER : INDEX_NONE;
    }
}

bool memory_over(MemoryBudget most, int64_t device, int64_t host)
{
    return device > most.device || (most.host > 0 && host > most.host);
}

Flow *step_place(Arena *a, Step *s, int64_t align, MemoryBudget fits, MemoryBudget most)
{
    enum { LESS = 64 }; /* fraction of the peak that offsets by layer must save */
    Flow *f = step_flow(a, s);
    f->unpacked = memory_over(most, f->live_peak, f->host_peak);
    if (f->unpacked) {
        f->packed = f->live_peak, f->host = f->host_peak;
        return f;
    }
    step_pack(a, f, align, fits);
    const bool too_large = fits.limit && f->packed > fits.limit;
    if (f->items >= FEW / 2 || (f->packed <= enough(f->live_peak, fits.device, FOR_MORE) && !too_large))
        return f;
    step_place_by_layer(s, true);
    Flow *by_layer = step_flow(a, s);
    step_pack(a, by_layer, align, fits);
    if (by_layer->packed < f->packed - f->live_peak / LESS || (too_large && by_layer->packed <= fits.limit))
        return by_layer;
    step_place_by_layer(s, false);
    return f;
}
