/* gated_norm.cu: RMSNorm of groups of a row with a gate before or after it, and its gradients; a warp a
 * group. */
#include "cuda/gpu.h"
#include "cuda/ops/scan/gate.cuh"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256, WARPS = THREADS / WARP, BLOCKS = BURST_GPU_NORM_BLOCKS, SPAN = VEC * WARP };
/* of sums of w's gradient */
static constexpr size_t MOST_SHARED = BURST_GPU_GATED_NORM_ELEMENTS * sizeof(float);

typedef struct NormArgs {
    BurstGatedNorm m; /* scale as a number */
    int64_t n;
    const BurstBf16 *x, *z, *w, *dy;
    BurstBf16 *y, *dx, *dz;
    float *rstd;
    double *partial; /* [BLOCKS][elements of w] */
} NormArgs;

static __device__ __forceinline__ const BurstBf16 *weight_of(const NormArgs &a, int64_t group)
{
    return a.m.shared ? a.w : a.w + group % a.m.groups * a.m.width;
}

/* x and what the gate is of at eight columns; x with the gate where it comes before the norm. */
static __device__ __forceinline__ void load_input(const NormArgs &a, int64_t at, float x[VEC], float z[VEC])
{
    load(a.x + at, x);
    load(a.z + at, z);
    for (int j = 0; j < VEC; j++)
        z[j] *= (float)a.m.scale;
    for (int j = 0; j < VEC && a.m.before; j++)
        x[j] *= gate_value(a.m.gate, z[j]);
}

static __global__ void __launch_bounds__(THREADS) gated_norm_kernel(const __grid_constant__ NormArgs a)
{
    const int64_t group = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, first = group * a.m.width;
    const int lane = threadIdx.x % WARP;
    const BurstBf16 *w = weight_of(a, group);
    float square = 0, x[VEC], z[VEC], by[VEC];
    if (group >= a.n * a.m.groups)
        return;
    for (int i = VEC * lane; i < a.m.width; i += SPAN) {
        load_input(a, first + i, x, z);
        for (int j = 0; j < VEC; j++)
            square += x[j] * x[j];
    }
    const float r = rsqrtf(warp_sum(square) / (float)a.m.width + (float)a.m.eps);
    if (lane == 0)
        a.rstd[group] = r;
    for (int i = VEC * lane; i < a.m.width; i += SPAN) {
        load_input(a, first + i, x, z);
        load(w + i, by);
        for (int j = 0; j < VEC; j++)
            x[j] *= r * by[j] * (a.m.before ? 1 : gate_value(a.m.gate, z[j]));
        store(a.y + first + i, x);
    }
}

/* One group: d_input = r (g - input r^2 mean(g input)), with g = dy w, times the gate where it comes after.
 * sums: the warp's own, of w's gradient. */
static __device__ void group_back(const NormArgs &a, int64_t group, float *sums)
{
    const int lane = threadIdx.x % WARP;
    const int64_t first = group * a.m.width;
    const BurstBf16 *w = weight_of(a, group);
    const float r = a.rstd[group];
    float along = 0, x[VEC], z[VEC], by[VEC], dy[VEC], plain[VEC];
    for (int i = VEC * lane; i < a.m.width; i += SPAN) {
        load_input(a, first + i, x, z);
        load(w + i, by);
        load(a.dy + first + i, dy);
        for (int j = 0; j < VEC; j++)
            along += dy[j] * by[j] * x[j] * (a.m.before ? 1 : gate_value(a.m.gate, z[j]));
    }
    along = warp_sum(along) * r * r / (float)a.m.width;
    for (int i = VEC * lane; i < a.m.width; i += SPAN) {
        load_input(a, first + i, x, z);
        load(a.x + first + i, plain);
        load(w + i, by);
        load(a.dy + first + i, dy);
        for (int j = 0; j < VEC; j++) {
            const float value = gate_value(a.m.gate, z[j]), g = dy[j] * by[j];
            const float d_input = r * ((a.m.before ? g : g * value) - x[j] * along);
            const float d_gate = a.m.before ? d_input * plain[j] : g * x[j] * r;
            sums[i + j] += dy[j] * x[j] * r * (a.m.before ? 1 : value);
            x[j] = a.m.before ? d_input * value : d_input;
            z[j] = d_gate * gate_slope(a.m.gate, z[j]) * (float)a.m.scale;
        }
        store(a.dx + first + i, x);
        store(a.dz + first + i, z);
    }
}

