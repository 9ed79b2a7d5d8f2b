/* burst_step_host.h: a step's operations on the host. burst_step_cuda.h has the same names with the same
 * parameters, so that one printed step serves both.
 *
 * Shapes are of burst_rt.h's functions, which these call: [n][width] by tokens, [heads][n][head_dim] by
 * heads. Products of one input by several tensors that follow each other lie one after the other here, and
 * side by side in a row on a device.
 */
#ifndef BURST_STEP_H
#define BURST_STEP_H

#include "burst_rt.h"

#include <string.h>

typedef BurstCtx BurstExec;        /* what runs operations */
typedef float BurstAct;            /* of activations and gathered weights */
typedef int64_t BurstPosition;
typedef BurstGather BurstArrival;  /* of a gathered unit */
typedef BurstWeights BurstShards;
/* between computing and reductions: they run one after the other */
typedef struct BurstOrder { int unused; } BurstOrder;
/* Bytes of this sequence so far; of units, of this step. */
typedef struct BurstCopies { int64_t staged_bytes, fetched_bytes, down_bytes, up_bytes; } BurstCopies;

static inline int burst_op_part(BurstExec *e, int part)
{
    burst_part(e, part, 0, 0);
    return BURST_OK;
}

static inline int burst_op_embed(BurstExec *e, int64_t n, int hidden, const int32_t *token,
                                 const BurstAct *table, BurstAct *x)
{
    (void)e;
    burst_embed(n, hidden, token, table, x);
    return BURST_OK;
}

static inline int burst_op_embed_back(BurstExec *e, int64_t n, int hidden, const int32_t *token,
                                      const BurstAct *dx, float *dtable, void *scratch)
{
    (void)e;
    burst_embed_back(n, hidden, token, dx, dtable, scratch);
    return BURST_OK;
}

static inline int burst_op_rmsnorm(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x,
                                   const BurstAct *w, BurstAct *y, float *rstd)
{
    (void)e;
    burst_rmsnorm(n, hidden, x, w, eps, y, rstd);
    return BURST_OK;
}

static inline int burst_op_rmsnorm_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x,
                                        const float *rstd, const BurstAct *dy, const BurstAct *w,
                                        BurstAct *dx, bool add, float *dw, void *scratch)
{
    (void)e, (void)scratch;
    if (!add)
        memset(dx, 0, (size_t)(n * hidden) * sizeof *dx);
    burst_rmsnorm_back(n, hidden, x, w, rstd, dy, dx, dw);
    return BURST_OK;
}

/* Of rows that tensor ranks share: burst_rmsnorm_part. */
static inline int burst_op_squares(BurstExec *e, int64_t n, int width, int ranks, const BurstAct *x,
                                   float *part)
{
    (void)e;
    burst_squares(n, width, ranks, x, part);
    return BURST_OK;
}

static inline int burst_op_squares_back(BurstExec *e, int64_t n, int width, int ranks, const BurstAct *x,
                                        const float *d_part, BurstAct *dx, bool add)
{
    (void)e;
    if (!add)
        memset(dx, 0, (size_t)(n * width) * sizeof *dx);
    burst_squares_back(n, width, ranks, x, d_part, dx);
    return BURST_OK;
}

static inline int burst_op_rmsnorm_part(BurstExec *e, int64_t n, int width, double eps, const BurstAct *x,
                                        const float *square, const BurstAct *w, BurstAct *y, float *rstd)
{
    (void)e;
    burst_rmsnorm_part(n, width, x, square, w, eps, y, rstd);
    return BURST_OK;
}

static inline int burst_op_rmsnorm_part_back(BurstExec *e, int64_t n, int width, const BurstAct *x,
                                             const float *rstd, const BurstAct *dy, const BurstAct *w,
                                             BurstAct *dx, bool add, float *d_square, float *dw,
                                             void *scratch)
{
    (void)e, (void)scratch;
    if (!add)
        memset(dx, 0, (size_t)(n * width) * sizeof *dx);
    burst_rmsnorm_part_back(n, width, x, w, rstd, dy, dx, d_square, dw);
    return BURST_OK;
}

