/* search/cache.c: results that candidates share: partitions with counted pairs, packings of values, and, for
 * candidates that are freed after their evaluation, memory figures by step. */
#include "search/internal.h"

#include "burst_sizes.h"

#include <string.h>

const Parted *search_parted(Searcher *s, const Choice *c)
{
    Counted *all = s->counted;
    for (int i = 0; i < all->parted.n; i++)
        if (choice_same(&all->parted.at[i].choice, c, KEY_COUNTS))
            return &all->parted.at[i];
    const Partition *p = partition_shared(all->arena, c->partition, c->block, s->program->sequence, c->ranks,
                                          c->share);
    PairCounts **counts = NEW_ARRAY(all->arena, PairCounts *, s->program->mask_count);
    for (int m = 0; m < s->program->mask_count; m++)
        counts[m] = pair_counts(all->arena, all->maps[m], p, choice_pieces(c));
    Parted *made = vec_push(all->arena, &all->parted);
    *made = (Parted){*c, p, counts};
    return made;
}

static void forget_loaded(Searcher *s)
{
    arena_free(s->loaded.arena);
    s->loaded = (Loaded){0};
}

static bool is_loaded(const Searcher *s, const Draft *t)
{
    return s->loaded.loads && choice_same(&s->loaded.choice, &t->choice, KEY_RANGES);
}

/* Finds whether transfers carry ranges and then, with these, the launches; if some are not as the draft has
 * them, ranges once more. Loads are kept for the draft if its schedules stay as they are. */
static Ranged find_ranges(Searcher *s, const Draft *t)
{
    Loaded *x = &s->loaded;
    if (!x->least || !is_loaded(s, t)) {
        forget_loaded(s);
        *x = (Loaded){.choice = t->choice, .arena = arena_new()};
    } else {
        loads_bind(x->arena, t, x->loads);
    }
    x->least = NULL;
    Ranged found;
    Draft with = *t;
    Choice *c = &with.choice;
    bool each[2];
    c->ranges = ranges_wanted(x->arena, t, &x->loads, &found.open);
    attentions_decide(&with.attention, with.program, c);
    launches_wanted(&with, each);
    c->head_pieces = head_pieces_wanted(&with);
    const bool changed = each[0] || each[1];
    if (changed) {
        memcpy(c->each_chunk, each, sizeof each);
        with.attention = attentions_make(x->arena, diags_new(x->arena), with.program, c);
        c->ranges = ranges_wanted(x->arena, &with, NULL, &found.open);
    }
    found.choice = x->choice = *c;
    if (changed || c->head_pieces > 1)
        forget_loaded(s);
    return found;
}

static const Ranged *known_ranges(const Searcher *s, const Draft *t)
{
    const int known = memo_find(&s->ranged_choices, &t->choice, KEY_RANGES);
    return known < 0 ? NULL : &s->ranged.at[known];
}

const struct StepParts *search_attended_least(Searcher *s, const Draft *t)
{
    if (!ranges_open(t) || choice_chunks_queries(&t->choice) || t->shape.short_chunks || t->choice.of_mask ||
        known_ranges(s, t))
        return NULL;
    Loaded *x = &s->loaded;
    if (x->least && is_loaded(s, t))
        return x->least;
    forget_loaded(s);
    *x = (Loaded){.choice = t->choice, .arena = arena_new()};
    x->loads = NEW(x->arena, AttentionLoads);
    *x->loads = cost_loads(x->arena, t);
    StepParts *least = NEW(x->arena, StepParts);
    Draft with = *t;
    with.loads = x->loads;
    *least = cost_attended_least(x->arena, &with);
    x->least = least;
    return least;
}

Ranged search_ranges(Searcher *s, const Draft *t)
{
    const Ranged *known = known_ranges(s, t);
    if (known)
        return *known;
    const Ranged found = find_ranges(s, t);
    memo_add(s->arena, &s->ranged_choices, &t->choice, KEY_RANGES);
    *vec_push(s->arena, &s->ranged) = found;
    return found;
}

/* loads: NULL, or the draft's. */
static const StepParts *attend(Arena *a, const Draft *t, AttentionLoads *loads)
{
    Draft of = *t;
    of.loads = loads;
    StepParts *parts = NEW(a, StepParts);
    *parts = cost_attended(a, &of);
    return parts;
}

