/* step.cc: the step of an emitted CUDA program, all of its ranks at once: two sequences queued whole, then
 * run in random orders of streams (streams.h). Loss and gradients are compared with the dense float64
 * model; activations are bf16.
 *
 *     step [--without-waits]     with it, success is that some order goes wrong
 */
#include "context.h"
#include "burst_step_cuda.h"
#include "ops.h"
extern "C" {
#include "model64.h"
}

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

int burst_op_update(BurstGpu *, const BurstPlan *, BurstGpuWeights *, int64_t, double *)
{
    return BURST_OK;
}

#include "program.inc"

#ifndef PLAN_TENSOR
#define PLAN_TENSOR 1
#endif
enum { UNITS = PLAN_LAYERS + 2 };
const BurstUnit *burst_unit(const BurstPlan *, int unit)
{
    return &plan_units[(unit > 0) + (unit > PLAN_LAYERS)];
}

static Shape64 shape_of_plan()
{
    Shape64 s = {};
    s.layers = PLAN_LAYERS, s.hidden = PLAN_HIDDEN, s.head_dim = PLAN_HEAD_DIM, s.vocab = PLAN_VOCAB;
    s.heads = PLAN_ALL_HEADS * PLAN_TENSOR, s.kv_heads = PLAN_ALL_KV_HEADS * PLAN_TENSOR;
    s.ffn = PLAN_FFN * PLAN_TENSOR;
    s.norm_eps = PLAN_NORM_EPS, s.rope_theta = BurstRope(PLAN_ROPE).theta;
    s.tied = PLAN_TIED, s.qkv_bias = PLAN_QKV_BIAS, s.sinks = PLAN_SINKS;
    s.qk_norm = PLAN_QK_NORM, s.qk_norm_all = PLAN_QK_NORM_ALL;
#ifdef PLAN_LATENT
    s.latent = PLAN_LATENT, s.query_latent = PLAN_QUERY_LATENT;
    s.shared = PLAN_SHARED, s.value_dim = PLAN_VALUE_DIM;
#endif
    return s;
}
static const Shape64 shape = shape_of_plan();
static const double scale = 1.0 / (PLAN_SEQUENCE * PLAN_BATCH);

/* ---- the answer ---- */

struct Sequence { std::vector<int32_t> token, label; std::vector<double> weight; };
struct Answer {
    std::vector<double> weights, grad;
    std::vector<Sequence> sequence;
    double loss = 0;
};

static bool causal(int64_t q, int64_t k, const void *) { return k <= q; }

static int64_t unit_begin(int unit)
{
    int64_t at = 0;
    for (int u = 0; u < unit; u++)
        at += burst_unit(&burst_plan, u)->elements;
    return at;
}

static void solve(Answer *a)
{
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < unit_begin(UNITS); i++)
        a->weights.push_back(value_of(rounded(0.15 * normal(random))));
    for (int u = 1; u < UNITS; u++) /* norms are around one */
        for (int t = 0; t < burst_unit(&burst_plan, u)->tensors; t++) {
            const BurstTensor *x = &burst_unit(&burst_plan, u)->tensor[t];
            for (int64_t i = 0; x->init_std <= 0 && i < x->cols; i++)
                a->weights[(size_t)(unit_begin(u) + x->offset + i)] = value_of(
                    rounded(1 + 0.2 * normal(random)));
        }
    a->grad.resize(a->weights.size());
    std::vector<Mask64> mask(PLAN_LAYERS, Mask64{causal, nullptr, nullptr, nullptr, nullptr});
    for (int s = 0; s < PLAN_BATCH; s++) {
        Sequence x;
        for (int i = 0; i < PLAN_SEQUENCE; i++) {
            x.token.push_back((int32_t)(random() % PLAN_VOCAB));
            x.label.push_back((int32_t)(random() % PLAN_VOCAB));
            x.weight.push_back(1 + (double)(random() % 2));
        }
        const Batch64 b = {PLAN_SEQUENCE,   x.token.data(), x.label.data(),
                           x.weight.data(), mask.data(),    nullptr};
        a->loss += model64_sequence(&shape, a->weights.data(), &b, scale, a->grad.data());
        a->sequence.push_back(x);
    }
}

/* ---- one rank ---- */

struct Local { std::vector<int32_t> token, label; std::vector<float> weight; };
struct Rank {
    BurstCtx ctx;
    PlanState state;
    float *grad_table[UNITS];
    BurstBf16 *bf16_table[UNITS];
    Local local[PLAN_SEQUENCES];
    double loss = 0;
};

/* Of a tensor, the element of the whole that is element i of what a tensor rank has: all of it, its rows
 * or its columns. */
