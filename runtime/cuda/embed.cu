/* embed.cu: embedding rows and their gradients. No atomics: the block of a token's first occurrence adds all
 * occurrences in order, so that every run gives the same bits. Looking for them reads n tokens n times, which beside
 * attention's n^2 products of head_dim elements is nothing. */
#include "gpu.h"
#include "vec.cuh"

enum { THREADS = BURST_GPU_EMBED_COLUMNS / VEC, WARPS = THREADS / WARP };

static __global__ void __launch_bounds__(THREADS) embed_kernel(int hidden, const int32_t *token, const BurstBf16 *table, BurstBf16 *x)
{
    const uint4 *from = (const uint4 *)(table + (int64_t)token[blockIdx.x] * hidden);
    uint4 *to = (uint4 *)(x + (int64_t)blockIdx.x * hidden);
    for (int i = threadIdx.x; i < hidden / VEC; i += THREADS)
        to[i] = from[i];
}

int burst_gpu_embed(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *table, BurstBf16 *x)
{
    BURST_TRY(gpu_aligned(g, "embed", hidden, address(table) | address(x)));
    if (n == 0)
        return BURST_OK;
    embed_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(hidden, token, table, x);
    return gpu_launched(g, "embed");
}

/* ---- back ---- */
static __device__ bool occurred_before(const int32_t *token, int64_t at)
{
    const int32_t mine = token[at];
    for (int64_t first = 0; first < at; first += THREADS) {
        const int64_t i = first + threadIdx.x;
        if (__syncthreads_or(i < at && token[i] == mine))
            return true;
    }
    return false;
}

/* Adds the rows that the bits name to this thread's eight columns. */
static __device__ void add_rows(const uint32_t bits[WARPS], int64_t first, int hidden, const BurstBf16 *column, float sum[VEC])
{
    for (int w = 0; w < WARPS; w++)
        for (uint32_t rest = bits[w]; rest; rest &= rest - 1) {
            float f[VEC];
            load(column + (first + w * WARP + __ffs((int)rest) - 1) * hidden, f);
            for (int j = 0; j < VEC; j++)
                sum[j] += f[j];
        }
}

static __global__ void __launch_bounds__(THREADS) embed_back_kernel(int64_t n, int hidden, const int32_t *token, const BurstBf16 *dx,
                                                                    float *dtable)
{
    __shared__ uint32_t bits[WARPS];
    const int64_t at = blockIdx.x;
    const int column = VEC * (int)(blockIdx.y * THREADS + threadIdx.x);
    if (occurred_before(token, at))
        return;
    const int32_t mine = token[at];
    float *row = dtable + (int64_t)mine * hidden + column, sum[VEC] = {};
    for (int64_t first = at / THREADS * THREADS; first < n; first += THREADS) {
        const int64_t i = first + threadIdx.x;
        const uint32_t found = __ballot_sync(0xffffffffu, i < n && token[i] == mine);
        if (threadIdx.x % WARP == 0)
            bits[threadIdx.x / WARP] = found;
        __syncthreads();
        if (column < hidden)
            add_rows(bits, first, hidden, dx + column, sum);
        __syncthreads();
    }
    if (column >= hidden)
        return;
    float before[VEC];
    load(row, before);
    for (int j = 0; j < VEC; j++)
        sum[j] += before[j];
    store(row, sum);
}

int burst_gpu_embed_back(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *dx, float *dtable)
{
    BURST_TRY(gpu_aligned(g, "embed_back", hidden, address(dx) | address(dtable)));
    if (n == 0)
        return BURST_OK;
    const dim3 grid((unsigned)n, (unsigned)((hidden + BURST_GPU_EMBED_COLUMNS - 1) / BURST_GPU_EMBED_COLUMNS));
    embed_back_kernel<<<grid, THREADS, 0, g->compute>>>(n, hidden, token, dx, dtable);
    return gpu_launched(g, "embed_back");
}
