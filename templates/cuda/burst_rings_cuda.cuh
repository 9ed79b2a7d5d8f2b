/* burst_rings_cuda.cuh: rings on GPUs: transfers, and computing of pairs of chunks. */
#ifndef BURST_RINGS_CUDA_CUH
#define BURST_RINGS_CUDA_CUH

#include "burst_state_cuda.cuh"
#ifdef PLAN_SHARES /* ranks share heads */
#include "burst_heads_cuda.cuh"
#else
#include "burst_chunks_cuda.cuh"
#endif
#include "burst_rings.h"

/* ---- slots ---- */

/* The slot was computed earlier on the compute stream. */
static inline int plan_home_ready(PlanState *s, PlanSlot *home)
{
    return burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &home->used);
}

static inline bool plan_is_own(PlanState *s, int tensor, const PlanSlot *slot)
{
    bool own = slot == plan_own(s, tensor);
    for (int p = 1; p < plan_pieces_of(tensor); p++)
        own = own || slot == plan_home_slot(s, tensor, p);
    return own;
}

/* ---- transfers ---- */

static inline cudaStream_t plan_stream(PlanState *s, int stream)
{
    return stream == PLAN_COMPUTE ? burst_gpu_compute(s->exec) : burst_gpu_channel(s->exec, stream);
}

/* Before a slot is filled, launches pending pairs, which may read it. If forward has launches for several
 * chunks, it fills no slot twice, so pairs wait for the others of their launch instead. */
static inline int plan_launch_before_fill(BurstCtx *c, PlanState *s)
{
    const bool fills_once = s->at_once || (PLAN_IN_GROUPS && !s->launch.gradients);
    return fills_once ? BURST_OK : plan_launch(c, s);
}

/* Makes the stream wait until the pool's next slot may be filled: its old content was read, added and
 * sent. */
static inline int plan_wait_free(BurstCtx *c, PlanState *s, int stream, int pool)
{
    PlanPool *p = &s->pool[pool];
    PlanSlot *slot = &p->slot[p->uses % p->slots];
    BURST_TRY(plan_launch_before_fill(c, s));
    BURST_TRY(burst_gpu_after(s->exec, plan_stream(s, stream), &slot->used));
    for (int channel = 0; channel < PLAN_CHANNELS; channel++)
        BURST_TRY(burst_gpu_after(s->exec, plan_stream(s, stream), &slot->sent[channel]));
    return BURST_OK;
}

static inline int plan_find(BurstCtx *c, PlanState *s, int tensor, int chunk, PlanSlot **slot)
{
    *slot = s->held[tensor][chunk];
    if (*slot)
        return BURST_OK;
    return burst_fail(c, BURST_E_PLAN, "chunk %d of tensor %d is not at rank %d", chunk, tensor,
                      burst_rank(c));
}

static inline const PlanPool *plan_pool_of(const PlanState *s, const PlanSlot *slot)
{
    for (int p = 0; p < PLAN_POOLS; p++)
        for (int k = 0; k < s->pool[p].slots; k++)
            if (slot == &s->pool[p].slot[k])
                return &s->pool[p];
    return NULL; /* at its owner */
}

/* Whether a launch takes several chunks of other ranks' keys. */
static inline bool plan_joins(const PlanState *s)
{
    return s->launch.gradients ? PLAN_GRADS_AT_ONCE : PLAN_IN_GROUPS;
}

/* Whether adding this slot's pair would delay pending pairs: pairs with the rank's own keys wait for no
 * transfer, others for no second one of the same kind unless launches take several chunks. Halves of a chunk
 * from two sides arrive at the same time. */
static inline bool plan_delays(const PlanState *s, const PlanSlot *slot)
{
    const PlanPool *pool = plan_pool_of(s, slot);
    bool delays = false;
    for (int i = 0; i < s->launch.pairs && pool; i++) {
        const PlanPool *other = plan_pool_of(s, s->launch.slot[i][1]);
        delays = delays || !other || (other == pool && !plan_joins(s));
    }
    return delays;
}

/* Makes the stream wait for the chunk's transfer. With one launch for all pairs, or for each piece of the
 * heads, the launch waits instead. */