static int64_t whole_element(const BurstTensor *t, int turn, int64_t i)
{
    const int64_t cols = t->split == BURST_BY_COLS ? t->cols / PLAN_TENSOR : t->cols,
                  rows = t->split == BURST_BY_ROWS ? t->rows / PLAN_TENSOR : t->rows;
    const int64_t row = i / cols + (t->split == BURST_BY_ROWS ? turn * rows : 0),
                  col = i % cols + (t->split == BURST_BY_COLS ? turn * cols : 0);
    return t->offset + row * t->cols + col;
}

static bool is_split(int unit) { return PLAN_TENSOR > 1 && unit > 0 && unit <= PLAN_LAYERS; }

/* Elements of the unit in the order in which a tensor rank has them. */
static std::vector<int64_t> elements_of(int unit, int turn)
{
    std::vector<int64_t> out;
    for (int i = 0; i < burst_unit(&burst_plan, unit)->tensors; i++) {
        const BurstTensor *t = &burst_unit(&burst_plan, unit)->tensor[i];
        const int64_t count = t->rows * t->cols / (t->split == BURST_WHOLE ? 1 : PLAN_TENSOR);
        for (int64_t j = 0; j < count; j++)
            out.push_back(whole_element(t, is_split(unit) ? turn : 0, j));
    }
    return out;
}

/* The first element, in that order, of the rank's shard. */
static int64_t shard_begin(int unit, int rank)
{
    return rank / (is_split(unit) ? PLAN_TENSOR : 1) * burst_unit(&burst_plan, unit)->shard;
}

/* On the weights' stream: what is not split, of the shard. */
int burst_gpu_tensor_sum(BurstGpu *g, int unit, float *shard)
{
    const BurstUnit *u = burst_unit(&burst_plan, unit);
    int64_t at = -shard_begin(unit, g->rank);
    for (int i = 0; i < u->tensors; i++) {
        const BurstTensor *t = &u->tensor[i];
        const int64_t count = t->rows * t->cols / (t->split == BURST_WHOLE ? 1 : PLAN_TENSOR),
                      end = std::min(at + count, u->shard);
        const int64_t begin = std::max<int64_t>(at, 0);
        if (t->split == BURST_WHOLE && begin < end)
            world_sum(g, shard + begin, end - begin);
        at += count;
    }
    return BURST_OK;
}

/* The rounded weights lie where the step has them, as the optimizer left them. */
static void load(Rank *r, const Answer &a)
{
    PlanState *s = &r->state;
    for (int u = 0; u < UNITS; u++) {
        const BurstUnit *unit = burst_unit(&burst_plan, u);
        const std::vector<int64_t> element = elements_of(u, r->ctx.rank % PLAN_TENSOR);
        for (int64_t i = 0; i < unit->shard; i++) {
            const size_t at = (size_t)(shard_begin(u, r->ctx.rank) + i);
            plan_act(s, PLAN_AT_PARAM_BF16(u))[i] = rounded(
                at < element.size() ? a.weights[(size_t)(unit_begin(u) + element[at])] : 0);
        }
    }
}

