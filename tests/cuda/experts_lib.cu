/* experts_lib.cu: the operations of experts (runtime/cuda/experts) as a library with C functions, which
 * experts.py calls; linked with their sources and runtime/cuda/ops/linear.cu. Each returns a status: 0, or
 * what went wrong is printed.
 */
#include "cuda/gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what the operations need of the runtime ---- */

extern "C" int burst_fail(BurstCtx *c, int code, const char *format, ...)
{
    va_list args;
    (void)c;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return code;
}

int gpu_cuda_failed(BurstGpu *g, cudaError_t e, const char *call)
{
    return burst_fail(g->ctx, BURST_E_DEVICE, "%s: %s", call, cudaGetErrorString(e));
}

int gpu_lt_failed(BurstGpu *g, cublasStatus_t e, const char *call)
{
    return burst_fail(g->ctx, BURST_E_DEVICE, "%s: %s", call, cublasLtGetStatusString(e));
}

int gpu_aligned(BurstGpu *g, const char *kernel, int64_t width, uintptr_t addresses)
{
    return width % 8 == 0 && addresses % 16 == 0
               ? BURST_OK
               : burst_fail(g->ctx, BURST_E_PLAN, "%s: not aligned", kernel);
}

static __global__ void round_kernel(int64_t count, const float *x, BurstBf16 *y)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x)
        y[i] = __float2bfloat16(x[i]);
}

int gpu_add_rounded(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, bool add, BurstBf16 *y)
{
    (void)add;
    round_kernel<<<1024, 256, 0, stream>>>(count, x, y);
    return gpu_launched(g, "round");
}

/* ---- the operations ---- */

static BurstGpu gpu;

