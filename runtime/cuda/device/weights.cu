/* weights.cu: fp32 master shards on the device with their bf16 copies, the host's mirror, and the
 * optimizer's step. */
#include "optimizer/decay.h"
#include "optimizer/muon.h"
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

#include <math.h>
#include <stdlib.h>

enum { KINDS = 4, THREADS = 256 }; /* param, grad, m, v */

int burst_gpu_weights_tables(BurstGpu *g, const struct BurstPlan *p, BurstGpuWeights *out)
{
    size_t units = (size_t)burst_unit_count(p);
    free(g->tables);
    float **table = g->tables = (float **)calloc((KINDS + 2) * units, sizeof *table);
    if (!table)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for the list of weights");
    *out = BurstGpuWeights{(int)units,
                           table,
                           table + units,
                           table + 2 * units,
                           table + 3 * units,
                           (BurstBf16 **)(table + KINDS * units),
                           (BurstBf16 **)(table + (KINDS + 1) * units)};
    return BURST_OK;
}

int burst_gpu_weights_take(BurstGpu *g, const struct BurstPlan *p, BurstGpuWeights *out)
{
    BURST_TRY(burst_gpu_weights_tables(g, p, out));
    float **kind[] = {out->param, out->m, out->v};
    for (float **k : kind)
        for (int u = 0; u < out->units; u++)
            if (!(k[u] = (float *)burst_gpu_take(g, (size_t)burst_unit(p, u)->shard * sizeof(float))))
                return BURST_E_MEMORY;
    return BURST_OK;
}

/* ---- host and device ---- */
static __global__ void __launch_bounds__(THREADS) round_kernel(int64_t count, const float *x, BurstBf16 *y)
{
    const int64_t i = VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (i + VEC <= count) {
        float f[VEC];
        load(x + i, f);
        store(y + i, f);
        return;
    }
    for (int64_t j = i; j < count; j++)
        y[j] = __float2bfloat16_rn(x[j]);
}

static int round_floats(BurstGpu *g, int64_t count, const float *x, BurstBf16 *y)
{
    if (count == 0)
        return BURST_OK; /* a group of experts in a layer that has none */
    round_kernel<<<(unsigned)((count + VEC * THREADS - 1) / (VEC * THREADS)), THREADS, 0, g->compute>>>(count,
                                                                                                        x, y);
    return gpu_launched(g, "rounding weights");
}

int burst_gpu_weights_load(BurstGpu *g, const struct BurstPlan *p, const BurstWeights *from,
                           BurstGpuWeights *to)
{
    float **host[] = {from->param, from->m, from->v}, **device[] = {to->param, to->m, to->v};
    for (int u = 0; u < to->units; u++) {
        const int64_t shard = burst_unit(p, u)->shard;
        for (int k = 0; k < 3; k++)
            BURST_TRY(burst_gpu_upload(g, host[k][u], (size_t)shard * sizeof(float), device[k][u]));
        BURST_TRY(round_floats(g, shard, to->param[u], to->bf16[u]));
    }
    return BURST_OK;
}

int burst_gpu_weights_round(BurstGpu *g, const struct BurstPlan *p, const BurstWeights *from,
                            BurstGpuWeights *to)
{
    const int64_t most = WORKSPACE_BYTES / sizeof(float) / VEC * VEC;
    float *const part = (float *)g->workspace;
    for (int u = 0; u < to->units; u++)
        for (int64_t i = 0, shard = burst_unit(p, u)->shard; i < shard; i += most) {
            const int64_t n = shard - i < most ? shard - i : most;
            BURST_TRY(burst_gpu_upload(g, from->param[u] + i, (size_t)n * sizeof(float), part));
            BURST_TRY(round_floats(g, n, part, to->bf16[u] + i));
        }
    return BURST_OK;
}

/* Converts to floats in place: bf16 arrives in the second half of the buffer, and no value is overwritten
 * before it is read. */
static int download_bf16(BurstGpu *g, const BurstBf16 *from, int64_t count, float *to)
{
    const BurstBf16 *half = (BurstBf16 *)to + count;
    BURST_TRY(burst_gpu_download(g, from, (size_t)count * sizeof *from, (BurstBf16 *)to + count));
    for (int64_t i = 0; i < count; i++)
        to[i] = __bfloat162float(half[i]);
    return BURST_OK;
}

