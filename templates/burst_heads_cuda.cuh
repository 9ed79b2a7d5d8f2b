/* burst_heads_cuda.cuh: head parallelism on GPUs: all-to-all (DeepSpeed-Ulysses, arXiv 2309.14509).
 *
 * At home a rank has its chunk with all heads; of its share it has the whole sequence, chunk by chunk, with the heads of
 * plan_head0 and plan_kv0, and attends it in one launch. An exchange moves every (chunk, share) block from the one to the
 * other. Activations are [tokens][heads][head_dim], statistics and gradients [heads][tokens][...]: at one end a block's rows
 * lie apart, so pieces have a pitch.
 * A key head that several shares read: the gradient of the first of them arrives at its place, those of the others in xsum,
 * and are added in the order of ranks. Nothing here waits on the host; a channel's stream starts after what it sends was
 * computed, and computing after what it reads has arrived.
 */
#ifndef BURST_HEADS_CUDA_CUH
#define BURST_HEADS_CUDA_CUH

#include "burst_state_cuda.cuh"
#include "burst_heads.h"

/* Heads that a part of an exchange has. FIRST and AGAIN: key heads whose gradients arrive at their place, and in xsum. */
enum { PLAN_QUERY_HEADS, PLAN_KEY_HEADS, PLAN_FIRST_HEADS, PLAN_AGAIN_HEADS };
typedef struct PlanHeads {
    int first, count; /* at home */
    int at;           /* the first one's place in the share */
} PlanHeads;

/* Whether the rank's first key head is also the last of the rank before. */
static inline int plan_again(int rank)
{
    return plan_head0(rank) % PLAN_KV_SHARE != 0;
}

/* How many of the ranks before this one do: its place in xsum. */
static inline int plan_agains(int rank)
{
    int count = 0;
    for (int i = 0; i < rank; i++)
        count += plan_again(i);
    return count;
}

static inline PlanHeads plan_share_heads(int kind, int rank)
{
    const int again = plan_again(rank), kv0 = plan_kv0(rank), kv_heads = plan_kv_end(rank) - kv0;
    const PlanHeads heads[] = {
        {plan_head0(rank), plan_head0(rank + 1) - plan_head0(rank), 0},
        {kv0, kv_heads, 0},
        {kv0 + again, kv_heads - again, again},
        {plan_agains(rank), again, 0},
    };
    return heads[kind];
}

/* One array of an exchange, at home and in the share. */
typedef struct PlanPart {
    void *home, *share;
    int heads;  /* PLAN_QUERY_HEADS, ... */
    int64_t width; /* bytes of a token and head */
    int64_t row;   /* bytes of a token at home, where it is [tokens][heads]; 0: it is [heads][tokens] */
} PlanPart;

/* The block of a chunk and a rank's share, where it lies. */
typedef struct PlanBlock { char *at; int64_t width, rows, pitch; } PlanBlock;

static inline PlanBlock plan_home_block(const PlanState *s, const PlanPart *x, int chunk, int rank)
{
    const PlanHeads h = plan_share_heads(x->heads, rank);
    const int64_t n = s->chunk[chunk].tokens;
    if (x->row)
        return PlanBlock{(char *)x->home + h.first * x->width, h.count * x->width, n, x->row};
    return PlanBlock{(char *)x->home + h.first * n * x->width, n * x->width, h.count, n * x->width};
}

static inline PlanBlock plan_share_block(const PlanState *s, const PlanPart *x, int chunk, int rank)
{
    const PlanHeads h = plan_share_heads(x->heads, rank);
    const int64_t n = s->chunk[chunk].tokens, begin = s->chunk[chunk].position - s->chunk[0].position;
    if (x->row)
        return PlanBlock{(char *)x->share + begin * h.count * x->width, h.count * x->width, n, h.count * x->width};
    return PlanBlock{(char *)x->share + (h.at * (int64_t)PLAN_SEQUENCE + begin) * x->width, n * x->width, h.count,
                     PLAN_SEQUENCE * x->width};
}

