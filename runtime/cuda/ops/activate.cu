/* activate.cu: activations other than SwiGLU, with a gate and without, and their gradients; one block per
 * token. */
#include "cuda/gpu.h"
#include "cuda/ops/scan/gate.cuh"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256 };
#define ROOT 0.7978845608028654f /* of gelu's approximation: sqrt(2 / pi) */
#define CUBE 0.044715f

static __device__ float value_of(int kind, float x)
{
    switch (kind) {
    case BURST_ACTIVATION_GEGLU:
    case BURST_ACTIVATION_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case BURST_ACTIVATION_GEGLU_TANH:
    case BURST_ACTIVATION_GELU_TANH: return 0.5f * x * (1 + tanhf(ROOT * (x + CUBE * x * x * x)));
    case BURST_ACTIVATION_RELU2: return x <= 0 ? 0 : x * x; /* NaN propagates */
    default: return x / (1 + __expf(-x));
    }
}

static __device__ float slope_of(int kind, float x)
{
    float t;
    switch (kind) {
    case BURST_ACTIVATION_GEGLU:
    case BURST_ACTIVATION_GELU:
        return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * __expf(-0.5f * x * x);
    case BURST_ACTIVATION_GEGLU_TANH:
    case BURST_ACTIVATION_GELU_TANH:
        t = tanhf(ROOT * (x + CUBE * x * x * x));
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * ROOT * (1 + 3 * CUBE * x * x);
    case BURST_ACTIVATION_RELU2: return x <= 0 ? 0 : 2 * x;
    default: t = 1 / (1 + __expf(-x)); return t * (1 + x * (1 - t));
    }
}

static bool gated(int kind) { return kind <= BURST_ACTIVATION_GEGLU_TANH; }

/* gate: a row has two halves; the second is gated. */
template <bool GATE>
static __global__ void __launch_bounds__(THREADS)
    activate_kernel(int kind, int ffn, const BurstBf16 *x, BurstBf16 *y)
{
    const BurstBf16 *row = x + (1 + GATE) * (int64_t)blockIdx.x * ffn;
    for (int i = VEC * threadIdx.x; i < ffn; i += VEC * THREADS) {
        float f[VEC], up[VEC];
        load(row + i, f);
        if (GATE)
            load(row + ffn + i, up);
        for (int j = 0; j < VEC; j++)
            f[j] = value_of(kind, f[j]) * (GATE ? up[j] : 1);
        store(y + (int64_t)blockIdx.x * ffn + i, f);
    }
}

int burst_op_activate(BurstGpu *g, int kind, int64_t n, int ffn, const BurstBf16 *x, BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "activate", ffn, address(x) | address(y)));
    if (n == 0)
        return BURST_OK;
    if (gated(kind))
        activate_kernel<true><<<(unsigned)n, THREADS, 0, g->compute>>>(kind, ffn, x, y);
    else
        activate_kernel<false><<<(unsigned)n, THREADS, 0, g->compute>>>(kind, ffn, x, y);
    return gpu_launched(g, "activate");
}

/* dx may be x: a thread writes only what it has read. */
template <bool GATE>
static __global__ void __launch_bounds__(THREADS)
    activate_back_kernel(int kind, int ffn, const BurstBf16 *x, const BurstBf16 *dy, BurstBf16 *dx)
{
    const int64_t row = (1 + GATE) * (int64_t)blockIdx.x * ffn;
    for (int i = VEC * threadIdx.x; i < ffn; i += VEC * THREADS) {
        float f[VEC], up[VEC], d[VEC];
        load(x + row + i, f);
        load(dy + (int64_t)blockIdx.x * ffn + i, d);
        if (GATE)
            load(x + row + ffn + i, up);
        for (int j = 0; j < VEC; j++) {
            const float by = GATE ? up[j] : 1, gate = f[j];
            up[j] = d[j] * value_of(kind, gate);
            f[j] = d[j] * by * slope_of(kind, gate);
        }
        store(dx + row + i, f);
        if (GATE)
            store(dx + row + ffn + i, up);
    }
}

int burst_op_activate_back(BurstGpu *g, int kind, int64_t n, int ffn, const BurstBf16 *x, const BurstBf16 *dy,
                           BurstBf16 *dx)
{
    BURST_TRY(gpu_aligned(g, "activate_back", ffn, address(x) | address(dy) | address(dx)));
    if (n == 0)
        return BURST_OK;
    if (gated(kind))
        activate_back_kernel<true><<<(unsigned)n, THREADS, 0, g->compute>>>(kind, ffn, x, dy, dx);
    else
        activate_back_kernel<false><<<(unsigned)n, THREADS, 0, g->compute>>>(kind, ffn, x, dy, dx);
    return gpu_launched(g, "activate_back");
}

/* ---- gates by elements: a thread eight of them, whatever row they are of ---- */

static unsigned vector_blocks(int64_t count) { return (unsigned)((count / VEC + THREADS - 1) / THREADS); }

static __global__ void __launch_bounds__(THREADS)
    gate_kernel(int gate, int64_t count, const BurstBf16 *x, const BurstBf16 *z, BurstBf16 *y)
{
    const int64_t at = VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    float f[VEC], by[VEC];
    if (at >= count)
        return;
    load(x + at, f);
    load(z + at, by);
    for (int j = 0; j < VEC; j++)
        f[j] *= gate_value(gate, by[j]);
    store(y + at, f);
}

int burst_op_gate_elements(BurstGpu *g, int gate, int64_t n, int width, const BurstBf16 *x,
                           const BurstBf16 *z, BurstBf16 *y)
{
    const int64_t count = n * width;
    BURST_TRY(gpu_aligned(g, "gate_elements", width, address(x) | address(z) | address(y)));
    if (count == 0)
        return BURST_OK;
    gate_kernel<<<vector_blocks(count), THREADS, 0, g->compute>>>(gate, count, x, z, y);
    return gpu_launched(g, "gate_elements");
}

/* dx may be dy, and dz z: a thread writes only what it has read. */
static __global__ void __launch_bounds__(THREADS)
    gate_back_kernel(int gate, int64_t count, const BurstBf16 *x, const BurstBf16 *z, const BurstBf16 *dy,
                     BurstBf16 *dx, BurstBf16 *dz)
{
    const int64_t at = VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    float f[VEC], by[VEC], d[VEC];
    if (at >= count)
        return;
    load(x + at, f);
    load(z + at, by);
    load(dy + at, d);
    for (int j = 0; j < VEC; j++) {
        f[j] *= d[j] * gate_slope(gate, by[j]);
        d[j] *= gate_value(gate, by[j]);
    }
    store(dz + at, f);
    store(dx + at, d);
}

int burst_op_gate_elements_back(BurstGpu *g, int gate, int64_t n, int width, const BurstBf16 *x,
                                const BurstBf16 *z, const BurstBf16 *dy, BurstBf16 *dx, BurstBf16 *dz)
{
    const int64_t count = n * width;
    BURST_TRY(gpu_aligned(g, "gate_elements_back", width,
                          address(x) | address(z) | address(dy) | address(dx) | address(dz)));
    if (count == 0)
        return BURST_OK;
    gate_back_kernel<<<vector_blocks(count), THREADS, 0, g->compute>>>(gate, count, x, z, dy, dx, dz);
    return gpu_launched(g, "gate_elements_back");
}
