/* burst_heads_cuda.cuh: a rank's part of a chunk on GPUs: in a direction that exchanges, its share of the
 * heads for all ranks that share them.
 *
 * All-to-all as in DeepSpeed-Ulysses (arXiv 2309.14509), with rings between such groups as in LoongTrain's
 * 2D attention (arXiv 2406.18485). By tokens a rank has its chunk with all heads; by heads it has the chunks
 * of all ranks that share heads with it, one after the other, with the heads of plan_head0 and plan_kv0. An
 * exchange moves every (chunk, share) block from one layout to the other. Activations are
 * [tokens][heads][head_dim], statistics and gradients [heads][tokens][...], so at one end a block's rows are
 * strided, and pieces have a pitch. If several shares read a key head, the gradient of the first arrives in
 * place and the others' in xsum, and they are added in rank order. Nothing here waits on the host: a
 * channel's stream starts after what it sends was computed, and computing starts after what it reads has
 * arrived. */
#ifndef BURST_HEADS_CUDA_CUH
#define BURST_HEADS_CUDA_CUH

#include "burst_state_cuda.cuh"
#include "burst_heads.h"
#include "burst_shares.h"

#ifndef PLAN_O_ROWS /* attention has all queries and heads at once */
#define PLAN_O_ROWS 0
#define PLAN_LSE_ROWS 0
#endif

/* Whether a share's first key head is also the last of the previous share. */
static inline int plan_again(const PlanState *s, int lane)
{
    return plan_head0(s, lane) % PLAN_KV_SHARE != 0;
}

/* The number of earlier shares of which that is true: the share's index in xsum. */
static inline int plan_agains(const PlanState *s, int lane)
{
    int count = 0;
    for (int i = 0; i < lane; i++)
        count += plan_again(s, i);
    return count;
}

/* ---- pieces of the heads ---- */

/* Of a share's query heads: those of the running piece, and how many precede them in the share. */
typedef struct PlanPieceHeads { int first, count, at; } PlanPieceHeads;

static inline PlanPieceHeads plan_piece_heads(const PlanState *s, int lane)
{
    const int first = plan_head0(s, lane), all = plan_head0(s, lane + 1) - first, piece = s->head_piece;
    const int from = piece ? all * (piece - 1) / PLAN_HEAD_PIECES : 0,
              to = piece ? all * piece / PLAN_HEAD_PIECES : all;
    const PlanPieceHeads heads = {first + from, to - from, from};
    return heads;
}

/* A launch with the running piece. Key heads that none of its queries read are left out. */
static inline BurstForward plan_forward_piece(const PlanState *s, BurstForward p)
{
    const PlanPieceHeads h = plan_piece_heads(s, plan_lane(s->me));
    p.q.at += h.at * p.q.head;
    p.out.at += h.at * p.out.head;
    p.lse += (int64_t)h.at * p.q_tokens.n;
    p.q_heads = h.count;
    p.q_head0 = h.first;
    return p;
}

static inline BurstBackward plan_backward_piece(const PlanState *s, BurstBackward p)
{
    const PlanPieceHeads h = plan_piece_heads(s, plan_lane(s->me));
    const int64_t rows = (int64_t)h.at * p.q_tokens.n;
    const int kv0 = h.first / p.group, keys = kv0 - p.kv_head0;
    p.q.at += h.at * p.q.head;
    p.d_o.at += h.at * p.d_o.head;
    p.lse += rows;
    p.delta += rows;
    p.dq += rows * PLAN_HEAD_DIM;
    p.k.at += keys * p.k.head;
    p.v.at += keys * p.v.head;
    p.dk += (int64_t)keys * p.k_tokens.n * PLAN_HEAD_DIM;
    p.dv += (int64_t)keys * p.k_tokens.n * PLAN_VALUE_DIM;
    p.q_heads = h.count;
    p.q_head0 = h.first;
    p.kv_head0 = kv0;
    p.kv_heads = (h.first + h.count - 1) / p.group - kv0 + 1;
    return p;
}

