/* layout/recompute.c: what layers save from forward for backward, and the row `recompute` of layout/table.c.
 *
 * A rule of recomputation is a set of values by their names. What a layout says, and what the search
 * decides, are sets too.
 */
#include "layout/layout.h"

#include <math.h>
#include <string.h>

/* ---- sets of names ---- */

/* ---- the row `recompute` ---- */

/* Left open, by need: what `none` saves, then less and less of it; or the rules in their order, of tail
 * first those that keep most. */
int saving_other_way(const Program *p)
{
    return p->layout.saving.upper ? 0 : SAVING_LEVELS + 1;
}

int saving_count(const Program *p)
{
    return p->layout.saving.upper ? 1 : saving_other_way(p) + RECOMPUTE_TAIL - 1 + TAIL_LEVELS - 1;
}

/* Attention of a rank's first tokens alone: forward again with fewer queries, which are at home
 * throughout. */
static const char *tail_why_not(const Program *p, const Choice *c)
{
    if (choice_exchanges(c))
        return "`recompute tail` is not supported with all-to-all schedules; use a ring schedule or "
               "`recompute selective`";
    if (choice_moves_queries(c, false))
        return "`recompute tail` requires a schedule whose forward passes only KV; use a schedule such as "
               "ring, or `recompute selective`";
    /* the rank with most has two then, however tokens are shared out */
    return p->sequence > c->ranks ? NULL
                                  : "`recompute tail` requires a sequence with more tokens than ranks; use a "
                                    "longer sequence or `recompute selective`";
}

bool saving_take(const Program *p, Choice *c, int n)
{
    const int rule = n - saving_other_way(p) + 1, tail = rule - RECOMPUTE_TAIL;
    const bool given = p->layout.saving.upper;
    c->spared = given || rule > 0 ? 0 : n;
    c->saving = p->layout.saving;
    if (given || rule < 1)
        return true;
    c->saving = tail < 0 ? saving_by((Recompute)rule, 0)
                         : saving_by(RECOMPUTE_TAIL, 1 - (1.0 + tail) / TAIL_LEVELS);
    return tail < 0 || !tail_why_not(p, c);
}

const char *saving_why_no_chunks(const Choice *c, bool heads)
{
    return !choice_keeps_tail(c) ? NULL
           : heads ? "`recompute tail` cannot be combined with `head chunks`; use `recompute selective` or "
                     "`head chunks 1`"
                   : "`recompute tail` cannot be combined with `token chunks` with `%1$s`; use `recompute "
                     "selective` or remove `%1$s`";
}

const char *saving_fewer(void)
{
    return "save fewer values with `recompute`";
}

const char *saving_why_not(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return choice_keeps_tail(c) ? tail_why_not(p, c) : NULL;
}

/* Rules by their names, without one that does not work here, and what the layout says layers save. */
bool saving_other(const Program *p, Choice *c, int n)
{
    const Saving given = p->layout.saving;
    n += n >= RECOMPUTE_TAIL && tail_why_not(p, c);
    c->saving = n < RECOMPUTES ? saving_by((Recompute)n, given.tail > 0 ? given.tail : 0.5) : given;
    c->spared = 0;
    return n < RECOMPUTES || (n == RECOMPUTES && given.upper && saving_rule(given) == RECOMPUTES);
}

const char *saving_choice_text(Arena *a, const Choice *c)
{
    return saving_text(a, saving_of(c));
}
