/* whole.c: see whole.h. */
#include "whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t largest_shard(const BurstPlan *p)
{
    int64_t most = p->max_tokens;
    for (int u = 0; u < burst_unit_count(p); u++)
        most = burst_unit(p, u)->shard > most ? burst_unit(p, u)->shard : most;
    return most;
}

size_t whole_arena(const BurstPlan *p)
{
    return (size_t)largest_shard(p) * ((size_t)p->world + 1) * sizeof(float) + 128;
}

static bool is_tied(const BurstPlan *p)
{
    int64_t matrices = 0;
    const BurstUnit *last = burst_unit(p, p->layers + 1);
    for (int i = 0; i < last->tensors; i++)
        matrices += last->tensor[i].rows > 1 && last->tensor[i].cols > 1;
    return matrices == 0;
}

static bool layer_has(const BurstPlan *p, int of, const char *name)
{
    const BurstUnit *layer = burst_unit(p, 1 + of);
    for (int i = 0; i < layer->tensors; i++)
        if (strcmp(layer->tensor[i].name, name) == 0)
            return true;
    return false;
}

static bool has_tensor(const BurstPlan *p, const char *name)
{
    bool has = false;
    for (int l = 0; l < p->layers; l++)
        has |= layer_has(p, l, name);
    return has;
}

static void take_scans(Whole *x)
{
    const BurstPlan *p = x->p;
    const BurstScan *s = &p->scan;
    if (!p->layer.scan)
        return;
    x->shape.scans = x->scans = calloc((size_t)p->layers, sizeof *x->scans);
    for (int l = 0; x->scans && l < p->layers; l++) {
        const BurstUnit *layer = burst_unit(p, 1 + l);
        for (const BurstTensor *t = layer->tensor; t < layer->tensor + layer->tensors; t++) {
            if (strcmp(t->name, "linear_attn.conv1d.weight") != 0)
                continue;
            x->scans[l] = true;
            x->shape.scan = (Scan64){s->heads,
                                     s->key_heads,
                                     s->key_dim,
                                     s->value_dim,
                                     (int)t->cols,
                                     .plain = !s->read,
                                     .bias = layer_has(p, l, "linear_attn.conv1d.bias"),
                                     .skip = layer_has(p, l, "linear_attn.D"),
                                     .before = !s->read,
                                     .bare = !layer_has(p, l, "linear_attn.norm.weight"),
                                     .beside = p->layer.scan_attends,
                                     .step_least = s->step_least,
                                     .step_most = s->step_most};
        }
    }
}

static void take_indexer(Whole *x)
{
    const BurstIndexer *i = &x->p->indexer;
    if (!i->heads)
        return;
    x->shape.index = (struct Index64){i->heads, i->kv_heads, i->dim, i->rotary, i->norm};
    x->shape.indexed = x->indexed = calloc((size_t)x->p->layers, sizeof *x->indexed);
    for (int l = 0; x->indexed && l < x->p->layers; l++)
        x->indexed[l] = layer_has(x->p, l, BURST_INDEXER_TENSORS "q_proj.weight");
}

