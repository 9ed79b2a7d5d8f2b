/* search/refine.c: the fastest values of the escalating settings for a layout whose other settings are
 * decided, and which memory escalation made fit.
 *
 * Chunks, offloaded values and saved values free memory for each other, so a setting alone may gain nothing,
 * or not fit. One setting after the other is changed to any other value, with as much saved as fits then,
 * until no change is faster: from the layout itself, and, if it took escalation to fit, from what fits with
 * all settings at values that need little memory, with the optimizer's state at any place. Values whose
 * lower bound cannot win are not tried. */
#include "search/internal.h"

#include <math.h>

enum { LADDERS = 2 }; /* of `recompute`: parts of what `none` saves; rules */
/* The number of offloaded values, at most one more than a layer has: that is all of them. */
enum { MOST_OFFLOADED = 8 };

typedef struct Refined {
    Searcher *s;
    const Candidate *base;
    bool host; /* the host's memory may be taken: the device's does not hold all that layers save */
    int near[LADDERS]; /* the first value of each ladder that last fitted; a good start for the next layout */
    Candidate best;
} Refined;

static int second_ladder(const Searcher *s) { return setting_recompute.second_ladder(s->program); }

/* Values of a ladder, without the last ones that do not work here. */
static Walk walk_of(const Refined *r, const Candidate *x, int ladder)
{
    const Searcher *s = r->s;
    const int second = second_ladder(s), first = ladder ? second : 0;
    int last = (ladder || !second ? search_values(s, SETTING_RECOMPUTE) : second) - 1;
    Candidate y = {.choice = x->choice};
    while (last >= first && !search_take(s, &y, SETTING_RECOMPUTE, last))
        last--;
    return search_walk(first, last, r->near[ladder]);
}

static bool works(const Searcher *s, const Candidate *x)
{
    return !choice_why_not(s->arena, s->program, &x->choice);
}

static double to_undercut(const Refined *r)
{
    return fmin(search_seconds(&r->best), search_fastest(r->s)) * (1 - SEARCH_TIE);
}

/* Tries what is saved, and keeps the fastest. */
static Candidate try_saved(Refined *r, const Candidate *x, int value, Candidate *fastest)
{
    Candidate y = search_untried(x);
    search_take(r->s, &y, SETTING_RECOMPUTE, value);
    y.why_not = choice_why_not(r->s->arena, r->s->program, &y.choice);
    search_try(r->s, &y);
    if (search_works(&y) && y.cost.step < fastest->cost.step)
        *fastest = y;
    return y;
}

/* Tries it with as much saved as fits, by either ladder, as long as that may win. */
static Candidate save_most(Refined *r, const Candidate *x)
{
    Candidate fastest = search_untried(x);
    fastest.cost.step = INFINITY;
    for (int ladder = 0; ladder < (second_ladder(r->s) ? LADDERS : 1); ladder++) {
        Walk k = walk_of(r, x, ladder);
        bool slow = false;
        while (!search_walk_ends(&k) && !slow) {
            const Candidate y = try_saved(r, x, k.at, &fastest);
            slow = y.too_slow;
            search_walk_on(&k, search_works(&y));
        }
        r->near[ladder] = k.fits <= k.last ? k.fits : r->near[ladder];
    }
    return fastest;
}

/* ---- other values of one setting ---- */

/* Whether the layout allows this place of the optimizer's state. */
static bool may_update(const Program *p, int place)
{
    return place == OPTIMIZER_ON_DEVICE || p->layout.update.is_auto || p->layout.update.value == place - 1;
}

/* Numbers of offloaded values. */
static int offloads(const Refined *r)
{
    const Program *p = r->s->program;
    return p->layout.offload.is_auto && r->host && p->model.layers > 1 ? MOST_OFFLOADED + 2 : 1;
}

static int places(const Refined *r)
{
    const Program *p = r->s->program;
    return p->layout.offload.is_auto && r->host && p->train.optimizer != BURST_OPTIMIZER_MUON
               ? OPTIMIZER_FETCHED + 1
               : 1;
}

static void offload(Candidate *x, int n)
{
    x->choice.offload_values = n > MOST_OFFLOADED ? OFFLOAD_ALL : n;
}

/* Offloads so many values; past their last number, places the optimizer's state. */
static bool take_offload(const Refined *r, Candidate *x, int n)
{
    const int place = n - offloads(r), values = x->choice.offload_values,
              optimizer = (int)x->choice.optimizer;
    if (place < 0)
        offload(x, n);
    else
        x->choice.optimizer = (OptimizerPlace)place;
    return (place < 0 || may_update(r->s->program, place)) &&
           (x->choice.offload_values != values || (int)x->choice.optimizer != optimizer);
}

/* Saved values near the layout's, if they are copied to the host: there less may be faster. */
static bool take_near(const Searcher *s, Candidate *x, int n)
{
    const int by = 1 << n / 2, value = x->value[SETTING_RECOMPUTE] + (n % 2 ? by : -by);
    return value >= 0 && value < search_values(s, SETTING_RECOMPUTE) &&
           search_take(s, x, SETTING_RECOMPUTE, value);
}

