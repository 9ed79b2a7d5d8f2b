/* settings/travel.c: `travel`: which chunks move in backward. */
#include "layout/layout.h"

/* One backward serves both. */
static bool has_one_backward(const Choice *c)
{
    return c->schedule->backward[TRAVEL_KEYS] == c->schedule->backward[TRAVEL_QUERIES];
}

static int count(const Program *p)
{
    (void)p;
    return TRAVELS;
}

/* Left open, what the schedule has is tried; once where it is the same text, or one rank sends nothing. */
static bool take(const Program *p, Choice *c, int n)
{
    const bool same = c->schedule->backward[TRAVEL_KEYS] && (c->ranks == 1 || has_one_backward(c));
    const Setting *given = &p->layout.travel;
    c->travel = (Travel)n;
    /* nothing travels: its other backward will do */
    if (!given->is_auto && c->ranks == 1 && !c->schedule->backward[n])
        c->travel = (Travel)!n;
    return given->is_auto ? c->schedule->backward[n] && !(same && n) : given->value == n;
}

static bool other(const Program *p, Choice *c, int n)
{
    (void)p;
    c->travel = (Travel)n;
    return n < TRAVELS && !choice_exchanges(c) && !c->of_mask;
}

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    (void)p;
    return c->of_mask || c->schedule->backward[c->travel]
               ? NULL
               : arena_printf(a, "the schedule has no `backward %s`; use `travel %s`",
                              travel_names[c->travel], travel_names[!c->travel]);
}

static const char *travel_name(Arena *a, const Choice *c)
{
    (void)a;
    return travel_names[c->travel];
}

static const char *text(Arena *a, const Choice *c)
{
    if (c->of_mask)
        return by_mask_text(a, c, travel_name);
    return has_one_backward(c) || c->ranks == 1 ? NULL : travel_names[c->travel];
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)p;
    if (c->ranks == 1)
        return idle_on_one_rank;
    for (int m = 0; m < c->masks || m == 0; m++) {
        const Choice x = c->masks ? choice_of_mask(c, m) : *c;
        if (!has_one_backward(&x))
            return NULL;
    }
    return arena_printf(a, "schedule '%s' has the same backward for keys and queries; remove it",
                        c->schedule->name);
}

const SettingRecord setting_travel = {
    .form = &(const SettingForm){.name = "travel", .at = offsetof(Layout, travel)},
    .column = 8,
    .count = count,
    .take = take,
    .other = other,
    .why_not = why_not,
    .text = text,
    .idle = {{offsetof(Layout, travel), idle}},
};
