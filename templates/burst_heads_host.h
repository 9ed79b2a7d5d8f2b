/* burst_heads_host.h: head parallelism on the host: all-to-all (DeepSpeed-Ulysses, arXiv 2309.14509).
 *
 * Rank r attends for the query heads [plan_head0(r), plan_head0(r + 1)) and reads the key heads those use. Tensors are
 * [heads][tokens][head_dim], so a share of a chunk's heads is contiguous and travels without packing; what arrives is kept
 * chunk by chunk. Gradients of a key head that several shares read are summed in rank order at its owner.
 */
#ifndef BURST_HEADS_HOST_H
#define BURST_HEADS_HOST_H

#include "burst_state_host.h"
#include "burst_heads.h"

/* One tensor of an exchange: by_tokens is this rank's chunk, all heads; by_heads is every chunk in turn, this rank's
 * share. width: floats a token of one head. */
typedef struct PlanShare { float *by_tokens, *by_heads; int64_t width; bool keys; } PlanShare;

static inline int plan_first_head(const PlanShare *x, int rank)
{
    return x->keys ? plan_kv0(rank) : plan_head0(rank);
}

static inline int plan_head_count(const PlanShare *x, int rank)
{
    return (x->keys ? plan_kv_end(rank) : plan_head0(rank + 1)) - plan_first_head(x, rank);
}

static inline int64_t plan_share_offset(const PlanState *s, const PlanShare *x, int chunk)
{
    int64_t tokens = 0;
    for (int i = 0; i < chunk; i++)
        tokens += s->chunk[i].tokens;
    return tokens * x->width * plan_head_count(x, s->me);
}

static inline float *plan_chunk_share(const PlanState *s, const PlanShare *x, int chunk)
{
    return x->by_heads + plan_share_offset(s, x, chunk);
}

static inline float *plan_my_heads(PlanState *s, const PlanShare *x, int rank)
{
    return x->by_tokens + (int64_t)plan_first_head(x, rank) * s->n * x->width;
}

static inline size_t plan_share_bytes(PlanState *s, const PlanShare *x, int chunk, int rank)
{
    return (size_t)(s->chunk[chunk].tokens * x->width * plan_head_count(x, rank)) * sizeof(float);
}

static inline int plan_exchange(BurstCtx *c, PlanState *s, int channel, const PlanShare *x, bool to_heads)
{
    BurstReq out[PLAN_GROUP], in[PLAN_GROUP];
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    burst_doing(c, to_heads ? "all-to-all, tokens to heads" : "all-to-all, heads to tokens");
    burst_part(c, BURST_P_EXCHANGE, 0, 0);
    for (int step = 1; step < PLAN_GROUP; step++) {
        int to = (s->me + step) % PLAN_GROUP, from = (s->me + PLAN_GROUP - step) % PLAN_GROUP;
        const float *sent = to_heads ? plan_my_heads(s, x, to) : plan_chunk_share(s, x, to);
        float *got = to_heads ? plan_chunk_share(s, x, from) : plan_my_heads(s, x, from);
        BURST_TRY(burst_send(c, channel, plan_rank_of(s->group, to), sent,
                             to_heads ? plan_share_bytes(s, x, s->me, to) : plan_share_bytes(s, x, to, s->me), &out[to]));
        BURST_TRY(burst_recv(c, channel, plan_rank_of(s->group, from), got,
                             to_heads ? plan_share_bytes(s, x, from, s->me) : plan_share_bytes(s, x, s->me, from), &in[from]));
    }
    float *mine = plan_my_heads(s, x, s->me), *share = plan_chunk_share(s, x, s->me);
    memcpy(to_heads ? share : mine, to_heads ? mine : share, plan_share_bytes(s, x, s->me, s->me));
    for (int i = 0; i < PLAN_GROUP; i++) {
        BURST_TRY(burst_wait(c, &out[i]));
        BURST_TRY(burst_wait(c, &in[i]));
    }
    return BURST_OK;
}

/* Heads to tokens where shares overlap: every share is added to this rank's chunk, in rank order. */
static inline int plan_exchange_sums(BurstCtx *c, PlanState *s, int channel, const PlanShare *x)
{
    BurstReq out[PLAN_GROUP], in;
    memset(out, 0, sizeof out);
    burst_doing(c, "all-to-all, sums of key heads");
    burst_part(c, BURST_P_EXCHANGE, 0, 0);
    for (int to = 0; to < PLAN_GROUP; to++)
        if (to != s->me)
            BURST_TRY(burst_send(c, channel, plan_rank_of(s->group, to), plan_chunk_share(s, x, to), plan_share_bytes(s, x, to, s->me),
                                 &out[to]));
    for (int from = 0; from < PLAN_GROUP; from++) {
        size_t bytes = plan_share_bytes(s, x, s->me, from);
        const float *part = from == s->me ? plan_chunk_share(s, x, from) : s->buffer.xsum;
        memset(&in, 0, sizeof in);
        if (from != s->me) {
            BURST_TRY(burst_recv(c, channel, plan_rank_of(s->group, from), s->buffer.xsum, bytes, &in));
            BURST_TRY(burst_wait(c, &in));
        }
        burst_add((int64_t)(bytes / sizeof(float)), part, plan_my_heads(s, x, from));
    }
    for (int to = 0; to < PLAN_GROUP; to++)
        BURST_TRY(burst_wait(c, &out[to]));
    return BURST_OK;
}

