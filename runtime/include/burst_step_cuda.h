/* burst_step_cuda.h: a step's operations on a device, by the names and parameters of burst_step_host.h.
 *
 * Computing runs on the compute stream in order. A gather or a reduction runs on the weights' stream,
 * after all that computing was given before it, and so do copies to and from the host's memory on theirs;
 * computing waits where it needs what such a stream brought. Whose memory they may still use is the
 * packing's matter. Rotation and SwiGLU's backward work in place; what is by heads on the host is by
 * tokens here, but for fp32 gradients.
 */
#ifndef BURST_STEP_H
#define BURST_STEP_H

#include "burst_gpu.h"

typedef BurstGpu BurstExec;
typedef BurstBf16 BurstAct;
typedef int32_t BurstPosition;
/* where computing was, and the end of what followed */
typedef struct BurstOrder { BurstMark from, here; } BurstOrder;
typedef BurstOrder BurstArrival;
typedef BurstGpuWeights BurstShards;
/* Where the stream of copies is: with what it stages, with what it fetches for two layers, which
 * alternate, and with units, down and up; bytes of this sequence so far, and of units of this step. */
typedef struct BurstCopies {
    BurstOrder staged, fetched[2], down, up, back;
    int64_t staged_bytes, fetched_bytes, down_bytes, up_bytes;
} BurstCopies;

static inline int burst_op_part(BurstExec *e, int part)
{
    return burst_gpu_part(e, burst_gpu_compute(e), part, 0, 0);
}

static inline int burst_op_embed(BurstExec *e, int64_t n, int hidden, const int32_t *token,
                                 const BurstAct *table, BurstAct *x)
{
    return burst_gpu_embed(e, n, hidden, token, table, x);
}

static inline int burst_op_embed_back(BurstExec *e, int64_t n, int hidden, const int32_t *token,
                                      const BurstAct *dx, float *dtable, void *scratch)
{
    (void)scratch;
    return burst_gpu_embed_back(e, n, hidden, token, dx, dtable);
}

static inline int burst_op_rmsnorm(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x,
                                   const BurstAct *w, BurstAct *y, float *rstd)
{
    return burst_gpu_rmsnorm(e, n, hidden, x, w, eps, y, rstd);
}

static inline int burst_op_rmsnorm_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x,
                                        const float *rstd, const BurstAct *dy, const BurstAct *w,
                                        BurstAct *dx, bool add, float *dw, void *scratch)
{
    return burst_gpu_rmsnorm_back(e, n, hidden, x, w, rstd, dy, add ? dx : NULL, dx, dw, (double *)scratch);
}

static inline int burst_op_squares(BurstExec *e, int64_t n, int width, int ranks, const BurstAct *x,
                                   float *part)
{
    return burst_gpu_squares(e, n, width, ranks, x, part);
}

static inline int burst_op_squares_back(BurstExec *e, int64_t n, int width, int ranks, const BurstAct *x,
                                        const float *d_part, BurstAct *dx, bool add)
{
    return burst_gpu_squares_back(e, n, width, ranks, x, d_part, add ? dx : NULL, dx);
}

static inline int burst_op_rmsnorm_part(BurstExec *e, int64_t n, int width, double eps, const BurstAct *x,
                                        const float *square, const BurstAct *w, BurstAct *y, float *rstd)
{
    return burst_gpu_rmsnorm_part(e, n, width, x, square, w, eps, y, rstd);
}

static inline int burst_op_rmsnorm_part_back(BurstExec *e, int64_t n, int width, const BurstAct *x,
                                             const float *rstd, const BurstAct *dy, const BurstAct *w,
                                             BurstAct *dx, bool add, float *d_square, float *dw,
                                             void *scratch)
{
    return burst_gpu_rmsnorm_part_back(e, n, width, x, w, rstd, dy, add ? dx : NULL, dx, d_square, dw,
                                       (double *)scratch);
}

static inline int burst_op_layernorm(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x,
                                     const BurstAct *w, BurstAct *y, float *rstd)
{
    return burst_gpu_layernorm(e, n, hidden, x, w, eps, y, rstd);
}