int burst_gpu_weights_save(BurstGpu *g, const struct BurstPlan *p, const BurstGpuWeights *from,
                           BurstWeights *to)
{
    float **device[KINDS] = {from->param, from->grad, from->m, from->v},
          **host[KINDS] = {to->param, to->grad, to->m, to->v};
    for (int u = 0; u < from->units; u++)
        for (int k = 0; k < KINDS; k++) {
            const int64_t shard = burst_unit(p, u)->shard;
            if (k == 1 && from->grad_bf16[u])
                BURST_TRY(download_bf16(g, from->grad_bf16[u], shard, host[k][u]));
            else
                BURST_TRY(burst_gpu_download(g, device[k][u], (size_t)shard * sizeof(float), host[k][u]));
        }
    return BURST_OK;
}

typedef struct Corrections {
    BurstGpu *g;
    const float *from;
    const BurstGpuWeights *to;
} Corrections;

static int write_run(void *with, int unit, const BurstRun *r, int64_t from)
{
    const Corrections *c = (const Corrections *)with;
    return burst_gpu_upload(c->g, c->from + from, (size_t)r->count * sizeof *c->from,
                            c->to->param[unit] + r->at);
}

int burst_gpu_write_corrections(BurstGpu *g, const struct BurstPlan *p, const float *corrections,
                                const BurstGpuWeights *to)
{
    Corrections c = {g, corrections, to};
    return burst_each_correction(g->ctx, p, write_run, &c);
}

/* ---- ranges ---- */

/* Which range a tensor joins: of the same number; -1: none. */
typedef int Joins(const BurstGpu *g, int unit, const BurstTensor *t, const HostPart *part);
typedef struct Range {
    int64_t begin, end; /* of the shard's elements */
    int joins;
} Range;

/* The next tensors of a unit, from number `*at` on, whose parts follow one another in the rank's shard and
 * join the same range, so that one kernel takes them: a layer's experts are hundreds. False: there are none.
 */
static bool next_range(const BurstGpu *g, int number, Joins joins, int *at, Range *r)
{
    const BurstUnit *unit = burst_unit(host_plan(g->ctx), number);
    *r = Range{};
    for (; *at < unit->tensors; ++*at) {
        const BurstTensor *t = &unit->tensor[*at];
        const HostPart part = host_part(g->ctx, unit, t);
        const int of = part.begin < part.end ? joins(g, number, t, &part) : -1;
        if (of < 0)
            continue;
        if (r->begin == r->end)
            *r = Range{part.begin, part.begin, of};
        if (of != r->joins || part.begin != r->end)
            return true;
        r->end = part.end;
    }
    return r->begin < r->end;
}

/* ---- the norm ---- */
/* sums[block] += this block's part of the sum of squares of elements [begin, end), in groups aligned to
 * multiples of eight, since tensors may begin anywhere. Launches are in order, so additions are too. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    squares_kernel(int64_t begin, int64_t end, const T *x, double *sums)
{
    double sum = 0;
    for (int64_t i = begin / VEC * VEC + VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x); i < end;
         i += (int64_t)VEC * THREADS * SUM_BLOCKS) {
        float f[VEC] = {};
        if (i >= begin && i + VEC <= end)
            load(x + i, f);
        else
            for (int j = 0; j < VEC; j++)
                f[j] = i + j >= begin && i + j < end ? (float)x[i + j] : 0;
        for (int j = 0; j < VEC; j++)
            sum += (double)f[j] * f[j];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] += sum;
}

static __global__ void __launch_bounds__(SUM_BLOCKS) total_kernel(double *sums)
{
    const double total = block_sum(sums[threadIdx.x]);
    if (threadIdx.x == 0)
        sums[SUM_BLOCKS] = total;
}

template <class T> static int add_squares(BurstGpu *g, int64_t begin, int64_t end, const T *x)
{
    squares_kernel<<<SUM_BLOCKS, THREADS, 0, g->compute>>>(begin, end, x, g->sums);
    return gpu_launched(g, "the gradient's norm");
}

int gpu_squares(BurstGpu *g, int64_t count, const BurstBf16 *x)
{
    CUDA_TRY(g, cudaMemsetAsync(g->sums, 0, (SUM_BLOCKS + 1) * sizeof *g->sums, g->compute));
    BURST_TRY(add_squares(g, 0, count, x));
    total_kernel<<<1, SUM_BLOCKS, 0, g->compute>>>(g->sums);
    return gpu_launched(g, "the sum of squares");
}

static int if_counted(const BurstGpu *g, int unit, const BurstTensor *t, const HostPart *part)
{
    (void)g, (void)unit, (void)t;
    return part->counts ? 0 : -1;
}

/* If tensor ranks split the unit, elements that several have count once. */
template <class T> static int unit_squares(BurstGpu *g, int number, const T *grad)
{
    const BurstUnit *u = burst_unit(host_plan(g->ctx), number);
    bool all = true;
    Range r;
    for (int i = 0; i < u->tensors; i++)
        all &= host_part(g->ctx, u, &u->tensor[i]).counts;
    for (int at = 0; !all && next_range(g, number, if_counted, &at, &r);)
        BURST_TRY(add_squares(g, r.begin, r.end, grad));
    return all ? add_squares(g, 0, u->shard, grad) : BURST_OK;
}

