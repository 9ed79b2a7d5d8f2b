/* mini.c: the miniature plan. Its training is a few naive loops in double, so that one rank and eight give
 * the same losses up to the order of float sums. */
#include "mini.h"
#include "burst_step.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { V = MINI_VOCAB, D = MINI_HIDDEN, UNITS = 3 };

static Mini facts;
static const BurstTensor embedding[] = {{"model.embed_tokens.weight", V, D, 0, 0.5f}};
static const BurstTensor head[] = {{"model.norm.weight", 1, D, 0, 0}, {"lm_head.weight", V, D, D, 0.5f}};
static const BurstTensor layer[] = {{"scale.weight", 1, D, 0, 0}};
static BurstUnit units[UNITS];
static const char *const tables[] = {"doc"};
static BurstPlan plan;

typedef struct State {
    float *full[UNITS], *grad[UNITS];
} State;

static int64_t tokens_of(int chunk)
{
    (void)chunk;
    return facts.sequence / (facts.world / facts.data);
}

static int64_t position(int chunk, int64_t i)
{
    int group = facts.world / facts.data;
    int64_t n = facts.sequence / group, half = n / 2;
    switch (facts.partition) {
    case MINI_STRIPED:
        return i * group + chunk;
    case MINI_ZIGZAG: /* piece chunk from the front and piece chunk from the back */
        return i < half ? chunk * half + i : facts.sequence - (chunk + 1) * (n - half) + (i - half);
    default:
        return chunk * n + i;
    }
}

static int start(BurstCtx *c, void *state, BurstWeights *w)
{
    State *s = state;
    (void)w;
    for (int u = 0; u < UNITS; u++) {
        size_t bytes = (size_t)units[u].shard * (size_t)facts.world * sizeof(float);
        s->full[u] = burst_take(c, bytes);
        s->grad[u] = burst_take(c, bytes);
        if (!s->full[u] || !s->grad[u])
            return BURST_E_MEMORY;
    }
    return BURST_OK;
}

