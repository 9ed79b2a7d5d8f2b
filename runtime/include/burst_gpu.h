/* burst_gpu.h: what an emitted CUDA program calls besides burst_rt.h. Requires CUDA 12 and sm_80, or later.
 *
 * One process per GPU. Host-side control (launch, data, checkpoints, small messages) is in burst_rt.h; this
 * file has device memory, streams, transfers between GPUs and the layer's kernels. Activations and gathered
 * weights are bf16; statistics, accumulators, gradients and master weights are fp32. Arrays are token-major:
 * [n][heads * d], [n][hidden]. Streams: one for computing, one for each channel of the plan (with a
 * communicator of its own), one for weights, one for copies to and from the host's memory. Nothing waits on
 * the host unless its comment says so. Every function returns 0 or a BURST_E_* status with its text in the
 * context. */
#ifndef BURST_GPU_H
#define BURST_GPU_H

#include "burst_plan.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef __nv_bfloat16 BurstBf16;
typedef struct BurstGpu BurstGpu;

/* ---- set-up ---- */
/* Opens the local rank's device. Checks its architecture (>= 80) and its free memory before it allocates
 * anything. Creates the streams and allocates device_bytes by one cudaMalloc. With more than one rank,
 * creates NCCL communicators in the same order on all ranks: one per channel, one or more for weights, and
 * one for the ranks that split layers. Ranks on one host map each other's memory as BURST_TRANSPORT (auto,
 * nccl, peer) says. Reports on stderr if the rate to the next rank is far below the topology's. No device:
 * BURST_E_DEVICE (CUDA errors 35 and 100). */
int burst_gpu_open(BurstCtx *c, int channels, size_t device_bytes, BurstGpu **out);
void burst_gpu_close(BurstGpu *g);
/* device memory, 256-byte aligned, zeroed; NULL if the plan's size is exceeded */
void *burst_gpu_take(BurstGpu *g, size_t bytes);
/* Allocates pinned host memory; call it once. NULL, with an error that names what is available, if it is too
 * little. */
void *burst_gpu_take_host(BurstGpu *g, size_t bytes);
cudaStream_t burst_gpu_compute(BurstGpu *g);
cudaStream_t burst_gpu_channel(BurstGpu *g, int channel);
cudaStream_t burst_gpu_weights(BurstGpu *g);
cudaStream_t burst_gpu_copies(BurstGpu *g);
cudaStream_t burst_gpu_downloads(BurstGpu *g);
cudaStream_t burst_gpu_tensor(BurstGpu *g); /* communication among tensor ranks */
/* waits for all streams, watched for timeouts and NCCL's asynchronous errors; errors name rank and
 * operation */
int burst_gpu_sync(BurstGpu *g);

/* ---- a recorded sequence of launches (CUDA graph), one at a time ---- */
/* From begin to end what is queued on the compute stream is recorded in place of running; only what is the
 * same each time may be. begin: *records is false, and nothing is recorded, if parts are traced or shown.
 * drop: there is none from here on. */
int burst_gpu_graph_begin(BurstGpu *g, bool *records);
int burst_gpu_graph_end(BurstGpu *g);
int burst_gpu_graph_run(BurstGpu *g);
bool burst_gpu_graph_there(const BurstGpu *g);
int burst_gpu_graph_drop(BurstGpu *g);

/* ---- order between streams ---- */
/* A mark records a position in a stream: all that was queued before it. A zeroed mark was never set; waiting
 * for it returns at once. Its event is created when it is first set. */
/* lane: the stream's, BURST_LANE_* */
typedef struct BurstMark { cudaEvent_t event; int64_t set; int lane; } BurstMark;
int burst_gpu_mark(BurstGpu *g, cudaStream_t stream, BurstMark *m);
/* m becomes a copy of `same`, which has just been set in the compute stream */
int burst_gpu_mark_too(BurstGpu *g, const BurstMark *same, BurstMark *m);
/* work queued in `stream` from here on runs after m */
int burst_gpu_after(BurstGpu *g, cudaStream_t stream, const BurstMark *m);

/* The stream runs this part (BURST_P_*; a, b: the numbers in its name; IDLE: nothing) until the next call;
 * for --trace and profilers. Waits of the compute stream interrupt the part. */
int burst_gpu_part(BurstGpu *g, cudaStream_t stream, int part, int a, int b);