/* Launches the pair with the running piece once its queries have arrived. The first piece makes the lists. */
static inline int plan_launch_piece(BurstCtx *c, PlanState *s, int pairs)
{
    PlanLaunch *l = &s->launch;
    const int piece = s->head_piece - 1;
    if (pairs != 1)
        return burst_fail(c, BURST_E_PLAN, "a launch of %d pairs by pieces of heads", pairs);
    BURST_TRY(burst_gpu_after(s->exec, burst_gpu_compute(s->exec), &s->piece_arrived[piece]));
    if (l->gradients) {
        BurstBackward p = plan_backward_piece(s, l->backward[0]);
        PLAN_CUDA(plan_launch_backward(s, &p, 1));
        l->backward[0].lists = p.lists;
    } else {
        BurstForward p = plan_forward_piece(s, l->forward[0]);
        PLAN_CUDA(plan_launch_forward(s, &p, 1));
        l->forward[0].lists = p.lists;
    }
    l->listed = true;
    return burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &s->piece_computed[piece]);
}

/* Queues the pending pairs, by pieces of the heads or with all. */
static inline int plan_launch_heads(BurstCtx *c, PlanState *s, int pairs)
{
    PlanLaunch *l = &s->launch;
    if (PLAN_HEAD_PIECES == 1)
        PLAN_CUDA(l->gradients ? plan_launch_backward(s, l->backward, pairs)
                               : plan_launch_forward(s, l->forward, pairs));
    for (s->head_piece = 1; PLAN_HEAD_PIECES > 1 && s->head_piece <= PLAN_HEAD_PIECES; s->head_piece++)
        BURST_TRY(plan_launch_piece(c, s, pairs));
    s->head_piece = 0;
    l->listed = false;
    return BURST_OK;
}

/* Heads of a part of an exchange. FIRST and AGAIN: key heads whose gradients arrive in place, and in
 * xsum. */
enum { PLAN_QUERY_HEADS, PLAN_KEY_HEADS, PLAN_FIRST_HEADS, PLAN_AGAIN_HEADS };
typedef struct PlanHeads {
    int first, count; /* by tokens */
    int at;           /* index of the first one in the share */
} PlanHeads;

static inline PlanHeads plan_share_heads(const PlanState *s, int kind, int lane)
{
    const int again = plan_again(s, lane), kv0 = plan_kv0(s, lane), kv_heads = plan_kv_end(s, lane) - kv0;
    const PlanPieceHeads queries = plan_piece_heads(s, lane);
    const PlanHeads heads[] = {
        {queries.first, queries.count, queries.at},
        {kv0, kv_heads, 0},
        {kv0 + again, kv_heads - again, again},
        {plan_agains(s, lane), again, 0},
    };
    return heads[kind];
}

/* The rank's heads of a chunk. */
static inline PlanHeads plan_heads(const PlanState *s, bool keys)
{
    const PlanHeads all = {0, keys ? s->heads.keys : s->heads.queries, 0};
    return s->by_heads ? plan_share_heads(s, keys ? PLAN_KEY_HEADS : PLAN_QUERY_HEADS, plan_lane(s->me))
                       : all;
}

/* The chunk at index `at` of all positions, where ranks that share heads are consecutive. */
static inline int plan_chunk_at(int at)
{
    const int row = at / PLAN_SHARES, outer = row / PLAN_SHARE_STRIDE, inner = row % PLAN_SHARE_STRIDE;
    return (outer * PLAN_SHARES + at % PLAN_SHARES) * PLAN_SHARE_STRIDE + inner;
}

static inline BurstTokens plan_tokens_of(const PlanState *s, int tensor, int chunk)
{
    const bool keys = plan_of_keys(tensor);
    if (!s->by_heads)
        return keys ? s->key_tokens[chunk] : s->tokens[chunk];
#ifdef PLAN_QUERY_CHUNKS
    if (!keys)
        return s->queries;
#endif
    BurstTokens t = s->key_tokens[plan_member(chunk, 0)];
    t.n = (int)plan_row_tokens(s, chunk, PLAN_SHARES, keys);
    return t;
}

/* NULL if there is a single pair: then no running output is needed. */
static inline float *plan_running_output(PlanState *s)
{
#if PLAN_GROUP > (PLAN_FORWARD_BY_HEADS ? PLAN_SHARES : 1) || defined PLAN_KEY_CHUNKS
    return s->buffer.o_sum;
#else
    (void)s;
    return NULL;
#endif
}

/* Clears gradients at their owner, which are sums. Those that an exchange brings arrive whole and need no
 * clearing. */
