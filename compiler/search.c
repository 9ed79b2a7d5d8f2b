/* search.c: decides what the layout leaves open. Every candidate goes through all passes; the fastest by simulation that
 * the verifier accepts wins. A layout that leaves nothing open has one candidate, whose errors are the user's.
 */
#include "burst.h"

#include <stdlib.h>
#include <string.h>

typedef struct Candidate {
    Choice choice;
    const Plan *plan;
    Cost cost;
    const char *why_not;
    bool tried, too_large; /* proof 6 fails: keeping less may help */
    int order; /* of being thought of; the same for what differs in recomputation alone */
} Candidate;

typedef struct Searcher {
    Arena *arena;
    Diags *diags;
    const Program *program;
    MaskMap **maps;
    const Partition *partition[PART_KINDS];
    Units units;
    Vec(Candidate) all;
} Searcher;

/* ---- one candidate ---- */

static MaskMap **make_maps(Arena *a, const Program *p)
{
    enum { TILE = 64 }; /* by which pairs are judged live, on both backends */
    MaskMap **maps = NEW_ARRAY(a, MaskMap *, p->mask_count);
    for (int m = 0; m < p->mask_count; m++)
        maps[m] = mask_map(a, p, m, TILE, TILE);
    return maps;
}

static Draft make_draft(Searcher *s, Diags *d, const Choice *choice)
{
    Choice *c = NEW(s->arena, Choice);
    *c = *choice;
    const Partition **part = &s->partition[c->partition];
    if (!*part)
        *part = partition_make(s->arena, c->partition, c->block, s->program->sequence, c->ranks);
    Draft t = {.program = s->program, .choice = *c, .partition = *part, .maps = s->maps, .units = s->units};
    Schedule *forward = schedule_make(s->arena, d, c, false, 0);
    Schedule *backward = forward ? schedule_make(s->arena, d, c, true, forward->channels) : NULL;
    if (!backward)
        return t;
    schedule_slots(s->arena, forward);
    schedule_slots(s->arena, backward);
    t.memory = memory_make(s->arena, s->program, c, *part, forward, backward, s->units);
    t.forward = forward;
    t.backward = backward;
    return t;
}

/* ---- the choices ---- */

static int ranks_of(const Program *p)
{
    return p->cluster.world / (int)(p->layout.data.is_auto ? 1 : p->layout.data.value);
}

/* Ranks of a group as (node, lane); false where nodes do not divide evenly. */
static bool two_levels(const Program *p, int ranks, int size[MAX_COORDS])
{
    const Cluster *c = &p->cluster;
    int lanes = c->groups[0].gpus;
    for (int g = 1; g < c->group_count; g++)
        if (c->groups[g].gpus != lanes)
            return false;
    bool inside = lanes % ranks == 0;
    size[0] = inside ? 1 : ranks / lanes;
    size[1] = inside ? ranks : lanes;
    return inside || ranks % lanes == 0;
}

static const char *fit_schedule(Searcher *s, Choice *c)
{
    const Layout *l = &s->program->layout;
    const SchedText *t = c->schedule;
    const Setting *one = t->exchanges ? &l->context : &l->heads, *all = t->exchanges ? &l->heads : &l->context;
    if (!one->is_auto && one->value != 1 && c->ranks > 1)
        return arena_printf(s->arena, "the layout asks for %s %lld", t->exchanges ? "context" : "heads", (long long)one->value);
    if (!all->is_auto && all->value != c->ranks)
        return arena_printf(s->arena, "the layout asks for %s %lld", t->exchanges ? "heads" : "context", (long long)all->value);
    if (t->exchanges && c->ranks > s->program->model.heads)
        return arena_printf(s->arena, "%d ranks share %d heads; use at most %d ranks, or a ring", c->ranks,
                            s->program->model.heads, s->program->model.heads);
    c->coords = t->coords;
    c->size[0] = c->ranks;
    if (t->coords == 2 && !two_levels(s->program, c->ranks, c->size))
        return arena_printf(s->arena, "%d ranks do not divide into nodes of equal size", c->ranks);
    return t->backward[c->travel] ? NULL : arena_printf(s->arena, "it has no `backward %s`", travel_names[c->travel]);
}

