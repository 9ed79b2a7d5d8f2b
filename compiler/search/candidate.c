/* search/candidate.c: evaluates one candidate, from a choice to its cost: read search_evaluate() from top to
 * bottom. search/cache.c has what candidates share. */
#include "search/internal.h"


#include <math.h>
#include <string.h>

Counted *counted_new(Arena *a, const Program *p)
{
    Counted *c = NEW(a, Counted);
    c->arena = a;
    c->maps = NEW_ARRAY(a, MaskMap *, p->mask_count);
    for (int m = 0; m < p->mask_count; m++)
        c->maps[m] = mask_map(a, p, m, BURST_TILE, BURST_TILE);
    return c;
}

/* A rank's attention in forward of a layer, with perfect balance; mean over layers. */
static AttentionWork work_of_rank(const Searcher *s, const Draft *t)
{
    const Program *p = s->program;
    const double share = 1.0 / p->model.layers / t->choice.ranks;
    AttentionWork sum = {0};
    for (int l = 0; l < p->model.layers; l++) {
        const AttentionWork w =
            attention_work(p, false, pair_whole(t->counts[p->layer_mask[l]]), p->sequence, p->sequence);
        sum.pairs += w.pairs * share;
        sum.partial += attention_predicate(p, p->layer_mask[l], p->model.head_dim) * w.partial * share;
        sum.rows += w.rows * share;
    }
    return sum;
}

static Unsaved unsaved(const Searcher *s, const Draft *t)
{
    return (Unsaved){.shape = t->shape,
                     .tokens = t->partition->max_tokens,
                     .pieces = partition_scan_pieces(s->program, t->partition),
                     .within = t->choice.within,
                     .slices = choice_slices(s->program, &t->choice)};
}

static bool same_unsaved(const Unsaved *x, const Unsaved *y)
{
    return memcmp(&x->shape, &y->shape, sizeof x->shape) == 0 && x->tokens == y->tokens &&
           x->pieces == y->pieces && x->within == y->within && x->slices == y->slices;
}

/* The same for all values of `recompute` that are shares. */
static const SavedStages *stages_of(Searcher *s, const Draft *t, const Shape *whole)
{
    Staged x = {.of = unsaved(s, t), .attended = work_of_rank(s, t)};
    for (int i = 0; i < s->staged.n; i++)
        if (same_unsaved(&s->staged.at[i].of, &x.of) &&
            memcmp(&s->staged.at[i].attended, &x.attended, sizeof x.attended) == 0)
            return s->staged.at[i].stages;
    x.stages = saved_stages(s->arena, s->program, whole, t->partition, t->units, x.attended);
    *vec_push(s->arena, &s->staged) = x;
    return x.stages;
}

static const char *offload_of(Searcher *s, const Draft *t, const Shape *whole)
{
    const Choice *c = &t->choice;
    Offloaded x = {unsaved(s, t), saving_of(c), c->offload_layers, c->offload_values, NULL};
    for (int i = 0; i < s->offloaded.n; i++) {
        const Offloaded *y = &s->offloaded.at[i];
        if (x.layers == y->layers && x.values == y->values && same_unsaved(&x.of, &y->of) &&
            saving_same(x.saving, y->saving))
            return y->set;
    }
    x.set = offload_at(s->arena, s->program, whole, t->partition, t->units, x.saving, x.layers, x.values);
    *vec_push(s->arena, &s->offloaded) = x;
    return x.set;
}

/* Chooses what layers save and offload, if the settings give only numbers. */
static void decide_saving(Searcher *s, Draft *t)
{
    Choice *c = &t->choice;
    const Shape whole = shape_unchunked(t->shape);
    if (c->spared)
        c->saving = saving_in(s->arena, stages_of(s, t, &whole), 1 - (double)c->spared / SAVING_LEVELS);
    if (c->offload_values)
        c->offload = offload_of(s, t, &whole);
}

Candidate search_untried(const Candidate *from)
{
    Candidate x = {.choice = from->choice, .order = from->order, .first = from->first};
    memcpy(x.value, from->value, sizeof x.value);
    return x;
}

Draft search_begin(Searcher *s, Arena *a, Diags *d, const Choice *choice)
{
    const Parted *part = search_parted(s, choice);
    Draft t = {.program = s->program,
               .choice = *choice,
               .shape = shape_of(s->program, choice),
               .partition = part->partition,
               .counts = part->counts,
               .drawn = s->drawn};
    memset(t.choice.each_chunk, 0, sizeof t.choice.each_chunk); /* until they are found */
    t.choice.head_pieces = 0;
    t.units = units_make(a, t.program, &t.shape, choice->within, choice_slices(t.program, choice));
    t.attention = attentions_make(a, d, t.program, &t.choice);
    if (!t.attention.n)
        return t;
    decide_saving(s, &t);
    attentions_decide(&t.attention, t.program, &t.choice);
    return t;
}

