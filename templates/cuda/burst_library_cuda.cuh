/* burst_library_cuda.cuh: a plan's attention inside another program, on a GPU (burst_library.h), in the
 * order of the caller's stream. Rows are not copied: gradients are fp32 sums in the workspace, and are
 * rounded once. */
#ifndef BURST_LIBRARY_CUDA_CUH
#define BURST_LIBRARY_CUDA_CUH

#include "burst_attention_cuda.cuh"
#include "burst_library.h"
#include "burst_gpu.h"

#ifdef PLAN_SELECTIONS
#include "burst_select_cuda.cuh"
#endif

/* defined by the program: allocates a batch's arrays */
static int plan_alloc(BurstCtx *c, PlanState *s);
static void plan_alloc_device(PlanState *s, char *memory);    /* and those on the device */

static inline int plan_library_open(BurstCtx *c, void **device)
{
    BURST_TRY(burst_library_gpu_open(c, PLAN_CHANNELS, device));
    PLAN_CUDA(plan_launch_setup());
    return BURST_OK;
}

static inline void plan_library_close(void *device) { burst_library_gpu_close(device); }

static inline int plan_library_start(BurstCtx *c, void *state, const BurstTables *tables)
{
    PlanState *s = (PlanState *)state;
    s->table_values = tables;
    s->heads = plan_chunk_heads(0);
    s->exec = (BurstExec *)burst_library_device(c);
    return plan_alloc(c, s);
}

static inline int plan_library_load(BurstCtx *c, void *state, char *memory, void *stream)
{
    PlanState *s = (PlanState *)state;
    int device = 0;
    burst_library_gpu_use(s->exec, stream);
    plan_alloc_device(s, memory);
    memset(s->kept, 0, sizeof s->kept);
    s->kept_ints = 0;
    PLAN_CUDA(cudaGetDevice(&device));
    PLAN_CUDA(cudaDeviceGetAttribute(&s->multiprocessors, cudaDevAttrMultiProcessorCount, device));
    BURST_TRY(plan_chunks(c, s));
    s->position = s->tokens[s->me].position;
    return plan_live(c, s, s->table_values);
}

/* ---- sinks: one score per head that takes weight and has no value ---- */

enum { PLAN_SINK_THREADS = 256 };

/* The keys' share of the weight in a row of [heads][n]. */
static __device__ inline float plan_keys_weight(const float *sinks, const float *lse, int64_t row, int64_t n)
{
    return 1 / (1 + expf(sinks[row / n] - lse[row]));
}

/* Scales each row of x [n][heads][value_dim] by its keys' share of the weight. */
static __global__ void plan_sink_kernel(int64_t n, int heads, const float *sinks, const float *lse,
                                        const BurstBf16 *x, BurstBf16 *y)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / PLAN_VALUE_DIM;
    if (row < n * heads)
        y[i] = __float2bfloat16(__bfloat162float(x[i]) *
                                plan_keys_weight(sinks, lse, row % heads * n + row / heads, n));
}

/* delta [heads][n] is rowsum(d_o o) with the sink in o. The keys' part is `keep` times that; the rest is the
 * sink's, computed directly since 1 - keep would round small weights. */
static __global__ void plan_sink_delta_kernel(int64_t rows, int64_t n, const float *sinks, const float *lse,
                                              float *delta, float *of_sink)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    of_sink[row] = -delta[row] / (1 + expf(lse[row] - sinks[row / n]));
    delta[row] *= plan_keys_weight(sinks, lse, row, n);
}

/* One block per head, with a fixed order of additions. */
static __global__ void __launch_bounds__(PLAN_SINK_THREADS)
    plan_sink_sum_kernel(int64_t n, const float *of_sink, float *dsinks)
{
    __shared__ double part[PLAN_SINK_THREADS];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += PLAN_SINK_THREADS)
        sum += of_sink[blockIdx.x * n + i];
    part[threadIdx.x] = sum;
    for (int half = PLAN_SINK_THREADS / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        dsinks[blockIdx.x] = (float)part[0];
}

static inline unsigned plan_sink_blocks(int64_t threads)
{
    return (unsigned)((threads + PLAN_SINK_THREADS - 1) / PLAN_SINK_THREADS);
}

