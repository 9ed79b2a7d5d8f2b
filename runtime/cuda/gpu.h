/* gpu.h: what the CUDA runtime's own files share. */
#ifndef BURST_CUDA_GPU_H
#define BURST_CUDA_GPU_H

#include "burst_step_cuda.h"
#include "burst_sizes.h"
#include "cuda/device/host_side.h"
#include "base/plural.h"

#include <cublasLt.h>
#include <cudaTypedefs.h>
#include <nccl.h>

/* Pinned memory between host and device: slots used in turn, each with an event that says when it is free
 * again. */
enum { STAGING_SLOTS = 8 };
static constexpr size_t STAGING_BYTES = 4u << 20; /* a slot; some 80 us of a PCIe link */
typedef struct Staging {
    char *slot[STAGING_SLOTS];
    cudaEvent_t free[STAGING_SLOTS]; /* never recorded: free */
    unsigned next;
} Staging;

/* Blocks of a sum of squares: a constant, so that every device adds in the same order. */
enum { SUM_BLOCKS = 512 };
/* Behind device_bytes in the same allocation, so that one handle gives both to the peers: their flags;
 * peer.cu. */
static constexpr size_t FLAG_BYTES = 64u << 10;
/* Of the matrix products; behind it the sums. */
static constexpr size_t WORKSPACE_BYTES = BURST_GPU_OWN_BYTES - FLAG_BYTES -
                                          (SUM_BLOCKS + 32) * sizeof(double);
static_assert(WORKSPACE_BYTES % 256 == 0, "as cudaMalloc aligns");
typedef struct Watch Watch;     /* watch.cu */
typedef struct Product Product; /* a planned matrix product: product.cu */

/* Lanes of marks in the streams of copies, of downloads and of tensor ranks, of which nothing is recorded. */
static constexpr int LANE_COPIES = -1, LANE_TENSOR = -2, LANE_DOWNLOADS = -3;

/* Steps of opening whose device memory is measured. */
enum { TAKEN_CONTEXT, TAKEN_NCCL, TAKEN_PLAN, TAKEN_OWN, TAKEN_LINKS, GPU_TAKEN };

/* ---- transfers over peer memory ---- */
/* What one message between two ranks fills at the receiver: both sides compute it, and it must be the
 * same. */
/* offset: of the first piece; hash: of all */
typedef struct Landing { uint64_t bytes, offset, hash; } Landing;
/* Ranks of a host whose memory a rank maps, itself included: what a message of the host runtime holds of
 * their landings. */
enum { PEERS_MOST = 16 };
/* Another rank of this host whose memory this rank has mapped, and that has mapped this rank's. */
typedef struct Peer {
    int rank, local;   /* in the world, on the host */
    char *memory;      /* its device_bytes and flags */
} Peer;
/* Ranks that gather and add up among them: those that share the weights; of these, those that share a unit
 * that tensor ranks split; those that hold the same shards; those that split layers; of these, those that
 * have the same key heads, where they are some. Without a split unit the second are the first, and nothing
 * uses them. */
enum { GROUP_SHARDS, GROUP_SPLIT, GROUP_REPLICAS, GROUP_TENSOR, GROUP_COPIES, GPU_GROUPS };
typedef struct Members {
    BurstGroup ranks;
    ncclComm_t comm; /* NULL: this rank alone */
    bool peers;      /* every pair of them: all of them agree on that */
    uint8_t met;     /* which collectives have been used; transfer.cu */
} Members;
/* Operations on flags that wait to be queued as one. */
typedef struct FlagOps { CUstreamBatchMemOpParams at[2 * PEERS_MOST]; unsigned count; } FlagOps;
/* A stream of a plan inside another program: its last mark, and whether anything was queued after it. */
typedef struct Lane { BurstMark last; bool queued; } Lane;
typedef struct Greeting { BurstReq req; int peer; Landing mine, theirs; bool compare; } Greeting;