/* The piece that moves `block` from or to the peer; lands: where the receiver has it, NULL in receives. None if it is empty. */
static inline int plan_add_piece(const PlanState *s, int peer, const PlanBlock *block, const PlanBlock *lands, BurstPiece *piece)
{
    if (block->width * block->rows == 0)
        return 0;
    memset(piece, 0, sizeof *piece);
    piece->peer = plan_rank_of(s->group, peer);
    piece->data = block->at;
    piece->width = (size_t)block->width;
    piece->rows = (size_t)block->rows;
    piece->pitch = (size_t)block->pitch;
    piece->lands = lands ? lands->at : NULL;
    piece->lands_pitch = lands ? (size_t)lands->pitch : 0;
    return 1;
}

/* To heads: sends each share of this rank's chunk, and receives this rank's share of each chunk; to tokens: the reverse. */
static inline int plan_exchange(PlanState *s, int channel, int tensor, const PlanPart *part, int parts, bool to_heads,
                                void *packing, size_t packing_bytes)
{
    BurstPiece send[PLAN_PARTS * PLAN_GROUP], receive[PLAN_PARTS * PLAN_GROUP];
    cudaStream_t stream = burst_gpu_channel(s->exec, channel);
    int sends = 0, receives = 0;
    for (int i = 0; i < parts; i++)
        for (int step = 0; step < PLAN_GROUP; step++) {
            const int to = (s->me + step) % PLAN_GROUP, from = (s->me + PLAN_GROUP - step) % PLAN_GROUP;
            const PlanBlock home_to = plan_home_block(s, &part[i], to_heads ? s->me : to, to_heads ? to : s->me);
            const PlanBlock share_to = plan_share_block(s, &part[i], to_heads ? s->me : to, to_heads ? to : s->me);
            const PlanBlock got =
                to_heads ? plan_share_block(s, &part[i], from, s->me) : plan_home_block(s, &part[i], s->me, from);
            sends += plan_add_piece(s, to, to_heads ? &home_to : &share_to, to_heads ? &share_to : &home_to, &send[sends]);
            receives += plan_add_piece(s, from, &got, NULL, &receive[receives]);
        }
    BURST_TRY(burst_gpu_after(s->exec, stream, &s->home[tensor].used));
    BURST_TRY(burst_gpu_part(s->exec, stream, BURST_P_EXCHANGE, 0, 0));
    BURST_TRY(burst_gpu_exchange(s->exec, channel, send, sends, receive, receives, packing, packing_bytes));
    BURST_TRY(burst_gpu_part(s->exec, stream, BURST_P_IDLE, 0, 0));
    return burst_gpu_mark(s->exec, stream, &s->home[tensor].arrived);
}

/* Q: queries (in backward with dO, delta and lse); KV: keys and values. */
static inline int plan_to_heads(BurstCtx *c, PlanState *s, int channel, int tensor, bool backward)
{
    char *const *home = s->home[tensor].part;
    const int64_t vector = 2 * PLAN_HEAD_DIM; /* bf16 */
    const PlanPart q[] = {{home[0], s->buffer.xq, PLAN_QUERY_HEADS, vector, PLAN_HEADS * vector},
                          {home[1], s->buffer.xo, PLAN_QUERY_HEADS, vector, PLAN_HEADS * vector},
                          {home[2], s->buffer.xdelta, PLAN_QUERY_HEADS, 4, 0},
                          {home[3], s->buffer.xlse, PLAN_QUERY_HEADS, 4, 0}};
    const PlanPart kv[] = {{home[0], s->buffer.xk, PLAN_KEY_HEADS, vector, PLAN_KV_HEADS * vector},
                           {home[1], s->buffer.xv, PLAN_KEY_HEADS, vector, PLAN_KV_HEADS * vector}};
    burst_doing(c, "all-to-all, tokens to heads");
    if (tensor == BURST_T_KV)
        return plan_exchange(s, channel, tensor, kv, 2, true, s->buffer.pack_kv, PLAN_PACK_KV);
    return plan_exchange(s, channel, tensor, q, backward ? 4 : 1, true, s->buffer.pack_q, PLAN_PACK_Q);
}

