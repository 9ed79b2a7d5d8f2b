/* search/alternatives.c: what another choice than the search's needs and takes. It goes through the same
 * passes; nothing is estimated. */
#include "search/search.h"

#include <math.h>
#include <string.h>

const char *setting_text(Arena *a, int setting, const Choice *c)
{
    const char *text = settings[setting]->text(a, c);
    return text ? arena_printf(a, "%s %s", settings[setting]->form->name, text)
                : arena_printf(a, "no %s", settings[setting]->form->name);
}

Evaluation evaluate_choice(Arena *a, const Program *p, const Choice *c, PairCounts **counts)
{
    Evaluation j = {.why_not = choice_why_not(a, p, c)};
    Diags *d = diags_new(a);
    if (j.why_not)
        return j;
    j.draft = draft_make(a, d, p, c);
    j.draft.counts = counts ? counts : j.draft.counts;
    j.fits = j.draft.attention.n && memory_fits(&j.draft);
    if (!j.draft.attention.n || (!verify(a, d, &j.draft) && j.fits)) {
        j.why_not = diags_first(d);
        return j;
    }
    j.cost = cost_draft(a, &j.draft, INFINITY);
    if (!isfinite(j.cost.step))
        j.why_not = "its transfers deadlock";
    return j;
}

/* In an arena of its own, but for what stays. */
static Alternative alternative_of(Arena *a, const Program *p, const Draft *d, const Choice *c, int setting)
{
    Arena *own = arena_new();
    const Evaluation j = evaluate_choice(own, p, c, d->counts);
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

/* All choices here share the partition of d, and so its counts. */
int alternatives_of_setting(Arena *a, const Draft *d, int setting, Alternative **out)
{
    Vec(Alternative) all = {0};
    Choice c = d->choice;
    c.spared = c.offload_values = 0; /* its saving and offload say what layers save, and where */
    const char *now = setting_text(a, setting, &c);
    Choice x = c;
    for (int n = 0; settings[setting]->other && settings[setting]->other(d->program, &x, n); n++, x = c)
        if (strcmp(setting_text(a, setting, &x), now) != 0) {
            const Alternative o = alternative_of(a, d->program, d, &x, setting);
            *vec_push(a, &all) = o;
        }
    *out = all.at;
    return all.n;
}

int alternatives_of(Arena *a, const Draft *d, Alternative **out)
{
    Vec(Alternative) all = {0};
    for (int setting = 0; setting < SETTING_COUNT; setting++) {
        Alternative *of;
        const int n = alternatives_of_setting(a, d, setting, &of);
        for (int i = 0; i < n; i++)
            *vec_push(a, &all) = of[i];
    }
    *out = all.at;
    return all.n;
}