static int variants_of(const Refined *r, const Candidate *x, int setting)
{
    enum { NEAR = 16 };
    if (setting == SETTING_SCHEDULE)
        return search_layers_may_differ(r->s) && x->choice.ranks > 1 ? layers_options(r->s->program) : 0;
    if (setting == SETTING_RECOMPUTE)
        return second_ladder(r->s) && (x->choice.offload_values || x->choice.offload) ? NEAR : 0;
    if (setting == SETTING_OFFLOAD)
        return r->s->program->layout.offload.is_auto ? offloads(r) + places(r) : 0;
    return search_values(r->s, setting);
}

/* Rings of different sizes on many ranks are not varied: they are simulated whole (cost/load.c), which takes
 * seconds and gigabytes. */
static bool take_layers(const Searcher *s, Candidate *x, int n)
{
    return layers_take(s->arena, s->program, &x->choice, n) &&
           (x->choice.ranks <= EXACT_RANKS || layers_share_sizes(&x->choice));
}

static bool take_other(const Refined *r, Candidate *x, int setting, int n)
{
    switch (setting) {
    case SETTING_OFFLOAD: return take_offload(r, x, n);
    case SETTING_RECOMPUTE: return take_near(r->s, x, n);
    case SETTING_SCHEDULE: return take_layers(r->s, x, n);
    default: return n != x->value[setting] && search_take(r->s, x, setting, n);
    }
}

/* Takes the n-th other value; the settings after it keep theirs. Returns false if they do not work
 * together. */
static bool vary(const Refined *r, const Candidate *from, int setting, int n, Candidate *x)
{
    const Searcher *s = r->s;
    *x = search_untried(from);
    bool takes = take_other(r, x, setting, n);
    for (int later = setting + 1; setting != SETTING_SCHEDULE && later < SETTING_COUNT && takes; later++)
        if (settings[later]->count && later != SETTING_OFFLOAD && later != SETTING_UPDATE)
            takes = search_take(s, x, later, x->value[later]);
    return takes && works(s, x);
}

/* ---- one setting after the other ---- */

/* Where all that a layer saves fits, fewer offloaded values may. */
static void try_fewer_offloaded(Refined *r, const Candidate *x, Candidate *fastest)
{
    Candidate y = *fastest;
    const int values = x->choice.offload_values;
    for (int n = (values == OFFLOAD_ALL ? MOST_OFFLOADED + 1 : values) - 1;
         n >= 0 && offloads(r) > 1 && search_works(&y) && y.value[SETTING_RECOMPUTE] == 0; n--) {
        Candidate z = *x;
        offload(&z, n);
        y = try_saved(r, &z, 0, fastest);
    }
}

/* Returns whether it becomes the best. */
static bool improves(Refined *r, const Candidate *x, bool as_saved, Candidate *best)
{
    const double slight = 1e-4;
    if (search_least_alike(r->s, x) >= to_undercut(r))
        return false;
    Candidate y = *best;
    const int saved = best->value[SETTING_RECOMPUTE], second = second_ladder(r->s);
    r->near[second && saved >= second] = saved;
    if (as_saved)
        try_saved(r, x, x->value[SETTING_RECOMPUTE], &y);
    else {
        y = save_most(r, x);
        try_fewer_offloaded(r, x, &y);
    }
    const bool better = search_works(&y) && y.cost.step < best->cost.step * (1 - slight);
    *best = better ? y : *best;
    return better;
}

/* Changes one setting after the other until no change is faster: those that escalate and those after them,
 * and the schedules of some masks' layers. */
static Candidate descend(Refined *r, Candidate best)
{
    static const int varied[] = {SETTING_SCHEDULE,     SETTING_EXPERTS, SETTING_FFN_CHUNKS,
                                 SETTING_RECOMPUTE,    SETTING_OFFLOAD, SETTING_HEAD_CHUNKS,
                                 SETTING_TOKEN_CHUNKS, SETTING_FETCH,   SETTING_LOSS_TILE,
                                 SETTING_WEIGHTS,      SETTING_OVERLAP, SETTING_GRADIENTS};
    for (int i = 0, same = 0; same < countof(varied); i++, same++) {
        const int setting = varied[i % countof(varied)];
        bool better = false;
        for (int n = 0; n < variants_of(r, &best, setting) && !better; n++) {
            Candidate x;
            better = vary(r, &best, setting, n, &x) &&
                     improves(r, &x, setting == SETTING_RECOMPUTE, &best);
        }
        same = better ? -1 : same;
    }
    return best;
}

/* ---- layouts that need little memory ---- */

/* Takes the last value that works. */
static void take_last(const Refined *r, Candidate *x, int setting)
{
    Candidate y;
    for (int n = search_values(r->s, setting) - 1; n > 0; n--)
        if (vary(r, x, setting, n, &y)) {
            *x = y;
            return;
        }
}

