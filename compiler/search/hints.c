/* search/hints.c: which settings fixed by the layout would save time if they were left to the search: each is
 * opened alone, and searched with what escalates. Printed times were compiled and simulated. */
#include "search/internal.h"

#include <math.h>
#include <string.h>

#define WORTH 5e-3 /* fraction of a step that is worth a line */

/* Settings without a line: numbers that follow from each other, gradients' rounding, and speeds that only the
 * user knows. */
static const unsigned unhinted = 1u << SETTING_DATA | 1u << SETTING_CONTEXT | 1u << SETTING_HEADS |
                                 1u << SETTING_GRADIENTS | 1u << SETTING_SHARES;

/* Opens the setting. Returns false if the layout as written leaves it to the search. */
static bool opens(int setting, const Program *written, Program *open)
{
    Layout l = written->layout;
    if (setting == SETTING_SCHEDULE) {
        open->layout.schedule = NULL;
        return l.schedule && !l.of_mask;
    }
    const bool can = settings[setting]->form->at || settings[setting]->leave_open;
    return can && setting_leave_open(setting, &l) && setting_leave_open(setting, &open->layout);
}

/* `tensor` changes what other settings mean, so all are searched; the others only with the plan's values. */
static Found search_opened(Arena *a, const Program *open, const Found *f, int setting)
{
    const double most = f->cost.step * (1 - WORTH);
    if (setting == SETTING_TENSOR)
        return search_with(a, diags_new(a), open, SEARCH_USUAL, most);
    return search_near(a, open, &f->evaluated[0], setting, most);
}

static void hint_setting(Arena *a, const Program *written, const Found *f, int setting, Text *out)
{
    enum { MOST_RANKS = 64 }; /* all numbers of tensor ranks take minutes on more */
    const SettingRecord *s = settings[setting];
    const Program *p = plan_draft(f->plan)->program;
    Program *open = NEW(a, Program);
    *open = *p;
    if ((unhinted >> setting & 1) || (setting == SETTING_TENSOR && p->cluster.world > MOST_RANKS) ||
        !opens(setting, written, open))
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
