/* search/batches.c: the choice by drawn batches. The search compares plans, which hold for all batches. If
 * document lengths are known, the fastest plans of each partition are then compared over drawn batches:
 * first over a few typical ones, then the nearly best over all. A plan's time says little about its
 * partition, so keep the best of each. --explain also shows the plan's layout in every partition, fixed ones
 * and the one chosen for each batch. */
#include "search/internal.h"

#include <math.h>

/* Typical batches; slowdown over these up to which all are compared. Candidates compared per partition: on
 * few GPUs more, as drawn batches take little time there, and schedules differ less by plan than by batches.
 */
enum { TYPICAL = 4, FEW_GPUS = 8, COMPARED_FEW = 5 };
static const double near_best = 1.05;
/* Slowdown by plans up to which the fastest of so many groups is compared, and the fastest in a partition. */
static const double most_spread = 1.15, near_plan = 1.02;

static int compared(const Searcher *s) { return s->program->cluster.world <= FEW_GPUS ? COMPARED_FEW : 2; }

static bool same_groups(const Choice *x, const Choice *y)
{
    return x->data == y->data && x->tensor == y->tensor;
}

static bool same_form(const Choice *x, const Choice *y)
{
    return same_groups(x, y) && x->partition == y->partition && x->schedule == y->schedule &&
           x->of_mask == y->of_mask;
}

/* Simulated to its end: others may be slower than they look, and were slower than what is compared. */
static bool is_exact(const Candidate *x) { return search_works(x) && !x->cost.at_least; }

/* Whether it is the fastest of its form, the first of equally fast ones. */
static bool is_fastest(const Searcher *s, int n)
{
    const Candidate *x = &s->all.at[n];
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *y = &s->all.at[i];
        if (is_exact(y) && same_form(&x->choice, &y->choice) &&
            (y->cost.step < x->cost.step || (y->cost.step == x->cost.step && i < n)))
            return false;
    }
    return is_exact(x);
}

/* If ranks only share heads, each attends for all tokens, whatever the partition. Schedules that share heads
 * too are compared apart from those that do not: a plan says little about which of them is faster. */
static bool same_partition(const Choice *x, const Choice *y)
{
    const bool heads = choice_rows(x, false) == 1;
    return heads == (choice_rows(y, false) == 1) && choice_exchanges(x) == choice_exchanges(y) &&
           (heads || x->partition == y->partition);
}

void search_add_form(Searcher *s, const Candidate *x)
{
    Tried *t = &s->tried;
    int i = 0;
    if (x->cost.at_least)
        return;
    while (i < t->forms.n && !same_form(&t->forms.at[i].choice, &x->choice))
        i++;
    if (i == t->forms.n)
        *vec_push(s->arena, &t->forms) = (Form){x->choice, INFINITY};
    t->forms.at[i].seconds = fmin(t->forms.at[i].seconds, search_seconds(x));
}

double search_to_be_compared(const Searcher *s, const Choice *c)
{
    const int n = compared(s);
    double faster[COMPARED_FEW], most = INFINITY; /* faster: of the partition, rising */
    double of_groups = INFINITY, fastest = INFINITY; /* of the partition and so many groups; of all */
    for (int i = 0; i < n; i++)
        faster[i] = INFINITY;
    for (int i = 0; i < s->tried.forms.n; i++) {
        const Form *f = &s->tried.forms.at[i];
        if (same_form(&f->choice, c))
            most = f->seconds;
        if (same_groups(&f->choice, c) && same_partition(&f->choice, c))
            of_groups = fmin(of_groups, f->seconds);
        fastest = fmin(fastest, f->seconds);
        for (int k = same_partition(&f->choice, c) ? n - 1 : -1; k >= 0 && f->seconds < faster[k]; k--) {
            if (k < n - 1)
                faster[k + 1] = faster[k];
            faster[k] = f->seconds;
        }
    }
    const double enough = fmax(faster[n - 1], fmin(of_groups, near_plan * fastest));
    return fmin(most, enough);
}

double search_to_be_of_groups(const Searcher *s, const Choice *c)
{
    double of_groups = INFINITY, fastest = INFINITY;
    for (int i = 0; i < s->tried.forms.n; i++) {
        const Form *f = &s->tried.forms.at[i];
        of_groups = same_groups(&f->choice, c) ? fmin(of_groups, f->seconds) : of_groups;
        fastest = fmin(fastest, f->seconds);
    }
    return fmin(of_groups, near_plan * fastest);
}

/* Whether enough candidates of its partition are faster by the plan, or as fast and found before. */
static bool enough_before(const Searcher *s, int n)
{
    const Candidate *x = &s->all.at[n];
    int before = 0;
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *y = &s->all.at[i];
        before += same_partition(&y->choice, &x->choice) &&
                  (search_seconds(y) < search_seconds(x) ||
                   (search_seconds(y) == search_seconds(x) && i < n)) &&
                  is_fastest(s, i);
    }
    return before >= compared(s);
}

