/* gpu.h: shared by the CUDA runtime's files. */
#ifndef BURST_CUDA_GPU_H
#define BURST_CUDA_GPU_H

#include "burst_step_cuda.h"
#include "burst_sizes.h"
#include "cuda/device/host_side.h"
#include "base/plural.h"

#include <cublasLt.h>
#include <cudaTypedefs.h>
#include <nccl.h>

/* Pinned memory between host and device: slots used in turn, each with an event that shows when it is
 * free. */
enum { STAGING_SLOTS = 8 };
static constexpr size_t STAGING_BYTES = 4u << 20; /* a slot; some 80 us of a PCIe link */
typedef struct Staging {
    char *slot[STAGING_SLOTS];
    cudaEvent_t free[STAGING_SLOTS]; /* never recorded: free */
    unsigned next;
} Staging;

/* Blocks of a sum of squares: a constant, so that every device adds in the same order. */
enum { SUM_BLOCKS = 512 };
/* Flags of the peers (peer.cu), after device_bytes in the same allocation, so that one handle shares
 * both. */
static constexpr size_t FLAG_BYTES = 64u << 10;
/* For matrix products; the sums follow it. */
static constexpr size_t WORKSPACE_BYTES = BURST_GPU_OWN_BYTES - FLAG_BYTES -
                                          (SUM_BLOCKS + 32) * sizeof(double);
static_assert(WORKSPACE_BYTES % 256 == 0, "as cudaMalloc aligns");
typedef struct Watch Watch;     /* watch.cu */
typedef struct Product Product; /* a planned matrix product: product.cu */

/* Lanes of marks in the streams of copies, downloads and tensor ranks, of which nothing is recorded. */
static constexpr int LANE_COPIES = -1, LANE_TENSOR = -2, LANE_DOWNLOADS = -3;

/* Steps of opening whose device memory is measured. */
enum { TAKEN_CONTEXT, TAKEN_NCCL, TAKEN_PLAN, TAKEN_OWN, TAKEN_LINKS, GPU_TAKEN };

/* ---- transfers over peer memory ---- */
/* The memory that a message fills at the receiver. Both ends compute it, and the results must be equal. */
/* offset: of the first piece; hash: of all */
typedef struct Landing { uint64_t bytes, offset, hash; } Landing;
/* The most ranks of a host that map each other's memory, including the rank itself: their landings must fit
 * in a message of the host runtime. */
enum { PEERS_MOST = 16 };
/* Another rank of this host; the two have mapped each other's memory. */
typedef struct Peer {
    int rank, local;   /* in the world; on the host */
    char *memory;      /* its device_bytes and flags */
} Peer;
/* Groups of ranks with collectives: those that share the weights; those of them that share a unit that
 * tensor ranks split; those that hold the same shards; tensor ranks; those of them that have the same key
 * heads, if they are some but not all. Without a split unit the second equals the first and is not used. */
enum { GROUP_SHARDS, GROUP_SPLIT, GROUP_REPLICAS, GROUP_TENSOR, GROUP_COPIES, GPU_GROUPS };
typedef struct Members {
    BurstGroup ranks;
    ncclComm_t comm; /* NULL: this rank alone */
    bool peers;      /* all of them have each other's memory, as all agree */
    uint8_t met;     /* collectives used so far; transfer.cu */
} Members;
/* Operations on flags, to be queued as one. */
typedef struct FlagOps { CUstreamBatchMemOpParams at[2 * PEERS_MOST]; unsigned count; } FlagOps;
/* A stream of a plan inside another program: its last mark, and whether anything was queued after it. */
typedef struct Lane { BurstMark last; bool queued; } Lane;
typedef struct Greeting { BurstReq req; int peer; Landing mine, theirs; bool compare; } Greeting;

