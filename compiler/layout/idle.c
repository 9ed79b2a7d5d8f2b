/* layout/idle.c: warns about settings that the layout gives but that have no effect in the chosen plan.
 *
 * A setting without effect is never an error and never silent; errors are for what cannot be done. Values
 * that are true anyway (`overlap no`, `head chunks 1`) and values that the search chose are not reported. */
#include "layout/layout.h"

#include <string.h>

const char idle_on_one_rank[] = "each sequence is on one rank; remove it";

/* The setting as written, without its semicolon. */
static const char *written_text(Arena *a, Span at)
{
    const char *text = at.src->text + at.begin;
    size_t n = at.end - at.begin;
    while (n > 0 && strchr("; \t\r\n", text[n - 1]))
        n--;
    return arena_copy(a, text, n);
}

static void warn_idle(Arena *a, Diags *d, const Program *p, const Choice *c, const IdleSetting *of)
{
    const Setting *s = setting_at(&p->layout, of->at);
    const char *why = s->given && !s->is_auto && s->span.src ? of->why(a, p, c) : NULL;
    if (why)
        diag_warn(d, WARN_UNUSED_SETTING, s->span, "`%s` has no effect: %s", written_text(a, s->span), why);
}

void layout_warn_idle(Diags *d, const Program *p, const Choice *c)
{
    Arena *a = arena_new();
    for (int i = 0; i < SETTING_COUNT; i++)
        for (const IdleSetting *of = settings[i]->idle; of->why; of++)
            warn_idle(a, d, p, c, of);
    arena_free(a);
}