static inline int burst_op_layernorm(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x,
                                     const BurstAct *w, BurstAct *y, float *rstd)
{
    (void)e;
    burst_layernorm(n, hidden, x, w, eps, y, rstd);
    return BURST_OK;
}

static inline int burst_op_layernorm_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x,
                                          const float *rstd, const BurstAct *dy, const BurstAct *w,
                                          BurstAct *dx, bool add, float *dw, void *scratch)
{
    (void)e, (void)scratch;
    if (!add)
        memset(dx, 0, (size_t)(n * hidden) * sizeof *dx);
    burst_layernorm_back(n, hidden, x, w, rstd, dy, dx, dw);
    return BURST_OK;
}

/* add: NULL, or what the product is added to. */
static inline int burst_op_linear(BurstExec *e, int64_t n, int in, int out, int tensors, const BurstAct *x,
                                  const BurstAct *w, const BurstAct *add, BurstAct *y)
{
    (void)e;
    if (add)
        memcpy(y, add, (size_t)(n * out * tensors) * sizeof *y);
    for (int64_t t = 0; t < tensors; t++)
        burst_linear(n, in, out, x, w + t * in * out, y + t * n * out, add != NULL);
    return BURST_OK;
}

static inline int burst_op_linear_dw(BurstExec *e, int64_t n, int in, int out, int tensors,
                                     const BurstAct *dy, const BurstAct *x, float *dw)
{
    (void)e;
    for (int64_t t = 0; t < tensors; t++)
        burst_linear_dw(n, in, out, dy + t * n * out, x, dw + t * in * out);
    return BURST_OK;
}

static inline int burst_op_linear_dx(BurstExec *e, int64_t n, int in, int out, int tensors,
                                     const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add)
{
    (void)e;
    for (int64_t t = 0; t < tensors; t++)
        burst_linear_dx(n, in, out, dy + t * n * out, w + t * in * out, dx, add || t > 0);
    return BURST_OK;
}

/* The same with `in` columns of a matrix whose rows have `row`; add: NULL, y, or of its shape. */
static inline int burst_op_linear_columns(BurstExec *e, int64_t n, int in, int out, int row,
                                          const BurstAct *x, const BurstAct *w, const BurstAct *add,
                                          BurstAct *y)
{
    (void)e;
    if (add && add != y)
        memcpy(y, add, (size_t)(n * out) * sizeof *y);
    burst_linear_columns(n, in, out, row, x, w, y, add != NULL);
    return BURST_OK;
}

static inline int burst_op_linear_dw_columns(BurstExec *e, int64_t n, int in, int out, int row,
                                             const BurstAct *dy, const BurstAct *x, float *dw)
{
    (void)e;
    burst_linear_dw_columns(n, in, out, row, dy, x, dw);
    return BURST_OK;
}

static inline int burst_op_linear_dx_columns(BurstExec *e, int64_t n, int in, int out, int row,
                                             const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add)
{
    (void)e;
    burst_linear_dx_columns(n, in, out, row, dy, w, dx, add);
    return BURST_OK;
}

static inline int burst_op_bias(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *b,
                                BurstAct *y)
{
    (void)e;
    burst_bias(n, width, x, b, y);
    return BURST_OK;
}

static inline int burst_op_bias_back(BurstExec *e, int64_t n, int width, const BurstAct *dy, float *db)
{
    (void)e;
    burst_bias_back(n, width, dy, db);
    return BURST_OK;
}

/* rows: of the first n tokens of `all` that lie by heads. */
static inline int burst_op_rope_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d,
                                     const BurstRope *rope, const BurstPosition *position, const BurstAct *x,
                                     BurstAct *y)
{
    (void)e;
    burst_rope_to_heads(n, all, heads, d, rope, position, x, y);
    return BURST_OK;
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
    (void)e;
    burst_rope_back(n, all, heads, d, rope, position, dy, dx);
    return BURST_OK;
}

static inline int burst_op_rope_back(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                                     const BurstPosition *position, const float *dy, BurstAct *dx)
{
    return burst_op_rope_back_rows(e, n, n, heads, d, rope, position, dy, dx);
}