static inline int plan_wait_arrived(BurstCtx *c, PlanState *s, int stream, int tensor, int chunk)
{
    PlanSlot *slot;
    BURST_TRY(plan_find(c, s, tensor, chunk, &slot));
    if (stream == PLAN_COMPUTE && (s->at_once || (PLAN_HEAD_PIECES > 1 && tensor == BURST_T_Q)))
        return BURST_OK;
    if (stream == PLAN_COMPUTE && plan_delays(s, slot))
        BURST_TRY(plan_launch(c, s));
    return burst_gpu_after(s->exec, plan_stream(s, stream), &slot->arrived);
}

/* Makes the stream wait for all computing that adds to the chunk's partial sum. */
static inline int plan_wait_computed(BurstCtx *c, PlanState *s, int stream, int tensor, int chunk)
{
    PlanSlot *slot;
    BURST_TRY(plan_launch(c, s));
    BURST_TRY(plan_find(c, s, tensor, chunk, &slot));
    return burst_gpu_after(s->exec, plan_stream(s, stream), &slot->used);
}

/* lands: the receiver's slot, which has the same index and so the same offset as this rank's; or NULL. */
static inline int plan_buffers(PlanState *s, int tensor, PlanSlot *slot, PlanSlot *lands, BurstBuffer *out)
{
    int count = 0;
    for (; count < PLAN_PARTS && plan_part_width[tensor][count] && slot->part[count]; count++) {
        out[count].data = slot->part[count];
        out[count].bytes = (size_t)plan_part_words(s, tensor, count, slot->chunk);
        out[count].lands = lands ? lands->part[count] : NULL;
    }
    return count;
}

enum { PLAN_STRIPS = PLAN_PARTS * BURST_RANGES };

/* Rows of a part: one per head and token, or, if a token's heads are adjacent, one per token. */
static inline size_t plan_part_rows(const PlanState *s, int tensor, int part)
{
    const bool by_token = tensor == BURST_T_KV || (tensor == BURST_T_Q && part < 2); /* k, v; q, d_o */
    return by_token ? 1 : (size_t)plan_heads_of(s, tensor);
}

/* The buffers of some tiles: a piece for each run of tiles. */
static inline int plan_strips(PlanState *s, int tensor, PlanSlot *slot, PlanSlot *lands,
                              const BurstTileRanges *tiles, int peer, BurstPiece *out)
{
    BurstPiece *piece = out;
    for (int part = 0; part < PLAN_PARTS && plan_part_width[tensor][part] && slot->part[part]; part++) {
        const size_t rows = burst_is_whole(*tiles) ? 1 : plan_part_rows(s, tensor, part),
                     pitch = (size_t)plan_part_words(s, tensor, part, slot->chunk) / rows;
        const int64_t tokens = plan_chunk_in(s, tensor, slot->chunk)->tokens,
                      token = tokens > 0 ? (int64_t)pitch / tokens : 0;
        for (int i = 0; i < burst_ranges_count(tiles); i++, piece++) {
            const int64_t begin = burst_tile_begin(tiles->at[i].lo, tokens) * token;
            piece->peer = peer;
            piece->data = slot->part[part] + begin;
            piece->width = burst_is_whole(*tiles)
                               ? pitch
                               : (size_t)(burst_range_tokens(tiles->at[i], tokens) * token);
            piece->rows = rows;
            piece->pitch = piece->lands_pitch = pitch;
            piece->lands = lands ? lands->part[part] + begin : NULL;
        }
    }
    return (int)(piece - out);
}

static inline bool plan_is_copy(int tensor)
{
    return tensor == BURST_T_Q || tensor == BURST_T_KV;
}

/* Whether arriving ranges of keys end where kernels' tiles of keys end. */
static inline bool plan_in_tiles(const PlanState *s, int tensor)
{
#if defined PLAN_LATENTS || defined PLAN_SHARES || defined PLAN_KEY_CHUNKS
    (void)s;
    return false && tensor;
#else
    return tensor == BURST_T_KV && plan_carries_tiles(s);
#endif
}

