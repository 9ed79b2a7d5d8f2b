/* step/memory/report.c: what is alive in a step's memory at each operation, and why: for --emit=memory, and
 * for messages about steps that do not fit. */
#include "step/memory/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is alive at the peak ---- */

static int by_value(const void *a, const void *b)
{
    const Alive *x = a, *y = b;
    return x->value != y->value ? x->value - y->value : (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int by_bytes(const void *a, const void *b)
{
    const Alive *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : x->value - y->value;
}

int step_alive(const Flow *f, Alive *alive)
{
    int n = 0, values = 0;
    for (int i = 0; i < f->items; i++)
        if (item_live(&f->item[i], f->peak_at) && !item_on_host(f, &f->item[i]))
            alive[n++] = (Alive){f->item[i].value, 1, f->item[i].bytes};
    qsort(alive, (size_t)n, sizeof *alive, by_value);
    for (int i = 0; i < n; i++) {
        if (values && alive[values - 1].value == alive[i].value)
            alive[values - 1].count++, alive[values - 1].bytes += alive[i].bytes;
        else
            alive[values++] = alive[i];
    }
    qsort(alive, (size_t)values, sizeof *alive, by_bytes);
    return values;
}

void print_lifetimes(const Flow *f, Text *out)
{
    const StepOp *o = &f->op[f->peak_at];
    Alive *alive = xmalloc(sizeof *alive * (size_t)(f->items + 1));
    const int n = step_alive(f, alive);
    text_printf(out, "packed into %.3f GiB; live bytes peak at %.3f GiB, in %s of layer %d:\n",
                (double)f->packed / (1 << 30), (double)f->live_peak / (1 << 30), op_name(o->op->kind),
                o->layer);
    for (int i = 0; i < n; i++) {
        text_printf(out, "  %-18s %10.3f GiB", f->step->values.at[alive[i].value].name,
                    (double)alive[i].bytes / (1 << 30));
        text_printf(out, alive[i].count > 1 ? "  (%d)\n" : "\n", alive[i].count);
    }
    free(alive);
}

/* ---- uses of memory ---- */

const UseText use_text[USES] = {
#define X(id, column, what) {column, what},
    STEP_USES(X)
#undef X
};

Use value_use(const Value *v)
{
    static const Use of[] = {
        [VALUE_INPUT] = USE_ACTIVE,   [VALUE_ACTIVATION] = USE_ACTIVE, [VALUE_GRADIENT] = USE_GRADIENT,
        [VALUE_WEIGHT] = USE_WEIGHT,  [VALUE_SUM] = USE_SUM,           [VALUE_SHARD] = USE_SUM,
        [VALUE_ROUNDED] = USE_WEIGHT, [VALUE_CACHE] = USE_SAVED,       [VALUE_STATE] = USE_STATE,
        [VALUE_SCRATCH] = USE_SCRATCH};
    return v->saved ? USE_SAVED : of[v->kind];
}

/* A value that layers do not save counts only during their time. */
static Use item_use(const Flow *f, const Item *i)
{
    const Value *v = &f->step->values.at[i->value];
    const Use use = value_use(v);
    return use == USE_SAVED && i->index < v->saved_from ? USE_ACTIVE : use;
}

int64_t *step_uses(Arena *a, const Flow *f)
{
    /* first differences: bytes that come into use minus those that go out */
    int64_t *bytes = NEW_ARRAY(a, int64_t, (f->ops + 1) * USES);
    for (int i = 0; i < f->items; i++)
        for (int r = 0; r < f->item[i].live.n && !item_on_host(f, &f->item[i]); r++) {
            bytes[f->item[i].live.at[r].first * USES + item_use(f, &f->item[i])] += f->item[i].bytes;
            bytes[(f->item[i].live.at[r].last + 1) * USES + item_use(f, &f->item[i])] -= f->item[i].bytes;
        }
    for (int t = 1; t < f->ops; t++)
        for (int u = 0; u < USES; u++)
            bytes[t * USES + u] += bytes[(t - 1) * USES + u];
    return bytes;
}

int64_t uses_sum(const int64_t *uses, int op)
{
    int64_t sum = 0;
    for (int u = 0; u < USES; u++)
        sum += uses[op * USES + u];
    return sum;
}

/* ---- sections of the step ---- */

/* The number of consecutive visits of one block from an operation on, and where they end. */
static int visits_from(const Flow *f, int op, int *end)
{
    int visits = 1;
    for (*end = op + 1; *end < f->ops && f->op[*end].block == f->op[op].block; ++*end)
        visits += f->op[*end].visit != f->op[*end - 1].visit;
    return visits;
}

/* The next `visits` visits, up to `end`, with their operation with most live bytes. */
static Section section_of(const Flow *f, const int64_t *uses, int first, int visits, int end)
{
    const int last_visit = f->op[first].visit + visits - 1;
    Section s = {.first = first, .last = first, .at = first};
    for (int t = first; t < end && f->op[t].visit <= last_visit; t++) {
        s.last = t;
        s.at = uses_sum(uses, t) > uses_sum(uses, s.at) ? t : s.at;
    }
    return s;
}

int step_sections(Arena *a, const Flow *f, const int64_t *uses, int most, Section **out)
{
    Vec(Section) all = {0};
    for (int op = 0, end; op < f->ops; op = end) {
        const int visits = visits_from(f, op, &end);
        const bool units = f->step->block[f->op[op].block].repeat >= REPEAT_UNITS;
        int parts = visits < most ? visits : most;
        parts = units ? 1 : parts;
        for (int i = 0, first = op; i < parts; i++) {
            const Section s = section_of(f, uses, first, visits * (i + 1) / parts - visits * i / parts, end);
            *vec_push(a, &all) = s;
            first = s.last + 1;
        }
    }
    *out = all.at;
    return all.n;
}

const char *section_text(Arena *a, const Flow *f, const Section *s)
{
    const StepOp *first = &f->op[s->first], *last = &f->op[s->last];
    const Block *b = &f->step->block[first->block];
    if (b->repeat != REPEAT_UP && b->repeat != REPEAT_DOWN)
        return b->name;
    return first->layer == last->layer
               ? arena_printf(a, "%s, layer %d", b->name, first->layer)
               : arena_printf(a, "%s, layers %d to %d", b->name, first->layer, last->layer);
}

const char *step_op_text(Arena *a, const Flow *f, int op)
{
    const StepOp *o = &f->op[op];
    const Section alone = {op, op, op};
    return arena_printf(a, "%s%s (%s)", o->op->again ? "again " : "", op_name(o->op->kind),
                        section_text(a, f, &alone));
}
