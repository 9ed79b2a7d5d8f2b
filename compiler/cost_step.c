/* cost_step.c: one training step: attention as simulated, and around it projections, feed-forward, norms, loss, weights and
 * optimizer as rates. On devices a layer's weights travel beside the layer before; on cpu nothing overlaps.
 */
#include "cost.h"

#include "burst_sizes.h"

#include <math.h>

typedef struct Stepper { Arena *arena; const Draft *draft; const Program *program; bool cpu; StepParts *parts; } Stepper;

/* ---- the dense parts of a layer ---- */

typedef struct Work { double flops, bytes; } Work; /* matrix products, memory traffic of the rest */

/* Forward of what is not attention, for one token. */
typedef struct DenseWork { Work projections, ffn, norms; } DenseWork;
static DenseWork dense_parts_work(const Model *m, double e)
{
    double q = (double)m->heads * m->head_dim, kv = 2.0 * m->kv_heads * m->head_dim, d = m->hidden, f = m->ffn;
    return (DenseWork){.projections = {.flops = 2 * d * (2 * q + kv)},
                       .ffn = {.flops = 6 * d * f, .bytes = e * 3 * f}, /* gate, up, product */
                       /* two norms, two residual sums; rotation and layout of q, k, v, o */
                       .norms = {.bytes = e * (10 * d + 4 * q + 2 * kv)}};
}

/* What backward makes again of it, for one token: all products but down's. Backward normalises x_mid and multiplies gate by
 * up in any case; full recomputation normalises x once more than selective, where h is still there. */
static DenseWork again_parts_work(const Model *m, double e, Recompute r)
{
    double q = (double)m->heads * m->head_dim, kv = 2.0 * m->kv_heads * m->head_dim, d = m->hidden, f = m->ffn;
    if (r == RECOMPUTE_NONE)
        return (DenseWork){0};
    return (DenseWork){.projections = {.flops = 2 * d * (2 * q + kv)},
                       .ffn = {.flops = 4 * d * f},
                       /* the first residual sum; rotation and layout of q, k, v, o; a norm */
                       .norms = {.bytes = e * (3 * d + 4 * q + 2 * kv + (r == RECOMPUTE_FULL ? 2 * d : 0))}};
}

static Work sum_work(DenseWork w)
{
    return (Work){w.projections.flops + w.ffn.flops, w.ffn.bytes + w.norms.bytes};
}

static double work_seconds(const Stepper *s, int rank, Work w, double times)
{
    const Cluster *c = &s->program->cluster;
    const Device *d = cluster_group_of(c, rank)->device;
    return times * (w.flops / (d->matmul * cost_rate_share(c, rank)) + (d->hbm > 0 ? w.bytes / d->hbm : 0));
}

/* Longest over the group's ranks of the work that each has per token. */
static double slowest(const Stepper *s, Work w)
{
    const Choice *c = s->draft->forward->choice;
    double most = 0;
    for (int r = 0; r < s->program->cluster.world; r++)
        most = fmax(most, work_seconds(s, r, w, (double)s->draft->partition->of[r % c->ranks].tokens));
    return most;
}

/* Logits, and both gradients from them. On a GPU a tile's logits are read twice and its gradients written, and dw is read and
 * written for each tile (runtime/cuda/loss.cu). */
static Work loss_work(const Stepper *s, const Model *m, double e)
{
    const double d = m->hidden, tile = (double)burst_gpu_loss_tile(m->vocab);
    return (Work){6 * d * m->vocab, e * 4 * d + (s->cpu ? 0 : m->vocab * (4 + 4 + 2 + 8 * d / tile))};
}