static inline int burst_op_layernorm_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x,
                                          const float *rstd, const BurstAct *dy, const BurstAct *w,
                                          BurstAct *dx, bool add, float *dw, void *scratch)
{
    return burst_gpu_layernorm_back(e, n, hidden, x, w, rstd, dy, add ? dx : NULL, dx, dw, (double *)scratch);
}

static inline int burst_op_linear(BurstExec *e, int64_t n, int in, int out, int tensors, const BurstAct *x,
                                  const BurstAct *w, const BurstAct *add, BurstAct *y)
{
    return burst_gpu_linear(e, n, in, out * tensors, x, w, add, y);
}

static inline int burst_op_linear_dw(BurstExec *e, int64_t n, int in, int out, int tensors,
                                     const BurstAct *dy, const BurstAct *x, float *dw)
{
    return burst_gpu_linear_dw(e, n, in, out * tensors, dy, x, dw);
}

static inline int burst_op_linear_dx(BurstExec *e, int64_t n, int in, int out, int tensors,
                                     const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add)
{
    return burst_gpu_linear_dx(e, n, in, out * tensors, dy, w, dx, add);
}

static inline int burst_op_linear_columns(BurstExec *e, int64_t n, int in, int out, int row,
                                          const BurstAct *x, const BurstAct *w, const BurstAct *add,
                                          BurstAct *y)
{
    return burst_gpu_linear_columns(e, n, in, out, row, x, w, add, y);
}

static inline int burst_op_linear_dw_columns(BurstExec *e, int64_t n, int in, int out, int row,
                                             const BurstAct *dy, const BurstAct *x, float *dw)
{
    return burst_gpu_linear_dw_columns(e, n, in, out, row, dy, x, dw);
}

static inline int burst_op_linear_dx_columns(BurstExec *e, int64_t n, int in, int out, int row,
                                             const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add)
{
    return burst_gpu_linear_dx_columns(e, n, in, out, row, dy, w, dx, add);
}

static inline int burst_op_bias(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *b,
                                BurstAct *y)
{
    return burst_gpu_bias(e, n, width, x, b, y);
}

static inline int burst_op_bias_back(BurstExec *e, int64_t n, int width, const BurstAct *dy, float *db)
{
    return burst_gpu_bias_back(e, n, width, dy, db);
}

/* Only fp32 gradients are by heads. */
static inline int burst_op_rope_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d,
                                     const BurstRope *rope, const BurstPosition *position, const BurstAct *x,
                                     BurstAct *y)
{
    (void)all;
    return burst_gpu_rope(e, n, heads, d, rope, position, x, y);
}

static inline int burst_op_rope(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                                const BurstPosition *position, const BurstAct *x, BurstAct *y)
{
    return burst_op_rope_rows(e, n, n, heads, d, rope, position, x, y);
}

static inline int burst_op_rope_back_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d,
                                          const BurstRope *rope, const BurstPosition *position,
                                          const float *dy, BurstAct *dx)
{
    return burst_gpu_rope_back(e, n, all, heads, d, rope, position, dy, dx);
}

static inline int burst_op_rope_back(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                                     const BurstPosition *position, const float *dy, BurstAct *dx)
{
    return burst_op_rope_back_rows(e, n, n, heads, d, rope, position, dy, dx);
}

static inline int burst_op_join(BurstExec *e, int64_t n, int heads, int own, int shared, const BurstAct *x,
                                const BurstAct *every, BurstAct *y)
{
    return burst_gpu_join(e, n, heads, own, shared, x, every, y);
}

static inline int burst_op_join_back(BurstExec *e, int64_t n, int heads, int own, int shared,
                                     const BurstAct *dy, BurstAct *dx, BurstAct *d_every, bool add)
{
    return burst_gpu_join_back(e, n, heads, own, shared, dy, dx, d_every, add);
}