struct BurstGpu {
    BurstCtx *ctx;
    int rank, world, channels, device;
    /* ranks may share a device; another rank with the same NCCL_HOSTID has this rank's device */
    bool may_share, twice;
    bool overlaps;         /* kernels may begin while the one before them ends (sm_90) */
    uint64_t host;         /* hash of NCCL_HOSTID at the start */
    cudaStream_t compute, weights, copies, downloads, tensor, *channel;
    void *staged;          /* pinned host memory for staged values */
    size_t staged_bytes;
    void *pinned;          /* the host's parameters and moments, if units of them are fetched */
    ncclComm_t *comm;  /* [channels]; NULL: not used */
    Members group[GPU_GROUPS];
    uint8_t *met;      /* [channels + 2][world]: directions used so far; transfer.cu */
    Greeting *greeting; /* [2 * world] */
    int greetings;     /* in flight */
    Peer peer[PEERS_MOST]; /* the next rank of the host first */
    int peers;
    bool all_peers;        /* all ranks of the world have each other's memory, as all agree */
    const Peer **peer_of;  /* [world], NULL: NCCL moves data to that rank */
    PFN_cuStreamBatchMemOp_v11070 flag_ops;
    uint32_t *messages;    /* [channels + 2][PEERS_MOST][sent, received]: counted */
    uint64_t *expected;    /* [channels + 2][PEERS_MOST]: the flag value of a peer's next arrival */
    BurstPiece *pieces;    /* [2 * world]: for gathers */
    char *memory;      /* device_bytes, FLAG_BYTES */
    size_t bytes, used;
    char *workspace;   /* WORKSPACE_BYTES; compute stream only */
    double *sums;      /* [SUM_BLOCKS + 1] on the device; the last is the total */
    /* pinned: kernels that run at least once a layer increment it, so that the watchdog sees progress */
    uint32_t *beat;
    uint32_t beats;    /* increments queued so far */
    Staging staging;
    cublasLtHandle_t lt;
    Product *products; /* a list */
    cudaEvent_t *event; /* of all marks */
    int events;
    /* for a plan inside another program; library/cuda/gpu.cu */
    int64_t place, call; /* marks so far; before this call */
    int marks;           /* of the call; each has an element of `event` */
    Lane *lane;          /* [channels + 1] */
    BurstMark *waits;    /* [to come, done][channels + 1][channels + 1] */
    cudaGraphExec_t graph; /* recorded launches; NULL: none */
    BurstMark order;   /* orders compute and weights, for the optimizer */
    float **tables;    /* device tables of the weights */
    size_t taken[GPU_TAKEN]; /* device memory measured during opening */
    Watch *watch;
    bool watched;      /* parts are traced or shown to a profiler */
    bool broken;       /* a wait failed: the device may never become idle */
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
/* Launches a kernel on the compute stream; few: it begins while the one before it ends, if the device can do
 * that (vec.cuh), which saves a large part of short kernels' time. */
enum { GPU_FEW_TOKENS = 64 };
template <typename... P, typename... A>
static inline int gpu_launch(BurstGpu *g, bool few, void (*kernel)(P...), dim3 grid, int threads,
                             size_t shared, A... arguments)
{
    cudaLaunchAttribute overlapped = {};
    overlapped.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlapped.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = grid;
    launch.blockDim = dim3((unsigned)threads);
    launch.dynamicSmemBytes = shared;
    launch.stream = g->compute;
    launch.attrs = &overlapped;
    launch.numAttrs = few && g->overlaps;
    CUDA_TRY(g, cudaLaunchKernelEx(&launch, kernel, static_cast<P>(arguments)...));
    return BURST_OK;
}
/* Kernels move 16 bytes at a time: width (elements of a row) must be a multiple of 8, and all addresses
 * (or-ed) multiples of 16 bytes. */
int gpu_aligned(BurstGpu *g, const char *kernel, int64_t width, uintptr_t addresses);
/* burst_op_bias_back for rows that are `stride`, whole vectors, apart; padding between rows is
 * read but has no effect. */
int gpu_bias_back_rows(BurstGpu *g, int64_t n, int width, int64_t stride, const BurstBf16 *dy, double by,
                       float *db);
static inline uintptr_t address(const void *p) { return (uintptr_t)p; }

/* ---- waiting ---- */
/* Waits for an event, or with NULL for all streams. */
int gpu_wait(BurstGpu *g, cudaEvent_t event);
int gpu_event(BurstGpu *g, cudaEvent_t *out); /* destroyed when g is closed */

/* ---- watching ---- */
int gpu_memory_now(BurstGpu *g, size_t *used); /* bytes in use on the device, by any process */
int gpu_watch_open(BurstGpu *g);
void gpu_watch_close(BurstGpu *g, bool orderly);
int gpu_lane(const BurstGpu *g, cudaStream_t stream);
/* Sets the bytes of the transfer that is the channel's current part. */
void gpu_part_bytes(BurstGpu *g, int channel, size_t sent, size_t received);
/* Called before and after the compute stream's wait for a mark. cut: the interrupted part. */
int gpu_wait_shown(BurstGpu *g, cudaStream_t stream, const BurstMark *m, int begins, BurstSpan *cut);
/* ---- transfers ---- */
/* The stream of a channel; those of the weights and of tensor ranks follow. */
static inline cudaStream_t gpu_stream(const BurstGpu *g, int channel)
{
    if (channel < g->channels)
        return g->channel[channel];
    return channel == g->channels ? g->weights : g->tensor;
}
/* Communicators of the channels, then of the groups. */
static inline ncclComm_t gpu_communicator(const BurstGpu *g, int i)
{
    return i < g->channels ? g->comm[i] : g->group[i - g->channels].comm;
}
/* Offset of the flags in the allocation. */
static inline size_t gpu_flags_at(const BurstGpu *g) { return (g->bytes + 255) / 256 * 256; }
static inline size_t gpu_piece_bytes(const BurstPiece *p) { return p->width * p->rows; }
int gpu_copy_rows(BurstGpu *g, cudaStream_t stream, const void *from, size_t from_pitch, void *to,
                  size_t to_pitch, const BurstPiece *p);
/* Called after gpu_make_memory: maps the memory of this host's ranks, or reports why it cannot. peer.cu */
/* device.cu. gpu_name_host: sets a separate NCCL_HOSTID for a rank that shares its device, which NCCL
 * requires. */
int gpu_take_device(BurstGpu *g);
int gpu_name_host(BurstGpu *g);
int gpu_peers_open(BurstGpu *g);
void gpu_peers_close(BurstGpu *g);
/* Checks the rates to the next ranks against the topology; rank 0 reports those that are lower.
 * link_check.cu */
int gpu_check_links(BurstGpu *g);
/* The memory that the peer's pieces fill (bytes 0: none); sending: at the peer, from `lands`. BURST_E_PLAN
 * if it is not device memory. */
int gpu_landing(BurstGpu *g, const BurstPiece *p, int count, int peer, bool sending, Landing *out);
/* The ranks that share the unit's weights. transfer.cu */
Members *gpu_unit_members(BurstGpu *g, int unit);
/* gpu_peers_push sends to peers; gpu_peers_await, after what the caller queues between, waits for data from
 * peers. peer_move.cu */
int gpu_peers_push(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                   int receives, FlagOps *ops);
int gpu_peers_await(BurstGpu *g, int channel, const BurstPiece *receive, int receives, FlagOps *ops);
int gpu_queue_flag_ops(BurstGpu *g, cudaStream_t stream, FlagOps *ops);

/* ---- matrix products on the compute stream ---- */
/* Column-major: D[m][n] = op(A)[m][k] op(B)[k][n] + beta C; A and B bf16. All members have 64 bits, since
 * they are compared bytewise. */
typedef struct Shape { int64_t transpose_a, transpose_b, m, n, k, lda, ldb, ldc, fp32_out, beta; } Shape;
int gpu_product(BurstGpu *g, const Shape *s, const void *a, const void *b, const void *c, void *d);
/* D = alpha op(A) op(B) + beta C; the shape's beta says whether beta is not 0. */
int gpu_scaled_product(BurstGpu *g, const Shape *s, float alpha, const void *a, const void *b, float beta,
                       const void *c, void *d);
void gpu_products_free(BurstGpu *g);
/* y [out] = w [out][in], whose rows are `row` elements apart, times x [in], plus add [out] unless it is NULL;
 * y is bf16, or floats. */
typedef struct VectorProduct {
    int in, out;
    int64_t row;
    const BurstBf16 *x, *w, *add;
    BurstBf16 *y;
    float *floats; /* in place of y */
} VectorProduct;
/* Whether kernels have it: else gpu_product has. */
bool gpu_has_vector_product(const VectorProduct *p);
int gpu_vector_product(BurstGpu *g, const VectorProduct *p);

/* The sum of squares, in g->sums[SUM_BLOCKS]; x is 16-byte aligned. weights.cu */
int gpu_squares(BurstGpu *g, int64_t count, const BurstBf16 *x);
/* y += x, in blocks of 16 bytes if x and y are aligned. */
int gpu_add(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, float *y);
/* y = x, or with add y + x, rounded once. */
int gpu_add_rounded(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, bool add, BurstBf16 *y);
int gpu_widen(BurstGpu *g, cudaStream_t stream, int64_t count, const BurstBf16 *x, float *y);
/* z = x + y; z may be x or y. 16 bytes at a time. */
int gpu_add_activations(BurstGpu *g, cudaStream_t stream, int64_t count, const BurstBf16 *x,
                        const BurstBf16 *y, BurstBf16 *z);
#endif
