/* layout/layers.c: choices whose layers have different attention: texts of settings, and combinations that
 * do not work. */
#include "layout/layout.h"

#include <string.h>

/* The text of most masks; the first of equally frequent ones. */
static const char *usual_text(const char *const *text, int masks)
{
    const char *usual = text[0];
    for (int m = 0, most = 0; m < masks; m++) {
        int n = 0;
        for (int i = 0; i < masks; i++)
            n += strcmp(text[i], text[m]) == 0;
        if (n > most)
            usual = text[m], most = n;
    }
    return usual;
}

const char *by_mask_text(Arena *a, const Choice *c, const char *(*text)(Arena *a, const Choice *c))
{
    const char **of = NEW_ARRAY(a, const char *, c->masks), *all = "";
    for (int m = 0; m < c->masks; m++) {
        const Choice x = choice_of_mask(c, m);
        of[m] = text(a, &x);
    }
    const char *usual = usual_text(of, c->masks);
    for (int m = 0; m < c->masks; m++)
        if (strcmp(of[m], usual) != 0)
            all = arena_printf(a, "%s%s for %s, ", all, of[m], c->of_mask[m].mask);
    return arena_printf(a, "%s%s", all, usual);
}

/* ---- combinations that do not work ---- */

static const char *beside(Arena *a, const Choice *c, int mask, const char *what)
{
    return arena_printf(a, "schedule '%s' for %s and '%s' for %s %s", c->of_mask[0].schedule->name,
                        c->of_mask[0].mask, c->of_mask[mask].schedule->name, c->of_mask[mask].mask, what);
}

const char *mask_why_not(Arena *a, const Program *p, const Choice *c, int mask)
{
    const Choice x = choice_of_mask(c, mask);
    if (!phase_of(&x, true))
        return arena_printf(a, "schedule '%s' has no `backward %s`", x.schedule->name,
                            travel_names[x.travel]);
    if (choice_exchanges(&x))
        return arena_printf(a,
                            "schedule '%s' exchanges heads and cannot be combined with other schedules; use "
                            "it for all layers or use a schedule without `exchange` for %s",
                            x.schedule->name, c->of_mask[mask].mask);
    if (choice_pieces(&x) != choice_pieces(c))
        return beside(a, c, mask, "have different numbers of pieces; use schedules with the same `pieces`");
    if (c->placed && !sizes_equal(&x, c))
        return beside(a, c, mask,
                      "have different coordinates and cannot be combined with `placement`; remove "
                      "`placement` or use schedules over the same coordinates");
    if (x.coords == c->coords ? !sizes_equal(&x, c)
                              : x.coords - x.schedule->lanes > 1 || c->coords - c->schedule->lanes > 1)
        return beside(a, c, mask,
                      "have different coordinates; use schedules over the same coordinates, over one "
                      "coordinate, or over nodes and their lanes");
    return choice_why_not(a, p, &x);
}

const char *layers_why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *reason = NULL;
    for (int m = 0; m < c->masks && !reason; m++)
        reason = mask_why_not(a, p, c, m);
    return reason;
}