static inline int burst_op_to_tokens_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d,
                                          const float *x, BurstAct *y)
{
    return burst_gpu_rope_back(e, n, all, heads, d, NULL, NULL, x, y);
}

static inline int burst_op_to_tokens(BurstExec *e, int64_t n, int heads, int d, const float *x, BurstAct *y)
{
    return burst_op_to_tokens_rows(e, n, n, heads, d, x, y);
}

static inline int burst_op_swiglu(BurstExec *e, int64_t n, int ffn, const BurstAct *gate_up, BurstAct *y)
{
    return burst_gpu_swiglu(e, n, ffn, gate_up, y);
}

static inline int burst_op_swiglu_back(BurstExec *e, int64_t n, int ffn, const BurstAct *gate_up,
                                       const BurstAct *dy, BurstAct *d_gate_up)
{
    return burst_gpu_swiglu_back(e, n, ffn, gate_up, dy, d_gate_up);
}

static inline int burst_op_activate(BurstExec *e, int kind, int64_t n, int ffn, const BurstAct *x,
                                    BurstAct *y)
{
    return burst_gpu_activate(e, kind, n, ffn, x, y);
}

static inline int burst_op_activate_back(BurstExec *e, int kind, int64_t n, int ffn, const BurstAct *x,
                                         const BurstAct *dy, BurstAct *dx)
{
    return burst_gpu_activate_back(e, kind, n, ffn, x, dy, dx);
}

/* add: NULL, or what x, multiplied by the scale, is added to. */
static inline int burst_op_scale(BurstExec *e, int64_t n, int width, double scale, const BurstAct *x,
                                 const BurstAct *add, BurstAct *y)
{
    return burst_gpu_scale(e, n, width, scale, x, add, y);
}

static inline int burst_op_scale_back(BurstExec *e, int64_t n, int width, double scale, const BurstAct *dy,
                                      BurstAct *dx, bool add)
{
    return burst_gpu_scale(e, n, width, scale, dy, add ? dx : NULL, dx);
}

static inline int burst_op_delta(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o,
                                 const BurstAct *d_o, float *delta)
{
    return burst_gpu_delta(e, n, heads, d, o, d_o, delta);
}

static inline int burst_op_delta_lse(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o,
                                     const BurstAct *d_o, const float *d_lse, float *delta)
{
    BURST_TRY(burst_gpu_delta(e, n, heads, d, o, d_o, delta));
    return burst_gpu_subtract(e, n * heads, d_lse, delta);
}

static inline int burst_op_sink(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o,
                                const float *lse, const BurstAct *sink, BurstAct *out)
{
    return burst_gpu_sink(e, n, heads, d, o, lse, sink, out);
}

static inline int burst_op_sink_back(BurstExec *e, int64_t n, int heads, int d, const BurstAct *d_out,
                                     const BurstAct *o, const float *lse, const BurstAct *sink, BurstAct *d_o,
                                     float *d_lse, float *d_sink)
{
    return burst_gpu_sink_back(e, n, heads, d, d_out, o, lse, sink, d_o, d_lse, d_sink);
}

/* The stream of tensor ranks goes on when computing is here. */
static inline int burst_op_tensor_begin(BurstExec *e, BurstOrder *o)
{
    BURST_TRY(burst_gpu_mark(e, burst_gpu_compute(e), &o->from));
    return burst_gpu_after(e, burst_gpu_tensor(e), &o->from);
}

static inline int burst_op_tensor_gather(BurstExec *e, int64_t each, int64_t width, const BurstAct *own,
                                         BurstAct *all, BurstOrder *o)
{
    BURST_TRY(burst_op_tensor_begin(e, o));
    BURST_TRY(burst_gpu_tensor_gather(e, each * width, own, all));
    return burst_gpu_mark(e, burst_gpu_tensor(e), &o->here);
}

static inline int burst_op_tensor_scatter(BurstExec *e, int64_t each, int64_t width, BurstAct *parts,
                                          const BurstAct *add, BurstAct *own, BurstOrder *o)
{
    BURST_TRY(burst_op_tensor_begin(e, o));
    BURST_TRY(burst_gpu_tensor_scatter(e, each * width, parts, add, own));
    return burst_gpu_mark(e, burst_gpu_tensor(e), &o->here);
}

