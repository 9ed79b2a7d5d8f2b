/* burst_step_cuda.h: a step's operations on a device (burst_step.h). Those that order streams are inline;
 * the runtime has the others.
 *
 * Computing runs on the compute stream in order. Gathers and reductions run on the weights' stream, and
 * copies to and from the host's memory on theirs, after everything queued for computing before them.
 * Computing waits where it needs their results. The packing keeps their memory from being reused too early.
 * Rotation and SwiGLU's backward work in place. */
#ifndef BURST_STEP_CUDA_H
#define BURST_STEP_CUDA_H

#include "burst_gpu.h"

#define BURST_STEP_TYPES

typedef BurstGpu BurstExec;
typedef BurstBf16 BurstAct;
typedef int32_t BurstPosition;
/* where computing was when the operation was queued, and the operation's end */
typedef struct BurstOrder {
    BurstMark from, here;
} BurstOrder;
typedef BurstOrder BurstArrival;
typedef BurstGpuWeights BurstShards;
/* Positions of the copy streams: staging, fetches for two alternating layers, units downloaded and uploaded;
 * bytes so far in this sequence, and for units in this step. */
typedef struct BurstCopies {
    BurstOrder staged, fetched[2], down, up, back;
    int64_t staged_bytes, fetched_bytes, down_bytes, up_bytes;
} BurstCopies;

#include "burst_step.h"

/* Biases of logits, which are fp32. */
int burst_op_bias(BurstExec *e, int64_t n, int width, const float *x, const BurstAct *b, float *y);
int burst_op_bias_back(BurstExec *e, int64_t n, int width, const float *dy, float *db);

inline int burst_op_part(BurstExec *e, int part)
{
    return burst_gpu_part(e, burst_gpu_compute(e), part, 0, 0);
}

/* The tensor stream waits for computing. */
static inline int burst_op_tensor_begin(BurstExec *e, BurstOrder *o)
{
    BURST_TRY(burst_gpu_mark(e, burst_gpu_compute(e), &o->from));
    return burst_gpu_after(e, burst_gpu_tensor(e), &o->from);
}

inline int burst_op_tensor_gather(BurstExec *e, int64_t each, int64_t width, const BurstAct *own,
                                  BurstAct *all, BurstOrder *o)
{
    BURST_TRY(burst_op_tensor_begin(e, o));
    BURST_TRY(burst_gpu_tensor_gather(e, each * width, own, all));
    return burst_gpu_mark(e, burst_gpu_tensor(e), &o->here);
}

inline int burst_op_tensor_scatter(BurstExec *e, int64_t each, int64_t width, BurstAct *parts,
                                   const BurstAct *add, BurstAct *own, BurstOrder *o)
{
    BURST_TRY(burst_op_tensor_begin(e, o));
    BURST_TRY(burst_gpu_tensor_scatter(e, each * width, parts, add, own));
    return burst_gpu_mark(e, burst_gpu_tensor(e), &o->here);
}

inline int burst_op_tensor_gather_words(BurstExec *e, int64_t each, int64_t width, const void *own, void *all,
                                        BurstOrder *o)
{
    return burst_op_tensor_gather(e, each, 2 * width, (const BurstAct *)own, (BurstAct *)all, o);
}

inline int burst_op_tensor_scatter_floats(BurstExec *e, int64_t each, int64_t width, float *parts,
                                          const float *add, float *own, BurstOrder *o)
{
    BURST_TRY(burst_op_tensor_begin(e, o));
    BURST_TRY(burst_gpu_tensor_scatter_floats(e, each * width, parts, add != NULL, own));
    return burst_gpu_mark(e, burst_gpu_tensor(e), &o->here);
}

inline int burst_op_tensor_all_reduce(BurstExec *e, int64_t each, int ranks, const float *part, float *all,
                                      BurstOrder *o)
{
    BURST_TRY(burst_op_tensor_begin(e, o));
    BURST_TRY(burst_gpu_tensor_all_reduce(e, each * ranks, part, all));
    return burst_gpu_mark(e, burst_gpu_tensor(e), &o->here);
}

/* Computing waits for all work queued for tensor ranks. */
inline int burst_op_tensor_done(BurstExec *e, BurstOrder *o)
{
    return burst_gpu_after(e, burst_gpu_compute(e), &o->here);
}

/* The weights' stream waits for computing, then runs this part. */
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

inline int burst_op_gather(BurstExec *e, int unit, const BurstAct *shard, int64_t elements, BurstAct *full,
                           BurstArrival *a)
{
    BURST_TRY(burst_op_begin(e, BURST_P_GATHER, unit, a));
    BURST_TRY(burst_gpu_gather(e, unit, shard, elements, full));
    return burst_op_end(e, a);
}

inline int burst_op_gather_slices(BurstExec *e, const BurstPlan *p, int unit, const BurstAct *shard,
                                  BurstAct *full, BurstArrival *a)
{
    BURST_TRY(burst_op_begin(e, BURST_P_GATHER, unit, a));
    BURST_TRY(burst_gpu_gather_slices(e, p, unit, shard, full));
    return burst_op_end(e, a);
}

inline int burst_op_arrived(BurstExec *e, int unit, BurstArrival *a)
{
    (void)unit;
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    return burst_gpu_after(e, burst_gpu_compute(e), &a->here);
}