static inline BurstTileRanges plan_carried(const PlanState *s, int tensor, BurstTileRanges needed)
{
    enum { STEP = PLAN_CARRIED / BURST_TILE };
    BurstTileRanges carried = {};
    if (burst_is_whole(needed) || !plan_in_tiles(s, tensor))
        return needed;
    for (int i = 0; i < burst_ranges_count(&needed); i++)
        carried = burst_join(carried, burst_tiles_from(needed.at[i].lo / STEP * STEP,
                                                       (needed.at[i].hi + STEP - 1) / STEP * STEP));
    return carried;
}

/* If tiles reach over the ends of an arriving copy, clears the rest of the slot: kernels mask it, but it
 * must contain numbers. */
static inline int plan_clear_rest(BurstCtx *c, PlanState *s, int tensor, PlanSlot *slot, cudaStream_t stream)
{
    const int runs = burst_ranges_count(&slot->tiles);
    const int64_t tokens = plan_chunk_in(s, tensor, slot->chunk)->tokens;
    for (int i = 0; i <= runs; i++) {
        const int64_t begin = i > 0 ? burst_tile_begin(slot->tiles.at[i - 1].hi, tokens) : 0;
        const int64_t end = i < runs ? burst_tile_begin(slot->tiles.at[i].lo, tokens) : tokens;
        for (int part = 0;
             part < PLAN_PARTS && plan_part_width[tensor][part] && slot->part[part] && begin < end; part++) {
            const size_t rows = plan_part_rows(s, tensor, part),
                         pitch = (size_t)plan_part_words(s, tensor, part, slot->chunk) / rows;
            const size_t token = pitch / (size_t)tokens;
            PLAN_CUDA(cudaMemset2DAsync(slot->part[part] + (size_t)begin * token, pitch, 0,
                                        (size_t)(end - begin) * token, rows, stream));
        }
    }
    return BURST_OK;
}

/* One hop with ranges of a copy, or of a sum. */
static inline int plan_hop_ranges(BurstCtx *c, PlanState *s, const BurstLive *live, int op, const PlanHop *h,
                                  PlanSlot *from, PlanSlot *to)
{
    BurstPiece out[PLAN_STRIPS], in[PLAN_STRIPS];
    const BurstTileRanges leaves = plan_carried(s, h->tensor, plan_sent(live, op));
    const int sends = live->send[op] ? plan_strips(s, h->tensor, from, to, &leaves, plan_peer(s, h->to), out)
                                     : 0;
    const int receives = live->recv[op]
                             ? plan_strips(s, h->tensor, to, NULL, &to->tiles, plan_peer(s, h->from), in)
                             : 0;
    if (receives && plan_is_copy(h->tensor) && !plan_in_tiles(s, h->tensor))
        BURST_TRY(plan_clear_rest(c, s, h->tensor, to, burst_gpu_channel(s->exec, h->channel)));
    return burst_gpu_exchange(s->exec, h->channel, out, sends, in, receives, (void *)NULL, 0);
}

static inline int plan_hop_chunks(PlanState *s, const BurstLive *live, int op, const PlanHop *h,
                                  PlanSlot *from, PlanSlot *to)
{
    BurstBuffer out[PLAN_PARTS], in[PLAN_PARTS];
    const int sends = live->send[op] ? plan_buffers(s, h->tensor, from, to, out) : 0;
    const int receives = live->recv[op] ? plan_buffers(s, h->tensor, to, NULL, in) : 0;
    return burst_gpu_hop(s->exec, h->channel, out, sends, plan_peer(s, h->to), in, receives,
                         plan_peer(s, h->from));
}

