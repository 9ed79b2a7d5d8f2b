/* norm.cu: RMSNorm of rows, RMSNorm of parts of rows with a given mean of squares (PART), LayerNorm without
 * its bias (CENTERED), and their gradients. A block reads its row twice, the second time from its cache.
 * Narrow rows, such as heads, are processed by a warp each, in registers. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

/* Backward has a fixed number of blocks, so that dw's partial sums are the same on every device. All are
 * resident at once: a few blocks after the others would take as long again. */
enum {
    THREADS = 256,
    BACK_THREADS = 512,
    BACK_RESIDENT = 3,
    NARROW_RESIDENT = 2,
    BACK_BLOCKS = BURST_GPU_NORM_BLOCKS
};
enum { COLUMNS = 32, ROWS = 16 };
/* a warp has at most NARROW columns */
enum { NARROW = VEC * WARP, NARROW_WARPS = THREADS / WARP, BACK_WARPS = BACK_THREADS / WARP };
/* more than FREE_SHARED must be requested */
static constexpr size_t FREE_SHARED = 48 << 10, MOST_SHARED = 160 << 10;

enum Form { WHOLE, PART, CENTERED };

/* Eight weights, less `shift`: 1 for norms whose weights are stored less one. */
static __device__ __forceinline__ void load_weights(const BurstBf16 *w, float shift, float f[VEC])
{
    load(w, f);
    for (int j = 0; j < VEC; j++)
        f[j] += shift;
}

/* The mean of a row, in all threads of a block. */
static __device__ float row_mean(const BurstBf16 *row, int hidden)
{
    float sum = 0;
    for (int i = VEC * threadIdx.x; i < hidden; i += VEC * blockDim.x) {
        float f[VEC];
        load(row + i, f);
        for (int j = 0; j < VEC; j++)
            sum += f[j];
    }
    return block_sum(sum) / (float)hidden;
}

/* The mean of squares of a row's elements less `mean`, in all threads of a block. */
static __device__ float row_square(const BurstBf16 *row, int hidden, float mean)
{
    float square = 0;
    for (int i = VEC * threadIdx.x; i < hidden; i += VEC * THREADS) {
        float f[VEC];
        load(row + i, f);
        for (int j = 0; j < VEC; j++)
            square += (f[j] - mean) * (f[j] - mean);
    }
    return block_sum(square) / (float)hidden;
}

/* square: for PART, each row's mean of squares. */
template <Form FORM>
static __global__ void __launch_bounds__(THREADS)
    norm_kernel(int hidden, const BurstBf16 *x, const float *square, const BurstBf16 *w, float shift,
                float eps, BurstBf16 *y, float *rstd, uint32_t *beat, uint32_t number)
{
    const int64_t row = blockIdx.x, at = row * hidden;
    let_next_begin();
    await_previous();
    const float mean = FORM == CENTERED ? row_mean(x + at, hidden) : 0;
    const float r = rsqrtf((FORM == PART ? square[row] : row_square(x + at, hidden, mean)) + eps);
    if (threadIdx.x == 0)
        rstd[row] = r;
    if (threadIdx.x == 0 && row == 0)
        *beat = number;
    for (int i = VEC * threadIdx.x; i < hidden; i += VEC * THREADS) {
        float f[VEC], scale[VEC];
        load(x + at + i, f);
        load_weights(w + i, shift, scale);
        for (int j = 0; j < VEC; j++)
            f[j] = (f[j] - mean) * r * scale[j];
        store(y + at + i, f);
    }
}

/* Loads a warp's columns of a narrow row; zeros after the row. */
static __device__ __forceinline__ void load_narrow(const BurstBf16 *row, int hidden, float f[VEC])
{
    const int at = VEC * (threadIdx.x % WARP);
    for (int j = 0; j < VEC; j++)
        f[j] = 0;
    if (at < hidden)
        load(row + at, f);
}

