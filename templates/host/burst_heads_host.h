/* burst_heads_host.h: a rank's part of a chunk on the host: in a direction that exchanges, its share of the
 * heads for all ranks that share them.
 *
 * Tensors are [heads][tokens][head_dim], so a share of a chunk's heads is contiguous and is sent without
 * packing; by heads, the owners' chunks lie one after the other. Gradients of a key head that several shares
 * read are summed in rank order at its owner (DeepSpeed-Ulysses, arXiv 2309.14509; with rings between such
 * groups 2D attention, LoongTrain, arXiv 2406.18485). */
#ifndef BURST_HEADS_HOST_H
#define BURST_HEADS_HOST_H

#include "burst_state_host.h"
#include "burst_heads.h"
#include "burst_shares.h"

/* Number of heads of a share, and the first of them. */
static inline int plan_share_heads(const PlanState *s, int lane, bool keys)
{
    return keys ? plan_kv_end(s, lane) - plan_kv0(s, lane) : plan_head0(s, lane + 1) - plan_head0(s, lane);
}

static inline int plan_first_head(const PlanState *s, int lane, bool keys)
{
    return keys ? plan_kv0(s, lane) : plan_head0(s, lane);
}

static inline BurstAttend plan_pair_heads(const PlanState *s)
{
    const int lane = plan_lane(s->me);
    BurstAttend a = {.head_dim = PLAN_HEAD_DIM,
                     .value_dim = PLAN_VALUE_DIM,
                     .q_heads = s->heads.queries,
                     .kv_heads = s->heads.keys,
                     .group = PLAN_KV_SHARE,
                     .scale = PLAN_SCALE};
    if (s->by_heads) {
        a.q_heads = plan_share_heads(s, lane, false);
        a.kv_heads = plan_share_heads(s, lane, true);
        a.q_head0 = plan_head0(s, lane);
        a.kv_head0 = plan_kv0(s, lane);
    }
    return a;
}

/* The i-th chunk in an array of chunks that begins at `at`. */
static inline float *plan_at_member(const PlanState *s, const float *at, int chunk, int i, bool keys,
                                    int64_t floats_a_token)
{
    return at ? (float *)(uintptr_t)at + plan_row_tokens(s, chunk, i, keys) * floats_a_token : NULL;
}

/* The pair of row q's i-th chunk with row kv's j-th. */
static inline BurstAttend plan_member_pair(PlanState *s, const BurstAttend *all, int q, int i, int kv, int j)
{
    const int64_t rows = all->q_heads, keys = all->kv_heads;
    BurstAttend a = *all;
    a.qc = &s->chunk[plan_member(q, i)];
    a.kc = &s->key[plan_member(kv, j)];
    a.q = plan_at_member(s, a.q, q, i, false, rows * PLAN_HEAD_DIM);
    a.o = plan_at_member(s, a.o, q, i, false, rows * PLAN_VALUE_DIM);
    a.d_o = plan_at_member(s, a.d_o, q, i, false, rows * PLAN_VALUE_DIM);
    a.dq = plan_at_member(s, a.dq, q, i, false, rows * PLAN_HEAD_DIM);
    a.lse = plan_at_member(s, a.lse, q, i, false, rows);
    a.lse_rest = plan_at_member(s, a.lse_rest, q, i, false, rows);
    a.delta = plan_at_member(s, a.delta, q, i, false, rows);
    a.k = plan_at_member(s, a.k, kv, j, true, keys * PLAN_HEAD_DIM);
    a.v = plan_at_member(s, a.v, kv, j, true, keys * PLAN_VALUE_DIM);
    a.dk = plan_at_member(s, a.dk, kv, j, true, keys * PLAN_HEAD_DIM);
    a.dv = plan_at_member(s, a.dv, kv, j, true, keys * PLAN_VALUE_DIM);
    return a;
}

/* Runs the live pairs among all chunks of rows q and kv. */
static inline void plan_run_pair(PlanState *s, BurstAttend a, int q, int kv,
                                 void (*run)(const BurstAttend *a))
{
    a.qc = &s->chunk[q];
    a.kc = &s->key[kv];
    if (!s->by_heads)
        run(&a);
    for (int i = 0; i < PLAN_SHARES && s->by_heads; i++)
        for (int j = 0; j < PLAN_SHARES; j++) {
            const BurstAttend pair = plan_member_pair(s, &a, q, i, kv, j);
            if (s->buffer.pair_live[s->mask][plan_member(q, i) * PLAN_GROUP + plan_member(kv, j)])
                run(&pair);
        }
}

