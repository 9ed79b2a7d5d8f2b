/* burst_attention_cuda.cuh: attention of one layer on GPUs, forward and backward, with rows by tokens. */
#ifndef BURST_ATTENTION_CUDA_CUH
#define BURST_ATTENTION_CUDA_CUH

static int plan_forward(BurstCtx *c, PlanState *s);
static int plan_backward(BurstCtx *c, PlanState *s);
#ifdef PLAN_INFER
#include "burst_infer_cuda.cuh"
#endif

/* Makes all channels wait for computing: until now attention's scratch held other values of the step. So the
 * first use of a slot needs no wait of its own. */
static inline int plan_follow(PlanState *s)
{
    for (int channel = 0; channel < PLAN_CHANNELS && PLAN_WORLD > 1; channel++)
        BURST_TRY(burst_gpu_after(s->exec, burst_gpu_channel(s->exec, channel), &s->home[BURST_T_KV].used));
    return BURST_OK;
}

/* Sets the rank's own keys and values as KV. */
static inline int plan_home_keys(BurstCtx *c, PlanState *s, const BurstBf16 *k, const BurstBf16 *v)
{
#ifdef PLAN_LATENTS
    return plan_home_latents(c, s, k, v);
#else
    (void)c;
    return plan_home(s, BURST_T_KV, k, v, NULL, NULL);
#endif
}

/* Computes o [n][heads * value_dim] and lse [heads][n] from q, k, v. */
static inline int plan_attention(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q, const BurstBf16 *k,
                                 const BurstBf16 *v, BurstBf16 *o, float *lse)
{
    s->mask = mask;
#ifdef PLAN_INFER
    if (s->infer.decodes)
        return plan_decode_attention(c, s, mask, q, o, lse);
#endif
    BURST_TRY(plan_home(s, BURST_T_Q, q, NULL, NULL, NULL));
    BURST_TRY(plan_home_keys(c, s, k, v));
    BURST_TRY(plan_home(s, BURST_T_O, lse, o, NULL, NULL));
    plan_count_pairs(s);
    BURST_TRY(plan_follow(s));
#if PLAN_AT_ONCE && !defined PLAN_LIBRARY /* there it follows the first transfer: plan_attend_later */
    BURST_TRY(plan_attend_home(c, s));
#endif
    BURST_TRY(plan_forward(c, s));
    return plan_attend_end(c, s);
}

#ifndef PLAN_LIBRARY
/* The kernels leave dQ in a column order of their own and unscaled: sums of it may travel and be added as
 * they are. Once it is complete at its owner, this kernel orders and scales it, 32 columns per warp. If a
 * head has an odd number of 16-column blocks, a group of 32 may lie in two warps, but then its halves are
 * ordered separately (dq_place). */
static __global__ void plan_order_dq_kernel(float *dq, int64_t columns, float scale)
{
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = (int)(at % PLAN_HEAD_DIM % 32);
    float x = 0;
    if (at < columns)
        x = dq[at - lane + burst::dq_place<PLAN_HEAD_DIM>(lane / 8, lane % 8 / 2, lane % 2)] * scale;
    __syncwarp();
    if (at < columns)
        dq[at] = x;
}

static inline int plan_order_dq(BurstCtx *c, PlanState *s, float *dq)
{
    const int64_t columns = s->heads.queries * s->chunk[s->me].tokens * PLAN_HEAD_DIM;
    if (columns == 0)
        return BURST_OK;
    plan_order_dq_kernel<<<(unsigned)((columns + 255) / 256), 256, 0, burst_gpu_compute(s->exec)>>>(
        dq, columns, PLAN_SCALE);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}
#endif

#if PLAN_PIECES > 1
/* Converts between [key heads][n][width] and [pieces][key heads][tokens of the piece][width]. */
static inline int plan_move_pieces(BurstCtx *c, PlanState *s, int width, float *by_heads, float *by_pieces,
                                   bool split)
{
    const size_t token = (size_t)width * sizeof(float);
    for (int p = 0; p < PLAN_PIECES; p++) {
        const int64_t begin = plan_piece_begin(s->n, p), n = plan_piece_begin(s->n, p + 1) - begin;
        const size_t piece_head = (size_t)n * token, whole_head = (size_t)s->n * token;
        float *head = by_heads + begin * width, *piece = by_pieces + begin * s->heads.keys * width;
        if (n > 0)
            PLAN_CUDA(cudaMemcpy2DAsync(split ? piece : head, split ? piece_head : whole_head,
                                        split ? head : piece, split ? whole_head : piece_head, piece_head,
                                        (size_t)s->heads.keys, cudaMemcpyDeviceToDevice,
                                        burst_gpu_compute(s->exec)));
    }
    return BURST_OK;
}
#endif

