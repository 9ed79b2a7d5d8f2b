/* collective.c: gather, reduce-scatter, allreduce and barrier built from messages, inside and between hosts.
 * Sums run in the order of the members, so every run has the same bits. */
#include "core/context.h"
#include "host/net/messages.h"

#include <string.h>

static int member_rank(BurstGroup g, int member)
{
    return g.first + member * g.stride;
}

/* This rank's index in the group, or -1 with an error text. */
static int my_member(BurstCtx *c, BurstGroup g)
{
    for (int i = 0; i < g.count; i++)
        if (member_rank(g, i) == c->rank)
            return i;
    return burst_fail(c, BURST_E_PLAN, "rank %d is not a member of the group %d, %d, ... of %d ranks",
                      c->rank, g.first, g.first + g.stride, g.count),
           -1;
}

static int free_gather(BurstCtx *c)
{
    for (int i = 0; i < GATHERS_MAX; i++)
        if (!c->gather_busy[i])
            return i;
    return burst_fail(c, BURST_E_PLAN, "more than %d all-gathers are in flight", GATHERS_MAX), -1;
}

/* Does not wait for the sends: members need the result at different times, and none should wait for the
 * slowest. */
int burst_gather_start(BurstCtx *c, BurstGroup g, const float *shard, int64_t shard_elements, float *full,
                       BurstGather *op)
{
    int me = my_member(c, g), slot = free_gather(c);
    size_t bytes = (size_t)shard_elements * sizeof *shard;
    if (me < 0 || slot < 0)
        return BURST_E_PLAN;
    *op = (BurstGather){g, slot + 1, c->gather_reqs + (size_t)slot * (size_t)c->world};
    c->gather_busy[slot] = true;
    /* start with the successor, so that not all members address the same one */
    for (int i = 1; i < g.count; i++) {
        int to = (me + i) % g.count, from = (me + g.count - i) % g.count;
        BurstReq sent;
        BURST_TRY(burst_send(c, CHANNEL_GATHER, member_rank(g, to), shard, bytes, &sent));
        request_detach(c, &sent);
        BURST_TRY(burst_recv(c, CHANNEL_GATHER, member_rank(g, from), full + from * shard_elements, bytes,
                             &op->reqs[from]));
    }
    memmove(full + me * shard_elements, shard, bytes);
    return BURST_OK;
}

int burst_gather_wait(BurstCtx *c, BurstGather *op)
{
    if (!op->active)
        return BURST_OK;
    for (int i = 0; i < op->group.count; i++)
        BURST_TRY(burst_wait(c, &op->reqs[i]));
    c->gather_busy[op->active - 1] = false;
    op->active = 0;
    return BURST_OK;
}