static bool differs_in_ranges(const Attended *x, const Choice *c)
{
    Choice other = x->choice;
    other.ranges = !other.ranges;
    return x->loads && choice_same(&other, c, KEY_RANGES | KEY_RUNS);
}

static const StepParts *attended_otherwise(Searcher *s, Attended *x, const Draft *t)
{
    if (!x->other)
        x->other = attend(x->arena ? x->arena : s->arena, t, x->loads);
    return x->other;
}

const struct StepParts *search_attended(Searcher *s, const Draft *t)
{
    for (int i = 0; i < ATTENDED && i < s->attends; i++) {
        Attended *x = &s->attended[i];
        if (choice_same(&x->choice, &t->choice, KEY_RANGES | KEY_RUNS))
            return x->parts;
        if (differs_in_ranges(x, &t->choice))
            return attended_otherwise(s, x, t);
    }
    Attended *x = &s->attended[s->attends++ % ATTENDED];
    arena_free(x->arena);
    AttentionLoads *loads = NULL;
    if (is_loaded(s, t) && choice_same(&s->loaded.choice, &t->choice, KEY_RUNS)) {
        loads = s->loaded.loads;
        *x = (Attended){.choice = t->choice, .arena = s->loaded.arena};
        s->loaded = (Loaded){0};
    } else {
        *x = (Attended){.choice = t->choice, .arena = arena_new()};
    }
    x->parts = attend(x->arena, t, loads);
    x->loads = loads && !choice_chunks_queries(&t->choice) ? loads->other : NULL; /* not changed in place */
    return x->parts;
}

const struct StepParts *search_keep_attended(Searcher *s, const Draft *t)
{
    const StepParts *parts = search_attended(s, t);
    for (int i = 0; i < ATTENDED && i < s->attends; i++) {
        Attended *x = &s->attended[i];
        if ((x->parts != parts && x->other != parts) || !x->arena)
            continue;
        arena_join(s->arena, x->arena);
        x->arena = NULL;
    }
    return parts;
}

const struct StepParts *search_busiest(Searcher *s, const Draft *t)
{
    if (choice_keeps_tail(&t->choice))
        return search_attended(s, t);
    const int known = memo_find(&s->busiest_choices, &t->choice, KEY_RANGES);
    if (known >= 0)
        return s->busiest.at[known];
    StepParts *parts = NEW(s->arena, StepParts);
    *parts = cost_busiest(s->arena, search_attended(s, t));
    memo_add(s->arena, &s->busiest_choices, &t->choice, KEY_RANGES);
    *vec_push(s->arena, &s->busiest) = parts;
    return parts;
}

/* Whether the step's operations take the same time on all ranks, whatever the partition. */
static bool is_even(const Program *p, const Draft *t)
{
    return t->partition->max_tokens * t->partition->ranks == p->sequence && !cost_mixed(&p->cluster) &&
           !choice_chunks_keys(&t->choice) && !partition_scan_pieces(p, t->partition) && !p->infer.lengths;
}

const struct StepModel *search_model(Searcher *s, const Draft *t)
{
    const unsigned keys = KEY_STEP | KEY_COUNTS | (cost_mixed(&s->program->cluster) ? KEY_ATTENDS : 0);
    const bool even = is_even(s->program, t);
    Modelled *x = &s->modelled[0]; /* the least recently used */
    for (int i = 0; i < MODELLED; i++) {
        Modelled *y = &s->modelled[i];
        const bool alike = even && y->even && y->choice.ranks == t->choice.ranks;
        if (y->model && choice_same(&y->choice, &t->choice, alike ? KEY_STEP : keys)) {
            y->used = ++s->uses;
            return y->model;
        }
        x = y->used < x->used ? y : x;
    }
    arena_free(x->arena);
    *x = (Modelled){.choice = t->choice, .even = even, .arena = arena_new()};
    Draft of = *t;
    of.units = units_make(x->arena, t->program, &t->shape, t->choice.within,
                          choice_slices(t->program, &t->choice));
    x->used = ++s->uses;
    x->model = cost_model(x->arena, &of);
    return x->model;
}

Draft search_uncopied(Searcher *s, Draft t)
{
    Draft x = cost_uncopied(&t);
    x.model = x.attention.n ? search_model(s, &x) : NULL;
    return x;
}