/* Queues the transfer of one hop on the channel's stream. */
static inline int plan_move(BurstCtx *c, PlanState *s, const BurstLive *live, int op, const PlanHop *h,
                            PlanSlot *from, PlanSlot *to)
{
    const bool sends = live->send[op], receives = live->recv[op];
    cudaStream_t stream = burst_gpu_channel(s->exec, h->channel);
    if (sends && plan_is_own(s, h->tensor, from))
        /* computed before this attention */
        BURST_TRY(burst_gpu_after(s->exec, stream, &from->used));
    if (sends || receives) {
        BURST_TRY(burst_gpu_part(s->exec, stream, (sends ? BURST_P_PASS_Q : BURST_P_RECEIVE_Q) + h->tensor,
                                 sends ? h->chunk : h->next, plan_peer(s, sends ? h->to : h->from)));
        to->tiles = plan_carried(s, h->tensor, plan_received(live, op));
        BURST_TRY(live->sent ? plan_hop_ranges(c, s, live, op, h, from, to)
                             : plan_hop_chunks(s, live, op, h, from, to));
        BURST_TRY(burst_gpu_part(s->exec, stream, BURST_P_IDLE, 0, 0));
    }
    if (sends)
        BURST_TRY(burst_gpu_mark(s->exec, stream, &from->sent[h->channel]));
    return receives ? burst_gpu_mark(s->exec, stream, &to->arrived) : BURST_OK;
}

static inline int plan_pass(BurstCtx *c, PlanState *s, const BurstLive *live, int op, PlanHop h)
{
    BURST_TRY(plan_launch_before_fill(c, s));
    PlanSlot *slot = plan_next(&s->pool[h.pool]), *from;
    BURST_TRY(plan_find(c, s, h.tensor, h.chunk, &from));
    slot->chunk = h.next;
    s->held[h.tensor][h.next] = slot;
    return plan_move(c, s, live, op, &h, from, slot);
}

/* One hop of a partial sum, which the receiver adds to its own sum of that chunk before passing that on. */
static inline int plan_pass_sum(BurstCtx *c, PlanState *s, const BurstLive *live, int op, PlanHop h)
{
    BURST_TRY(plan_launch(c, s));
    PlanSlot *slot = plan_next(&s->pool[h.pool]), *from;
    BURST_TRY(plan_find(c, s, h.tensor, h.chunk, &from));
    s->held[h.tensor][h.chunk] = NULL;
    slot->chunk = h.next;
    slot->pending = live->recv[op];
    return plan_move(c, s, live, op, &h, from, slot);
}

static inline int plan_start_sum(PlanState *s, int tensor, PlanSlot *sum)
{
    for (int i = 0; i < PLAN_PARTS && plan_part_width[tensor][i] && !sum->started; i++)
        BURST_TRY(burst_gpu_zero(s->exec, sum->part[i], (size_t)plan_part_words(s, tensor, i, sum->chunk)));
    sum->started = true;
    return BURST_OK;
}

/* The running output of a chunk of queries, this rank's or another's, and its lse. */
static inline float *plan_output(PlanState *s, const PlanSlot *o)
{
    return o == plan_own(s, BURST_T_O) ? plan_running_output(s) : (float *)o->part[0];
}

static inline float *plan_output_lse(PlanState *s, const PlanSlot *o)
{
    return (float *)o->part[o == plan_own(s, BURST_T_O) ? 0 : 1];
}

/* Merges outputs of different keys, weighted by their lse. */
static inline int plan_merge_output(PlanState *s, PlanSlot *in, PlanSlot *sum)
{
    BURST_TRY(burst_gpu_merge_output(s->exec, s->heads.queries, s->chunk[in->chunk].tokens, in->tiles,
                                     PLAN_VALUE_DIM, !sum->started, plan_output(s, in),
                                     plan_output_lse(s, in), plan_output(s, sum), plan_output_lse(s, sum)));
    sum->started = true;
    return BURST_OK;
}

static inline int plan_add(PlanState *s, int tensor, PlanSlot *in, PlanSlot *sum)
{
    cudaStream_t compute = burst_gpu_compute(s->exec);
    BURST_TRY(plan_part(s, BURST_P_MERGE, 0, 0));
    BURST_TRY(burst_gpu_after(s->exec, compute, &in->arrived));
    if (tensor == BURST_T_O)
        BURST_TRY(plan_merge_output(s, in, sum));
    else
        BURST_TRY(plan_start_sum(s, tensor, sum));
    BurstPiece arrived[PLAN_STRIPS];
    const int parts = tensor == BURST_T_O ? 0 : plan_strips(s, tensor, in, sum, &in->tiles, 0, arrived);
    for (int i = 0; i < parts; i++)
        BURST_TRY(burst_gpu_add_rows(s->exec, compute, (int64_t)arrived[i].rows,
                                     (int64_t)(arrived[i].width / sizeof(float)),
                                     (int64_t)(arrived[i].pitch / sizeof(float)),
                                     (const float *)arrived[i].data, (float *)arrived[i].lands));
    in->pending = false;
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    BURST_TRY(burst_gpu_mark(s->exec, compute, &in->used));
    return burst_gpu_mark(s->exec, compute, &sum->used);
}

