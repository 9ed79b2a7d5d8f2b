/* search/advise.c: what a layout should leave to the search. Each setting that it gives is opened alone. If
 * nothing fits: which would make it fit, tried on the candidate that came nearest with a few candidates
 * each, and which host memory would. With a plan: which would save time, searched with what escalates;
 * printed times were compiled and simulated. */
#include "search/internal.h"

#include <math.h>
#include <string.h>

/* NULL: the program's layout leaves the setting open already, or cannot. */
static const Program *opened(Arena *a, const Program *p, int setting)
{
    Program *open = memcpy(NEW(a, Program), p, sizeof *p);
    return setting_leave_open(setting, &open->layout) ? open : NULL;
}

/* ---- what would fit ---- */

static void take_first_values(const Searcher *t, Candidate *x)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        if (settings[i]->escalates)
            search_take(t, x, i, 0);
}

/* The first that fits of a candidate in another program, which leaves a setting open, with escalation of the
 * settings after it; anew: of all. A setting that escalates continues from its first value by itself; of
 * others each value is tried. */
static Candidate first_that_fits(Searcher *s, const Program *p, const Candidate *near, int setting, bool anew)
{
    Searcher t = search_new(s->arena, diags_new(s->arena), p, s->counted);
    const int values = settings[setting]->escalates ? 1 : search_values(&t, setting);
    Candidate from = search_untried(near), found = {0};
    if (anew)
        take_first_values(&t, &from);
    for (int n = 0, i = 0; n < values && !search_works(&found); n++) {
        Candidate x = from;
        if (search_take(&t, &x, setting, n) && !choice_why_not(t.arena, p, &x.choice))
            search_escalate(&t, x);
        for (; i < t.all.n && !search_works(&found); i++)
            if (search_works(&t.all.at[i]) && !choice_why_not(t.arena, p, &t.all.at[i].choice))
                found = t.all.at[i];
    }
    search_forget(&t);
    return found;
}

static bool would_fit(Searcher *s, const Candidate *near, int setting)
{
    const Program *open = opened(s->arena, s->program, setting);
    const Candidate found = open ? first_that_fits(s, open, near, setting, false) : (Candidate){0};
    return search_works(&found);
}

const Program *search_with_group(Arena *a, const Program *p, int group)
{
    Program *with = memcpy(NEW(a, Program), p, sizeof *p);
    with->layout.saving = saving_by(RECOMPUTE_FULL, 0);
    with->layout.saving.group = group;
    return with;
}

/* The smallest group of layers that fits, since it repeats the least; 0: none fits. */
static int group_that_fits(Searcher *s, const Candidate *near)
{
    for (int group = 2; group < s->program->model.layers; group += 1 + group / 6) {
        const Program *with = search_with_group(s->arena, s->program, group);
        const Candidate found = first_that_fits(s, with, near, SETTING_RECOMPUTE, true);
        if (search_works(&found))
            return group;
    }
    return 0;
}

/* The host memory needed by the first candidate that fits if a host has `memory` bytes; 0: none fits. */
static double needs_of_host(Searcher *s, const Candidate *near, double memory)
{
    Program *p = memcpy(NEW(s->arena, Program), s->program, sizeof *p);
    p->cluster.host_memory = memory;
    return first_that_fits(s, p, near, SETTING_OFFLOAD, false).host;
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
    if (s->effort != SEARCH_USUAL || isfinite(s->other))
        return;
    const char *names = search_would_fit(s, near);
    s->group = s->program->layout.saving.upper ? 0 : group_that_fits(s, near);
    if (names)
        diag_note(s->diags, (Span){0}, "%s would fit", names);
}

/* ---- what would save time ---- */

#define WORTH 5e-3 /* fraction of a step that is worth a line */

/* Settings without a line: numbers that follow from each other, gradients' rounding, and speeds that only the
 * user knows. */
static const unsigned unhinted = 1u << SETTING_DATA | 1u << SETTING_CONTEXT | 1u << SETTING_HEADS |
                                 1u << SETTING_GRADIENTS | 1u << SETTING_SHARES;

/* `tensor` changes what other settings mean, so all are searched; the others only with the plan's values. */
static Found search_opened(Arena *a, const Program *open, const Found *f, int setting)
{
    const double most = sequence_seconds(plan_draft(f->plan)->program, f->cost.step) * (1 - WORTH);
    if (setting == SETTING_TENSOR)
        return search_counted(a, diags_new(a), open, SEARCH_USUAL, most, f->counted);
    return search_near(a, open, f, setting, most);
}

static void hint_setting(Arena *a, const Program *written, const Found *f, int setting, Text *out)
{
    enum { MOST_RANKS = 64 }; /* all numbers of tensor ranks take minutes on more */
    const SettingRecord *s = settings[setting];
    const Program *p = plan_draft(f->plan)->program, *open = opened(a, p, setting);
    if ((unhinted >> setting & 1) || (setting == SETTING_TENSOR && p->cluster.world > MOST_RANKS) || !open ||
        !opened(a, written, setting))
        return;
    const Found other = search_opened(a, open, f, setting);
    if (!other.plan)
        return;
    const Draft *d = plan_draft(other.plan);
    const char *now = s->text(a, &plan_draft(f->plan)->choice), *value = s->text(a, &d->choice);
    const double step = other.cost.step * (double)p->train.batch / (double)d->program->train.batch;
    if ((now && value && strcmp(now, value) == 0) || step > f->cost.step * (1 - WORTH))
        return;
    text_printf(out, "`%s` is %s; %s takes %.1f %% less time\n", s->form->name, now ? now : "not used",
                value ? arena_printf(a, "`%s %s`", s->form->name, value) : "without it a step",
                100 * (1 - step / f->cost.step));
}

const char *search_hints(Arena *a, const Program *p, const Found *f)
{
    Text t = {0};
    text_add(&t, "");
    for (int i = 0; i < SETTING_COUNT; i++)
        hint_setting(a, p, f, i, &t);
    return text_keep(a, &t);
}