/* First values of all escalating settings. */
static bool take_first(const Refined *r, Candidate *x, int weights)
{
    bool takes = true;
    *x = search_untried(r->base);
    for (int setting = 0; setting < SETTING_COUNT && takes; setting++)
        if (settings[setting]->escalates || setting == SETTING_WEIGHTS)
            takes = search_take(r->s, x, setting, setting == SETTING_WEIGHTS ? weights : 0);
    return takes;
}

/* What needs little memory with these weights, this place of the optimizer's state and so many offloaded
 * values. tokens: a value of `token chunks`, which exclude others; 0: whole. Returns false if it does not
 * work, or cannot win. */
static bool take_small(const Refined *r, int weights, int place, int tokens, int offloaded, Candidate *x)
{
    static const int chunks[] = {SETTING_EXPERTS, SETTING_FFN_CHUNKS, SETTING_HEAD_CHUNKS, SETTING_FETCH,
                                 SETTING_LOSS_TILE};
    if (!take_first(r, x, weights))
        return false;
    if (r->s->program->layout.offload.is_auto) {
        offload(x, offloaded);
        x->choice.optimizer = (OptimizerPlace)place;
    }
    if (search_least_alike(r->s, x) >= to_undercut(r) ||
        (tokens && !search_take(r->s, x, SETTING_TOKEN_CHUNKS, tokens)))
        return false;
    for (int i = 0; i < countof(chunks); i++)
        if (!tokens || (chunks[i] != SETTING_FFN_CHUNKS && chunks[i] != SETTING_HEAD_CHUNKS))
            take_last(r, x, chunks[i]);
    return works(r->s, x);
}

/* The fastest of these that fits with any number of offloaded values; with chunks of tokens, none or all. */
static Candidate start_of(Refined *r, int weights, int place, int tokens)
{
    enum { PARTS = 16 };
    const bool own = weights == r->base->value[SETTING_WEIGHTS];
    const int parts = own && second_ladder(r->s) ? PARTS : 1;
    const int most = offloads(r) - 1, step = tokens && most ? most : 1;
    Candidate best = search_untried(r->base);
    best.cost.step = INFINITY;
    for (int n = 0; n <= most; n += step) {
        Candidate x;
        r->near[0] = search_values(r->s, SETTING_RECOMPUTE); /* likely, little can be saved */
        if (!take_small(r, weights, place, tokens, n, &x))
            continue;
        Candidate y = save_most(r, &x), usual;
        /* some steps need less with the usual tile of the loss */
        if (!search_works(&y) && own && vary(r, &x, SETTING_LOSS_TILE, 0, &usual)) {
            x = usual;
            y = save_most(r, &x);
        }
        /* to save more on the host may need less than to recompute it */
        for (int part = 1; part < parts && n && !search_works(&y); part++)
            try_saved(r, &x, part * SAVING_LEVELS / PARTS, &y);
        if (search_works(&y) && y.cost.step < best.cost.step)
            best = y;
    }
    return best;
}

/* The same with the first weights with which any fits. */
static Candidate start_whole(Refined *r, int place)
{
    Candidate x = start_of(r, r->base->value[SETTING_WEIGHTS], place, 0);
    for (int n = 0; n < search_values(r->s, SETTING_WEIGHTS) && !search_works(&x); n++)
        x = start_of(r, n, place, 0);
    return x;
}

/* The same with the first chunks of tokens with which any fits. */
static Candidate start_chunked(Refined *r, int place)
{
    Candidate x = search_untried(r->base);
    for (int n = 1; n < search_values(r->s, SETTING_TOKEN_CHUNKS) && !search_works(&x); n++)
        x = start_of(r, r->base->value[SETTING_WEIGHTS], place, n);
    return x;
}

static void keep(Refined *r, Candidate x)
{
    if (search_works(&x) && x.cost.step < r->best.cost.step)
        r->best = x;
}

static bool has_escalated(const Candidate *x)
{
    bool any = x->choice.offload_values || x->choice.optimizer;
    for (int setting = 0; setting < SETTING_COUNT; setting++)
        any |= settings[setting]->escalates && x->value[setting] > 0;
    return any;
}

/* Descends from the fastest of these with the optimizer's state at any place that the layout allows. */
static void try_starts(Refined *r)
{
    Candidate fastest = search_untried(r->base);
    for (int place = 0; place < places(r); place++) {
        if (!may_update(r->s->program, place))
            continue;
        const Candidate of[] = {start_whole(r, place), start_chunked(r, place)};
        for (int i = 0; i < countof(of); i++)
            if (search_leads(&of[i], &fastest))
                fastest = of[i];
    }
    if (search_works(&fastest) && fastest.cost.step != r->best.cost.step)
        keep(r, descend(r, fastest));
}

Candidate search_escalate_otherwise(Searcher *s, const Candidate *best, bool starts)
{
    Refined r = {.s = s,
                 .base = best,
                 .host = has_escalated(best),
                 .near = {best->value[SETTING_RECOMPUTE], second_ladder(s)},
                 .best = *best};
    keep(&r, descend(&r, *best));
    if (starts && r.host)
        try_starts(&r);
    return r.best;
}
