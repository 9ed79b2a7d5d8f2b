/* search/advise.c: where nothing fits, which settings that the layout gives would make it fit if they were
 * left to the search. Each is tried alone, with the candidate that came nearest: a few candidates for
 * each. */
#include "search/internal.h"

#include <math.h>
#include <string.h>

/* Left to the search. Settings that escalate go on from their first value by themselves; of
 * others each value is tried. */
static bool would_fit(Searcher *s, const Candidate *near, int setting)
{
    Program *p = NEW(s->arena, Program);
    *p = *s->program;
    if (!setting_leave_open(setting, &p->layout))
        return false;
    Searcher t = {.arena = s->arena,
                  .diags = diags_new(s->arena),
                  .program = p,
                  .effort = SEARCH_WHOLE,
                  .other = INFINITY,
                  .maps = s->maps};
    bool fits = false;
    const int values = settings[setting]->escalates ? 1 : search_values(&t, setting);
    for (int n = 0; n < values; n++) {
        Candidate x = {.choice = near->choice};
        memcpy(x.value, near->value, sizeof x.value);
        if (search_take(&t, &x, setting, n) && !choice_why_not(s->arena, p, &x.choice))
            search_escalate(&t, x);
    }
    for (int i = 0; i < t.all.n; i++)
        fits |= search_works(&t.all.at[i]) && !choice_why_not(s->arena, p, &t.all.at[i].choice);
    search_forget(&t);
    return fits;
}

void search_advise(Searcher *s, const Candidate *near)
{
    const char *names = "", *last = NULL;
    for (int i = 0; i < SETTING_COUNT; i++) {
        if (!settings[i]->spares || !would_fit(s, near, i))
            continue;
        names = last ? arena_printf(s->arena, "%s%s`%s auto`", names, *names ? ", " : "", last) : names;
        last = settings[i]->form->name;
    }
    if (last)
        diag_note(s->diags, (Span){0}, "%s%s`%s auto` would fit", names, *names ? " or " : "", last);
}
