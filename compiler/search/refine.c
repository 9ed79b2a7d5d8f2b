/* search/refine.c: the fastest values of the escalating settings for a layout whose other settings are
 * decided, and which memory escalation made fit.
 *
 * An escalating setting saves memory, and what it saves is worth its time if layers can save more values
 * then, or if nothing fits without it. So records of the settings but `recompute` are made one step after the
 * other: from a record, each setting alone advances to its first value with which more is saved (or, if
 * nothing fits, that needs less memory), or, if that is faster, to its next value or to twice as many chunks
 * of heads. Memory is largest in some part of the step; a setting that does not save memory there gains
 * nothing until another has saved memory there, and then it is a step from that record. Records whose lower
 * bound cannot win are dropped. */
#include "search/internal.h"

#include <math.h>
#include <string.h>

/* Settings that advance, beside what is offloaded, in the order in which they are taken: a value of one may
 * exclude values of those after it. */
static const int before_offload[] = {SETTING_EXPERTS, SETTING_FFN_CHUNKS};
static const int after_offload[] = {SETTING_HEAD_CHUNKS, SETTING_TOKEN_CHUNKS, SETTING_FETCH,
                                    SETTING_LOSS_TILE};
/* Places in a record: those settings, the number of offloaded values, the optimizer's place. */
enum {
    BEFORE = countof(before_offload),
    AFTER = countof(after_offload),
    OFFLOADED = BEFORE + AFTER,
    OPTIMIZER,
    PLACES,
    HEAD_CHUNKS = BEFORE
};
enum { LADDERS = 2 }; /* of `recompute`: parts of what `none` saves; rules */

typedef struct Record {
    int value[PLACES];
    Candidate of;         /* with everything saved */
    double least;         /* seconds, whatever is saved */
    int saved[LADDERS];   /* the first value of each ladder that fits; past its last one: none */
    double step;          /* seconds with the first of these; INFINITY: it does not fit */
    size_t needs;         /* bytes of the last value of the first ladder, if it does not fit */
    bool split;           /* its steps were made */
} Record;

typedef struct Records {
    Searcher *s;
    const Candidate *base;
    Arena *arena;
    Vec(Record) all;
    Candidate best;
    bool host; /* the host's memory may be taken: the device's does not hold all that layers save */
} Records;

static int ladder_end(const Searcher *s, int ladder)
{
    const int second = setting_recompute.second_ladder(s->program);
    return ladder || !second ? search_values(s, SETTING_RECOMPUTE) : second;
}

static int ladder_start(const Searcher *s, int ladder)
{
    return ladder ? setting_recompute.second_ladder(s->program) : 0;
}

static int ladders(const Searcher *s) { return setting_recompute.second_ladder(s->program) ? LADDERS : 1; }

static bool take_all(const Searcher *s, Candidate *x, const int *setting, const int *value, int n)
{
    bool takes = true;
    for (int i = 0; i < n && takes; i++)
        takes = search_take(s, x, setting[i], value[i]);
    return takes;
}

/* The number of offloaded values, at most one more than a layer has: that is all of them. */
enum { MOST_OFFLOADED = 8 };

static void take_offload(const Searcher *s, const Candidate *base, Candidate *x, const int *value)
{
    search_take(s, x, SETTING_OFFLOAD, 0);
    if (!s->program->layout.offload.is_auto) {
        x->choice.optimizer = base->choice.optimizer; /* `update` does not escalate */
        return;
    }
    x->choice.offload_values = value[OFFLOADED] > MOST_OFFLOADED ? OFFLOAD_ALL : value[OFFLOADED];
    x->choice.optimizer = (OptimizerPlace)value[OPTIMIZER];
}

/* Returns false if the values do not work together. */
static bool make(const Records *r, const int *value, Candidate *x)
{
    const Searcher *s = r->s;
    *x = search_untried(r->base);
    if (!search_take(s, x, SETTING_RECOMPUTE, 0) || !take_all(s, x, before_offload, value, BEFORE))
        return false;
    take_offload(s, r->base, x, value);
    return take_all(s, x, after_offload, value + BEFORE, AFTER) &&
           !choice_why_not(s->arena, s->program, &x->choice);
}

