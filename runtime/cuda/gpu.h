/* gpu.h: what the CUDA runtime's own files share. */
#ifndef BURST_CUDA_GPU_H
#define BURST_CUDA_GPU_H

#include "burst_gpu.h"
#include "host_side.h"

#include <cublasLt.h>
#include <nccl.h>

/* Pinned memory between host and device: slots used in turn, each with an event that says when it is free again. */
enum { STAGING_SLOTS = 8 };
static constexpr size_t STAGING_BYTES = 4u << 20; /* a slot; some 80 us of a PCIe link */
typedef struct Staging {
    char *slot[STAGING_SLOTS];
    cudaEvent_t free[STAGING_SLOTS]; /* never recorded: free */
    unsigned next;
} Staging;

/* Blocks of a sum of squares: a constant, so that every device adds in the same order. */
enum { SUM_BLOCKS = 512 };
/* Of the matrix products; behind it the sums. */
static constexpr size_t WORKSPACE_BYTES = BURST_GPU_OWN_BYTES - (SUM_BLOCKS + 32) * sizeof(double);
static_assert(WORKSPACE_BYTES % 256 == 0, "as cudaMalloc aligns");
typedef struct Watch Watch;     /* watch.cu */
typedef struct Product Product; /* a planned matrix product: product.cu */

struct BurstGpu {
    BurstCtx *ctx;
    int rank, world, channels, device;
    cudaStream_t compute, weights, *channel;
    ncclComm_t *comm;  /* [channels + 1], the last for the weights; NULL entries in a world of one */
    uint8_t *met;      /* [channels + 1][world]: which directions have been used; transfer.cu */
    BurstReq *greeting; /* [2 * world] */
    int greetings;     /* under way */
    char *memory;      /* device_bytes */
    size_t bytes, used;
    char *workspace;   /* WORKSPACE_BYTES; compute stream only */
    double *sums;      /* [SUM_BLOCKS + 1] on the device, the last for the total */
    uint32_t *beat;    /* pinned: written by kernels that come once or more a layer; shows the watchdog that they move */
    uint32_t beats;    /* of them queued so far */
    Staging staging;
    cublasLtHandle_t lt;
    Product *products; /* a list */
    cudaEvent_t *event; /* of all marks */
    int events;
    BurstMark order;   /* between compute and weights, for the optimizer */
    float **tables;    /* of the weights */
    Watch *watch;
    bool watched;      /* parts are traced or shown to a profiler */
    bool broken;       /* a wait failed: the device may never come to rest */
};

/* ---- results of libraries ---- */
int gpu_cuda_failed(BurstGpu *g, cudaError_t e, const char *call);
int gpu_nccl_failed(BurstGpu *g, ncclResult_t e, const char *call);
int gpu_lt_failed(BurstGpu *g, cublasStatus_t e, const char *call);
#define CUDA_TRY(g, call)                                 \
    do {                                                  \
        cudaError_t error_ = (call);                      \
        if (error_ != cudaSuccess)                        \
            return gpu_cuda_failed((g), error_, #call);   \
    } while (0)
#define NCCL_TRY(g, call)                                 \
    do {                                                  \
        ncclResult_t error_ = (call);                     \
        if (error_ != ncclSuccess)                        \
            return gpu_nccl_failed((g), error_, #call);   \
    } while (0)
#define LT_TRY(g, call)                                   \
    do {                                                  \
        cublasStatus_t error_ = (call);                   \
        if (error_ != CUBLAS_STATUS_SUCCESS)              \
            return gpu_lt_failed((g), error_, #call);     \
    } while (0)
/* After a launch. */
static inline int gpu_launched(BurstGpu *g, const char *kernel)
{
    cudaError_t e = cudaGetLastError();
    return e == cudaSuccess ? BURST_OK : gpu_cuda_failed(g, e, kernel);
}
/* Kernels move 16 bytes at a time: width (elements of a row) must be a multiple of 8, the addresses (or-ed) of 16 bytes. */
int gpu_aligned(BurstGpu *g, const char *kernel, int64_t width, uintptr_t addresses);
static inline uintptr_t address(const void *p) { return (uintptr_t)p; }

/* ---- waiting ---- */
/* Waits for an event, or with NULL for all streams. */
int gpu_wait(BurstGpu *g, cudaEvent_t event);
int gpu_event(BurstGpu *g, cudaEvent_t *out); /* destroyed when g is closed */

/* ---- watching ---- */
int gpu_watch_open(BurstGpu *g);
void gpu_watch_close(BurstGpu *g, bool orderly);
int gpu_lane(const BurstGpu *g, cudaStream_t stream);
/* What the transfer that the channel's part consists of carries. */
void gpu_part_bytes(BurstGpu *g, int channel, size_t sent, size_t received);
/* Before and after the compute stream's wait for a mark; cut: what it did. */
int gpu_wait_shown(BurstGpu *g, cudaStream_t stream, const BurstMark *m, int begins, BurstSpan *cut);

/* ---- matrix products on the compute stream ---- */
/* Column-major: D[m][n] = op(A)[m][k] op(B)[k][n] + beta C; A and B bf16. All members are 64 bits: compared bytewise. */
typedef struct Shape { int64_t transpose_a, transpose_b, m, n, k, lda, ldb, ldc, fp32_out, beta; } Shape;
int gpu_product(BurstGpu *g, const Shape *s, const void *a, const void *b, const void *c, void *d);
void gpu_products_free(BurstGpu *g);

/* y += x; blocks of 16 bytes where x and y allow it. */
int gpu_add(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, float *y);
#endif
