/* search/tensor.c: chooses `tensor` if the layout leaves it open, whether to offload if the layout does not
 * say, and in a program that infers whether ranks have all weights.
 *
 * The number of ranks that split a layer determines how many share sequences, and so the meaning of the
 * layout's other numbers. So each number is tried as if the layout had it, with a search for the rest.
 * Tensor ranks wait for each other several times per layer, so they are neighbours in one node. */
#include "search/internal.h"

#include "burst_int.h"

#include <math.h>
#include <string.h>

/* ---- warnings ---- */

/* The rank with the fewest tokens of a sequence. */
static int least_rank(const Partition *p)
{
    int least = 0;
    for (int r = 1; r < p->ranks; r++)
        least = p->of[r].tokens < p->of[least].tokens ? r : least;
    return least;
}

static void note_equal(Diags *d, const Program *p, const Choice *c)
{
    const int64_t most = p->sequence / BURST_TILE;
    int ranks = (int)burst_max(1, burst_min(most, c->ranks));
    const int world = p->cluster.world / program_tensor(p);
    while (world % ranks)
        ranks--;
    if (p->infer.lengths)
        diag_note(d, (Span){0}, "use fewer ranks, or a longest of `lengths` of at least %lld tokens",
                  (long long)BURST_TILE * c->ranks);
    else
        diag_note(d, (Span){0},
                  "use `data %d`, which gives each sequence %d rank%s, or a sequence of at least %lld tokens",
                  world / ranks, ranks, plural(ranks), (long long)BURST_TILE * c->ranks);
}

static void note_shared(Diags *d, const Choice *c, int rank)
{
    int64_t all = 0;
    for (int r = 0; r < c->ranks; r++)
        all += c->share[r];
    diag_note(d, (Span){0}, "its share is %d of %lld; increase it or use a sequence of at least %lld tokens",
              c->share[rank], (long long)all,
              (long long)((BURST_TILE * all + c->share[rank] - 1) / c->share[rank]));
}

/* Where the layout gives the number of ranks that share a sequence. */
static Span ranks_span(const Program *p)
{
    const Setting *given[] = {&p->layout.context, &p->layout.heads, &p->layout.data};
    for (int i = 0; i < countof(given); i++)
        if (given[i]->given)
            return given[i]->span;
    return p->sequence_span;
}

/* A chunk smaller than a tile is computed as a full tile. */
void search_warn(Diags *d, const Program *p, const Choice *c)
{
    const Layout *l = &p->layout;
    Arena *a = arena_new();
    layout_warn_idle(d, p, c);
    const Partition *part = partition_shared(a, c->partition, c->block, p->sequence, c->ranks, c->share);
    const int rank = least_rank(part);
    const int64_t tokens = part->of[rank].tokens;
    const Span equal = ranks_span(p);
    if (c->ranks > 1 && tokens < BURST_TILE) {
        diag_warn(d, WARN_FEW_TOKENS, c->share && l->shares.given ? l->shares.span : equal,
                  "a rank has %lld token%s of a sequence, but kernels compute whole tiles of %d tokens",
                  (long long)tokens, plural(tokens), BURST_TILE);
        if (c->share)
            note_shared(d, c, rank);
        else
            note_equal(d, p, c);
    }
    arena_free(a);
}

/* ---- each number of tensor ranks ---- */

typedef struct Try {
    int tensor;
    const Program *program; /* NULL: the layout is invalid with so many */
    Found found;
    const char *why_not;
} Try;

/* Whether the front end accepts it, on ranks of one node. */
static bool may_split(const Program *p, int tensor)
{
    bool may = tensor_divides(&p->model, p->cluster.world, tensor);
    for (int g = 0; g < p->cluster.group_count; g++)
        may &= p->cluster.groups[g].gpus % tensor == 0;
    return may;
}

/* Seconds per sequence: with context given, data and the batch follow from the number. */
static double split_seconds(const Try *s) { return s->found.cost.step / (double)s->program->train.batch; }

/* Fewer tensor ranks are simpler. */
static const Try *best_split(const Try *s, int n)
{
    const Try *best = NULL;
    for (int i = 0; i < n; i++)
        if (s[i].found.plan && (!best || split_seconds(&s[i]) < split_seconds(best) * (1 - SEARCH_TIE)))
            best = &s[i];
    return best;
}