/* Whether its plan is the fastest with its numbers of groups and tensor ranks: in its partition, if it is
 * within near_plan of the fastest plan of all; in any partition, if it is within most_spread. Groups wait for
 * the slowest batch, which a plan does not predict. */
static bool is_best_of_groups(const Searcher *s, int n)
{
    const Candidate *x = &s->all.at[n];
    double fastest = INFINITY, of_groups = INFINITY, of_partition = INFINITY;
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *y = &s->all.at[i];
        const double seconds = is_exact(y) ? search_seconds(y) : INFINITY;
        const bool groups = same_groups(&y->choice, &x->choice);
        fastest = fmin(fastest, seconds);
        of_groups = groups ? fmin(of_groups, seconds) : of_groups;
        of_partition = groups && same_partition(&y->choice, &x->choice) ? fmin(of_partition, seconds)
                                                                        : of_partition;
    }
    const double seconds = search_seconds(x);
    return (seconds <= of_groups && seconds <= most_spread * fastest) ||
           (seconds <= of_partition && seconds <= near_plan * fastest);
}

static bool knows(const CostBatches *b, const int *batch, int n)
{
    for (int i = 0; i < n; i++)
        if (!b->batch[batch[i]].known)
            return false;
    return true;
}

/* Measures its time over some batches; n stays 0 if its proofs fail. */
static void compare(Searcher *s, Candidate *x, const int *batch, int n)
{
    CostBatches *b = &x->cost.batches;
    if (!knows(b, batch, n)) {
        Arena *a = arena_new();
        Candidate made = {.choice = x->choice};
        search_evaluate(s, a, &made, diags_new(a));
        s->evaluations++;
        if (made.plan)
            cost_add_batches(plan_draft(made.plan), batch, n, b);
        arena_free(a);
    }
    if (knows(b, batch, n))
        cost_sum_batches(batch, n, x->choice.data, b);
    if (b->n == TYPICAL)
        b->typical = b->mean;
}

/* Batches at equal quantiles of one layout's step times. The first drawn ones may all lack long documents,
 * which would favour partitions that these slow down. */
static void typical_batches(const CostBatches *all, int batch[TYPICAL])
{
    for (int i = 0; i < COST_BATCHES; i++) {
        int faster = 0;
        for (int j = 0; j < COST_BATCHES; j++)
            faster += all->batch[j].step < all->batch[i].step ||
                      (all->batch[j].step == all->batch[i].step && j < i);
        if (faster % (COST_BATCHES / TYPICAL) == COST_BATCHES / TYPICAL / 2)
            batch[faster / (COST_BATCHES / TYPICAL)] = i;
    }
}

/* Seconds of a sequence over typical batches, over all of them. */
static double typical_seconds(const Candidate *x) { return x->cost.batches.typical / (double)x->sequences; }

static double mean_seconds(const Candidate *x) { return x->cost.batches.mean / (double)x->sequences; }

static double least_typical(const Searcher *s)
{
    double least = INFINITY;
    for (int i = 0; i < s->all.n; i++)
        if (s->all.at[i].cost.batches.n)
            least = fmin(least, typical_seconds(&s->all.at[i]));
    return least;
}

/* The fastest of those compared over all batches; the first within a tie. */
static Candidate *fastest(const Searcher *s)
{
    Candidate *best = NULL;
    for (int i = 0; i < s->all.n; i++) {
        Candidate *x = &s->all.at[i];
        if (x->cost.batches.n == COST_BATCHES &&
            (!best || mean_seconds(x) < mean_seconds(best) * (1 - SEARCH_TIE)))
            best = x;
    }
    return best;
}

Candidate *search_best_on_batches(Searcher *s)
{
    int all[COST_BATCHES], typical[TYPICAL];
    bool any = false;
    if (s->single || !mask_draws(s->program))
        return NULL;
    for (int i = 0; i < COST_BATCHES; i++)
        all[i] = i;
    for (int i = 0; i < s->all.n; i++) {
        Candidate *x = &s->all.at[i];
        if (!is_fastest(s, i) || (enough_before(s, i) && !is_best_of_groups(s, i)))
            continue;
        if (!any) {
            compare(s, x, all, COST_BATCHES);
            any = x->cost.batches.n > 0;
            typical_batches(&x->cost.batches, typical);
        }
        if (any)
            compare(s, x, typical, TYPICAL);
    }
    const double most = any ? least_typical(s) * near_best : 0;
    for (int i = 0; i < s->all.n; i++)
        if (s->all.at[i].cost.batches.n && typical_seconds(&s->all.at[i]) <= most)
            compare(s, &s->all.at[i], all, COST_BATCHES);
    return fastest(s);
}

/* ---- --explain ---- */

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
        c.spared = c.offload_values = 0; /* saving and offload already say what layers save, and where */
        const Evaluation e = evaluate_choice(a, d->program, &c);
        const char *why_not = e.why_not || e.fits ? e.why_not : "does not fit";
        const CostBatches b = why_not ? (CostBatches){0} : cost_batches(&e.draft);
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