/* O with lse, dQ, dKV. Packing memory serves both ways: no output leaves before all inputs have been attended. */
static inline int plan_to_tokens(BurstCtx *c, PlanState *s, int channel, int tensor)
{
    char *const *home = s->home[tensor].part;
    const int64_t vector = 2 * PLAN_HEAD_DIM, gradient = 4 * PLAN_HEAD_DIM; /* bf16, fp32 */
    float *const sum_v = s->buffer.xsum + plan_agains(PLAN_GROUP) * (int64_t)PLAN_TOKENS * PLAN_HEAD_DIM;
    const PlanPart o[] = {{home[1], s->buffer.xo, PLAN_QUERY_HEADS, vector, PLAN_HEADS * vector},
                          {home[0], s->buffer.xlse, PLAN_QUERY_HEADS, 4, 0}};
    const PlanPart dq = {home[0], s->buffer.xdq, PLAN_QUERY_HEADS, gradient, 0};
    const PlanPart dkv[] = {{home[0], s->buffer.xdk, PLAN_FIRST_HEADS, gradient, 0},
                            {home[1], s->buffer.xdv, PLAN_FIRST_HEADS, gradient, 0},
                            {s->buffer.xsum, s->buffer.xdk, PLAN_AGAIN_HEADS, gradient, 0},
                            {sum_v, s->buffer.xdv, PLAN_AGAIN_HEADS, gradient, 0}};
    burst_doing(c, "all-to-all, heads to tokens");
    if (tensor == BURST_T_O)
        return plan_exchange(s, channel, tensor, o, 2, false, s->buffer.pack_q, PLAN_PACK_Q);
    if (tensor == BURST_T_DQ)
        return plan_exchange(s, channel, tensor, &dq, 1, false, s->buffer.pack_q, PLAN_PACK_Q);
    s->home[tensor].pending = true;
    return plan_exchange(s, channel, tensor, dkv, 4, false, s->buffer.pack_kv, PLAN_PACK_KV);
}

/* Adds what arrived in xsum to the key heads' gradients, in the order of ranks; on the compute stream. */
static inline int plan_add_again(PlanState *s)
{
    PlanSlot *home = &s->home[BURST_T_DKV];
    const int64_t count = s->n * PLAN_HEAD_DIM, sums = plan_agains(PLAN_GROUP);
    cudaStream_t compute = burst_gpu_compute(s->exec);
    if (!home->pending)
        return BURST_OK;
    BURST_TRY(plan_part(s, BURST_P_MERGE, 0, 0));
    for (int rank = 0; rank < PLAN_GROUP; rank++)
        for (int i = 0; i < 2 && plan_again(rank); i++) {
            const float *in = s->buffer.xsum + i * sums * PLAN_TOKENS * PLAN_HEAD_DIM + plan_agains(rank) * count;
            BURST_TRY(burst_gpu_add_floats(s->exec, compute, count, in, (float *)home->part[i] + plan_kv0(rank) * count));
        }
    home->pending = false;
    return plan_part(s, BURST_P_IDLE, 0, 0);
}

/* The end of a direction: computing goes on when its results are at home. */
static inline int plan_settle(BurstCtx *c, PlanState *s)
{
    (void)c;
    for (int t = 0; t < BURST_TENSORS; t++)
        BURST_TRY(burst_gpu_after(s->exec, burst_gpu_compute(s->exec), &s->home[t].arrived));
    return plan_add_again(s);
}

/* ---- computing ---- */

/* One launch attends everything: there are no pairs to count, and none is left out. */
static inline void plan_count_pairs(PlanState *s)
{
    (void)s;
}

static inline int plan_attend_end(BurstCtx *c, PlanState *s)
{
    (void)c, (void)s;
    return BURST_OK;
}