/* Computes dq [heads][n][head_dim], dk [kv_heads][n][head_dim] and dv [kv_heads][n][value_dim] from d_o,
 * with the final lse and delta. */
static inline int plan_attention_back(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q,
                                      const BurstBf16 *k, const BurstBf16 *v, const float *lse,
                                      const BurstBf16 *d_o, const float *delta, float *dq, float *dk,
                                      float *dv)
{
#if PLAN_PIECES > 1
    float *to_k = s->buffer.piece_dk, *to_v = s->buffer.piece_dv;
#else
    float *to_k = dk, *to_v = dv;
#endif
#if defined PLAN_KEY_CHUNKS && defined PLAN_SHARES
    if (s->tile.adds) /* an exchange overwrites the rank's own arrays */
        to_k = s->buffer.own_dk, to_v = s->buffer.own_dv;
#endif
    s->mask = mask;
    BURST_TRY(plan_part(s, BURST_P_GRAD_BEGIN, 0, 0));
    BURST_TRY(plan_home(s, BURST_T_Q, q, d_o, delta, lse));
    BURST_TRY(plan_home_keys(c, s, k, v));
    BURST_TRY(plan_clear(s, dq, to_k, to_v));
#if PLAN_PIECES > 1
    if (s->tile.adds) {
        BURST_TRY(plan_move_pieces(c, s, PLAN_HEAD_DIM, dk, to_k, true));
        BURST_TRY(plan_move_pieces(c, s, PLAN_VALUE_DIM, dv, to_v, true));
    }
#endif
    BURST_TRY(plan_home(s, BURST_T_DQ, dq, NULL, NULL, NULL));
    BURST_TRY(plan_home_sums(s, to_k, to_v));
    BURST_TRY(plan_follow(s));
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    BURST_TRY(plan_backward(c, s));
    BURST_TRY(plan_part(s, BURST_P_GRAD_END, 0, 0));
#if PLAN_PIECES > 1
    BURST_TRY(plan_move_pieces(c, s, PLAN_HEAD_DIM, dk, to_k, false));
    BURST_TRY(plan_move_pieces(c, s, PLAN_VALUE_DIM, dv, to_v, false));
#endif
#if defined PLAN_KEY_CHUNKS && defined PLAN_SHARES
    const int64_t rows = s->heads.keys * plan_own_keys(s);
    cudaStream_t compute = burst_gpu_compute(s->exec);
    if (s->tile.adds) {
        BURST_TRY(burst_gpu_add_floats(s->exec, compute, rows * PLAN_HEAD_DIM, to_k, dk));
        BURST_TRY(burst_gpu_add_floats(s->exec, compute, rows * PLAN_VALUE_DIM, to_v, dv));
    }
#endif
#ifdef PLAN_LIBRARY
    return BURST_OK; /* plan_library_backward orders dQ as it rounds it */
#else
    return s->tile.suspends ? BURST_OK : plan_order_dq(c, s, dq);
#endif
}

#ifdef PLAN_LATENTS
/* plan_attention with KV as latents: keys and values are latent [n][latent] times weight. */
static inline int plan_attention_latents(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q,
                                         const BurstBf16 *k, const BurstBf16 *v, const BurstBf16 *latent,
                                         const BurstBf16 *weight, BurstBf16 *o, float *lse)
{
    s->latents.latent = latent;
    s->latents.weight = weight;
    return plan_attention(c, s, mask, q, k, v, o, lse);
}

/* plan_attention_back for these. What other ranks add to dk and dv arrives as d_latent and, for the part
 * that all heads share, in dk of the first head; `gradient` includes what this rank adds to gradients of
 * other ranks' keys and values. */
static inline int plan_attention_back_latents(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q,
                                              const BurstBf16 *k, const BurstBf16 *v, const float *lse,
                                              const BurstBf16 *d_o, const float *delta,
                                              const BurstBf16 *latent, const BurstBf16 *weight, float *dq,
                                              float *dk, float *dv, BurstBf16 *d_latent, float *gradient)
{
    s->latents.latent = latent;
    s->latents.weight = weight;
    s->latents.d_latent = d_latent;
    s->latents.gradient = gradient;
    BURST_TRY(plan_attention_back(c, s, mask, q, k, v, lse, d_o, delta, dq, dk, dv));
    BURST_TRY(plan_part(s, BURST_P_GRAD_END, 0, 0));
    BURST_TRY(plan_latents_end(c, s));
    return plan_part(s, BURST_P_IDLE, 0, 0);
}
#endif

#endif
