/* activate.cu: activations other than SwiGLU, with a gate and without, a token's gate, and their gradients;
 * one block per token. */
#include "cuda/gpu.h"
#include "cuda/ops/activation.cuh"
#include "cuda/ops/scan/gate.cuh"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256 };

static bool gated(int kind) { return kind <= BURST_ACTIVATION_GEGLU_TANH; }

/* gate: a row has two halves; the second is gated. */
template <bool GATE>
static __global__ void __launch_bounds__(THREADS)
    activate_kernel(int kind, float scale, int ffn, const BurstBf16 *x, BurstBf16 *y)
{
    const BurstBf16 *row = x + (1 + GATE) * (int64_t)blockIdx.x * ffn;
    for (int i = VEC * threadIdx.x; i < ffn; i += VEC * THREADS) {
        float f[VEC], up[VEC];
        load(row + i, f);
        if (GATE)
            load(row + ffn + i, up);
        for (int j = 0; j < VEC; j++)
            f[j] = activation_value(kind, scale * f[j]) * (GATE ? up[j] : 1);
        store(y + (int64_t)blockIdx.x * ffn + i, f);
    }
}

int burst_op_activate(BurstGpu *g, int kind, double scale, int64_t n, int ffn, const BurstBf16 *x,
                      BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "activate", ffn, address(x) | address(y)));
    if (n == 0)
        return BURST_OK;
    if (gated(kind))
        activate_kernel<true><<<(unsigned)n, THREADS, 0, g->compute>>>(kind, (float)scale, ffn, x, y);
    else
        activate_kernel<false><<<(unsigned)n, THREADS, 0, g->compute>>>(kind, (float)scale, ffn, x, y);
    return gpu_launched(g, "activate");
}

/* dx may be x: a thread writes only what it has read. */
template <bool GATE>
static __global__ void __launch_bounds__(THREADS)
    activate_back_kernel(int kind, float scale, int ffn, const BurstBf16 *x, const BurstBf16 *dy,
                         BurstBf16 *dx)
{
    const int64_t row = (1 + GATE) * (int64_t)blockIdx.x * ffn;
    for (int i = VEC * threadIdx.x; i < ffn; i += VEC * THREADS) {
        float f[VEC], up[VEC], d[VEC];
        load(x + row + i, f);
        load(dy + (int64_t)blockIdx.x * ffn + i, d);
        if (GATE)
            load(x + row + ffn + i, up);
        for (int j = 0; j < VEC; j++) {
            const float by = GATE ? up[j] : 1, gate = scale * f[j];
            up[j] = d[j] * activation_value(kind, gate);
            f[j] = d[j] * by * activation_slope(kind, gate) * scale;
        }
        store(dx + row + i, f);
        if (GATE)
            store(dx + row + ffn + i, up);
    }
}

int burst_op_activate_back(BurstGpu *g, int kind, double scale, int64_t n, int ffn, const BurstBf16 *x,
                           const BurstBf16 *dy, BurstBf16 *dx)
{
    BURST_TRY(gpu_aligned(g, "activate_back", ffn, address(x) | address(dy) | address(dx)));
    if (n == 0)
        return BURST_OK;
    if (gated(kind))
        activate_back_kernel<true>
            <<<(unsigned)n, THREADS, 0, g->compute>>>(kind, (float)scale, ffn, x, dy, dx);
    else
        activate_back_kernel<false>
            <<<(unsigned)n, THREADS, 0, g->compute>>>(kind, (float)scale, ffn, x, dy, dx);
    return gpu_launched(g, "activate_back");
}

/* ---- gates by elements: a thread eight of them, whatever row they are of ---- */

static unsigned vector_blocks(int64_t count) { return (unsigned)((count / VEC + THREADS - 1) / THREADS); }

static __global__ void __launch_bounds__(THREADS)
    gate_kernel(int gate, float scale, int64_t count, const BurstBf16 *x, const BurstBf16 *z, BurstBf16 *y)
{
    const int64_t at = VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    float f[VEC], by[VEC];
    if (at >= count)
        return;
    load(x + at, f);
    load(z + at, by);
    for (int j = 0; j < VEC; j++)
        f[j] *= gate_value(gate, scale * by[j]);
    store(y + at, f);
}