/* A warp has groups of its own of each row, or, where w is shared, sums of its own. */
static __global__ void __launch_bounds__(THREADS) gated_norm_back_kernel(const __grid_constant__ NormArgs a)
{
    extern __shared__ __align__(16) float sums[];
    const int warp = threadIdx.x / WARP, elements = a.m.shared ? a.m.width : a.m.groups * a.m.width;
    const int all = a.m.shared ? WARPS * elements : elements;
    for (int i = threadIdx.x; i < all; i += THREADS)
        sums[i] = 0;
    __syncthreads();
    for (int64_t row = blockIdx.x; row < a.n; row += BLOCKS)
        for (int group = warp; group < a.m.groups; group += WARPS)
            group_back(a, row * a.m.groups + group, sums + (a.m.shared ? warp : group) * a.m.width);
    __syncthreads();
    for (int i = threadIdx.x; i < elements; i += THREADS) {
        double sum = 0;
        for (int j = i; j < all; j += elements)
            sum += sums[j];
        a.partial[(int64_t)blockIdx.x * elements + i] = sum;
    }
}

static __global__ void __launch_bounds__(THREADS)
    weights_kernel(int elements, const double *partial, float *dw)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    double sum = 0;
    if (i >= elements)
        return;
    for (int block = 0; block < BLOCKS; block++)
        sum += partial[(int64_t)block * elements + i];
    dw[i] += (float)sum;
}

static BurstGatedNorm with_scale(const BurstGatedNorm *m)
{
    BurstGatedNorm scaled = *m;
    scaled.scale = burst_scale_or_one(m->scale);
    return scaled;
}

int burst_op_gated_norm(BurstGpu *g, int64_t n, const BurstGatedNorm *m, const BurstBf16 *x,
                        const BurstBf16 *z, const BurstBf16 *w, BurstBf16 *y, float *rstd)
{
    const NormArgs a = {with_scale(m), n, x, z, w, NULL, y, NULL, NULL, rstd, NULL};
    BURST_TRY(gpu_aligned(g, "gated_norm", m->width, address(x) | address(z) | address(w) | address(y)));
    if (n == 0)
        return BURST_OK;
    gated_norm_kernel<<<(unsigned)((n * m->groups + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(a);
    return gpu_launched(g, "gated_norm");
}

int burst_op_gated_norm_back(BurstGpu *g, int64_t n, const BurstGatedNorm *m, const BurstBf16 *x,
                             const BurstBf16 *z, const BurstBf16 *w, const float *rstd, const BurstBf16 *dy,
                             BurstBf16 *dx, BurstBf16 *dz, float *dw, void *scratch)
{
    const NormArgs a = {with_scale(m), n, x, z, w, dy, NULL, dx, dz, (float *)rstd, (double *)scratch};
    const int elements = m->shared ? m->width : m->groups * m->width;
    const size_t shared = (size_t)(m->shared ? WARPS * elements : elements) * sizeof(float);
    BURST_TRY(gpu_aligned(g, "gated_norm_back", m->width,
                          address(x) | address(z) | address(w) | address(dy) | address(dx) | address(dz)));
    if (shared > MOST_SHARED)
        return burst_fail(g->ctx, BURST_E_PLAN,
                          "gated_norm_back: a row of %d elements needs %zu bytes, %zu at most", elements,
                          shared, MOST_SHARED);
    if (n == 0)
        return BURST_OK;
    cudaFuncSetAttribute(gated_norm_back_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    gated_norm_back_kernel<<<BLOCKS, THREADS, shared, g->compute>>>(a);
    weights_kernel<<<(unsigned)((elements + THREADS - 1) / THREADS), THREADS, 0, g->compute>>>(elements,
                                                                                               a.partial, dw);
    return gpu_launched(g, "gated_norm_back");
}