static bool allows(const Setting *s, int64_t value)
{
    return s->is_auto || s->value == value;
}

static bool wants_schedule(const Searcher *s, const SchedText *t)
{
    return !s->program->layout.schedule || strcmp(s->program->layout.schedule, t->name) == 0;
}

static int64_t block_of(const Searcher *s, int ranks)
{
    const int64_t tile = 64;
    int64_t block = s->program->layout.block.given ? s->program->layout.block.value : tile * ranks;
    return block < s->program->sequence ? block : s->program->sequence;
}

static void add_candidate(Searcher *s, Choice c)
{
    Candidate *x = vec_push(s->arena, &s->all);
    *x = (Candidate){.choice = c, .order = s->all.n};
    x->why_not = fit_schedule(s, &x->choice);
}

/* Left open, only what can differ is tried: one rank has one partition, and so have all-to-all schedules, whose ranks
 * attend the whole sequence. */
static bool wants_partition(const Searcher *s, const SchedText *t, int ranks, int kind)
{
    const Setting *given = &s->program->layout.partition;
    if (given->is_auto)
        return (ranks > 1 && !t->exchanges) || kind == PART_CONTIGUOUS;
    return given->value == kind;
}

static void add_candidates(Searcher *s, const SchedText *t, Travel travel, Recompute recompute)
{
    int ranks = ranks_of(s->program);
    for (int kind = 0; kind < PART_KINDS; kind++) {
        if (!wants_partition(s, t, ranks, kind))
            continue;
        add_candidate(s, (Choice){.data = s->program->cluster.world / ranks, .ranks = ranks, .partition = (PartitionKind)kind,
                                  .block = block_of(s, ranks), .schedule = t, .travel = travel, .recompute = recompute});
    }
}

static void all_candidates(Searcher *s)
{
    const Layout *l = &s->program->layout;
    Recompute recompute = l->recompute.is_auto ? RECOMPUTE_NONE : (Recompute)l->recompute.value;
    for (int i = 0; i < s->program->schedule_count; i++) {
        const SchedText *t = s->program->schedules[i];
        if (!wants_schedule(s, t))
            continue;
        bool same = t->backward[TRAVEL_KEYS] == t->backward[TRAVEL_QUERIES]; /* one text for both */
        for (int travel = 0; travel < TRAVELS; travel++)
            if (allows(&l->travel, travel) && !(same && travel && l->travel.is_auto))
                add_candidates(s, t, (Travel)travel, recompute);
    }
}

/* ---- trying them ---- */

static const char *first_error(Searcher *s, Diags *d)
{
    return arena_printf(s->arena, "%s", diags_first(d));
}

static void try_candidate(Searcher *s, Candidate *x, Diags *d)
{
    if (x->why_not)
        return;
    Draft t = make_draft(s, d, &x->choice);
    x->plan = t.forward ? verify(s->arena, d, &t) : NULL;
    if (x->plan)
        x->cost = cost_simulate(s->arena, x->plan);
    else
        x->why_not = first_error(s, d);
    x->tried = true;
    x->too_large = t.forward && !memory_fits(&t);
}

/* Left open, recomputation is what the least memory needs: none where all fits, then selective, then full. */
static bool can_keep_less(const Searcher *s, const Candidate *x)
{
    return s->program->layout.recompute.is_auto && x->too_large && x->choice.recompute + 1 < RECOMPUTES;
}

static void add_keeping_less(Searcher *s, Candidate x)
{
    x.choice.recompute++;
    *vec_push(s->arena, &s->all) = (Candidate){.choice = x.choice, .order = x.order};
}

/* What is simpler comes first and wins unless another is faster by more than the tie. */
static const double tie = 1e-3;

static int simpler_first(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->choice.schedule != y->choice.schedule && x->choice.schedule->coords != y->choice.schedule->coords)
        return x->choice.schedule->coords - y->choice.schedule->coords;
    if (x->order != y->order)
        return x->order - y->order;
    return (int)x->choice.recompute - (int)y->choice.recompute;
}

