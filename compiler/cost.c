/* cost.c: what one training step of a plan takes, from a simulated timeline. docs/cost.md says what is modelled how. */
#include "cost.h"

#include <math.h>

Cost cost_simulate(Arena *a, const Plan *p)
{
    return cost_draft(a, plan_draft(p));
}

/* What the rank that computes most waits for most. */
static const char *critical_text(Arena *a, const StepParts *p, double exposed)
{
    static const char *const name[COST_CLASS_COUNT] = {
#define X(id, text) [COST_##id] = text,
        COST_CLASSES(X)
#undef X
    };
    if (exposed < 0.01 * p->step)
        return "compute: transfers hide behind it";
    double known = 0;
    int most = COST_COMPUTE;
    for (int c = COST_COMPUTE + 1; c < COST_CLASS_COUNT; c++) {
        known += p->path[c];
        if (most == COST_COMPUTE || p->path[c] > p->path[most])
            most = c;
    }
    double others = exposed - known; /* waiting while others compute */
    bool balance = others > p->path[most];
    return arena_printf(a, "%s (%.0f %% of the step)", balance ? "ranks with more to compute" : name[most],
                        100 * fmin(exposed, balance ? others : p->path[most]) / p->step);
}

static double imbalance(const StepParts *p)
{
    double sum = 0, most = 0;
    for (int r = 0; r < p->ranks; r++) {
        sum += p->pairs[r];
        most = fmax(most, p->pairs[r]);
    }
    return sum > 0 ? most * p->ranks / sum : 1;
}

static void sum_layers(const StepParts *p, int layers, Cost *c)
{
    double link = 0, nic = 0;
    for (int k = 0; k < p->kinds; k++) {
        const LayerKind *l = &p->kind[k];
        c->attention_forward += l->layers * l->forward.seconds / layers;
        c->attention_backward += l->layers * l->backward.seconds / layers;
        link += l->layers * ((1 + p->attention_again) * l->forward.link_bytes + l->backward.link_bytes);
        nic += l->layers * ((1 + p->attention_again) * l->forward.nic_bytes + l->backward.nic_bytes);
    }
    c->bytes_link = p->sequences * (link / p->ranks + p->weight_link);
    c->bytes_nic = p->sequences * (nic / p->ranks + p->weight_nic);
}

static double mean_peak(const Cluster *c)
{
    double sum = 0;
    for (int r = 0; r < c->world; r++)
        sum += cluster_group_of(c, r)->device->matmul * cost_rate_share(c, r);
    return sum / c->world;
}

Cost cost_draft(Arena *a, const Draft *d)
{
    StepParts p = step_parts(a, d);
    Cost c = {.step = p.step, .compute = p.slowest_compute, .flops = p.flops, .rows = p.rows};
    c.memory = d->memory.total + d->memory.beside;
    c.peak = mean_peak(&d->program->cluster);
    sum_layers(&p, d->program->model.layers, &c);
    c.exposed = fmax(0, c.step - c.compute);
    c.imbalance = imbalance(&p);
    c.critical = critical_text(a, &p, c.exposed);
    return c;
}