static inline int plan_clear(PlanState *s, float *dq, float *dk, float *dv)
{
#if PLAN_BACKWARD_BY_HEADS
    (void)s, (void)dq, (void)dk, (void)dv;
    return BURST_OK;
#else
    const int64_t head = s->n * PLAN_HEAD_DIM, values = s->n * PLAN_VALUE_DIM;
    BURST_TRY(burst_gpu_zero(s->exec, dq, (size_t)(s->heads.queries * head) * sizeof(float)));
    BURST_TRY(burst_gpu_zero(s->exec, dk, (size_t)(s->heads.keys * head) * sizeof(float)));
    return burst_gpu_zero(s->exec, dv, (size_t)(s->heads.keys * values) * sizeof(float));
#endif
}

/* ---- exchanges ---- */

/* One array of an exchange, by tokens (home) and by heads (share). */
typedef struct PlanPart {
    void *home, *share;
    int heads;  /* PLAN_QUERY_HEADS, ... */
    int64_t width; /* bytes per token and head */
    int64_t row;   /* bytes per token by tokens, if [tokens][heads]; 0: [heads][tokens] */
    /* bytes per token of what precedes it in the by-tokens array: earlier chunks of queries, or of heads; 0:
     * none */
    int64_t before;
} PlanPart;

/* How much further a chunk begins in its owner's array than in this rank's, since its owner has another
 * number of tokens before it. */
static inline int64_t plan_home_apart(const PlanState *s, const PlanPart *x, int chunk)
{
#ifdef PLAN_QUERY_CHUNKS
    return x->before *
           (plan_query_begin(plan_tokens(chunk), s->tile.queries) - plan_query_begin(s->n, s->tile.queries));
#else
    return x->before * (s->key[chunk].tokens - s->n);
#endif
}

/* Heads of a token before the chunk's: with chunks of heads, those of earlier chunks. */
static inline int plan_heads_before(const PlanState *s)
{
#ifdef PLAN_QUERY_CHUNKS
    return s->heads.queries;
#else
    return s->heads.first_query;
#endif
}

/* The block of a chunk and a rank's share. */
typedef struct PlanBlock { char *at; int64_t width, rows, pitch; } PlanBlock;

static inline PlanBlock plan_home_block(const PlanState *s, const PlanPart *x, int chunk, int lane)
{
    const PlanHeads h = plan_share_heads(s, x->heads, lane);
    const int64_t n = plan_tokens_in(s, chunk, x->heads != PLAN_QUERY_HEADS);
    char *home = (char *)x->home + plan_home_apart(s, x, chunk);
    if (x->row)
        return PlanBlock{home + h.first * x->width, h.count * x->width, n, x->row};
    return PlanBlock{home + h.first * n * x->width, n * x->width, h.count, n * x->width};
}

static inline PlanBlock plan_share_block(const PlanState *s, const PlanPart *x, int chunk, int lane)
{
    const PlanHeads h = plan_share_heads(s, x->heads, lane);
    const bool keys = x->heads != PLAN_QUERY_HEADS;
    const int64_t n = plan_tokens_in(s, chunk, keys), all = plan_row_tokens(s, chunk, PLAN_SHARES, keys);
    const int64_t begin = plan_row_tokens(s, chunk, plan_lane(chunk), keys);
    const int64_t token = (keys ? h.count : plan_head0(s, lane + 1) - plan_head0(s, lane)) * x->width;
    if (x->row)
        return PlanBlock{(char *)x->share + begin * token + h.at * x->width, h.count * x->width, n, token};
    return PlanBlock{(char *)x->share + (h.at * all + begin) * x->width, n * x->width, h.count,
                     all * x->width};
}

/* Adds the piece that moves `block` to or from the peer. lands: the block at the receiver, NULL in receives.
 * Adds none if it is empty. */
static inline int plan_add_piece(const PlanState *s, int peer, const PlanBlock *block, const PlanBlock *lands,
                                 BurstPiece *piece)
{
    if (block->width * block->rows == 0)
        return 0;
    memset(piece, 0, sizeof *piece);
    piece->peer = plan_peer(s, peer);
    piece->data = block->at;
    piece->width = (size_t)block->width;
    piece->rows = (size_t)block->rows;
    piece->pitch = (size_t)block->pitch;
    piece->lands = lands ? lands->at : NULL;
    piece->lands_pitch = lands ? (size_t)lands->pitch : 0;
    return 1;
}

