/* burst_rings_host.h: rings on the host: transfers, and computing of one pair of chunks. */
#ifndef BURST_RINGS_HOST_H
#define BURST_RINGS_HOST_H

#include "burst_state_host.h"
#ifdef PLAN_SHARES /* ranks share heads */
#include "burst_heads_host.h"
#else
#include "burst_chunks_host.h"
#endif
#include "burst_rings.h"

/* Computed before. */
static inline int plan_home_ready(PlanState *s, PlanSlot *home)
{
    (void)s, (void)home;
    return BURST_OK;
}

/* ---- transfers ---- */

/* Waits name a stream, as in the schedule: a channel, or PLAN_COMPUTE. On the host every stream is this
 * process: computing ends before its call returns, and transfers are waited for where they are needed. */
/* Waits until the pool's next slot may be filled: its old content was read and sent. */
static inline int plan_wait_free(BurstCtx *c, PlanState *s, int stream, int pool)
{
    PlanPool *p = &s->pool[pool];
    PlanSlot *slot = &p->slot[p->uses % p->slots];
    (void)stream;
    for (int channel = 0; channel < PLAN_CHANNELS; channel++)
        for (int i = 0; i < PLAN_PARTS; i++)
            BURST_TRY(burst_wait(c, &slot->leaving[channel][i]));
    return BURST_OK;
}

/* Waits for the chunk's messages. */
static inline int plan_wait_arrived(BurstCtx *c, PlanState *s, int stream, int tensor, int chunk)
{
    PlanSlot *slot = s->held[tensor][chunk];
    (void)stream;
    if (!slot)
        return burst_fail(c, BURST_E_PLAN, "chunk %d of tensor %d is not at rank %d", chunk, tensor,
                          burst_rank(c));
    for (int i = 0; i < PLAN_PARTS; i++)
        BURST_TRY(burst_wait(c, &slot->arriving[i]));
    return BURST_OK;
}

/* Waits until the chunk's partial sum is computed. */
static inline int plan_wait_computed(BurstCtx *c, PlanState *s, int stream, int tensor, int chunk)
{
    (void)stream;
    if (!s->held[tensor][chunk])
        return burst_fail(c, BURST_E_PLAN, "rank %d has no sum of chunk %d of tensor %d", burst_rank(c),
                          chunk, tensor);
    return BURST_OK;
}

/* The strips of a part in a transfer: all of it, or for each head the tokens of some tiles, at their offset
 * in the chunk. Returns their number. */
static inline int plan_strips(const PlanState *s, int tensor, int part, const PlanSlot *slot,
                              const BurstTileRanges *tiles, BurstStrip *out)
{
    const size_t all = (size_t)plan_part_words(s, tensor, part, slot->chunk) * sizeof(float);
    const size_t heads = (size_t)plan_heads_of(s, tensor), head = all / heads;
    const int64_t tokens = plan_chunk_in(s, tensor, slot->chunk)->tokens;
    const int runs = burst_ranges_count(tiles);
    out[0] = (BurstStrip){slot->part[part], 1, all, all};
    for (int i = 0; i < runs && !burst_is_whole(*tiles); i++) {
        const int64_t begin = burst_tile_begin(tiles->at[i].lo, tokens),
                      count = burst_range_tokens(tiles->at[i], tokens);
        const size_t token = head / (size_t)tokens;
        out[i] = (BurstStrip){slot->part[part] + (size_t)begin * token / sizeof(float), heads,
                              (size_t)count * token, head};
    }
    return runs;
}

static inline int plan_send(BurstCtx *c, PlanState *s, int channel, int tensor, PlanSlot *slot, int to,
                            BurstTileRanges tiles)
{
    BurstStrip strip[BURST_RANGES];
    for (int i = 0; i < PLAN_PARTS && plan_part_width[tensor][i] && slot->part[i]; i++) {
        BurstReq *request = &slot->leaving[channel][i];
        BURST_TRY(burst_wait(c, request)); /* a rank's own chunks are sent more than once */
        const int strips = plan_strips(s, tensor, i, slot, &tiles, strip);
        BURST_TRY(burst_send_rows(c, channel, plan_peer(s, to), strip, strips, request));
    }
    return BURST_OK;
}

static inline int plan_receive(BurstCtx *c, PlanState *s, int channel, int tensor, PlanSlot *slot, int from)
{
    BurstStrip strip[BURST_RANGES];
    for (int i = 0; i < PLAN_PARTS && plan_part_width[tensor][i] && slot->part[i]; i++) {
        const int strips = plan_strips(s, tensor, i, slot, &slot->tiles, strip);
        BURST_TRY(burst_recv_rows(c, channel, plan_peer(s, from), strip, strips, &slot->arriving[i]));
    }
    return BURST_OK;
}