/* Q: queries (in backward with dO, delta and lse); KV: keys and values; and so on, as in the schedule. */
static inline int plan_to_heads(BurstCtx *c, PlanState *s, int channel, int tensor, bool backward)
{
    PlanSlot *home = &s->home[tensor];
    if (tensor == BURST_T_KV) {
        BURST_TRY(plan_exchange(c, s, channel, &(PlanShare){home->part[0], s->buffer.xk, PLAN_HEAD_DIM, true}, true));
        return plan_exchange(c, s, channel, &(PlanShare){home->part[1], s->buffer.xv, PLAN_HEAD_DIM, true}, true);
    }
    BURST_TRY(plan_exchange(c, s, channel, &(PlanShare){home->part[0], s->buffer.xq, PLAN_HEAD_DIM, false}, true));
    if (!backward)
        return BURST_OK;
    BURST_TRY(plan_exchange(c, s, channel, &(PlanShare){home->part[1], s->buffer.xdo, PLAN_HEAD_DIM, false}, true));
    BURST_TRY(plan_exchange(c, s, channel, &(PlanShare){home->part[2], s->buffer.xdelta, 1, false}, true));
    return plan_exchange(c, s, channel, &(PlanShare){home->part[3], s->buffer.xlse, 1, false}, true);
}

static inline int plan_to_tokens(BurstCtx *c, PlanState *s, int channel, int tensor)
{
    PlanSlot *home = &s->home[tensor];
    if (tensor == BURST_T_O) {
        BURST_TRY(plan_exchange(c, s, channel, &(PlanShare){home->part[0], s->buffer.xo, PLAN_HEAD_DIM, false}, false));
        return plan_exchange(c, s, channel, &(PlanShare){home->part[1], s->buffer.xlse, 1, false}, false);
    }
    if (tensor == BURST_T_DQ)
        return plan_exchange(c, s, channel, &(PlanShare){home->part[0], s->buffer.xdq, PLAN_HEAD_DIM, false}, false);
    BURST_TRY(plan_exchange_sums(c, s, channel, &(PlanShare){home->part[0], s->buffer.xdk, PLAN_HEAD_DIM, true}));
    return plan_exchange_sums(c, s, channel, &(PlanShare){home->part[1], s->buffer.xdv, PLAN_HEAD_DIM, true});
}

/* Chunks q and kv of the whole sequence, for this rank's heads. */
static inline BurstAttend plan_share_pair(PlanState *s, int q, int kv)
{
    const PlanShare wide = {.width = PLAN_HEAD_DIM}, narrow = {.width = PLAN_HEAD_DIM, .keys = true}, row = {.width = 1};
    const PlanBuffers *b = &s->buffer;
    int64_t at = plan_share_offset(s, &wide, q), row_at = plan_share_offset(s, &row, q);
    int64_t kv_at = plan_share_offset(s, &narrow, kv);
    return (BurstAttend){.head_dim = PLAN_HEAD_DIM, .q_heads = plan_head_count(&wide, s->me),
                         .kv_heads = plan_head_count(&narrow, s->me), .q_head0 = plan_head0(s->me), .kv_head0 = plan_kv0(s->me),
                         .group = PLAN_KV_SHARE, .scale = PLAN_SCALE, .softcap = PLAN_SOFTCAP, .mask = plan_masks[s->mask],
                         .tables = s->tables,
                         .qc = &s->chunk[q], .kc = &s->chunk[kv], .q = b->xq + at, .k = b->xk + kv_at, .v = b->xv + kv_at,
                         .o = b->xo + at, .lse = b->xlse + row_at, .lse_rest = b->xdelta + row_at,
                         .d_o = b->xdo + at, .delta = b->xdelta + row_at,
                         .dq = b->xdq + at, .dk = b->xdk + kv_at, .dv = b->xdv + kv_at, .scratch = b->attend_scratch};
}

static inline int plan_attend_all(BurstCtx *c, PlanState *s)
{
    burst_doing(c, "attention forward");
    burst_part(c, BURST_P_ATTENTION, 0, 0);
    for (int q = 0; q < PLAN_GROUP; q++) {
        BurstAttend start = plan_share_pair(s, q, q);
        burst_attend_start(&start);
        for (int kv = 0; kv < PLAN_GROUP; kv++) {
            BurstAttend a = plan_share_pair(s, q, kv);
            if (s->buffer.pair_live[s->mask][q * PLAN_GROUP + kv])
                burst_attend_forward(&a);
        }
    }
    return BURST_OK;
}

static inline int plan_grad_all(BurstCtx *c, PlanState *s)
{
    int64_t tokens = (int64_t)PLAN_SEQUENCE * PLAN_HEAD_DIM;
    int kv_heads = plan_kv_end(s->me) - plan_kv0(s->me);
    burst_doing(c, "attention backward");
    burst_part(c, BURST_P_ATTENTION_BACK, 0, 0);
    memset(s->buffer.xdq, 0, (size_t)(tokens * (plan_head0(s->me + 1) - plan_head0(s->me))) * sizeof(float));
    memset(s->buffer.xdk, 0, (size_t)(tokens * kv_heads) * sizeof(float));
    memset(s->buffer.xdv, 0, (size_t)(tokens * kv_heads) * sizeof(float));
    for (int q = 0; q < PLAN_GROUP; q++)
        for (int kv = 0; kv < PLAN_GROUP; kv++) {
            BurstAttend a = plan_share_pair(s, q, kv);
            if (s->buffer.pair_live[s->mask][q * PLAN_GROUP + kv])
                burst_attend_backward(&a);
        }
    return BURST_OK;
}

/* The end of a direction: every exchange has been waited for. */
static inline int plan_settle(BurstCtx *c, PlanState *s)
{
    (void)c, (void)s;
    return BURST_OK;
}

#endif