/* Whether the running piece has what stays on the rank: all heads of it with the first piece to heads, and
 * the last to tokens. Copies inside a device take multiprocessors and so would wait for launches between. */
static inline bool plan_keeps_own(const PlanState *s, bool to_heads)
{
    return s->head_piece == 0 || s->head_piece == (to_heads ? 1 : PLAN_HEAD_PIECES);
}

/* Adds the pieces of a part that move to one rank and from another, which may both be this one. */
static inline void plan_add_blocks(PlanState *s, const PlanPart *x, int to_lane, int from_lane, bool to_heads,
                                   BurstPiece *send, int *sends, BurstPiece *receive, int *receives)
{
    const int lane = plan_lane(s->me), to = plan_member(s->me, to_lane), from = plan_member(s->me, from_lane);
    const int piece = s->head_piece;
    if (to == s->me && !plan_keeps_own(s, to_heads))
        return;
    s->head_piece = to == s->me ? 0 : piece;
    const PlanBlock home_to = plan_home_block(s, x, to_heads ? s->me : to, to_heads ? to_lane : lane);
    const PlanBlock share_to = plan_share_block(s, x, to_heads ? s->me : to, to_heads ? to_lane : lane);
    const PlanBlock got = to_heads ? plan_share_block(s, x, from, lane)
                                   : plan_home_block(s, x, s->me, from_lane);
    s->head_piece = piece;
    *sends += plan_add_piece(s, to, to_heads ? &home_to : &share_to, to_heads ? &share_to : &home_to,
                             &send[*sends]);
    *receives += plan_add_piece(s, from, &got, NULL, &receive[*receives]);
}

/* To heads: sends each share of this rank's chunk, and receives this rank's share of each chunk. To tokens:
 * the reverse. */
static inline int plan_exchange(PlanState *s, int channel, int tensor, const PlanPart *part, int parts,
                                bool to_heads, void *packing, size_t packing_bytes)
{
    BurstPiece send[PLAN_PARTS * PLAN_SHARES], receive[PLAN_PARTS * PLAN_SHARES];
    const int lane = plan_lane(s->me);
    cudaStream_t stream = burst_gpu_channel(s->exec, channel);
    int sends = 0, receives = 0;
    for (int i = 0; i < parts; i++)
        for (int step = 0; step < PLAN_SHARES; step++)
            plan_add_blocks(s, &part[i], (lane + step) % PLAN_SHARES,
                            (lane + PLAN_SHARES - step) % PLAN_SHARES, to_heads, send, &sends, receive,
                            &receives);
    BURST_TRY(burst_gpu_after(s->exec, stream, &s->home[tensor].used));
    if (to_heads || s->head_piece == 0)
        BURST_TRY(burst_gpu_after(s->exec, stream, &s->share[tensor].used));
    BURST_TRY(burst_gpu_part(s->exec, stream, BURST_P_EXCHANGE, 0, 0));
    BURST_TRY(burst_gpu_exchange(s->exec, channel, send, sends, receive, receives, packing, packing_bytes));
    BURST_TRY(burst_gpu_part(s->exec, stream, BURST_P_IDLE, 0, 0));
    return burst_gpu_mark(s->exec, stream, to_heads ? &s->share[tensor].arrived : &s->home[tensor].arrived);
}

/* plan_exchange of queries, outputs or their gradients, by pieces of the heads if attention has such: each
 * leaves once it is computed. All queries have arrived before, so that the packing memory is free. */
static inline int plan_exchange_pieces(PlanState *s, int channel, int tensor, const PlanPart *part, int parts,
                                       bool to_heads)
{
    enum { LAST = PLAN_HEAD_PIECES - 1 };
    cudaStream_t stream = burst_gpu_channel(s->exec, channel);
    if (PLAN_HEAD_PIECES == 1)
        return plan_exchange(s, channel, tensor, part, parts, to_heads, s->buffer.pack_q, PLAN_PACK_Q);
    if (!to_heads)
        BURST_TRY(burst_gpu_after(s->exec, stream, &s->piece_arrived[LAST]));
    for (int piece = 0; piece < PLAN_HEAD_PIECES; piece++) {
        s->head_piece = piece + 1;
        if (!to_heads)
            BURST_TRY(burst_gpu_after(s->exec, stream, &s->piece_computed[piece]));
        BURST_TRY(plan_exchange(s, channel, tensor, part, parts, to_heads, s->buffer.pack_q, PLAN_PACK_Q));
        if (to_heads)
            BURST_TRY(burst_gpu_mark(s->exec, stream, &s->piece_arrived[piece]));
    }
    s->head_piece = 0;
    return BURST_OK;
}