/* Values that the place may have. */
static int values_of(const Records *r, int place)
{
    const Searcher *s = r->s;
    const Program *p = s->program;
    if (place < BEFORE)
        return search_values(s, before_offload[place]);
    if (place < OFFLOADED)
        return search_values(s, after_offload[place - BEFORE]);
    if (!p->layout.offload.is_auto || !r->host)
        return 1;
    if (place == OFFLOADED)
        return p->model.layers > 1 ? MOST_OFFLOADED + 2 : 1;
    return p->train.optimizer == BURST_OPTIMIZER_MUON ? 1 : OPTIMIZER_FETCHED + 1;
}

/* Whether the layout leaves the optimizer's place open. */
static bool may_update(const Program *p, int place)
{
    return place == OPTIMIZER_ON_DEVICE || p->layout.update.is_auto || p->layout.update.value == place - 1;
}

/* Tries the record with a value of `recompute`, and keeps the fastest. Returns whether it fits. */
static bool fits(Records *r, Record *x, int value)
{
    Candidate y = search_untried(&x->of);
    if (!search_take(r->s, &y, SETTING_RECOMPUTE, value))
        return false;
    y.why_not = choice_why_not(r->s->arena, r->s->program, &y.choice);
    search_try(r->s, &y);
    if (value == ladder_end(r->s, 0) - 1)
        x->needs = y.evaluated ? y.needs : SIZE_MAX;
    if (search_works(&y) && value < ladder_end(r->s, 0))
        x->step = y.cost.step;
    if (search_works(&y) && y.cost.step < r->best.cost.step)
        r->best = y;
    return search_works(&y);
}

/* Finds the first value that fits from the first on, in growing steps. */
static int first_from_start(Records *r, Record *x, int end)
{
    int large = -1, found = end;
    for (int at = 1; at < found; at = 4 * at + 3)
        if (fits(r, x, at))
            found = at;
        else
            large = at;
    while (found < end && large + 1 < found) {
        const int at = (large + found) / 2;
        if (fits(r, x, at))
            found = at;
        else
            large = at;
    }
    return found;
}

/* Finds the first value of the ladder that fits, among those before `from`, which is past the last one or
 * fits by more than what is asked. Memory falls along a ladder, but if all values are offloaded, to save more
 * of them may need less than to recompute them. */
static int first_that_fits(Records *r, Record *x, int ladder, int from)
{
    int large = ladder_start(r->s, ladder) - 1, found = from;
    for (int at = from - 1, step = 1; large + 1 < found; step *= 2) {
        if (fits(r, x, at))
            found = at;
        else
            large = at;
        const int back = found - step;
        at = large < ladder_start(r->s, ladder) && back >= ladder_start(r->s, ladder) ? back
                                                                                      : (large + found) / 2;
    }
    return found == from && !ladder && x->of.choice.offload_values == OFFLOAD_ALL
               ? first_from_start(r, x, from)
               : found;
}

/* Without the last values, if they do not work in the record. */
static int possible_end(const Searcher *s, const Record *x, int ladder)
{
    int end = ladder_end(s, ladder);
    Candidate y = {.choice = x->of.choice};
    while (end > ladder_start(s, ladder) && !search_take(s, &y, SETTING_RECOMPUTE, end - 1))
        end--;
    return end;
}

/* Finds what fits. Returns whether more is saved than in the record that this one is a step from, or, if
 * nothing fits in either, it needs less. */
