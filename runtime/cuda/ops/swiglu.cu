/* swiglu.cu: a = silu(gate) * up and its gradients; one block per token, or several if there are few. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256 };

static __device__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

static __global__ void __launch_bounds__(THREADS) swiglu_kernel(int ffn, const BurstBf16 *gu, BurstBf16 *a)
{
    const BurstBf16 *gate = gu + 2 * (int64_t)blockIdx.x * ffn, *up = gate + ffn;
    const int step = VEC * THREADS * gridDim.y;
    let_next_begin();
    await_previous();
    for (int i = VEC * (blockIdx.y * THREADS + threadIdx.x); i < ffn; i += step) {
        float x[VEC], u[VEC];
        load(gate + i, x);
        load(up + i, u);
        for (int j = 0; j < VEC; j++)
            x[j] *= sigmoid(x[j]) * u[j];
        store(a + (int64_t)blockIdx.x * ffn + i, x);
    }
}

int burst_op_swiglu(BurstGpu *g, int64_t n, int ffn, const BurstBf16 *gu, BurstBf16 *a)
{
    BURST_TRY(gpu_aligned(g, "swiglu", ffn, address(gu) | address(a)));
    if (n == 0)
        return BURST_OK;
    const bool few = n < GPU_FEW_TOKENS;
    const unsigned parts = few ? (unsigned)(ffn + VEC * THREADS - 1) / (VEC * THREADS) : 1;
    return gpu_launch(g, few, swiglu_kernel, dim3((unsigned)n, parts), THREADS, 0, ffn, gu, a);
}

/* silu'(x) = s + x s (1 - s). dgu may be gu: a thread writes only what it has read. */
static __global__ void __launch_bounds__(THREADS)
    swiglu_back_kernel(int ffn, const BurstBf16 *gu, const BurstBf16 *da, BurstBf16 *dgu)
{
    const int64_t row = 2 * (int64_t)blockIdx.x * ffn;
    for (int i = VEC * threadIdx.x; i < ffn; i += VEC * THREADS) {
        float x[VEC], u[VEC], d[VEC];
        load(gu + row + i, x);
        load(gu + row + ffn + i, u);
        load(da + (int64_t)blockIdx.x * ffn + i, d);
        for (int j = 0; j < VEC; j++) {
            const float s = sigmoid(x[j]), gate = d[j] * u[j] * s * (1 + x[j] * (1 - s));
            u[j] = d[j] * x[j] * s;
            x[j] = gate;
        }
        store(dgu + row + i, x);
        store(dgu + row + ffn + i, u);
    }
}

int burst_op_swiglu_back(BurstGpu *g, int64_t n, int ffn, const BurstBf16 *gu, const BurstBf16 *da,
                         BurstBf16 *dgu)
{
    BURST_TRY(gpu_aligned(g, "swiglu_back", ffn, address(gu) | address(da) | address(dgu)));
    if (n == 0)
        return BURST_OK;
    swiglu_back_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(ffn, gu, da, dgu);
    return gpu_launched(g, "swiglu_back");
}