bool search_attention_holds(Searcher *s, Arena *a, Diags *d, const Draft *t)
{
    const unsigned keys = KEY_COUNTS | KEY_RANGES | KEY_RUNS;
    if (memo_find(&s->proved, &t->choice, keys) >= 0)
        return true;
    const bool holds = verify_attention(a, d, t);
    if (holds)
        memo_add(s->arena, &s->proved, &t->choice, keys);
    return holds;
}

void search_forget(Searcher *s)
{
    for (int i = 0; i < ATTENDED && i < s->attends; i++)
        arena_free(s->attended[i].arena);
    s->attends = 0, memset(s->attended, 0, sizeof s->attended);
    for (int i = 0; i < MODELLED; i++)
        arena_free(s->modelled[i].arena);
    memset(s->modelled, 0, sizeof s->modelled);
    forget_loaded(s);
    if (s->drawn)
        drawn_forget(s->drawn);
}

/* ---- what ranks compute ---- */

/* The side of attention that never travels. If proofs hold and there are as many attentions as the rank has
 * pairs of chunks, each is one pair. */
static StationarySide stationary_side(const Schedule *s)
{
    const Choice *c = s->choice;
    int n = 0, away[2] = {0};
    for (int at = 0; at < s->trace.n; at++) {
        const Instance *i = &s->trace.at[at];
        if (i->node->kind != N_COMPUTE)
            continue;
        n++;
        for (int side = 0; side < 2; side++)
            away[side] += i->chunk[side] % c->ranks != 0;
    }
    if (n != choice_rows(c, s->backward) * choice_pieces(c) || (away[0] && away[1]))
        return STATIONARY_NONE;
    return away[0] ? STATIONARY_KEYS : STATIONARY_QUERIES;
}

static const Stationary *stationary_of(Searcher *s, const Choice *c)
{
    for (int i = 0; i < s->stationary.n; i++) {
        const Stationary *h = &s->stationary.at[i];
        if (h->schedule == c->schedule && h->travel == c->travel && h->coords == c->coords &&
            memcmp(h->size, c->size, sizeof h->size) == 0)
            return h;
    }
    Stationary h = {c->schedule, c->travel, c->coords, {0}, {STATIONARY_NONE, STATIONARY_NONE}};
    memcpy(h.size, c->size, sizeof h.size);
    Arena *a = arena_new();
    const Attentions t = attentions_make(a, diags_new(a), s->program, c);
    for (int backward = 0; backward < 2 && t.n; backward++)
        h.side[backward] = stationary_side(attentions_schedule(&t, 0, backward));
    arena_free(a);
    *vec_push(s->arena, &s->stationary) = h;
    return &s->stationary.at[s->stationary.n - 1];
}

/* Ranks that share heads have the chunks of all of them together. */
static bool same_chunks(const Choice *x, const Choice *y, bool backward)
{
    const int shares = choice_shares(x, backward);
    return shares == choice_shares(y, backward) &&
           (shares == 1 || x->stride[x->schedule->exchanged] == y->stride[y->schedule->exchanged]);
}

double *search_computing(Searcher *s, const Choice *c)
{
    if (s->program->cluster.group_count > 1 || c->of_mask)
        return NULL;
    const Stationary of = *stationary_of(s, c);
    if (of.side[0] == STATIONARY_NONE || of.side[1] == STATIONARY_NONE)
        return NULL;
    for (int i = 0; i < s->computed.n; i++) {
        Computed *x = &s->computed.at[i];
        if (x->of.side[0] == of.side[0] && x->of.side[1] == of.side[1] &&
            same_chunks(&x->choice, c, false) && same_chunks(&x->choice, c, true) &&
            choice_same(&x->choice, c, KEY_STEP | KEY_COUNTS | KEY_ESCALATION))
            return &x->least;
    }
    Computed *x = vec_push(s->arena, &s->computed);
    *x = (Computed){*c, of, 0};
    return &x->least;
}

/* ---- values of a step ---- */

/* Whether a packing made for another budget answers this one: it was only improved until it fitted, so it
 * must be on the same side of both budgets. */
static bool says_as_much(const StepFigures *r, MemoryBudget fits)
{
    return r->fits.quick == fits.quick && (r->packed <= r->fits.device) == (r->packed <= fits.device) &&
           (r->packed <= r->fits.limit) == (r->packed <= fits.limit) &&
           (r->host <= r->fits.host) == (r->host <= fits.host);
}

/* Figures of the same step. One without packed values answers only if it is surely too large here too. NULL:
 * none yet. */