/* Adds the chunk's arrived partial sums to this rank's own. */
static inline int plan_merge(BurstCtx *c, PlanState *s, int tensor, int chunk)
{
    BURST_TRY(plan_launch(c, s));
    for (int p = 0; p < PLAN_POOLS; p++) {
        for (int k = 0; k < s->pool[p].slots && s->pool[p].tensor == tensor; k++) {
            PlanSlot *in = &s->pool[p].slot[k], *sum;
            if (!in->pending || in->chunk != chunk)
                continue;
            BURST_TRY(plan_find(c, s, tensor, chunk, &sum));
            BURST_TRY(plan_add(s, tensor, in, sum));
        }
    }
    return BURST_OK;
}

/* At the end of a direction, makes computing wait until this rank's own buffers have been sent. */
static inline int plan_settle(BurstCtx *c, PlanState *s)
{
    cudaStream_t compute = burst_gpu_compute(s->exec);
    BURST_TRY(plan_launch(c, s));
    for (int t = 0; t < BURST_TENSORS; t++)
        BURST_TRY(plan_settle_own(s, t));
    for (int p = 0; p < PLAN_POOLS; p++) {
        for (int k = 0; k < s->pool[p].slots; k++) {
            PlanSlot *slot = &s->pool[p].slot[k];
            BURST_TRY(burst_gpu_after(s->exec, compute, &slot->arrived));
            for (int channel = 0; channel < PLAN_CHANNELS; channel++)
                BURST_TRY(burst_gpu_after(s->exec, compute, &slot->sent[channel]));
        }
        s->pool[p].uses = 0;
    }
    return BURST_OK;
}

/* ---- computing of pairs ---- */

#ifdef PLAN_LATENTS
#include "burst_latents_cuda.cuh"
#else
/* Keys and values of a chunk, and this rank's sums of their gradients. */
static inline int plan_pair_keys(PlanState *s, int part, int q, int kv, PlanWord **k, PlanWord **v)
{
    (void)part, (void)q;
    *k = s->held[BURST_T_KV][kv]->part[0];
    *v = s->held[BURST_T_KV][kv]->part[1];
    return BURST_OK;
}

static inline int plan_pair_sums(PlanState *s, int kv, float **dk, float **dv)
{
    *dk = (float *)s->held[BURST_T_DKV][kv]->part[0];
    *dv = (float *)s->held[BURST_T_DKV][kv]->part[1];
    return BURST_OK;
}

static inline int plan_pair_end(BurstCtx *c, PlanState *s, int q, int kv)
{
    (void)c, (void)s, (void)q, (void)kv;
    return BURST_OK;
}
#endif

/* Marks the end of the launch in the slots that it uses. */
static inline int plan_mark_used(PlanState *s, int pairs)
{
    BurstMark *first = NULL;
    for (int i = 0; i < pairs; i++)
        for (int k = 0; k < 4; k++) {
            PlanSlot *slot = s->launch.slot[i][k];
            if (!slot)
                continue;
            BURST_TRY(first ? burst_gpu_mark_too(s->exec, first, &slot->used)
                            : burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &slot->used));
            first = &slot->used;
        }
    return BURST_OK;
}

/* Queues the launch of the pending pairs. */
static inline int plan_launch(BurstCtx *c, PlanState *s)
{
    PlanLaunch *l = &s->launch;
    const int pairs = l->pairs;
    l->pairs = 0;
    if (!pairs)
        return BURST_OK;
    BURST_TRY(plan_part(s, l->gradients ? BURST_P_GRAD : BURST_P_ATTEND, l->q, l->kv));
    burst_doing(c, l->gradients ? "attention backward" : "attention forward");
    BURST_TRY(plan_launch_heads(c, s, pairs));
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    return plan_mark_used(s, pairs);
}

