/* cost/batches.c: the time of a step over drawn batches.
 *
 * Each batch has masks with drawn tables, so that pairs that no document has are neither computed nor sent,
 * and the partition that programs would choose for it. Everything else is the draft's. With g data-parallel
 * groups a sequence takes as long as the slowest of g drawn ones: of n drawn times x_1 <= x_2 <= ... the
 * largest of g is x_i with probability (i / n)^g - ((i - 1) / n)^g. */
#include "cost/cost.h"

#include "base/parallel.h"

#include <math.h>
#include <stdlib.h>

/* ---- drawn inputs ---- */

/* A partition of a drawn batch, with its counted pairs; partition NULL: not drawn yet. */
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
    Arena *arena[COST_BATCHES]; /* of its maps; NULL: not drawn yet */
    MaskMap **maps[COST_BATCHES];
    DrawnPart part[DRAWN_PARTS];
    int made;
};

DrawnInputs *drawn_new(Arena *a) { return NEW(a, DrawnInputs); }

void drawn_forget(DrawnInputs *i)
{
    for (int n = 0; n < DRAWN_PARTS; n++)
        arena_free(i->part[n].arena);
    for (int n = 0; n < COST_BATCHES; n++)
        arena_free(i->arena[n]);
    *i = (DrawnInputs){0};
}

static MaskMap **draw_maps(Arena *a, const Program *p, int batch)
{
    MaskMap **maps = NEW_ARRAY(a, MaskMap *, p->mask_count);
    for (int m = 0; m < p->mask_count; m++)
        maps[m] = mask_map_of_batch(a, p, m, BURST_TILE, BURST_TILE, batch);
    return maps;
}

static void draw_part(DrawnPart *x, const Draft *d, MaskMap **maps)
{
    const Program *p = d->program;
    x->partition = partition_of_batch(x->arena, p, d->partition, maps);
    x->counts = NEW_ARRAY(x->arena, PairCounts *, p->mask_count);
    for (int m = 0; m < p->mask_count; m++)
        x->counts[m] = pair_counts(x->arena, maps[m], x->partition, choice_pieces(&d->choice));
}

/* Whether it is the draft's part of one of these batches. */
static bool is_wanted(const DrawnPart *x, const Draft *d, const int *batch, int n)
{
    bool wanted = false;
    for (int k = 0; k < n && x->arena; k++)
        wanted |= x->batch == batch[k];
    return wanted && choice_same(&x->choice, &d->choice, KEY_COUNTS);
}

/* The draft's part of a batch, drawn or not. Its parts of batch[n] are kept. */
static DrawnPart *part_of(DrawnInputs *i, const Draft *d, int of, const int *batch, int n)
{
    for (int k = 0; k < DRAWN_PARTS; k++)
        if (i->part[k].arena && i->part[k].batch == of &&
            choice_same(&i->part[k].choice, &d->choice, KEY_COUNTS))
            return &i->part[k];
    DrawnPart *x = &i->part[i->made++ % DRAWN_PARTS];
    while (is_wanted(x, d, batch, n))
        x = &i->part[i->made++ % DRAWN_PARTS];
    arena_free(x->arena);
    *x = (DrawnPart){.arena = arena_new(), .choice = d->choice, .batch = of};
    i->arena[of] = i->arena[of] ? i->arena[of] : arena_new();
    return x;
}

/* Batches share nothing, so that several may draw at a time. */
static void draw(DrawnInputs *i, DrawnPart *x, const Draft *d)
{
    if (!i->maps[x->batch])
        i->maps[x->batch] = draw_maps(i->arena[x->batch], d->program, x->batch);
    if (!x->partition)
        draw_part(x, d, i->maps[x->batch]);
}

static Draft with_part(const Draft *d, const DrawnPart *x)
{
    Draft drawn = *d;
    drawn.partition = x->partition;
    drawn.counts = x->counts;
    drawn.attended = NULL;
    drawn.loads = NULL;
    return drawn;
}

static Draft draw_alone(Arena *a, const Draft *d, int batch)
{
    DrawnPart own = {.arena = a};
    draw_part(&own, d, draw_maps(a, d->program, batch));
    return with_part(d, &own);
}

Draft cost_drawn(Arena *a, const Draft *d, int batch)
{
    if (!d->drawn)
        return draw_alone(a, d, batch);
    DrawnPart *x = part_of(d->drawn, d, batch, &batch, 1);
    draw(d->drawn, x, d);
    return with_part(d, x);
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

/* Batches of a draft to be simulated; part NULL: each draws its own. */
typedef struct Steps {
    const Draft *draft;
    int batch[COST_BATCHES];
    DrawnPart *part[COST_BATCHES];
    CostBatches *to;
} Steps;

static void simulate(void *steps, int i)
{
    const Steps *s = steps;
    Arena *a = arena_new();
    const int batch = s->batch[i];
    if (s->part[i])
        draw(s->draft->drawn, s->part[i], s->draft);
    const Draft drawn = s->part[i] ? with_part(s->draft, s->part[i]) : draw_alone(a, s->draft, batch);
    const Cost c = cost_draft(a, &drawn, INFINITY);
    s->to->batch[batch].known = true;
    s->to->batch[batch].step = c.step;
    s->to->batch[batch].imbalance = c.imbalance;
    s->to->batch[batch].received = c.bytes_link + c.bytes_nic;
    arena_free(a);
}

void cost_add_batches(const Draft *d, const int *batch, int n, CostBatches *to)
{
    Steps s = {.draft = d, .to = to};
    int steps = 0;
    for (int i = 0; i < n; i++) {
        if (to->batch[batch[i]].known)
            continue;
        s.part[steps] = d->drawn ? part_of(d->drawn, d, batch[i], batch, n) : NULL;
        s.batch[steps++] = batch[i];
    }
    parallel(steps, simulate, &s);
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
