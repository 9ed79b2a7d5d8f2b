/* embed.cu: embedding rows and their gradients. No atomics: tokens are sorted by row, stably, and one block adds all occurrences of a
 * row in order, so that every run gives the same bits. */
#include "gpu.h"
#include "vec.cuh"

#include <cub/device/device_radix_sort.cuh>

enum { THREADS = 256, COLUMNS = THREADS * VEC };
/* Tokens that one sort takes in the workspace of matrix products: rows and places before and after it, and as much again for the sort. */
static constexpr int64_t SORTED = 2 << 20;

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
static __global__ void places_kernel(int n, int32_t *place)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        place[i] = i;
}

/* The first of the sorted rows beyond `mine`, which row[at] is. */
static __device__ int run_end(const int32_t *row, int at, int n, int32_t mine)
{
    int end = n;
    for (int begin = at + 1; begin < end;) {
        const int middle = begin + (end - begin) / 2;
        if (row[middle] == mine)
            begin = middle + 1;
        else
            end = middle;
    }
    return end;
}

/* The block of a row's first occurrence adds the gradients of all of them; dx [n][hidden] at the places of the sorted rows. */
static __global__ void __launch_bounds__(THREADS) embed_back_kernel(int n, int hidden, const int32_t *row, const int32_t *place,
                                                                    const BurstBf16 *dx, float *dtable)
{
    const int at = (int)blockIdx.x, column = VEC * (int)(blockIdx.y * THREADS + threadIdx.x);
    const int32_t mine = row[at];
    if ((at > 0 && row[at - 1] == mine) || column >= hidden)
        return;
    float *to = dtable + (int64_t)mine * hidden + column, sum[VEC] = {}, f[VEC];
    const int end = run_end(row, at, n, mine);
#pragma unroll 4
    for (int i = at; i < end; i++) {
        load(dx + (int64_t)place[i] * hidden + column, f);
        for (int j = 0; j < VEC; j++)
            sum[j] += f[j];
    }
    load(to, f);
    for (int j = 0; j < VEC; j++)
        sum[j] += f[j];
    store(to, sum);
}

/* Of at most SORTED tokens. */
static int add_sorted(BurstGpu *g, int n, int hidden, const int32_t *token, const BurstBf16 *dx, float *dtable)
{
    int32_t *row = (int32_t *)g->workspace, *place = row + n, *unsorted = place + n;
    void *rest = (void *)(((uintptr_t)(unsorted + n) + 255) / 256 * 256);
    size_t bytes = WORKSPACE_BYTES - (size_t)((char *)rest - g->workspace);
    places_kernel<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, g->compute>>>(n, unsorted);
    BURST_TRY(gpu_launched(g, "embed_back"));
    CUDA_TRY(g, cub::DeviceRadixSort::SortPairs(rest, bytes, token, row, unsorted, place, n, 0, 31, g->compute));
    const dim3 grid((unsigned)n, (unsigned)((hidden + COLUMNS - 1) / COLUMNS));
    embed_back_kernel<<<grid, THREADS, 0, g->compute>>>(n, hidden, row, place, dx, dtable);
    return gpu_launched(g, "embed_back");
}

int burst_gpu_embed_back(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *dx, float *dtable)
{
    BURST_TRY(gpu_aligned(g, "embed_back", hidden, address(dx) | address(dtable)));
    for (int64_t at = 0; at < n; at += SORTED) {
        const int64_t tokens = n - at < SORTED ? n - at : SORTED;
        BURST_TRY(add_sorted(g, (int)tokens, hidden, token + at, dx + at * hidden, dtable));
    }
    return BURST_OK;
}
