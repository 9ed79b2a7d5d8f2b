/* weights.c: the shards of all weights: first values, optimizer step, learning rate. Rank i of those that share the weights holds
 * elements [i * shard, (i + 1) * shard) of each unit; what lies beyond the unit's last element is zero and stays so. */
#include "internal.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 4, FILLERS = 32 }; /* param, m, v, grad; threads that draw first values, at most */

int burst_unit_count(const BurstPlan *p)
{
    int count = 0;
    for (int i = 0; i < p->unit_rows; i++)
        count += p->units[i].repeat;
    return count;
}

const BurstUnit *burst_unit(const BurstPlan *p, int unit)
{
    const BurstUnit *row = p->units;
    for (; unit >= row->repeat; row++)
        unit -= row->repeat;
    return row;
}

int burst_shard_of(const BurstCtx *c)
{
    return c->rank % plan_shards(c->plan);
}

BurstGroup burst_shard_group(const BurstCtx *c)
{
    const int shards = plan_shards(c->plan);
    return (BurstGroup){c->rank / shards * shards, 1, shards};
}

BurstGroup burst_replica_group(const BurstCtx *c)
{
    const int shards = plan_shards(c->plan);
    return (BurstGroup){c->rank % shards, shards, c->world / shards};
}

static int kinds_taken(const BurstPlan *p)
{
    return p->places_gradients ? KINDS - 1 : KINDS;
}

size_t burst_weights_bytes(const BurstPlan *p)
{
    size_t bytes = 0;
    for (int u = 0; u < burst_unit_count(p); u++)
        bytes += (size_t)kinds_taken(p) * (((size_t)burst_unit(p, u)->shard * sizeof(float) + 63) / 64 * 64);
    return bytes;
}

/* Element i of unit u: two uniform numbers from a hash of (seed, u, i), one normal number from them (Box-Muller). */
static float normal_of(uint64_t seed, int unit, int64_t element)
{
    uint64_t bits = hash3(seed, (uint64_t)unit, (uint64_t)element);
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32, w = (double)(uint32_t)bits * 0x1p-32;
    return (float)(sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * w));
}

Span tensor_part(const BurstCtx *c, const BurstUnit *u, const BurstTensor *t)
{
    int64_t first = burst_shard_of(c) * u->shard, last = first + u->shard;
    int64_t begin = t->offset > first ? t->offset : first;
    int64_t end = t->offset + t->rows * t->cols < last ? t->offset + t->rows * t->cols : last;
    return (Span){begin, end};
}

/* One thread's share of every tensor: billions of numbers take minutes otherwise. */
typedef struct Filler {
    const BurstCtx *c;
    const BurstPlan *p;
    const BurstWeights *w;
    int part, parts;
    pthread_t thread;
    bool runs;
} Filler;

static void fill_unit(const Filler *f, const BurstUnit *u, int unit)
{
    const BurstCtx *c = f->c;
    float *at = f->w->param[unit] - burst_shard_of(c) * u->shard;
    for (int t = 0; t < u->tensors; t++) {
        const BurstTensor *tensor = &u->tensor[t];
        const Span s = tensor_part(c, u, tensor);
        const int64_t count = s.end > s.begin ? s.end - s.begin : 0, end = s.begin + count * (f->part + 1) / f->parts;
        for (int64_t i = s.begin + count * f->part / f->parts; i < end; i++)
            at[i] = tensor->init_std <= 0 ? 1 + tensor->init_std : tensor->init_std * normal_of((uint64_t)c->train->seed, unit, i);
    }
}

static void *fill_part(void *argument)
{
    const Filler *f = argument;
    for (int u = 0; u < f->w->units; u++)
        fill_unit(f, burst_unit(f->p, u), u);
    return NULL;
}

int weights_take(BurstCtx *c, const BurstPlan *p, BurstWeights *w)
{
    size_t units = (size_t)burst_unit_count(p);
    free(c->weight_tables);
    c->weight_tables = calloc(KINDS * units, sizeof *c->weight_tables);
    if (!c->weight_tables)
        return burst_fail(c, BURST_E_MEMORY, "no memory for the list of weights");
    float **table = c->weight_tables;
    *w = (BurstWeights){.units = (int)units, .param = table, .m = table + units, .v = table + 2 * units,
                        .grad = table + 3 * units};
    for (size_t i = 0; i < (size_t)kinds_taken(p) * units; i++) {
        table[i] = burst_take(c, (size_t)burst_unit(p, (int)(i % units))->shard * sizeof(float));
        if (!table[i])
            return BURST_E_MEMORY;
    }
    return BURST_OK;
}

void weights_fill(const BurstCtx *c, const BurstPlan *p, BurstWeights *w)
{
    Filler f[FILLERS];
    const int threads = host_threads(c), parts = threads < FILLERS ? threads : FILLERS;
    for (int i = 0; i < parts; i++) {
        f[i] = (Filler){.c = c, .p = p, .w = w, .part = i, .parts = parts};
        f[i].runs = i > 0 && pthread_create(&f[i].thread, NULL, fill_part, &f[i]) == 0;
    }
    for (int i = 0; i < parts; i++) {
        if (f[i].runs)
            pthread_join(f[i].thread, NULL);
        else
            fill_part(&f[i]);
    }
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

/* step counts from 0. Warmup rises to lr in `warmup` steps; the cosine then falls to lr_end at the plan's last step. */
double burst_learning_rate(const BurstPlan *p, int64_t step)
{
    const BurstTrain *t = &p->train;
    if (step < t->warmup)
        return t->lr * (double)(step + 1) / (double)t->warmup;
    if (!t->cosine || t->steps <= t->warmup)
        return t->lr;
    double done = (double)(step - t->warmup) / (double)(t->steps - t->warmup);
    done = done > 1 ? 1 : done;
    return t->lr_end + 0.5 * (t->lr - t->lr_end) * (1 + cos(3.14159265358979323846 * done));
}

static void update_unit(const BurstCtx *c, const BurstUnit *u, const BurstAdamW *o, const BurstWeights *w, int unit)
{
    int64_t first = burst_shard_of(c) * u->shard;
    for (int t = 0; t < u->tensors; t++) {
        Span s = tensor_part(c, u, &u->tensor[t]);
        int64_t at = s.begin - first;
        if (s.begin < s.end)
            burst_adamw(o, s.end - s.begin, u->tensor[t].init_std > 0, w->param[unit] + at, w->grad[unit] + at,
                        w->m[unit] + at, w->v[unit] + at);
    }
    memset(w->grad[unit], 0, (size_t)u->shard * sizeof(float));
}

int burst_weights_update(BurstCtx *c, const BurstPlan *p, BurstWeights *w, int64_t step, double *norm)
{
    double squares = 0;
    for (int u = 0; u < w->units; u++)
        squares += burst_sum_squares(burst_unit(p, u)->shard, w->grad[u]);
    BURST_TRY(burst_allreduce(c, burst_shard_group(c), &squares, 1)); /* replicas each have all of it */
    *norm = sqrt(squares);
    if (!isfinite(*norm))
        return burst_fail(c, BURST_E_NUMERIC, "the gradient's norm is not finite in step %lld", (long long)step);
    const BurstTrain *t = &p->train;
    BurstAdamW o = {.lr = burst_learning_rate(p, step), .beta1 = t->beta1, .beta2 = t->beta2, .eps = t->eps,
                    .decay = t->decay, .step = step + 1, .grad_scale = t->clip > 0 && *norm > t->clip ? t->clip / *norm : 1};
    for (int u = 0; u < w->units; u++)
        update_unit(c, burst_unit(p, u), &o, w, u);
    return BURST_OK;
}
