/* burst_gpu.h: what an emitted CUDA program calls besides burst_rt.h. The CUDA backend; CUDA 12 or later,
 * sm_80 or later.
 *
 * One process a GPU. Host-side control (launch, data, checkpoints, small messages) is burst_rt.h's; this
 * file is about device memory, streams, transfers between GPUs and the layer's kernels. Activations and
 * gathered weights are bf16, statistics, accumulators, gradients and master weights fp32. Arrays are
 * token-major: [n][heads * d], [n][hidden]. Streams: one for computing, one for each channel of the plan
 * (a transfer stream with a communicator of its own), one for weights, one for copies to and from the
 * host's memory. Nothing here waits on the host unless it says so. Every function returns 0 or a BURST_E_*
 * status with its text in the context.
 */
#ifndef BURST_GPU_H
#define BURST_GPU_H

#include "burst_rt.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef __nv_bfloat16 BurstBf16;
typedef struct BurstGpu BurstGpu;

/* ---- set-up ---- */
/* Takes the local rank's device, checks its architecture (>= 80) and free memory before anything is
 * allocated, makes the streams and, where the world has more than one rank, one NCCL communicator for each
 * channel, one or more for weights and one for the ranks that split layers, in the same order on all
 * ranks; one cudaMalloc of device_bytes. Ranks of one host open each other's memory as BURST_TRANSPORT
 * (auto, nccl, peer) says; a rate to the next rank far below the topology's is reported on stderr. No
 * device: BURST_E_DEVICE with a clear text (errors 35 and 100). */
int burst_gpu_open(BurstCtx *c, int channels, size_t device_bytes, BurstGpu **out);
void burst_gpu_close(BurstGpu *g);
/* device memory, 256-byte aligned, zeroed; NULL where the plan counted too little */
void *burst_gpu_take(BurstGpu *g, size_t bytes);
/* Pinned memory of the host, once; NULL with an error that says how much there is where that is too
 * little. */
void *burst_gpu_take_host(BurstGpu *g, size_t bytes);
cudaStream_t burst_gpu_compute(BurstGpu *g);
cudaStream_t burst_gpu_channel(BurstGpu *g, int channel);
cudaStream_t burst_gpu_weights(BurstGpu *g);
cudaStream_t burst_gpu_copies(BurstGpu *g);
cudaStream_t burst_gpu_downloads(BurstGpu *g);
cudaStream_t burst_gpu_tensor(BurstGpu *g); /* of what tensor ranks do among them */
/* waits for all streams, with the watchdog and NCCL's asynchronous errors; names rank and operation */
int burst_gpu_sync(BurstGpu *g);

/* ---- order between streams ---- */
/* A mark is a place in a stream: what was queued there before it. Zeroed memory is a mark that was never
 * set: waiting for it waits for nothing. Its event is made at the first set. */
/* lane: of the stream, BURST_LANE_* */
typedef struct BurstMark { cudaEvent_t event; int64_t set; int lane; } BurstMark;
int burst_gpu_mark(BurstGpu *g, cudaStream_t stream, BurstMark *m);
/* m: the place of `same`, which has just been set in the compute stream */
int burst_gpu_mark_too(BurstGpu *g, const BurstMark *same, BurstMark *m);
/* what follows in stream runs after m */
int burst_gpu_after(BurstGpu *g, cudaStream_t stream, const BurstMark *m);

/* From here on the stream does this part (BURST_P_*, the numbers of its name; IDLE: nothing) until the
 * next call: for --trace and profilers. Waits of the compute stream cut it. */
int burst_gpu_part(BurstGpu *g, cudaStream_t stream, int part, int a, int b);

/* ---- transfers ---- */
/* Device memory is laid out alike on all ranks: they take the same buffers in the same order. So a sender
 * says where its data land at the receiver as the address of the same buffer at itself. The first transfer
 * of each pair, channel and direction checks that both mean the same place.
 *
 * One buffer of a hop. Sends: `lands` is the receiver's buffer. Receives: NULL. */
typedef struct BurstBuffer { void *data; size_t bytes; void *lands; } BurstBuffer;
enum { BURST_GPU_BUFFERS = 8 }; /* of a hop, at most */
/* On the channel's stream: sends to rank `to` and receives from rank `from` as one group; either side may
 * have no buffers. */
int burst_gpu_hop(BurstGpu *g, int channel, const BurstBuffer *send, int sends, int to,
                  const BurstBuffer *receive, int receives, int from);
/* One piece of an all-to-all: `rows` rows of `width` bytes, `pitch` bytes apart. Sends: lands and
 * lands_pitch are where the receiver puts it. peer may be this rank itself: a copy. */
typedef struct BurstPiece {
    int peer;
    void *data;
    size_t width, rows, pitch;
    void *lands;
    size_t lands_pitch;
} BurstPiece;
/* On the channel's stream. Between two ranks, pieces are sent and received in the order given, and width
 * and rows of both sides agree. packing: NULL, or device memory for what NCCL moves of pieces that are not
 * contiguous, at least burst_gpu_packing (burst_sizes.h) of each send and receive of another rank; copy
 * engines need none, but which of them moves a piece is decided at start-up, so the plan always has it.
 * Without it NCCL sends a message for each row. */
int burst_gpu_exchange(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                       int receives, void *packing, size_t packing_bytes);
/* On the weights' stream, over the ranks that share the unit (burst_unit_group): full[i*elements ...] =
 * member i's shard, and shard = (add: +=) sum over members of full[me*elements ...], which is spent. */
