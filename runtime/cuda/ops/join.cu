/* join.cu: joins heads' own elements with those that all heads of a token share (keys of multi-head latent
 * attention, DeepSeek-V2, arXiv 2405.04434); one block per token. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256 };

/* Eight elements per thread: each head's own, then the shared ones. */
static __global__ void __launch_bounds__(THREADS)
    join_kernel(int heads, int own, int shared, const BurstBf16 *x, const BurstBf16 *every, BurstBf16 *y)
{
    const int64_t token = blockIdx.x;
    const int width = own + shared;
    for (int i = VEC * threadIdx.x; i < heads * width; i += VEC * THREADS) {
        const int head = i / width, at = i % width;
        float f[VEC];
        load(at < own ? x + (token * heads + head) * own + at : every + token * shared + at - own, f);
        store(y + token * heads * width + i, f);
    }
}

int burst_op_join(BurstGpu *g, int64_t n, int heads, int own, int shared, const BurstBf16 *x,
                  const BurstBf16 *every, BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "join", own, address(x) | address(y)));
    BURST_TRY(gpu_aligned(g, "join", shared, address(every)));
    if (n == 0)
        return BURST_OK;
    join_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(heads, own, shared, x, every, y);
    return gpu_launched(g, "join");
}

/* The sum over heads in fp32, in order. */
static __global__ void __launch_bounds__(THREADS)
    join_back_kernel(int heads, int own, int shared, const BurstBf16 *dy, BurstBf16 *dx, BurstBf16 *d_every,
                     bool add)
{
    const int64_t token = blockIdx.x;
    const int width = own + shared;
    const BurstBf16 *const from = dy + token * heads * width;
    for (int i = VEC * threadIdx.x; i < heads * own; i += VEC * THREADS) {
        float f[VEC];
        load(from + i / own * width + i % own, f);
        store(dx + token * heads * own + i, f);
    }
    for (int i = VEC * threadIdx.x; i < shared; i += VEC * THREADS) {
        float f[VEC], sum[VEC] = {};
        if (add)
            load(d_every + token * shared + i, sum);
        for (int head = 0; head < heads; head++) {
            load(from + head * width + own + i, f);
            for (int j = 0; j < VEC; j++)
                sum[j] += f[j];
        }
        store(d_every + token * shared + i, sum);
    }
}

int burst_op_join_back(BurstGpu *g, int64_t n, int heads, int own, int shared, const BurstBf16 *dy,
                       BurstBf16 *dx, BurstBf16 *d_every, bool add)
{
    BURST_TRY(gpu_aligned(g, "join_back", own, address(dy) | address(dx)));
    BURST_TRY(gpu_aligned(g, "join_back", shared, address(d_every)));
    if (n == 0)
        return BURST_OK;
    join_back_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(heads, own, shared, dy, dx, d_every, add);
    return gpu_launched(g, "join_back");
}