static int global_norm(BurstGpu *g, const BurstGpuWeights *w, double *norm)
{
    double squares = 0;
    CUDA_TRY(g, cudaMemsetAsync(g->sums, 0, (SUM_BLOCKS + 1) * sizeof *g->sums, g->compute));
    for (int u = 0; u < w->units; u++)
        BURST_TRY(w->grad_bf16[u] ? unit_squares(g, u, w->grad_bf16[u]) : unit_squares(g, u, w->grad[u]));
    total_kernel<<<1, SUM_BLOCKS, 0, g->compute>>>(g->sums);
    BURST_TRY(gpu_launched(g, "the gradient's norm"));
    BURST_TRY(burst_gpu_download(g, g->sums + SUM_BLOCKS, sizeof squares, &squares));
    /* replicas each have all of it */
    BURST_TRY(burst_allreduce(g->ctx, burst_shard_group(g->ctx), &squares, 1));
    *norm = sqrt(squares);
    return BURST_OK;
}

/* ---- AdamW ---- */
/* As on the host: p = p decay - rate m / (sqrt(v) root + eps), where rate and root include the bias
 * corrections. */
typedef struct Update {
    float scale, keep1, take1, keep2, take2, rate, root, eps, decay;
} Update;

static Update update_of(const BurstAdamW *o, bool decays)
{
    return Update{(float)o->grad_scale,
                  (float)o->beta1,
                  (float)(1 - o->beta1),
                  (float)o->beta2,
                  (float)(1 - o->beta2),
                  (float)(o->lr / (1 - pow(o->beta1, (double)o->step))),
                  (float)(1 / sqrt(1 - pow(o->beta2, (double)o->step))),
                  (float)o->eps,
                  (float)(decays ? 1 - o->lr * o->decay : 1)};
}

template <class G> struct Shard {
    float *param;
    G *grad;
    float *m, *v;
    BurstBf16 *bf16;
};

static __device__ void update(const Update &u, float &p, float g, float &m, float &v)
{
    g *= u.scale;
    m = m * u.keep1 + g * u.take1;
    v = v * u.keep2 + g * g * u.take2;
    p = p * u.decay - u.rate * m / (sqrtf(v) * u.root + u.eps);
}

template <class G> static __device__ void update_one(const Update &u, const Shard<G> &s, int64_t i)
{
    update(u, s.param[i], (float)s.grad[i], s.m[i], s.v[i]);
    s.bf16[i] = __float2bfloat16_rn(s.param[i]);
    s.grad[i] = G(0.0f);
}

/* Elements [begin, end) of a shard, in groups aligned to multiples of eight, since tensors may begin
 * anywhere. */
template <class G>
static __global__ void __launch_bounds__(THREADS)
    adamw_kernel(Update u, Shard<G> s, int64_t begin, int64_t end)
{
    const int64_t i = begin / VEC * VEC + VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (i < begin || i + VEC > end) {
        for (int64_t j = i < begin ? begin : i; j < end && j < i + VEC; j++)
            update_one(u, s, j);
        return;
    }
    float p[VEC], g[VEC], m[VEC], v[VEC], zero[VEC] = {};
    load(s.param + i, p);
    load(s.grad + i, g);
    load(s.m + i, m);
    load(s.v + i, v);
    for (int j = 0; j < VEC; j++)
        update(u, p[j], g[j], m[j], v[j]);
    store(s.param + i, p);
    store(s.m + i, m);
    store(s.v + i, v);
    store(s.bf16 + i, p);
    store(s.grad + i, zero);
}