static void dense_parts(Stepper *s)
{
    const Model *m = &s->program->model;
    double e = s->cpu ? 4 : 2, d = m->hidden;
    Work layer = sum_work(dense_parts_work(m, e)), twice = {2 * layer.flops, 2 * layer.bytes};
    s->parts->dense_forward = slowest(s, layer);
    s->parts->dense_again = slowest(s, sum_work(again_parts_work(m, e, s->draft->choice.recompute)));
    s->parts->dense_backward = slowest(s, twice);
    s->parts->loss = slowest(s, loss_work(s, m, e));
    s->parts->embedding = slowest(s, (Work){0, e * 4 * d});
    double elements = 0, most = 0;
    for (int u = 0; u < s->draft->units.n; u++)
        elements += (double)s->draft->units.at[u].shard * s->draft->units.at[u].repeat;
    /* parameter, both moments read and written, gradient read twice (norm, update) and cleared; low-precision copy */
    for (int r = 0; r < s->program->cluster.world; r++)
        most = fmax(most, work_seconds(s, r, (Work){0, 4 * 9 + (s->cpu ? 0 : 2)}, elements));
    s->parts->optimizer = most;
}

/* ---- weights ---- */

static double slowest_nic(const Cluster *c)
{
    double least = c->link_bandwidth > 0 ? c->link_bandwidth : 1e30;
    for (int g = 0; g < c->group_count; g++) {
        const NodeGroup *n = &c->groups[g];
        if (n->nic && n->nics > 0)
            least = fmin(least, n->nics * n->nic->bandwidth / fmax(1, c->oversubscription));
    }
    return least;
}

/* Ring collective of `bytes` in full over all ranks, every NIC of a node in use. */
static double collective_seconds(const Cluster *c, double bytes)
{
    if (c->world == 1)
        return 0;
    const NodeGroup *g = &c->groups[0];
    double rate = c->nodes > 1 ? slowest_nic(c) : c->link_bandwidth > 0 ? c->link_bandwidth : 1e30;
    double latency = (c->nodes - 1) * (g->nic ? g->nic->latency : c->link_latency) + (g->gpus - 1) * c->link_latency;
    return bytes * (c->world - 1) / c->world / rate + latency * 1e-9;
}

static double unit_elements(const Stepper *s, int unit)
{
    const Units *u = &s->draft->units;
    if (unit >= u->n)
        return 0;
    bool tied_head = unit == 2 && s->program->model.tied; /* reads the embedding once more */
    return (double)u->at[unit].elements + (tied_head ? (double)u->at[0].elements : 0);
}

/* What of a transfer of weights shows beside `cover` seconds of other work, whose own transfers take `wire` of them. */
static double uncovered(const Stepper *s, double transfer, double cover, double wire)
{
    return s->cpu ? transfer : fmax(0, transfer + wire - cover);
}

/* Seconds that attention itself keeps the wire busy that weights need. */
static double wire_seconds(const Stepper *s, const AttentionTime *t)
{
    const Cluster *c = &s->program->cluster;
    double ranks = s->parts->ranks;
    if (c->nodes > 1)
        return t->nic_bytes / ranks * c->groups[0].gpus / slowest_nic(c);
    return c->link_bandwidth > 0 ? t->link_bytes / ranks / c->link_bandwidth : 0;
}

static void count_weight_bytes(Stepper *s, double elements)
{
    const Cluster *c = &s->program->cluster;
    double bytes = elements * (2 * (s->cpu ? 4 : 2) + 4) * (c->world - 1) / c->world;
    double far = c->nodes > 1 ? (double)c->nodes / c->world : 0; /* hops of the ring that leave a node */
    s->parts->weight_nic += bytes * far;
    s->parts->weight_link += bytes * (1 - far);
}

static void weight_parts(Stepper *s)
{
    StepParts *p = s->parts;
    const Cluster *c = &s->program->cluster;
    double e = s->cpu ? 4 : 2;
    p->gather = collective_seconds(c, unit_elements(s, 1) * e);
    p->reduce = collective_seconds(c, unit_elements(s, 1) * 4);
    for (int k = 0; k < p->kinds; k++) {
        const LayerKind *l = &p->kind[k];
        if (!l->layers)
            continue;
        double f = l->forward.seconds + p->dense_forward, b = l->backward.seconds + p->dense_backward;
        double wire = wire_seconds(s, &l->forward);
        b += p->dense_again + p->attention_again * l->forward.seconds;
        p->weights += l->layers * uncovered(s, p->gather, f, wire);
        p->weights += l->layers * uncovered(s, p->gather + p->reduce, b,
                                            wire_seconds(s, &l->backward) + p->attention_again * wire);
    }
    /* The first gather and the last reduction have nothing to hide behind; the head's have the loss. */
    p->first_gather = collective_seconds(c, unit_elements(s, 0) * e);
    p->last_reduce = collective_seconds(c, unit_elements(s, 0) * 4);
    p->weights += p->first_gather + p->last_reduce;
    p->weights += uncovered(s, collective_seconds(c, unit_elements(s, 2) * (e + 4)), p->loss, 0);
    count_weight_bytes(s, unit_elements(s, 0) + unit_elements(s, 1) * s->program->model.layers + unit_elements(s, 2));
}

