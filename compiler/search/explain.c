/* search/explain.c: reports a search: the chosen layout and why, the others by time, then those that do not
 * work, by reason, with what would make the nearest of them fit. */
#include "search/internal.h"

#include <string.h>

/* ---- the order ---- */

/* WORKS, or why not: too little memory; too little memory and too slow; another reason. */
typedef enum Kind { WORKS, TOO_LARGE, TOO_SLOW, REFUSED } Kind;

static Kind kind_of(const Evaluated *x)
{
    if (!x->why_not)
        return WORKS;
    if (!x->too_large)
        return REFUSED;
    return x->too_slow ? TOO_SLOW : TOO_LARGE;
}

static double seconds_of(const Evaluated *x) { return x->cost.step / (double)x->program->train.batch; }

/* Order within a kind, used by a stable sort; refused candidates with equal reasons are together. */
static int compare(const Evaluated *x, const Evaluated *y)
{
    const Kind kind = kind_of(x), other = kind_of(y);
    if (x->chosen != y->chosen)
        return y->chosen - x->chosen;
    if (kind != other)
        return (int)kind - (int)other;
    if (kind == WORKS)
        return (seconds_of(x) > seconds_of(y)) - (seconds_of(x) < seconds_of(y));
    return kind == REFUSED ? strcmp(x->why_not, y->why_not) : (x->needs > y->needs) - (x->needs < y->needs);
}

void search_sort(Arena *a, Found *f)
{
    Evaluated *sorted = NEW_ARRAY(a, Evaluated, f->evaluated_count),
              *half = NEW_ARRAY(a, Evaluated, f->evaluated_count);
    const int n = f->evaluated_count;
    if (!n)
        return;
    memcpy(sorted, f->evaluated, sizeof *sorted * (size_t)n);
    for (int width = 1; width < n; width *= 2) { /* merges, since qsort is not stable */
        for (int from = 0; from < n; from += 2 * width) {
            const int middle = from + width < n ? from + width : n,
                      to = middle + width < n ? middle + width : n;
            int i = from, j = middle;
            for (int k = from; k < to; k++)
                half[k] = j >= to || (i < middle && compare(&sorted[i], &sorted[j]) <= 0) ? sorted[i++]
                                                                                          : sorted[j++];
        }
        Evaluated *other = sorted;
        sorted = half;
        half = other;
    }
    f->evaluated = sorted;
}

static void complete_row(Searcher *s, Arena *a, const Found *f, Evaluated *x)
{
    Arena *own = arena_new();
    s->program = x->program;
    const Evaluation e = search_evaluation(s, own, &x->choice);
    if (!e.why_not) {
        x->cost.step = e.cost.step;
        x->cost.at_least = false;
        x->cost.compute = e.cost.compute;
        x->cost.exposed = e.cost.exposed;
    }
    if (!e.why_not && !f->cost.batches.n)
        x->verdict = search_verdict(a, x, plan_draft(f->plan)->program, &f->cost);
    arena_free(own);
}

Found search_complete(Arena *a, const Found *f)
{
    Found all = *f;
    Evaluated *rows = NEW_ARRAY(a, Evaluated, f->evaluated_count);
    Arena *common = arena_new();
    const Program *p = plan_draft(f->plan)->program;
    Searcher s = search_new(common, diags_new(common), p, f->counted);
    for (int i = 0; i < f->evaluated_count; i++) {
        rows[i] = f->evaluated[i];
        if (!rows[i].why_not && rows[i].cost.at_least)
            complete_row(&s, a, f, &rows[i]);
    }
    search_forget(&s);
    arena_free(common);
    all.evaluated = rows;
    search_sort(a, &all);
    return all;
}

/* ---- why ---- */

const char *search_reason(Arena *a, const Found *f)
{
    int works = 0, equal = 0;
    const Evaluated *next = NULL;
    for (int i = 0; i < f->evaluated_count && !f->evaluated[i].why_not; i++) {
        const Evaluated *x = &f->evaluated[i];
        const bool as_fast = !x->ends_later &&
                             seconds_of(x) < seconds_of(&f->evaluated[0]) * (1 + SEARCH_TIE);
        works++;
        equal += as_fast;
        next = !next && !as_fast ? x : next;
    }
    if (works < 2)
        return NULL;
    const char *why = equal > 1 ? arena_printf(a, "the simplest of %d equally fast layouts, of %d that work",
                                               equal, works)
                                : arena_printf(a, "the fastest of %d layouts that work", works);
    return next ? arena_printf(a, "chosen: %s; the next is %s", why, next->verdict)
                : arena_printf(a, "chosen: %s", why);
}

/* ---- what does not work ---- */