struct BurstGpu {
    BurstCtx *ctx;
    int rank, world, channels, device;
    /* ranks may have the same device; another one of the same NCCL_HOSTID has this rank's */
    bool may_share, twice;
    uint64_t host;         /* of NCCL_HOSTID, as it was at the start */
    cudaStream_t compute, weights, copies, downloads, tensor, *channel;
    void *staged;          /* pinned memory of the host that values are staged to */
    size_t staged_bytes;
    void *pinned;          /* the host's parameters and moments, where units of them are fetched */
    ncclComm_t *comm;  /* [channels]; NULL: nothing moves by it */
    Members group[GPU_GROUPS];
    uint8_t *met;      /* [channels + 2][world]: which directions have been used; transfer.cu */
    Greeting *greeting; /* [2 * world] */
    int greetings;     /* under way */
    Peer peer[PEERS_MOST]; /* the next rank of the host first */
    int peers;
    bool all_peers;        /* every pair of the world: all ranks agree on that */
    const Peer **peer_of;  /* [world], NULL: NCCL moves what goes to that rank */
    PFN_cuStreamBatchMemOp_v11070 flag_ops;
    uint32_t *messages;    /* [channels + 2][PEERS_MOST][sent, received]: counted */
    uint64_t *expected;    /* [channels + 2][PEERS_MOST]: what says that a peer's message has arrived */
    BurstPiece *pieces;    /* [2 * world]: of a gather */
    char *memory;      /* device_bytes, FLAG_BYTES */
    size_t bytes, used;
    char *workspace;   /* WORKSPACE_BYTES; compute stream only */
    double *sums;      /* [SUM_BLOCKS + 1] on the device, the last for the total */
    /* pinned: written by kernels that come once or more a layer; shows the watchdog that they move */
    uint32_t *beat;
    uint32_t beats;    /* of them queued so far */
    Staging staging;
    cublasLtHandle_t lt;
    Product *products; /* a list */
    cudaEvent_t *event; /* of all marks */
    int events;
    /* of a plan inside another program; library/cuda/gpu.cu */
    int64_t place, call; /* marks so far, and before this call */
    int marks;           /* of the call, of which each has one of `event` */
    Lane *lane;          /* [channels + 1] */
    BurstMark *waits;    /* [to come, done][channels + 1][channels + 1] */
    BurstMark order;   /* between compute and weights, for the optimizer */
    float **tables;    /* of the weights */
    size_t taken[GPU_TAKEN]; /* device memory, as measured when it was opened */
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
/* Kernels move 16 bytes at a time: width (elements of a row) must be a multiple of 8, the addresses
 * (or-ed) of 16 bytes. */
int gpu_aligned(BurstGpu *g, const char *kernel, int64_t width, uintptr_t addresses);
/* burst_op_bias_back of rows that are `stride`, whole vectors, apart; what lies between them is added up and
 * left. */
int gpu_bias_back_rows(BurstGpu *g, int64_t n, int width, int64_t stride, const BurstBf16 *dy, double by,
                       float *db);
static inline uintptr_t address(const void *p) { return (uintptr_t)p; }

/* ---- waiting ---- */
/* Waits for an event, or with NULL for all streams. */
int gpu_wait(BurstGpu *g, cudaEvent_t event);
int gpu_event(BurstGpu *g, cudaEvent_t *out); /* destroyed when g is closed */

/* ---- watching ---- */
int gpu_memory_now(BurstGpu *g, size_t *used); /* bytes in use on the device, by anybody */
int gpu_watch_open(BurstGpu *g);
void gpu_watch_close(BurstGpu *g, bool orderly);
int gpu_lane(const BurstGpu *g, cudaStream_t stream);
/* What the transfer that the channel's part consists of carries. */
void gpu_part_bytes(BurstGpu *g, int channel, size_t sent, size_t received);
/* Before and after the compute stream's wait for a mark; cut: what it did. */
int gpu_wait_shown(BurstGpu *g, cudaStream_t stream, const BurstMark *m, int begins, BurstSpan *cut);
/* ---- transfers ---- */
/* The stream of a channel; behind them those of the weights and of tensor ranks. */
static inline cudaStream_t gpu_stream(const BurstGpu *g, int channel)
{
    if (channel < g->channels)
        return g->channel[channel];
    return channel == g->channels ? g->weights : g->tensor;
}
/* Of the channels, then of the groups. */
static inline ncclComm_t gpu_communicator(const BurstGpu *g, int i)
{
    return i < g->channels ? g->comm[i] : g->group[i - g->channels].comm;
}
/* Where the flags lie in the allocation. */
static inline size_t gpu_flags_at(const BurstGpu *g) { return (g->bytes + 255) / 256 * 256; }
static inline size_t gpu_piece_bytes(const BurstPiece *p) { return p->width * p->rows; }
int gpu_copy_rows(BurstGpu *g, cudaStream_t stream, const void *from, size_t from_pitch, void *to,
                  size_t to_pitch, const BurstPiece *p);
/* After gpu_make_memory: maps the memory of the ranks of this host, or says why not. peer.cu */
/* device.cu. gpu_name_host: a NCCL_HOSTID of its own for a rank that shares its device, without which NCCL
 * refuses it. */
int gpu_take_device(BurstGpu *g);
int gpu_name_host(BurstGpu *g);
int gpu_peers_open(BurstGpu *g);
void gpu_peers_close(BurstGpu *g);
/* Whether the rates to the next ranks are what the topology says; rank 0 reports what is not.
 * link_check.cu */
int gpu_check_links(BurstGpu *g);
/* What the peer's pieces (bytes 0: none) fill; sending: at the peer, by lands. BURST_E_PLAN where that is
 * not device memory. */
int gpu_landing(BurstGpu *g, const BurstPiece *p, int count, int peer, bool sending, Landing *out);
/* Pushes what goes to peers; then, after what may lie between the two, waits for what comes from peers.
 * peer_move.cu */
int gpu_peers_push(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                   int receives, FlagOps *ops);
int gpu_peers_await(BurstGpu *g, int channel, const BurstPiece *receive, int receives, FlagOps *ops);
int gpu_queue_flag_ops(BurstGpu *g, cudaStream_t stream, FlagOps *ops);

/* ---- matrix products on the compute stream ---- */
/* Column-major: D[m][n] = op(A)[m][k] op(B)[k][n] + beta C; A and B bf16. All members are 64 bits:
 * compared bytewise. */
typedef struct Shape { int64_t transpose_a, transpose_b, m, n, k, lda, ldb, ldc, fp32_out, beta; } Shape;
int gpu_product(BurstGpu *g, const Shape *s, const void *a, const void *b, const void *c, void *d);
/* D = alpha op(A) op(B) + beta C; the shape's beta says whether beta is other than 0. */
int gpu_scaled_product(BurstGpu *g, const Shape *s, float alpha, const void *a, const void *b, float beta,
                       const void *c, void *d);
void gpu_products_free(BurstGpu *g);

/* The sum of squares, into g->sums[SUM_BLOCKS]; x at 16 bytes. weights.cu */
int gpu_squares(BurstGpu *g, int64_t count, const BurstBf16 *x);
/* y += x; blocks of 16 bytes where x and y allow it. */
int gpu_add(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, float *y);
/* y = x, or y + x where add, rounded once. */
int gpu_add_rounded(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, bool add, BurstBf16 *y);
int gpu_widen(BurstGpu *g, cudaStream_t stream, int64_t count, const BurstBf16 *x, float *y);
/* z = x + y, which may be one; 16 bytes at a time. */
int gpu_add_activations(BurstGpu *g, cudaStream_t stream, int64_t count, const BurstBf16 *x,
                        const BurstBf16 *y, BurstBf16 *z);
#endif
