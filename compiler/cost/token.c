/* cost/token.c: the time of a token that continues a prompt: each rank reads its weights and what it keeps of
 * the prompt once, by kernels one after the other, and the ranks merge each layer's attention. A recurrent
 * layer's state is written too.
 * Ranks that share the prompt may each compute a part of the rows of a product, where that is faster. If
 * each has slices of the weights, it reads these and the ranks gather all results; of experts in slices the
 * rank with most of the token's is waited for. On a device all heads attend the same latents, which may take
 * longer than reading them. */
#include "cost/cost.h"
#include "burst_sizes.h"

#include <math.h>
#include <string.h>

enum { MOST_TOP = 64 }; /* experts of a token; of more all are counted */

/* (1 + C(each, 1) z + ... up to z^most)^ranks: the coefficient of z^top, ways to choose so many experts with
 * at most `most` of a rank. */
static double ways(int each, int ranks, int top, int most)
{
    double all[MOST_TOP + 1] = {1};
    for (int r = 0; r < ranks; r++) {
        double next[MOST_TOP + 1] = {0};
        for (int n = 0; n <= top; n++) {
            double of_rank = 1; /* C(each, j) */
            for (int j = 0; j <= most && j <= n && j <= each; j++) {
                next[n] += of_rank * all[n - j];
                of_rank *= (double)(each - j) / (j + 1);
            }
        }
        memcpy(all, next, sizeof all);
    }
    return all[top];
}

/* The mean number of a token's experts on the rank that has most of them, if all are as likely. */
static double most_experts(int each, int ranks, int top)
{
    double mean = 0;
    if (top > MOST_TOP)
        return each < top ? each : top;
    const double all = ways(each, ranks, top, top);
    for (int most = 0; most < top; most++)
        mean += 1 - ways(each, ranks, top, most) / all;
    return mean;
}

/* Experts of a layer that a rank has, and does not read for a token. */
static double unread_experts(const Draft *d, const BurstExperts *m)
{
    const int ranks = d->units.at[units_layer(0)].ranks, each = (m->experts + ranks - 1) / ranks;
    return units_slice_experts(&d->units) ? each - most_experts(each, ranks, m->top) : m->experts - m->top;
}

static double read_elements(const Draft *d, const Unit *u)
{
    return (double)(d->units.slices ? u->shard : unit_gathered(u));
}

/* Elements of an expert's two or three matrices. */
static double expert_elements(const Draft *d, const Model *m)
{
    const BurstExperts *e = &m->experts;
    return ((double)burst_experts_columns(e) + e->width) * m->hidden / d->shape.tensor;
}

/* Elements that a token's products read of a layer: of experts the chosen ones. A layer's unit has none of
 * its experts if these are in groups. */
static double layer_elements(const Draft *d, int layer)
{
    const Model *all = &d->program->model;
    const Model m = model_with_kind(all, model_kind(all, layer));
    double elements = read_elements(d, units_of(&d->units, all, 1 + layer));
    if (m.experts.experts > 0)
        elements += (d->units.groups ? m.experts.top : -unread_experts(d, &m.experts)) *
                    expert_elements(d, &m);
    return elements;
}

/* Bytes of a layer's keys and values, and of its rows and state. */
static double kept_bytes(const Draft *d, int layer)
{
    const Model *m = &d->program->model;
    const Step *step = d->memory.flow->step;
    const BurstScan scan = scan_of_rank(m, d->shape.tensor);
    const int wide = d->program->target->activation_bytes;
    const bool latents = step_keeps_latents(step);
    const int64_t row = latents ? m->latent + m->shared
                                : (int64_t)d->shape.rank.kv_heads * (m->head_dim + m->value_dim);
    double bytes = 0;
    if (step_is_recurrent(step, layer))
        bytes += (double)m->scan_kernel * scan.columns * wide +
                 2.0 * (double)burst_scan_state(&scan) * (double)sizeof(float);
    if (step_keeps_keys(step, layer))
        bytes += (double)(step_cache_tokens(step, layer) * row * wide);
    return bytes;
}

