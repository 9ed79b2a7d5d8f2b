/* search/batches.c: what drawn batches decide. The search compares plans, which hold for all batches; where
 * the lengths of documents are known, the fastest of them with each schedule in each partition are compared
 * over drawn batches: a few of each first, then all of what is nearly the best. For --explain, the plan's
 * layout in every partition: what is fixed before batches are known beside what is decided for each.
 */
#include "search/internal.h"

/* Of fixed partitions, and of balanced ones; batches at first; how much slower over those is still compared
 * over all. */
enum { COMPARED = 3, FIRST_BATCHES = 2 };
static const double near_best = 1.05;

static bool same_form(const Candidate *x, const Candidate *y)
{
    return x->choice.data == y->choice.data && x->choice.partition == y->choice.partition &&
           x->choice.schedule == y->choice.schedule && x->choice.of_mask == y->choice.of_mask;
}

/* Whether it is the fastest, and the first such, of those that it stands for. */
static bool leads(const Searcher *s, int n)
{
    const Candidate *x = &s->all.at[n];
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *y = &s->all.at[i];
        if (search_works(y) && same_form(x, y) &&
            (y->cost.step < x->cost.step || (y->cost.step == x->cost.step && i < n)))
            return false;
    }
    return search_works(x);
}

/* So many that were faster by the plan are compared already. */
static bool enough_faster(const Searcher *s, int n)
{
    const Candidate *x = &s->all.at[n];
    int faster = 0;
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *y = &s->all.at[i];
        faster += (y->choice.partition == PART_BALANCED) == (x->choice.partition == PART_BALANCED) &&
                  y->cost.step < x->cost.step && leads(s, i);
    }
    return faster >= COMPARED;
}

static void compare(Searcher *s, Candidate *x, int batches)
{
    Arena *a = arena_new();
    Candidate made = {.choice = x->choice};
    search_evaluate(s, a, &made, diags_new(a));
    s->evaluations++;
    if (made.plan)
        x->cost.batches = cost_batches(plan_draft(made.plan), batches);
    arena_free(a);
}

/* Of those that were compared over so many batches; the first within a tie. */
static Candidate *fastest(const Searcher *s, int batches)
{
    Candidate *best = NULL;
    for (int i = 0; i < s->all.n; i++) {
        Candidate *x = &s->all.at[i];
        if (x->cost.batches.n == batches &&
            (!best || x->cost.batches.mean < best->cost.batches.mean * (1 - SEARCH_TIE)))
            best = x;
    }
    return best;
}

Candidate *search_best_on_batches(Searcher *s)
{
    if (s->single || !mask_draws(s->program))
        return NULL;
    for (int i = 0; i < s->all.n; i++)
        if (leads(s, i) && !enough_faster(s, i))
            compare(s, &s->all.at[i], FIRST_BATCHES);
    const Candidate *first = fastest(s, FIRST_BATCHES);
    const double most = first ? first->cost.batches.mean * near_best : 0;
    for (int i = 0; i < s->all.n; i++)
        if (s->all.at[i].cost.batches.n && s->all.at[i].cost.batches.mean <= most)
            compare(s, &s->all.at[i], COST_BATCHES);
    return fastest(s, COST_BATCHES);
}

/* ---- for --explain ---- */

static void add_row(Arena *a, const Choice *c, const CostBatches *b, const char *why_not, bool chosen,
                    Text *out)
{
    text_printf(out, "%-16s ", partition_text(a, c->partition, c->block));
    if (why_not)
        text_printf(out, "- %s\n", why_not);
    else
        text_printf(out, "%10.3f ms %10.3f ms %8.2f balance %9.3f GiB sent%s\n", b->mean * 1e3, b->p95 * 1e3,
                    b->imbalance, b->received / (1 << 30), chosen ? "  chosen" : "");
}

static void add_partition(const Found *f, PartitionKind kind, Text *out)
{
    const Draft *d = plan_draft(f->plan);
    Arena *a = arena_new();
    Choice c = d->choice;
    if (kind == c.partition) {
        add_row(a, &c, &f->cost.batches, NULL, true, out);
    } else {
        c = choice_in(d->program, &c, kind);
        c.spared = c.offload_values = 0; /* its saving and offload say what layers save, and where */
        const Evaluation e = evaluate_choice(a, d->program, &c, NULL);
        const char *why_not = e.why_not || e.fits ? e.why_not : "does not fit";
        const CostBatches b = why_not ? (CostBatches){0} : cost_batches(&e.draft, COST_BATCHES);
        add_row(a, &c, &b, why_not, false, out);
    }
    arena_free(a);
}

const char *search_batches(Arena *a, const Found *f)
{
    Text t = {0};
    if (!f->cost.batches.n || plan_draft(f->plan)->choice.ranks == 1)
        return "";
    text_printf(&t, "%d drawn batches %12s %13s\n", f->cost.batches.n, "mean", "p95");
    for (int kind = 0; kind < PART_KINDS; kind++)
        add_partition(f, (PartitionKind)kind, &t);
    return text_keep(a, &t);
}
