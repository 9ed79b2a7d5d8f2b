/* exchange.c: random messages and collectives, checked against what each rank can work out alone. */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

enum { SLACK = 1 << 14, GATHERS = 4, CHANNELS_USED = 12 };

size_t exchange_arena(int world, const Exchange *e)
{
    size_t most = ((size_t)e->most_floats * sizeof(float) + 63) / 64 * 64;
    return most * (size_t)(e->messages + (GATHERS + 2) * (world + 2)) + SLACK;
}

/* ---- point to point ---- */
typedef struct Message { int from, to, channel, floats; uint64_t key; float *data; BurstReq req; } Message;

static void draw(Random *r, int world, const Exchange *e, Message *m)
{
    m->from = random_below(r, world);
    m->to = (m->from + 1 + random_below(r, world - 1)) % world;
    /* crowded lanes too */
    m->channel = random_below(r, 4) ? random_below(r, 2) : random_below(r, CHANNELS_USED);
    m->floats = random_below(r, 8) ? random_below(r, e->most_floats / 16 + 1)
                                   : random_below(r, e->most_floats + 1);
    m->key = random_next(r);
}

static float content(const Message *m, int i)
{
    Random r = {m->key + (uint64_t)i};
    return random_float(&r);
}

static int post(BurstCtx *c, Message *m)
{
    int me = burst_rank(c);
    size_t bytes = (size_t)m->floats * sizeof(float);
    if (m->from != me && m->to != me)
        return BURST_OK;
    m->data = burst_take(c, bytes);
    CHECK(c, m->data != NULL);
    if (m->to == me)
        return burst_recv(c, m->channel, m->from, m->data, bytes, &m->req);
    for (int i = 0; i < m->floats; i++)
        m->data[i] = content(m, i);
    return burst_send(c, m->channel, m->to, m->data, bytes, &m->req);
}

static int wait_and_look(BurstCtx *c, Message *m)
{
    BURST_TRY(burst_wait(c, &m->req));
    CHECK(c, m->req.kind == 0);
    if (m->to == burst_rank(c))
        for (int i = 0; i < m->floats; i++)
            CHECK(c, m->data[i] == content(m, i));
    return BURST_OK;
}

/* The order of waiting is another one on every rank: only progress inside the waits keeps them from
 * locking up. */
static int wait_shuffled(BurstCtx *c, const Exchange *e, Message *m)
{
    Random mine = {e->seed * 1000 + (uint64_t)burst_rank(c)};
    for (int left = e->messages; left > 0; left--) {
        int pick = random_below(&mine, left);
        BURST_TRY(wait_and_look(c, &m[pick]));
        m[pick] = m[left - 1];
    }
    return BURST_OK;
}

int exchange_messages(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Exchange *e = arg;
    Random r = {e->seed};
    Message *m = calloc((size_t)e->messages, sizeof *m);
    CHECK(c, m != NULL);
    int status = BURST_OK;
    for (int i = 0; i < e->messages && status == BURST_OK; i++) {
        draw(&r, p->world, e, &m[i]);
        status = post(c, &m[i]);
    }
    if (status == BURST_OK)
        status = wait_shuffled(c, e, m);
    free(m);
    return status;
}

/* ---- collectives ---- */
static float value_of(uint64_t seed, int rank, int i)
{
    Random r = {seed ^ (uint64_t)rank << 40 ^ (uint64_t)i << 8};
    random_next(&r);
    /* of very different size: the order shows in the sum */
    return random_float(&r) * (float)(1 << random_below(&r, 20));
}

static int rank_at(BurstGroup g, int member)
{
    return g.first + member * g.stride;
}

/* The members' strided group that this rank belongs to: ranks = same remainder, same block. */
static BurstGroup my_group(const BurstCtx *c, int stride)
{
    int world = burst_world(c), first = burst_rank(c) % stride;
    return (BurstGroup){first, stride, (world - first + stride - 1) / stride};
}

static int fill(BurstCtx *c, uint64_t seed, int count, float **out)
{
    *out = burst_take(c, (size_t)count * sizeof(float));
    CHECK(c, *out != NULL);
    for (int i = 0; i < count; i++)
        (*out)[i] = value_of(seed, burst_rank(c), i);
    return BURST_OK;
}