template <Form FORM>
static __global__ void __launch_bounds__(THREADS)
    narrow_kernel(int64_t n, int hidden, const BurstBf16 *x, const float *square, const BurstBf16 *w,
                  float shift, float eps, BurstBf16 *y, float *rstd, uint32_t *beat, uint32_t number)
{
    const int64_t row = (int64_t)blockIdx.x * NARROW_WARPS + threadIdx.x / WARP;
    const int at = VEC * (threadIdx.x % WARP);
    float f[VEC], scale[VEC], squares = 0;
    let_next_begin();
    await_previous();
    if (row >= n)
        return;
    load_narrow(x + row * hidden, hidden, f);
    load_narrow(w, hidden, scale);
    for (int j = 0; j < VEC; j++)
        squares += f[j] * f[j];
    const float r = rsqrtf((FORM == PART ? square[row] : warp_sum(squares) / (float)hidden) + eps);
    for (int j = 0; j < VEC; j++)
        f[j] *= r * (scale[j] + shift);
    if (at < hidden)
        store(y + row * hidden + at, f);
    if (at == 0)
        rstd[row] = r;
    if (at == 0 && row == 0)
        *beat = number;
}

template <Form FORM>
static int norm(BurstGpu *g, const char *name, int64_t n, int hidden, const BurstBf16 *x, const float *square,
                const BurstBf16 *w, float shift, double eps, BurstBf16 *y, float *rstd)
{
    BURST_TRY(gpu_aligned(g, name, hidden, address(x) | address(w) | address(y)));
    if (n == 0)
        return BURST_OK;
    const bool few = n < GPU_FEW_TOKENS;
    if constexpr (FORM != CENTERED)
        if (hidden <= NARROW)
            return gpu_launch(g, few, narrow_kernel<FORM>,
                              dim3((unsigned)((n + NARROW_WARPS - 1) / NARROW_WARPS)), THREADS, 0, n, hidden,
                              x, square, w, shift, (float)eps, y, rstd, g->beat, ++g->beats);
    return gpu_launch(g, few, norm_kernel<FORM>, dim3((unsigned)n), THREADS, 0, hidden, x, square, w, shift,
                      (float)eps, y, rstd, g->beat, ++g->beats);
}

int burst_op_rmsnorm(BurstGpu *g, int64_t n, int hidden, double eps, const BurstBf16 *x, const BurstBf16 *w,
                     BurstBf16 *y, float *rstd)
{
    return norm<WHOLE>(g, "rmsnorm", n, hidden, x, NULL, w, 0, eps, y, rstd);
}

int burst_op_rmsnorm_plus(BurstGpu *g, int64_t n, int hidden, double eps, const BurstBf16 *x,
                          const BurstBf16 *w, BurstBf16 *y, float *rstd)
{
    return norm<WHOLE>(g, "rmsnorm_plus", n, hidden, x, NULL, w, 1, eps, y, rstd);
}

int burst_op_rmsnorm_part(BurstGpu *g, int64_t n, int width, double eps, const BurstBf16 *x,
                          const float *square, const BurstBf16 *w, BurstBf16 *y, float *rstd)
{
    return norm<PART>(g, "rmsnorm of parts", n, width, x, square, w, 0, eps, y, rstd);
}

int burst_op_layernorm(BurstGpu *g, int64_t n, int hidden, double eps, const BurstBf16 *x, const BurstBf16 *w,
                       BurstBf16 *y, float *rstd)
{
    return norm<CENTERED>(g, "layernorm", n, hidden, x, NULL, w, 0, eps, y, rstd);
}

/* ---- the squares of parts of rows ---- */

/* part = the sum of squares of a row, divided by the number of elements on all ranks; one warp per row. */
static __global__ void __launch_bounds__(THREADS)
    squares_kernel(int64_t n, int width, float elements, const BurstBf16 *x, float *part, uint32_t *beat,
                   uint32_t number)
{
    const int64_t row = (int64_t)blockIdx.x * NARROW_WARPS + threadIdx.x / WARP;
    float square = 0;
    if (row >= n)
        return;
    for (int i = VEC * (threadIdx.x % WARP); i < width; i += VEC * WARP) {
        float f[VEC];
        load(x + row * width + i, f);
        for (int j = 0; j < VEC; j++)
            square += f[j] * f[j];
    }
    square = warp_sum(square);
    if (threadIdx.x % WARP == 0)
        part[row] = square / elements;
    if (threadIdx.x == 0 && row == 0)
        *beat = number;
}

