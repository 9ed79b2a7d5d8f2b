/* search/bounds.c: what a candidate takes at least, before it is tried, and which candidates another one
 * outdoes. */
#include "search/internal.h"

#include <math.h>

/* ---- lower bounds ---- */

/* A draft for bounds alone. */
static Draft bounded(Searcher *s, Arena *a, const Choice *c)
{
    return search_uncopied(s, search_begin(s, a, diags_new(a), c));
}

/* By computing alone, cached for all that compute the same. */
static double computing_seconds(Searcher *s, Arena *a, const Choice *c, const Draft *t)
{
    double *shared = search_computing(s, c), least = shared ? *shared : 0;
    if (!least && t->attention.n)
        least = sequence_seconds(s->program, cost_bound_computing(a, t).any_weights);
    if (shared)
        *shared = least;
    return least;
}

/* With attention that takes its computing, or its bytes over the busiest link. */
static double moving_seconds(Searcher *s, Arena *a, const Draft *of)
{
    Draft t = *of;
    t.attended = choice_keeps_tail(&t.choice) ? NULL : search_attended_least(s, of);
    return t.attended ? sequence_seconds(s->program, cost_bound(a, &t).any_weights) : 0;
}

/* With simulated attention. */
static Bound simulated(Searcher *s, Arena *a, Draft *t)
{
    search_add_ranges(s, a, t);
    t->attended = search_busiest(s, t);
    return cost_bound(a, t);
}

/* For any value of `weights`. Most candidates lose by computing alone; then most by the bytes that attention
 * moves, before it is simulated. */
double search_least_any(Searcher *s, const Choice *c)
{
    const double most = search_to_win(s, c), *known = search_computing(s, c);
    if (known && *known > most)
        return *known;
    Arena *a = arena_new();
    Draft t = bounded(s, a, c);
    double least = computing_seconds(s, a, c, &t);
    if (t.attention.n && least <= most)
        least = fmax(least, moving_seconds(s, a, &t));
    if (t.attention.n && least <= most)
        least = sequence_seconds(s->program, simulated(s, a, &t).any_weights);
    arena_free(a);
    return least;
}

double search_least_own(Searcher *s, const Candidate *x)
{
    Arena *a = arena_new();
    Draft t = bounded(s, a, &x->choice);
    const double least = t.attention.n ? sequence_seconds(s->program, simulated(s, a, &t).step) : 0;
    arena_free(a);
    return least;
}

double search_least_computing(Searcher *s, const Candidate *x)
{
    const double *known = search_computing(s, &x->choice);
    if (known && *known)
        return *known;
    Arena *a = arena_new();
    const Draft t = bounded(s, a, &x->choice);
    const double least = computing_seconds(s, a, &x->choice, &t);
    arena_free(a);
    return least;
}

double search_least_moving(Searcher *s, const Candidate *x)
{
    Arena *a = arena_new();
    const Draft t = bounded(s, a, &x->choice);
    const double least = t.attention.n ? moving_seconds(s, a, &t) : 0;
    arena_free(a);
    return least;
}

/* ---- less strain ---- */

void search_add_rival(Searcher *s, const Candidate *x)
{
    Arena *a = arena_new();
    Rival r = {*x, {0}};
    Draft t = search_begin(s, a, diags_new(a), &x->choice);
    if (t.attention.n && !x->choice.of_mask) {
        search_add_ranges(s, a, &t);
        const Memory m = memory_make(a, &t);
        const StepParts *p = search_busiest(s, &t);
        r.strain.memory = (double)(m.total + m.beside) + (double)(m.scratch + m.keys);
        for (int k = 0; k < p->kinds; k++)
            for (int i = ATTEND_FORWARD; i <= ATTEND_BACKWARD; i++) {
                const AttentionTime *time = &p->kind[k].time[i];
                r.strain.seconds += p->kind[k].layers * time->seconds;
                r.strain.link += p->kind[k].layers * time->link_bytes;
                r.strain.nic += p->kind[k].layers * time->nic_bytes;
                r.strain.busiest += p->kind[k].layers * time->moving;
            }
        *vec_push(s->arena, s->rivals) = r;
    }
    arena_free(a);
}

void search_drop_rival(Searcher *s, const Candidate *x)
{
    s->rivals->n -= s->rivals->n > 0 && s->rivals->at[s->rivals->n - 1].of.order == x->order;
}

/* Whether two candidates differ only in weights and in how ranks exchange attention. */
static bool same_but_exchange(const Searcher *s, const Candidate *x, const Candidate *y)
{
    static const unsigned may = 1u << SETTING_SCHEDULE | 1u << SETTING_CONTEXT | 1u << SETTING_PLACEMENT |
                                1u << SETTING_TRAVEL | 1u << SETTING_WEIGHTS;
    bool same = choice_exchanges(&x->choice) == choice_exchanges(&y->choice) &&
                x->choice.latents == y->choice.latents && choice_same(&x->choice, &y->choice, KEY_COUNTS) &&
                /* a schedule's best by its plan is compared over drawn batches */
                (!mask_draws(s->program) || x->choice.schedule == y->choice.schedule);
    for (int i = 0; i < SETTING_COUNT && same; i++)
        same = (may >> i & 1) || x->value[i] == y->value[i];
    return same;
}

static const Rival *rival_of(const Searcher *s, const Candidate *x)
{
    for (int i = 0; i < s->rivals->n; i++)
        if (s->rivals->at[i].of.order == x->first)
            return &s->rivals->at[i];
    return NULL;
}

bool search_outdone(Searcher *s, const Candidate *x)
{
    const Rival *own = rival_of(s, x);
    const double most = step_seconds(s->program, search_to_win(s, &x->choice));
    bool outdone = false;
    for (int i = 0; i < s->rivals->n && own && !outdone; i++) {
        const Rival *r = &s->rivals->at[i];
        const Strain *a = &r->strain, *b = &own->strain;
        const bool simpler = r->of.order < own->of.order || b->seconds - a->seconds > SEARCH_TIE * most;
        outdone = r != own && simpler && a->seconds <= b->seconds && a->link <= b->link && a->nic <= b->nic &&
                  a->busiest <= b->busiest && a->memory <= b->memory && same_but_exchange(s, &r->of, x);
    }
    return outdone;
}