static void add_floats(int64_t count, const float *from, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

int burst_reduce_scatter(BurstCtx *c, BurstGroup g, float *full, int64_t shard_elements, float *shard)
{
    int me = my_member(c, g);
    size_t bytes = (size_t)shard_elements * sizeof *shard;
    if (me < 0)
        return BURST_E_PLAN;
    BurstReq *sent = c->gather_reqs + (size_t)GATHERS_MAX * (size_t)c->world, received;
    for (int i = 1; i < g.count; i++) {
        int to = (me + i) % g.count;
        BURST_TRY(
            burst_send(c, CHANNEL_SCATTER, member_rank(g, to), full + to * shard_elements, bytes, &sent[to]));
    }
    for (int i = 0; i < g.count; i++) {
        if (i == me) {
            add_floats(shard_elements, full + me * shard_elements, shard);
            continue;
        }
        BURST_TRY(receive_adding(c, CHANNEL_SCATTER, member_rank(g, i), shard, bytes, &received));
        BURST_TRY(burst_wait(c, &received));
    }
    for (int i = 0; i < g.count; i++)
        if (i != me)
            BURST_TRY(burst_wait(c, &sent[i]));
    return BURST_OK;
}

int burst_all_gather(BurstCtx *c, BurstGroup g, const float *shard, int64_t shard_elements, float *full)
{
    const int me = my_member(c, g);
    const size_t bytes = (size_t)shard_elements * sizeof *shard;
    if (me < 0)
        return BURST_E_PLAN;
    BurstReq *sent = c->gather_reqs + (size_t)GATHERS_MAX * (size_t)c->world, received;
    for (int i = 1; i < g.count; i++)
        BURST_TRY(burst_send(c, CHANNEL_SCATTER, member_rank(g, (me + i) % g.count), shard, bytes,
                             &sent[(me + i) % g.count]));
    memcpy(full + me * shard_elements, shard, bytes);
    for (int i = 1; i < g.count; i++) {
        const int from = (me + g.count - i) % g.count;
        BURST_TRY(burst_recv(c, CHANNEL_SCATTER, member_rank(g, from), full + from * shard_elements, bytes,
                             &received));
        BURST_TRY(burst_wait(c, &received));
    }
    for (int i = 0; i < g.count; i++)
        if (i != me)
            BURST_TRY(burst_wait(c, &sent[i]));
    return BURST_OK;
}

/* Start of a member's part of `elements`. */
static int64_t part_begin(int64_t elements, BurstGroup g, int member)
{
    return elements * member / g.count;
}

/* Sends each member its part, or this rank's part (mine); a part may be empty. */
static int send_parts(BurstCtx *c, BurstGroup g, int me, const float *data, int64_t elements, bool mine)
{
    BurstReq *sent = c->gather_reqs + (size_t)GATHERS_MAX * (size_t)c->world;
    for (int i = 1; i < g.count; i++) {
        const int to = (me + i) % g.count, part = mine ? me : to;
        const int64_t begin = part_begin(elements, g, part), end = part_begin(elements, g, part + 1);
        BURST_TRY(burst_send(c, CHANNEL_SCATTER, member_rank(g, to), data + begin,
                             (size_t)(end - begin) * sizeof *data, &sent[to]));
    }
    return BURST_OK;
}

static int sent_parts(BurstCtx *c, BurstGroup g, int me)
{
    BurstReq *sent = c->gather_reqs + (size_t)GATHERS_MAX * (size_t)c->world;
    for (int i = 0; i < g.count; i++)
        if (i != me)
            BURST_TRY(burst_wait(c, &sent[i]));
    return BURST_OK;
}

/* Each member adds up its part in the order of the members and sends it to all. */
int burst_sum_over(BurstCtx *c, BurstGroup g, float *data, int64_t elements)
{
    int me = my_member(c, g);
    BurstReq received;
    if (me < 0)
        return BURST_E_PLAN;
    const int64_t first = part_begin(elements, g, me), end = part_begin(elements, g, me + 1);
    BURST_TRY(send_parts(c, g, me, data, elements, false));
    for (int i = 0; i < g.count; i++) {
        if (i == me)
            continue;
        BURST_TRY(receive_adding(c, CHANNEL_SCATTER, member_rank(g, i), data + first,
                                 (size_t)(end - first) * sizeof *data, &received));
        BURST_TRY(burst_wait(c, &received));
    }
    BURST_TRY(sent_parts(c, g, me));
    BURST_TRY(send_parts(c, g, me, data, elements, true));
    for (int i = 0; i < g.count; i++) {
        const int64_t at = part_begin(elements, g, i),
                      bytes = (part_begin(elements, g, i + 1) - at) * (int64_t)sizeof *data;
        if (i == me)
            continue;
        BURST_TRY(burst_recv(c, CHANNEL_SCATTER, member_rank(g, i), data + at, (size_t)bytes, &received));
        BURST_TRY(burst_wait(c, &received));
    }
    return sent_parts(c, g, me);
}

static int send_now(BurstCtx *c, int rank, const void *data, size_t bytes)
{
    BurstReq req;
    BURST_TRY(burst_send(c, CHANNEL_REDUCE, rank, data, bytes, &req));
    return burst_wait(c, &req);
}

static int receive_now(BurstCtx *c, int rank, void *data, size_t bytes)
{
    BurstReq req;
    BURST_TRY(burst_recv(c, CHANNEL_REDUCE, rank, data, bytes, &req));
    return burst_wait(c, &req);
}

/* The first member adds all values and sends the result to all. */
static int reduce_at_first(BurstCtx *c, BurstGroup g, double *values, int count)
{
    double other[REDUCE_MAX];
    size_t bytes = (size_t)count * sizeof *values;
    BurstReq *sent = c->gather_reqs + (size_t)GATHERS_MAX * (size_t)c->world;
    for (int i = 1; i < g.count; i++) {
        BURST_TRY(receive_now(c, member_rank(g, i), other, bytes));
        for (int j = 0; j < count; j++)
            values[j] += other[j];
    }
    memcpy(c->slot->reduce, values, bytes);
    for (int i = 1; i < g.count; i++)
        BURST_TRY(burst_send(c, CHANNEL_REDUCE, member_rank(g, i), c->slot->reduce, bytes, &sent[i]));
    for (int i = 1; i < g.count; i++)
        BURST_TRY(burst_wait(c, &sent[i]));
    return BURST_OK;
}

int burst_allreduce(BurstCtx *c, BurstGroup g, double *values, int count)
{
    int me = my_member(c, g);
    size_t bytes = (size_t)count * sizeof *values;
    if (me < 0)
        return BURST_E_PLAN;
    if (count < 0 || count > REDUCE_MAX)
        return burst_fail(c, BURST_E_PLAN, "an all-reduce of %d values exceeds the limit of %d", count,
                          REDUCE_MAX);
    if (me == 0)
        return reduce_at_first(c, g, values, count);
    memcpy(c->slot->reduce, values, bytes);
    BURST_TRY(send_now(c, g.first, c->slot->reduce, bytes));
    return receive_now(c, g.first, values, bytes);
}

int burst_barrier(BurstCtx *c, BurstGroup g)
{
    double nothing = 0;
    return burst_allreduce(c, g, &nothing, 1);
}