/* One hop of a copy. */
static inline int plan_pass(BurstCtx *c, PlanState *s, const BurstLive *live, int op, PlanHop h)
{
    PlanSlot *slot = plan_next(&s->pool[h.pool]);
    if (live->send[op])
        BURST_TRY(
            plan_send(c, s, h.channel, h.tensor, s->held[h.tensor][h.chunk], h.to, plan_sent(live, op)));
    slot->chunk = h.next;
    slot->tiles = plan_received(live, op);
    s->held[h.tensor][h.next] = slot;
    if (live->recv[op])
        BURST_TRY(plan_receive(c, s, h.channel, h.tensor, slot, h.from));
    return BURST_OK;
}

/* One hop of a partial sum, which the receiver adds to its own sum of that chunk before passing that on. */
static inline int plan_pass_sum(BurstCtx *c, PlanState *s, const BurstLive *live, int op, PlanHop h)
{
    PlanSlot *slot = plan_next(&s->pool[h.pool]);
    if (live->send[op])
        BURST_TRY(
            plan_send(c, s, h.channel, h.tensor, s->held[h.tensor][h.chunk], h.to, plan_sent(live, op)));
    s->held[h.tensor][h.chunk] = NULL;
    slot->chunk = h.next;
    slot->tiles = plan_received(live, op);
    slot->pending = live->recv[op];
    if (live->recv[op])
        BURST_TRY(plan_receive(c, s, h.channel, h.tensor, slot, h.from));
    return BURST_OK;
}

static inline void plan_start_sum(PlanState *s, int tensor, PlanSlot *sum)
{
    const BurstAttend start = {.head_dim = PLAN_HEAD_DIM,
                               .value_dim = PLAN_VALUE_DIM,
                               .q_heads = s->heads.queries,
                               .qc = plan_chunk_in(s, tensor, sum->chunk),
                               .o = sum->part[0],
                               .lse = sum->part[1]};
    if (tensor == BURST_T_O && !sum->started)
        burst_attend_start(&start);
    for (int i = 0; i < PLAN_PARTS && plan_part_width[tensor][i] && !sum->started && tensor != BURST_T_O; i++)
        memset(sum->part[i], 0, (size_t)plan_part_words(s, tensor, i, sum->chunk) * sizeof(float));
    sum->started = true;
}

/* The rounding error of lse, for this rank's own output or a part of another's. */
static inline float *plan_lse_rest(PlanState *s, const PlanSlot *o)
{
    return o == plan_own(s, BURST_T_O) ? s->buffer.lse_rest : o->part[2];
}

/* Merges outputs of different keys, weighted by their lse. */
static inline void plan_merge_output(PlanState *s, const PlanSlot *in, PlanSlot *sum)
{
    const int64_t tokens = s->chunk[in->chunk].tokens;
    for (int i = 0; i < burst_ranges_count(&in->tiles); i++)
        for (int head = 0; head < s->heads.queries; head++) {
            const int64_t row = head * tokens + burst_tile_begin(in->tiles.at[i].lo, tokens),
                          o = row * PLAN_VALUE_DIM;
            burst_attend_merge(burst_range_tokens(in->tiles.at[i], tokens), PLAN_VALUE_DIM, in->part[0] + o,
                               in->part[1] + row, in->part[2] + row, sum->part[0] + o, sum->part[1] + row,
                               plan_lse_rest(s, sum) + row);
        }
}

static inline void plan_add(PlanState *s, int tensor, const PlanSlot *in, PlanSlot *sum)
{
    if (tensor == BURST_T_O)
        plan_merge_output(s, in, sum);
    for (int i = 0; i < PLAN_PARTS && plan_part_width[tensor][i] && tensor != BURST_T_O; i++) {
        BurstStrip strip[BURST_RANGES];
        const int strips = plan_strips(s, tensor, i, in, &in->tiles, strip);
        for (int j = 0; j < strips; j++)
            for (size_t row = 0; row < strip[j].rows; row++) {
                const float *from = (const float *)((const char *)strip[j].data + row * strip[j].pitch);
                burst_add((int64_t)(strip[j].bytes / sizeof *from), from,
                          sum->part[i] + (from - in->part[i]));
            }
    }
}

/* Adds the chunk's arrived partial sums to this rank's own. */
static inline int plan_merge(BurstCtx *c, PlanState *s, int tensor, int chunk)
{
    PlanSlot *sum = s->held[tensor][chunk];
    for (int p = 0; p < PLAN_POOLS; p++) {
        for (int k = 0; k < s->pool[p].slots && s->pool[p].tensor == tensor; k++) {
            PlanSlot *in = &s->pool[p].slot[k];
            if (!in->pending || in->chunk != chunk)
                continue;
            if (!sum)
                return burst_fail(c, BURST_E_PLAN, "no slot for the sum of chunk %d at rank %d", chunk,
                                  burst_rank(c));
            burst_part(c, BURST_P_MERGE, 0, 0);
            plan_start_sum(s, tensor, sum);
            for (int i = 0; i < PLAN_PARTS; i++)
                BURST_TRY(burst_wait(c, &in->arriving[i]));
            plan_add(s, tensor, in, sum);
            in->pending = false;
            burst_part(c, BURST_P_IDLE, 0, 0);
        }
    }
    return BURST_OK;
}

