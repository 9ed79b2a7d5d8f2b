/* delta.cu: rowsum(dO * O) for attention's backward, zero and add kernels, and the merge of outputs by their
 * lse. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256 };

enum { ROWS = 16 }; /* per warp: heads of tokens, token * heads + head */

/* Two elements of a row; zeros after its end. */
static __device__ __forceinline__ uint32_t two_of(const BurstBf16 *row, int i, int d)
{
    return i < d ? *(const uint32_t *)(row + i) : 0;
}

static __device__ __forceinline__ void multiply(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The diagonal of O dO^T, computed in the order in which attention's backward computes dP = V dO^T, by
 * m16n8k16 instructions: if a row sees one key, whose value is its O, dP - delta, dQ and dK are exactly 0.
 * Rounding noise would be the whole gradient of some weights, and a normalising optimizer would make a full
 * update of it. */
static __global__ void __launch_bounds__(THREADS)
    delta_kernel(int64_t n, int heads, int d, const BurstBf16 *o, const BurstBf16 *d_o, float *delta)
{
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP * ROWS, end = n * heads;
    const int lane = threadIdx.x % WARP, own = lane / 4;
    float sum[2][4] = {};
    if (first >= end)
        return;
    for (int i = lane % 4 * 2; i < (d + 15) / 16 * 16; i += 16) {
        uint32_t a[4], b[4];
        for (int half = 0; half < 2; half++) {
            const int64_t row = (first + own + half * 8 < end ? first + own + half * 8 : end - 1) * d;
            a[half] = two_of(o + row, i, d), a[half + 2] = two_of(o + row, i + 8, d);
            b[half * 2] = two_of(d_o + row, i, d), b[half * 2 + 1] = two_of(d_o + row, i + 8, d);
        }
        for (int half = 0; half < 2; half++)
            multiply(sum[half], a, b + half * 2);
    }
    /* A lane has columns lane % 4 * 2 and + 1. */
    for (int half = 0; half < 2; half++) {
        const int64_t row = first + own + half * 8;
        if (row < end && lane % 4 == own / 2)
            delta[row % heads * n + row / heads] = own % 2 ? sum[half][half * 2 + 1] : sum[half][half * 2];
    }
}

int burst_op_delta(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *o, const BurstBf16 *d_o,
                   float *delta)
{
    BURST_TRY(gpu_aligned(g, "delta", d, address(o) | address(d_o)));
    if (n == 0)
        return BURST_OK;
    const int64_t rows = THREADS / WARP * ROWS, blocks = (n * heads + rows - 1) / rows;
    delta_kernel<<<(unsigned)blocks, THREADS, 0, g->compute>>>(n, heads, d, o, d_o, delta);
    return gpu_launched(g, "delta");
}

int burst_gpu_zero(BurstGpu *g, void *data, size_t bytes)
{
    CUDA_TRY(g, cudaMemsetAsync(data, 0, bytes, g->compute));
    return BURST_OK;
}

int burst_op_zero(BurstGpu *g, float *x, int64_t count)
{
    return burst_gpu_zero(g, x, (size_t)count * sizeof *x);
}

/* ---- add ---- */
/* y = x, or with add y + x: in fp32, rounded to y's type. */
template <class X, class T>
static __global__ void __launch_bounds__(THREADS)
    add_kernel(int64_t count, int64_t pitch, bool aligned, bool add, const X *x, T *y)
{
    x += blockIdx.y * pitch;
    y += blockIdx.y * pitch;
    const int64_t i = VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (!aligned || i + VEC > count) {
        for (int64_t j = i; j < count && j < i + VEC; j++)
            y[j] = T((add ? (float)y[j] : 0) + (float)x[j]);
        return;
    }
    float a[VEC], b[VEC] = {};
    load(x + i, a);
    if (add)
        load(y + i, b);
    for (int j = 0; j < VEC; j++)
        b[j] += a[j];
    store(y + i, b);
}

/* Adds `count` elements of each row; rows are a pitch of elements apart. */
template <class X, class T>
static int add_to(BurstGpu *g, cudaStream_t stream, int64_t rows, int64_t count, int64_t pitch, const X *x,
                  bool add, T *y)
{
    if (count == 0 || rows == 0)
        return BURST_OK;
    const dim3 blocks((unsigned)((count + VEC * THREADS - 1) / (VEC * THREADS)), (unsigned)rows);
    const bool aligned = (address(x) | address(y)) % 16 == 0 && (rows == 1 || pitch % VEC == 0);
    add_kernel<<<blocks, THREADS, 0, stream>>>(count, pitch, aligned, add, x, y);
    return gpu_launched(g, "add_floats");
}

int gpu_add(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, float *y)
{
    return add_to(g, stream, 1, count, count, x, true, y);
}

int gpu_add_rounded(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, bool add, BurstBf16 *y)
{
    return add_to(g, stream, 1, count, count, x, add, y);
}

int gpu_widen(BurstGpu *g, cudaStream_t stream, int64_t count, const BurstBf16 *x, float *y)
{
    return add_to(g, stream, 1, count, count, x, false, y);
}

static __global__ void __launch_bounds__(THREADS)
    add_activations_kernel(int64_t count, const BurstBf16 *x, const BurstBf16 *y, BurstBf16 *z)
{
    const int64_t i = VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (i >= count)
        return;
    float a[VEC], b[VEC];
    load(x + i, a);
    load(y + i, b);
    for (int j = 0; j < VEC; j++)
        b[j] += a[j];
    store(z + i, b);
}

int gpu_add_activations(BurstGpu *g, cudaStream_t stream, int64_t count, const BurstBf16 *x,
                        const BurstBf16 *y, BurstBf16 *z)
{
    BURST_TRY(gpu_aligned(g, "add_activations", count, address(x) | address(y) | address(z)));
    if (count == 0)
        return BURST_OK;
    add_activations_kernel<<<(unsigned)((count + VEC * THREADS - 1) / (VEC * THREADS)), THREADS, 0, stream>>>(
        count, x, y, z);
    return gpu_launched(g, "add_activations");
}

int burst_gpu_add_floats(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, float *y)
{
    return gpu_add(g, stream, count, x, y);
}

int burst_gpu_add_rows(BurstGpu *g, cudaStream_t stream, int64_t rows, int64_t count, int64_t pitch,
                       const float *x, float *y)
{
    return add_to(g, stream, rows, count, pitch, x, true, y);
}

/* ---- outputs of different keys ---- */
static __device__ bool is_in(const BurstTileRanges &tiles, int64_t token)
{
    const int64_t tile = token / BURST_TILE;
    bool in = false;
    for (int i = 0; i < BURST_RANGES; i++)
        in = in || (tile >= tiles.at[i].lo && tile < tiles.at[i].hi);
    return in;
}

/* One warp per row: outputs are weighted by exp(lse); one without a key weighs nothing. NaN propagates. */
static __global__ void __launch_bounds__(THREADS)
    merge_kernel(int64_t rows, int64_t tokens, BurstTileRanges tiles, int d, bool first, const float *o_in,
                 const float *lse_in, float *o, float *lse)
{
    const int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP;
    const int lane = threadIdx.x % WARP;
    if (row >= rows)
        return;
    const bool arrived = is_in(tiles, row % tokens);
    if (!arrived && !first)
        return;
    const float none = -INFINITY, in = arrived ? lse_in[row] : none, own = first ? none : lse[row],
                most = fmaxf(in, own);
    const float from_in = in == none ? 0 : expf(in - most), from_own = own == none ? 0 : expf(own - most),
                sum = from_in + from_own;
    for (int64_t j = row * d + lane; j < (row + 1) * d; j += WARP) {
        float mean = 0;
        if (sum != 0)
            mean = ((from_in == 0 ? 0 : from_in * o_in[j]) + (from_own == 0 ? 0 : from_own * o[j])) / sum;
        o[j] = mean;
    }
    __syncwarp();
    if (lane == 0)
        lse[row] = sum == 0 ? none : most + logf(sum);
}

int burst_gpu_merge_output(BurstGpu *g, int heads, int64_t tokens, BurstTileRanges tiles, int d, bool first,
                           const float *o_in, const float *lse_in, float *o, float *lse)
{
    const int64_t rows = heads * tokens;
    if (rows == 0)
        return BURST_OK;
    const int64_t blocks = (rows * WARP + THREADS - 1) / THREADS;
    merge_kernel<<<(unsigned)blocks, THREADS, 0, g->compute>>>(rows, tokens, tiles, d, first, o_in, lse_in, o,
                                                               lse);
    return gpu_launched(g, "merge_output");
}
