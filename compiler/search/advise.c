/* search/advise.c: if nothing fits: which settings of the layout would make it fit if left open, and which
 * host memory would. Each is tried alone on the candidate that came nearest, with a few candidates each. */
#include "search/internal.h"

#include <math.h>

static Searcher searcher_of(const Searcher *s, const Program *p)
{
    return (Searcher){.arena = s->arena,
                      .diags = diags_new(s->arena),
                      .program = p,
                      .effort = SEARCH_WHOLE,
                      .other = INFINITY,
                      .maps = s->maps};
}

/* Tries the n-th value of a setting, with escalation of the settings after it. */
static void try_from(Searcher *t, const Candidate *near, int setting, int n)
{
    Candidate x = search_untried(near);
    if (search_take(t, &x, setting, n) && !choice_why_not(t->arena, t->program, &x.choice))
        search_escalate(t, x);
}

/* The first that works; NULL: none. */
static const Candidate *first_that_works(const Searcher *t)
{
    for (int i = 0; i < t->all.n; i++)
        if (search_works(&t->all.at[i]) && !choice_why_not(t->arena, t->program, &t->all.at[i].choice))
            return &t->all.at[i];
    return NULL;
}

/* Leaves the setting to the search. Settings that escalate continue from their first value by themselves; of
 * other settings each value is tried. */
static bool would_fit(Searcher *s, const Candidate *near, int setting)
{
    Program *p = NEW(s->arena, Program);
    *p = *s->program;
    if (!setting_leave_open(setting, &p->layout))
        return false;
    Searcher t = searcher_of(s, p);
    const int values = settings[setting]->escalates ? 1 : search_values(&t, setting);
    for (int n = 0; n < values; n++)
        try_from(&t, near, setting, n);
    const bool fits = first_that_works(&t);
    search_forget(&t);
    return fits;
}

const Program *search_with_group(Arena *a, const Program *p, int group)
{
    Program *with = NEW(a, Program);
    *with = *p;
    with->layout.saving = saving_by(RECOMPUTE_FULL, 0);
    with->layout.saving.group = group;
    return with;
}

/* Whether it fits with groups of so many layers. Escalation starts over. */
static bool group_fits(Searcher *s, const Candidate *near, int group)
{
    Searcher t = searcher_of(s, search_with_group(s->arena, s->program, group));
    Candidate from = search_untried(near);
    for (int i = 0; i < SETTING_COUNT; i++)
        if (settings[i]->escalates)
            search_take(&t, &from, i, 0);
    try_from(&t, &from, SETTING_RECOMPUTE, 0);
    const bool fits = first_that_works(&t);
    search_forget(&t);
    return fits;
}

/* The smallest group that fits, since it repeats the least; 0: none fits. */
static int group_that_fits(Searcher *s, const Candidate *near)
{
    for (int group = 2; group < s->program->model.layers; group += 1 + group / 6)
        if (group_fits(s, near, group))
            return group;
    return 0;
}

/* The host memory needed by the first candidate that fits if a host has `memory` bytes; 0: none fits. */
static double needs_of_host(Searcher *s, const Candidate *near, double memory)
{
    Program *p = NEW(s->arena, Program);
    *p = *s->program;
    p->cluster.host_memory = memory;
    Searcher t = searcher_of(s, p);
    try_from(&t, near, SETTING_OFFLOAD, 0);
    const Candidate *x = first_that_works(&t);
    const double needs = x ? x->host : 0;
    search_forget(&t);
    return needs;
}

/* The smallest host memory that fits, in whole GiB; 0: more of it does not help. */
static double host_that_fits(Searcher *s, const Candidate *near)
{
    const double any = 1e16, gib = 1 << 30;
    if (!s->program->layout.offload.is_auto && !near->choice.offload_values && !near->choice.offload &&
        !near->choice.optimizer)
        return 0;
    double none = floor(s->program->cluster.host_memory / gib),
           least = ceil(needs_of_host(s, near, any) / gib);
    if (least <= none || !needs_of_host(s, near, least * gib))
        return 0;
    while (least - none > 1) { /* with less, fewer layers may offload */
        const double half = floor((least + none) / 2);
        if (needs_of_host(s, near, half * gib))
            least = half;
        else
            none = half;
    }
    return least;
}

/* The setting as written, with a remark if the cluster file gives no host memory. */
static const char *host_text(Searcher *s, double gib)
{
    const Cluster *c = &s->program->cluster;
    const char *text = arena_printf(s->arena, "`host { memory %.0f GiB; }`", gib);
    return c->host_assumed ? arena_printf(s->arena, "%s (the cluster does not say; %s is assumed)", text,
                                          bytes_text(s->arena, c->host_memory, 0))
                           : text;
}

/* "`offload auto`": the value of a setting that would fit; NULL: none. */
static const char *spared_by(Searcher *s, const Candidate *near, int setting)
{
    const Saving given = s->program->layout.saving;
    if (s->program->infer.lengths && settings[setting]->trains)
        return NULL;
    if (would_fit(s, near, setting))
        return arena_printf(s->arena, "`%s auto`", settings[setting]->form->name);
    const bool groups = setting == SETTING_RECOMPUTE && given.upper && saving_group(given) == 1;
    const int group = groups ? group_that_fits(s, near) : 0;
    return group ? arena_printf(s->arena, "`recompute full(%d)`", group) : NULL;
}

const char *search_would_fit(Searcher *s, const Candidate *near)
{
    Vec(const char *) names = {0};
    for (int i = 0; i < SETTING_COUNT; i++) {
        const char *name = settings[i]->spares ? spared_by(s, near, i) : NULL;
        if (name)
            *vec_push(s->arena, &names) = name;
    }
    const double gib = host_that_fits(s, near);
    if (gib > 0)
        *vec_push(s->arena, &names) = host_text(s, gib);
    const char *all = names.n ? "" : NULL;
    for (int i = 0; i < names.n; i++)
        all = arena_printf(s->arena, "%s%s%s", all, list_separator(i, names.n, " or "), names.at[i]);
    return all;
}

void search_advise(Searcher *s, const Candidate *near)
{
    if (!s->advises)
        return;
    const char *names = search_would_fit(s, near);
    s->group = s->program->layout.saving.upper ? 0 : group_that_fits(s, near);
    if (names)
        diag_note(s->diags, (Span){0}, "%s would fit", names);
}