/* What goes wrong, and in which step of which rank. */
static void misbehave(int rank, int64_t step, BurstStep *result)
{
    char what[16];
    int where;
    long long when;
    if (!facts.fault || sscanf(facts.fault, "%15s %d %lld", what, &where, &when) != 3 || when != step + 1)
        return;
    if (strcmp(what, "nan") == 0)
        result->loss = NAN;
    if (where != rank)
        return;
    if (strcmp(what, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(what, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(what, "exit") == 0)
        _exit(0);
    if (strcmp(what, "hang") == 0)
        for (;;)
            pause();
}

/* One token: the loss, and gradients added. x = embedding[token] * scale, logit[v] = sum norm * W[v] * x. */
static double one_token(const State *s, int token, int label, double scale)
{
    const float *e = s->full[0] + token * D, *factor = s->full[1], *norm = s->full[2], *w = s->full[2] + D;
    double x[D], logit[V], most = -INFINITY, sum = 0, loss, dx[D] = {0};
    for (int i = 0; i < D; i++)
        x[i] = (double)e[i] * factor[i] * norm[i];
    for (int v = 0; v < V; v++) {
        logit[v] = 0;
        for (int i = 0; i < D; i++)
            logit[v] += w[v * D + i] * x[i];
        most = fmax(most, logit[v]);
    }
    for (int v = 0; v < V; v++)
        sum += exp(logit[v] - most);
    loss = most + log(sum) - logit[label];
    for (int v = 0; v < V; v++) {
        double d = scale * (exp(logit[v] - most) / sum - (v == label));
        for (int i = 0; i < D; i++) {
            dx[i] += d * w[v * D + i];
            s->grad[2][D + v * D + i] += (float)(d * x[i]);
        }
    }
    for (int i = 0; i < D; i++) {
        s->grad[0][token * D + i] += (float)(dx[i] * factor[i] * norm[i]);
        s->grad[1][i] += (float)(dx[i] * e[i] * norm[i]);
        s->grad[2][i] += (float)(dx[i] * e[i] * factor[i]);
    }
    return loss;
}

static int sequence_step(BurstCtx *c, void *state, BurstWeights *w, const BurstBatch *b, double scale,
                         double *loss_sum)
{
    State *s = state;
    BurstGroup all = {0, 1, facts.world};
    BurstGather gather[UNITS];
    for (int u = 0; u < UNITS; u++) {
        BURST_TRY(burst_gather_start(c, all, w->param[u], units[u].shard, s->full[u], &gather[u]));
        memset(s->grad[u], 0, (size_t)units[u].shard * (size_t)facts.world * sizeof(float));
    }
    for (int u = 0; u < UNITS; u++)
        BURST_TRY(burst_gather_wait(c, &gather[u]));
    for (int64_t i = 0; i < tokens_of(0); i++)
        if (b->weight[i] > 0)
            *loss_sum += one_token(s, b->token[i], b->label[i], scale);
    for (int u = 0; u < UNITS; u++)
        BURST_TRY(burst_reduce_scatter(c, all, s->grad[u], units[u].shard, w->grad[u]));
    return BURST_OK;
}

static double counted(const BurstBatch *b)
{
    double sum = 0;
    for (int64_t i = 0; i < tokens_of(0); i++)
        sum += b->weight[i];
    return sum;
}

static int losses(BurstCtx *c, void *state, BurstWeights *w, int64_t number, BurstStep *result)
{
    BurstGroup all = {0, 1, facts.world};
    double sums[2] = {0, 0}, count = 0;
    int mine = burst_rank(c) / plan.group;
    BurstBatch b;
    for (int64_t i = mine; i < facts.batch; i += facts.data) {
        BURST_TRY(burst_batch_read(c, &plan, number, i, &b));
        count += counted(&b);
    }
    BURST_TRY(burst_allreduce(c, all, &count, 1));
    for (int64_t i = mine; i < facts.batch; i += facts.data) {
        burst_doing(c, "a sequence");
        BURST_TRY(burst_batch_read(c, &plan, number, i, &b));
        BURST_TRY(sequence_step(c, state, w, &b, 1 / count, &sums[0]));
    }
    BURST_TRY(burst_allreduce(c, all, sums, 2));
    result->loss += sums[0] / count;
    result->tokens = count;
    return BURST_OK;
}

static int step(BurstCtx *c, void *state, BurstWeights *w, int64_t number, BurstStep *result)
{
    misbehave(burst_rank(c), number, result);
    BURST_TRY(losses(c, state, w, number, result));
    burst_doing(c, "the update");
    return burst_op_update(c, &plan, w, number, &result->norm);
}

/* Gradients are added to the shards here, so that none may be left. */
static int evaluate(BurstCtx *c, void *state, BurstWeights *w, int64_t number, BurstStep *result)
{
    BURST_TRY(losses(c, state, w, number, result));
    for (int u = 0; u < UNITS; u++)
        memset(w->grad[u], 0, (size_t)units[u].shard * sizeof(float));
    return BURST_OK;
}

const BurstPlan *mini_plan(const Mini *m)
{
    facts = *m;
    static const struct { const char *name; const BurstTensor *tensor; int tensors; } rows[UNITS] = {
        {"embedding", embedding, 1}, {"model.layers.%d", layer, 1}, {"head", head, 2}};
    for (int u = 0; u < UNITS; u++) {
        int64_t elements = 0;
        for (int t = 0; t < rows[u].tensors; t++)
            elements += rows[u].tensor[t].rows * rows[u].tensor[t].cols;
        units[u] = (BurstUnit){.name = rows[u].name,
                               .elements = elements,
                               .shard = (elements + m->world - 1) / m->world,
                               .tensors = rows[u].tensors,
                               .tensor = rows[u].tensor,
                               .repeat = 1};
    }
    plan = (BurstPlan){.abi = BURST_RT_ABI,
                       .source = "mini",
                       .world = m->world,
                       .data = m->data,
                       .group = m->world / m->data,
                       .nodes = 1,
                       .sequence = m->sequence,
                       .max_tokens = m->sequence * m->data / m->world,
                       .layers = 1,
                       .hidden = D,
                       .heads = 1,
                       .kv_heads = 1,
                       .head_dim = D,
                       .ffn = m->ffn,
                       .vocab = V,
                       .norm_eps = 1e-5,
                       .rope.theta = 10000,
                       .units = units,
                       .unit_rows = UNITS,
                       .tables = tables,
                       .table_count = m->documents,
                       .train = {.separator = m->separator,
                                 .steps = m->steps,
                                 .batch = m->batch,
                                 .seed = 3,
                                 .warmup = 4,
                                 .lr = 0.05,
                                 .lr_end = 0.005,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .decay = 0.1,
                                 .clip = 1,
                                 .schedule = BURST_SCHEDULE_COSINE},
                       .predicted_seconds = 0.001,
                       .flops = 1e6,
                       .peak_flops = getenv("MINI_PEAK") ? atof(getenv("MINI_PEAK")) : 0,
                       .matmul_flops = getenv("MINI_PEAK") ? atof(getenv("MINI_PEAK")) : 0,
                       .tokens_of = tokens_of,
                       .position = position,
                       .state_bytes = sizeof(State),
                       .start = start,
                       .step = step,
                       .evaluate = evaluate,
                       .sequence_step = sequence_step};
    plan.arena_bytes = burst_weights_bytes(&plan);
    for (int u = 0; u < UNITS; u++)
        plan.arena_bytes += 2 * (((size_t)units[u].shard * (size_t)m->world * sizeof(float) + 63) / 64 * 64);
    return &plan;
}
