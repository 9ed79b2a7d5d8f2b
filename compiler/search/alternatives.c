/* search/alternatives.c: memory and time of other choices than the search's. They go through the same
 * passes; nothing is estimated. */
#include "search/internal.h"

#include <math.h>
#include <string.h>

const char *setting_text(Arena *a, int setting, const Choice *c)
{
    const char *text = settings[setting]->text(a, c);
    return text ? arena_printf(a, "%s %s", settings[setting]->form->name, text)
                : arena_printf(a, "no %s", settings[setting]->form->name);
}

Evaluation search_evaluation(Searcher *s, Arena *a, const Choice *c)
{
    Evaluation j = {.why_not = choice_why_not(a, s->program, c)};
    Diags *d = diags_new(a);
    if (j.why_not)
        return j;
    j.draft = search_draft(s, a, d, c, true);
    j.fits = j.draft.attention.n && memory_fits(&j.draft);
    const bool holds = j.draft.attention.n && (!j.fits || (search_attention_holds(s, a, d, &j.draft) &&
                                                           verify_rest(a, d, &j.draft)));
    if (!holds) {
        j.why_not = diags_first(d);
        return j;
    }
    Draft t = j.draft;
    t.attended = search_attended(s, &t);
    j.cost = cost_draft(a, &t, INFINITY);
    if (j.fits && search_change_ranges(s, a, &j.draft, &j.cost, true) &&
        !(search_attention_holds(s, a, d, &j.draft) && verify_rest(a, d, &j.draft)))
        j.why_not = diags_first(d);
    if (!isfinite(j.cost.step))
        j.why_not = "its transfers deadlock";
    return j;
}

Evaluation evaluate_choice(Arena *a, const Program *p, const Choice *c)
{
    Searcher s = search_new(a, diags_new(a), p, counted_new(a, p));
    const Evaluation j = search_evaluation(&s, a, c);
    search_forget(&s);
    return j;
}

/* Evaluates the choice in an arena of its own; only the result is kept. */
static Alternative alternative_of(Searcher *s, Arena *a, const Choice *c, int setting)
{
    Arena *own = arena_new();
    Evaluation j = search_evaluation(s, own, c);
    Diags *d = diags_new(own);
    if (j.fits && !j.why_not && !verify_step(own, d, &j.draft))
        j.why_not = diags_first(d);
    Alternative o = {.setting = setting,
                     .what = setting_text(a, setting, c),
                     .value = settings[setting]->text(a, c),
                     .fits = j.fits,
                     .step = j.cost.step};
    o.needs = j.draft.memory.total + j.draft.memory.beside;
    o.why_not = j.why_not ? arena_printf(a, "%s", j.why_not) : NULL;
    arena_free(own);
    return o;
}

typedef Vec(Alternative) Alternatives;

static void add_alternatives(Searcher *s, Arena *a, const Draft *d, int setting, Alternatives *all)
{
    Choice c = d->choice;
    if (settings[setting]->trains && d->program->infer.lengths)
        return;
    c.spared = c.offload_values = 0; /* saving and offload already say what layers save, and where */
    const char *now = setting_text(a, setting, &c);
    Choice x = c;
    for (int n = 0; settings[setting]->other && settings[setting]->other(d->program, &x, n); n++, x = c)
        if (strcmp(setting_text(a, setting, &x), now) != 0) {
            const Alternative o = alternative_of(s, a, &x, setting);
            *vec_push(a, all) = o;
        }
}

/* All choices here share the partition of d, and so its counts; most share its attention. */
int alternatives_of(Arena *a, const Draft *d, Alternative **out)
{
    Alternatives all = {0};
    Arena *common = arena_new();
    Searcher s = search_new(common, diags_new(common), d->program, counted_new(common, d->program));
    *vec_push(common, &s.counted->parted) = (Parted){d->choice, d->partition, d->counts};
    for (int setting = 0; setting < SETTING_COUNT; setting++)
        add_alternatives(&s, a, d, setting, &all);
    search_forget(&s);
    arena_free(common);
    *out = all.at;
    return all.n;
}
