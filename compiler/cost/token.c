/* cost/token.c: the time of a token that continues a prompt: each rank reads its weights and what it keeps of
 * the prompt once, by kernels one after the other, and the ranks merge each layer's attention. A recurrent
 * layer's state is written too.
 * Ranks that share the prompt may each compute a part of the rows of a product, where that is faster. On
 * a device all heads attend the same latents, which may take longer than reading them. */
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
    double elements = (double)(head->shard * head->ranks);
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
    if (d->choice.ranks < 2 || products == PRODUCTS_WHOLE || x.rows == 0 || x.rows % cost_split_rows(d) != 0)
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

static int block_launches(const Step *s, const Block *b)
{
    int launches = 0;
    for (int i = 0; i < b->ops.n; i++)
        launches += op_stream(b->ops.at[i].kind) == STREAM_COMPUTE ? op_launches(s, &b->ops.at[i], 1) : 0;
    return launches;
}

/* Seconds that launching a token's kernels adds to what they read. */
static double launches_seconds(const Draft *d)
{
    const Step *s = d->memory.flow->step;
    int launches = block_launches(s, &s->block[BLOCK_EMBED]) + block_launches(s, &s->block[BLOCK_HEAD]);
    for (int l = 0; l < d->program->model.layers; l++)
        launches += block_launches(s, &s->block[BLOCK_FORWARD + model_kind(&d->program->model, l)]);
    return launches * d->program->target->recorded_kernel;
}

double cost_continued(const Draft *d)
{
    const double rate = slowest_memory(&d->program->cluster);
    int splits = 0;
    return weight_bytes(d) / rate + kept_seconds(d, rate) + launches_seconds(d) + token_transfers(d) +
           all_splits(d, rate, &splits);
}
