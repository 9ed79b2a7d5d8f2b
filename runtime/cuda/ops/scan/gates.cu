/* gates.cu: what a recurrent layer's tokens write by and forget by, in fp32. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 128, BLOCKS = BURST_GPU_SCAN_GATE_BLOCKS };

typedef struct GateArgs {
    int64_t n;
    int heads;
    bool read;
    float beta_most, least, most, scale;
    const BurstBf16 *raw, *a_log, *dt_bias;
    float *beta, *decay;
    const float *d_beta, *d_decay;
    BurstBf16 *d_raw;
    double *partial; /* [BLOCKS][heads][2] */
} GateArgs;

/* Of one token and head: where its numbers are, and the step before its bounds. */
typedef struct Gate {
    int64_t beta, alpha;
    float x, step, bounded;
} Gate;

static __device__ Gate gate_at(const GateArgs &a, int64_t row, int head)
{
    Gate g;
    g.beta = row * (a.read ? 2 * a.heads : a.heads) + head;
    g.alpha = g.beta + (a.read ? a.heads : 0);
    g.x = a.scale * __bfloat162float(a.raw[g.alpha]) + __bfloat162float(a.dt_bias[head]);
    g.step = g.x > 20 ? g.x : log1pf(expf(g.x));
    g.bounded = a.read ? g.step : fminf(fmaxf(g.step, a.least), a.most);
    return g;
}

static __device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

static __global__ void __launch_bounds__(THREADS) gates_kernel(const __grid_constant__ GateArgs a)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= a.n * a.heads)
        return;
    const int head = (int)(at % a.heads);
    const Gate g = gate_at(a, at / a.heads, head);
    a.beta[at] = a.read ? a.beta_most * sigmoid(__bfloat162float(a.raw[g.beta])) : g.bounded;
    a.decay[at] = -expf(__bfloat162float(a.a_log[head])) * g.bounded;
}

/* A block has a head and every BLOCKS-th stretch of rows. */
static __global__ void __launch_bounds__(THREADS) gates_back_kernel(const __grid_constant__ GateArgs a)
{
    const int head = blockIdx.y;
    const float rate = -expf(__bfloat162float(a.a_log[head]));
    double sum_log = 0, sum_bias = 0;
    for (int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x; row < a.n;
         row += (int64_t)BLOCKS * THREADS) {
        const Gate g = gate_at(a, row, head);
        const float d_decay = a.d_decay[row * a.heads + head], d_beta = a.d_beta[row * a.heads + head];
        const bool within = a.read || (g.step > a.least && g.step < a.most);
        const float d_step = d_decay * rate + (a.read ? 0 : d_beta);
        const float d_x = within ? d_step * sigmoid(g.x) : 0;
        const float b = sigmoid(__bfloat162float(a.raw[g.beta]));
        sum_log += d_decay * rate * g.bounded;
        sum_bias += d_x;
        if (a.read)
            a.d_raw[g.beta] = __float2bfloat16(d_beta * a.beta_most * b * (1 - b));
        a.d_raw[g.alpha] = __float2bfloat16(a.scale * d_x);
    }
    sum_log = block_sum(sum_log), sum_bias = block_sum(sum_bias);
    if (threadIdx.x == 0) {
        a.partial[((int64_t)blockIdx.x * a.heads + head) * 2] = sum_log;
        a.partial[((int64_t)blockIdx.x * a.heads + head) * 2 + 1] = sum_bias;
    }
}

/* d_a_log and d_dt_bias += the blocks' parts, in order; a thread a head. */
static __global__ void __launch_bounds__(THREADS)
    gates_weights_kernel(int heads, const double *partial, float *d_a_log, float *d_dt_bias)
{
    const int head = blockIdx.x * THREADS + threadIdx.x;
    double sum_log = 0, sum_bias = 0;
    if (head >= heads)
        return;
    for (int block = 0; block < BLOCKS; block++) {
        sum_log += partial[((int64_t)block * heads + head) * 2];
        sum_bias += partial[((int64_t)block * heads + head) * 2 + 1];
    }
    d_a_log[head] += (float)sum_log;
    d_dt_bias[head] += (float)sum_bias;
}

static GateArgs gate_args(int64_t n, const BurstScan *s, const BurstBf16 *raw, const BurstBf16 *a_log,
                          const BurstBf16 *dt_bias)
{
    GateArgs a = {};
    a.n = n, a.heads = s->heads, a.read = s->read != 0, a.beta_most = (float)s->beta_most;
    a.least = (float)s->step_least, a.most = (float)s->step_most;
    a.scale = (float)burst_scale_or_one(s->step_scale);
    a.raw = raw, a.a_log = a_log, a.dt_bias = dt_bias;
    return a;
}

int burst_op_scan_gates(BurstGpu *g, int64_t n, const BurstScan *s, const BurstBf16 *raw,
                        const BurstBf16 *a_log, const BurstBf16 *dt_bias, float *beta, float *decay)
{
    GateArgs a = gate_args(n, s, raw, a_log, dt_bias);
    if (n == 0)
        return BURST_OK;
    a.beta = beta, a.decay = decay;
    gates_kernel<<<(unsigned)((n * s->heads + THREADS - 1) / THREADS), THREADS, 0, g->compute>>>(a);
    return gpu_launched(g, "scan_gates");
}

int burst_op_scan_gates_back(BurstGpu *g, int64_t n, const BurstScan *s, const BurstBf16 *raw,
                             const BurstBf16 *a_log, const BurstBf16 *dt_bias, const float *d_beta,
                             const float *d_decay, BurstBf16 *d_raw, float *d_a_log, float *d_dt_bias,
                             void *scratch)
{
    GateArgs a = gate_args(n, s, raw, a_log, dt_bias);
    if (n == 0)
        return BURST_OK;
    a.d_beta = d_beta, a.d_decay = d_decay, a.d_raw = d_raw, a.partial = (double *)scratch;
    gates_back_kernel<<<dim3(BLOCKS, (unsigned)s->heads), THREADS, 0, g->compute>>>(a);
    gates_weights_kernel<<<(unsigned)((s->heads + THREADS - 1) / THREADS), THREADS, 0, g->compute>>>(
        s->heads, a.partial, d_a_log, d_dt_bias);
    return gpu_launched(g, "scan_gates_back");
}
