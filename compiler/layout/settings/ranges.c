/* settings/ranges.c: `ranges`: whether transfers of keys carry ranges of tiles. If the layout does not say
 * so, cost/ranges.c decides once all other settings are chosen. */
#include "layout/layout.h"

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    const bool asked = p->layout.ranges.given && !p->layout.ranges.is_auto && p->layout.ranges.value &&
                       c->ranks > 1;
    if (asked && choice_chunks_keys(c))
        return "`ranges yes` cannot be combined with `token chunks` with `keys`; remove `ranges` or use "
               "`token chunks` with `attention`";
    if (asked && c->latents)
        return "`ranges yes` cannot be combined with `travel latents`; remove `ranges` or use `travel keys`";
    return !asked || !choice_exchanges(c)
               ? NULL
               : arena_printf(a,
                              "`ranges yes` cannot be combined with schedule '%s', which exchanges heads; "
                              "use a schedule without `exchange` or remove `ranges`",
                              c->schedule->name);
}

static const char *text(Arena *a, const Choice *c)
{
    (void)a;
    if (c->ranges)
        return form_ranges.words[1];
    return c->whole ? form_ranges.words[0] : NULL;
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return p->layout.ranges.value && c->ranks == 1 ? idle_on_one_rank : NULL;
}

const SettingRecord setting_ranges = {
    .form = &form_ranges,
    .why_not = why_not,
    .text = text,
    .idle = {{offsetof(Layout, ranges), idle}},
};
