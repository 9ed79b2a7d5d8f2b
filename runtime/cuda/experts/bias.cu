/* bias.cu: biases of experts' products and of a router's logits, and their gradients. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256, WARPS = THREADS / WARP, COLUMNS = WARP * VEC };

/* ---- of logits ---- */

static __global__ void __launch_bounds__(THREADS)
    logits_bias_kernel(int64_t count, int experts, const float *x, const BurstBf16 *b, float *y)
{
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS)
        y[i] = x[i] + __bfloat162float(b[i % experts]);
}

int burst_op_bias(BurstGpu *g, int64_t n, int experts, const float *x, const BurstBf16 *b, float *y)
{
    if (n == 0)
        return BURST_OK;
    logits_bias_kernel<<<1024, THREADS, 0, g->compute>>>(n * experts, experts, x, b, y);
    return gpu_launched(g, "logits_bias");
}

/* A block has 32 columns, a warp of it every 32nd row. */
enum { TALL = 1024 };
static __global__ void __launch_bounds__(TALL)
    logits_bias_back_kernel(int64_t n, int experts, const float *dy, float *db)
{
    __shared__ double part[TALL / WARP][WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
    double all = 0;
#pragma unroll 4
    for (int64_t t = warp; t < n && column < experts; t += TALL / WARP)
        all += dy[t * experts + column];
    part[warp][lane] = all;
    __syncthreads();
    for (int i = 1; i < TALL / WARP; i++)
        all += warp == 0 ? part[i][lane] : 0;
    if (warp == 0 && column < experts)
        db[column] += (float)all;
}

int burst_op_bias_back(BurstGpu *g, int64_t n, int experts, const float *dy, float *db)
{
    if (n == 0)
        return BURST_OK;
    logits_bias_back_kernel<<<(unsigned)((experts + WARP - 1) / WARP), TALL, 0, g->compute>>>(n, experts, dy,
                                                                                              db);
    return gpu_launched(g, "logits_bias_back");
}

/* ---- of gate and up: a warp a row ---- */

/* The expert of a row: the last whose first row is not after it. */
static __device__ __forceinline__ int expert_of(const int32_t *first, int experts, int64_t row)
{
    int low = 0, high = experts; /* first[low] <= row < first[high] */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (first[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __global__ void __launch_bounds__(THREADS)
    experts_bias_kernel(int64_t rows, int experts, int wide, const BurstBf16 *x, const int32_t *first,
                        const BurstBf16 *b, BurstBf16 *y)
{
    const int lane = threadIdx.x % WARP;
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (r >= rows || r >= first[experts])
        return;
    const BurstBf16 *const add = b + (int64_t)expert_of(first, experts, r) * wide;
    for (int i = VEC * lane; i < wide; i += COLUMNS) {
        float f[VEC], of[VEC];
        load(x + r * wide + i, f);
        load(add + i, of);
        for (int j = 0; j < VEC; j++)
            f[j] += of[j];
        store(y + r * wide + i, f);
    }
}

int burst_op_experts_bias(BurstGpu *g, int64_t n, const BurstExperts *m, const BurstBf16 *x,
                          const int32_t *first, const BurstBf16 *b, BurstBf16 *gate_up)
{
    const int64_t rows = burst_expert_rows(m, n);
    BURST_TRY(gpu_aligned(g, "experts_bias", m->width, address(x) | address(b) | address(gate_up)));
    if (n == 0)
        return BURST_OK;
    experts_bias_kernel<<<(unsigned)((rows + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(
        rows, m->experts, burst_experts_columns(m), x, first, b, gate_up);
    return gpu_launched(g, "experts_bias");
}

/* Adds up what the warps of a block have, in their order, to 8 columns a lane of db. */
static __device__ __forceinline__ void add_columns(const double all[VEC], int column, int wide, float *db)
{
    __shared__ double part[WARPS][COLUMNS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int j = 0; j < VEC; j++)
        part[warp][VEC * lane + j] = all[j];
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += part[i][threadIdx.x];
    if (column + (int)threadIdx.x < wide)
        db[column + threadIdx.x] += (float)sum;
}
static_assert(COLUMNS == THREADS, "a thread writes a column");

/* A block has 256 columns of an expert, a warp of it every eighth row. */
static __global__ void __launch_bounds__(THREADS)
    experts_bias_back_kernel(int wide, const BurstBf16 *dy, const int32_t *first, float *db)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = (int)blockIdx.x * COLUMNS,
              own = column + VEC * lane;
    const int64_t end = first[blockIdx.y + 1];
    double all[VEC] = {};
    for (int64_t r = first[blockIdx.y] + warp; own < wide && r < end;) {
        float sum[VEC] = {}, f[VEC];
        for (int added = 0; added < IN_FLOATS && r < end; added++, r += WARPS) {
            load(dy + r * wide + own, f);
            for (int j = 0; j < VEC; j++)
                sum[j] += f[j];
        }
        take_sum(sum, all);
    }
    add_columns(all, column, wide, db + (int64_t)blockIdx.y * wide);
}

int burst_op_experts_bias_back(BurstGpu *g, int64_t n, const BurstExperts *m, const BurstBf16 *d_gate_up,
                               const int32_t *first, float *db)
{
    const int wide = burst_experts_columns(m);
    BURST_TRY(gpu_aligned(g, "experts_bias_back", m->width, address(d_gate_up)));
    if (n == 0)
        return BURST_OK;
    const dim3 blocks((unsigned)((wide + COLUMNS - 1) / COLUMNS), (unsigned)m->experts);
    experts_bias_back_kernel<<<blocks, THREADS, 0, g->compute>>>(wide, d_gate_up, first, db);
    return gpu_launched(g, "experts_bias_back");
}

/* ---- of outputs ---- */

static __global__ void __launch_bounds__(THREADS)
    out_bias_kernel(int top, int begin, int experts, int hidden, const int32_t *choice, const float *route,
                    const BurstBf16 *add, const BurstBf16 *b, BurstBf16 *y)
{
    const int64_t t = blockIdx.x;
    for (int i = VEC * threadIdx.x; i < hidden; i += VEC * THREADS) {
        float sum[VEC] = {}, f[VEC];
        for (int k = 0; k < top; k++) {
            const float by = route[t * top + k];
            const int32_t expert = choice[t * top + k] - begin;
            if (expert < 0 || expert >= experts)
                continue; /* of another group */
            load(b + expert * (int64_t)hidden + i, f);
            for (int j = 0; j < VEC; j++)
                sum[j] += by * f[j];
        }
        if (add) {
            load(add + t * hidden + i, f);
            for (int j = 0; j < VEC; j++)
                sum[j] += f[j];
        }
        store(y + t * hidden + i, sum);
    }
}

int burst_op_experts_out_bias(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden,
                              const int32_t *choice, const float *route, const BurstBf16 *add,
                              const BurstBf16 *b, BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "experts_out_bias", hidden, address(add) | address(b) | address(y)));
    if (n == 0)
        return BURST_OK;
    out_bias_kernel<<<(unsigned)n, THREADS, 0, g->compute>>>(m->top, m->first, m->experts, hidden, choice,
                                                             route, add, b, y);
    return gpu_launched(g, "experts_out_bias");
}

/* A warp a choice. */
static __global__ void __launch_bounds__(THREADS)
    out_bias_route_kernel(int64_t choices, int top, int begin, int experts, int hidden, bool adds,
                          const BurstBf16 *dy, const int32_t *choice, const BurstBf16 *b, float *d_route)
{
    const int lane = threadIdx.x % WARP;
    const int64_t c = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    const int32_t expert = c < choices ? choice[c] - begin : -1;
    if (expert < 0 || expert >= experts)
        return;
    float sum = 0;
    for (int i = VEC * lane; i < hidden; i += COLUMNS) {
        float d[VEC], f[VEC];
        load(dy + c / top * hidden + i, d);
        load(b + expert * (int64_t)hidden + i, f);
        for (int j = 0; j < VEC; j++)
            sum += d[j] * f[j];
    }
    sum = warp_sum(sum);
    if (lane == 0)
        d_route[c] = adds ? d_route[c] + sum : sum;
}

/* A block has 256 columns of an expert, and looks for its choices among all; a warp of it has every eighth
 * 32 of them. */
static __global__ void __launch_bounds__(THREADS)
    out_bias_back_kernel(int64_t choices, int top, int begin, int hidden, const BurstBf16 *dy,
                         const int32_t *choice, const float *route, float *db)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = (int)blockIdx.x * COLUMNS,
              own = column + VEC * lane;
    double all[VEC] = {};
    float sum[VEC] = {};
    int added = 0;
    for (int64_t from = warp * WARP; from < choices; from += THREADS) {
        const int64_t c = from + lane;
        unsigned mine = __ballot_sync(0xffffffffu, c < choices && choice[c] - begin == (int)blockIdx.y);
        for (; mine; mine &= mine - 1, added++) {
            const int64_t at = from + __ffs(mine) - 1;
            const float by = route[at];
            float f[VEC] = {};
            if (own < hidden)
                load(dy + at / top * hidden + own, f);
            for (int j = 0; j < VEC; j++)
                sum[j] += by * f[j];
        }
        if (added >= IN_FLOATS) {
            take_sum(sum, all);
            added = 0;
        }
    }
    take_sum(sum, all);
    add_columns(all, column, hidden, db + (int64_t)blockIdx.y * hidden);
}

int burst_op_experts_out_bias_back(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden, bool adds,
                                   const BurstBf16 *dy, const int32_t *choice, const float *route,
                                   const BurstBf16 *b, float *d_route, float *db)
{
    const int64_t choices = n * m->top;
    const dim3 blocks((unsigned)((hidden + COLUMNS - 1) / COLUMNS), (unsigned)m->experts);
    BURST_TRY(gpu_aligned(g, "experts_out_bias_back", hidden, address(dy) | address(b)));
    if (n == 0)
        return BURST_OK;
    out_bias_route_kernel<<<(unsigned)((choices + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(
        choices, m->top, m->first, m->experts, hidden, adds, dy, choice, b, d_route);
    out_bias_back_kernel<<<blocks, THREADS, 0, g->compute>>>(choices, m->top, m->first, hidden, dy, choice,
                                                             route, db);
    return gpu_launched(g, "experts_out_bias_back");
}
