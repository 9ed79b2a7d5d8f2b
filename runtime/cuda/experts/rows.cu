/* rows.cu: activations of the rows of experts, weighted, and sums of a token's rows. */
#include "cuda/gpu.h"
#include "cuda/ops/activation.cuh"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256, WARPS = THREADS / WARP };

/* y[t] = (add[t] or 0) + the sum of the token's rows, in the order of its choices. */
static __global__ void __launch_bounds__(THREADS)
    experts_sum_kernel(int top, int hidden, const BurstBf16 *rows, const int32_t *slot, const BurstBf16 *add,
                       BurstBf16 *y)
{
    const int64_t t = blockIdx.x;
    for (int i = VEC * threadIdx.x; i < hidden; i += VEC * THREADS) {
        float sum[VEC] = {};
#pragma unroll 4
        for (int k = 0; k < top; k++) {
            float f[VEC];
            const int32_t at = slot[t * top + k];
            if (at < 0)
                continue; /* of another group of experts */
            load(rows + at * (int64_t)hidden + i, f);
#pragma unroll
            for (int j = 0; j < VEC; j++)
                sum[j] += f[j];
        }
        if (add) {
            float f[VEC];
            load(add + t * hidden + i, f);
#pragma unroll
            for (int j = 0; j < VEC; j++)
                sum[j] += f[j];
        }
        store(y + t * hidden + i, sum);
    }
}

int burst_op_experts_sum(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *rows,
                         const int32_t *slot, const BurstBf16 *add, BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "experts_sum", hidden, address(rows) | address(add) | address(y)));
    if (n == 0)
        return BURST_OK;
    experts_sum_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(m->top, hidden, rows, slot, add, y);
    return gpu_launched(g, "experts_sum");
}

/* All activations, and SwiGLU as silu(alpha g) / alpha * (u + offset) of g and u clamped at
 * `limit` (burst_model.h). */
enum { CLAMPED = BURST_ACTIVATIONS };
template <int KIND> static constexpr bool GATED = KIND <= BURST_ACTIVATION_GEGLU_TANH || KIND == CLAMPED;
typedef struct Clamp {
    float alpha, offset, limit;
} Clamp;

/* An expert's activation and its slopes, which beyond a clamp are 0. Without a gate it is of `gate`. */
template <int KIND>
static __device__ __forceinline__ float activated(const Clamp &c, float gate, float up, float *by_gate,
                                                  float *by_up)
{
    float slope;
    if (!GATED<KIND>) {
        *by_up = 0;
        *by_gate = activation_slope(KIND, gate);
        return activation_value(KIND, gate);
    }
    if (KIND != CLAMPED) {
        *by_up = activation_both(KIND, gate, &slope);
        *by_gate = up * slope;
        return *by_up * up;
    }
    const float g = gate > c.limit ? c.limit : gate, low = up < -c.limit ? -c.limit : up; /* NaN stays */
    const float u = (up > c.limit ? c.limit : low) + c.offset, t = __fdividef(1, 1 + __expf(-c.alpha * g));
    *by_gate = gate > c.limit ? 0 : u * t * (1 + c.alpha * g * (1 - t));
    *by_up = fabsf(up) > c.limit ? 0 : g * t;
    return g * t * u;
}

/* Whether a group of experts has no choice for a row: one behind its last. row NULL: rows are tokens. */
static __device__ bool has_no_choice(const int32_t *row, int64_t r) { return row && row[r] < 0; }

/* Zeros in such a row if a product's tile may have rows of choices too: the product by the weights' gradients
 * multiplies it by zeros, which must not meet a NaN. */
static __device__ void clear_in_tile(const int32_t *row, int64_t r, int columns, BurstBf16 *own)
{
    const float zeros[VEC] = {};
    if (r < BURST_GPU_EXPERTS_TILE || row[r - BURST_GPU_EXPERTS_TILE] >= 0)
        for (int i = VEC * (int)(threadIdx.x % WARP); i < columns; i += VEC * WARP)
            store(own + i, zeros);
}

/* A warp a row. route NULL: rows are not weighted. */
template <int KIND>
static __global__ void __launch_bounds__(THREADS)
    experts_act_kernel(const Clamp c, int64_t rows, int width, const BurstBf16 *gate_up, const float *route,
                       const int32_t *row, BurstBf16 *y)
{
    const int lane = threadIdx.x % WARP;
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (r >= rows)
        return;
    if (has_no_choice(row, r)) {
        clear_in_tile(row, r, width, y + r * width);
        return;
    }
    const float by = route ? route[row[r]] : 1;
    const BurstBf16 *own = gate_up + (1 + GATED<KIND>) * r * width;
#pragma unroll 2
    for (int i = VEC * lane; i < width; i += VEC * WARP) {
        float gate[VEC], up[VEC] = {};
        load(own + i, gate);
        if (GATED<KIND>)
            load(own + width + i, up);
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            float by_gate, by_up;
            gate[j] = by * activated<KIND>(c, gate[j], up[j], &by_gate, &by_up);
        }
        store(y + r * width + i, gate);
    }
}

