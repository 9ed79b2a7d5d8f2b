/* check_placement.c: the setting `placement`: axes from the innermost on. */
#include "check.h"

#include <string.h>

static bool placed_already(const Layout *l, const char *name)
{
    for (int i = 0; i < l->placement_names; i++)
        if (strcmp(l->placement_name[i], name) == 0)
            return true;
    return false;
}

void take_placement(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Layout *l = to;
    Cursor u = cursor_of(c, s);
    l->placement = (Setting){.is_auto = cursor_try(&u, "auto"), .given = true, .span = s->span};
    if (l->placement.is_auto) {
        cursor_end(&u);
        return;
    }
    do {
        const Ast *name = cursor_name(&u, "auto, or axes from the innermost outwards, such as context, data");
        if (!name)
            return;
        if (placed_already(l, name->text))
            diag_error(c->diags, name->span, "'%s' is placed twice", name->text);
        else if (l->placement_names < countof(l->placement_name))
            l->placement_name[l->placement_names++] = name->text;
        else
            diag_error(c->diags, name->span, "too many axes");
    } while (cursor_try(&u, ","));
    cursor_end(&u);
}

static bool is_coordinate(const SchedText *t, const char *name)
{
    for (int i = 0; i < t->coords; i++)
        if (strcmp(t->coord_name[i], name) == 0 || strcmp(t->way_name[i], name) == 0)
            return true;
    return false;
}

/* An axis is one of every layout's, or a coordinate of the layout's schedule; if that is open, of any
 * schedule. */
void check_placement(Checker *c, const Layout *l)
{
    for (int n = 0; n < l->placement_names; n++) {
        const char *name = l->placement_name[n];
        bool known = strcmp(name, "data") == 0 || strcmp(name, "context") == 0 || strcmp(name, "heads") == 0;
        for (int i = 0; i < c->schedules.n; i++) {
            const SchedText *t = c->schedules.at[i];
            known |= (!l->schedule || strcmp(l->schedule, t->name) == 0) && is_coordinate(t, name);
        }
        if (!known)
            diag_error(
                c->diags, word_in(l->placement.span, name),
                "'placement' cannot place '%s'; it takes data, context, heads and the coordinates of %s%s",
                name, l->schedule ? "schedule " : "a schedule", l->schedule ? l->schedule : "");
    }
}
