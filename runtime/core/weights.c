/* weights.c: the shards of all weights: first values, learning rate. Rank i of those that share a unit
 * holds elements [i * shard, (i + 1) * shard) of it; what lies beyond the last element is zero and stays
 * so. Where tensor ranks split a unit, it is what a tensor rank has of the tensors, one after the other. With
 * slices rank i holds all tensors without one, and elements [i * slice, (i + 1) * slice) of each matrix. */
#include "core/weights.h"

#include "base/mix.h"
#include "core/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 4 }; /* param, m, v, grad */

int plan_tensor(const BurstPlan *p)
{
    return p->tensor ? p->tensor : 1;
}

bool unit_is_split(const BurstPlan *p, const BurstUnit *u)
{
    bool split = false;
    for (int t = 0; p->tensor && t < u->tensors; t++)
        split |= u->tensor[t].split != BURST_WHOLE;
    return split;
}

/* Which part of the unit the rank holds, from 0. */
static int unit_shard_of(const BurstPlan *p, const BurstUnit *u, int rank)
{
    return rank % plan_shards(p) / (unit_is_split(p, u) ? plan_tensor(p) : 1);
}

BurstGroup burst_shard_group(const BurstCtx *c)
{
    const int shards = plan_shards(c->plan);
    return (BurstGroup){c->rank / shards * shards, 1, shards};
}

BurstGroup burst_unit_group(const BurstCtx *c, int unit)
{
    const BurstGroup all = burst_shard_group(c);
    const int tensor = unit_is_split(c->plan, burst_unit(c->plan, unit)) ? plan_tensor(c->plan) : 1;
    return (BurstGroup){all.first + c->rank % tensor, tensor, all.count / tensor};
}

BurstGroup burst_tensor_group(const BurstCtx *c)
{
    const int tensor = plan_tensor(c->plan);
    return (BurstGroup){c->rank / tensor * tensor, 1, tensor};
}

BurstGroup burst_replica_group(const BurstCtx *c)
{
    const int shards = plan_shards(c->plan);
    return (BurstGroup){c->rank % shards, shards, c->world / shards};
}

BurstOwn burst_own_tokens(const BurstPlan *p, int rank, int64_t n)
{
    const int64_t tensor = plan_tensor(p), each = (n + tensor - 1) / tensor, first = rank % tensor * each;
    const int64_t begin = first < n ? first : n, left = n - begin;
    return (BurstOwn){begin, each < left ? each : left, each};
}

/* ---- what a rank has of a tensor ---- */

int tensor_copies(const BurstPlan *p, const BurstTensor *t)
{
    const bool keys = t->split == BURST_BY_KEY_ROWS || t->split == BURST_BY_KEY_COLS;
    if (t->split == BURST_WHOLE)
        return plan_tensor(p);
    return keys ? plan_tensor(p) / p->kv_heads : 1;
}

/* How many tensor ranks, or neighbours that have the same, split it. */
static int tensor_parts(const BurstPlan *p, const BurstTensor *t)
{
    return plan_tensor(p) / tensor_copies(p, t);
}

/* That a tensor rank has. */
static int64_t tensor_elements(const BurstPlan *p, const BurstTensor *t)
{
    return t->rows * t->cols / tensor_parts(p, t);
}

/* Where a tensor rank has it in its part of the unit. */
static int64_t tensor_at(const BurstPlan *p, const BurstUnit *u, const BurstTensor *t)
{
    int64_t at = 0;
    for (const BurstTensor *x = u->tensor; x < t; x++)
        at += tensor_elements(p, x);
    return at;
}

/* A run of elements that ranks share, [0, elements): where a rank's shard has its part, from element `first`
 * of the run on, and where the tensor is in the run. */
typedef struct Shared {
    int64_t at, first, elements, tensor;
} Shared;

/* In a plan with slices: the rank's whole tensors, or its slice of the tensor's matrix. */
static Shared slice_of(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t)
{
    const BurstSlices *s = burst_slices(p, u);
    int64_t at = s->whole, in = 0, alone = 0, slice = 0;
    for (int i = 0; i <= t - u->tensor; i++) {
        const int64_t elements = u->tensor + i < t ? tensor_elements(p, &u->tensor[i]) : 0;
        if (s->slice[i] > 0)
            at += slice, slice = s->slice[i], in = 0;
        if (s->slice[i] == 0)
            alone += elements;
        else
            in += elements;
    }
    return s->slice[t - u->tensor] == 0 ? (Shared){alone, 0, tensor_elements(p, t), 0}
                                        : (Shared){at, unit_shard_of(p, u, rank) * slice, slice, in};
}