/* d_gate_up may be gate_up: a thread writes only what it has read. */
template <int KIND>
static __global__ void __launch_bounds__(THREADS)
    experts_act_back_kernel(const Clamp c, int64_t rows, int width, const BurstBf16 *gate_up,
                            const float *route, const int32_t *row, const BurstBf16 *dy, BurstBf16 *d_gate_up,
                            float *d_route)
{
    const int lane = threadIdx.x % WARP;
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    const int64_t own = (1 + GATED<KIND>) * r * width;
    if (r >= rows)
        return;
    if (has_no_choice(row, r)) {
        clear_in_tile(row, r, (1 + GATED<KIND>) * width, d_gate_up + own);
        return;
    }
    const int32_t choice = route ? row[r] : 0;
    const float by = route ? route[choice] : 1;
    float sum = 0;
#pragma unroll 2
    for (int i = VEC * lane; i < width; i += VEC * WARP) {
        float gate[VEC], up[VEC] = {}, d[VEC];
        load(gate_up + own + i, gate);
        if (GATED<KIND>)
            load(gate_up + own + width + i, up);
        load(dy + r * width + i, d);
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            float by_gate, by_up;
            sum += d[j] * activated<KIND>(c, gate[j], up[j], &by_gate, &by_up);
            gate[j] = by * d[j] * by_gate;
            up[j] = by * d[j] * by_up;
        }
        store(d_gate_up + own + i, gate);
        if (GATED<KIND>)
            store(d_gate_up + own + width + i, up);
    }
    sum = warp_sum(sum);
    if (lane == 0 && route)
        d_route[choice] = sum;
}

#define KERNELS(kernel) \
    {kernel<BURST_ACTIVATION_SWIGLU>, \
     kernel<BURST_ACTIVATION_GEGLU>, \
     kernel<BURST_ACTIVATION_GEGLU_TANH>, \
     kernel<BURST_ACTIVATION_GELU>, \
     kernel<BURST_ACTIVATION_GELU_TANH>, \
     kernel<BURST_ACTIVATION_RELU2>, \
     kernel<CLAMPED>}
static decltype(&experts_act_kernel<0>) const act_kernels[] = KERNELS(experts_act_kernel);
static decltype(&experts_act_back_kernel<0>) const act_back_kernels[] = KERNELS(experts_act_back_kernel);
static_assert(BURST_ACTIVATION_SWIGLU == 0 && BURST_ACTIVATION_GELU == 3 && CLAMPED == 6,
              "numbers of the kernels");

static int kernel_of(const BurstExperts *m)
{
    const bool plain = m->alpha == 1 && m->offset == 0 && m->limit == 0;
    return m->activation == BURST_ACTIVATION_SWIGLU && !plain ? CLAMPED : m->activation;
}

static Clamp clamp_of(const BurstExperts *m)
{
    return {(float)m->alpha, (float)m->offset, m->limit > 0 ? (float)m->limit : INFINITY};
}

int burst_op_experts_act(BurstGpu *g, int64_t n, const BurstExperts *m, const BurstBf16 *gate_up,
                         const float *route, const int32_t *row, BurstBf16 *y)
{
    const int64_t rows = burst_expert_rows(m, n);
    BURST_TRY(gpu_aligned(g, "experts_act", m->width, address(gate_up) | address(y)));
    if (n == 0)
        return BURST_OK;
    act_kernels[kernel_of(m)]<<<(unsigned)((rows + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(
        clamp_of(m), rows, m->width, gate_up, route, row, y);
    return gpu_launched(g, "experts_act");
}

int burst_op_experts_act_back(BurstGpu *g, int64_t n, const BurstExperts *m, const BurstBf16 *gate_up,
                              const float *route, const int32_t *row, const BurstBf16 *dy,
                              BurstBf16 *d_gate_up, float *d_route)
{
    const int64_t rows = burst_expert_rows(m, n);
    BURST_TRY(
        gpu_aligned(g, "experts_act_back", m->width, address(gate_up) | address(dy) | address(d_gate_up)));
    if (n == 0)
        return BURST_OK;
    act_back_kernels[kernel_of(m)]<<<(unsigned)((rows + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(
        clamp_of(m), rows, m->width, gate_up, route, row, dy, d_gate_up, d_route);
    return gpu_launched(g, "experts_act_back");
}

int burst_op_clamped_swiglu(BurstGpu *g, int64_t n, const BurstExperts *m, int ffn, const BurstBf16 *gate_up,
                            BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "clamped_swiglu", ffn, address(gate_up) | address(y)));
    if (n == 0)
        return BURST_OK;
    experts_act_kernel<CLAMPED>
        <<<(unsigned)((n + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(clamp_of(m), n, ffn, gate_up, NULL,
                                                                          NULL, y);
    return gpu_launched(g, "clamped_swiglu");
}

int burst_op_clamped_swiglu_back(BurstGpu *g, int64_t n, const BurstExperts *m, int ffn,
                                 const BurstBf16 *gate_up, const BurstBf16 *dy, BurstBf16 *d_gate_up)
{
    BURST_TRY(
        gpu_aligned(g, "clamped_swiglu_back", ffn, address(gate_up) | address(dy) | address(d_gate_up)));
    if (n == 0)
        return BURST_OK;
    experts_act_back_kernel<CLAMPED>
        <<<(unsigned)((n + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(clamp_of(m), n, ffn, gate_up, NULL,
                                                                          NULL, dy, d_gate_up, NULL);
    return gpu_launched(g, "clamped_swiglu_back");
}