static inline int burst_op_join(BurstExec *e, int64_t n, int heads, int own, int shared, const BurstAct *x,
                                const BurstAct *every, BurstAct *y)
{
    (void)e;
    burst_join_heads(n, heads, own, shared, x, every, y);
    return BURST_OK;
}

static inline int burst_op_join_back(BurstExec *e, int64_t n, int heads, int own, int shared,
                                     const BurstAct *dy, BurstAct *dx, BurstAct *d_every, bool add)
{
    (void)e;
    burst_join_heads_back(n, heads, own, shared, dy, dx, d_every, add);
    return BURST_OK;
}

static inline int burst_op_to_heads_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d,
                                         const BurstAct *x, BurstAct *y)
{
    (void)e;
    burst_tokens_to_heads(n, all, heads, d, x, y);
    return BURST_OK;
}

static inline int burst_op_to_heads(BurstExec *e, int64_t n, int heads, int d, const BurstAct *x, BurstAct *y)
{
    return burst_op_to_heads_rows(e, n, n, heads, d, x, y);
}

static inline int burst_op_to_tokens_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d,
                                          const float *x, BurstAct *y)
{
    (void)e;
    burst_heads_to_tokens(n, all, heads, d, x, y);
    return BURST_OK;
}

static inline int burst_op_to_tokens(BurstExec *e, int64_t n, int heads, int d, const float *x, BurstAct *y)
{
    return burst_op_to_tokens_rows(e, n, n, heads, d, x, y);
}

static inline int burst_op_swiglu(BurstExec *e, int64_t n, int ffn, const BurstAct *gate_up, BurstAct *y)
{
    (void)e;
    burst_swiglu(n * ffn, gate_up, gate_up + n * ffn, y);
    return BURST_OK;
}

/* d_gate_up may be gate_up. */
static inline int burst_op_swiglu_back(BurstExec *e, int64_t n, int ffn, const BurstAct *gate_up,
                                       const BurstAct *dy, BurstAct *d_gate_up)
{
    (void)e;
    burst_swiglu_back(n * ffn, gate_up, gate_up + n * ffn, dy, d_gate_up, d_gate_up + n * ffn);
    return BURST_OK;
}

/* Beside swiglu: up, where there is a gate, lies behind it. */
static inline int burst_op_activate(BurstExec *e, int kind, int64_t n, int ffn, const BurstAct *x,
                                    BurstAct *y)
{
    (void)e;
    burst_activate(kind, n * ffn, x, kind <= BURST_ACTIVATION_GEGLU_TANH ? x + n * ffn : NULL, y);
    return BURST_OK;
}

/* dx may be x. */
static inline int burst_op_activate_back(BurstExec *e, int kind, int64_t n, int ffn, const BurstAct *x,
                                         const BurstAct *dy, BurstAct *dx)
{
    const BurstAct *up = kind <= BURST_ACTIVATION_GEGLU_TANH ? x + n * ffn : NULL;
    (void)e;
    burst_activate_back(kind, n * ffn, x, up, dy, dx, dx + n * ffn);
    return BURST_OK;
}

/* add: NULL, or what x, multiplied by the scale, is added to. */
static inline int burst_op_scale(BurstExec *e, int64_t n, int width, double scale, const BurstAct *x,
                                 const BurstAct *add, BurstAct *y)
{
    (void)e;
    burst_scale(n * width, scale, x, add, y);
    return BURST_OK;
}

static inline int burst_op_scale_back(BurstExec *e, int64_t n, int width, double scale, const BurstAct *dy,
                                      BurstAct *dx, bool add)
{
    return burst_op_scale(e, n, width, scale, dy, add ? dx : NULL, dx);
}

static inline int burst_op_delta(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o,
                                 const BurstAct *d_o, float *delta)
{
    (void)e;
    burst_attend_delta(heads * n, d, o, d_o, delta);
    return BURST_OK;
}

/* d_lse: of a lse that is read beside o. */
static inline int burst_op_delta_lse(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o,
                                     const BurstAct *d_o, const float *d_lse, float *delta)
{
    BURST_TRY(burst_op_delta(e, n, heads, d, o, d_o, delta));
    for (int64_t i = 0; i < heads * n; i++)
        delta[i] -= d_lse[i];
    return BURST_OK;
}

