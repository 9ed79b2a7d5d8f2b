/* sink.cu: learned sinks (GPT-OSS), applied once a row's attention is complete: see burst_sink in
 * burst_rt.h. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 256 };

/* A launch: `lanes` adjacent lanes share a row, a head of a token: a power of two, at most a warp. */
typedef struct Sink {
    int64_t n;
    int heads, d, lanes;
    const BurstBf16 *o;
    const float *lse;
    const BurstBf16 *sink;
} Sink;

/* For row token * heads + head: its index in [heads][n], and the weights of its keys and its sink. Neither
 * is computed as 1 minus the other, which would lose the digits of a small one. */
typedef struct Weights {
    int64_t at;
    float keep, sink;
} Weights;

static __device__ __forceinline__ Weights weights_of(const Sink &s, int64_t row)
{
    const int head = (int)(row % s.heads);
    const int64_t at = head * s.n + row / s.heads;
    const float apart = __bfloat162float(s.sink[head]) - s.lse[at];
    return Weights{at, 1 / (1 + expf(apart)), 1 / (1 + expf(-apart))};
}

static __device__ __forceinline__ void scale_to(const BurstBf16 *from, float keep, BurstBf16 *to)
{
    float x[VEC];
    load(from, x);
    for (int j = 0; j < VEC; j++)
        x[j] *= keep;
    store(to, x);
}

static __global__ void __launch_bounds__(THREADS) sink_kernel(Sink s, BurstBf16 *out)
{
    const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = thread / s.lanes;
    if (row >= s.n * s.heads)
        return;
    const float keep = weights_of(s, row).keep;
    for (int i = VEC * (int)(thread % s.lanes); i < s.d; i += VEC * s.lanes)
        scale_to(s.o + row * s.d + i, keep, out + row * s.d + i);
}

static __global__ void __launch_bounds__(THREADS)
    sink_back_kernel(Sink s, const BurstBf16 *d_out, BurstBf16 *d_o, float *d_lse)
{
    const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = thread / s.lanes;
    const bool there = row < s.n * s.heads;
    const Weights w = there ? weights_of(s, row) : Weights{0, 0, 0};
    float sum = 0;
    for (int i = VEC * (int)(thread % s.lanes); there && i < s.d; i += VEC * s.lanes) {
        float a[VEC], b[VEC];
        load(s.o + row * s.d + i, a);
        load(d_out + row * s.d + i, b);
        for (int j = 0; j < VEC; j++)
            sum += a[j] * b[j], b[j] *= w.keep;
        store(d_o + row * s.d + i, b);
    }
    for (int lane = s.lanes / 2; lane > 0; lane /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (there && thread % s.lanes == 0)
        d_lse[w.at] = w.keep * w.sink * sum;
}

/* One block per head, with a fixed order. */
static __global__ void __launch_bounds__(THREADS)
    sink_sum_kernel(int64_t n, const float *d_lse, float *d_sink)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        sum += d_lse[blockIdx.x * n + i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        d_sink[blockIdx.x] -= (float)sum;
}

static Sink sink_of(int64_t n, int heads, int d, const BurstBf16 *o, const float *lse, const BurstBf16 *sink)
{
    Sink s = {n, heads, d, 1, o, lse, sink};
    while (s.lanes < WARP && s.lanes * VEC < d)
        s.lanes *= 2;
    return s;
}

static unsigned blocks_of(const Sink &s)
{
    return (unsigned)((s.n * s.heads * s.lanes + THREADS - 1) / THREADS);
}

int burst_op_sink(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *o, const float *lse,
                  const BurstBf16 *sink, BurstBf16 *out)
{
    BURST_TRY(gpu_aligned(g, "sink", d, address(o) | address(out)));
    if (n == 0)
        return BURST_OK;
    const Sink s = sink_of(n, heads, d, o, lse, sink);
    sink_kernel<<<blocks_of(s), THREADS, 0, g->compute>>>(s, out);
    return gpu_launched(g, "sink");
}

int burst_op_sink_back(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *d_out, const BurstBf16 *o,
                       const float *lse, const BurstBf16 *sink, BurstBf16 *d_o, float *d_lse, float *d_sink)
{
    BURST_TRY(gpu_aligned(g, "sink_back", d, address(d_out) | address(o) | address(d_o)));
    if (n == 0)
        return BURST_OK;
    const Sink s = sink_of(n, heads, d, o, lse, sink);
    sink_back_kernel<<<blocks_of(s), THREADS, 0, g->compute>>>(s, d_out, d_o, d_lse);
    sink_sum_kernel<<<(unsigned)heads, THREADS, 0, g->compute>>>(n, d_lse, d_sink);
    return gpu_launched(g, "sink_back");
}

static __global__ void __launch_bounds__(THREADS) subtract_kernel(int64_t count, const float *x, float *y)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        y[i] -= x[i];
}

int burst_gpu_subtract(BurstGpu *g, int64_t count, const float *x, float *y)
{
    if (count == 0)
        return BURST_OK;
    subtract_kernel<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, g->compute>>>(count, x, y);
    return gpu_launched(g, "subtract");
}

int burst_op_delta_lse(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *o, const BurstBf16 *d_o,
                       const float *d_lse, float *delta)
{
    BURST_TRY(burst_op_delta(g, n, heads, d, o, d_o, delta));
    return burst_gpu_subtract(g, n * heads, d_lse, delta);
}
