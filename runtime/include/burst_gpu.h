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
/* Clip by the global norm, AdamW, zero gradients, round to bf16; on the compute stream; waits for the
 * norm. */
/* What of it is of all units: clip and norm, for which it waits; then one unit, its parameters rounded; o
 * NULL: they stay as they are. */
int burst_gpu_update_begin(BurstGpu *g, const struct BurstPlan *p, const BurstGpuWeights *w, int64_t step,
                           double *norm, BurstAdamW *o);
int burst_gpu_update_unit(BurstGpu *g, const struct BurstPlan *p, const BurstGpuWeights *w, int unit,
                          const BurstAdamW *o);
int burst_gpu_weights_update(BurstGpu *g, const struct BurstPlan *p, BurstGpuWeights *w, int64_t step,
                             double *norm);

/* The weights' stream goes on, with gathers, when all units are updated. */
int burst_gpu_all_updated(BurstGpu *g);

/* ---- Muon, as burst_muon_... of the host, with updates and matrices in bf16 ---- */
/* On the compute stream; the exchanges, over the ranks that share the weights, on the weights' stream, after
 * what computing was given before and before what it is given next. */
int burst_gpu_muon_momentum(BurstGpu *g, const BurstGpuWeights *w, int unit, const BurstAdamW *o,
                            BurstBf16 *update);
int burst_gpu_muon_to_owners(BurstGpu *g, int unit, BurstBf16 *update, BurstBf16 *matrices);
int burst_gpu_muon_orthogonalize(BurstGpu *g, BurstBf16 *matrices, BurstBf16 *scratch);
int burst_gpu_muon_from_owners(BurstGpu *g, int unit, BurstBf16 *matrices, BurstBf16 *update);
/* parameters, rounded ones too; gradients become 0 */
int burst_gpu_muon_update(BurstGpu *g, const BurstGpuWeights *w, int unit, const BurstAdamW *o,
                          const BurstBf16 *update);

/* ---- the layer, on the compute stream ---- */
/* y[n][out] = x[n][in] W^T (+ add[n][out] where not NULL); W [out][in]. cublasLt, bf16 in and out, fp32
 * accumulation. */
int burst_gpu_linear(BurstGpu *g, int64_t n, int in, int out, const BurstBf16 *x, const BurstBf16 *w,
                     const BurstBf16 *add, BurstBf16 *y);
/* dx[n][in] (+)= dy[n][out] W. */
int burst_gpu_linear_dx(BurstGpu *g, int64_t n, int in, int out, const BurstBf16 *dy, const BurstBf16 *w,
                        BurstBf16 *dx, bool add);
/* dw[out][in] += dy^T x, fp32. */
int burst_gpu_linear_dw(BurstGpu *g, int64_t n, int in, int out, const BurstBf16 *dy, const BurstBf16 *x,
                        float *dw);
/* The same with `in` columns of a matrix whose rows have `row`; add may be y. */
int burst_gpu_linear_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *x,
                             const BurstBf16 *w, const BurstBf16 *add, BurstBf16 *y);
int burst_gpu_linear_dx_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *dy,
                                const BurstBf16 *w, BurstBf16 *dx, bool add);
int burst_gpu_linear_dw_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *dy,
                                const BurstBf16 *x, float *dw);
/* y = x + b, db += the sum of dy's rows; x, y, dy [n][width]. */
int burst_gpu_bias(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const BurstBf16 *b, BurstBf16 *y);
int burst_gpu_bias_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *dy, float *db);
int burst_gpu_rmsnorm(BurstGpu *g, int64_t n, int hidden, const BurstBf16 *x, const BurstBf16 *w, double eps,
                      BurstBf16 *y, float *rstd);
/* dx = (add or 0) + ..., dw += ... */
int burst_gpu_rmsnorm_back(BurstGpu *g, int64_t n, int hidden, const BurstBf16 *x, const BurstBf16 *w,
                           const float *rstd, const BurstBf16 *dy, const BurstBf16 *add, BurstBf16 *dx,
                           float *dw, double *scratch);
/* The same of LayerNorm without its bias. */
int burst_gpu_layernorm(BurstGpu *g, int64_t n, int hidden, const BurstBf16 *x, const BurstBf16 *w,
                        double eps, BurstBf16 *y, float *rstd);
int burst_gpu_layernorm_back(BurstGpu *g, int64_t n, int hidden, const BurstBf16 *x, const BurstBf16 *w,
                             const float *rstd, const BurstBf16 *dy, const BurstBf16 *add, BurstBf16 *dx,
                             float *dw, double *scratch);
/* Of rows of which each of some ranks has `width` elements, as many: burst_rmsnorm_part (burst_rt.h). */
int burst_gpu_squares(BurstGpu *g, int64_t n, int width, int ranks, const BurstBf16 *x, float *part);
int burst_gpu_squares_back(BurstGpu *g, int64_t n, int width, int ranks, const BurstBf16 *x,
                           const float *d_part, const BurstBf16 *add, BurstBf16 *dx);