static inline int burst_op_tensor_all_reduce(BurstExec *e, int64_t each, int ranks, const float *part,
                                             float *all, BurstOrder *o)
{
    BURST_TRY(burst_op_tensor_begin(e, o));
    BURST_TRY(burst_gpu_tensor_all_reduce(e, each * ranks, part, all));
    return burst_gpu_mark(e, burst_gpu_tensor(e), &o->here);
}

/* Computing goes on when all that tensor ranks were given to do is done. */
static inline int burst_op_tensor_done(BurstExec *e, BurstOrder *o)
{
    return burst_gpu_after(e, burst_gpu_compute(e), &o->here);
}

/* Of a head with more than a matrix: tensors 2: its bias lies behind it; softcap: of logits, 0: none. */
static inline int burst_op_loss_head(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile,
                                     int tensors, double softcap, const BurstAct *x, const BurstAct *w,
                                     const int32_t *label, const float *weight, double scale, double *loss,
                                     BurstAct *dx, float *dw, void *scratch)
{
    const int64_t matrix = (int64_t)vocab * hidden;
    const bool biased = tensors > 1;
    const BurstGpuHead head = {w, biased ? w + matrix : NULL, dw, biased ? dw + matrix : NULL, softcap};
    return burst_gpu_loss(e, n, hidden, vocab, tile, x, &head, label, weight, scale, loss, dx, scratch);
}

static inline int burst_op_loss(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile,
                                const BurstAct *x, const BurstAct *w, const int32_t *label,
                                const float *weight, double scale, double *loss, BurstAct *dx, float *dw,
                                void *scratch)
{
    return burst_op_loss_head(e, n, hidden, vocab, tile, 1, 0, x, w, label, weight, scale, loss, dx, dw,
                              scratch);
}

static inline int burst_op_zero(BurstExec *e, float *x, int64_t count)
{
    return burst_gpu_zero(e, x, (size_t)count * sizeof *x);
}

/* The weights' stream goes on when computing is here, with this part. */
static inline int burst_op_begin(BurstExec *e, int part, int unit, BurstOrder *o)
{
    BURST_TRY(burst_gpu_mark(e, burst_gpu_compute(e), &o->from));
    BURST_TRY(burst_gpu_after(e, burst_gpu_weights(e), &o->from));
    return burst_gpu_part(e, burst_gpu_weights(e), part, unit, 0);
}

static inline int burst_op_end(BurstExec *e, BurstOrder *o)
{
    BURST_TRY(burst_gpu_part(e, burst_gpu_weights(e), BURST_P_IDLE, 0, 0));
    return burst_gpu_mark(e, burst_gpu_weights(e), &o->here);
}

static inline int burst_op_gather(BurstExec *e, int unit, const BurstAct *shard, int64_t elements,
                                  BurstAct *full, BurstArrival *a)
{
    BURST_TRY(burst_op_begin(e, BURST_P_GATHER, unit, a));
    BURST_TRY(burst_gpu_gather(e, unit, shard, elements, full));
    return burst_op_end(e, a);
}

static inline int burst_op_arrived(BurstExec *e, int unit, BurstArrival *a)
{
    (void)unit;
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    return burst_gpu_after(e, burst_gpu_compute(e), &a->here);
}

static inline int burst_op_reduce(BurstExec *e, int unit, float *full, int64_t elements, float *shard,
                                  bool add, BurstOrder *o)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_reduce(e, unit, full, elements, shard, add));
    return burst_op_end(e, o);
}

static inline int burst_op_reduce_bf16(BurstExec *e, int unit, float *full, int64_t elements, BurstAct *shard,
                                       bool add, BurstOrder *o)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_reduce_bf16(e, unit, full, elements, shard, add));
    return burst_op_end(e, o);
}

static inline int burst_op_all_reduce(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_all_reduce(e, shard, elements));
    return burst_op_end(e, o);
}

