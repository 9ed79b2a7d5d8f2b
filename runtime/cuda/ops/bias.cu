/* bias.cu: adds one row to all rows, and sums all rows. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

/* of a block of the sum: COLUMNS columns, ROWS rows at a time */
enum { THREADS = 256, LANES = 8, ROWS = 64, COLUMNS = LANES * VEC };

static __global__ void __launch_bounds__(THREADS)
    bias_kernel(int width, const BurstBf16 *x, const BurstBf16 *b, BurstBf16 *y)
{
    const int64_t at = (int64_t)blockIdx.x * width;
    for (int i = VEC * threadIdx.x; i < width; i += VEC * THREADS) {
        float f[VEC], add[VEC];
        load(x + at + i, f);
        load(b + i, add);
        for (int j = 0; j < VEC; j++)
            f[j] += add[j];
        store(y + at + i, f);
    }
}

int burst_op_bias(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const BurstBf16 *b, BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "bias", width, address(x) | address(b) | address(y)));
    if (n == 0)
        return BURST_OK;
    bias_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(width, x, b, y);
    return gpu_launched(g, "bias");
}

/* A block sums its columns over all rows, so that the order of additions is fixed. */
static __global__ void __launch_bounds__(LANES *ROWS)
    bias_back_kernel(int64_t n, int width, int64_t stride, const BurstBf16 *dy, double by, float *db)
{
    /* a thread accesses only its own columns of its rows until the end */
    __shared__ double part[ROWS][COLUMNS];
    const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES,
              column = (int)blockIdx.x * COLUMNS + VEC * lane;
    for (int j = 0; j < VEC; j++)
        part[row][VEC * lane + j] = 0;
    for (int64_t i = row; column < width && i < n;) {
        float sum[VEC] = {}, f[VEC];
        for (int added = 0; added < IN_FLOATS && i < n; added++, i += ROWS) {
            load(dy + i * stride + column, f);
            for (int j = 0; j < VEC; j++)
                sum[j] += f[j];
        }
        take_sum(sum, &part[row][VEC * lane]);
    }
    __syncthreads();
    const int own = (int)threadIdx.x, to = (int)blockIdx.x * COLUMNS + own;
    if (own >= COLUMNS || to >= width)
        return;
    double all = 0;
    for (int i = 0; i < ROWS; i++)
        all += part[i][own];
    db[to] = (float)(db[to] + by * all);
}

int gpu_bias_back_rows(BurstGpu *g, int64_t n, int width, int64_t stride, const BurstBf16 *dy, double by,
                       float *db)
{
    const unsigned blocks = (unsigned)((width + COLUMNS - 1) / COLUMNS);
    if (n == 0)
        return BURST_OK;
    bias_back_kernel<<<blocks, LANES * ROWS, 0, g->compute>>>(n, width, stride, dy, by, db);
    return gpu_launched(g, "bias_back");
}

int burst_op_bias_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *dy, float *db)
{
    BURST_TRY(gpu_aligned(g, "bias_back", width, address(dy)));
    return gpu_bias_back_rows(g, n, width, width, dy, 1, db);
}

int burst_op_bias_pair(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const BurstBf16 *b,
                       BurstBf16 *y)
{
    return burst_op_bias(g, n, 2 * width, x, b, y);
}

int burst_op_bias_pair_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *dy, float *db)
{
    return burst_op_bias_back(g, n, 2 * width, dy, db);
}
