/* search/refuse.c: reports why no candidate works: what does not fit, the proofs' own errors, and other
 * reasons with their schedules. */
#include "search/internal.h"

#include <string.h>

/* Reports what does not fit: the nearest candidate, and number and needs of the others. */
static void note_too_large(Searcher *s)
{
    Candidate *near = NULL;
    size_t next = SIZE_MAX, most = 0;
    int others = -1;
    for (int i = 0; i < s->all.n; i++) {
        Candidate *x = &s->all.at[i];
        if (!x->too_large || x->less_evaluated)
            continue;
        next = near && x->needs >= near->needs && x->needs < next ? x->needs : next;
        if (!near || x->needs < near->needs) {
            next = near ? near->needs : next;
            near = x;
        }
        most = x->needs > most ? x->needs : most;
        others++;
    }
    if (!near)
        return;
    search_evaluate(s, s->arena, near, diags_new(s->arena)); /* with its own needs, not the smallest */
    diag_note(s->diags, (Span){0}, "%s: %s", choice_text(s->arena, &near->choice), near->why_not);
    if (others > 0)
        diag_note(s->diags, (Span){0}, "this was the smallest of %d candidates; the other%s %s", others + 1,
                  others == 1 ? " needs at least" : "s need at least",
                  next == most ? bytes_text(s->arena, (double)most, 2)
                               : arena_printf(s->arena, "%s to %s", bytes_text(s->arena, (double)next, 2),
                                              bytes_text(s->arena, (double)most, 2)));
    if (s->pruned.unfit)
        diag_note(s->diags, (Span){0},
                  "%d more candidates were not tried: they do not fit even without communication buffers",
                  s->pruned.unfit);
    search_advise(s, near);
    diag_note(s->diags, (Span){0}, "to reduce memory, use more context ranks or a shorter sequence");
}

static bool has_reason(const Candidate *x, const Candidate *first)
{
    return !x->too_large && x->choice.data == first->choice.data && strcmp(x->why_not, first->why_not) == 0;
}

/* Reports other reasons, each once with its schedules. */
static void note_reason(Searcher *s, int first)
{
    const char *reason = s->all.at[first].why_not, *names = "", *last = "";
    if (s->all.at[first].too_large)
        return;
    for (int i = 0; i < s->all.n; i++) {
        const char *name = s->all.at[i].choice.schedule->name;
        if (!has_reason(&s->all.at[i], &s->all.at[first]) || strcmp(name, last) == 0)
            continue;
        if (i < first)
            return;
        names = arena_printf(s->arena, "%s%s%s", names, *names ? ", " : "", name);
        last = name;
    }
    diag_note(s->diags, (Span){0}, "%s: %s", names, reason);
}

/* If the layout names a schedule that a proof refuses in every candidate, reports the proof's own errors at
 * its lines. */
static bool report_schedule(Searcher *s)
{
    Candidate *wrong = NULL;
    for (int i = 0; i < s->all.n; i++) {
        Candidate *x = &s->all.at[i];
        if (x->too_large)
            return false;
        wrong = !wrong && x->evaluated ? x : wrong;
    }
    if (s->program->layout.schedule && wrong)
        search_evaluate(s, s->arena, wrong, s->diags);
    return diags_errors(s->diags) > 0;
}

/* A single candidate's errors are the user's: those of its last form. */
static void report_single(Searcher *s)
{
    Candidate *last = s->single ? &s->all.at[s->all.n - 1] : NULL;
    if (!last || !last->evaluated)
        return;
    search_evaluate(s, s->arena, last, s->diags);
    if (s->all.n > 1)
        diag_note(s->diags, (Span){0}, "this was the smallest candidate that was tried: %s",
                  choice_text(s->arena, &last->choice));
    if (last->too_large)
        search_advise(s, last);
}

/* The one written setting that refuses candidates, with a refused candidate. Others may be refused by
 * settings that are open, but none by memory, a proof or a second written setting. */
typedef struct Blamed {
    int setting;
    const Candidate *by;
} Blamed;

static Blamed find_blamed(const Searcher *s)
{
    Blamed found = {SETTING_COUNT, NULL};
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *x = &s->all.at[i];
        const int setting = x->evaluated ? SETTING_COUNT
                                         : choice_refused_by(s->arena, s->program, &x->choice);
        if (setting == SETTING_COUNT ||
            (found.by && setting != found.setting && setting_span(setting, &s->program->layout).src))
            return (Blamed){SETTING_COUNT, NULL};
        if (setting_span(setting, &s->program->layout).src)
            found = (Blamed){setting, x};
    }
    return found;
}

/* Whether every candidate is refused for the blamed reason, or by an open setting. */
static bool is_only_reason(const Searcher *s, Blamed blamed)
{
    bool only = blamed.by;
    for (int i = 0; i < s->all.n && only; i++) {
        const Candidate *x = &s->all.at[i];
        only = strcmp(x->why_not, blamed.by->why_not) == 0 ||
               choice_refused_by(s->arena, s->program, &x->choice) != blamed.setting;
    }
    return only;
}

void search_refuse(Searcher *s)
{
    const Layout *l = &s->program->layout;
    report_single(s);
    if (diags_errors(s->diags) > 0 || report_schedule(s))
        return;
    const Blamed blamed = find_blamed(s);
    if (is_only_reason(s, blamed)) {
        diag_error(s->diags, setting_span(blamed.setting, l), "%s", blamed.by->why_not);
        return;
    }
    /* other reasons: those of the largest groups */
    const int data = s->data.at[s->data.n - 1].choice.data;
    Span at = l->span.src ? l->span : s->program->sequence_span;
    at = l->schedule ? l->schedule_span : at;
    at = blamed.by ? setting_span(blamed.setting, l) : at;
    diag_error(s->diags, at, "no layout works for %d rank%s and %lld tokens",
               s->program->cluster.world / data, plural(s->program->cluster.world / data),
               (long long)s->program->sequence);
    note_too_large(s);
    for (int i = 0; i < s->all.n; i++)
        if (s->all.at[i].choice.data == data)
            note_reason(s, i);
}
