/* burst_infer_scan_cuda.cuh: what recurrent layers keep of a prompt, on GPUs. */
#ifndef BURST_INFER_SCAN_CUDA_CUH
#define BURST_INFER_SCAN_CUDA_CUH

#include "burst_infer_scan.h"

enum { PLAN_SCAN_THREADS = 256 };

static inline unsigned plan_scan_blocks(int64_t n)
{
    return (unsigned)((n + PLAN_SCAN_THREADS - 1) / PLAN_SCAN_THREADS);
}

static inline int plan_share_rows(BurstCtx *c, PlanState *s, const BurstBf16 *x, BurstBf16 *rows)
{
    enum { WIDTH = PLAN_SCAN_COLUMNS, ROWS = PLAN_SCAN_KERNEL };
    const size_t bytes = WIDTH * sizeof *x;
#ifdef PLAN_SCAN_PIECES
    BurstPiece send[ROWS * PLAN_GROUP], receive[ROWS];
    int sends = 0, receives = 0;
    burst_doing(c, "rows that a recurrent layer keeps");
#endif
    for (int j = 0; j < ROWS; j++) {
        const int64_t position = s->infer.prompt - ROWS + j;
        int64_t row = 0;
        BurstBf16 *const to = rows + j * WIDTH;
        const int owner = position < 0 ? s->me : plan_row_of(s, position, &row);
        if (position < 0)
            BURST_TRY(burst_gpu_zero(s->exec, to, bytes));
        else if (owner == s->me)
            PLAN_CUDA(cudaMemcpyAsync(to, x + row * WIDTH, bytes, cudaMemcpyDeviceToDevice,
                                      burst_gpu_compute(s->exec)));
#ifdef PLAN_SCAN_PIECES
        if (owner != s->me)
            receive[receives++] = plan_scan_piece(s, owner, to, bytes, NULL);
        for (int i = 0; i < PLAN_GROUP && position >= 0 && owner == s->me; i++)
            if (i != s->me)
                send[sends++] = plan_scan_piece(s, i, x + row * WIDTH, bytes, to);
#endif
    }
#ifdef PLAN_SCAN_PIECES
    return plan_scan_exchange(s, send, sends, receive, receives);
#else
    return BURST_OK;
#endif
}

static __global__ void __launch_bounds__(PLAN_SCAN_THREADS)
    plan_shift_kernel(const BurstBf16 *x, BurstBf16 *rows)
{
    enum { WIDTH = PLAN_SCAN_COLUMNS, ROWS = PLAN_SCAN_KERNEL };
    const int i = blockIdx.x * PLAN_SCAN_THREADS + threadIdx.x;
    if (i >= WIDTH)
        return;
    for (int j = 0; j + 1 < ROWS; j++)
        rows[j * WIDTH + i] = rows[(j + 1) * WIDTH + i];
    rows[(ROWS - 1) * WIDTH + i] = x[i];
}

static inline int plan_shift_rows(BurstCtx *c, PlanState *s, const BurstBf16 *x, BurstBf16 *rows)
{
    plan_shift_kernel<<<plan_scan_blocks(PLAN_SCAN_COLUMNS), PLAN_SCAN_THREADS, 0,
                        burst_gpu_compute(s->exec)>>>(x, rows);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

#ifdef PLAN_SCAN_HEADS
static __global__ void __launch_bounds__(PLAN_SCAN_THREADS)
    plan_gates_kernel(int64_t n, const int32_t *position, const BurstRunning *running, float *beta,
                      float *decay)
{
    const int64_t i = (int64_t)blockIdx.x * PLAN_SCAN_THREADS + threadIdx.x;
    if (i < n * PLAN_SCAN_HEADS && position[i / PLAN_SCAN_HEADS] >= running->prompt)
        beta[i] = decay[i] = 0;
}

static inline int plan_end_gates(BurstCtx *c, PlanState *s, float *beta, float *decay)
{
    const int64_t n = s->n;
    if (n == 0)
        return BURST_OK;
    plan_gates_kernel<<<plan_scan_blocks(n * PLAN_SCAN_HEADS), PLAN_SCAN_THREADS, 0,
                        burst_gpu_compute(s->exec)>>>(
        n, s->position, (const BurstRunning *)(void *)s->buffer.device_running, beta, decay);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}
#endif

#endif