static Candidate *best_of(Searcher *s)
{
    Candidate *best = NULL;
    for (int i = 0; i < s->all.n; i++) {
        Candidate *x = &s->all.at[i];
        if (x->plan && (!best || x->cost.step < best->cost.step * (1 - tie)))
            best = x;
    }
    return best;
}

static void add_row(const Candidate *x, const Candidate *best, Text *out)
{
    const Choice *c = &x->choice;
    text_printf(out, "%-9s %-8s %-11s %-9s ", c->schedule->name, c->schedule->exchanges ? "-" : travel_names[c->travel],
                partition_names[c->partition], recompute_names[c->recompute]);
    if (!x->plan) {
        text_printf(out, "- %s\n", x->why_not);
        return;
    }
    text_printf(out, "%10.3f ms %8.1f %% exposed %8.2f balance %9.3f GiB", x->cost.step * 1e3,
                100 * x->cost.exposed / x->cost.step, x->cost.imbalance, (double)x->cost.memory / (1 << 30));
    if (x == best)
        text_add(out, "  chosen\n");
    else if (x->cost.step < best->cost.step * (1 + tie))
        text_add(out, "  as fast\n");
    else
        text_printf(out, "  loses by %.1f %% (%s)\n", 100 * (x->cost.step / best->cost.step - 1), x->cost.critical);
}

static const char *explain(Searcher *s, const Candidate *best)
{
    Text t = {0};
    text_printf(&t, "%-9s %-8s %-11s %-9s %13s\n", "schedule", "travel", "partition", "recompute", "step");
    for (int i = 0; i < s->all.n; i++)
        add_row(&s->all.at[i], best, &t);
    char *copy = arena_copy(s->arena, t.at, t.n);
    text_free(&t);
    return copy;
}

static void report_none(Searcher *s)
{
    const Layout *l = &s->program->layout;
    if (diags_errors(s->diags) > 0)
        return; /* the only candidate's own errors are the user's */
    diag_error(s->diags, l->schedule ? l->schedule_span : l->span, "no layout works for %d ranks and %lld tokens",
               ranks_of(s->program), (long long)s->program->sequence);
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *x = &s->all.at[i];
        if (!can_keep_less(s, x))
            diag_note(s->diags, (Span){0}, "%s, %s%s%s: %s", x->choice.schedule->name, partition_names[x->choice.partition],
                      x->too_large ? ", recompute " : "", x->too_large ? recompute_names[x->choice.recompute] : "", x->why_not);
    }
}

static void sort_candidates(Searcher *s)
{
    if (s->all.n)
        qsort(s->all.at, (size_t)s->all.n, sizeof *s->all.at, simpler_first);
}

/* The list grows while it is gone through. The errors of a single candidate are the user's: those of its last form. */
static Candidate *try_all(Searcher *s)
{
    const bool one = s->all.n == 1, open = s->program->layout.recompute.is_auto;
    sort_candidates(s);
    for (int i = 0; i < s->all.n; i++) {
        try_candidate(s, &s->all.at[i], one && !open ? s->diags : diags_new(s->arena));
        if (can_keep_less(s, &s->all.at[i]))
            add_keeping_less(s, s->all.at[i]);
    }
    Candidate *last = one ? &s->all.at[s->all.n - 1] : NULL;
    if (one && open && !last->plan && last->tried) {
        last->why_not = NULL;
        try_candidate(s, last, s->diags);
    }
    sort_candidates(s);
    return best_of(s);
}

static void start_search(Searcher *s)
{
    s->maps = make_maps(s->arena, s->program);
    s->units = units_make(s->arena, s->program);
}

Found search(Arena *a, Diags *d, const Program *p)
{
    Searcher s = {.arena = a, .diags = d, .program = p};
    start_search(&s);
    all_candidates(&s);
    Candidate *best = try_all(&s);
    if (!best) {
        report_none(&s);
        return (Found){0};
    }
    return (Found){best->plan, best->cost, explain(&s, best)};
}

Draft draft_make(Arena *a, Diags *d, const Program *p, const Choice *c)
{
    Searcher s = {.arena = a, .diags = d, .program = p};
    start_search(&s);
    return make_draft(&s, d, c);
}
