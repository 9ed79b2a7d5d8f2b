/* search/open.c: what a layout leaves open beside the values of its settings: whether to offload if it does
 * not say, `tensor` if nothing fits, and in a program that infers whether ranks have all weights. Such a
 * program also has plans of shorter prompts. */
#include "search/internal.h"

#include <math.h>
#include <string.h>

/* If nothing fits: whether it would with more tensor ranks. */
static Found advise_tensor(Diags *d, const Program *p, Found f)
{
    Program open = *p;
    if (!f.too_large || !setting_leave_open(SETTING_TENSOR, &open.layout))
        return f;
    Arena *a = arena_new();
    const Found with = search_with(a, diags_new(a), &open, SEARCH_CUT, INFINITY);
    const int tensor = with.plan ? program_tensor(plan_draft(with.plan)->program) : 0;
    if (tensor > program_tensor(p))
        diag_note(d, (Span){0}, "`tensor auto` would fit: layers split over %d ranks", tensor);
    arena_free(a);
    return f;
}

/* ---- offloading ---- */

static const Program *with_open_offload(Arena *a, const Program *p)
{
    Program *with = memcpy(NEW(a, Program), p, sizeof *p);
    with->layout.offload.is_auto = true;
    return with;
}

/* Tries groups of layers if `recompute` is open and nothing fits. */
static Found search_grouped(Arena *a, Diags *d, const Program *p)
{
    Diags *ungrouped = diags_like(a, d);
    const Found f = search(a, ungrouped, p);
    if (!f.group || p->layout.saving.upper) {
        diags_take(d, ungrouped);
        return advise_tensor(d, p, f);
    }
    Found grouped = search(a, d, search_with_group(a, p, f.group));
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
    Program *with = memcpy(NEW(a, Program), p, sizeof *p);
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
        f.column[i] |= settings[i]->column > 0 && search_has_several(a, &f, i);
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

/* ---- shorter prompts: their plans have the longest one's choice, and its places in memory ---- */

/* The same program for prompts of another length. */
static const Program *of_length(Arena *a, const Program *p, int64_t length)
{
    Program *q = memcpy(NEW(a, Program), p, sizeof *p);
    Mask *mask = NEW_ARRAY(a, Mask, p->mask_count);
    q->sequence = length;
    q->masks = mask;
    for (int i = 0; i < p->mask_count; i++) {
        mask[i] = p->masks[i];
        mask[i].keys = NULL;
        mask[i].block_time = NULL;
    }
    return q;
}

/* Each value is at most as large as that of the longest, in whose place it is. */
static bool fits_in(const Draft *t, const Draft *longest)
{
    return t->partition->max_tokens <= longest->partition->max_tokens &&
           t->memory.scratch <= longest->memory.scratch && t->memory.keys <= longest->memory.keys;
}

static bool prove(Arena *a, Diags *d, const Draft *longest, int64_t length, double *first)
{
    const Program *p = of_length(a, longest->program, length);
    const Choice c = choice_on(p, &longest->choice);
    const Draft t = draft_make(a, d, p, &c);
    if (!t.attention.n || !verify(a, d, &t) || !verify_step(a, d, &t))
        return false;
    if (!fits_in(&t, longest)) {
        diag_error(d, p->infer.span,
                   "the plan for length %lld does not fit in the memory of the longest one's",
                   (long long)length);
        return false;
    }
    *first = cost_draft(a, &t, HUGE_VAL).step;
    return true;
}

bool search_lengths(Arena *a, Diags *d, const Plan *plan, double first[MOST_LENGTHS])
{
    const Draft *longest = plan_draft(plan);
    const Infer *n = &longest->program->infer;
    bool holds = true;
    for (int i = 0; i < n->lengths - 1 && holds; i++) {
        holds = prove(a, d, longest, n->length[i], &first[i]);
        if (!holds)
            diag_note(d, n->span, "of the plan for prompts of %lld tokens", (long long)n->length[i]);
    }
    return holds;
}