/* best: the best so far, which it must undercut; or NULL. counted: shared by all numbers. */
static Try try_split(Arena *a, const Program *p, int tensor, const Try *best, Counted *counted)
{
    Diags *d = diags_new(a);
    Try s = {.tensor = tensor, .program = program_with_tensor(a, d, p, tensor)};
    const double other = best ? split_seconds(best) * (1 - SEARCH_TIE) : INFINITY;
    if (s.program)
        s.found = search_counted(a, d, s.program, SEARCH_USUAL, other * (double)s.program->train.batch, false,
                                 counted);
    s.why_not = s.found.plan ? NULL : diags_first(d);
    return s;
}

/* Reports errors of the number that needs least memory. */
static Found report_split(Arena *a, Diags *d, const Program *p, const Try *s, int n)
{
    while (n > 1 && !s[n - 1].program)
        n--;
    const Program *with = program_with_tensor(a, d, p, s[n - 1].tensor);
    return with ? search(a, d, with) : (Found){0};
}

/* The choice of another number, for the table. */
static Evaluated other_split(Arena *a, const Evaluated *x, double more, const Cost *best)
{
    Evaluated t = *x;
    t.chosen = false;
    t.verdict = more < SEARCH_TIE ? "equally fast"
                                  : arena_printf(a, "%.1f %% slower (%s)", 100 * more,
                                                 cost_loses_text(a, &x->choice, &x->cost, best));
    return t;
}

/* Joins the tables: all rows of the best number and the choices of the others; below them, why others do not
 * work. */
static void join(Arena *a, Found *f, const Try *best, const Try *s, int n)
{
    Vec(Evaluated) all = {0};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < s[i].found.evaluated_count; k++) {
            const Evaluated *x = &s[i].found.evaluated[k];
            if (&s[i] == best)
                *vec_push(a, &all) = *x;
            else if (x->chosen)
                *vec_push(a, &all) = other_split(a, x, split_seconds(&s[i]) / split_seconds(best) - 1,
                                                 &best->found.cost);
        }
    for (int i = 0; i < n; i++)
        if (s[i].why_not)
            f->remarks = arena_printf(a, "%stensor %d: %s\n", f->remarks, s[i].tensor, s[i].why_not);
    f->evaluated = all.at;
    f->evaluated_count = all.n;
}

static bool has_several(Arena *a, const Found *f, int row)
{
    const char *first = settings[row]->text(a, &f->evaluated[0].choice);
    for (int i = 1; i < f->evaluated_count; i++) {
        const char *text = settings[row]->text(a, &f->evaluated[i].choice);
        if (!text != !first || (text && strcmp(text, first) != 0))
            return true;
    }
    return false;
}

static Found search_splits(Arena *a, Diags *d, const Program *p)
{
    Vec(Try) all = {0};
    Counted counted = {0};
    if (!p->layout.tensor.is_auto)
        return search(a, d, p);
    for (int tensor = 1; tensor <= p->cluster.world; tensor++)
        if (may_split(p, tensor)) {
            const Try split = try_split(a, p, tensor, best_split(all.at, all.n), &counted);
            *vec_push(a, &all) = split;
        }
    const Try *best = best_split(all.at, all.n);
    if (!best)
        return report_split(a, d, p, all.at, all.n);
    Found f = best->found;
    search_warn(d, best->program, &plan_draft(f.plan)->choice);
    join(a, &f, best, all.at, all.n);
    for (int i = 0; i < SETTING_COUNT; i++)
        f.column[i] |= settings[i]->column > 0 && has_several(a, &f, i);
    search_sort(a, &f);
    return f;
}

int search_other_tensor(Arena *a, const Program *p, const Found *f, double *seconds)
{
    const Program *now = plan_draft(f->plan)->program;
    Try best = {.tensor = program_tensor(now), .program = now, .found = *f};
    Counted counted = {0};
    if (p->layout.tensor.is_auto)
        return 0;
    for (int tensor = 1; tensor <= now->cluster.world; tensor++) {
        if (tensor == program_tensor(now) || !may_split(now, tensor))
            continue;
        const Try other = try_split(a, now, tensor, &best, &counted);
        if (other.found.plan && split_seconds(&other) < split_seconds(&best) * (1 - SEARCH_TIE))
            best = other;
    }
    *seconds = split_seconds(&best) * (double)now->train.batch;
    return best.program == now ? 0 : best.tensor;
}

