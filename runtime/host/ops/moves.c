/* host/ops/moves.c: data movement of a step: gathers and sums over ranks, and copies to the arena that
 * stands for host memory, in the rank's own time. */
#include "burst_step.h"

int burst_op_part(BurstExec *e, int part)
{
    burst_part(e, part, 0, 0);
    return BURST_OK;
}

/* ---- tensor ranks ---- */

int burst_op_tensor_gather(BurstExec *e, int64_t each, int64_t width, const BurstAct *own, BurstAct *all,
                           BurstOrder *o)
{
    (void)o;
    burst_doing(e, "gather of tokens of tensor ranks");
    return burst_all_gather(e, burst_tensor_group(e), own, each * width, all);
}

int burst_op_tensor_scatter(BurstExec *e, int64_t each, int64_t width, BurstAct *parts, const BurstAct *add,
                            BurstAct *own, BurstOrder *o)
{
    (void)o;
    burst_doing(e, "sum of parts of tensor ranks");
    if (!add)
        memset(own, 0, (size_t)(each * width) * sizeof *own);
    else if (add != own)
        memcpy(own, add, (size_t)(each * width) * sizeof *own);
    return burst_reduce_scatter(e, burst_tensor_group(e), parts, each * width, own);
}

int burst_op_tensor_gather_words(BurstExec *e, int64_t each, int64_t width, const void *own, void *all,
                                 BurstOrder *o)
{
    return burst_op_tensor_gather(e, each, width, own, all, o); /* which copies 32 bits an element */
}

int burst_op_tensor_scatter_floats(BurstExec *e, int64_t each, int64_t width, float *parts, const float *add,
                                   float *own, BurstOrder *o)
{
    return burst_op_tensor_scatter(e, each, width, parts, add, own, o);
}

int burst_op_tensor_all_reduce(BurstExec *e, int64_t each, int ranks, const float *part, float *all,
                               BurstOrder *o)
{
    (void)o;
    burst_doing(e, "sum of parts of tensor ranks");
    memcpy(all, part, (size_t)(each * ranks) * sizeof *all);
    return burst_sum_over(e, burst_tensor_group(e), all, each * ranks);
}

int burst_op_tensor_done(BurstExec *e, BurstOrder *o)
{
    (void)e, (void)o;
    return BURST_OK;
}

/* ---- weights and gradients ---- */

int burst_op_gather(BurstExec *e, int unit, const BurstAct *shard, int64_t elements, BurstAct *full,
                    BurstArrival *a)
{
    return burst_gather_start(e, burst_unit_group(e, unit), shard, elements, full, a);
}

/* Matrix by matrix, each awaited. */
int burst_op_gather_slices(BurstExec *e, const BurstPlan *p, int unit, const BurstAct *shard, BurstAct *full,
                           BurstArrival *a)
{
    const BurstUnit *u = burst_unit(p, unit);
    const BurstGroup ranks = burst_unit_group(e, unit);
    memcpy(full, shard, (size_t)burst_slices(p, u)->whole * sizeof *full);
    for (BurstSlice x = {0}; burst_next_slice(p, u, ranks.count, &x);)
        BURST_TRY(burst_all_gather(e, ranks, shard + x.at, x.elements, full + x.gathered));
    *a = (BurstArrival){0};
    return BURST_OK;
}

int burst_op_arrived(BurstExec *e, int unit, BurstArrival *a)
{
    burst_doing(e, "gather of weights");
    burst_part(e, BURST_P_GATHER, unit, 0);
    BURST_TRY(burst_gather_wait(e, a));
    return burst_op_part(e, BURST_P_IDLE);
}

static void begin_reduction(BurstExec *e, int unit, const char *operation)
{
    burst_doing(e, operation);
    burst_part(e, BURST_P_REDUCE, unit, 0);
}

int burst_op_reduce(BurstExec *e, int unit, float *full, int64_t elements, float *shard, bool add,
                    BurstOrder *o)
{
    (void)o;
    begin_reduction(e, unit, "reduction of gradients");
    if (!add)
        memset(shard, 0, (size_t)elements * sizeof *shard);
    BURST_TRY(burst_reduce_scatter(e, burst_unit_group(e, unit), full, elements, shard));
    return burst_op_part(e, BURST_P_IDLE);
}

int burst_op_all_reduce(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o)
{
    (void)o;
    begin_reduction(e, unit, "sum of gradients over replicas");
    BURST_TRY(burst_sum_over(e, burst_replica_group(e), shard, elements));
    return burst_op_part(e, BURST_P_IDLE);
}

int burst_op_tensor_sum(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o)
{
    (void)o, (void)elements;
    begin_reduction(e, unit, "sum of gradients over tensor ranks");
    BURST_TRY(burst_sum_copies(e, unit, shard));
    return burst_op_part(e, BURST_P_IDLE);
}

/* The host sums in fp32 what a device keeps in bf16, and rounds it like the device. */
int burst_op_reduce_bf16(BurstExec *e, int unit, float *full, int64_t elements, BurstAct *shard, bool add,
                         BurstOrder *o)
{
    BURST_TRY(burst_op_reduce(e, unit, full, elements, shard, add, o));
    burst_keep_bf16(elements, shard);
    return BURST_OK;
}

int burst_op_all_reduce_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements, BurstOrder *o,
                             float *room)
{
    (void)room;
    BURST_TRY(burst_op_all_reduce(e, unit, shard, elements, o));
    burst_keep_bf16(elements, shard);
    return BURST_OK;
}

int burst_op_tensor_sum_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements, BurstOrder *o,
                             float *room)
{
    (void)room;
    BURST_TRY(burst_op_tensor_sum(e, unit, shard, elements, o));
    burst_keep_bf16(elements, shard);
    return BURST_OK;
}

int burst_op_reduced(BurstExec *e, BurstOrder *o)
{
    (void)e, (void)o;
    return BURST_OK;
}

/* ---- copies ---- */

static int copy(BurstExec *e, const void *from, void *to, size_t bytes, int64_t *counted)
{
    burst_part(e, BURST_P_WAIT_COPY, 0, 0);
    memcpy(to, from, bytes);
    burst_part(e, BURST_P_IDLE, 0, 0);
    *counted += (int64_t)bytes;
    return BURST_OK;
}

int burst_op_stage(BurstExec *e, int layer, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    (void)layer;
    return copy(e, from, to, bytes, &c->staged_bytes);
}

int burst_op_fetch(BurstExec *e, int layer, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    (void)layer;
    return copy(e, from, to, bytes, &c->fetched_bytes);
}

int burst_op_download(BurstExec *e, int unit, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    (void)unit;
    return copy(e, from, to, bytes, &c->down_bytes);
}

int burst_op_upload(BurstExec *e, int unit, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    (void)unit;
    return copy(e, from, to, bytes, &c->up_bytes);
}

int burst_op_write_back(BurstExec *e, int unit, const void *from, void *to, size_t bytes, BurstCopies *c)
{
    (void)unit;
    return copy(e, from, to, bytes, &c->down_bytes);
}

/* ---- waits: a copy is done when its function returns ---- */

int burst_op_fetched(BurstExec *e, int layer, BurstCopies *c)
{
    (void)e, (void)layer, (void)c;
    return BURST_OK;
}

int burst_op_staged(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

int burst_op_downloaded(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

int burst_op_uploaded(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

int burst_op_unit_fetched(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

int burst_op_written_back(BurstExec *e, BurstCopies *c)
{
    (void)e, (void)c;
    return BURST_OK;
}

int burst_op_all_back(BurstExec *e)
{
    (void)e;
    return BURST_OK;
}