static inline int burst_op_tensor_sum(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o)
{
    (void)elements;
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_tensor_sum(e, unit, shard));
    return burst_op_end(e, o);
}

static inline int burst_op_all_reduce_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements,
                                           BurstOrder *o, float *room)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_all_reduce_bf16(e, shard, elements, room));
    return burst_op_end(e, o);
}

static inline int burst_op_tensor_sum_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements,
                                           BurstOrder *o, float *room)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_tensor_sum_bf16(e, unit, shard, elements, room));
    return burst_op_end(e, o);
}

static inline int burst_op_reduced(BurstExec *e, BurstOrder *o)
{
    return burst_gpu_after(e, burst_gpu_compute(e), &o->here);
}

/* The stream of copies goes on when computing is here. */
static inline int burst_op_copy(BurstExec *e, const void *from, void *to, size_t bytes, BurstOrder *o)
{
    BURST_TRY(burst_gpu_mark(e, burst_gpu_compute(e), &o->from));
    BURST_TRY(burst_gpu_after(e, burst_gpu_copies(e), &o->from));
    BURST_TRY(burst_gpu_copy(e, from, to, bytes));
    return burst_gpu_mark(e, burst_gpu_copies(e), &o->here);
}

/* Of a layer, to pinned memory of the host. */
static inline int burst_op_stage(BurstExec *e, int layer, const void *from, void *to, size_t bytes,
                                 BurstCopies *c)
{
    (void)layer;
    c->staged_bytes += (int64_t)bytes;
    return burst_op_copy(e, from, to, bytes, &c->staged);
}

/* Computing goes on when all that was staged is there. */
static inline int burst_op_staged(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->staged.here);
}

static inline int burst_op_fetch(BurstExec *e, int layer, const void *from, void *to, size_t bytes,
                                 BurstCopies *c)
{
    c->fetched_bytes += (int64_t)bytes;
    return burst_op_copy(e, from, to, bytes, &c->fetched[layer % 2]);
}

/* Computing goes on when what was fetched for the layer is there. */
static inline int burst_op_fetched(BurstExec *e, int layer, BurstCopies *c)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->fetched[layer % 2].here);
}

/* A unit's gradients, to pinned memory of the host, after what the weights' stream was given, which
 * reduces them. */
static inline int burst_op_download(BurstExec *e, int unit, const void *from, void *to, size_t bytes,
                                    BurstCopies *c)
{
    (void)unit;
    c->down_bytes += (int64_t)bytes;
    BURST_TRY(burst_gpu_mark(e, burst_gpu_weights(e), &c->down.here));
    BURST_TRY(burst_gpu_after(e, burst_gpu_copies(e), &c->down.here));
    return burst_op_copy(e, from, to, bytes, &c->down);
}

/* Computing goes on when the last download is done. */
static inline int burst_op_downloaded(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->down.here);
}

static inline int burst_op_upload(BurstExec *e, int unit, const void *from, void *to, size_t bytes,
                                  BurstCopies *c)
{
    (void)unit;
    c->up_bytes += (int64_t)bytes;
    return burst_op_copy(e, from, to, bytes, &c->up);
}

/* Computing and gathers go on when all that was uploaded is there. */
static inline int burst_op_uploaded(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_gpu_after(e, burst_gpu_weights(e), &c->up.here));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->up.here);
}

/* Waits until all gradients are on the host: their norm, and what AdamW needs of this step. */
static inline int burst_op_norm(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstWeights *w,
                                int64_t step, double *norm, BurstAdamW *o)
{
    BURST_TRY(burst_gpu_sync(e));
    return burst_update_begin(c, p, w, step, norm, o);
}

/* A unit in the host's memory; o NULL: as it is. to: its parameters, rounded. */
static inline int burst_op_adamw(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int unit,
                                 const BurstAdamW *o, void *to)
{
    burst_update_unit(c, p, w, unit, o, (uint16_t *)to);
    return BURST_OK;
}

