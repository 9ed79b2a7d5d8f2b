/* check_optimizer.cu: weights to the device and back, the clipped norm over all ranks, AdamW in double. */
#include "check.h"

#include <math.h>
#include <string.h>

enum { STEP = 3 };

/* Whatever the world size: of unit u, element i. Behind the unit's last element 0. */
static float at(const BurstUnit *unit, int u, int64_t i, int kind, double scale)
{
    if (i >= unit->elements)
        return 0;
    return random_floats(1, 7919u * (unsigned)(kind + 1) + 104729u * (unsigned)u + (unsigned)i, scale)[0];
}

static void fill(Check *k, BurstWeights *w)
{
    for (int u = 0; u < w->units; u++) {
        const BurstUnit *unit = burst_unit(k->p, u);
        for (int64_t i = 0; i < unit->shard; i++) {
            const int64_t global = burst_rank(k->c) * unit->shard + i;
            w->param[u][i] = at(unit, u, global, 0, 1);
            w->grad[u][i] = at(unit, u, global, 1, 0.5);
            w->m[u][i] = at(unit, u, global, 2, 0.1);
            w->v[u][i] = fabsf(at(unit, u, global, 3, 0.1));
        }
    }
}

static double true_norm(Check *k)
{
    double squares = 0;
    for (int u = 0; u < burst_unit_count(k->p); u++)
        for (int64_t i = 0; i < burst_unit(k->p, u)->elements; i++)
            squares += pow(at(burst_unit(k->p, u), u, i, 1, 0.5), 2);
    return sqrt(squares);
}

static bool decays(const BurstUnit *unit, int64_t i)
{
    for (int t = 0; t < unit->tensors; t++)
        if (i >= unit->tensor[t].offset &&
            i < unit->tensor[t].offset + unit->tensor[t].rows * unit->tensor[t].cols)
            return unit->tensor[t].init_std > 0;
    return false;
}

typedef struct Moments {
    double p, m, v;
} Moments;

/* As published (Loshchilov and Hutter, algorithm 2), with the gradient clipped before. */
static Moments adamw(Check *k, const BurstUnit *unit, int u, int64_t i, double norm)
{
    const BurstTrain *t = &k->p->train;
    const double g = at(unit, u, i, 1, 0.5) * fmin(1, t->clip / norm), lr = burst_learning_rate(k->p, STEP);
    Moments x = {at(unit, u, i, 0, 1), at(unit, u, i, 2, 0.1), fabs(at(unit, u, i, 3, 0.1))};
    x.m = t->beta1 * x.m + (1 - t->beta1) * g;
    x.v = t->beta2 * x.v + (1 - t->beta2) * g * g;
    const double m_hat = x.m / (1 - pow(t->beta1, STEP + 1)), v_hat = x.v / (1 - pow(t->beta2, STEP + 1));
    x.p -= lr * (m_hat / (sqrt(v_hat) + t->eps) + (decays(unit, i) ? t->decay * x.p : 0));
    return x;
}

static void check_unit(Check *k, const BurstWeights *w, const BurstGpuWeights *d, int u, double norm)
{
    const BurstUnit *unit = burst_unit(k->p, u);
    const size_t shard = (size_t)unit->shard;
    Doubles p(shard), m(shard), v(shard);
    bool zero = true;
    const Floats rounded = down_bf16(k, d->bf16[u], shard);
    bool same = true;
    for (size_t i = 0; i < shard; i++) {
        const int64_t global = burst_rank(k->c) * unit->shard + (int64_t)i;
        const Moments x = global < unit->elements ? adamw(k, unit, u, global, norm) : Moments{};
        p[i] = x.p, m[i] = x.m, v[i] = x.v;
        zero = zero && w->grad[u][i] == 0;
        same = same && rounded[i] == to_bf16(w->param[u][i]);
    }
    compare(k, "AdamW, weights", Floats(w->param[u], w->param[u] + shard), p, FP32);
    compare(k, "AdamW, first moments", Floats(w->m[u], w->m[u] + shard), m, FP32);
    compare(k, "AdamW, second moments", Floats(w->v[u], w->v[u] + shard), v, FP32);
    expect(k, "AdamW, gradients zero", zero);
    expect(k, "AdamW, bf16 is rounded fp32", same);
}

void check_optimizer(Check *k)
{
    BurstWeights w;
    BurstGpuWeights d;
    double norm = 0;
    MUST(k, burst_weights_make(k->c, k->p, &w));
    fill(k, &w);
    MUST(k, burst_gpu_weights_take(k->g, k->p, &d));
    for (int u = 0; u < w.units; u++) {
        d.grad[u] = (float *)burst_gpu_take(k->g, (size_t)burst_unit(k->p, u)->shard * sizeof(float));
        d.bf16[u] = (BurstBf16 *)burst_gpu_take(k->g, (size_t)burst_unit(k->p, u)->shard * sizeof(BurstBf16));
        expect(k, "weights, memory", d.grad[u] && d.bf16[u]);
    }
    MUST(k, burst_gpu_weights_load(k->g, k->p, &w, &d));
    for (int u = 0; u < w.units; u++)
        MUST(k, burst_gpu_upload(k->g, w.grad[u], (size_t)burst_unit(k->p, u)->shard * sizeof(float),
                                 d.grad[u]));
    for (int u = 0; u < w.units; u++)
        memset(w.param[u], 0, (size_t)burst_unit(k->p, u)->shard * sizeof(float));
    MUST(k, burst_op_update(k->g, k->p, &d, STEP, &norm));
    MUST(k, burst_gpu_weights_save(k->g, k->p, &d, &w));
    const double want = true_norm(k);
    compare(k, "global norm", Floats{(float)norm}, Doubles{want}, 1e-7);
    for (int u = 0; u < w.units; u++)
        check_unit(k, &w, &d, u, want);
}