int whole_open(Whole *x, BurstCtx *c, const BurstPlan *p)
{
    /* The plan's constants do not say eps and theta: every model of these tests has the same. */
    *x = (Whole){c,
                 p,
                 {p->layers, p->hidden, p->heads, p->kv_heads, p->head_dim, p->ffn, p->vocab, 1e-5, 10000,
                  is_tied(p), p->softcap, has_tensor(p, "self_attn.q_proj.bias"),
                  has_tensor(p, "self_attn.q_norm.weight"), has_tensor(p, "self_attn.sinks"), p->latent,
                  p->query_latent, p->latent ? -p->rope.rotary : 0, p->latent ? p->value_dim : 0}};
    x->shape.qk_norm_all = p->layer.qk_norm_all;
    x->shape.qk_norm_rotated = p->layer.qk_norm_rotated;
    x->shape.attention_gate = p->layer.attention_gate;
    x->shape.attention_out = p->scale[BURST_SCALE_ATTENTION_OUT];
    x->shape.scan_out = p->scale[BURST_SCALE_SCAN_OUT];
    x->gap = 1;
    if (p->experts.experts) {
        const BurstExperts *e = &p->experts;
        x->shape.ffn = e->width, x->shape.dense_ffn = p->ffn;
        x->shape.dense = x->dense = calloc((size_t)p->layers, sizeof *x->dense);
        for (int l = 0; x->dense && l < p->layers; l++)
            x->dense[l] = !layer_has(p, l, "mlp.router.weight");
        x->shape.experts = e->experts, x->shape.top = e->top,
        x->shape.sigmoid = e->score == BURST_SCORE_SIGMOID;
        x->shape.normalize = e->normalize, x->shape.score_eps = e->eps, x->shape.score_scale = e->scale;
        x->shape.gap = &x->gap, x->shape.agreed = &x->agreed;
        x->shape.shared_ffn = e->shared, x->shape.shared_gate = e->shared_gate;
        x->shape.router_bias = e->router_bias, x->shape.correction = e->correction;
        x->shape.expert_bias = e->bias, x->shape.groups = e->groups, x->shape.top_groups = e->top_groups;
        x->shape.two = e->group_score == BURST_GROUP_TWO, x->shape.least = e->least;
        x->shape.alpha = e->alpha, x->shape.offset = e->offset, x->shape.limit = e->limit;
    }
    take_scans(x);
    take_indexer(x);
    x->tensors = tensor64_count(&x->shape);
    x->tensor = calloc((size_t)x->tensors, sizeof *x->tensor);
    x->shard = burst_take(c, (size_t)largest_shard(p) * sizeof(float));
    x->full = burst_take(c, (size_t)(largest_shard(p) * p->world) * sizeof(float));
    if (!x->tensor || (p->layer.scan && !x->scans) || (p->indexer.heads && !x->indexed) || !x->shard ||
        !x->full || (p->experts.experts && !x->dense))
        return burst_fail(c, BURST_E_MEMORY, "no memory for the whole model");
    x->count = tensor64_table(&x->shape, x->tensor);
    return BURST_OK;
}

void whole_close(Whole *x) { free(x->tensor), free(x->dense), free(x->scans), free(x->indexed); }

static int gather(Whole *x, BurstGroup ranks, const float *shard, int64_t elements)
{
    BurstGather op = {0};
    memcpy(x->shard, shard, (size_t)elements * sizeof(float));
    BURST_TRY(burst_gather_start(x->c, ranks, x->shard, elements, x->full, &op));
    BURST_TRY(burst_gather_wait(x->c, &op));
    return burst_barrier(x->c, ranks);
}

static const Tensor64 *find(const Whole *x, const char *name)
{
    for (int i = 0; i < x->tensors; i++)
        if (strcmp(x->tensor[i].name, name) == 0)
            return &x->tensor[i];
    return NULL;
}

static const Tensor64 *find_in_unit(const Whole *x, int layer, const BurstTensor *t)
{
    char name[192];
    const Tensor64 *found = find(x, t->name);
    snprintf(name, sizeof name, "model.layers.%d.%s", layer, t->name);
    return found ? found : find(x, name);
}

/* The rank's run of a tensor; what several ranks have is the same on all. */
static bool spread_run(const Whole *x, const BurstRun *r, const float *shard, double *out, int64_t *placed)
{
    for (int64_t j = 0; j < r->count; j++) {
        const double is = shard[r->at + j];
        if (!isnan(out[r->from + j]) && out[r->from + j] != is)
            return burst_fail(x->c, BURST_E_PLAN, "ranks that have the same weight have other values of it"),
                   false;
        *placed += isnan(out[r->from + j]);
        out[r->from + j] = is;
    }
    return true;
}