/* Takes a place for one more pair, with the queries in slot q, in the pending launch. A launch has pieces of
 * keys that are consecutive with no transfer between and do not delay each other, at most a chunk's.
 * Otherwise the pending pairs are launched first. */
static inline int plan_place(BurstCtx *c, PlanState *s, bool gradients, const PlanSlot *q, int chunk, int kv,
                             int *place)
{
    PlanLaunch *l = &s->launch;
    if (l->pairs && (l->gradients != gradients || l->queries != q))
        BURST_TRY(plan_launch(c, s));
    if (l->pairs == 0)
        l->queries = q, l->gradients = gradients, l->q = chunk, l->kv = kv;
    *place = l->pairs++;
    return BURST_OK;
}

static inline void plan_uses(PlanLaunch *l, int place, PlanSlot *q, PlanSlot *kv, PlanSlot *sum,
                             PlanSlot *sums)
{
    PlanSlot *const slot[] = {q, kv, sum, sums};
    memcpy(l->slot[place], slot, sizeof slot);
}

static inline bool plan_is_full(const PlanState *s)
{
    const int most = s->launch.gradients ? BURST_BACKWARD_CHUNKS : BURST_FORWARD_CHUNKS,
              row = plan_joins(s) ? most : PLAN_PIECES;
    return s->launch.pairs == (most < row ? most : row);
}

/* Before a forward: counts this rank's pairs. If outputs travel, no pair counts as the last. */
static inline void plan_count_pairs(PlanState *s)
{
    const BurstLive *live = &s->live[s->mask][0];
    s->attended = s->to_attend = 0;
    for (int i = 0; i < live->ops; i++)
        s->to_attend += live->compute[i];
    if (PLAN_OUTPUTS_TRAVEL || s->tile.suspends)
        s->to_attend = INT32_MAX;
    s->home[BURST_T_O].started = s->tile.resumes && s->begun;
    s->at_once = PLAN_AT_ONCE;
}

/* The tiles of a chunk of keys that these queries read. */
static inline BurstTileRanges plan_there(const PlanState *s, int q, int kv)
{
#if defined PLAN_SHARES || defined PLAN_KEY_CHUNKS
    (void)s, (void)q, (void)kv;
#else
    const size_t pair = (size_t)q * PLAN_KEYS + (size_t)kv;
    if (!s->buffer.pair_live[s->mask][pair])
        return burst_tiles_from(0, 0);
#ifdef PLAN_RANGES
    return s->buffer.pair_tiles[s->mask][pair].side[BURST_OF_KEYS];
#endif
#endif
    return burst_all_tiles();
}

/* Sets a pair in its place of a launch. k, v: its keys and values. */
static inline void plan_set_forward(PlanState *s, int place, int q, int kv, PlanSlot *qs, PlanSlot *o,
                                    PlanWord *k, PlanWord *v)
{
    const PlanHeads heads = plan_heads(s, false), keys = plan_heads(s, true);
    BurstForward &p = s->launch.forward[place];
    memset(&p, 0, sizeof p);
    p.q = plan_rows(qs->part[0], heads.count, PLAN_HEAD_DIM);
    p.k = plan_rows(k, keys.count, PLAN_HEAD_DIM);
    p.v = plan_rows(v, keys.count, PLAN_VALUE_DIM);
    p.out = plan_rows(plan_own(s, BURST_T_O)->part[1], heads.count, PLAN_VALUE_DIM);
    p.o = plan_output(s, o);
    p.lse = plan_output_lse(s, o);
    p.q_tokens = plan_tokens_of(s, BURST_T_Q, q);
    p.q_tokens.n = s->again ? (int)s->again : p.q_tokens.n;
    p.k_tokens = plan_tokens_of(s, BURST_T_KV, kv);
    p.q_heads = heads.count;
    p.q_head0 = heads.first;
    p.kv_head0 = keys.first;
    p.group = PLAN_KV_SHARE;
    p.scale = PLAN_SCALE;
    s->launch.there[place] = plan_there(s, q, kv);
}

