/* search/layers.c: chooses the schedule and travel of each mask's layers, given the other settings.
 *
 * Layers attend one after the other, so the best choice for one mask does not depend on the others: the
 * least time of forward and backward, simulated alone, with the choice's positions. */
#include "search/search.h"
#include "proof/internal.h"

#include <math.h>
#include <string.h>

typedef struct Layers {
    Arena *arena;
    const Program *program;
    const Partition *partition;
    PairCounts **counts;
    const char *why_not;
} Layers;
typedef struct Best { Choice choice; double seconds; int options; } Best;

/* Seconds of one layer's attention; INFINITY: a proof fails, or it deadlocks. */
static double attention_seconds(const Layers *l, const Choice *c, int mask)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Draft t = {.program = l->program,
               .choice = *c,
               .shape = program_shape(l->program), /* chunks of heads attend one after the other */
               .partition = l->partition,
               .counts = l->counts};
    t.attention = attentions_make(a, d, t.program, &t.choice);
    double seconds = t.attention.n ? 0 : INFINITY;
    bool save;
    if (t.attention.n)
        t.choice.ranges = ranges_wanted(a, &t, NULL, &save);
    for (int backward = 0; backward < 2 && isfinite(seconds); backward++) {
        if (!verify_schedule(a, d, attentions_schedule(&t.attention, mask, backward))) {
            seconds = INFINITY;
            break;
        }
        const AttentionInput in = cost_load(a, &t, cost_simulated_ranks(&t), mask, backward, NULL);
        seconds += attention_simulate(a, &in).seconds;
    }
    arena_free(a);
    return seconds;
}

/* The program with one mask's layout. */
static Program program_of(const Program *p, int mask)
{
    Program x = *p;
    if (p->layout.of_mask) {
        x.layout.schedule = p->layout.of_mask[mask].schedule;
        x.layout.travel = p->layout.of_mask[mask].travel;
    }
    x.layout.of_mask = NULL;
    return x;
}

static MaskChoice of_layers(const Program *p, const Choice *c, int mask)
{
    MaskChoice x = {.mask = p->masks[mask].text,
                    .schedule = c->schedule,
                    .travel = c->travel,
                    .coords = c->coords};
    memcpy(x.size, c->size, sizeof x.size);
    memcpy(x.stride, c->stride, sizeof x.stride);
    return x;
}

/* Why the mask's layers cannot have it together with the base; NULL: they can. */
static const char *option_why_not(const Layers *l, const Choice *base, const Choice *x, int mask)
{
    MaskChoice *of = NEW_ARRAY(l->arena, MaskChoice, l->program->mask_count);
    Choice both = *base;
    for (int m = 0; m < l->program->mask_count; m++)
        of[m] = of_layers(l->program, m == mask ? x : base, m);
    both.masks = l->program->mask_count;
    both.of_mask = of;
    return mask_why_not(l->arena, l->program, &both, mask);
}

/* A first option that works needs no simulation if it is the only one. */
static void try_option(Layers *l, const Choice *base, const Choice *x, int mask, Best *best)
{
    const char *why_not = option_why_not(l, base, x, mask);
    if (why_not) {
        l->why_not = why_not;
        return;
    }
    if (best->options == 1)
        best->seconds = attention_seconds(l, &best->choice, mask);
    const double seconds = best->options ? attention_seconds(l, x, mask) : 0;
    if (!best->options || seconds < best->seconds * (1 - SEARCH_TIE))
        best->choice = *x, best->seconds = seconds;
    best->options++;
}

/* ---- options of a mask's layers ---- */

static int options_of(const Program *p)
{
    return setting_schedule.count(p) * setting_context.count(p) * TRAVELS;
}

/* Takes the n-th schedule, sizes and travel that the layout leaves open. */
static bool take_option(const Program *p, Choice *x, int n)
{
    const int sizes = setting_context.count(p);
    return setting_schedule.take(p, x, n / TRAVELS / sizes) &&
           setting_context.take(p, x, n / TRAVELS % sizes) && setting_travel.take(p, x, n % TRAVELS);
}

static bool same_option(const Choice *x, const Choice *y)
{
    return x->schedule == y->schedule && x->travel == y->travel && sizes_equal(x, y);
}

/* The best option among the layout's open settings; the base's own is tried first. */
static Best best_option(Layers *l, const Choice *base, int mask)
{
    const Program p = program_of(l->program, mask);
    Best best = {0};
    for (int own = 1; own >= 0; own--)
        for (int n = 0; n < options_of(&p); n++) {
            Choice x = *base;
            if (take_option(&p, &x, n) && same_option(&x, base) == own)
                try_option(l, base, &x, mask, &best);
        }
    return best;
}

/* Whether all masks chose the same, even if it is not the base's. */
static bool all_alike(const Choice *c)
{
    const Choice first = choice_of_mask(c, 0);
    for (int m = 1; m < c->masks; m++) {
        const Choice x = choice_of_mask(c, m);
        if (!same_option(&x, &first))
            return false;
    }
    return true;
}

const char *layers_choose(Arena *a, const Program *p, const Partition *part, PairCounts **counts, Choice *c)
{
    Layers l = {.arena = a, .program = p, .partition = part, .counts = counts};
    MaskChoice *of = NEW_ARRAY(a, MaskChoice, p->mask_count);
    if (c->latents) /* latents apply to all layers */
        return NULL;
    for (int m = 0; m < p->mask_count; m++) {
        const bool decided = m == 0 && p->layout.of_mask; /* given by the layout */
        const Best best = decided
                              ? (Best){.choice = *c, .options = !(l.why_not = option_why_not(&l, c, c, m))}
                              : best_option(&l, c, m);
        if (!best.options)
            return l.why_not
                       ? l.why_not
                       : arena_printf(a, "no schedule works for the layers with mask %s", p->masks[m].text);
        of[m] = of_layers(p, &best.choice, m);
    }
    Choice x = *c;
    x.of_mask = of;
    x.masks = p->mask_count;
    if (!all_alike(&x))
        *c = x;
    return NULL;
}

int layers_options(const Program *p) { return p->layout.of_mask ? 0 : p->mask_count * options_of(p); }

/* Makes one of the masks' attentions the base with which the others can be combined. */
static bool take_base(Arena *a, const Program *p, Choice *c)
{
    for (int m = 0; m < c->masks; m++) {
        Choice x = choice_of_mask(c, m);
        x.of_mask = c->of_mask;
        x.masks = c->masks;
        if (layers_why_not(a, p, &x))
            continue;
        *c = x;
        return true;
    }
    return false;
}

bool layers_take(Arena *a, const Program *p, Choice *c, int n)
{
    const int mask = n / options_of(p);
    const Choice own = choice_of_mask(c, mask);
    Choice x = *c, option = own;
    MaskChoice *of = NEW_ARRAY(a, MaskChoice, p->mask_count);
    if (choice_exchanges(c) || c->latents || !take_option(p, &option, n % options_of(p)) ||
        same_option(&option, &own))
        return false;
    for (int m = 0; m < p->mask_count; m++) {
        const Choice as = m == mask ? option : choice_of_mask(c, m);
        of[m] = of_layers(p, &as, m);
    }
    x.of_mask = of;
    x.masks = p->mask_count;
    if (!take_base(a, p, &x))
        return false;
    *c = all_alike(&x) ? option : x;
    return true;
}
