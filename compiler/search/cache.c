/* search/cache.c: what candidates have in common: partitions with their counted pairs, and the places of
 * values; of candidates that are judged and freed again, what they take alone, found once for all that
 * have the same step. */
#include "search/internal.h"

#include <string.h>

const Parted *search_parted(Searcher *s, const Choice *c)
{
    for (int i = 0; i < s->parted.n; i++)
        if (choice_same(&s->parted.at[i].choice, c, KEY_COUNTS))
            return &s->parted.at[i];
    const Partition *p = partition_shared(s->arena, c->partition, c->block, s->program->sequence, c->ranks,
                                          c->share);
    PairCounts **counts = NEW_ARRAY(s->arena, PairCounts *, s->program->mask_count);
    for (int m = 0; m < s->program->mask_count; m++)
        counts[m] = pair_counts(s->arena, s->maps[m], p, choice_pieces(c));
    Parted *made = vec_push(s->arena, &s->parted);
    *made = (Parted){*c, p, counts};
    return made;
}

bool search_ranges(Searcher *s, Arena *a, const Draft *t)
{
    for (int i = 0; i < s->ranged.n && !t->choice.of_mask; i++)
        if (choice_same(&s->ranged.at[i].choice, &t->choice, KEY_RANGES))
            return s->ranged.at[i].ranges;
    const bool ranges = ranges_wanted(a, t);
    if (!t->choice.of_mask)
        *vec_push(s->arena, &s->ranged) = (Ranged){t->choice, ranges};
    return ranges;
}

const struct StepParts *search_attended(Searcher *s, const Draft *t)
{
    if (t->choice.of_mask)
        return NULL;
    for (int i = 0; i < ATTENDED && i < s->attends; i++)
        if (choice_same(&s->attended[i].choice, &t->choice, KEY_ATTENTION))
            return s->attended[i].parts;
    Attended *x = &s->attended[s->attends++ % ATTENDED];
    if (x->arena)
        arena_free(x->arena);
    *x = (Attended){.choice = t->choice, .arena = arena_new()};
    StepParts *parts = NEW(x->arena, StepParts);
    *parts = cost_attended(x->arena, t);
    x->parts = parts;
    return parts;
}

void search_forget(Searcher *s)
{
    for (int i = 0; i < ATTENDED && i < s->attends; i++)
        arena_free(s->attended[i].arena);
    s->attends = 0;
}

/* A packing that takes no more than it may need not be the best there is: it says as much where the same
 * holds. */
static bool says_as_much(const StepFigures *r, MemoryBudget fits)
{
    return (r->packed <= r->fits.device) == (r->packed <= fits.device) &&
           (r->host <= r->fits.host) == (r->host <= fits.host);
}

/* Of the same step; one whose values were not placed serves what is as surely too large. NULL: none was
 * found yet. */
static const StepFigures *known_room(const Searcher *s, const Draft *t, MemoryBudget fits)
{
    const unsigned keys = choice_step_keys(&t->choice);
    for (int i = 0; i < s->figures.n; i++) {
        const StepFigures *r = &s->figures.at[i];
        if (r->tokens == t->partition->max_tokens && r->scratch == t->memory.scratch &&
            r->keys == t->memory.keys && choice_same(&r->choice, &t->choice, keys) &&
            (r->unpacked ? r->packed > fits.device : says_as_much(r, fits)))
            return r;
    }
    return NULL;
}

/* A flow that says no more than what it takes. */
static Flow *flow_of(Arena *a, const StepFigures *r)
{
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

Flow *search_flow(Searcher *s, Arena *a, const Draft *t)
{
    const bool stays = a == s->arena;
    /* with others: what it takes at least, or that it fits, is enough */
    const bool compares = s->cuts && !stays;
    const MemoryBudget fits = compares ? memory_budget(t) : (MemoryBudget){0};
    const StepFigures *known = stays ? NULL : known_room(s, t, fits);
    if (known)
        return flow_of(a, known);
    Step *step = step_make(a, t->program, t->attention.at[0].choice, t->partition, t->units,
                           step_pairs(a, t->program, &t->choice, t->partition, t->counts), t->memory.scratch,
                           t->memory.keys);
    Flow *f = step_place(a, step, t->program->target->align, fits, compares);
    *vec_push(s->arena, &s->figures) = (StepFigures){t->choice,
                                                     t->partition->max_tokens,
                                                     t->memory.scratch,
                                                     t->memory.keys,
                                                     f->packed,
                                                     f->host,
                                                     f->state,
                                                     f->host_state,
                                                     fits,
                                                     f->unpacked};
    return f;
}

bool search_large_with_any(const Program *p, const Draft *t)
{
    const Cluster *c = &p->cluster;
    const size_t least = t->memory.total + t->memory.beside - (size_t)(t->memory.scratch + t->memory.keys);
    const bool large = (double)least > cluster_least_memory(c)->memory ||
                       (double)t->memory.offloaded * cluster_most_ranks(c) > c->host_memory;
    return large && t->partition->max_tokens == (p->sequence + t->choice.ranks - 1) / t->choice.ranks;
}
