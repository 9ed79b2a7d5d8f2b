/* settings/context.c: `context` and `heads`: how the ranks of a group share a sequence. */
#include "layout/layout.h"

/* Also if only one direction exchanges. */
int choice_heads(const Choice *c)
{
    const int x = c->schedule->exchanged;
    return x < 0 || !c->coords ? 1 : c->size[x];
}

static int context_of(const Choice *c)
{
    return c->ranks / choice_heads(c);
}

/* If both are given, the larger one reports. */
static const char *axis_why_not(Arena *a, const char *name, const Setting *asked, const Setting *other,
                                int value)
{
    const bool differs = !asked->is_auto && asked->value != value && (asked->value > value || other->is_auto);
    return differs ? arena_printf(a, "the schedule cannot use `%s %lld` of the layout", name,
                                  (long long)asked->value)
                   : NULL;
}

/* Takes sizes for the schedule's coordinates. If there are none, why_not reports it, but not for a schedule
 * with levels that the layout does not name. */
static bool take_context(const Program *p, Choice *c, int n)
{
    const bool asked = coords_asked(p, c->schedule);
    c->coords = 0;
    return coords_take(p, c, n) || (n == 0 && asked);
}

static const char *context_why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *axis = axis_why_not(a, "context", &p->layout.context, &p->layout.heads, context_of(c));
    return axis ? axis : coords_why_not(a, p, c);
}

static const char *heads_why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *axis = axis_why_not(a, "heads", &p->layout.heads, &p->layout.context, choice_heads(c));
    const int heads = shape_of(p, c).rank.heads;
    return axis || choice_heads(c) <= heads
               ? axis
               : arena_printf(a, "%d ranks cannot share %d head%s; use at most %d rank%s or a ring schedule",
                              choice_heads(c), heads, plural(heads), heads, plural(heads));
}

/* "16 x 4": the sizes of the coordinates except the exchanged one, which `heads` shows. */
static const char *context_text(Arena *a, const Choice *c)
{
    const char *text = NULL;
    for (int i = 0; i < c->coords && layers_share_sizes(c); i++)
        if (i != c->schedule->exchanged)
            text = text ? arena_printf(a, "%s x %d", text, c->size[i]) : arena_printf(a, "%d", c->size[i]);
    return text ? text : arena_printf(a, "%d", context_of(c));
}

static const char *heads_text(Arena *a, const Choice *c)
{
    return arena_printf(a, "%d", choice_heads(c));
}

const SettingRecord setting_context = {
    .form = &(const SettingForm){.name = "context", .at = offsetof(Layout, context)},
    .column = 9,
    .if_several = true,
    .count = coords_most,
    .take = take_context,
    .why_not = context_why_not,
    .text = context_text,
};

const SettingRecord setting_heads = {
    .form = &(const SettingForm){.name = "heads", .at = offsetof(Layout, heads)},
    .why_not = heads_why_not,
    .text = heads_text,
};
