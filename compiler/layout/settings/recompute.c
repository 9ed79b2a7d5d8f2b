/* settings/recompute.c: `recompute`: the set of values that layers save from forward for backward. Each rule
 * of recomputation names such a set. */
#include "layout/layout.h"

/* If open, as memory requires: what `none` saves, then less and less of it; second ladder: the rules in
 * order, `tail` with the most saved tokens first. */
static int second_ladder(const Program *p) { return p->layout.saving.upper ? 0 : SAVING_LEVELS + 1; }

static int count(const Program *p)
{
    return p->layout.saving.upper ? 1 : second_ladder(p) + RECOMPUTE_TAIL - 1 + TAIL_LEVELS - 1;
}

/* `tail` runs forward attention of a rank's leading tokens once more, with fewer queries, which must not
 * travel. */
static const char *tail_why_not(const Program *p, const Choice *c)
{
    if (choice_exchanges(c))
        return "`recompute tail` is not supported with all-to-all schedules; use a ring schedule or "
               "`recompute selective`";
    if (choice_moves_queries(c, false))
        return "`recompute tail` requires a schedule whose forward passes only KV; use a schedule such as "
               "ring, or `recompute selective`";
    /* the rank with most tokens then has at least two, in every partition */
    return p->sequence > c->ranks ? NULL
                                  : "`recompute tail` requires a sequence with more tokens than ranks; use a "
                                    "longer sequence or `recompute selective`";
}

static bool take(const Program *p, Choice *c, int n)
{
    const int rule = n - second_ladder(p) + 1, tail = rule - RECOMPUTE_TAIL;
    const bool given = p->layout.saving.upper;
    c->spared = given || rule > 0 ? 0 : n;
    c->saving = p->layout.saving;
    if (given || rule < 1)
        return true;
    c->saving = tail < 0 ? saving_by((Recompute)rule, 0)
                         : saving_by(RECOMPUTE_TAIL, 1 - (1.0 + tail) / TAIL_LEVELS);
    return tail < 0 || (!tail_why_not(p, c) && !choice_chunks_queries(c));
}

const char *saving_why_no_chunks(const Choice *c, bool heads)
{
    if (!choice_keeps_tail(c))
        return NULL;
    return heads ? "`recompute tail` cannot be combined with `head chunks`; use `recompute selective` or "
                   "`head chunks 1`"
                 : "`recompute tail` cannot be combined with `token chunks` with `%1$s`; use `recompute "
                   "selective` or remove `%1$s`";
}

const char *saving_fewer(void)
{
    return "save fewer values with `recompute`";
}

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return choice_keeps_tail(c) ? tail_why_not(p, c) : NULL;
}

/* The group size with the least memory: one input per group, and one per layer of the recomputed group. */
static int least_group(int layers)
{
    int least = 1;
    for (int g = 2; g < layers; g++)
        if ((layers + g - 1) / g + g < (layers + least - 1) / least + least)
            least = g;
    return least;
}

/* Rules by name, except one that does not work here; then the last rule with groups of layers; then the
 * layout's own set. */
static bool other(const Program *p, Choice *c, int n)
{
    const Saving given = p->layout.saving;
    const int group = least_group(p->model.layers), rules = RECOMPUTES + (group > 1);
    n += n >= RECOMPUTE_TAIL && tail_why_not(p, c);
    c->saving = n < rules ? saving_by(n < RECOMPUTES ? (Recompute)n : RECOMPUTE_FULL,
                                      given.tail > 0 ? given.tail : 0.5)
                          : given;
    c->saving.group = n == RECOMPUTES && n < rules ? group : c->saving.group;
    c->spared = 0;
    return n < rules || (n == rules && given.upper && saving_rule(given) == RECOMPUTES);
}

static const char *text(Arena *a, const Choice *c)
{
    return saving_text(a, saving_of(c));
}

static bool always(const Program *p)
{
    (void)p;
    return true;
}

static bool leave_open(Layout *l)
{
    const bool given = l->saving.upper;
    l->saving = (Saving){0};
    return given;
}

const SettingRecord setting_recompute = {
    .form = &(const SettingForm){.name = "recompute"},
    .span = offsetof(Layout, saving_span),
    .column = 9,
    .escalates = true,
    .spares = true,
    .second_ladder = second_ladder,
    .count = count,
    .take = take,
    .trains = true,
    .other = other,
    .fits_each = always,
    .leave_open = leave_open,
    .why_not = why_not,
    .text = text,
};