/* If nothing fits: the least `tensor` that fits; 0: none. */
static int tensor_that_fits(const Program *p)
{
    Arena *a = arena_new();
    int fits = 0;
    for (int tensor = program_tensor(p) + 1; tensor <= p->cluster.world && !fits; tensor++)
        if (may_split(p, tensor)) {
            const Program *with = program_with_tensor(a, diags_new(a), p, tensor);
            if (with && search_with(a, diags_new(a), with, SEARCH_CUT, INFINITY).plan)
                fits = tensor;
        }
    arena_free(a);
    return fits;
}

static Found advise_tensor(Diags *d, const Program *p, Found f)
{
    const int tensor = f.too_large && !p->layout.tensor.is_auto ? tensor_that_fits(p) : 0;
    if (tensor)
        diag_note(d, (Span){0}, "`tensor auto` would fit: layers split over %d ranks", tensor);
    return f;
}

/* ---- offloading ---- */

static const Program *with_open_offload(Arena *a, const Program *p)
{
    Program *with = NEW(a, Program);
    *with = *p;
    with->layout.offload.is_auto = true;
    return with;
}

/* Tries groups of layers if `recompute` is open and nothing fits. */
static Found search_grouped(Arena *a, Diags *d, const Program *p)
{
    Diags *ungrouped = diags_like(a, d);
    const Found f = search_splits(a, ungrouped, p);
    if (!f.group || p->layout.saving.upper) {
        diags_take(d, ungrouped);
        return advise_tensor(d, p, f);
    }
    Found grouped = search_splits(a, d, search_with_group(a, p, f.group));
    if (grouped.plan)
        grouped.remarks = arena_printf(a, "of %d layers one saves its input: nothing else fits\n%s", f.group,
                                       grouped.remarks);
    return grouped;
}

/* ---- programs that infer ---- */

/* Seconds until a prompt's last token. */
static double prompt_seconds(const Found *f)
{
    const Draft *d = plan_draft(f->plan);
    const double more = (double)(d->program->infer.tokens - 1);
    return f->cost.step + (more > 0 ? more * cost_continued(d) : 0);
}

static Found with_weights(Arena *a, Diags *d, const Program *p, Sharding sharding)
{
    Program *with = NEW(a, Program);
    *with = *p;
    with->layout.weights = (Setting){.value = sharding, .span = p->layout.weights.span};
    return search_grouped(a, d, with);
}

/* Adds the other's row to the table of the chosen one. */
static Found with_row(Arena *a, Found f, const Found *other)
{
    const double more = prompt_seconds(other) / prompt_seconds(&f) - 1;
    Evaluated *all = NEW_ARRAY(a, Evaluated, f.evaluated_count + 1);
    memcpy(all, f.evaluated, sizeof *all * (size_t)f.evaluated_count);
    all[f.evaluated_count] = other->evaluated[0];
    all[f.evaluated_count].chosen = false;
    all[f.evaluated_count].ends_later = more >= SEARCH_TIE;
    all[f.evaluated_count].verdict = more < SEARCH_TIE
                                         ? "equally fast"
                                         : arena_printf(a, "%.1f %% slower until the last token", 100 * more);
    f.evaluated = all;
    f.evaluated_count++;
    for (int i = 0; i < SETTING_COUNT; i++)
        f.column[i] |= settings[i]->column > 0 && has_several(a, &f, i);
    return f;
}

/* Weights on each rank, or a part that prompts gather and by whose slices later tokens are multiplied: what
 * ends a prompt's tokens first, of what fits. */
static Found search_weights(Arena *a, Diags *d, const Program *p)
{
    Diags *of_whole = diags_like(a, d), *of_parts = diags_like(a, d);
    const Found whole = with_weights(a, of_whole, p, SHARDING_ZERO1),
                parts = with_weights(a, of_parts, p, SHARDING_ZERO3);
    const bool both = whole.plan && parts.plan,
               first = both ? prompt_seconds(&whole) <= prompt_seconds(&parts) * (1 + SEARCH_TIE)
                            : whole.plan != NULL;
    diags_take(d, first ? of_whole : of_parts);
    if (!both)
        return first ? whole : parts;
    return first ? with_row(a, whole, &parts) : with_row(a, parts, &whole);
}

/* A layout that does not mention `offload` leaves it open where a program trains. */
Found search_open(Arena *a, Diags *d, const Program *p)
{
    const bool opens = !p->layout.offload.given && !p->infer.lengths;
    const Program *open = opens ? with_open_offload(a, p) : p;
    return p->infer.lengths && p->layout.weights.is_auto ? search_weights(a, d, open)
                                                         : search_grouped(a, d, open);
}