static inline int burst_op_sink(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o,
                                const float *lse, const BurstAct *sink, BurstAct *out)
{
    (void)e;
    burst_sink(n, heads, d, o, lse, sink, out);
    return BURST_OK;
}

/* d_o may be d_out. */
static inline int burst_op_sink_back(BurstExec *e, int64_t n, int heads, int d, const BurstAct *d_out,
                                     const BurstAct *o, const float *lse, const BurstAct *sink, BurstAct *d_o,
                                     float *d_lse, float *d_sink)
{
    (void)e;
    burst_sink_back(n, heads, d, d_out, o, lse, sink, d_o, d_lse, d_sink);
    return BURST_OK;
}

/* all [tensor ranks * each][width] of own [each][width], of which the last may have fewer: what lies
 * behind them means nothing. */
static inline int burst_op_tensor_gather(BurstExec *e, int64_t each, int64_t width, const BurstAct *own,
                                         BurstAct *all, BurstOrder *o)
{
    (void)o;
    burst_doing(e, "gather of tokens of tensor ranks");
    return burst_all_gather(e, burst_tensor_group(e), own, each * width, all);
}

/* own = add + the sum of the ranks' rows of parts; add: NULL, own, or of its shape. Parts are spent. */
static inline int burst_op_tensor_scatter(BurstExec *e, int64_t each, int64_t width, BurstAct *parts,
                                          const BurstAct *add, BurstAct *own, BurstOrder *o)
{
    (void)o;
    burst_doing(e, "sum of parts of tensor ranks");
    if (!add)
        memset(own, 0, (size_t)(each * width) * sizeof *own);
    else if (add != own)
        memcpy(own, add, (size_t)(each * width) * sizeof *own);
    return burst_reduce_scatter(e, burst_tensor_group(e), parts, each * width, own);
}

/* all [ranks * each] = the sum of the ranks' parts, whose rows are as burst_op_tensor_gather has them. */
static inline int burst_op_tensor_all_reduce(BurstExec *e, int64_t each, int ranks, const float *part,
                                             float *all, BurstOrder *o)
{
    (void)o;
    burst_doing(e, "sum of parts of tensor ranks");
    memcpy(all, part, (size_t)(each * ranks) * sizeof *all);
    return burst_sum_over(e, burst_tensor_group(e), all, each * ranks);
}

static inline int burst_op_tensor_done(BurstExec *e, BurstOrder *o)
{
    (void)e, (void)o;
    return BURST_OK;
}

/* Of a head with more than a matrix: tensors 2: its bias lies behind it; softcap: of logits, 0: none. */
static inline int burst_op_loss_head(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile,
                                     int tensors, double softcap, const BurstAct *x, const BurstAct *w,
                                     const int32_t *label, const float *weight, double scale, double *loss,
                                     BurstAct *dx, float *dw, void *scratch)
{
    const int64_t matrix = (int64_t)vocab * hidden;
    const bool biased = tensors > 1;
    const BurstHead head = {w, biased ? w + matrix : NULL, dw, biased ? dw + matrix : NULL, softcap};
    (void)e;
    burst_loss(n, hidden, vocab, tile, x, &head, label, weight, scale, loss, dx, scratch);
    return BURST_OK;
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
    (void)e;
    memset(x, 0, (size_t)count * sizeof *x);
    return BURST_OK;
}

/* Starts; the unit is in full from burst_op_arrived on. */
static inline int burst_op_gather(BurstExec *e, int unit, const BurstAct *shard, int64_t elements,
                                  BurstAct *full, BurstArrival *a)
{
    return burst_gather_start(e, burst_unit_group(e, unit), shard, elements, full, a);
}

