/* search/ranges.c: whether attention's transfers carry ranges, where the layout leaves that open.
 *
 * Gathers and reductions share links with attention, so ranges may make the step faster where attention
 * alone is as fast without. search_ranges decides by attention alone; here the other value is simulated in
 * its step, unless a lower bound shows that it is no faster. Attention alone decides where masks read drawn
 * tables, of which the plan knows little, and for prompts, since the plans of all lengths share buffers. */
#include "search/internal.h"

#include <math.h>

static bool decides_by_step(Searcher *s, const Draft *t, const Cost *cost)
{
    return !mask_draws(s->program) && !s->program->infer.lengths && !cost->at_least && isfinite(cost->step) &&
           search_ranges(s, t).open;
}

/* The step is a lower bound where that is more than `most`. */
static Cost cost_below(Searcher *s, Arena *a, const Draft *of, double most)
{
    Draft t = *of;
    t.attended = search_attended(s, &t);
    t.model = search_model(s, &t);
    return cost_draft(a, &t, most);
}

bool search_change_ranges(Searcher *s, Arena *a, Draft *t, Cost *cost, bool exact)
{
    if (!decides_by_step(s, t, cost))
        return false;
    Draft x = *t;
    const double most = cost->step * (1 - SEARCH_TIE);
    x.choice.ranges = !t->choice.ranges;
    x.attention = attentions_make(a, diags_new(a), x.program, &x.choice);
    Cost c = cost_below(s, a, &x, most);
    cost->any_weights = c.any_weights = fmin(cost->any_weights, c.any_weights);
    if (c.at_least || c.step >= most)
        return false;
    x.attended = a == s->arena ? search_keep_attended(s, &x) : NULL;
    x.memory = memory_make(a, &x);
    memory_add_step(&x.memory, x.program, search_flow(s, a, &x, exact), x.units);
    if (!memory_fits(&x))
        return false;
    c.memory = x.memory.total + x.memory.beside;
    *t = x;
    *cost = c;
    return true;
}