/* Gradients at home need no zeros: all of them arrive. Those of the share are sums. */
static inline int plan_clear(PlanState *s, float *dq, float *dk, float *dv)
{
    const size_t head = (size_t)PLAN_SEQUENCE * PLAN_HEAD_DIM * sizeof(float);
    const size_t q = (size_t)plan_share_heads(PLAN_QUERY_HEADS, s->me).count;
    const size_t kv = (size_t)plan_share_heads(PLAN_KEY_HEADS, s->me).count;
    (void)dq, (void)dk, (void)dv;
    BURST_TRY(burst_gpu_zero(s->exec, s->buffer.xdq, q * head));
    BURST_TRY(burst_gpu_zero(s->exec, s->buffer.xdk, kv * head));
    return burst_gpu_zero(s->exec, s->buffer.xdv, kv * head);
}

/* The whole sequence: the chunks lie one after the other. */
static inline BurstTokens plan_all_tokens(const PlanState *s)
{
    BurstTokens t = s->tokens[0];
    t.n = PLAN_SEQUENCE;
    return t;
}

static inline int plan_inputs_arrived(PlanState *s)
{
    cudaStream_t compute = burst_gpu_compute(s->exec);
    BURST_TRY(burst_gpu_after(s->exec, compute, &s->home[BURST_T_Q].arrived));
    return burst_gpu_after(s->exec, compute, &s->home[BURST_T_KV].arrived);
}

/* Output and lse of this rank's heads; also where the mask leaves nothing: zeros, lse -inf. */
static inline int plan_attend_all(BurstCtx *c, PlanState *s)
{
    const PlanHeads q = plan_share_heads(PLAN_QUERY_HEADS, s->me), kv = plan_share_heads(PLAN_KEY_HEADS, s->me);
    BurstForward p;
    memset(&p, 0, sizeof p);
    p.q = plan_rows((char *)s->buffer.xq, q.count);
    p.k = plan_rows((char *)s->buffer.xk, kv.count);
    p.v = plan_rows((char *)s->buffer.xv, kv.count);
    p.out = plan_rows((char *)s->buffer.xo, q.count);
    p.lse = s->buffer.xlse;
    p.q_tokens = p.k_tokens = plan_all_tokens(s);
    p.q_heads = q.count;
    p.q_head0 = q.first;
    p.kv_head0 = kv.first;
    p.group = PLAN_KV_SHARE;
    p.scale = PLAN_SCALE;
    p.flags = BURST_FIRST | BURST_LAST;
    burst_doing(c, "attention forward");
    BURST_TRY(plan_inputs_arrived(s));
    BURST_TRY(plan_part(s, BURST_P_ATTENTION, 0, 0));
    PLAN_CUDA(plan_launch_forward(s, p));
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    return burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &s->home[BURST_T_O].used);
}

/* Gradients of this rank's heads, from zero; dQ in the kernels' order of columns, which plan_order_dq changes at home. */
static inline int plan_grad_all(BurstCtx *c, PlanState *s)
{
    const PlanHeads q = plan_share_heads(PLAN_QUERY_HEADS, s->me), kv = plan_share_heads(PLAN_KEY_HEADS, s->me);
    BurstBackward p;
    memset(&p, 0, sizeof p);
    p.q = plan_rows((char *)s->buffer.xq, q.count);
    p.d_o = plan_rows((char *)s->buffer.xo, q.count);
    p.k = plan_rows((char *)s->buffer.xk, kv.count);
    p.v = plan_rows((char *)s->buffer.xv, kv.count);
    p.delta = s->buffer.xdelta;
    p.lse = s->buffer.xlse;
    p.dq = s->buffer.xdq;
    p.dk = s->buffer.xdk;
    p.dv = s->buffer.xdv;
    p.q_tokens = p.k_tokens = plan_all_tokens(s);
    p.q_heads = q.count;
    p.kv_heads = kv.count;
    p.q_head0 = q.first;
    p.kv_head0 = kv.first;
    p.group = PLAN_KV_SHARE;
    p.scale = PLAN_SCALE;
    burst_doing(c, "attention backward");
    BURST_TRY(plan_inputs_arrived(s));
    BURST_TRY(plan_part(s, BURST_P_ATTENTION_BACK, 0, 0));
    PLAN_CUDA(plan_launch_backward(s, p));
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    BURST_TRY(burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &s->home[BURST_T_DQ].used));
    return burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &s->home[BURST_T_DKV].used);
}

#endif