int burst_gpu_rmsnorm_part(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const float *square,
                           const BurstBf16 *w, double eps, BurstBf16 *y, float *rstd);
int burst_gpu_rmsnorm_part_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const BurstBf16 *w,
                                const float *rstd, const BurstBf16 *dy, const BurstBf16 *add, BurstBf16 *dx,
                                float *d_square, float *dw, double *scratch);
int64_t burst_gpu_rmsnorm_scratch(int hidden); /* doubles */
/* x and y [n][heads*d], which may be one place; angles from global positions (the two halves of a head are
 * the pair). back: fp32 gradients by heads, the first n rows of [heads][all][d], as attention leaves them,
 * rotated back to bf16 [n][heads*d]; rope NULL: only rounded. */
int burst_gpu_rope(BurstGpu *g, int64_t n, int heads, int d, const BurstRope *rope, const int32_t *position,
                   const BurstBf16 *x, BurstBf16 *y);
int burst_gpu_rope_back(BurstGpu *g, int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                        const int32_t *position, const float *dy, BurstBf16 *dx);
/* As burst_join_heads and burst_join_heads_back, of rows by tokens; d_every is summed in fp32 and rounded. */
int burst_gpu_join(BurstGpu *g, int64_t n, int heads, int own, int shared, const BurstBf16 *x,
                   const BurstBf16 *every, BurstBf16 *y);
int burst_gpu_join_back(BurstGpu *g, int64_t n, int heads, int own, int shared, const BurstBf16 *dy,
                        BurstBf16 *dx, BurstBf16 *d_every, bool add);
/* gate and up are the two halves of a row: gu [n][2*ffn]. */
int burst_gpu_swiglu(BurstGpu *g, int64_t n, int ffn, const BurstBf16 *gu, BurstBf16 *a);
int burst_gpu_swiglu_back(BurstGpu *g, int64_t n, int ffn, const BurstBf16 *gu, const BurstBf16 *da,
                          BurstBf16 *dgu);
/* BURST_ACTIVATION_...: with a gate x is [n][2*ffn], without one [n][ffn]; dx may be x. */
int burst_gpu_activate(BurstGpu *g, int kind, int64_t n, int ffn, const BurstBf16 *x, BurstBf16 *y);
int burst_gpu_activate_back(BurstGpu *g, int kind, int64_t n, int ffn, const BurstBf16 *x,
                            const BurstBf16 *dy, BurstBf16 *dx);
/* y = scale x (+ add where not NULL, which may be y); all [n][width]. */
int burst_gpu_scale(BurstGpu *g, int64_t n, int width, double scale, const BurstBf16 *x, const BurstBf16 *add,
                    BurstBf16 *y);
int burst_gpu_embed(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *table,
                    BurstBf16 *x);
int burst_gpu_embed_back(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *dx,
                         float *dtable);
/* delta[h][i] = sum over d of d_o * o; o, d_o [n][heads*d]. */
int burst_gpu_delta(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *o, const BurstBf16 *d_o,
                    float *delta);
int burst_gpu_subtract(BurstGpu *g, int64_t count, const float *x, float *y); /* y -= x */
/* Learned sinks, as burst_sink and burst_sink_back on [n][heads*d]; lse, d_lse [heads][n]. d_o may be
 * d_out. */
int burst_gpu_sink(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *o, const float *lse,
                   const BurstBf16 *sink, BurstBf16 *out);
int burst_gpu_sink_back(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *d_out, const BurstBf16 *o,
                        const float *lse, const BurstBf16 *sink, BurstBf16 *d_o, float *d_lse, float *d_sink);
int burst_gpu_zero(BurstGpu *g, void *data, size_t bytes);
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
/* Fused LM head and loss over tiles of tokens: as burst_loss. loss_sum: one double on the device, added
 * to. */
typedef struct BurstGpuHead {
    const BurstBf16 *w, *bias;
    float *dw, *d_bias;
    double softcap;
} BurstGpuHead;
int64_t burst_gpu_loss_scratch(int64_t tile, int vocab); /* bytes */
int burst_gpu_loss(BurstGpu *g, int64_t n, int hidden, int vocab, int64_t tile, const BurstBf16 *x,
                   const BurstGpuHead *head, const int32_t *label, const float *weight, double scale,
                   double *loss_sum, BurstBf16 *dx, void *scratch);
/* Host to device on the compute stream, through the context's pinned memory. */
int burst_gpu_upload(BurstGpu *g, const void *host, size_t bytes, void *device);
int burst_gpu_download(BurstGpu *g, const void *device, size_t bytes, void *host); /* waits */

#ifdef __cplusplus
}
#endif
#endif