int burst_gpu_gather(BurstGpu *g, int unit, const BurstBf16 *shard, int64_t elements, BurstBf16 *full);
int burst_gpu_reduce(BurstGpu *g, int unit, float *full, int64_t elements, float *shard, bool add);
/* The same sum, in fp32, rounded where it is kept. */
int burst_gpu_reduce_bf16(BurstGpu *g, int unit, float *full, int64_t elements, BurstBf16 *shard, bool add);
/* On the same stream: shard = its sum over the ranks that hold the same one (burst_replica_group). */
int burst_gpu_all_reduce(BurstGpu *g, float *shard, int64_t elements);
/* And of a unit's shard, what several tensor ranks have = its sum over these ranks. */
int burst_gpu_tensor_sum(BurstGpu *g, int unit, float *shard);
/* Both of what is kept in bf16: summed in fp32, in room [elements], and rounded once. */
int burst_gpu_all_reduce_bf16(BurstGpu *g, BurstBf16 *shard, int64_t elements, float *room);
int burst_gpu_tensor_sum_bf16(BurstGpu *g, int unit, BurstBf16 *shard, int64_t elements, float *room);
/* On the tensor stream, over the ranks that split layers: all[i*elements ...] = member i's own, and own =
 * add + sum over members of parts[me*elements ...]; add: NULL, own, or as many. Parts are spent. Sums are
 * rounded to bf16, once a member. */
int burst_gpu_tensor_gather(BurstGpu *g, int64_t elements, const BurstBf16 *own, BurstBf16 *all);
int burst_gpu_tensor_scatter(BurstGpu *g, int64_t elements, BurstBf16 *parts, const BurstBf16 *add,
                             BurstBf16 *own);
/* On the same stream: all = the sum of the members' parts, in fp32. */
int burst_gpu_tensor_all_reduce(BurstGpu *g, int64_t elements, const float *part, float *all);

/* On the stream of copies, between the device's memory and burst_gpu_take_host's, either way. */
int burst_gpu_copy(BurstGpu *g, const void *from, void *to, size_t bytes);
/* to it, on the stream of downloads */
int burst_gpu_copy_back(BurstGpu *g, const void *from, void *to, size_t bytes);

/* ---- weights: fp32 masters on the device, a host mirror for checkpoints ---- */
typedef struct BurstGpuWeights {
    int units;
    /* [units] -> [shard] on the device; the pointer tables are on the host */
    float **param, **grad, **m, **v;
    BurstBf16 **bf16;                /* [units] -> [shard]: rounded param, what is gathered */
    /* [units] -> [shard]: gradients that are kept rounded; NULL: they are `grad` */
    BurstBf16 **grad_bf16;
} BurstGpuWeights;
/* Takes the shards of parameters and moments. Where gradients and rounded parameters lie is the program's
 * to say, before it loads the host's initial or restored ones. */
/* The tables alone, all pointers NULL. They are freed with the device. */
int burst_gpu_weights_tables(BurstGpu *g, const struct BurstPlan *p, BurstGpuWeights *out);
/* Pins the host's parameters and moments, which lie one behind the other, so that copies of them run
 * beside computing. */
int burst_gpu_pin_weights(BurstGpu *g, const struct BurstPlan *p, const BurstWeights *w);
int burst_gpu_weights_take(BurstGpu *g, const struct BurstPlan *p, BurstGpuWeights *out);
/* host to device, gradients aside */
int burst_gpu_weights_load(BurstGpu *g, const struct BurstPlan *p, const BurstWeights *from,
                           BurstGpuWeights *to);
/* device to host; waits */
int burst_gpu_weights_save(BurstGpu *g, const struct BurstPlan *p, const BurstGpuWeights *from,
                           BurstWeights *to);

/* ---- on the compute stream, in addition to the operations of burst_step.h ---- */
int burst_gpu_zero(BurstGpu *g, void *data, size_t bytes);
int64_t burst_gpu_rmsnorm_scratch(int hidden); /* doubles that backward of norms takes */
int burst_gpu_subtract(BurstGpu *g, int64_t count, const float *x, float *y); /* y -= x */
/* y += x */
int burst_gpu_add_floats(BurstGpu *g, cudaStream_t stream, int64_t count, const float *x, float *y);
/* The same of the first `count` floats of rows that are `pitch` floats apart in both. */
int burst_gpu_add_rows(BurstGpu *g, cudaStream_t stream, int64_t rows, int64_t count, int64_t pitch,
                       const float *x, float *y);
/* (o, lse), [heads][tokens] rows of d, becomes the output for its keys and those of (o_in, lse_in)
 * together, as burst_attend_merge; of the latter there are these tiles of the tokens. first: (o, lse)
 * holds nothing yet. */
int burst_gpu_merge_output(BurstGpu *g, int heads, int64_t tokens, BurstTileRanges tiles, int d, bool first,
                           const float *o_in, const float *lse_in, float *o, float *lse);
/* Host to device on the compute stream, through the context's pinned memory. */
int burst_gpu_upload(BurstGpu *g, const void *host, size_t bytes, void *device);
int burst_gpu_download(BurstGpu *g, const void *device, size_t bytes, void *host); /* waits */

#ifdef __cplusplus
}
#endif
#endif