/* Q: queries (in backward with dO, delta and lse), once for all their keys. KV: keys and values, once for
 * all chunks of queries. */
static inline int plan_to_heads(BurstCtx *c, PlanState *s, int channel, int tensor)
{
    char *const *home = s->home[tensor].part, *const *share = s->share[tensor].part;
    const int64_t vector = 2 * PLAN_HEAD_DIM, value = 2 * PLAN_VALUE_DIM; /* bf16 */
    const PlanPart q[] = {{home[0], share[0], PLAN_QUERY_HEADS, vector, s->heads.queries * vector, 0},
                          {home[1], share[1], PLAN_QUERY_HEADS, value, s->heads.queries * value, 0},
                          {home[2], share[2], PLAN_QUERY_HEADS, 4, 0, 0},
                          {home[3], share[3], PLAN_QUERY_HEADS, 4, 0, 0}};
    const PlanPart kv[] = {{home[0], share[0], PLAN_KEY_HEADS, vector, s->heads.keys * vector, 0},
                           {home[1], share[1], PLAN_KEY_HEADS, value, s->heads.keys * value, 0}};
    burst_doing(c, "all-to-all, tokens to heads");
    if (tensor == BURST_T_KV ? s->tile.has_keys : s->tile.resumes)
        return BURST_OK;
    if (tensor == BURST_T_KV)
        return plan_exchange(s, channel, tensor, kv, 2, true, s->buffer.pack_kv, PLAN_PACK_KV);
    return plan_exchange_pieces(s, channel, tensor, q, home[1] ? 4 : 1, true);
}

static inline int plan_attend_end(BurstCtx *c, PlanState *s);

/* O with lse, and dQ, once all their keys have been attended; dKV, once all chunks of queries have added to
 * it. The packing buffer serves both directions: no output is sent before all inputs have been attended. */
static inline int plan_to_tokens(BurstCtx *c, PlanState *s, int channel, int tensor)
{
    char *const *home = s->home[tensor].part, *const *share = s->share[tensor].part;
    const int64_t value = 2 * PLAN_VALUE_DIM, gradient = 4 * PLAN_HEAD_DIM,
                  of_value = 4 * PLAN_VALUE_DIM; /* bf16, fp32 */
    float *const sum_v = s->buffer.xsum + plan_agains(s, PLAN_SHARES) * (int64_t)PLAN_TOKENS * PLAN_HEAD_DIM;
    const PlanPart o[] = {{home[1], share[1], PLAN_QUERY_HEADS, value, s->heads.queries * value,
                           PLAN_O_ROWS * plan_heads_before(s) * value},
                          {home[0], share[0], PLAN_QUERY_HEADS, 4, 0,
                           PLAN_LSE_ROWS * plan_heads_before(s) * 4}};
    const PlanPart dq = {home[0], share[0], PLAN_QUERY_HEADS, gradient, 0, 0};
    const PlanPart dkv[] = {{home[0], share[0], PLAN_FIRST_HEADS, gradient, 0, 0},
                            {home[1], share[1], PLAN_FIRST_HEADS, of_value, 0, 0},
                            {s->buffer.xsum, share[0], PLAN_AGAIN_HEADS, gradient, 0, 0},
                            {sum_v, share[1], PLAN_AGAIN_HEADS, of_value, 0, 0}};
    BURST_TRY(plan_launch(c, s));
    if (tensor == BURST_T_DKV ? s->tile.keeps_sums : s->tile.suspends)
        return BURST_OK;
    burst_doing(c, "all-to-all, heads to tokens");
    if (tensor == BURST_T_O)
        BURST_TRY(plan_attend_end(c, s));
    /* computing that adds to it was queued before */
    BURST_TRY(burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &s->share[tensor].used));
    if (tensor == BURST_T_O)
        return plan_exchange_pieces(s, channel, tensor, o, 2, false);
    if (tensor == BURST_T_DQ)
        return plan_exchange_pieces(s, channel, tensor, &dq, 1, false);
    s->home[tensor].pending = true;
    return plan_exchange(s, channel, tensor, dkv, 4, false, s->buffer.pack_kv, PLAN_PACK_KV);
}