/* dx = add + 2 x d_part / elements; add: NULL, or dx. */
static __global__ void __launch_bounds__(THREADS)
    squares_back_kernel(int64_t n, int width, float elements, const BurstBf16 *x, const float *d_part,
                        const BurstBf16 *add, BurstBf16 *dx, uint32_t *beat, uint32_t number)
{
    const int64_t row = (int64_t)blockIdx.x * NARROW_WARPS + threadIdx.x / WARP, at = row * width;
    if (row >= n)
        return;
    const float twice = 2 * d_part[row] / elements;
    for (int i = VEC * (threadIdx.x % WARP); i < width; i += VEC * WARP) {
        float f[VEC], out[VEC] = {};
        load(x + at + i, f);
        if (add)
            load(add + at + i, out);
        for (int j = 0; j < VEC; j++)
            out[j] += twice * f[j];
        store(dx + at + i, out);
    }
    if (threadIdx.x == 0 && row == 0)
        *beat = number;
}

int burst_op_squares(BurstGpu *g, int64_t n, int width, int ranks, const BurstBf16 *x, float *part)
{
    BURST_TRY(gpu_aligned(g, "squares", width, address(x)));
    if (n == 0)
        return BURST_OK;
    squares_kernel<<<(unsigned)((n + NARROW_WARPS - 1) / NARROW_WARPS), THREADS, 0, g->compute>>>(
        n, width, (float)width * (float)ranks, x, part, g->beat, ++g->beats);
    return gpu_launched(g, "squares");
}

int burst_op_squares_back(BurstGpu *g, int64_t n, int width, int ranks, const BurstBf16 *x,
                          const float *d_part, BurstBf16 *dx, bool add)
{
    BURST_TRY(gpu_aligned(g, "squares_back", width, address(x) | address(dx)));
    if (n == 0)
        return BURST_OK;
    squares_back_kernel<<<(unsigned)((n + NARROW_WARPS - 1) / NARROW_WARPS), THREADS, 0, g->compute>>>(
        n, width, (float)width * (float)ranks, x, d_part, add ? dx : NULL, dx, g->beat, ++g->beats);
    return gpu_launched(g, "squares_back");
}

/* ---- back ---- */
typedef struct Back {
    int64_t n;
    int hidden;
    float shift; /* added to w */
    const BurstBf16 *x, *w, *dy, *add;
    const float *rstd;
    BurstBf16 *dx; /* may be add or dy: each element is read and written by one thread */
    double *partial; /* [BACK_BLOCKS][hidden] */
    float *d_square; /* for PART: the gradient of each row's mean of squares */
} Back;

/* *all: the sum of w dy. */
static __device__ float along_row(const Back &b, int64_t row, float mean, float *all)
{
    float sum = 0, plain = 0;
    for (int i = VEC * threadIdx.x; i < b.hidden; i += VEC * BACK_THREADS) {
        float x[VEC], w[VEC], dy[VEC];
        load(b.x + row * b.hidden + i, x);
        load_weights(b.w + i, b.shift, w);
        load(b.dy + row * b.hidden + i, dy);
        for (int j = 0; j < VEC; j++)
            sum += w[j] * dy[j] * (x[j] - mean), plain += w[j] * dy[j];
    }
    if (all)
        *all = block_sum(plain);
    return block_sum(sum);
}

/* x's share of a row whose sum of w dy x is `along`; for PART the gradient of the mean of squares has it
 * instead. */
template <Form FORM>
static __device__ __forceinline__ float share_of_x(const Back &b, int64_t row, float r, float along)
{
    if (FORM == PART && threadIdx.x % WARP == 0)
        /* written by the first lane of each warp; equal values */
        b.d_square[row] = -0.5f * r * r * r * along;
    return FORM == PART ? 0 : along / (float)b.hidden * r * r;
}

/* dx = add + r (w dy - all - (x - mean) r^2 mean(w dy (x - mean))). Adds dw's share to this thread's columns
 * of sums. */
static __device__ void row_back(const Back &b, int64_t row, float r, float mean, float all, float along,
                                float *sums)
{
    for (int i = VEC * threadIdx.x; i < b.hidden; i += VEC * BACK_THREADS) {
        float x[VEC], w[VEC], dy[VEC], out[VEC] = {}, sum[VEC];
        load(b.x + row * b.hidden + i, x);
        load_weights(b.w + i, b.shift, w);
        load(b.dy + row * b.hidden + i, dy);
        if (b.add)
            load(b.add + row * b.hidden + i, out);
        load(sums + i, sum);
        for (int j = 0; j < VEC; j++) {
            out[j] += r * (w[j] * dy[j] - all - (x[j] - mean) * along);
            sum[j] += dy[j] * (x[j] - mean) * r;
        }
        store(b.dx + row * b.hidden + i, out);
        store(sums + i, sum);
    }
}

