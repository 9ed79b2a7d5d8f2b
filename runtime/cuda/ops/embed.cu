/* embed.cu: embedding rows and their gradients. Instead of atomics, tokens are sorted by row, stably, chunks
 * of them are summed, and then the sums of a row in several chunks, in doubles: every run gives the same
 * bits, a frequent token is many blocks' work, and its error does not grow with its count. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

#include <cub/device/device_radix_sort.cuh>

enum { THREADS = 256, COLUMNS = THREADS * VEC, CHUNK = 64 }; /* CHUNK: sorted tokens that are added in fp32 */
/* of a block that adds sums of chunks: ROWS of them at a time, with LANES * VEC columns */
enum { LANES = 8, ROWS = 64 };
/* Tokens that one sort can process in the matrix products' workspace: rows and indices before and after it,
 * and as much again for the sort. */
static constexpr int64_t SORTED = 2 << 20;

static __global__ void __launch_bounds__(THREADS)
    embed_kernel(int hidden, const int32_t *token, const BurstBf16 *table, BurstBf16 *x)
{
    const uint4 *from = (const uint4 *)(table + (int64_t)token[blockIdx.x] * hidden);
    uint4 *to = (uint4 *)(x + (int64_t)blockIdx.x * hidden);
    for (int i = threadIdx.x; i < hidden / VEC; i += THREADS)
        to[i] = from[i];
}

int burst_op_embed(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *table,
                   BurstBf16 *x)
{
    BURST_TRY(gpu_aligned(g, "embed", hidden, address(table) | address(x)));
    if (n == 0)
        return BURST_OK;
    embed_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(hidden, token, table, x);
    return gpu_launched(g, "embed");
}

/* ---- of a slice ---- */
static __global__ void __launch_bounds__(THREADS)
    embed_slice_kernel(int64_t first, int rows, int hidden, const int32_t *token, const BurstBf16 *slice,
                       BurstBf16 *x)
{
    const int64_t row = token[0] - first;
    const bool here = row >= 0 && row < rows;
    const uint4 *from = (const uint4 *)(slice + (here ? row : 0) * hidden);
    for (int i = threadIdx.x; i < hidden / VEC; i += THREADS)
        ((uint4 *)x)[i] = here ? from[i] : make_uint4(0, 0, 0, 0);
}

int burst_gpu_embed_slice(BurstGpu *g, int64_t first, int rows, int hidden, const int32_t *token,
                          const BurstBf16 *slice, BurstBf16 *x)
{
    BURST_TRY(gpu_aligned(g, "embed", hidden, address(slice) | address(x)));
    embed_slice_kernel<<<1, THREADS, 0, g->compute>>>(first, rows, hidden, token, slice, x);
    return gpu_launched(g, "embed");
}

static __global__ void __launch_bounds__(THREADS)
    sum_rows_kernel(int rows, int width, const BurstBf16 *x, BurstBf16 *y)
{
    const int at = VEC * (blockIdx.x * THREADS + threadIdx.x);
    float sum[VEC] = {}, f[VEC];
    if (at >= width)
        return;
    for (int r = 0; r < rows; r++) {
        load(x + (int64_t)r * width + at, f);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            sum[i] += f[i];
    }
    store(y + at, sum);
}

int burst_gpu_sum_rows(BurstGpu *g, int rows, int width, const BurstBf16 *x, BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "sum of rows", width, address(x) | address(y)));
    sum_rows_kernel<<<(unsigned)((width + COLUMNS - 1) / COLUMNS), THREADS, 0, g->compute>>>(rows, width, x,
                                                                                              y);
    return gpu_launched(g, "sum of rows");
}

/* ---- back ---- */
static __global__ void places_kernel(int n, int32_t *place)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        place[i] = i;
}

/* The end of the run of row `mine`, which row[at] is, in the sorted rows. */
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

/* The result of a sort, and the columns that are summed in one pass. */
typedef struct Sorted {
    int n, hidden, first, columns;
    const int32_t *row, *place;
    const BurstBf16 *dx; /* [n][hidden], by index */
    float *dtable, *partial; /* partial [chunks][columns] */
} Sorted;

static __device__ void add_to(float *to, const float sum[VEC])
{
    float f[VEC];
    load(to, f);
    for (int j = 0; j < VEC; j++)
        f[j] += sum[j];
    store(to, f);
}

/* Sums a chunk of the sorted tokens, row by row: the chunk where a row begins adds to the table, later ones
 * store their sums. */