/* All gathers are under way at once, and waited for in the opposite order. */
static int check_gathers(BurstCtx *c, BurstGroup g, uint64_t seed, int n)
{
    BurstGather op[GATHERS];
    float *shard[GATHERS], *full[GATHERS];
    for (int k = 0; k < GATHERS; k++) {
        BURST_TRY(fill(c, seed + (uint64_t)k, n, &shard[k]));
        full[k] = burst_take(c, (size_t)(n * g.count) * sizeof(float));
        CHECK(c, full[k] != NULL);
        BURST_TRY(burst_gather_start(c, g, shard[k], n, full[k], &op[k]));
    }
    for (int k = GATHERS; k-- > 0;) {
        BURST_TRY(burst_gather_wait(c, &op[k]));
        CHECK(c, !op[k].active);
        for (int i = 0; i < n * g.count; i++)
            CHECK(c, full[k][i] == value_of(seed + (uint64_t)k, rank_at(g, i / n), i % n));
    }
    return burst_barrier(c, g);
}

static int check_scatter(BurstCtx *c, BurstGroup g, uint64_t seed, int n)
{
    float *full, *shard;
    int me = (burst_rank(c) - g.first) / g.stride;
    BURST_TRY(fill(c, seed, n * g.count, &full));
    BURST_TRY(fill(c, ~seed, n, &shard));
    BURST_TRY(burst_reduce_scatter(c, g, full, n, shard));
    memset(full, 0xff, (size_t)(n * g.count) * sizeof(float)); /* ours again */
    for (int i = 0; i < n; i++) {
        volatile float sum = value_of(~seed, burst_rank(c), i);
        for (int m = 0; m < g.count; m++)
            sum = sum + value_of(seed, rank_at(g, m), me * n + i);
        CHECK(c, shard[i] == sum);
    }
    return BURST_OK;
}

/* Each part is added up by its member, which begins with its own; all have the same bits. */
static int check_sum(BurstCtx *c, BurstGroup g, uint64_t seed, int n)
{
    float *data;
    BURST_TRY(fill(c, seed, n, &data));
    BURST_TRY(burst_sum_over(c, g, data, n));
    for (int owner = 0, i = 0; owner < g.count; owner++)
        for (; i < (int64_t)n * (owner + 1) / g.count; i++) {
            volatile float sum = value_of(seed, rank_at(g, owner), i);
            for (int m = 0; m < g.count; m++)
                if (m != owner)
                    sum = sum + value_of(seed, rank_at(g, m), i);
            CHECK(c, data[i] == sum);
        }
    return BURST_OK;
}

static int check_allreduce(BurstCtx *c, BurstGroup g, uint64_t seed, int count)
{
    double values[64];
    for (int i = 0; i < count; i++)
        values[i] = value_of(seed, burst_rank(c), i) * 1e10 + 1e-7 * i;
    BURST_TRY(burst_allreduce(c, g, values, count));
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int m = 0; m < g.count; m++)
            sum += value_of(seed, rank_at(g, m), i) * 1e10 + 1e-7 * i;
        CHECK(c, values[i] == sum);
    }
    return BURST_OK;
}

int exchange_collectives(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Exchange *e = arg;
    for (int stride = 1; stride <= p->world; stride += stride) {
        BurstGroup g = my_group(c, stride);
        BURST_TRY(check_gathers(c, g, e->seed + (uint64_t)stride, e->most_floats / 4 / stride + 1));
        BURST_TRY(check_scatter(c, g, e->seed * 3 + (uint64_t)stride, e->most_floats / 4 / stride + 1));
        for (int n = 1; n <= e->most_floats / 4; n = 5 * n + 2) /* fewer than members, too */
            BURST_TRY(check_sum(c, g, e->seed * 7 + (uint64_t)n, n));
        for (int count = 1; count <= 64; count *= 4)
            BURST_TRY(check_allreduce(c, g, e->seed * 5 + (uint64_t)count, count));
    }
    return BURST_OK;
}
