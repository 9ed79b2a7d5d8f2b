/* cost/batches.c: the time of a step over drawn batches.
 *
 * Each batch has masks with drawn tables, so that pairs that no document has are neither computed nor sent,
 * and the partition that programs would choose for it. Everything else is the draft's. With g data-parallel
 * groups a sequence takes as long as the slowest of g drawn ones: of n drawn times x_1 <= x_2 <= ... the
 * largest of g is x_i with probability (i / n)^g - ((i - 1) / n)^g. */
#include "cost/cost.h"

#include <math.h>
#include <stdlib.h>

/* ---- drawn inputs ---- */

/* A partition of a drawn batch, with its counted pairs. */
typedef struct DrawnPart {
    Arena *arena;
    Choice choice;
    int batch;
    const Partition *partition;
    PairCounts **counts;
} DrawnPart;

/* The last ones: candidates that attend alike are consecutive, and few partitions are tried in turn. */
enum { DRAWN_PARTS = 48 };
struct DrawnInputs {
    Arena *arena; /* of maps; NULL: nothing is drawn yet */
    MaskMap **maps[COST_BATCHES];
    DrawnPart part[DRAWN_PARTS];
    int made;
};

DrawnInputs *drawn_new(Arena *a) { return NEW(a, DrawnInputs); }

void drawn_forget(DrawnInputs *i)
{
    for (int n = 0; n < DRAWN_PARTS; n++)
        if (i->part[n].arena)
            arena_free(i->part[n].arena);
    if (i->arena)
        arena_free(i->arena);
    *i = (DrawnInputs){0};
}

static MaskMap **draw_maps(Arena *a, const Program *p, int batch)
{
    MaskMap **maps = NEW_ARRAY(a, MaskMap *, p->mask_count);
    for (int m = 0; m < p->mask_count; m++)
        maps[m] = mask_map_of_batch(a, p, m, BURST_TILE, BURST_TILE, batch);
    return maps;
}

static DrawnPart draw_part(Arena *a, const Draft *d, MaskMap **maps, int batch)
{
    const Program *p = d->program;
    DrawnPart x = {a, d->choice, batch, partition_of_batch(a, p, d->partition, maps),
                   NEW_ARRAY(a, PairCounts *, p->mask_count)};
    for (int m = 0; m < p->mask_count; m++)
        x.counts[m] = pair_counts(a, maps[m], x.partition, choice_pieces(&d->choice));
    return x;
}

static const DrawnPart *shared_part(DrawnInputs *i, const Draft *d, int batch)
{
    for (int n = 0; n < DRAWN_PARTS; n++)
        if (i->part[n].arena && i->part[n].batch == batch &&
            choice_same(&i->part[n].choice, &d->choice, KEY_COUNTS))
            return &i->part[n];
    i->arena = i->arena ? i->arena : arena_new();
    if (!i->maps[batch])
        i->maps[batch] = draw_maps(i->arena, d->program, batch);
    DrawnPart *x = &i->part[i->made++ % DRAWN_PARTS];
    if (x->arena)
        arena_free(x->arena);
    *x = draw_part(arena_new(), d, i->maps[batch], batch);
    return x;
}

Draft cost_drawn(Arena *a, const Draft *d, int batch)
{
    const DrawnPart own = d->drawn ? (DrawnPart){0} : draw_part(a, d, draw_maps(a, d->program, batch), batch),
                    *x = d->drawn ? shared_part(d->drawn, d, batch) : &own;
    Draft drawn = *d;
    drawn.partition = x->partition;
    drawn.counts = x->counts;
    drawn.attended = NULL;
    drawn.loads = NULL;
    return drawn;
}

/* ---- steps ---- */

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