extern "C" {

/* experts_bytes: of BurstExperts, as the caller has it. */
int test_open(int experts_bytes)
{
    memset(&gpu, 0, sizeof gpu);
    if (experts_bytes != (int)sizeof(BurstExperts) || cublasLtCreate(&gpu.lt) != CUBLAS_STATUS_SUCCESS)
        return 1;
    return cudaMalloc((void **)&gpu.workspace, WORKSPACE_BYTES) != cudaSuccess;
}

int64_t test_scratch_bytes(int experts) { return burst_gpu_experts_bytes(experts); }

int test_logits(int64_t n, int hidden, int experts, const BurstBf16 *x, const BurstBf16 *w, float *logits,
                cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_logits(&gpu, n, hidden, experts, x, w, logits);
}

int test_logits_dw(int64_t n, int hidden, int experts, const float *d, const BurstBf16 *x, float *dw,
                   void *scratch, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_logits_dw(&gpu, n, hidden, experts, d, x, dw, scratch);
}

int test_logits_dx(int64_t n, int hidden, int experts, const float *d, const BurstBf16 *w, BurstBf16 *dx,
                   int add, void *scratch, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_logits_dx(&gpu, n, hidden, experts, d, w, dx, add, scratch);
}

int test_choose(int64_t n, const BurstExperts *m, const float *logits, int32_t *choice, float *route,
                cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_choose(&gpu, n, m, logits, choice, route);
}

int test_choose_corrected(int64_t n, const BurstExperts *m, const float *logits, const float *correction,
                          int32_t *choice, float *route, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_choose_corrected(&gpu, n, m, logits, correction, choice, route);
}

int test_bias(int64_t n, int experts, const float *x, const BurstBf16 *b, float *y, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_bias(&gpu, n, experts, x, b, y);
}

int test_bias_back(int64_t n, int experts, const float *dy, float *db, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_bias_back(&gpu, n, experts, dy, db);
}

int test_experts_bias(int64_t n, const BurstExperts *m, const BurstBf16 *x, const int32_t *first,
                      const BurstBf16 *b, BurstBf16 *y, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_bias(&gpu, n, m, x, first, b, y);
}

int test_experts_bias_back(int64_t n, const BurstExperts *m, const BurstBf16 *dy, const int32_t *first,
                           float *db, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_bias_back(&gpu, n, m, dy, first, db);
}

int test_out_bias(int64_t n, const BurstExperts *m, int hidden, const int32_t *choice, const float *route,
                  const BurstBf16 *add, const BurstBf16 *b, BurstBf16 *y, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_out_bias(&gpu, n, m, hidden, choice, route, add, b, y);
}

int test_out_bias_back(int64_t n, const BurstExperts *m, int hidden, bool adds, const BurstBf16 *dy,
                       const int32_t *choice, const float *route, const BurstBf16 *b, float *d_route,
                       float *db, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_out_bias_back(&gpu, n, m, hidden, adds, dy, choice, route, b, d_route, db);
}

int test_choose_back(int64_t n, const BurstExperts *m, const float *logits, const int32_t *choice,
                     const float *d_route, float *d_logits, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_choose_back(&gpu, n, m, logits, choice, d_route, d_logits);
}

int test_arrange(int64_t n, const BurstExperts *m, const int32_t *choice, int32_t *slot, int32_t *row,
                 int32_t *first, void *scratch, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_arrange(&gpu, n, m, choice, slot, row, first, scratch);
}

int test_up(int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *x, const int32_t *row,
            const int32_t *first, const BurstBf16 *w, BurstBf16 *y, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_up(&gpu, n, m, hidden, x, row, first, w, y, NULL);
}

int test_up_dw(int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *dy, const BurstBf16 *x,
               const int32_t *row, const int32_t *first, float *dw, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_up_dw(&gpu, n, m, hidden, dy, x, row, first, dw, NULL);
}

int test_up_dx(int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *dy, const int32_t *first,
               const BurstBf16 *w, BurstBf16 *rows, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_up_dx(&gpu, n, m, hidden, dy, first, w, rows);
}

int test_sum(int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *rows, const int32_t *slot,
             const BurstBf16 *add, BurstBf16 *y, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_sum(&gpu, n, m, hidden, rows, slot, add, y);
}

int test_act(int64_t n, const BurstExperts *m, const BurstBf16 *gate_up, const float *route,
             const int32_t *row, BurstBf16 *y, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_act(&gpu, n, m, gate_up, route, row, y);
}

int test_act_back(int64_t n, const BurstExperts *m, const BurstBf16 *gate_up, const float *route,
                  const int32_t *row, const BurstBf16 *dy, BurstBf16 *d_gate_up, float *d_route,
                  cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_act_back(&gpu, n, m, gate_up, route, row, dy, d_gate_up, d_route);
}

int test_down(int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *x, const int32_t *first,
              const BurstBf16 *w, BurstBf16 *rows, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_down(&gpu, n, m, hidden, x, first, w, rows);
}

int test_down_dw(int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *dy, const BurstBf16 *x,
                 const int32_t *row, const int32_t *first, float *dw, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_down_dw(&gpu, n, m, hidden, dy, x, row, first, dw, NULL);
}

int test_down_dx(int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *dy, const int32_t *row,
                 const int32_t *first, const BurstBf16 *w, BurstBf16 *dx, cudaStream_t stream)
{
    gpu.compute = stream;
    return burst_op_experts_down_dx(&gpu, n, m, hidden, dy, row, first, w, dx, NULL);
}

static BurstLoads loads_in(int experts, double *choices, double *sums, double scale)
{
    return BurstLoads{choices, sums, sums + experts, sums + experts + 1, scale};
}

/* choices: [layers][experts], sums: [2 * experts + 1]. */
int test_count(int64_t n, const BurstExperts *m, int layer, const int32_t *choice, const float *logits,
               const int32_t *label, const float *weight, double *choices, cudaStream_t stream)
{
    const BurstLoads l = loads_in(m->experts, choices, choices, 1);
    gpu.compute = stream;
    return burst_op_count(&gpu, n, m, layer, choice, logits, label, weight, &l);
}

int test_balance(int64_t n, const BurstExperts *m, const float *logits, const int32_t *label,
                 const float *weight, double *sums, cudaStream_t stream)
{
    const BurstLoads l = loads_in(m->experts, sums, sums, 1);
    gpu.compute = stream;
    return burst_op_balance(&gpu, n, m, logits, label, weight, &l);
}

int test_balance_back(int64_t n, const BurstExperts *m, const float *logits, const int32_t *label,
                      const float *weight, double *sums, double scale, float *d_logits, cudaStream_t stream)
{
    const BurstLoads l = loads_in(m->experts, sums, sums, scale);
    gpu.compute = stream;
    return burst_op_balance_back(&gpu, n, m, logits, label, weight, &l, d_logits);
}

} // extern "C"