static bool measure(Records *r, Record *x, const Record *from)
{
    bool better = false;
    /* what fits is tried with less saved too if saved values are copied to the host: there is less to copy */
    const bool all_fits = !from && !x->of.choice.offload_values && !x->of.choice.offload && fits(r, x, 0);
    for (int ladder = 0; ladder < ladders(r->s); ladder++) {
        const int all = possible_end(r->s, x, ladder),
                  end = from && from->saved[ladder] < all ? from->saved[ladder] : all;
        x->saved[ladder] = all_fits ? ladder_start(r->s, ladder) : first_that_fits(r, x, ladder, end);
        better |= x->saved[ladder] < end;
    }
    const bool none = !from || from->saved[0] == ladder_end(r->s, 0);
    return better || !from || (none && x->needs < from->needs);
}

/* Whether it is faster with as much saved, as chunks of heads whose transfers overlap. */
static bool is_faster(Records *r, Record *x, const Record *from)
{
    return isfinite(from->step) && fits(r, x, from->saved[0]) && x->step < from->step * (1 - SEARCH_TIE);
}

static double to_undercut(const Records *r)
{
    return fmin(search_seconds(&r->best), search_fastest(r->s)) * (1 - SEARCH_TIE);
}

static bool is_known(const Records *r, const int *value)
{
    for (int i = 0; i < r->all.n; i++)
        if (memcmp(r->all.at[i].value, value, sizeof r->all.at[i].value) == 0)
            return true;
    return false;
}

/* Whether a value counts as a step where it is only faster: the next one, and twice as many chunks of heads,
 * since numbers between these may leave chunks uneven. */
static bool is_near(const Record *from, const Record *x, int place)
{
    return x->value[place] == from->value[place] + 1 ||
           (place == HEAD_CHUNKS && x->of.choice.head_chunks == 2 * from->of.choice.head_chunks);
}

/* Adds the record with another value of a setting, unless it cannot win or is no step. Returns whether it was
 * a step. */
static bool add(Records *r, const int *value, const Record *from, int place)
{
    Record x = {.needs = SIZE_MAX, .step = INFINITY};
    memcpy(x.value, value, sizeof x.value);
    if (is_known(r, value))
        return true;
    if (!make(r, value, &x.of))
        return false;
    x.least = search_least_own(r->s, &x.of);
    if (x.least >= to_undercut(r) ||
        (!measure(r, &x, from) && !(from && is_near(from, &x, place) && is_faster(r, &x, from))))
        return false;
    *vec_push(r->arena, &r->all) = x;
    return true;
}

/* Steps of each setting alone; of the optimizer's places, which need as much memory, all. */
static void split(Records *r, int at)
{
    const Record from = r->all.at[at];
    r->all.at[at].split = true;
    for (int place = 0; place < PLACES; place++) {
        int value[PLACES];
        bool stepped = false;
        memcpy(value, from.value, sizeof value);
        while (++value[place] < values_of(r, place) && !stepped)
            if (place != OPTIMIZER || may_update(r->s->program, value[place]))
                stepped = add(r, value, &from, place) && place != OPTIMIZER;
    }
}

/* The record with the lowest bound whose steps were not made; -1: none can win. */
static int next_record(const Records *r)
{
    int next = -1;
    for (int i = 0; i < r->all.n; i++)
        if (!r->all.at[i].split && r->all.at[i].least < to_undercut(r) &&
            (next < 0 || r->all.at[i].least < r->all.at[next].least))
            next = i;
    return next;
}

static bool has_escalated(const Candidate *x)
{
    bool any = x->choice.offload_values || x->choice.optimizer;
    for (int setting = 0; setting < SETTING_COUNT; setting++)
        any |= settings[setting]->escalates && x->value[setting] > 0;
    return any;
}

Candidate search_escalate_otherwise(Searcher *s, const Candidate *best)
{
    Records r = {.s = s, .base = best, .arena = arena_new(), .best = *best, .host = has_escalated(best)};
    const int first[PLACES] = {0};
    add(&r, first, NULL, 0);
    for (int at = next_record(&r); at >= 0; at = next_record(&r))
        split(&r, at);
    arena_free(r.arena);
    return r.best;
}
