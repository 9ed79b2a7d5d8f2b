/* loads.cu: how many of the counted tokens chose each expert, and the loss that balances experts. Sums are of
 * whole numbers, or of multiples of UNIT, in doubles: they are exact in any order up to 2^27. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256, WARPS = THREADS / WARP, BLOCKS = 1024 };
#define UNIT 0x1p-26

static __device__ __forceinline__ bool counts(const int32_t *label, const float *weight, int64_t token)
{
    return label[token] >= 0 && weight[token] > 0;
}

/* A warp a token: a logit that is not finite makes the first expert's count NaN. */
static __global__ void __launch_bounds__(THREADS)
    count_choices_kernel(int64_t n, int experts, int top, const int32_t *choice, const float *logits,
                         const int32_t *label, const float *weight, double *of)
{
    extern __shared__ int32_t count[];
    const int lane = threadIdx.x % WARP;
    bool finite = true;
    for (int i = threadIdx.x; i < experts; i += THREADS)
        count[i] = 0;
    __syncthreads();
    for (int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP; t < n;
         t += (int64_t)gridDim.x * WARPS) {
        for (int i = lane; i < experts; i += WARP)
            finite = finite && isfinite(logits[t * experts + i]);
        for (int k = lane; k < top && counts(label, weight, t); k += WARP)
            atomicAdd(&count[choice[t * top + k]], 1);
    }
    if (!finite)
        atomicAdd(of, (double)NAN);
    __syncthreads();
    for (int i = threadIdx.x; i < experts; i += THREADS)
        if (count[i])
            atomicAdd(of + i, (double)count[i]);
}

int burst_op_count(BurstGpu *g, int64_t n, const BurstExperts *m, int layer, const int32_t *choice,
                   const float *logits, const int32_t *label, const float *weight, const BurstLoads *l)
{
    if (n == 0)
        return BURST_OK;
    count_choices_kernel<<<BLOCKS, THREADS, (size_t)m->experts * sizeof(int32_t), g->compute>>>(
        n, m->experts, m->top, choice, logits, label, weight, l->choices + (int64_t)layer * m->experts);
    return gpu_launched(g, "count");
}

/* ---- a warp a token, whose lane l has experts l, l + 32, ... ---- */

/* The greatest logit, and 1 over the sum of exp(logit - greatest). */
static __device__ __forceinline__ void softmax_of(int experts, const float *logit, int lane, float *most,
                                                  double *each)
{
    double sum = 0;
    *most = -INFINITY;
    for (int i = lane; i < experts; i += WARP)
        *most = fmaxf(*most, logit[i]);
#pragma unroll
    for (int at = WARP / 2; at > 0; at /= 2)
        *most = fmaxf(*most, __shfl_xor_sync(0xffffffffu, *most, at));
    for (int i = lane; i < experts; i += WARP)
        sum += (double)expf(logit[i] - *most);
    *each = 1 / warp_sum(sum);
}

/* Whether fewer than `top` logits come before this one: larger ones, and equal ones of lower numbers. */
static __device__ __forceinline__ bool is_among_top(int experts, int top, const float *logit, int expert)
{
    int before = 0;
    for (int i = 0; i < experts && before < top; i++)
        before += logit[i] > logit[expert] || (i < expert && logit[i] == logit[expert]);
    return before < top;
}

/* sums: chosen [experts], rows, softmax [experts]. A block adds up in shared memory what it has. */
static __global__ void __launch_bounds__(THREADS)
    balance_kernel(int64_t n, int experts, int top, const float *logits, const int32_t *label,
                   const float *weight, double *sums)
{
    extern __shared__ double part[];
    const int lane = threadIdx.x % WARP, all = 2 * experts + 1;
    for (int i = threadIdx.x; i < all; i += THREADS)
        part[i] = 0;
    __syncthreads();
    for (int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP; t < n;
         t += (int64_t)gridDim.x * WARPS) {
        const float *const logit = logits + t * experts;
        float most;
        double each;
        if (!counts(label, weight, t))
            continue;
        softmax_of(experts, logit, lane, &most, &each);
        for (int i = lane; i < experts; i += WARP) {
            if (is_among_top(experts, top, logit, i))
                atomicAdd(part + i, 1.0);
            atomicAdd(part + experts + 1 + i, rint(expf(logit[i] - most) * each * (1 / UNIT)) * UNIT);
        }
        if (lane == 0)
            atomicAdd(part + experts, 1.0);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < all; i += THREADS)
        atomicAdd(sums + i, part[i]);
}

int burst_op_balance(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                     const int32_t *label, const float *weight, const BurstLoads *l)
{
    if (n == 0)
        return BURST_OK;
    balance_kernel<<<BLOCKS, THREADS, (size_t)(2 * m->experts + 1) * sizeof(double), g->compute>>>(
        n, m->experts, m->top, logits, label, weight, l->chosen);
    return gpu_launched(g, "balance");
}

/* Only the mean of the softmax has a gradient: dz = p (f - sum(f p)), f the factor of p. */
static __global__ void __launch_bounds__(THREADS)
    balance_back_kernel(int64_t n, int experts, double scale, const float *logits, const int32_t *label,
                        const float *weight, const double *chosen, float *d_logits)
{
    const int lane = threadIdx.x % WARP;
    const int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    const float *const logit = logits + t * experts;
    const double rows = chosen[experts], factor = rows > 0 ? scale * experts / rows / rows : 0;
    float most;
    double each, mean = 0;
    if (t >= n || !counts(label, weight, t))
        return;
    softmax_of(experts, logit, lane, &most, &each);
    for (int i = lane; i < experts; i += WARP)
        mean += factor * chosen[i] * (expf(logit[i] - most) * each);
    mean = warp_sum(mean);
    for (int i = lane; i < experts; i += WARP)
        d_logits[t * experts + i] +=
            (float)(expf(logit[i] - most) * each * (factor * chosen[i] - mean));
}

int burst_op_balance_back(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                          const int32_t *label, const float *weight, const BurstLoads *l, float *d_logits)
{
    if (n == 0)
        return BURST_OK;
    balance_back_kernel<<<(unsigned)((n + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(
        n, m->experts, l->scale, logits, label, weight, l->chosen, d_logits);
    return gpu_launched(g, "balance_back");
}