/* Bytes of weights that a rank reads. */
static double weight_bytes(const Draft *d)
{
    const Model *m = &d->program->model;
    const Unit *head = &d->units.at[m->tied ? 0 : d->units.head];
    double elements = read_elements(d, head);
    for (int l = 0; l < m->layers; l++)
        elements += layer_elements(d, l);
    return d->program->target->activation_bytes * elements;
}

static double slowest_attention(const Cluster *c)
{
    double rate = HUGE_VAL;
    for (int r = 0; r < c->world; r++) {
        const double own = cluster_group_of(c, r)->device->attention_forward;
        rate = fmin(rate, own > 0 ? own : HUGE_VAL);
    }
    return rate;
}

/* Seconds in which a rank attends what it keeps; rate: of memory. */
static double kept_seconds(const Draft *d, double rate)
{
    const Model *m = &d->program->model;
    const Step *step = d->memory.flow->step;
    const double row = 2.0 * d->shape.rank.heads * (2 * m->latent + m->shared), /* operations */
        attention = slowest_attention(&d->program->cluster);
    const bool computes = d->program->target->device_memory && step_keeps_latents(step);
    double seconds = 0;
    for (int l = 0; l < m->layers; l++) {
        const double reads = kept_bytes(d, l) / rate;
        const bool latents = computes && step_keeps_keys(step, l);
        seconds += latents ? fmax(reads, row * (double)step_cache_tokens(step, l) / attention) : reads;
    }
    return seconds;
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
        attends += step_keeps_keys(d->memory.flow->step, l);
    if (c->ranks > 1)
        merged = collective_of(&p->cluster, (Ring){c->ranks, tensor, 2, true}, part * c->ranks).seconds;
    if (tensor > 1)
        seconds += 4 * collective_of(&p->cluster, (Ring){tensor, 1, 1, true}, token * tensor).seconds;
    return attends * merged + p->model.layers * seconds;
}

/* ---- products that ranks split ---- */

/* A rank's part of the rows begins at a multiple of 8. */
int cost_split_rows(const Draft *d) { return 8 * d->choice.ranks; }

/* A product of a further token: what it reads, and what its results take. */
typedef struct TokenProduct {
    int64_t rows, cols;
    int bytes; /* of a result */
} TokenProduct;

/* rows 0: none of those that are split. */
static TokenProduct product_of(const Draft *d, const Block *b, const Op *o)
{
    const bool linear = o->kind == OP_LINEAR, head = o->kind == OP_NEXT;
    const UnitTensor *t = linear || head ? op_tensor(d->memory.flow->step, o, b) : NULL;
    if (!t || (linear && t->heads == SPLIT_COLS))
        return (TokenProduct){0};
    return (TokenProduct){(int64_t)t->rows * (linear ? o->tensors : 1), t->cols,
                          linear ? d->program->target->activation_bytes : (int)sizeof(float)};
}

/* Seconds that a split takes more: gathering results, less the reading of what other ranks have. */
static double split_seconds(const Draft *d, TokenProduct x, double rate)
{
    const int ranks = d->choice.ranks;
    /* the host adds what is 0 elsewhere, a device gathers */
    const Ring ring = {ranks, d->shape.tensor, d->program->target->device_memory ? 1 : 2, true};
    const double others = (double)x.rows * (double)x.cols * (ranks - 1) / ranks;
    return collective_of(&d->program->cluster, ring, (double)x.rows * x.bytes).seconds -
           others * d->program->target->activation_bytes / rate;
}

static double slowest_memory(const Cluster *c)
{
    double rate = HUGE_VAL;
    for (int r = 0; r < c->world; r++) {
        const Device *x = cluster_group_of(c, r)->device;
        const double own = x->passes > 0 ? x->passes : x->hbm;
        rate = fmin(rate, own > 0 ? own : HUGE_VAL);
    }
    return rate;
}

bool cost_splits_product(const Draft *d, const Block *b, const Op *o)
{
    const TokenProduct x = product_of(d, b, o);
    const int products = d->program->infer.products;
    if (d->choice.ranks < 2 || d->units.slices || products == PRODUCTS_WHOLE || x.rows == 0 ||
        x.rows % cost_split_rows(d) != 0)
        return false;
    return products == PRODUCTS_SPLIT || split_seconds(d, x, slowest_memory(&d->program->cluster)) < 0;
}