inline int burst_op_reduce(BurstExec *e, int unit, float *full, int64_t elements, float *shard, bool add,
                           BurstOrder *o)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_reduce(e, unit, full, elements, shard, add));
    return burst_op_end(e, o);
}

inline int burst_op_reduce_bf16(BurstExec *e, int unit, float *full, int64_t elements, BurstAct *shard,
                                bool add, BurstOrder *o)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_reduce_bf16(e, unit, full, elements, shard, add));
    return burst_op_end(e, o);
}

inline int burst_op_all_reduce(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_all_reduce(e, shard, elements));
    return burst_op_end(e, o);
}

inline int burst_op_tensor_sum(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o)
{
    (void)elements;
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_tensor_sum(e, unit, shard));
    return burst_op_end(e, o);
}

inline int burst_op_all_reduce_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements, BurstOrder *o,
                                    float *room)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_all_reduce_bf16(e, shard, elements, room));
    return burst_op_end(e, o);
}

inline int burst_op_tensor_sum_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements, BurstOrder *o,
                                    float *room)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_op_begin(e, BURST_P_REDUCE, unit, o));
    BURST_TRY(burst_gpu_tensor_sum_bf16(e, unit, shard, elements, room));
    return burst_op_end(e, o);
}

inline int burst_op_reduced(BurstExec *e, BurstOrder *o)
{
    return burst_gpu_after(e, burst_gpu_compute(e), &o->here);
}

/* The copy stream waits for computing. */
static inline int burst_op_copy(BurstExec *e, const void *from, void *to, size_t bytes, BurstOrder *o)
{
    BURST_TRY(burst_gpu_mark(e, burst_gpu_compute(e), &o->from));
    BURST_TRY(burst_gpu_after(e, burst_gpu_copies(e), &o->from));
    BURST_TRY(burst_gpu_copy(e, from, to, bytes));
    return burst_gpu_mark(e, burst_gpu_copies(e), &o->here);
}

/* A layer's values to pinned host memory. */
inline int burst_op_stage(BurstExec *e, int layer, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    (void)layer;
    c->staged_bytes += (int64_t)bytes;
    return burst_op_copy(e, from, to, bytes, &c->staged);
}

/* Computing waits for all that was staged. */
inline int burst_op_staged(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->staged.here);
}

inline int burst_op_fetch(BurstExec *e, int layer, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    c->fetched_bytes += (int64_t)bytes;
    return burst_op_copy(e, from, to, bytes, &c->fetched[layer % 2]);
}

/* Computing waits for what was fetched for the layer. */
inline int burst_op_fetched(BurstExec *e, int layer, BurstCopies *c)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->fetched[layer % 2].here);
}

/* A unit's gradients to pinned host memory, after all work on the weights' stream, which reduces them. */
inline int burst_op_download(BurstExec *e, int unit, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    (void)unit;
    c->down_bytes += (int64_t)bytes;
    BURST_TRY(burst_gpu_mark(e, burst_gpu_weights(e), &c->down.here));
    BURST_TRY(burst_gpu_after(e, burst_gpu_copies(e), &c->down.here));
    return burst_op_copy(e, from, to, bytes, &c->down);
}

/* Computing waits for the last download. */
inline int burst_op_downloaded(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->down.here);
}

inline int burst_op_upload(BurstExec *e, int unit, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    (void)unit;
    c->up_bytes += (int64_t)bytes;
    return burst_op_copy(e, from, to, bytes, &c->up);
}

/* Computing and gathers wait for all uploads. */
inline int burst_op_uploaded(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_gpu_after(e, burst_gpu_weights(e), &c->up.here));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->up.here);
}

/* A unit's parameters or moments back to pinned host memory, on the download stream. */
inline int burst_op_write_back(BurstExec *e, int unit, const void *from, void *to, size_t bytes,
                               BurstCopies *c)
{
    (void)unit;
    c->down_bytes += (int64_t)bytes;
    BURST_TRY(burst_gpu_mark(e, burst_gpu_compute(e), &c->back.from));
    BURST_TRY(burst_gpu_after(e, burst_gpu_downloads(e), &c->back.from));
    BURST_TRY(burst_gpu_copy_back(e, from, to, bytes));
    return burst_gpu_mark(e, burst_gpu_downloads(e), &c->back.here);
}

/* The host waits until all units are back. Checkpoints read them there, and the step has ended. */
inline int burst_op_all_back(BurstExec *e) { return burst_gpu_sync(e); }

/* Computing and gathers wait until the last unit is back and therefore updated. */
inline int burst_op_written_back(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_gpu_after(e, burst_gpu_weights(e), &c->back.here));
    return burst_gpu_after(e, burst_gpu_compute(e), &c->back.here);
}

/* Computing, and the update with it, waits for the unit's parameters and moments. */
inline int burst_op_unit_fetched(BurstExec *e, BurstCopies *c)
{
    BURST_TRY(burst_op_part(e, BURST_P_IDLE));
    BURST_TRY(burst_gpu_after(e, burst_gpu_compute(e), &c->up.here));
    return burst_op_part(e, BURST_P_OPTIMIZER);
}

#endif