static int spread(const Whole *x, const BurstUnit *u, int layer, double *out, int64_t *placed)
{
    const BurstGroup shards = burst_shard_group(x->c);
    for (int i = 0; i < u->tensors; i++) {
        const BurstTensor *t = &u->tensor[i];
        const Tensor64 *to = find_in_unit(x, layer, t);
        if (!to || to->rows * to->cols != t->rows * t->cols)
            return burst_fail(x->c, BURST_E_PLAN, "no weight of a Llama is unit %s, tensor %s [%lld][%lld]",
                              u->name, t->name, (long long)t->rows, (long long)t->cols);
        for (int64_t j = 0; j < t->rows * t->cols; j++)
            out[to->offset + j] = NAN;
        for (int k = 0; k < shards.count; k++)
            for (BurstRun r = {0}; burst_next_run(x->p, shards.first + k, u, t, &r);)
                if (!spread_run(x, &r, x->full + k * u->shard, out + to->offset, placed))
                    return BURST_E_PLAN;
    }
    return BURST_OK;
}

int whole_weights(Whole *x, float *const *shards, double *out)
{
    int64_t placed = 0;
    for (int unit = 0; unit < burst_unit_count(x->p); unit++) {
        const BurstUnit *u = burst_unit(x->p, unit);
        BURST_TRY(gather(x, burst_shard_group(x->c), shards[unit], u->shard));
        BURST_TRY(spread(x, u, burst_whole_unit(x->p, unit) - 1, out, &placed));
    }
    if (placed != x->count)
        return burst_fail(x->c, BURST_E_PLAN, "the plan has %lld weights, a Llama of its shape %lld",
                          (long long)placed, (long long)x->count);
    return BURST_OK;
}

Sequence sequence_new(int64_t n)
{
    Sequence s = {calloc((size_t)n, sizeof(int32_t)), calloc((size_t)n, sizeof(int32_t)),
                  calloc((size_t)n, sizeof(int32_t)), new64(n), 0};
    if (!s.token || !s.label || !s.doc)
        abort();
    return s;
}

void sequence_free(Sequence *s)
{
    free(s->token), free(s->label), free(s->doc), free(s->weight);
}

/* Where tensor ranks have a chunk together, each group has several, neighbours; that of the first group,
 * and of these, has the least number. */
static int first_with(const Whole *x, int chunk)
{
    int rank = 0;
    while (x->p->chunk_of(rank) != chunk)
        rank++;
    return rank;
}

static BurstOwn own_tokens(const Whole *x, int rank)
{
    return burst_own_tokens(x->p, rank, x->p->tokens_of(x->p->chunk_of(rank)));
}

/* Puts one value a token of every rank of the first data group at its place. */
#define COLLECT(x, value, to) \
    do { \
        float mine_[(x)->p->max_tokens + 1]; \
        for (int64_t i = 0; i < own_tokens(x, burst_rank((x)->c)).tokens; i++) \
            mine_[i] = (float)(value); \
        BURST_TRY(gather(x, (BurstGroup){0, 1, (x)->p->world}, mine_, (x)->p->max_tokens)); \
        const int ranks_ = (x)->p->tensor ? (x)->p->tensor : 1; \
        for (int r_ = 0; r_ < (x)->p->group * ranks_; r_++) { \
            const int chunk_ = r_ / ranks_, rank_ = first_with(x, chunk_) + r_ % ranks_; \
            const BurstOwn own_ = own_tokens(x, rank_); \
            for (int64_t i = 0; i < own_.tokens; i++) \
                (to)[(x)->p->position(chunk_, own_.first + i)] = \
                    (typeof(*(to)))(x)->full[rank_ * (x)->p->max_tokens + i]; \
        } \
    } while (0)

int whole_sequence(Whole *x, int64_t step, int64_t index, Sequence *out)
{
    BurstBatch b;
    BURST_TRY(burst_batch_read(x->c, x->p, step, index, &b));
    COLLECT(x, b.token[i], out->token);
    COLLECT(x, b.label[i], out->label);
    COLLECT(x, b.weight[i], out->weight);
    out->counted = 0;
    for (int64_t i = 0; i < x->p->sequence; i++) {
        out->counted += out->label[i] >= 0 && out->weight[i] != 0;
        out->doc[i] = x->p->table_count ? b.tables.table[0][i] : 0;
    }
    return BURST_OK;
}