int burst_op_gate_elements(BurstGpu *g, int gate, double scale, int64_t n, int width, const BurstBf16 *x,
                           const BurstBf16 *z, BurstBf16 *y)
{
    const int64_t count = n * width;
    BURST_TRY(gpu_aligned(g, "gate_elements", width, address(x) | address(z) | address(y)));
    if (count == 0)
        return BURST_OK;
    gate_kernel<<<vector_blocks(count), THREADS, 0, g->compute>>>(gate, (float)scale, count, x, z, y);
    return gpu_launched(g, "gate_elements");
}

/* dx may be dy, and dz z: a thread writes only what it has read. */
static __global__ void __launch_bounds__(THREADS)
    gate_back_kernel(int gate, float scale, int64_t count, const BurstBf16 *x, const BurstBf16 *z,
                     const BurstBf16 *dy, BurstBf16 *dx, BurstBf16 *dz)
{
    const int64_t at = VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    float f[VEC], by[VEC], d[VEC];
    if (at >= count)
        return;
    load(x + at, f);
    load(z + at, by);
    load(dy + at, d);
    for (int j = 0; j < VEC; j++) {
        f[j] *= d[j] * gate_slope(gate, scale * by[j]) * scale;
        d[j] *= gate_value(gate, scale * by[j]);
    }
    store(dz + at, f);
    store(dx + at, d);
}

int burst_op_gate_elements_back(BurstGpu *g, int gate, double scale, int64_t n, int width, const BurstBf16 *x,
                                const BurstBf16 *z, const BurstBf16 *dy, BurstBf16 *dx, BurstBf16 *dz)
{
    const int64_t count = n * width;
    BURST_TRY(gpu_aligned(g, "gate_elements_back", width,
                          address(x) | address(z) | address(dy) | address(dx) | address(dz)));
    if (count == 0)
        return BURST_OK;
    gate_back_kernel<<<vector_blocks(count), THREADS, 0, g->compute>>>(gate, (float)scale, count, x, z, dy,
                                                                       dx, dz);
    return gpu_launched(g, "gate_elements_back");
}

/* ---- a token's row times the sigmoid of its gate ---- */

static __global__ void __launch_bounds__(THREADS)
    token_gate_kernel(int width, const BurstBf16 *x, const BurstBf16 *gate, BurstBf16 *y)
{
    const int64_t t = blockIdx.x;
    const float by = 1 / (1 + __expf(-__bfloat162float(gate[t])));
    for (int i = VEC * threadIdx.x; i < width; i += VEC * THREADS) {
        float f[VEC];
        load(x + t * width + i, f);
        for (int j = 0; j < VEC; j++)
            f[j] *= by;
        store(y + t * width + i, f);
    }
}

int burst_op_gate(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const BurstBf16 *gate, BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "gate", width, address(x) | address(y)));
    if (n == 0)
        return BURST_OK;
    token_gate_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(width, x, gate, y);
    return gpu_launched(g, "gate");
}

static __global__ void __launch_bounds__(THREADS)
    token_gate_back_kernel(int width, const BurstBf16 *x, const BurstBf16 *gate, const BurstBf16 *dy,
                           BurstBf16 *dx, BurstBf16 *d_gate)
{
    const int64_t t = blockIdx.x;
    const float by = 1 / (1 + __expf(-__bfloat162float(gate[t])));
    float sum = 0;
    for (int i = VEC * threadIdx.x; i < width; i += VEC * THREADS) {
        float f[VEC], d[VEC];
        load(x + t * width + i, f);
        load(dy + t * width + i, d);
        for (int j = 0; j < VEC; j++) {
            sum += d[j] * f[j];
            d[j] *= by;
        }
        store(dx + t * width + i, d);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        d_gate[t] = __float2bfloat16(sum * by * (1 - by));
}

int burst_op_gate_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const BurstBf16 *gate,
                       const BurstBf16 *dy, BurstBf16 *dx, BurstBf16 *d_gate)
{
    BURST_TRY(gpu_aligned(g, "gate_back", width, address(x) | address(dy) | address(dx)));
    if (n == 0)
        return BURST_OK;
    token_gate_back_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(width, x, gate, dy, dx, d_gate);
    return gpu_launched(g, "gate_back");
}