/* Muon updates its matrices itself. */
static int if_decays(const BurstGpu *g, int unit, const BurstTensor *t, const HostPart *part)
{
    (void)part;
    return muon_updates(host_plan(g->ctx), unit, t) ? -1 : tensor_decays(t);
}

/* Padding after the unit's last element on the last ranks stays zero. */
template <class G> static int update_unit(BurstGpu *g, int number, const Update which[2], const Shard<G> &s)
{
    Range r;
    for (int at = 0; next_range(g, number, if_decays, &at, &r);) {
        const int64_t groups = (r.end + VEC - 1) / VEC - r.begin / VEC;
        adamw_kernel<<<(unsigned)((groups + THREADS - 1) / THREADS), THREADS, 0, g->compute>>>(
            which[r.joins], s, r.begin, r.end);
        BURST_TRY(gpu_launched(g, "AdamW"));
    }
    return BURST_OK;
}

/* The last gradients are added on the weights' stream. */
int burst_op_norm_fetched(BurstGpu *g, BurstCtx *c, const BurstPlan *p, const BurstGpuWeights *w,
                          int64_t step, double *norm, BurstAdamW *o)
{
    const BurstTrain *t = &p->train;
    BURST_TRY(burst_gpu_mark(g, g->weights, &g->order));
    BURST_TRY(burst_gpu_after(g, g->compute, &g->order));
    BURST_TRY(global_norm(g, w, norm));
    if (!isfinite(*norm))
        return burst_fail(c, BURST_E_NUMERIC, "the gradient norm is not finite in step %lld",
                          (long long)step + 1);
    *o = BurstAdamW{};
    o->lr = burst_learning_rate(p, step), o->beta1 = t->beta1, o->beta2 = t->beta2, o->eps = t->eps,
    o->decay = t->decay, o->momentum = t->momentum;
    o->step = step + 1, o->grad_scale = t->clip > 0 && *norm > t->clip ? t->clip / *norm : 1;
    return BURST_OK;
}

int burst_op_adamw_rest(BurstGpu *g, const BurstPlan *p, const BurstGpuWeights *w, int unit,
                        const BurstAdamW *o)
{
    if (!o)
        return round_floats(g, burst_unit(p, unit)->shard, w->param[unit], w->bf16[unit]);
    const Update which[2] = {update_of(o, false), update_of(o, true)};
    return w->grad_bf16[unit] ? update_unit(g, unit, which,
                                            Shard<BurstBf16>{w->param[unit], w->grad_bf16[unit], w->m[unit],
                                                             w->v[unit], w->bf16[unit]})
                              : update_unit(g, unit, which,
                                            Shard<float>{w->param[unit], w->grad[unit], w->m[unit],
                                                         w->v[unit], w->bf16[unit]});
}

/* Its rounded parameters are where w has them, which is `to`. */
int burst_op_adamw_fetched(BurstGpu *g, BurstCtx *c, const BurstPlan *p, const BurstGpuWeights *w, int unit,
                           const BurstAdamW *o, void *to)
{
    (void)c, (void)to;
    return burst_op_adamw_rest(g, p, w, unit, o);
}

int burst_op_all_updated(BurstGpu *g)
{
    BURST_TRY(burst_gpu_mark(g, g->compute, &g->order));
    return burst_gpu_after(g, g->weights, &g->order);
}

int burst_op_update(BurstGpu *g, const BurstPlan *p, BurstGpuWeights *w, int64_t step, double *norm)
{
    BurstAdamW o;
    BURST_TRY(burst_op_norm_fetched(g, g->ctx, p, w, step, norm, &o));
    for (int u = 0; u < w->units; u++)
        BURST_TRY(burst_op_adamw_rest(g, p, w, u, &o));
    return burst_op_all_updated(g);
}

/* ---- updates on the host ---- */

int burst_op_norm(BurstGpu *g, BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int64_t step,
                  double *norm, BurstAdamW *o)
{
    BURST_TRY(burst_gpu_sync(g));
    return burst_update_begin(c, p, w, step, norm, o);
}

int burst_op_adamw(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int unit, const BurstAdamW *o,
                   void *to)
{
    burst_update_unit(c, p, w, unit, o, (uint16_t *)to);
    return BURST_OK;
}