void search_add_ranges(Searcher *s, Arena *a, Draft *t)
{
    Choice *c = &t->choice;
    const Ranged found = search_ranges(s, t);
    const Setting *given = &s->program->layout.ranges;
    choice_copy(c, &found.choice, KEY_RUNS);
    c->whole = !c->ranges && !given->is_auto && !given->value;
    if (c->each_chunk[0] || c->each_chunk[1])
        t->attention = attentions_make(a, diags_new(a), t->program, c);
    attentions_decide(&t->attention, t->program, c);
}

Draft search_draft(Searcher *s, Arena *a, Diags *d, const Choice *choice, bool exact)
{
    Draft t = search_begin(s, a, d, choice);
    if (!t.attention.n)
        return t;
    search_add_ranges(s, a, &t);
    t.memory = memory_make(a, &t);
    memory_add_step(&t.memory, t.program, search_flow(s, a, &t, exact), t.units);
    return t;
}

Draft draft_make(Arena *a, Diags *d, const Program *p, const Choice *c)
{
    Searcher s = {.arena = a, .diags = d, .program = p, .counted = counted_new(a, p)};
    const Draft t = search_draft(&s, a, d, c, true);
    search_forget(&s);
    return t;
}

/* A candidate slower than the best by this factor is not simulated exactly. */
static const double lost = 1.02;

/* The winner is proved as a whole. */
static const Plan *prove(Searcher *s, Arena *a, Diags *d, const Draft *t)
{
    if (a == s->arena)
        return verify(a, d, t);
    return search_attention_holds(s, a, d, t) ? verify_rest(a, d, t) : NULL;
}

static Cost cost_of(Searcher *s, Arena *a, const Draft *of)
{
    Draft t = *of;
    if (a != s->arena) {
        t.attended = search_attended(s, of);
        t.model = search_model(s, of);
    }
    const double most = mask_draws(s->program) ? search_to_win(s, &of->choice) : search_fastest(s);
    /* over drawn batches the winner may be slower by its plan than others */
    return cost_draft(a, &t, a == s->arena ? INFINITY : step_seconds(s->program, lost * most));
}

/* A schedule may deadlock after pruning: a stream runs its transfers in order, and one may wait for another
 * queued after it. */
static bool ends(Diags *d, const Candidate *x)
{
    if (isfinite(x->cost.step))
        return true;
    diag_error(d, x->choice.schedule->span,
               "transfers of schedule '%s' deadlock when pairs that the masks exclude are skipped; use "
               "another partition or another schedule",
               x->choice.schedule->name);
    return false;
}

/* Whether a candidate that does not fit could win if it did: needing less memory never takes less time. */
static void bound_too_large(Searcher *s, Arena *a, Candidate *x, const Draft *of)
{
    double step = 0;
    if (isfinite(search_fastest(s))) {
        Draft t = search_uncopied(s, *of);
        t.attended = a != s->arena ? search_busiest(s, of) : NULL;
        step = cost_bound(a, &t).step;
    }
    x->too_slow = sequence_seconds(s->program, step) > search_to_win(s, &x->choice);
    if (x->too_slow)
        x->why_not = arena_printf(s->arena, "does not fit; with enough memory it would take at least %s",
                                  time_text(s->arena, step, 3));
}

/* Copies what the search reads; the draft may be freed then. */
static void note_draft(Searcher *s, Arena *a, Candidate *x, const Draft *t)
{
    x->choice.saving = t->choice.saving;
    x->choice.offload = t->choice.offload;
    x->choice.ranges = t->choice.ranges;
    x->choice.whole = t->choice.whole;
    x->evaluated = true;
    x->sequences = s->program->train.batch;
    x->too_large = t->attention.n && !memory_fits(t);
    x->fits_device = t->attention.n && device_fits(t);
    x->needs = t->memory.total + t->memory.beside;
    x->host = t->attention.n ? host_needs(t) : 0;
    if (x->too_large && s->cuts)
        bound_too_large(s, a, x, t);
    x->large_with_any = !t->attention.n || search_large_with_any(s->program, t);
    s->might_fit |= x->too_slow || !x->large_with_any;
}

bool search_fits_device(Searcher *s, const Choice *choice)
{
    Arena *a = arena_new();
    const Draft t = search_draft(s, a, diags_new(a), choice, false);
    const bool fits = !t.attention.n || device_fits(&t);
    arena_free(a);
    return fits;
}

void search_evaluate(Searcher *s, Arena *a, Candidate *x, Diags *d)
{
    search_enter(s, &x->choice);
    Draft t = search_draft(s, a, d, &x->choice, a == s->arena);
    if (a == s->arena && t.attention.n)
        t.attended = search_keep_attended(s, &t);
    x->plan = t.attention.n ? prove(s, a, d, &t) : NULL;
    if (x->plan)
        x->cost = cost_of(s, a, plan_draft(x->plan));
    if (x->plan && search_change_ranges(s, a, &t, &x->cost, a == s->arena))
        x->plan = prove(s, a, d, &t);
    if (x->plan && !ends(d, x))
        x->plan = NULL;
    if (!x->plan)
        x->why_not = arena_printf(s->arena, "%s", diags_first(d));
    if (!x->plan && t.attention.n && a == s->arena)
        s->refused = memcpy(NEW(a, Draft), &t, sizeof t);
    note_draft(s, a, x, &t);
}
