/* cost.c: simulates one training step of a plan. docs/cost.md describes the model. */
#include "cost/cost.h"

#include <math.h>

bool cost_is_of_program(const Program *p)
{
    return p->target == p->cluster.target;
}

static const char *class_name(Arena *a, const Cluster *c, int class)
{
    static const char *const name[COST_UPLINK] = {
#define X(id, text) [COST_##id] = text,
        COST_CLASSES(X)
#undef X
    };
    return class < COST_UPLINK ? name[class]
                               : arena_printf(a, "uplinks of a %s", c->level[class - COST_UPLINK].name);
}

/* If transfers are hidden, the short remaining waits are not reported. */
const char *cost_waits_text(const Cost *c)
{
    return c->hidden ? "compute, with all transfers overlapped" : c->critical;
}

/* What ranks wait for most: a class on the critical path, or ranks with more work. */
static const char *critical_text(Arena *a, const StepParts *p, const Cluster *cluster, double exposed)
{
    /* seconds of the step */
    double path[COST_CLASS_COUNT] = {[COST_WEIGHTS] = p->weights, [COST_TENSOR] = p->tensor};
    double idle = p->attention_busy - p->mean_attention_busy, waits = exposed + idle;
    for (int k = 0; k < p->kinds; k++)
        for (int b = 0; b < p->attends; b++)
            for (int c = 0; c < COST_CLASS_COUNT; c++)
                path[c] += p->kind[k].times[b] * p->kind[k].time[b].path[c];
    path[COST_COPIES] = p->copies;
    double known = 0;
    int most = COST_LINK;
    for (int c = COST_COMPUTE + 1; c < COST_CLASS_COUNT; c++) {
        known += path[c];
        most = path[c] > path[most] ? c : most;
    }
    double others = waits - known; /* waiting while others compute */
    bool balance = others > path[most];
    return arena_printf(a, "%s (%.0f %% of the step)",
                        balance ? "ranks with more work" : class_name(a, cluster, most),
                        100 * fmin(waits, balance ? others : path[most]) / p->step);
}

/* The busiest rank's attention takes (the mean rank's tiles) * imbalance * (seconds a tile). Names the
 * factor that grew most. */
static const char *attention_grew(const Cost *x, const Cost *best)
{
    const double balance = x->imbalance / best->imbalance, tiles = x->tile_flops / best->tile_flops / balance;
    const double slower = x->attention / x->tile_flops / (best->attention / best->tile_flops);
    if (balance >= tiles && balance >= slower)
        return "unbalanced attention";
    if (tiles >= slower)
        return "attention computes more tiles";
    return x->latents && !best->latents
               ? "attention makes keys and values of latents"
               : "attention tiles are slower, with shorter rows or more partial tiles";
}

/* Explains why the step is slower than `best`: names what grew most. */
const char *cost_loses_text(Arena *a, const Choice *c, const Cost *x, const Cost *best)
{
    const double more = x->step - best->step, waits = x->exposed - best->exposed,
                 attention = x->attention - best->attention;
    const double recompute = x->recompute - best->recompute, update = x->update - best->update;
    const struct { double seconds; const char *text;
    } grew[] = {{attention, attention_grew(x, best)},
                {recompute, "recomputes more"},
                {update, c->optimizer == OPTIMIZER_ON_HOST ? "the optimizer's update on the host"
                                                           : "the optimizer's update"},
                {x->compute - best->compute - attention - recompute - update,
                 "other operations take longer"}};
    int most = 0;
    for (int i = 1; i < countof(grew); i++)
        most = grew[i].seconds > grew[most].seconds ? i : most;
    if (waits >= grew[most].seconds)
        return x->critical;
    return arena_printf(a, "%s: %.0f %% of the difference", grew[most].text,
                        100 * fmin(1, grew[most].seconds / more));
}

double cost_mfu(const Program *p, const Cost *c)
{
    return c->flops / (c->step * c->peak * p->cluster.world);
}

const char *cost_speed_text(Arena *a, const Program *p, const Cost *c)
{
    if (!(c->step > 0) || !isfinite(c->step) || !cost_is_of_program(p))
        return "";
    const double mfu = cost_mfu(p, c), tokens = (double)p->sequence * (double)p->train.batch;
    const char *text = arena_printf(a, "%.0f tokens/s, %.1f %% MFU", tokens / c->step, 100 * mfu);
    if (c->peak <= c->matmul)
        return text;
    return arena_printf(a, "%s (%.1f %% of the matmul rate)", text, 100 * mfu * c->peak / c->matmul);
}

/* Only attention has a rate other than matmul's. */
const char *cost_mfu_text(Arena *a, double mfu)
{
    return mfu <= 1 || !isfinite(mfu)
               ? NULL
               : arena_printf(a,
                              "%.0f %% MFU exceeds the devices' peak: the topology's attention rates are "
                              "above its matmul rate, to which MFU is relative",
                              100 * mfu);
}

static void sum_layers(const StepParts *p, const Program *program, Cost *c)
{
    const Cluster *cluster = &program->cluster;
    for (int k = 0; k < p->kinds; k++) {
        const LayerKind *l = &p->kind[k];
        /* with chunks of heads: the largest chunk */
        const int layers = k < program->mask_count ? l->layers : 0;
        c->attention_forward += layers * l->time[0].seconds / program->model.layers;
        c->attention_backward += layers * l->time[1].seconds / program->model.layers;
        for (int b = 0; b < p->attends; b++) {
            c->bytes_link += l->times[b] * l->time[b].link_bytes / p->ranks;
            c->bytes_nic += l->times[b] * l->time[b].nic_bytes / p->ranks;
            for (int u = 0; u < cluster->levels; u++)
                c->bytes_uplink[u] += l->times[b] * l->time[b].uplink_bytes[u] / p->ranks;
        }
    }
    c->bytes_link += p->weight_bytes - p->weight_nic_bytes;
    c->bytes_nic += p->weight_nic_bytes;
    for (int u = 0; u < cluster->levels; u++)
        c->bytes_uplink[u] += p->weight_uplink_bytes[u];
}

static void mean_rates(const Cluster *c, Cost *to)
{
    for (int r = 0; r < c->world; r++) {
        const NodeGroup *g = cluster_group_of(c, r);
        const double share = cost_rate_share(c, g) / c->world;
        to->matmul += g->device->matmul * share;
        to->peak += g->device->peak * share;
    }
}

Cost cost_draft(Arena *a, const Draft *d, double enough)
{
    StepParts p;
    step_record(a, d, enough, &p, NULL);
    Cost c = {.step = p.step,
              .at_least = p.at_least,
              .any_weights = p.any_weights,
              .compute = parts_compute(&p),
              .flops = p.flops,
              .rows = p.rows};
    c.memory = d->memory.total + d->memory.beside;
    mean_rates(&d->program->cluster, &c);
    sum_layers(&p, d->program, &c);
    c.exposed = fmax(0, c.step - c.compute);
    c.attention = p.attention_busy;
    c.tile_flops = p.tile_flops;
    c.latents = d->choice.latents;
    for (int b = 0; b < STEP_BLOCKS; b++)
        c.recompute += p.block[b].again;
    for (int b = BLOCK_MOMENTUM; b <= BLOCK_OPTIMIZER; b++)
        c.update += p.block[b].seconds;
    c.imbalance = cost_imbalance(&p);
    c.critical = critical_text(a, &p, &d->program->cluster, c.exposed);
    c.hidden = c.exposed + p.attention_busy - p.mean_attention_busy < 0.01 * c.step;
    return c;
}