/* The one that needs least among those whose escalation was not tried; NULL: all were. */
static const Evaluated *nearest(const Evaluated *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!x[i].less_evaluated)
            return &x[i];
    return NULL;
}

static const char *would_fit(Arena *a, const Found *f, const Evaluated *near)
{
    Searcher s = search_new(a, diags_new(a), plan_draft(f->plan)->program, f->counted);
    Candidate x = {.choice = near->choice};
    memcpy(x.value, near->value, sizeof x.value);
    const char *names = search_would_fit(&s, &x);
    search_forget(&s);
    return names;
}

static const char *too_large_text(Arena *a, const Found *f, const Evaluated *x, int n)
{
    const Evaluated *near = nearest(x, n);
    const char *layouts = arena_printf(a, "%d layout%s", n, n == 1 ? " does" : "s do");
    const char *names = near ? would_fit(a, f, near) : NULL;
    if (!near)
        return arena_printf(a, "%s not fit in memory; with settings that need less, %s above", layouts,
                            n == 1 ? "it is" : "they are");
    return names
               ? arena_printf(a, "%s not fit in memory; the nearest would with %s", layouts, names)
               : arena_printf(a,
                              "%s not fit in memory, nor would the nearest with any one setting left to auto",
                              layouts);
}

static const char *failure_text(Arena *a, const Found *f, int first, int n)
{
    const Evaluated *x = &f->evaluated[first];
    switch (kind_of(x)) {
    case TOO_LARGE: return too_large_text(a, f, x, n);
    case TOO_SLOW:
        return arena_printf(a, "%d layout%s not fit in memory, and would lose if %s did", n,
                            n == 1 ? " does" : "s do", n == 1 ? "it" : "they");
    case REFUSED:
    case WORKS: break;
    }
    return arena_printf(a, "%d layout%s not work", n, n == 1 ? " does" : "s do");
}

int search_failures(Arena *a, const Found *f, Failures **out)
{
    Vec(Failures) all = {0};
    for (int i = 0, n; i < f->evaluated_count; i += n) {
        const Evaluated *x = &f->evaluated[i];
        n = 1;
        while (i + n < f->evaluated_count && kind_of(&x[n]) == kind_of(x))
            n++;
        if (x->why_not)
            *vec_push(a, &all) = (Failures){i, n, failure_text(a, f, i, n)};
    }
    *out = all.at;
    return all.n;
}

/* ---- the table ---- */

/* The width of the longest text, but at least the default. */
static int column_width(Arena *a, const Found *f, int row)
{
    int width = settings[row]->column;
    for (int i = 0; i < f->evaluated_count; i++) {
        const char *text = settings[row]->text(a, &f->evaluated[i].choice);
        width = text && (int)strlen(text) > width ? (int)strlen(text) : width;
    }
    return width;
}

static void add_row(Arena *a, const Found *f, const Evaluated *x, const int *width, Text *out)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        if (f->column[i]) {
            const char *text = settings[i]->text(a, &x->choice);
            text_printf(out, "%-*s ", width[i], text ? text : "-");
        }
    if (x->why_not)
        text_printf(out, "- %s\n", x->why_not);
    else
        text_printf(out, "%13s %8.1f %% exposed %8.2f balance %9.3f GiB  %s\n", time_text(a, x->cost.step, 3),
                    100 * x->cost.exposed / x->cost.step, x->cost.imbalance,
                    (double)x->cost.memory / (1 << 30), x->verdict);
}

static void add_failures(Arena *a, const Found *f, const int *width, Text *out)
{
    Failures *group;
    const int n = search_failures(a, f, &group);
    for (int g = 0; g < n; g++) {
        text_printf(out, "%s:\n", group[g].what);
        for (int i = 0; i < group[g].n; i++)
            add_row(a, f, &f->evaluated[group[g].first + i], width, out);
    }
}

const char *search_table(Arena *a, const Program *p, const Found *f)
{
    Text t = {0};
    int width[SETTING_COUNT];
    const char *reason = search_reason(a, f);
    if (reason)
        text_printf(&t, "%s\n", reason);
    for (int i = 0; i < SETTING_COUNT; i++) {
        width[i] = f->column[i] ? column_width(a, f, i) : 0;
        if (f->column[i])
            text_printf(&t, "%-*s ", width[i], settings[i]->form->name);
    }
    text_printf(&t, "%13s\n", "step");
    for (int i = 0; i < f->evaluated_count && !f->evaluated[i].why_not; i++)
        add_row(a, f, &f->evaluated[i], width, &t);
    add_failures(a, f, width, &t);
    text_add(&t, f->remarks);
    text_add(&t, search_hints(a, p, f));
    return text_keep(a, &t);
}