static Shared shared_with(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t)
{
    return p->slices ? slice_of(p, rank, u, t)
                     : (Shared){0, unit_shard_of(p, u, rank) * u->shard, u->shard, tensor_at(p, u, t)};
}

ElementRange tensor_part(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t)
{
    const Shared s = shared_with(p, rank, u, t);
    const int64_t last = s.first + s.elements, end = s.tensor + tensor_elements(p, t);
    return (ElementRange){s.at + (s.tensor > s.first ? s.tensor : s.first) - s.first,
                          s.at + (end < last ? end : last) - s.first};
}

const BurstSlices *burst_slices(const BurstPlan *p, const BurstUnit *u) { return &p->slices[u - p->units]; }

bool burst_next_slice(const BurstPlan *p, const BurstUnit *u, int ranks, BurstSlice *x)
{
    const BurstSlices *s = burst_slices(p, u);
    const bool begins = x->elements == 0;
    x->at = begins ? s->whole : x->at + x->elements;
    x->gathered = begins ? s->whole : x->gathered + ranks * x->elements;
    x->tensor += !begins;
    while (x->tensor < u->tensors && s->slice[x->tensor] <= 0)
        x->tensor++;
    x->elements = x->tensor < u->tensors ? s->slice[x->tensor] : 0;
    return x->elements > 0;
}

/* The run that begins at element `here` of a tensor rank's part: of a scan's queries, of its keys and of its
 * values, one after the other, each rank has an equal part. The tensor has as many rows or elements as the
 * scan has columns. */
static BurstRun section_run(const BurstPlan *p, const BurstTensor *t, int64_t here, int64_t turn)
{
    const BurstScan *s = &p->scan;
    const int begins[] = {s->q, s->k, s->v, s->columns};
    const int64_t each = t->rows * t->cols / s->columns, parts = tensor_parts(p, t);
    int64_t begin = 0, end = 0;
    while (end / parts * each <= here) {
        begin = end, end = s->columns;
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
            end = begins[i] > begin && begins[i] < end ? begins[i] : end;
    }
    const int64_t in = here - begin / parts * each;
    return (BurstRun){0, (begin + turn * (end - begin) / parts) * each + in, end / parts * each - here};
}

bool burst_next_run(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t, BurstRun *r)
{
    const ElementRange s = tensor_part(p, rank, u, t);
    const int64_t at = r->count ? r->at + r->count : s.begin, cols = t->cols / tensor_parts(p, t),
                  turn = rank % plan_tensor(p) / tensor_copies(p, t);
    const Shared shared = shared_with(p, rank, u, t);
    const int64_t here = at - shared.at + shared.first - shared.tensor; /* in what the tensor rank has */
    if (at >= s.end)
        return false;
    if (t->split == BURST_BY_COLS || t->split == BURST_BY_KEY_COLS) {
        const int64_t left = cols - here % cols;
        *r = (BurstRun){at, here / cols * t->cols + turn * cols + here % cols,
                        s.end - at < left ? s.end - at : left};
    } else if (t->split == BURST_BY_SECTIONS) {
        const BurstRun section = section_run(p, t, here, turn);
        *r = (BurstRun){at, section.from, s.end - at < section.count ? s.end - at : section.count};
    } else {
        *r = (BurstRun){at, here + turn * tensor_elements(p, t), s.end - at};
    }
    return true;
}

bool tensor_is_written(const BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t)
{
    return !unit_is_split(p, u) || rank % tensor_copies(p, t) == 0;
}

BurstGroup copies_group(const BurstCtx *c, const BurstTensor *t)
{
    const int copies = tensor_copies(c->plan, t);
    return (BurstGroup){c->rank / copies * copies, 1, copies};
}

int burst_sum_copies(BurstCtx *c, int unit, float *shard)
{
    const BurstUnit *u = burst_unit(c->plan, unit);
    for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++) {
        const ElementRange s = tensor_part(c->plan, c->rank, u, t);
        const BurstGroup same = copies_group(c, t);
        if (same.count > 1 && s.end > s.begin)
            BURST_TRY(burst_sum_over(c, same, shard + s.begin, s.end - s.begin));
    }
    return BURST_OK;
}

/* ---- taking and filling ---- */

static int kinds_taken(const BurstPlan *p)
{
    if (p->lengths || p->evaluates_alone)
        return 1; /* parameters alone */
    return p->places_gradients ? KINDS - 1 : KINDS;
}