/* ---- one launch for all pairs of forward ---- */

/* The index of a chunk of keys: pieces of the rank's own chunk come first. */
static inline int plan_key_place(const PlanState *s, int kv)
{
    return (kv % PLAN_GROUP - s->me + PLAN_GROUP) % PLAN_GROUP * PLAN_PIECES + kv / PLAN_GROUP;
}

/* Attends the queries that see no other rank's keys, before these arrive. For other chunks the launch has
 * their tokens, for the lists, and the rank's own keys as placeholders. */
static inline int plan_attend_home(BurstCtx *c, PlanState *s)
{
    PlanLaunch *l = &s->launch;
    PlanSlot *o = plan_own(s, BURST_T_O);
    BURST_TRY(plan_part(s, BURST_P_ATTEND, s->me, s->me));
    burst_doing(c, "attention forward");
    for (int kv = 0; kv < PLAN_KEYS; kv++) {
        const int place = plan_key_place(s, kv);
        const PlanSlot *ks = s->held[BURST_T_KV][place < PLAN_PIECES ? kv : s->me];
        plan_set_forward(s, place, s->me, kv, plan_own(s, BURST_T_Q), o, ks->part[0], ks->part[1]);
        plan_uses(l, place, NULL, NULL, NULL, NULL);
    }
    l->home = PLAN_PIECES;
    l->forward[0].flags = BURST_FIRST | BURST_LAST;
    PLAN_CUDA(plan_launch_forward(s, l->forward, PLAN_KEYS));
    o->started = true;
    return plan_part(s, BURST_P_IDLE, 0, 0);
}

/* Attends the queries that see other ranks' keys, once all pairs are known. */
static inline int plan_attend_rest(BurstCtx *c, PlanState *s)
{
    PlanLaunch *l = &s->launch;
    cudaStream_t compute = burst_gpu_compute(s->exec);
    for (int i = PLAN_PIECES; i < PLAN_KEYS; i++)
        if (l->slot[i][1]) {
            BURST_TRY(burst_gpu_after(s->exec, compute, &l->slot[i][1]->arrived));
            l->rest = true;
        }
    if (!l->rest)
        return BURST_OK;
    BURST_TRY(plan_part(s, BURST_P_ATTEND, s->me, s->me));
    PLAN_CUDA(plan_launch_forward(s, l->forward, PLAN_KEYS));
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    return plan_mark_used(s, PLAN_KEYS);
}

/* Adds the pair to the launch, which the last pair queues. */
static inline int plan_attend_later(BurstCtx *c, PlanState *s, int kv, PlanSlot *ks)
{
    const int place = plan_key_place(s, kv);
#ifdef PLAN_LIBRARY
    if (s->attended == 0) /* transfers were queued: NCCL's kernels would wait for this launch */
        BURST_TRY(plan_attend_home(c, s));
#endif
    if (place >= PLAN_PIECES) {
        BurstForward *p = &s->launch.forward[place];
        p->k.at = (BurstBf16 *)ks->part[0];
        p->v.at = (BurstBf16 *)ks->part[1];
        plan_uses(&s->launch, place, NULL, ks, NULL, NULL);
    }
    return ++s->attended == s->to_attend ? plan_attend_rest(c, s) : BURST_OK;
}

/* Folds the pair into the running output and lse of the queries. The last pair writes the output in bf16,
 * unless partial outputs travel. */
static inline int plan_attend(BurstCtx *c, PlanState *s, int q, int kv)
{
    PlanSlot *qs, *ks, *o;
    PlanWord *k, *v;
    int place;
    BURST_TRY(plan_find(c, s, BURST_T_Q, q, &qs));
    BURST_TRY(plan_find(c, s, BURST_T_KV, kv, &ks));
    BURST_TRY(plan_find(c, s, BURST_T_O, q, &o));
    BURST_TRY(plan_pair_keys(s, BURST_P_ATTEND, q, kv, &k, &v));
    if (s->at_once)
        return plan_attend_later(c, s, kv, ks);
    BURST_TRY(plan_place(c, s, false, qs, q, kv, &place));
    plan_set_forward(s, place, q, kv, qs, o, k, v);
    s->launch.forward[0].flags |= (o->started ? 0 : BURST_FIRST) |
                                  (s->attended >= s->to_attend - 1 ? BURST_LAST : 0);
    s->attended++;
    o->started = true;
    plan_uses(&s->launch, place, qs == &s->home[BURST_T_Q] ? NULL : qs, ks,
              o == &s->home[BURST_T_O] ? NULL : o, NULL);
    return plan_is_full(s) ? plan_launch(c, s) : BURST_OK;
}