/* ---- exchanges ---- */

/* One tensor of an exchange. by_tokens: this rank's chunk with all heads; by_heads: every chunk in turn with
 * this rank's share. width: floats per token and head. */
typedef struct PlanShare { float *by_tokens, *by_heads; int64_t width; bool keys; } PlanShare;

static inline float *plan_chunk_share(const PlanState *s, const PlanShare *x, int lane)
{
    return x->by_heads + plan_row_tokens(s, s->me, lane, x->keys) * x->width *
                             plan_share_heads(s, plan_lane(s->me), x->keys);
}

static inline float *plan_my_heads(const PlanState *s, const PlanShare *x, int lane)
{
    return x->by_tokens + plan_first_head(s, lane, x->keys) * plan_tokens_in(s, s->me, x->keys) * x->width;
}

/* Bytes of one lane's chunk for another lane's heads. */
static inline size_t plan_share_bytes(const PlanState *s, const PlanShare *x, int chunk, int heads)
{
    return (size_t)(plan_tokens_in(s, plan_member(s->me, chunk), x->keys) * x->width *
                    plan_share_heads(s, heads, x->keys)) *
           sizeof(float);
}

static inline int plan_exchange(BurstCtx *c, PlanState *s, int channel, const PlanShare *x, bool to_heads)
{
    BurstReq out[PLAN_SHARES], in[PLAN_SHARES];
    const int lane = plan_lane(s->me);
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    burst_doing(c, to_heads ? "all-to-all, tokens to heads" : "all-to-all, heads to tokens");
    burst_part(c, BURST_P_EXCHANGE, 0, 0);
    for (int step = 1; step < PLAN_SHARES; step++) {
        int to = (lane + step) % PLAN_SHARES, from = (lane + PLAN_SHARES - step) % PLAN_SHARES;
        const float *sent = to_heads ? plan_my_heads(s, x, to) : plan_chunk_share(s, x, to);
        float *got = to_heads ? plan_chunk_share(s, x, from) : plan_my_heads(s, x, from);
        BURST_TRY(burst_send(c, channel, plan_peer(s, plan_member(s->me, to)), sent,
                             to_heads ? plan_share_bytes(s, x, lane, to) : plan_share_bytes(s, x, to, lane),
                             &out[to]));
        BURST_TRY(
            burst_recv(c, channel, plan_peer(s, plan_member(s->me, from)), got,
                       to_heads ? plan_share_bytes(s, x, from, lane) : plan_share_bytes(s, x, lane, from),
                       &in[from]));
    }
    float *mine = plan_my_heads(s, x, lane), *share = plan_chunk_share(s, x, lane);
    memcpy(to_heads ? share : mine, to_heads ? mine : share, plan_share_bytes(s, x, lane, lane));
    for (int i = 0; i < PLAN_SHARES; i++) {
        BURST_TRY(burst_wait(c, &out[i]));
        BURST_TRY(burst_wait(c, &in[i]));
    }
    burst_part(c, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

/* Heads to tokens with overlapping shares: adds every share to this rank's chunk, in rank order. */
static inline int plan_exchange_sums(BurstCtx *c, PlanState *s, int channel, const PlanShare *x)
{
    BurstReq out[PLAN_SHARES], in;
    const int lane = plan_lane(s->me);
    memset(out, 0, sizeof out);
    burst_doing(c, "all-to-all, sums of key heads");
    burst_part(c, BURST_P_EXCHANGE, 0, 0);
    for (int to = 0; to < PLAN_SHARES; to++)
        if (to != lane)
            BURST_TRY(burst_send(c, channel, plan_peer(s, plan_member(s->me, to)), plan_chunk_share(s, x, to),
                                 plan_share_bytes(s, x, to, lane), &out[to]));
    for (int from = 0; from < PLAN_SHARES; from++) {
        size_t bytes = plan_share_bytes(s, x, lane, from);
        const float *part = from == lane ? plan_chunk_share(s, x, from) : s->buffer.xsum;
        memset(&in, 0, sizeof in);
        if (from != lane) {
            BURST_TRY(
                burst_recv(c, channel, plan_peer(s, plan_member(s->me, from)), s->buffer.xsum, bytes, &in));
            BURST_TRY(burst_wait(c, &in));
        }
        burst_add((int64_t)(bytes / sizeof(float)), part, plan_my_heads(s, x, from));
    }
    for (int to = 0; to < PLAN_SHARES; to++)
        BURST_TRY(burst_wait(c, &out[to]));
    burst_part(c, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

/* Q: queries (in backward with dO, delta and lse), once for all their keys. KV: keys and values, once for
 * all chunks of queries. */
static inline int plan_to_heads(BurstCtx *c, PlanState *s, int channel, int tensor)
{
    for (int i = 0; i < PLAN_PARTS && s->home[tensor].part[i] &&
                    !(plan_of_keys(tensor) ? s->tile.has_keys : s->tile.resumes);
         i++) {
        const PlanShare x = {s->home[tensor].part[i], s->share[tensor].part[i], plan_part_width[tensor][i],
                             plan_of_keys(tensor)};
        BURST_TRY(plan_exchange(c, s, channel, &x, true));
    }
    return BURST_OK;
}

/* O with lse, and dQ, once all their keys have been attended; dKV, once all chunks of queries have added to
 * it. */
static inline int plan_to_tokens(BurstCtx *c, PlanState *s, int channel, int tensor)
{
    for (int i = 0; i < PLAN_PARTS && s->home[tensor].part[i] &&
                    !(plan_of_keys(tensor) ? s->tile.keeps_sums : s->tile.suspends);
         i++) {
        const PlanShare x = {s->home[tensor].part[i], s->share[tensor].part[i], plan_part_width[tensor][i],
                             plan_of_keys(tensor)};
        BURST_TRY(x.keys ? plan_exchange_sums(c, s, channel, &x) : plan_exchange(c, s, channel, &x, false));
    }
    return BURST_OK;
}

/* ---- the begin of a direction ---- */

/* Switches to chunks by heads; plan_home has set held to the rank's own chunks. */
#if PLAN_FORWARD_BY_HEADS
static inline int plan_forward_by_heads(PlanState *s)
{
    s->by_heads = true;
    plan_share(s, BURST_T_Q, s->buffer.xq, NULL, NULL, NULL);
    plan_share(s, BURST_T_KV, s->buffer.xk, s->buffer.xv, NULL, NULL);
    plan_share(s, BURST_T_O, s->buffer.xo, s->buffer.xlse, NULL, NULL);
    BurstAttend start = plan_pair_heads(s);
    start.o = s->buffer.xo;
    start.lse = s->buffer.xlse;
    for (int i = 0; i < PLAN_SHARES && !s->tile.resumes; i++) {
        const BurstAttend chunk = plan_member_pair(s, &start, s->me, i, s->me, i);
        burst_attend_start(&chunk);
    }
    return BURST_OK;
}
#endif

#if PLAN_BACKWARD_BY_HEADS
static inline int plan_backward_by_heads(PlanState *s)
{
    s->by_heads = true;
    plan_share(s, BURST_T_Q, s->buffer.xq, s->buffer.xdo, s->buffer.xdelta, s->buffer.xlse);
    plan_share(s, BURST_T_KV, s->buffer.xk, s->buffer.xv, NULL, NULL);
    plan_share(s, BURST_T_DQ, s->buffer.xdq, NULL, NULL, NULL);
    plan_share(s, BURST_T_DKV, s->buffer.xdk, s->buffer.xdv, NULL, NULL);
    memset(s->buffer.xdq, 0,
           s->tile.resumes ? 0 : (size_t)plan_part_words(s, BURST_T_DQ, 0, s->me) * sizeof(float));
    memset(s->buffer.xdk, 0,
           s->tile.has_keys ? 0 : (size_t)plan_part_words(s, BURST_T_DKV, 0, s->me) * sizeof(float));
    memset(s->buffer.xdv, 0,
           s->tile.has_keys ? 0 : (size_t)plan_part_words(s, BURST_T_DKV, 1, s->me) * sizeof(float));
    return BURST_OK;
}
#endif

#endif