static size_t room(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* What the runtime and plan_start take of a rank's arena on the host: all kinds of shards, the batch, and
 * what was taken here. */
static void check_host(const Rank *r)
{
    size_t bytes = 3 * room((size_t)((PLAN_TOKENS + PLAN_TENSOR - 1) / PLAN_TENSOR) * sizeof(int32_t));
    for (int u = 0; u < UNITS; u++)
        bytes += 4 * room((size_t)burst_unit(&burst_plan, u)->shard * sizeof(float));
    for (auto &m : r->ctx.memory)
        bytes += room(m->size());
    if (bytes != PLAN_HOST_BYTES)
        world.wrong = "the host's arena has " + std::to_string(PLAN_HOST_BYTES) + " bytes, and " +
                      std::to_string(bytes) + " are taken";
}

static int start(Rank *r, int rank, const Answer &a)
{
    BurstCtx *c = &r->ctx;
    PlanState *s = &r->state;
    memset(s, 0, sizeof *s);
    c->rank = rank;
    s->exec = world.gpu[(size_t)rank].get();
    s->heads = plan_chunk_heads(0);
    BURST_TRY(plan_take(c, s));
    BURST_TRY(plan_chunks(c, s));
    all_live(c, s, false, plan_trace_forward);
    all_live(c, s, true, plan_trace_backward);
    s->token = s->buffer.device_token, s->label = s->buffer.device_label,
    s->label_weight = s->buffer.device_label_weight;
    s->loss = s->buffer.device_loss;
    s->position = s->tokens[s->me].position;
    check_host(r);
    load(r, a);
    return BURST_OK;
}

static int steps(Rank *r, const Answer &a)
{
    PlanState *s = &r->state;
    for (int i = 0; i < PLAN_SEQUENCES; i++) {
        const Sequence &x = a.sequence[(size_t)(r->ctx.rank / PLAN_TENSOR / PLAN_GROUP * PLAN_SEQUENCES + i)];
        Local *l = &r->local[i];
        const BurstOwn own = burst_own_tokens(&burst_plan, r->ctx.rank, s->n);
        for (int64_t j = 0; j < own.tokens; j++) {
            const size_t at = (size_t)s->chunk[s->me].position[own.first + j];
            l->token.push_back(x.token[at]), l->label.push_back(x.label[at]),
                l->weight.push_back((float)x.weight[at]);
        }
        const BurstBatch b = {l->token.data(), l->label.data(), l->weight.data(), {}};
        double ignored = 0;
        BURST_TRY(plan_sequence_step(&r->ctx, s, nullptr, &b, scale, &ignored));
        compute(s->exec, [=] { r->loss += *s->loss; });
    }
    return burst_gpu_mark(s->exec, burst_gpu_weights(s->exec), &s->reduction.here);
}

/* ---- comparing ---- */

/* Relative, in the L2 norm of a unit's gradients. */
static double worst_error(const std::vector<std::unique_ptr<Rank>> &rank, const Answer &a, double *loss)
{
    double worst = 0;
    *loss = 0;
    for (auto &r : rank)
        *loss += r->loss;
    *loss = std::fabs(*loss / a.loss - 1);
    for (int u = 0; u < UNITS; u++) {
        const BurstUnit *unit = burst_unit(&burst_plan, u);
        double off = 0, size = 0;
        for (auto &r : rank) {
            const std::vector<int64_t> element = elements_of(u, r->ctx.rank % PLAN_TENSOR);
            const int64_t begin = shard_begin(u, r->ctx.rank),
                          end = std::min(begin + unit->shard, (int64_t)element.size());
            for (int64_t i = begin; i < end; i++) {
                const double is = PLAN_GRADIENTS_BF16
                                      ? value_of(plan_act(&r->state, PLAN_AT_GRAD_SHARD(u))[i - begin])
                                      : plan_floats(&r->state, PLAN_AT_GRAD_SHARD(u))[i - begin];
                const double should = a.grad[(size_t)(unit_begin(u) + element[(size_t)i])];
                off += (is - should) * (is - should);
                size += should * should;
            }
        }
        const double error = std::sqrt(off / size);
        if (!(error <= worst))
            worst = std::isnan(error) ? INFINITY : error;
    }
    return worst;
}

static const double tolerance = 0.03, loss_tolerance = 0.01; /* bf16 */

static bool run(unsigned seed, const Answer &a, double *worst, double *worst_loss)
{
    std::vector<std::unique_ptr<Rank>> rank;
    double loss;
    world.random.seed(seed);
    world.packed = seed % 2;
    world.wrong.clear();
    world_make(PLAN_WORLD, PLAN_CHANNELS, PLAN_DEVICE_BYTES + 128 * (GUARD + 256));
    for (int r = 0; r < PLAN_WORLD; r++) {
        rank.push_back(std::make_unique<Rank>());
        if (start(rank.back().get(), r, a) != BURST_OK || steps(rank.back().get(), a) != BURST_OK)
            world.wrong += " (a call failed)";
    }
    world_run();
    world_check_guards();
    if (!world.wrong.empty())
        return false;
    const double error = worst_error(rank, a, &loss);
    *worst = std::max(*worst, error), *worst_loss = std::max(*worst_loss, loss);
    if (!(error <= tolerance && loss <= loss_tolerance))
        world.wrong = "gradients are off by " + std::to_string(error) + ", the loss by " +
                      std::to_string(loss);
    return world.wrong.empty();
}

int main(int argc, char **argv)
{
    enum { ORDERS = 4 };
    Answer a;
    double worst = 0, loss = 0;
    int failed = 0;
    world.tensor = PLAN_TENSOR, world.layers = PLAN_LAYERS;
    world.without_waits = argc > 1 && strcmp(argv[1], "--without-waits") == 0;
    solve(&a);
    for (unsigned seed = 0; seed < ORDERS; seed++)
        if (!run(seed, a, &worst, &loss) && !failed++ && !world.without_waits)
            printf("order %u: %s\n", seed, world.wrong.c_str());
    printf("%d of %d orders fail, gradients %.1e, loss %.1e\n", failed, ORDERS, worst, loss);
    return world.without_waits ? failed == 0 : failed != 0;
}