static inline int burst_op_arrived(BurstExec *e, int unit, BurstArrival *a)
{
    burst_doing(e, "gather of weights");
    burst_part(e, BURST_P_GATHER, unit, 0);
    BURST_TRY(burst_gather_wait(e, a));
    burst_part(e, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

/* shard (+)= this rank's part of the sum of full over the ranks that share the weights; it is spent. */
static inline int burst_op_reduce(BurstExec *e, int unit, float *full, int64_t elements, float *shard,
                                  bool add, BurstOrder *o)
{
    (void)o;
    burst_doing(e, "reduction of gradients");
    burst_part(e, BURST_P_REDUCE, unit, 0);
    if (!add)
        memset(shard, 0, (size_t)elements * sizeof *shard);
    BURST_TRY(burst_reduce_scatter(e, burst_unit_group(e, unit), full, elements, shard));
    burst_part(e, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

/* The same, with what a device keeps in bf16: a sum in fp32, rounded where it is kept. */
static inline int burst_op_reduce_bf16(BurstExec *e, int unit, float *full, int64_t elements, BurstAct *shard,
                                       bool add, BurstOrder *o)
{
    BURST_TRY(burst_op_reduce(e, unit, full, elements, shard, add, o));
    burst_keep_bf16(elements, shard);
    return BURST_OK;
}

/* shard = its sum over the ranks that hold the same one. */
static inline int burst_op_all_reduce(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o)
{
    (void)o;
    burst_doing(e, "sum of gradients over replicas");
    burst_part(e, BURST_P_REDUCE, unit, 0);
    BURST_TRY(burst_sum_over(e, burst_replica_group(e), shard, elements));
    burst_part(e, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

/* Of the shard, what several tensor ranks have: its sum over these ranks. */
static inline int burst_op_tensor_sum(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o)
{
    (void)o, (void)elements;
    burst_doing(e, "sum of gradients over tensor ranks");
    burst_part(e, BURST_P_REDUCE, unit, 0);
    BURST_TRY(burst_sum_copies(e, unit, shard));
    burst_part(e, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

/* The same two of what is kept rounded: sums in fp32, on a device in room [elements]. */
static inline int burst_op_all_reduce_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements,
                                           BurstOrder *o, float *room)
{
    (void)room;
    BURST_TRY(burst_op_all_reduce(e, unit, shard, elements, o));
    burst_keep_bf16(elements, shard);
    return BURST_OK;
}

static inline int burst_op_tensor_sum_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements,
                                           BurstOrder *o, float *room)
{
    (void)room;
    BURST_TRY(burst_op_tensor_sum(e, unit, shard, elements, o));
    burst_keep_bf16(elements, shard);
    return BURST_OK;
}

/* The last reduction is done. */
static inline int burst_op_reduced(BurstExec *e, BurstOrder *o)
{
    (void)e, (void)o;
    return BURST_OK;
}

/* Copied at once, in the rank's own time; counted. */
static inline int burst_copy_now(BurstExec *e, const void *from, void *to, size_t bytes, int64_t *counted)
{
    burst_part(e, BURST_P_WAIT_COPY, 0, 0);
    memcpy(to, from, bytes);
    burst_part(e, BURST_P_IDLE, 0, 0);
    *counted += (int64_t)bytes;
    return BURST_OK;
}

/* Of a layer, to the arena that stands for the host's memory. */
static inline int burst_op_stage(BurstExec *e, int layer, const void *from, void *to, size_t bytes,
                                 BurstCopies *c)
{
    (void)layer;
    return burst_copy_now(e, from, to, bytes, &c->staged_bytes);
}

/* All that was staged is there. */
static inline int burst_op_staged(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

static inline int burst_op_fetch(BurstExec *e, int layer, const void *from, void *to, size_t bytes,
                                 BurstCopies *c)
{
    (void)layer;
    return burst_copy_now(e, from, to, bytes, &c->fetched_bytes);
}

/* What was fetched for the layer is there. */
static inline int burst_op_fetched(BurstExec *e, int layer, BurstCopies *c)
{
    (void)e, (void)layer, (void)c;
    return BURST_OK;
}

/* A unit's gradients, to the arena that stands for the host's memory. */
static inline int burst_op_download(BurstExec *e, int unit, const void *from, void *to, size_t bytes,
                                    BurstCopies *c)
{
    (void)unit;
    return burst_copy_now(e, from, to, bytes, &c->down_bytes);
}

/* The last download is done. */
static inline int burst_op_downloaded(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

static inline int burst_op_upload(BurstExec *e, int unit, const void *from, void *to, size_t bytes,
                                  BurstCopies *c)
{
    (void)unit;
    return burst_copy_now(e, from, to, bytes, &c->up_bytes);
}

/* All that was uploaded is there. */
static inline int burst_op_uploaded(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

/* All gradients are on the host: their norm, and what AdamW needs of this step. */
static inline int burst_op_norm(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstWeights *w,
                                int64_t step, double *norm, BurstAdamW *o)
{
    (void)e;
    return burst_update_begin(c, p, w, step, norm, o);
}

/* A unit in the host's memory; o NULL: as it is. to: its parameters as products read them. */
static inline int burst_op_adamw(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int unit,
                                 const BurstAdamW *o, void *to)
{
    burst_update_unit(c, p, w, unit, o, NULL);
    memcpy(to, w->param[unit], (size_t)burst_unit(p, unit)->shard * sizeof(float));
    return BURST_OK;
}

/* A unit's parameters or moments, back to the arena that stands for the host's memory. */
static inline int burst_op_write_back(BurstExec *e, int unit, const void *from, void *to, size_t bytes,
                                      BurstCopies *c)
{
    (void)unit;
    return burst_copy_now(e, from, to, bytes, &c->down_bytes);
}

static inline int burst_op_all_back(BurstExec *e)
{
    (void)e;
    return BURST_OK;
}

/* The last unit is back. */
static inline int burst_op_written_back(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

/* The unit's parameters and moments are there. */
static inline int burst_op_unit_fetched(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

/* Gradients lie beside what is computed with: their norm, and what AdamW needs of this step. */
static inline int burst_op_norm_fetched(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstShards *w,
                                        int64_t step, double *norm, BurstAdamW *o)
{
    (void)e;
    return burst_update_begin(c, p, w, step, norm, o);
}

/* A unit that was fetched; o NULL: as it is. to: its parameters as products read them. */
static inline int burst_op_adamw_fetched(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstShards *w,
                                         int unit, const BurstAdamW *o, void *to)
{
    (void)e;
    return burst_op_adamw(c, p, w, unit, o, to);
}

/* Muon: of a layer, what momentum adds; whole matrices from their shards; these, orthogonalised; shards from
 * them; and these added to parameters. */
static inline int burst_op_momentum(BurstExec *e, const BurstPlan *p, const BurstShards *w, int unit,
                                    const BurstAdamW *o, BurstAct *update)
{
    (void)p;
    return burst_muon_momentum(e, w, unit, o, update);
}

static inline int burst_op_to_owners(BurstExec *e, const BurstPlan *p, int unit, BurstAct *update,
                                     BurstAct *matrices)
{
    (void)p;
    return burst_muon_to_owners(e, unit, update, matrices);
}

static inline int burst_op_orthogonalize(BurstExec *e, const BurstPlan *p, BurstAct *matrices, void *scratch)
{
    (void)p;
    return burst_muon_orthogonalize(e, matrices, (float *)scratch);
}

static inline int burst_op_from_owners(BurstExec *e, const BurstPlan *p, int unit, BurstAct *matrices,
                                       BurstAct *update)
{
    (void)p;
    return burst_muon_from_owners(e, unit, matrices, update);
}

static inline int burst_op_muon(BurstExec *e, const BurstPlan *p, const BurstShards *w, int unit,
                                const BurstAdamW *o, BurstAct *update)
{
    (void)p;
    return burst_muon_update(e, w, unit, o, update);
}

/* What Muon leaves of a unit. */
static inline int burst_op_adamw_rest(BurstExec *e, const BurstPlan *p, const BurstShards *w, int unit,
                                      const BurstAdamW *o)
{
    burst_update_unit(e, p, w, unit, o, NULL);
    return BURST_OK;
}

/* Gathers go on when parameters are updated. */
static inline int burst_op_all_updated(BurstExec *e)
{
    (void)e;
    return BURST_OK;
}

static inline int burst_op_update(BurstExec *e, const BurstPlan *p, BurstShards *w, int64_t step,
                                  double *norm)
{
    return burst_weights_update(e, p, w, step, norm);
}

#endif
