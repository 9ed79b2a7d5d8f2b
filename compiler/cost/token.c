/* cost/token.c: the time of a token that continues a prompt: each rank reads its weights and what it keeps of
 * the prompt once, and the ranks merge each layer's attention. A recurrent layer's state is written too. */
#include "cost/cost.h"
#include "burst_sizes.h"

#include <math.h>

/* Elements that a token's products read of a layer: of experts the chosen ones. */
static double layer_elements(const Draft *d, int layer)
{
    const Model *all = &d->program->model;
    const Model m = model_with_kind(all, model_kind(all, layer));
    const Unit *u = units_of(&d->units, all, 1 + layer);
    double elements = (double)(u->shard * u->ranks);
    if (m.experts.experts > 0)
        elements -= 3.0 * (m.experts.experts - m.experts.top) * m.experts.width * m.hidden / d->shape.tensor;
    return elements;
}

/* Bytes of a layer's keys and values, or of its rows and state. */
static double kept_bytes(const Draft *d, int layer)
{
    const Model *m = &d->program->model;
    const Step *step = d->memory.flow->step;
    const BurstScan scan = scan_of_rank(m, d->shape.tensor);
    const int wide = d->program->target->activation_bytes;
    if (step_is_recurrent(step, layer))
        return (double)m->scan_kernel * scan.columns * wide +
               2.0 * (double)burst_scan_state(&scan) * (double)sizeof(float);
    return (double)step_cache_tokens(step, layer) * d->shape.rank.kv_heads * (m->head_dim + m->value_dim) *
           wide;
}

/* Bytes that a rank reads. */
static double token_bytes(const Draft *d)
{
    const Program *p = d->program;
    const Model *m = &p->model;
    const Unit *head = &d->units.at[m->tied ? 0 : d->units.head];
    double elements = (double)(head->shard * head->ranks), kept = 0;
    for (int l = 0; l < m->layers; l++) {
        elements += layer_elements(d, l);
        kept += kept_bytes(d, l);
    }
    return p->target->activation_bytes * elements + kept;
}

/* Seconds in which ranks merge a layer's attention, and tensor ranks gather and add up its tokens. */
static double token_transfers(const Draft *d)
{
    const Program *p = d->program;
    const Choice *c = &d->choice;
    const int tensor = d->shape.tensor;
    const double part = (double)d->shape.rank.heads * (p->model.value_dim + 1) * (double)sizeof(float),
                 token = (double)p->model.hidden * p->target->activation_bytes;
    double merged = 0, seconds = 0;
    int attends = 0;
    for (int l = 0; l < p->model.layers; l++)
        attends += !step_is_recurrent(d->memory.flow->step, l);
    if (c->ranks > 1)
        merged = collective_of(&p->cluster, (Ring){c->ranks, tensor, 2, true}, part * c->ranks).seconds;
    if (tensor > 1)
        seconds += 4 * collective_of(&p->cluster, (Ring){tensor, 1, 1, true}, token * tensor).seconds;
    return attends * merged + p->model.layers * seconds;
}

double cost_continued(const Draft *d)
{
    const Cluster *c = &d->program->cluster;
    double rate = HUGE_VAL;
    for (int r = 0; r < c->world; r++) {
        const Device *x = cluster_group_of(c, r)->device;
        const double own = x->hbm > 0 ? x->hbm : x->passes;
        rate = fmin(rate, own > 0 ? own : HUGE_VAL);
    }
    return token_bytes(d) / rate + token_transfers(d);
}