/* Seconds that the block's splits take more; splits: how many there are. */
static double split_block(const Draft *d, const Block *b, double rate, int *splits)
{
    double seconds = 0;
    for (int i = 0; i < b->ops.n; i++)
        if (cost_splits_product(d, b, &b->ops.at[i])) {
            seconds += split_seconds(d, product_of(d, b, &b->ops.at[i]), rate);
            ++*splits;
        }
    return seconds;
}

static double all_splits(const Draft *d, double rate, int *splits)
{
    const Step *s = d->memory.flow->step;
    double seconds = split_block(d, &s->block[BLOCK_HEAD], rate, splits);
    for (int l = 0; l < d->program->model.layers; l++)
        seconds += split_block(d, &s->block[BLOCK_FORWARD + model_kind(&d->program->model, l)], rate, splits);
    return seconds;
}

bool cost_token_splits(const Draft *d)
{
    int splits = 0;
    all_splits(d, slowest_memory(&d->program->cluster), &splits);
    return splits > 0;
}

/* ---- weights in slices ---- */

/* Bytes that ranks gather, or add up, of the operation's result. */
static double sliced_bytes(const Draft *d, const Block *b, const Op *o)
{
    const Step *s = d->memory.flow->step;
    const Model *m = &d->program->model;
    const bool device = d->program->target->device_memory;
    const double row = (double)m->hidden * d->program->target->activation_bytes;
    switch (o->kind) {
    case OP_EMBED: return device ? row * s->units.ranks : row;
    case OP_COMBINE: return device ? row * d->choice.ranks : row;
    case OP_NEXT: return (double)m->vocab * (double)sizeof(float);
    default: return (double)op_tensor(s, o, b)->rows * o->tensors * d->program->target->activation_bytes;
    }
}

static double slices_of_block(const Draft *d, const Block *b)
{
    const Step *s = d->memory.flow->step;
    const int rounds = d->program->target->device_memory ? 1 : 2; /* the host adds what is 0 elsewhere */
    double seconds = 0;
    for (int i = 0; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        const bool all = o->kind == OP_EMBED || o->kind == OP_NEXT;
        const Ring ring = {all ? s->units.ranks : d->choice.ranks, all ? 1 : d->shape.tensor, rounds, true};
        if (step_has_slices(s, b, o) && ring.ranks > 1)
            seconds += collective_of(&d->program->cluster, ring, sliced_bytes(d, b, o)).seconds;
    }
    return seconds;
}

/* The sum of a figure over the blocks that a token passes: embedding, all layers, head. */
static double sum_of_blocks(const Draft *d, double (*figure)(const Draft *, const Block *))
{
    const Step *s = d->memory.flow->step;
    double sum = figure(d, &s->block[BLOCK_EMBED]) + figure(d, &s->block[BLOCK_HEAD]);
    for (int l = 0; l < d->program->model.layers; l++)
        sum += figure(d, &s->block[BLOCK_FORWARD + model_kind(&d->program->model, l)]);
    return sum;
}

/* Seconds in which ranks gather and add up what they computed by their slices. */
static double all_slices(const Draft *d) { return sum_of_blocks(d, slices_of_block); }

static double block_launches(const Draft *d, const Block *b)
{
    const Step *s = d->memory.flow->step;
    int launches = 0;
    for (int i = 0; i < b->ops.n; i++)
        launches += op_stream(b->ops.at[i].kind) == STREAM_COMPUTE ? op_launches(s, &b->ops.at[i], 1) : 0;
    return launches;
}

/* Seconds that launching a token's kernels adds to what they read. */
static double launches_seconds(const Draft *d)
{
    return sum_of_blocks(d, block_launches) * d->program->target->recorded_kernel;
}

double cost_continued(const Draft *d)
{
    const double rate = slowest_memory(&d->program->cluster);
    int splits = 0;
    return weight_bytes(d) / rate + kept_seconds(d, rate) + launches_seconds(d) + token_transfers(d) +
           all_slices(d) + all_splits(d, rate, &splits);
}