/* ---- transfers ---- */
/* All ranks take the same buffers in the same order, so device memory has the same layout on all ranks. A
 * sender therefore names the receiver's buffer by the address of its own copy of it. The first transfer of
 * each pair, channel and direction checks that both ends agree.
 *
 * One buffer of a hop. lands: the receiver's buffer in a send, NULL in a receive. */
typedef struct BurstBuffer { void *data; size_t bytes; void *lands; } BurstBuffer;
enum { BURST_GPU_BUFFERS = 8 }; /* of a hop */
/* On the channel's stream: sends to rank `to` and receives from rank `from` as one NCCL group; either side
 * may have no buffers. */
int burst_gpu_hop(BurstGpu *g, int channel, const BurstBuffer *send, int sends, int to,
                  const BurstBuffer *receive, int receives, int from);
/* One piece of an all-to-all: `rows` rows of `width` bytes, `pitch` bytes apart. lands, lands_pitch: where
 * the receiver puts it (sends only). peer may be this rank: a local copy. */
typedef struct BurstPiece {
    int peer;
    void *data;
    size_t width, rows, pitch;
    void *lands;
    size_t lands_pitch;
} BurstPiece;
/* On the channel's stream. Between two ranks, pieces are sent and received in the given order, and width and
 * rows must agree on both sides. packing: device memory through which NCCL moves pieces that are not
 * contiguous, at least burst_gpu_packing (burst_sizes.h) for each send to and receive from another rank;
 * NULL: NCCL sends a message per row. Copy engines need no packing, but start-up decides which of the two
 * moves a piece, so the plan always reserves it. */
int burst_gpu_exchange(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                       int receives, void *packing, size_t packing_bytes);
/* On the weights' stream, over the ranks that share the unit (burst_unit_group). gather: full[i*elements
 * ...] = member i's shard. reduce: shard = (add: +=) sum over members of full[me*elements ...]; overwrites
 * full. */
int burst_gpu_gather(BurstGpu *g, int unit, const BurstBf16 *shard, int64_t elements, BurstBf16 *full);
/* The same on the compute stream by one kernel, which may be recorded: microseconds for a few kilobytes. All
 * ranks of the unit have each other's memory and a device each, as the first function says, the same on all
 * ranks; `full` is device memory of the plan. */
bool burst_gpu_gathers_one_shot(BurstGpu *g, int unit);
int burst_gpu_gather_one_shot(BurstGpu *g, int unit, const BurstBf16 *shard, int64_t elements,
                              BurstBf16 *full);
/* The gather of a plan with slices: burst_next_slice. */
int burst_gpu_gather_slices(BurstGpu *g, const struct BurstPlan *p, int unit, const BurstBf16 *shard,
                            BurstBf16 *full);
int burst_gpu_reduce(BurstGpu *g, int unit, float *full, int64_t elements, float *shard, bool add);
/* The same sum in fp32, stored as bf16. */
int burst_gpu_reduce_bf16(BurstGpu *g, int unit, float *full, int64_t elements, BurstBf16 *shard, bool add);
/* On the same stream: shard = its sum over the ranks that hold the same shard (burst_replica_group). */
int burst_gpu_all_reduce(BurstGpu *g, float *shard, int64_t elements);
/* Sums the part of a unit's shard that several tensor ranks hold over these ranks. */
int burst_gpu_tensor_sum(BurstGpu *g, int unit, float *shard);
/* The same two for bf16 shards: summed in fp32 in room [elements], rounded once. */
int burst_gpu_all_reduce_bf16(BurstGpu *g, BurstBf16 *shard, int64_t elements, float *room);
int burst_gpu_tensor_sum_bf16(BurstGpu *g, int unit, BurstBf16 *shard, int64_t elements, float *room);
/* On the tensor stream, over the ranks that split layers. gather: all[i*elements ...] = member i's own.
 * scatter: own = add + sum over members of parts[me*elements ...]; add: NULL, own, or as many elements;
 * overwrites parts. Sums are rounded to bf16 once per member. */
int burst_gpu_tensor_gather(BurstGpu *g, int64_t elements, const BurstBf16 *own, BurstBf16 *all);
int burst_gpu_tensor_scatter(BurstGpu *g, int64_t elements, BurstBf16 *parts, const BurstBf16 *add,
                             BurstBf16 *own);
/* The same of floats, without an addend. */
int burst_gpu_tensor_scatter_floats(BurstGpu *g, int64_t elements, float *parts, bool add, float *own);
/* On the same stream: all = the sum of the members' parts, in fp32. */
int burst_gpu_tensor_all_reduce(BurstGpu *g, int64_t elements, const float *part, float *all);