/* A unit's parameters or moments, back to pinned memory of the host, on the stream of downloads. */
static inline int burst_op_write_back(BurstExec *e, int unit, const void *from, void *to, size_t bytes,
                                      BurstCopies *c)
{
    (void)unit;
    c->down_bytes += (int64_t)bytes;
    BURST_TRY(burst_gpu_mark(e, burst_gpu_compute(e), &c->back.from));
    BURST_TRY(burst_gpu_after(e, burst_gpu_downloads(e), &c->back.from));
    BURST_TRY(burst_gpu_copy_back(e, from, to, bytes));
    return burst_gpu_mark(e, burst_gpu_downloads(e), &c->back.here);
}

/* Waits until all units are back: checkpoints read them there, and the step has ended. */
static inline int burst_op_all_back(BurstExec *e)
{
    return burst_gpu_sync(e);
}

/* Computing and gathers go on when the last unit is back, so that it was updated. */
static inline int burst_op_written_back(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_gpu_after(e, burst_gpu_weights(e), &c->back.here));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->back.here);
}

/* Computing goes on, with the update, when the unit's parameters and moments are there. */
static inline int burst_op_unit_fetched(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_gpu_after(e, burst_gpu_compute(e), &c->up.here));
    return burst_op_part(e, BURST_P_OPTIMIZER);
}

/* Gradients lie on the device: their norm, and what AdamW needs of this step. Waits for the norm. */
static inline int burst_op_norm_fetched(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstShards *w,
                                        int64_t step, double *norm, BurstAdamW *o)
{
    (void)c;
    return burst_gpu_update_begin(e, p, w, step, norm, o);
}

/* A unit that was fetched, when it is there; o NULL: as it is. to: its parameters, rounded, which lie
 * where w has them. */
static inline int burst_op_adamw_fetched(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstShards *w,
                                         int unit, const BurstAdamW *o, void *to)
{
    (void)c, (void)to;
    return burst_gpu_update_unit(e, p, w, unit, o);
}

/* Muon: of a layer, what momentum adds; whole matrices from their shards; these, orthogonalised; shards from
 * them; and these added to parameters. */
static inline int burst_op_momentum(BurstExec *e, const BurstPlan *p, const BurstShards *w, int unit,
                                    const BurstAdamW *o, BurstAct *update)
{
    (void)p;
    return burst_gpu_muon_momentum(e, w, unit, o, update);
}

static inline int burst_op_to_owners(BurstExec *e, const BurstPlan *p, int unit, BurstAct *update,
                                     BurstAct *matrices)
{
    (void)p;
    return burst_gpu_muon_to_owners(e, unit, update, matrices);
}

static inline int burst_op_orthogonalize(BurstExec *e, const BurstPlan *p, BurstAct *matrices, void *scratch)
{
    (void)p;
    return burst_gpu_muon_orthogonalize(e, matrices, (BurstAct *)scratch);
}

static inline int burst_op_from_owners(BurstExec *e, const BurstPlan *p, int unit, BurstAct *matrices,
                                       BurstAct *update)
{
    (void)p;
    return burst_gpu_muon_from_owners(e, unit, matrices, update);
}

static inline int burst_op_muon(BurstExec *e, const BurstPlan *p, const BurstShards *w, int unit,
                                const BurstAdamW *o, const BurstAct *update)
{
    (void)p;
    return burst_gpu_muon_update(e, w, unit, o, update);
}

/* What Muon leaves of a unit. */
static inline int burst_op_adamw_rest(BurstExec *e, const BurstPlan *p, const BurstShards *w, int unit,
                                      const BurstAdamW *o)
{
    return burst_gpu_update_unit(e, p, w, unit, o);
}

/* Gathers go on when parameters are updated. */
static inline int burst_op_all_updated(BurstExec *e)
{
    return burst_gpu_all_updated(e);
}

static inline int burst_op_update(BurstExec *e, const BurstPlan *p, BurstShards *w, int64_t step,
                                  double *norm)
{
    return burst_gpu_weights_update(e, p, w, step, norm);
}

#endif