/* Adds this thread's columns of sums to the block's doubles and resets them. first: the doubles are not yet
 * set. */
static __device__ void add_to_partial(const Back &b, bool first, float *sums)
{
    double *to = b.partial + (int64_t)blockIdx.x * b.hidden;
    for (int i = VEC * threadIdx.x; i < b.hidden; i += VEC * BACK_THREADS)
        for (int j = 0; j < VEC; j += 2) {
            double2 *both = (double2 *)(to + i + j), sum = first ? make_double2(0, 0) : *both;
            sum.x += sums[i + j], sum.y += sums[i + j + 1];
            sums[i + j] = sums[i + j + 1] = 0;
            *both = sum;
        }
}

template <Form FORM>
static __global__ void __launch_bounds__(BACK_THREADS, BACK_RESIDENT)
    norm_back_kernel(Back b, uint32_t *beat, uint32_t number)
{
    extern __shared__ __align__(16) float sums[]; /* [hidden]; a thread accesses only its own columns */
    for (int i = VEC * threadIdx.x; i < b.hidden; i += VEC * BACK_THREADS)
        for (int j = 0; j < VEC; j++)
            sums[i + j] = 0;
    int64_t row = blockIdx.x;
    bool first = true;
    do {
        for (int added = 0; added < IN_FLOATS && row < b.n; added++, row += gridDim.x) {
            const float r = b.rstd[row],
                        mean = FORM == CENTERED ? row_mean(b.x + row * b.hidden, b.hidden) : 0;
            float all = 0;
            const float along = along_row(b, row, mean, FORM == CENTERED ? &all : nullptr);
            row_back(b, row, r, mean, all / (float)b.hidden, share_of_x<FORM>(b, row, r, along), sums);
        }
        add_to_partial(b, first, sums);
        first = false;
    } while (row < b.n);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *beat = number;
}

/* One row of a warp; adds its columns' shares of dw to sum. */
template <Form FORM>
static __device__ __forceinline__ void narrow_row_back(const Back &b, int64_t row, const float w[VEC],
                                                       float sum[VEC])
{
    const int at = VEC * (threadIdx.x % WARP);
    const float r = b.rstd[row];
    float x[VEC], dy[VEC], out[VEC] = {}, along = 0;
    load_narrow(b.x + row * b.hidden, b.hidden, x);
    load_narrow(b.dy + row * b.hidden, b.hidden, dy);
    if (b.add)
        load_narrow(b.add + row * b.hidden, b.hidden, out);
    for (int j = 0; j < VEC; j++)
        along += w[j] * dy[j] * x[j];
    along = share_of_x<FORM>(b, row, r, warp_sum(along));
    for (int j = 0; j < VEC; j++) {
        out[j] += r * (w[j] * dy[j] - x[j] * along);
        sum[j] += dy[j] * x[j] * r;
    }
    if (at < b.hidden)
        store(b.dx + row * b.hidden + at, out);
}

template <Form FORM>
static __global__ void __launch_bounds__(BACK_THREADS, NARROW_RESIDENT)
    narrow_back_kernel(Back b, uint32_t *beat, uint32_t number)
{
    /* a thread accesses only its own columns of its warp until the end */
    __shared__ double part[BACK_WARPS][NARROW];
    const int warp = threadIdx.x / WARP, at = VEC * (threadIdx.x % WARP);
    float w[VEC], sum[VEC] = {};
    load_narrow(b.w, b.hidden, w);
    for (int j = 0; j < VEC; j++)
        w[j] += b.shift, part[warp][at + j] = 0;
    for (int64_t row = (int64_t)blockIdx.x * BACK_WARPS + warp; row < b.n;) {
        for (int added = 0; added < IN_FLOATS && row < b.n; added++, row += (int64_t)gridDim.x * BACK_WARPS)
            narrow_row_back<FORM>(b, row, w, sum);
        take_sum(sum, &part[warp][at]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < b.hidden; i += BACK_THREADS) {
        double all = 0;
        for (int k = 0; k < BACK_WARPS; k++)
            all += part[k][i];
        b.partial[(int64_t)blockIdx.x * b.hidden + i] = all;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *beat = number;
}

/* dw += the partial sums of all blocks, in a fixed order. */
static __global__ void add_partials_kernel(int hidden, const double *partial, float *dw)
{
    __shared__ double part[ROWS][COLUMNS];
    const int column = (int)blockIdx.x * COLUMNS + (int)threadIdx.x;
    double sum = 0;
    for (int row = threadIdx.y; column < hidden && row < BACK_BLOCKS; row += ROWS)
        sum += partial[(int64_t)row * hidden + column];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= hidden)
        return;
    for (int i = 1; i < ROWS; i++)
        sum += part[i][threadIdx.x];
    dw[column] = (float)(dw[column] + sum);
}

int64_t burst_gpu_rmsnorm_scratch(int hidden) { return burst_gpu_norm_doubles(hidden); }

template <Form FORM> static int allow_shared(BurstGpu *g, const char *name, size_t bytes)
{
    if (bytes > MOST_SHARED)
        return burst_fail(g->ctx, BURST_E_PLAN, "%s: rows of %zu elements exceed the limit of %zu", name,
                          bytes / sizeof(float), MOST_SHARED / sizeof(float));
    if (bytes > FREE_SHARED)
        CUDA_TRY(g, cudaFuncSetAttribute(norm_back_kernel<FORM>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)bytes));
    return BURST_OK;
}

