/* search/lengths.c: in a program that infers, the plans of the lengths below the longest. They have its
 * choice, and its places in memory, in which fewer tokens leave room. */
#include "search/internal.h"

#include <math.h>

/* The same program for prompts of another length. */
static const Program *program_of(Arena *a, const Program *p, int64_t length)
{
    Program *q = NEW(a, Program);
    Mask *mask = NEW_ARRAY(a, Mask, p->mask_count);
    *q = *p;
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
    const Program *p = program_of(a, longest->program, length);
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