size_t burst_weights_bytes(const BurstPlan *p)
{
    size_t bytes = 0;
    for (int u = 0; u < burst_unit_count(p); u++)
        bytes += (size_t)kinds_taken(p) * (((size_t)burst_unit(p, u)->shard * sizeof(float) + 63) / 64 * 64);
    return bytes;
}

/* Element i of unit u: two uniform numbers from a hash of (seed, u, i), one normal number from them
 * (Box-Muller). */
static float normal_of(uint64_t seed, int unit, int64_t element)
{
    uint64_t bits = hash3(seed, (uint64_t)unit, (uint64_t)element);
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32, w = (double)(uint32_t)bits * 0x1p-32;
    return (float)(sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * w));
}

typedef struct Filler { const BurstCtx *c; const BurstPlan *p; const BurstWeights *w; } Filler;

static void fill_unit(const Filler *f, int unit, int part, int parts)
{
    const BurstUnit *u = burst_unit(f->p, unit);
    const int whole = burst_whole_unit(f->p, unit); /* the same values whatever unit a tensor is in */
    for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
        for (BurstRun r = {0}; burst_next_run(f->p, f->c->rank, u, t, &r);) {
            float *at = f->w->param[unit] + r.at;
            const int64_t first = t->offset + r.from;
            for (int64_t i = r.count * part / parts; i < r.count * (part + 1) / parts; i++)
                at[i] = t->init_std <= 0
                            ? 1 + t->init_std
                            : t->init_std * normal_of((uint64_t)f->c->train->seed, whole, first + i);
        }
}

/* A share of every tensor: billions of numbers take minutes otherwise. */
static void fill_part(const void *what, int part, int parts)
{
    const Filler *f = what;
    for (int u = 0; u < f->w->units; u++)
        fill_unit(f, u, part, parts);
}

int weights_take(BurstCtx *c, const BurstPlan *p, BurstWeights *w)
{
    size_t units = (size_t)burst_unit_count(p);
    free(c->weight_tables);
    c->weight_tables = calloc((KINDS + 1) * units, sizeof *c->weight_tables);
    if (!c->weight_tables)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the list of weights");
    float **table = c->weight_tables;
    *w = (BurstWeights){.units = (int)units, .param = table, .m = table + units, .v = table + 2 * units,
                        .grad = table + 3 * units, .grad_bf16 = (uint16_t **)(void *)(table + KINDS * units)};
    for (size_t i = 0; i < (size_t)kinds_taken(p) * units; i++) {
        table[i] = burst_take(c, (size_t)burst_unit(p, (int)(i % units))->shard * sizeof(float));
        if (!table[i])
            return BURST_E_MEMORY;
    }
    return BURST_OK;
}

void weights_fill(BurstCtx *c, const BurstPlan *p, BurstWeights *w)
{
    in_parts(c, fill_part, &(Filler){c, p, w});
}

int burst_weights_make(BurstCtx *c, const BurstPlan *p, BurstWeights *w)
{
    BURST_TRY(weights_take(c, p, w));
    weights_fill(c, p, w);
    return BURST_OK;
}

void weights_close(BurstCtx *c)
{
    free(c->weight_tables);
    c->weight_tables = NULL;
}

/* step counts from 0. Warm-up reaches lr in its last step, without one the first step has lr; from there, or
 * with WSD (warm-up, stable, decay: Hu et al., arXiv 2404.06395) decay_steps before the last step, it falls
 * to lr_end, which the plan's last step has. */
double burst_learning_rate(const BurstPlan *p, int64_t step)
{
    const BurstTrain *t = &p->train;
    const int64_t last = t->steps - 1;
    int64_t top = t->warmup > 1 ? t->warmup - 1 : 0;
    if (step < t->warmup)
        return t->lr * (double)(step + 1) / (double)t->warmup;
    if (t->schedule == BURST_SCHEDULE_WSD && last - t->decay_steps > top)
        top = last - t->decay_steps;
    if (t->schedule == BURST_SCHEDULE_CONSTANT || step <= top)
        return t->lr;
    if (step >= last)
        return t->lr_end;
    const double done = (double)(step - top) / (double)(last - top);
    const double left = t->schedule == BURST_SCHEDULE_COSINE ? 0.5 * (1 + cos(3.14159265358979323846 * done))
                                                             : 1 - done;
    return t->lr_end + (t->lr - t->lr_end) * left;
}