static const StepFigures *known_room(const Searcher *s, const Draft *t, MemoryBudget fits, MemoryBudget most,
                                     bool exact)
{
    const unsigned keys = choice_step_keys(&t->choice);
    for (int i = 0; i < s->figures.n; i++) {
        const StepFigures *r = &s->figures.at[i];
        if ((r->exact || !exact) && r->tokens == t->partition->max_tokens &&
            r->pieces == partition_scan_pieces(t->program, t->partition) && r->scratch == t->memory.scratch &&
            r->keys == t->memory.keys && choice_same(&r->choice, &t->choice, keys) &&
            (r->unpacked ? memory_over(most, r->packed, r->host) : says_as_much(r, fits)))
            return r;
    }
    return NULL;
}

/* A flow with nothing but its memory figures, unless all of it is kept. */
static Flow *flow_of(Arena *a, const StepFigures *r)
{
    if (r->exact)
        return r->exact;
    Step *step = NEW(a, Step);
    Flow *f = NEW(a, Flow);
    step->choice = r->choice;
    *f = (Flow){.step = step,
                .unpacked = r->unpacked,
                .packed = r->packed,
                .host = r->host,
                .state = r->state,
                .host_state = r->host_state};
    return f;
}

Flow *search_flow(Searcher *s, Arena *a, const Draft *t, bool exact)
{
    /* among many candidates it is enough that it fits; if it does not, a lower bound is enough */
    const MemoryBudget most = exact ? MEMORY_UNBOUNDED : memory_budget(t);
    MemoryBudget fits = s->many && !exact ? most : (MemoryBudget){0};
    fits.quick = s->many && !exact && !s->thorough;
    fits.limit = memory_budget(t).device;
    const StepFigures *known = known_room(s, t, fits, most, exact);
    if (known)
        return flow_of(a, known);
    Step *step = step_make(a, t->program, t->attention.at[0].choice, t->partition, t->units,
                           step_pairs(a, t->program, &t->choice, t->partition, t->counts), t->memory.scratch,
                           t->memory.keys);
    Flow *f = step_place(a, step, t->program->target->align, fits, most);
    *vec_push(s->arena, &s->figures) = (StepFigures){t->choice,
                                                     t->partition->max_tokens,
                                                     partition_scan_pieces(t->program, t->partition),
                                                     t->memory.scratch,
                                                     t->memory.keys,
                                                     f->packed,
                                                     f->host,
                                                     f->state,
                                                     f->host_state,
                                                     fits,
                                                     f->unpacked,
                                                     exact && a == s->arena ? f : NULL};
    return f;
}

Active search_active(Searcher *s, Arena *a, const Draft *t)
{
    const unsigned keys = choice_step_keys(&t->choice);
    const int pieces = partition_scan_pieces(t->program, t->partition);
    for (int i = 0; i < s->active.n; i++) {
        const Active *x = &s->active.at[i];
        if (x->judged == s->judged && x->tokens == t->partition->max_tokens && x->pieces == pieces &&
            choice_same(&x->choice, &t->choice, keys))
            return *x;
    }
    const Flow *f = step_flow(a, step_make(a, t->program, t->attention.at[0].choice, t->partition, t->units,
                                           step_pairs(a, t->program, &t->choice, t->partition, t->counts), 0,
                                           0));
    const Active x = {.choice = t->choice,
                      .tokens = t->partition->max_tokens,
                      .pieces = pieces,
                      .judged = s->judged,
                      .device = (size_t)(s->judged == JUDGED_VALUES ? f->live_peak
                                                                    : flow_active_peak(a, f, false)),
                      .host = (size_t)flow_active_peak(a, f, true)};
    *vec_push(s->arena, &s->active) = x;
    return x;
}

bool search_large_with_any(const Program *p, const Draft *t)
{
    const Cluster *c = &p->cluster;
    /* device memory besides the plan's buffers, with one channel */
    const size_t beside = t->memory.beside ? (size_t)burst_gpu_beside_bytes(c->nodes, 0, 1) : 0,
                 least = t->memory.total + beside - (size_t)(t->memory.scratch + t->memory.keys);
    const bool large = (double)least > cluster_least_memory(c)->memory ||
                       (double)t->memory.offloaded * cluster_most_ranks(c) > c->host_memory;
    return large && t->partition->max_tokens == (p->sequence + t->choice.ranks - 1) / t->choice.ranks;
}
