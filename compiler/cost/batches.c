/* cost/batches.c: the time of a step over drawn batches.
 *
 * Each batch has masks with drawn tables, so that pairs that no document has are neither computed nor sent,
 * and the partition that programs would choose for it. Everything else is the draft's. With g data-parallel
 * groups a sequence takes as long as the slowest of g drawn ones: of n drawn times x_1 <= x_2 <= ... the
 * largest of g is x_i with probability (i / n)^g - ((i - 1) / n)^g. */
#include "cost/cost.h"

#include <math.h>
#include <stdlib.h>

Draft cost_drawn(Arena *a, const Draft *d, int batch)
{
    const Program *p = d->program;
    Draft drawn = *d;
    MaskMap **maps = NEW_ARRAY(a, MaskMap *, p->mask_count);
    for (int m = 0; m < p->mask_count; m++)
        maps[m] = mask_map_of_batch(a, p, m, BURST_TILE, BURST_TILE, batch);
    drawn.partition = partition_of_batch(a, p, d->partition, maps);
    drawn.counts = NEW_ARRAY(a, PairCounts *, p->mask_count);
    for (int m = 0; m < p->mask_count; m++)
        drawn.counts[m] = pair_counts(a, maps[m], drawn.partition, choice_pieces(&d->choice));
    drawn.attended = NULL;
    return drawn;
}

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The largest of `groups` drawn times: its mean, and its 95th percentile. */
static void largest_of(const double *step, int groups, CostBatches *b)
{
    b->mean = 0, b->p95 = step[b->n - 1];
    for (int i = b->n; i >= 1; i--) {
        const double below = pow((double)(i - 1) / b->n, groups), upto = pow((double)i / b->n, groups);
        b->mean += step[i - 1] * (upto - below);
        if (upto >= 0.95)
            b->p95 = step[i - 1];
    }
}

void cost_add_batches(const Draft *d, const int *batch, int n, CostBatches *to)
{
    for (int i = 0; i < n; i++) {
        if (to->batch[batch[i]].known)
            continue;
        Arena *a = arena_new();
        const Draft drawn = cost_drawn(a, d, batch[i]);
        const Cost c = cost_draft(a, &drawn, INFINITY);
        to->batch[batch[i]].known = true;
        to->batch[batch[i]].step = c.step;
        to->batch[batch[i]].imbalance = c.imbalance;
        to->batch[batch[i]].received = c.bytes_link + c.bytes_nic;
        arena_free(a);
    }
}

void cost_sum_batches(const int *batch, int n, int groups, CostBatches *of)
{
    double step[COST_BATCHES];
    of->n = n, of->imbalance = of->received = 0;
    for (int i = 0; i < n; i++) {
        step[i] = of->batch[batch[i]].step;
        of->imbalance += of->batch[batch[i]].imbalance / n;
        of->received += of->batch[batch[i]].received / n;
    }
    qsort(step, (size_t)n, sizeof *step, ascending);
    largest_of(step, groups, of);
}

CostBatches cost_batches(const Draft *d)
{
    int all[COST_BATCHES];
    CostBatches b = {0};
    if (!mask_draws(d->program))
        return b;
    for (int i = 0; i < COST_BATCHES; i++)
        all[i] = i;
    cost_add_batches(d, all, COST_BATCHES, &b);
    cost_sum_batches(all, COST_BATCHES, d->choice.data, &b);
    return b;
}

const char *cost_batches_text(Arena *a, const Cost *c)
{
    const CostBatches *b = &c->batches;
    return b->n ? arena_printf(a, "%d drawn batches: mean %.3f ms, p95 %.3f ms", b->n, b->mean * 1e3,
                               b->p95 * 1e3)
                : "";
}