static inline int plan_settle_slot(BurstCtx *c, PlanSlot *slot)
{
    for (int i = 0; i < PLAN_PARTS; i++) {
        BURST_TRY(burst_wait(c, &slot->arriving[i]));
        for (int channel = 0; channel < PLAN_CHANNELS; channel++)
            BURST_TRY(burst_wait(c, &slot->leaving[channel][i]));
    }
    return BURST_OK;
}

/* At the end of a direction, waits for all transfers, so that all buffers may be reused. */
static inline int plan_settle(BurstCtx *c, PlanState *s)
{
    for (int t = 0; t < BURST_TENSORS; t++)
        for (int p = 0; p < plan_pieces_of(t); p++)
            BURST_TRY(plan_settle_slot(c, p ? plan_home_slot(s, t, p) : plan_own(s, t)));
    for (int p = 0; p < PLAN_POOLS; p++) {
        for (int k = 0; k < s->pool[p].slots; k++)
            BURST_TRY(plan_settle_slot(c, &s->pool[p].slot[k]));
        s->pool[p].uses = 0;
    }
    return BURST_OK;
}

/* ---- computing of one pair ---- */

#ifdef PLAN_LATENTS
#include "burst_latents_host.h"
#else
/* Keys and values of a chunk, and this rank's sums of their gradients. */
static inline void plan_pair_keys(PlanState *s, int kv, BurstAttend *a)
{
    a->k = s->held[BURST_T_KV][kv]->part[0];
    a->v = s->held[BURST_T_KV][kv]->part[1];
}

static inline void plan_pair_sums(PlanState *s, int kv, BurstAttend *a)
{
    a->dk = s->held[BURST_T_DKV][kv]->part[0];
    a->dv = s->held[BURST_T_DKV][kv]->part[1];
}

static inline void plan_pair_end(PlanState *s, int kv) { (void)s, (void)kv; }
#endif

static inline BurstAttend plan_pair(PlanState *s, int q, int kv)
{
    const PlanSlot *qs = s->held[BURST_T_Q][q];
    BurstAttend a = plan_pair_heads(s);
    a.softcap = PLAN_SOFTCAP;
    a.mask = plan_masks[s->mask];
    a.tables = s->tables;
#ifdef PLAN_SELECTIONS
    if (a.mask->selection) {
        a.chosen = s->chosen;
        a.chosen_lists = burst_select_lists(a.mask->selection->heads, PLAN_ALL_HEADS, PLAN_ALL_KV_HEADS);
    }
#endif
    a.q = qs->part[0];
    plan_pair_keys(s, kv, &a);
    a.scratch = s->buffer.attend_scratch;
    return a;
}

/* Folds the pair into the running output and lse of the queries. */
static inline int plan_attend(BurstCtx *c, PlanState *s, int q, int kv)
{
    PlanSlot *o = s->held[BURST_T_O][q];
    if (!o)
        return burst_fail(c, BURST_E_PLAN, "no slot for the output of pair %d, %d at rank %d", q, kv,
                          burst_rank(c));
    burst_doing(c, "attention forward");
    burst_part(c, BURST_P_ATTEND, q, kv);
    BurstAttend a = plan_pair(s, q, kv);
    plan_start_sum(s, BURST_T_O, o);
    a.o = o->part[0];
    a.lse = o->part[1];
    a.lse_rest = plan_lse_rest(s, o);
    plan_run_pair(s, a, q, kv, burst_attend_forward);
    burst_part(c, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

/* Adds the pair's gradients to this rank's sums of dQ[q] and dKV[kv]. */
static inline int plan_grad(BurstCtx *c, PlanState *s, int q, int kv)
{
    PlanSlot *qs = s->held[BURST_T_Q][q], *dq = s->held[BURST_T_DQ][q], *dkv = s->held[BURST_T_DKV][kv];
    if (!dq || !dkv)
        return burst_fail(c, BURST_E_PLAN, "no slot for the gradients of pair %d, %d at rank %d", q, kv,
                          burst_rank(c));
    burst_doing(c, "attention backward");
    burst_part(c, BURST_P_GRAD, q, kv);
    BurstAttend a = plan_pair(s, q, kv);
    plan_start_sum(s, BURST_T_DQ, dq);
    plan_start_sum(s, BURST_T_DKV, dkv);
    a.d_o = qs->part[1];
    a.delta = qs->part[2];
    a.lse = qs->part[3];
    a.dq = dq->part[0];
    plan_pair_sums(s, kv, &a);
    plan_run_pair(s, a, q, kv, burst_attend_backward);
    plan_pair_end(s, kv);
    burst_part(c, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

#endif
