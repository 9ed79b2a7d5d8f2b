/* search/hints.c: which settings fixed by the layout would save time with another value. Each is tried
 * alone; `tensor` by searches of its own. Printed times were compiled and simulated. */
#include "search/internal.h"

#include <math.h>
#include <string.h>

#define WORTH 5e-3 /* fraction of a step that is worth a line */

/* The fastest step with another value of a setting, and that value. */
typedef struct Gain {
    double step;
    const char *what; /* as in the layout; NULL: without the setting */
} Gain;

/* Whether the layout as written leaves no choice. */
static bool is_fixed(int setting, const Program *p)
{
    Layout open = p->layout;
    if (setting == SETTING_SCHEDULE)
        return open.schedule && !open.of_mask;
    return settings[setting]->form->at || settings[setting]->leave_open ? setting_leave_open(setting, &open)
                                                                        : false;
}

static void keep_least(Gain *g, double step, const char *what)
{
    if (step < g->step)
        *g = (Gain){step, what};
}

/* Takes sizes for another schedule. Schedules with levels, which have many, are left out. */
static bool has_sizes(const Searcher *s, Candidate *x, int setting)
{
    return setting != SETTING_SCHEDULE || (coords_asked(s->program, x->choice.schedule) &&
                                           search_take(s, x, SETTING_CONTEXT, 0) && x->choice.coords > 0);
}

/* Tries a setting whose other values the search knows. */
static void try_values(Arena *a, const Found *f, int setting, Gain *g)
{
    const Draft *d = plan_draft(f->plan);
    Program *p = NEW(a, Program);
    *p = *d->program;
    if (setting == SETTING_SCHEDULE)
        p->layout.schedule = NULL;
    else
        setting_leave_open(setting, &p->layout);
    Searcher s = {.arena = a, .diags = diags_new(a), .program = p, .effort = SEARCH_WHOLE, .other = INFINITY};
    s.maps = search_maps(a, p);
    for (int n = 0; n < search_values(&s, setting); n++) {
        Candidate x = {.choice = d->choice};
        if (!search_take(&s, &x, setting, n) || !has_sizes(&s, &x, setting) ||
            choice_why_not(a, p, &x.choice))
            continue;
        search_try(&s, &x);
        if (search_works(&x))
            keep_least(g, x.cost.step, settings[setting]->text(a, &x.choice));
    }
    search_forget(&s);
}

static void try_alternatives(Arena *a, const Found *f, int setting, Gain *g)
{
    Alternative *other;
    const int n = alternatives_of_setting(a, plan_draft(f->plan), setting, &other);
    for (int i = 0; i < n; i++)
        if (other[i].fits && !other[i].why_not)
            keep_least(g, other[i].step, other[i].value);
}

static double gain_of(const Found *f, double step) { return 1 - step / f->cost.step; }

static void hint_setting(Arena *a, const Program *p, const Found *f, int setting, Text *out)
{
    Gain g = {.step = INFINITY};
    const SettingRecord *s = settings[setting];
    const bool values = setting == SETTING_SCHEDULE || setting == SETTING_PARTITION;
    if ((!values && !s->other) || !is_fixed(setting, p))
        return;
    if (values)
        try_values(a, f, setting, &g);
    else
        try_alternatives(a, f, setting, &g);
    const char *now = s->text(a, &plan_draft(f->plan)->choice);
    if (gain_of(f, g.step) >= WORTH)
        text_printf(out, "`%s` is %s; %s takes %.1f %% less time\n", s->form->name, now ? now : "not used",
                    g.what ? arena_printf(a, "`%s %s`", s->form->name, g.what) : "without it a step",
                    100 * gain_of(f, g.step));
}

/* Hints at offloading where the layout forbids it and not everything could be saved. */
static void hint_offload(Arena *a, const Found *f, Text *out)
{
    const Draft *d = plan_draft(f->plan);
    Program with = *d->program;
    const char *saved = settings[SETTING_RECOMPUTE]->text(a, &d->choice);
    if (!d->choice.on_device || (saved && strcmp(saved, "none") == 0) ||
        !setting_leave_open(SETTING_OFFLOAD, &with.layout))
        return;
    const Found other = search_with(a, diags_new(a), &with, SEARCH_CUT, INFINITY);
    if (other.plan && gain_of(f, other.cost.step) >= WORTH)
        text_printf(out, "`offload` is none; `offload auto` finds %.1f %% less time\n",
                    100 * gain_of(f, other.cost.step));
}

/* Searches anew with `tensor` open. */
static void hint_tensor(Arena *a, const Program *written, const Found *f, Text *out)
{
    enum { MOST_RANKS = 64 };
    const Program *p = plan_draft(f->plan)->program;
    Program open = *p;
    if (p->cluster.world > MOST_RANKS || written->layout.tensor.is_auto)
        return;
    setting_leave_open(SETTING_TENSOR, &open.layout);
    const Found other = search_with(a, diags_new(a), &open, SEARCH_USUAL, f->cost.step * (1 - WORTH));
    const Program *with = other.plan ? plan_draft(other.plan)->program : p;
    const double step = other.cost.step * (double)p->train.batch / (double)with->train.batch;
    if (with != p && gain_of(f, step) >= WORTH)
        text_printf(out, "`tensor` is %d; `tensor auto` finds %.1f %% less time, with `tensor %d`\n",
                    program_tensor(p), 100 * gain_of(f, step), program_tensor(with));
}

const char *search_hints(Arena *a, const Program *p, const Found *f)
{
    Text t = {0};
    text_add(&t, "");
    for (int i = 0; i < SETTING_COUNT; i++)
        hint_setting(a, p, f, i, &t);
    hint_offload(a, f, &t);
    hint_tensor(a, p, f, &t);
    return text_keep(a, &t);
}