/* Rows of a LayerNorm are never heads. */
template <Form FORM> static void launch_back(BurstGpu *g, const Back &b, size_t shared)
{
    if constexpr (FORM != CENTERED)
        if (b.hidden <= NARROW) {
            narrow_back_kernel<FORM><<<BACK_BLOCKS, BACK_THREADS, 0, g->compute>>>(b, g->beat, ++g->beats);
            return;
        }
    norm_back_kernel<FORM><<<BACK_BLOCKS, BACK_THREADS, shared, g->compute>>>(b, g->beat, ++g->beats);
}

template <Form FORM> static int norm_back(BurstGpu *g, const char *name, const Back &b, float *dw)
{
    const size_t shared = (size_t)b.hidden * sizeof(float);
    BURST_TRY(gpu_aligned(g, name, b.hidden,
                          address(b.x) | address(b.w) | address(b.dy) | address(b.add) | address(b.dx) |
                              address(b.partial)));
    BURST_TRY(allow_shared<FORM>(g, name, shared));
    if (b.n == 0)
        return BURST_OK;
    launch_back<FORM>(g, b, shared);
    BURST_TRY(gpu_launched(g, name));
    add_partials_kernel<<<(b.hidden + COLUMNS - 1) / COLUMNS, dim3(COLUMNS, ROWS), 0, g->compute>>>(b.hidden,
                                                                                                    b.partial,
                                                                                                    dw);
    return gpu_launched(g, name);
}

int burst_op_rmsnorm_back(BurstGpu *g, int64_t n, int hidden, const BurstBf16 *x, const float *rstd,
                          const BurstBf16 *dy, const BurstBf16 *w, BurstBf16 *dx, bool add, float *dw,
                          void *scratch)
{
    return norm_back<WHOLE>(g, "rmsnorm_back",
                            Back{n, hidden, 0, x, w, dy, add ? dx : NULL, rstd, dx, (double *)scratch, NULL},
                            dw);
}

int burst_op_rmsnorm_plus_back(BurstGpu *g, int64_t n, int hidden, const BurstBf16 *x, const float *rstd,
                               const BurstBf16 *dy, const BurstBf16 *w, BurstBf16 *dx, bool add, float *dw,
                               void *scratch)
{
    return norm_back<WHOLE>(g, "rmsnorm_plus_back",
                            Back{n, hidden, 1, x, w, dy, add ? dx : NULL, rstd, dx, (double *)scratch, NULL},
                            dw);
}

int burst_op_rmsnorm_part_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const float *rstd,
                               const BurstBf16 *dy, const BurstBf16 *w, BurstBf16 *dx, bool add,
                               float *d_square, float *dw, void *scratch)
{
    return norm_back<PART>(g, "rmsnorm_back of parts",
                           Back{n, width, 0, x, w, dy, add ? dx : NULL, rstd, dx, (double *)scratch,
                                d_square},
                           dw);
}

int burst_op_layernorm_back(BurstGpu *g, int64_t n, int hidden, const BurstBf16 *x, const float *rstd,
                            const BurstBf16 *dy, const BurstBf16 *w, BurstBf16 *dx, bool add, float *dw,
                            void *scratch)
{
    return norm_back<CENTERED>(g, "layernorm_back",
                               Back{n, hidden, 0, x, w, dy, add ? dx : NULL, rstd, dx, (double *)scratch,
                                    NULL},
                               dw);
}