static __global__ void __launch_bounds__(THREADS) chunks_kernel(Sorted s)
{
    __shared__ int32_t row[CHUNK], place[CHUNK];
    const int begin = (int)blockIdx.x * CHUNK, count = min(CHUNK, s.n - begin),
              own = VEC * (int)(blockIdx.y * THREADS + threadIdx.x);
    for (int i = threadIdx.x; i < count; i += THREADS)
        row[i] = s.row[begin + i], place[i] = s.place[begin + i];
    __syncthreads();
    if (own >= s.columns)
        return;
    const BurstBf16 *dx = s.dx + s.first + own;
    bool goes_on = begin > 0 && s.row[begin - 1] == row[0];
    float sum[VEC] = {}, f[VEC], next[VEC] = {};
    load(dx + (int64_t)place[0] * s.hidden, f);
    for (int i = 0; i < count; i++) {
        if (i + 1 < count)
            load(dx + (int64_t)place[i + 1] * s.hidden, next);
        for (int j = 0; j < VEC; j++)
            sum[j] += f[j], f[j] = next[j];
        if (i + 1 < count && row[i + 1] == row[i])
            continue;
        if (goes_on)
            store(s.partial + (int64_t)blockIdx.x * s.columns + own, sum);
        else
            add_to(s.dtable + (int64_t)row[i] * s.hidden + s.first + own, sum);
        goes_on = false;
        for (int j = 0; j < VEC; j++)
            sum[j] = 0;
    }
}

/* Adds the stored sums of a row in doubles, by the block of the first such chunk, in a fixed order. */
static __global__ void __launch_bounds__(LANES *ROWS) rest_kernel(Sorted s)
{
    __shared__ double part[ROWS][LANES * VEC];
    const int chunk = (int)blockIdx.x, begin = chunk * CHUNK, lane = threadIdx.x % LANES,
              group = threadIdx.x / LANES;
    const int own = VEC * ((int)blockIdx.y * LANES + lane);
    const int32_t mine = s.row[begin];
    if (chunk == 0 || s.row[begin - 1] != mine || (chunk > 1 && s.row[begin - CHUNK - 1] == mine))
        return;
    const int last = (run_end(s.row, begin, s.n, mine) - 1) / CHUNK;
    double sum[VEC] = {};
    for (int i = chunk + group; i <= last && own < s.columns; i += ROWS) {
        float f[VEC];
        load(s.partial + (int64_t)i * s.columns + own, f);
        for (int j = 0; j < VEC; j++)
            sum[j] += f[j];
    }
    for (int j = 0; j < VEC; j++)
        part[group][VEC * lane + j] = sum[j];
    __syncthreads();
    const int column = (int)blockIdx.y * LANES * VEC + (int)threadIdx.x;
    if (threadIdx.x >= LANES * VEC || column >= s.columns)
        return;
    double all = 0;
    for (int i = 0; i < ROWS; i++)
        all += part[i][threadIdx.x];
    s.dtable[(int64_t)mine * s.hidden + s.first + column] += (float)all;
}

/* Processes as many columns at a time as the workspace holds for all chunks. */
static int add_rows(BurstGpu *g, Sorted s, size_t room)
{
    const int chunks = (s.n + CHUNK - 1) / CHUNK,
              most = (int)(room / sizeof *s.partial / (size_t)chunks) / VEC * VEC;
    for (; s.first < s.hidden; s.first += s.columns) {
        s.columns = s.hidden - s.first < most ? s.hidden - s.first : most;
        const dim3 all((unsigned)chunks, (unsigned)((s.columns + COLUMNS - 1) / COLUMNS));
        const dim3 rest((unsigned)chunks, (unsigned)((s.columns + LANES * VEC - 1) / (LANES * VEC)));
        chunks_kernel<<<all, THREADS, 0, g->compute>>>(s);
        BURST_TRY(gpu_launched(g, "embed_back"));
        rest_kernel<<<rest, LANES * ROWS, 0, g->compute>>>(s);
        BURST_TRY(gpu_launched(g, "embed_back"));
    }
    return BURST_OK;
}

/* For at most SORTED tokens. Memory that only the sort needs comes last and is reused for sums. */
static int add_sorted(BurstGpu *g, int n, int hidden, const int32_t *token, const BurstBf16 *dx,
                      float *dtable)
{
    int32_t *row = (int32_t *)g->workspace, *place = row + n,
            *unsorted = (int32_t *)(((uintptr_t)(place + n) + 255) / 256 * 256);
    void *rest = (void *)(((uintptr_t)(unsorted + n) + 255) / 256 * 256);
    size_t bytes = WORKSPACE_BYTES - (size_t)((char *)rest - g->workspace);
    places_kernel<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, g->compute>>>(n, unsorted);
    BURST_TRY(gpu_launched(g, "embed_back"));
    CUDA_TRY(g,
             cub::DeviceRadixSort::SortPairs(rest, bytes, token, row, unsorted, place, n, 0, 31, g->compute));
    const Sorted s = {n, hidden, 0, 0, row, place, dx, dtable, (float *)unsorted};
    return add_rows(g, s, WORKSPACE_BYTES - (size_t)((char *)unsorted - g->workspace));
}

int burst_op_embed_back(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *dx,
                        float *dtable, void *scratch)
{
    (void)scratch;
    BURST_TRY(gpu_aligned(g, "embed_back", hidden, address(dx) | address(dtable)));
    for (int64_t at = 0; at < n; at += SORTED) {
        const int64_t tokens = n - at < SORTED ? n - at : SORTED;
        BURST_TRY(add_sorted(g, (int)tokens, hidden, token + at, dx + at * hidden, dtable));
    }
    return BURST_OK;
}
