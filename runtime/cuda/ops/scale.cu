/* scale.cu: scales rows, and adds scaled rows to others; one block per row. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256 };

static __global__ void __launch_bounds__(THREADS)
    scale_kernel(int width, float scale, const BurstBf16 *x, const BurstBf16 *add, BurstBf16 *y)
{
    const int64_t row = (int64_t)blockIdx.x * width;
    for (int i = VEC * threadIdx.x; i < width; i += VEC * THREADS) {
        float f[VEC], sum[VEC] = {};
        load(x + row + i, f);
        if (add)
            load(add + row + i, sum);
        for (int j = 0; j < VEC; j++)
            sum[j] += scale * f[j];
        store(y + row + i, sum);
    }
}

int burst_op_scale(BurstGpu *g, int64_t n, int width, double scale, const BurstBf16 *x, const BurstBf16 *add,
                   BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "scale", width, address(x) | address(add) | address(y)));
    if (n == 0)
        return BURST_OK;
    scale_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(width, (float)scale, x, add, y);
    return gpu_launched(g, "scale");
}

int burst_op_scale_back(BurstGpu *g, int64_t n, int width, double scale, const BurstBf16 *dy, BurstBf16 *dx,
                        bool add)
{
    return burst_op_scale(g, n, width, scale, dy, add ? dx : NULL, dx);
}