/* On the copy stream: between device memory and memory of burst_gpu_take_host, in either direction. */
int burst_gpu_copy(BurstGpu *g, const void *from, void *to, size_t bytes);
/* device to host, on the download stream */
int burst_gpu_copy_back(BurstGpu *g, const void *from, void *to, size_t bytes);

/* ---- weights: fp32 masters on the device, a host mirror for checkpoints ---- */
typedef struct BurstGpuWeights {
    int units;
    /* [units] -> [shard] on the device; the pointer tables are on the host */
    float **param, **grad, **m, **v;
    BurstBf16 **bf16;                /* [units] -> [shard]: param rounded to bf16, which gathers send */
    /* [units] -> [shard]: gradients kept in bf16; NULL: they are in `grad` */
    BurstBf16 **grad_bf16;
} BurstGpuWeights;
/* Takes the shards of parameters and moments. The program places gradients and rounded parameters before it
 * loads the host's initial or restored ones. */
/* Allocates the tables only, with all pointers NULL. They are freed with the device. */
int burst_gpu_weights_tables(BurstGpu *g, const struct BurstPlan *p, BurstGpuWeights *out);
/* Pins the host's parameters and moments, which are adjacent, so that their copies overlap computing. */
int burst_gpu_pin_weights(BurstGpu *g, const struct BurstPlan *p, const BurstWeights *w);
int burst_gpu_weights_take(BurstGpu *g, const struct BurstPlan *p, BurstGpuWeights *out);
/* host to device, except gradients */
int burst_gpu_weights_load(BurstGpu *g, const struct BurstPlan *p, const BurstWeights *from,
                           BurstGpuWeights *to);
/* the host's parameters, rounded, as all that the device has of the weights */
int burst_gpu_weights_round(BurstGpu *g, const struct BurstPlan *p, const BurstWeights *from,
                            BurstGpuWeights *to);
/* Puts corrections of routers, [layers][experts], into this rank's shards (burst_write_corrections). */
int burst_gpu_write_corrections(BurstGpu *g, const struct BurstPlan *p, const float *corrections,
                                const BurstGpuWeights *to);
/* device to host; waits */
int burst_gpu_weights_save(BurstGpu *g, const struct BurstPlan *p, const BurstGpuWeights *from,
                           BurstWeights *to);

/* ---- on the compute stream, in addition to the operations of burst_step.h ---- */
int burst_gpu_zero(BurstGpu *g, void *data, size_t bytes);
/* x [hidden] = the token's row of a slice of the embedding's rows, `rows` of them from row `first` on; zeros
 * if it is not there */
int burst_gpu_embed_slice(BurstGpu *g, int64_t first, int rows, int hidden, const int32_t *token,
                          const BurstBf16 *slice, BurstBf16 *x);
/* y [width] = the sum of x [rows][width] over rows, in fp32 */
int burst_gpu_sum_rows(BurstGpu *g, int rows, int width, const BurstBf16 *x, BurstBf16 *y);
int64_t burst_gpu_rmsnorm_scratch(int hidden); /* doubles of scratch for the backward of norms */
int burst_gpu_subtract(BurstGpu *g, int64_t count, const float *x, float *y); /* y -= x */
/* y += x */
int burst_gpu_add_floats(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, float *y);
/* The same for the first `count` floats of rows that are `pitch` floats apart in both. */
int burst_gpu_add_rows(BurstGpu *g, cudaStream_t stream, int64_t rows, int64_t count, int64_t pitch,
                       const float *x, float *y);
/* Merges (o, lse), [heads][tokens] rows of d, with (o_in, lse_in), the output for other keys, as
 * burst_attend_merge does. tiles: the tiles of tokens that (o_in, lse_in) covers. first: (o, lse) is
 * uninitialised. */
int burst_gpu_merge_output(BurstGpu *g, int heads, int64_t tokens, BurstTileRanges tiles, int d, bool first,
                           const float *o_in, const float *lse_in, float *o, float *lse);
/* Host to device on the compute stream, through the context's pinned memory. */
int burst_gpu_upload(BurstGpu *g, const void *host, size_t bytes, void *device);
int burst_gpu_download(BurstGpu *g, const void *device, size_t bytes, void *host); /* waits */

#ifdef __cplusplus
}
#endif
#endif