/* After a forward: a query without keys gets zeros and lse -inf. Partial outputs that arrived are in the
 * running output, which is written in bf16. */
static inline int plan_attend_end(BurstCtx *c, PlanState *s)
{
    s->begun = plan_own(s, BURST_T_O)->started;
    s->at_once = s->launch.rest = false;
    s->launch.home = 0;
    if (s->tile.suspends)
        return BURST_OK;
    if (PLAN_AT_ONCE && s->attended < s->to_attend)
        return burst_fail(c, BURST_E_PLAN, "%d pairs of chunks of %d", s->attended, s->to_attend);
    if (!s->begun) {
        s->to_attend = 0;
        /* the last piece is the largest */
        BURST_TRY(plan_attend(c, s, s->me, s->me + (PLAN_PIECES - 1) * PLAN_GROUP));
        return plan_launch(c, s);
    }
    if (!PLAN_OUTPUTS_TRAVEL)
        return BURST_OK;
    return burst_op_to_tokens(s->exec, s->n, s->heads.queries, PLAN_VALUE_DIM, plan_running_output(s),
                              (BurstBf16 *)s->home[BURST_T_O].part[1]);
}

/* Adds the pair's gradients to this rank's sums of dQ[q] and dKV[kv]. */
static inline int plan_grad(BurstCtx *c, PlanState *s, int q, int kv)
{
    PlanSlot *qs, *ks, *dq, *dkv;
    PlanWord *k, *v;
    int place;
    BURST_TRY(plan_find(c, s, BURST_T_Q, q, &qs));
    BURST_TRY(plan_find(c, s, BURST_T_KV, kv, &ks));
    BURST_TRY(plan_find(c, s, BURST_T_DQ, q, &dq));
    BURST_TRY(plan_find(c, s, BURST_T_DKV, kv, &dkv));
    BURST_TRY(plan_pair_keys(s, BURST_P_GRAD, q, kv, &k, &v));
    BURST_TRY(plan_place(c, s, true, qs, q, kv, &place));
    s->launch.there[place] = plan_there(s, q, kv);
    BURST_TRY(plan_start_sum(s, BURST_T_DQ, dq));
    BURST_TRY(plan_start_sum(s, BURST_T_DKV, dkv));
    const PlanHeads heads = plan_heads(s, false), keys = plan_heads(s, true);
    BurstBackward &p = s->launch.backward[place];
    memset(&p, 0, sizeof p);
    p.q = plan_rows(qs->part[0], heads.count, PLAN_HEAD_DIM);
    p.d_o = plan_rows(qs->part[1], heads.count, PLAN_VALUE_DIM);
    p.k = plan_rows(k, keys.count, PLAN_HEAD_DIM);
    p.v = plan_rows(v, keys.count, PLAN_VALUE_DIM);
    p.delta = (const float *)qs->part[2];
    p.lse = (const float *)qs->part[3];
    p.dq = (float *)dq->part[0];
    BURST_TRY(plan_pair_sums(s, kv, &p.dk, &p.dv));
    p.q_tokens = plan_tokens_of(s, BURST_T_Q, q);
    p.k_tokens = plan_tokens_of(s, BURST_T_KV, kv);
    p.q_heads = heads.count;
    p.kv_heads = keys.count;
    p.q_head0 = heads.first;
    p.kv_head0 = keys.first;
    p.group = PLAN_KV_SHARE;
    p.scale = PLAN_SCALE;
    plan_uses(&s->launch, place, qs, ks, dq, dkv);
    if (plan_is_full(s))
        BURST_TRY(plan_launch(c, s));
    return plan_pair_end(c, s, q, kv);
}

#endif