/* ---- attention ---- */

static double total(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* Unmasked pairs of a whole sequence: the ranks' own where all are simulated. */
static double sequence_pairs(const Stepper *s, int mask, const double *pairs)
{
    if (s->parts->ranks == s->draft->forward->choice->ranks)
        return total(pairs, s->parts->ranks);
    int64_t n = s->draft->partition->sequence;
    const Piece all = {0, n, n, 1};
    const PosSet sequence = {n, 1, &all};
    return (double)mask_work(s->draft->maps[mask], &sequence, &sequence).pairs;
}

static void attention_parts(Stepper *s)
{
    StepParts *p = s->parts;
    const Model *m = &s->program->model;
    for (int l = 0; l < m->layers; l++)
        p->kind[s->program->layer_mask[l]].layers++;
    for (int k = 0; k < p->kinds; k++) {
        LayerKind *l = &p->kind[k];
        if (!l->layers)
            continue;
        double *pairs = NEW_ARRAY(s->arena, double, p->ranks);
        AttentionInput forward = cost_load(s->arena, s->draft, p->ranks, k, false, pairs);
        AttentionInput backward = cost_load(s->arena, s->draft, p->ranks, k, true, NULL);
        p->rank = forward.rank;
        l->forward = attention_simulate(s->arena, &forward);
        l->backward = attention_simulate(s->arena, &backward);
        for (int r = 0; r < p->ranks; r++)
            p->pairs[r] += l->layers * pairs[r];
        p->flops += 3 * 4.0 * l->layers * sequence_pairs(s, k, pairs) * m->head_dim * m->heads;
        for (int c = 0; c < COST_CLASS_COUNT; c++)
            p->path[c] += p->sequences * l->layers * ((1 + p->attention_again) * l->forward.path[c] + l->backward.path[c]);
    }
}

/* ---- sums ---- */

static double rank_attention(const StepParts *p, int rank)
{
    double sum = 0;
    for (int k = 0; k < p->kinds; k++)
        if (p->kind[k].layers)
            sum += p->kind[k].layers *
                   ((1 + p->attention_again) * p->kind[k].forward.busy[rank] + p->kind[k].backward.busy[rank]);
    return sum;
}

static double transfers_of(const AttentionTime *t, int rank)
{
    double sum = 0;
    for (int i = 0; i < t->intervals; i++)
        if (t->interval[i].rank == rank && t->interval[i].channel >= 0)
            sum += t->interval[i].end - t->interval[i].begin;
    return sum;
}

static void attention_rows(const StepParts *p, int rank)
{
    for (int k = 0; k < p->kinds; k++) {
        const LayerKind *l = &p->kind[k];
        double forward = p->sequences * l->layers * (1 + p->attention_again), backward = p->sequences * l->layers;
        if (!l->layers)
            continue;
        p->rows[BURST_ROW_ATTENTION_FORWARD] += forward * l->forward.busy[rank];
        p->rows[BURST_ROW_ATTENTION_BACKWARD] += backward * l->backward.busy[rank];
        p->rows[BURST_ROW_PASS] += forward * transfers_of(&l->forward, rank) + backward * transfers_of(&l->backward, rank);
    }
}

static BurstRestForecast rest_seconds(const Stepper *s, DenseWork w)
{
    return (BurstRestForecast){slowest(s, w.norms), slowest(s, w.projections), slowest(s, w.ffn)};
}

/* As the runtime's table has them: computing, and what of the step is left for waits; then what runs beside. */
static void row_parts(const Stepper *s)
{
    StepParts *p = s->parts;
    const Cluster *c = &s->program->cluster;
    DenseWork w = dense_parts_work(&s->program->model, s->cpu ? 4 : 2);
    DenseWork again = again_parts_work(&s->program->model, s->cpu ? 4 : 2, s->draft->choice.recompute);
    double layers = p->sequences * s->program->model.layers, computing = 0;
    for (int r = 1; r < p->ranks; r++)
        p->busiest = rank_attention(p, r) > rank_attention(p, p->busiest) ? r : p->busiest;
    p->rest = rest_seconds(s, w);
    p->rest_again = rest_seconds(s, again);
    attention_rows(p, p->busiest);
    p->rows[BURST_ROW_PROJECTIONS] = layers * (3 * p->rest.projections + p->rest_again.projections);
    p->rows[BURST_ROW_FFN] = layers * (3 * p->rest.ffn + p->rest_again.ffn);
    p->rows[BURST_ROW_NORMS] = layers * (3 * p->rest.norms + p->rest_again.norms);
    p->rows[BURST_ROW_LOSS] = p->sequences * p->loss;
    p->rows[BURST_ROW_EMBEDDING] = p->sequences * p->embedding;
    p->rows[BURST_ROW_OPTIMIZER] = p->optimizer;
    for (int r = 0; r < BURST_ROW_WAIT; r++)
        computing += p->rows[r];
    p->rows[BURST_ROW_WAIT] = fmax(0, p->step - computing);
    double ends = unit_elements(s, 0) + unit_elements(s, 2), e = s->cpu ? 4 : 2;
    p->rows[BURST_ROW_GATHER] = 2 * layers * p->gather + p->sequences * collective_seconds(c, ends * e);
    p->rows[BURST_ROW_REDUCE] = layers * p->reduce + p->sequences * collective_seconds(c, ends * 4);
}

static void sum_parts(Stepper *s)
{
    StepParts *p = s->parts;
    const Model *m = &s->program->model;
    double attention = 0, busy = 0;
    for (int k = 0; k < p->kinds; k++)
        attention += p->kind[k].layers * ((1 + p->attention_again) * p->kind[k].forward.seconds + p->kind[k].backward.seconds);
    for (int r = 0; r < p->ranks; r++)
        busy = fmax(busy, rank_attention(p, r));
    double dense = m->layers * (p->dense_forward + p->dense_again + p->dense_backward) + p->loss + p->embedding;
    p->slowest_compute = p->sequences * (busy + dense) + p->optimizer;
    p->step = p->sequences * (attention + dense + p->weights) + p->optimizer;
    p->path[COST_WEIGHTS] = p->sequences * p->weights;
    double matrices = m->layers * sum_work(dense_parts_work(m, 0)).flops + 2.0 * m->hidden * m->vocab;
    p->flops = (double)s->program->train.batch * (p->flops + 3 * matrices * (double)s->draft->partition->sequence);
}

StepParts step_parts(Arena *a, const Draft *d)
{
    const Program *p = d->program;
    const Choice *c = d->forward->choice;
    StepParts parts = {.ranks = cost_simulated_ranks(d), .kinds = p->mask_count};
    int64_t groups = c->data > 0 ? c->data : 1;
    parts.sequences = (double)((p->train.batch + groups - 1) / groups);
    parts.attention_again = c->recompute == RECOMPUTE_FULL;
    parts.kind = NEW_ARRAY(a, LayerKind, p->mask_count);
    parts.pairs = NEW_ARRAY(a, double, parts.ranks);
    parts.rows = NEW_ARRAY(a, double, BURST_ROW_COUNT);
    Stepper s = {a, d, p, p->cluster.groups[0].device->is_cpu, &parts};
    attention_parts(&s);
    dense_parts(&s);
    weight_parts(&s);
    sum_parts(&s);
    row_parts(&s);
    return parts;
}