static inline int plan_sink(BurstCtx *c, PlanState *s, const BurstAttention *a, const float *lse,
                            const BurstBf16 *x, BurstBf16 *y)
{
    const int64_t count = s->n * PLAN_HEADS * PLAN_VALUE_DIM;
    if (count == 0)
        return BURST_OK;
    plan_sink_kernel<<<plan_sink_blocks(count), PLAN_SINK_THREADS, 0, burst_gpu_compute(s->exec)>>>(
        s->n, PLAN_HEADS, a->sinks, lse, x, y);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

static inline int plan_sinks_back(BurstCtx *c, PlanState *s, const BurstAttention *a, float *delta)
{
    const int64_t rows = s->n * PLAN_HEADS;
    const cudaStream_t stream = burst_gpu_compute(s->exec);
    BURST_TRY(plan_sink(c, s, a, a->lse, (const BurstBf16 *)a->d_o, s->buffer.rows_do));
    if (rows > 0)
        plan_sink_delta_kernel<<<plan_sink_blocks(rows), PLAN_SINK_THREADS, 0, stream>>>(rows, s->n, a->sinks,
                                                                                         a->lse, delta,
                                                                                         s->buffer.rows_sink);
    PLAN_CUDA(cudaGetLastError());
    if (a->dsinks)
        plan_sink_sum_kernel<<<PLAN_HEADS, PLAN_SINK_THREADS, 0, stream>>>(s->n, s->buffer.rows_sink,
                                                                           a->dsinks);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

/* ---- calls ---- */

static inline void plan_library_begin(PlanState *s, const BurstAttention *a)
{
    burst_library_gpu_use(s->exec, a->stream);
    s->score_scale = a->scale;
    s->launches = 0;
}

/* The lists of the mask's selection, if it has one: a call has its own, and those of backward are forward's,
 * since they depend on nothing but queries and keys. */
static inline int plan_choose_blocks(BurstCtx *c, PlanState *s, const BurstAttention *a)
{
#ifdef PLAN_SELECTIONS
    const PlanBuffers *b = &s->buffer;
    s->chosen = b->select_lists;
    return plan_select(c, s, a->mask, (const BurstBf16 *)a->q, (const BurstBf16 *)a->k, b->select_lists,
                       b->select_scratch);
#else
    (void)c, (void)s, (void)a;
    return BURST_OK;
#endif
}

static inline int plan_library_forward(BurstCtx *c, void *state, const BurstAttention *a)
{
    PlanState *s = (PlanState *)state;
    BurstBf16 *o = (BurstBf16 *)a->to_o;
    plan_library_begin(s, a);
    BURST_TRY(plan_choose_blocks(c, s, a));
    BURST_TRY(plan_attention(c, s, a->mask, (const BurstBf16 *)a->q, (const BurstBf16 *)a->k,
                             (const BurstBf16 *)a->v, o, a->to_lse));
    BURST_TRY(burst_library_gpu_end(s->exec));
    return a->sinks ? plan_sink(c, s, a, a->to_lse, o, o) : BURST_OK;
}

static inline int plan_give_rows(PlanState *s, int heads, int d, const float *sums, void *rows)
{
    return burst_op_to_tokens(s->exec, s->n, heads, d, sums, (BurstBf16 *)rows);
}

static inline int plan_library_backward(BurstCtx *c, void *state, const BurstAttention *a)
{
    PlanState *s = (PlanState *)state;
    const PlanBuffers *b = &s->buffer;
    const BurstBf16 *d_o = (const BurstBf16 *)a->d_o;
    plan_library_begin(s, a);
    BURST_TRY(burst_op_delta(s->exec, s->n, PLAN_HEADS, PLAN_VALUE_DIM, (const BurstBf16 *)a->o, d_o,
                              b->rows_delta));
    if (a->sinks) {
        BURST_TRY(plan_sinks_back(c, s, a, b->rows_delta));
        d_o = b->rows_do;
    }
    if (a->d_lse)
        BURST_TRY(burst_gpu_subtract(s->exec, PLAN_HEADS * s->n, a->d_lse, b->rows_delta));
    BURST_TRY(plan_choose_blocks(c, s, a));
    BURST_TRY(plan_attention_back(c, s, a->mask, (const BurstBf16 *)a->q, (const BurstBf16 *)a->k,
                                  (const BurstBf16 *)a->v, a->lse, d_o, b->rows_delta, b->rows_dq, b->rows_dk,
                                  b->rows_dv));
    BURST_TRY(burst_library_gpu_end(s->exec));
    PLAN_CUDA(burst_finish_dq<PLAN_HEAD_DIM>(b->rows_dq, (int)s->n, PLAN_HEADS, PLAN_SCALE,
                                             plan_rows((char *)a->dq, PLAN_HEADS, PLAN_HEAD_DIM),
                                             burst_gpu_compute(s->exec)));
    BURST_TRY(plan_give_rows(s, PLAN_KV_HEADS, PLAN_HEAD_DIM, b->rows_dk, a->dk));
    return plan_give_rows(s, PLAN_KV_HEADS, PLAN_VALUE_DIM, b->rows_dv, a->dv);
}

#endif
