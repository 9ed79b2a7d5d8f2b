/* settings/travel.c: `travel`: which chunks move in backward, and whether keys and values move as the
 * latents that they are computed from (multi-head latent attention, DeepSeek-V2, arXiv 2405.04434). */
#include "layout/layout.h"

/* Whether the schedule has one backward for both. */
static bool has_one_backward(const Choice *c)
{
    return c->schedule->backward[TRAVEL_KEYS] == c->schedule->backward[TRAVEL_QUERIES];
}

/* Latents travel as keys do, in both directions. A rank computes its own keys and values as usual, and other
 * ranks' from the latents that arrive, with all heads and for all of its queries; so it must have both
 * whole, once. */
static const char *latents_why_not(const Program *p, const Choice *c)
{
    if (!p->model.latent)
        return "`travel latents` requires a model with `latent`; use `travel keys`";
    if (p->infer.lengths)
        return "`travel latents` is not supported by this version of burstc in a program that infers; use "
               "`travel keys`";
    if (choice_exchanges(c))
        return "`travel latents` is not supported with all-to-all schedules; use a schedule such as ring, or "
               "`travel keys`";
    if (!c->schedule->backward[TRAVEL_KEYS] || choice_moves_queries(c, false) ||
        choice_moves_queries(c, true))
        return "`travel latents` requires a schedule that passes only KV; use a schedule such as ring, or "
               "`travel keys`";
    if (choice_pieces(c) > 1)
        return "`travel latents` cannot be combined with a schedule that has `pieces`; use a schedule such "
               "as "
               "ring, or `travel keys`";
    if (p->model.selects)
        return "`travel latents` cannot be combined with a selection, which reads keys; use `travel keys`";
    if (c->head_chunks > 1)
        return "`travel latents` cannot be combined with `head chunks`; use `head chunks 1` or `travel keys`";
    if (choice_chunks_queries(c))
        return "`travel latents` cannot be combined with `token chunks` with `attention` or `keys`; remove "
               "these words or use `travel keys`";
    return choice_keeps_tail(c) ? "`travel latents` cannot be combined with `recompute tail`; use `recompute "
                                  "selective` or `travel keys`"
                                : NULL;
}

static int count(const Program *p)
{
    (void)p;
    return TRAVEL_WORDS;
}

static void set_travel(Choice *c, int n)
{
    c->latents = n == TRAVEL_LATENTS;
    c->travel = c->latents ? TRAVEL_KEYS : (Travel)n;
}

/* Tried if they are smaller than the keys and values of a rank's heads. */
static bool take_latents(const Program *p, Choice *c)
{
    const Model *m = &p->model;
    const Setting *given = &p->layout.travel;
    const int heads = m->kv_heads / (c->tensor ? c->tensor : 1);
    if (!given->is_auto)
        return given->value == TRAVEL_LATENTS;
    return c->ranks > 1 && !p->layout.of_mask && !latents_why_not(p, c) &&
           m->latent + m->shared < heads * (m->head_dim + m->value_dim);
}

/* If open, each backward of the schedule is tried; one of them if both are the same or one rank sends
 * nothing. */
static bool take(const Program *p, Choice *c, int n)
{
    const bool same = c->schedule->backward[TRAVEL_KEYS] && (c->ranks == 1 || has_one_backward(c));
    const Setting *given = &p->layout.travel;
    set_travel(c, n);
    if (c->latents && !take_latents(p, c))
        return false;
    c->latents &= c->ranks > 1;
    /* nothing travels, so the other backward is as good */
    if (!given->is_auto && c->ranks == 1 && !c->schedule->backward[c->travel])
        c->travel = (Travel)!c->travel;
    if (n == TRAVEL_LATENTS)
        return true;
    return given->is_auto ? c->schedule->backward[n] && !(same && n) : given->value == n;
}

static bool other(const Program *p, Choice *c, int n)
{
    set_travel(c, n);
    if (n == TRAVEL_LATENTS)
        return !c->of_mask && !latents_why_not(p, c);
    return n < TRAVELS && !choice_exchanges(c) && !c->of_mask;
}

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *latents = c->latents && c->ranks > 1 ? latents_why_not(p, c) : NULL;
    if (latents)
        return latents;
    return c->of_mask || c->schedule->backward[c->travel]
               ? NULL
               : arena_printf(a, "the schedule has no `backward %s`; use `travel %s`",
                              travel_names[c->travel], travel_names[!c->travel]);
}

static const char *travel_name(Arena *a, const Choice *c)
{
    (void)a;
    return choice_travel_name(c);
}

static const char *text(Arena *a, const Choice *c)
{
    if (c->of_mask)
        return by_mask_text(a, c, travel_name);
    if (c->ranks == 1 || (has_one_backward(c) && !c->latents))
        return NULL;
    return choice_travel_name(c);
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)p;
    if (c->ranks == 1)
        return idle_on_one_rank;
    for (int m = 0; m < c->masks || m == 0; m++) {
        const Choice x = c->masks ? choice_of_mask(c, m) : *c;
        if (!has_one_backward(&x) || x.latents)
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