/* Adds the gradients in xsum to the key heads', in rank order, on the compute stream. */
static inline int plan_add_again(PlanState *s)
{
    PlanSlot *home = &s->home[BURST_T_DKV];
    const int64_t keys = plan_own_keys(s), sums = plan_agains(s, PLAN_SHARES);
    cudaStream_t compute = burst_gpu_compute(s->exec);
    BURST_TRY(plan_part(s, BURST_P_MERGE, 0, 0));
    for (int lane = 0; lane < PLAN_SHARES; lane++)
        for (int i = 0; i < 2 && plan_again(s, lane); i++) {
            const int64_t count = keys * (i ? PLAN_VALUE_DIM : PLAN_HEAD_DIM);
            const float *in = s->buffer.xsum + i * sums * PLAN_TOKENS * PLAN_HEAD_DIM +
                              plan_agains(s, lane) * count;
            BURST_TRY(burst_gpu_add_floats(s->exec, compute, count, in,
                                           (float *)home->part[i] + plan_kv0(s, lane) * count));
        }
    home->pending = false;
    return plan_part(s, BURST_P_IDLE, 0, 0);
}

/* At the end of a direction, makes computing wait until the rank's own chunk has been sent and results have
 * arrived. */
static inline int plan_settle_own(PlanState *s, int tensor)
{
    for (int channel = 0; channel < PLAN_CHANNELS; channel++)
        BURST_TRY(burst_gpu_after(s->exec, burst_gpu_compute(s->exec), &plan_own(s, tensor)->sent[channel]));
    BURST_TRY(burst_gpu_after(s->exec, burst_gpu_compute(s->exec), &s->share[tensor].arrived));
    BURST_TRY(burst_gpu_after(s->exec, burst_gpu_compute(s->exec), &s->home[tensor].arrived));
    return s->home[tensor].pending ? plan_add_again(s) : BURST_OK;
}

/* ---- the begin of a direction ---- */

/* Pieces of the heads that no launch computes are as they are now. */
static inline int plan_begin_pieces(PlanState *s)
{
    for (int piece = 0; PLAN_HEAD_PIECES > 1 && piece < PLAN_HEAD_PIECES; piece++)
        BURST_TRY(burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &s->piece_computed[piece]));
    return BURST_OK;
}

/* Switches to chunks by heads; plan_home has set held to the rank's own chunks. */
#if PLAN_FORWARD_BY_HEADS
static inline int plan_forward_by_heads(PlanState *s)
{
    s->by_heads = true;
    plan_share(s, BURST_T_Q, s->buffer.xq, NULL, NULL, NULL);
    plan_share(s, BURST_T_KV, s->buffer.xk, s->buffer.xv, NULL, NULL);
    plan_share(s, BURST_T_O, s->buffer.xlse, s->buffer.xo, NULL, NULL);
    s->share[BURST_T_O].started = s->tile.resumes && s->begun;
    return plan_begin_pieces(s);
}
#endif

#if PLAN_BACKWARD_BY_HEADS
static inline int plan_backward_by_heads(PlanState *s)
{
    s->by_heads = true;
    plan_share(s, BURST_T_Q, s->buffer.xq, s->buffer.xo, s->buffer.xdelta, s->buffer.xlse);
    plan_share(s, BURST_T_KV, s->buffer.xk, s->buffer.xv, NULL, NULL);
    plan_share(s, BURST_T_DQ, s->buffer.xdq, NULL, NULL, NULL);
    plan_share(s, BURST_T_DKV, s->buffer.xdk, s->buffer.xdv, NULL, NULL);
    if (!s->tile.resumes)
        BURST_TRY(burst_gpu_zero(s->exec, s->buffer.xdq, (size_t)plan_part_words(s, BURST_T_DQ, 0, s->me)));
    BURST_TRY(plan_begin_pieces(s));
    if (s->tile.has_keys)
        return BURST_OK;
    BURST_TRY(burst_gpu_zero(s->exec, s->buffer.xdk, (size_t)plan_part_words(s, BURST_T_DKV, 0, s->me)));
    return burst_gpu_zero(s->exec, s->buffer.xdv, (size_t)plan_part_words(s, BURST_T_DKV, 1, s->me));
}
#endif

#endif
