/* step_pack.c: places of all items in one arena, so that no two that are in use at once overlap.
 *
 * Items are placed one after the other, each at the lowest place that is free whenever it is in use. The order decides how
 * much is lost between them: several are tried, and the least kept. Parameters and moments always come first, in their own
 * order: they are in use throughout, and the runtime takes them before anything else.
 */
#include "step.h"

#include <stdlib.h>
#include <string.h>

typedef struct Placed { int64_t begin, end; const Item *item; } Placed;
typedef struct Packer { Arena *arena; Flow *flow; int64_t align; int *order; Placed *placed; /* by place */ int states; } Packer;

static bool together(const Item *a, const Item *b)
{
    if (a->live.at[0].first > b->live.at[b->live.n - 1].last || b->live.at[0].first > a->live.at[a->live.n - 1].last)
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

static bool is_state(const Packer *p, int item)
{
    return p->flow->step->values.at[p->flow->item[item].value].kind == VALUE_STATE;
}

/* The lowest gap among what is placed and in use with it. */
static int64_t lowest(const Packer *p, const Item *i, int placed)
{
    const int64_t bytes = room(p, i);
    int64_t at = p->flow->state;
    for (int j = 0; j < placed && p->placed[j].begin < at + bytes; j++)
        if (p->placed[j].end > at && together(p->placed[j].item, i))
            at = p->placed[j].end;
    return at;
}

static void insert(Packer *p, const Item *i, int placed)
{
    int at = placed;
    while (at > 0 && p->placed[at - 1].begin > i->offset)
        at--;
    memmove(p->placed + at + 1, p->placed + at, sizeof(Placed) * (size_t)(placed - at));
    p->placed[at] = (Placed){i->offset, i->offset + room(p, i), i};
}

static int64_t place_all(Packer *p)
{
    int64_t end = p->flow->state;
    for (int j = p->states; j < p->flow->items; j++) {
        Item *i = &p->flow->item[p->order[j]];
        i->offset = lowest(p, i, j - p->states);
        insert(p, i, j - p->states);
        end = i->offset + room(p, i) > end ? i->offset + room(p, i) : end;
    }
    return end;
}

/* Those in use throughout, one after the other; they come first in every order. */
static void place_states(Packer *p)
{
    for (; p->states < p->flow->items && is_state(p, p->order[p->states]); p->states++) {
        Item *i = &p->flow->item[p->order[p->states]];
        i->offset = p->flow->state;
        p->flow->state += room(p, i);
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

/* Of the same key, one value's items follow each other, so that their places are a stride apart. */
typedef struct Key { double key; int state, value, index, item; } Key;

static int by_key(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    if (x->state != y->state)
        return y->state - x->state;
    if (x->key != y->key)
        return (x->key < y->key) - (x->key > y->key);
    return x->value != y->value ? x->value - y->value : x->index - y->index;
}

/* The largest first; those in use longest first; the largest product of both first. */
static double key_of(const Packer *p, int item, int rule)
{
    const double bytes = (double)p->flow->item[item].bytes, ops = live_ops(&p->flow->item[item]);
    return is_state(p, item) ? 0 : rule == 0 ? bytes : rule == 1 ? ops : bytes * ops;
}

static void put_in_order(Packer *p, Key *key, int rule)
{
    const Flow *f = p->flow;
    for (int i = 0; i < f->items; i++)
        key[i] = (Key){key_of(p, i, rule), is_state(p, i), f->item[i].value, f->item[i].index, i};
    qsort(key, (size_t)f->items, sizeof *key, by_key);
    for (int i = 0; i < f->items; i++)
        p->order[i] = key[i].item;
}

void step_pack(Arena *a, Flow *f, int64_t align)
{
    enum { RULES = 3, MANY = 10000 }; /* of many items one order is tried */
    Packer p = {.arena = a, .flow = f, .align = align, .order = NEW_ARRAY(a, int, f->items), .placed = NEW_ARRAY(a, Placed, f->items + 1)};
    Key *key = NEW_ARRAY(a, Key, f->items);
    int64_t *best = NEW_ARRAY(a, int64_t, f->items);
    f->packed = INT64_MAX;
    f->align = align;
    f->state = 0;
    for (int rule = f->items < MANY ? 0 : RULES - 1; rule < RULES; rule++) {
        put_in_order(&p, key, rule);
        place_states(&p);
        const int64_t end = place_all(&p);
        if (end < f->packed) {
            f->packed = end;
            for (int i = 0; i < f->items; i++)
                best[i] = f->item[i].offset;
        }
    }
    for (int i = 0; i < f->items; i++)
        f->item[i].offset = best[i];
}
