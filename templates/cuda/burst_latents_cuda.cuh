/* burst_latents_cuda.cuh: keys and values that travel as latents on GPUs, by the step's operations on the
 * compute stream, around the launch of a pair. */
#ifndef BURST_LATENTS_CUDA_CUH
#define BURST_LATENTS_CUDA_CUH

enum {
    PLAN_OWN_WIDTH = PLAN_KV_HEADS * PLAN_OWN, /* of all of a rank's heads */
    PLAN_VALUE_WIDTH = PLAN_KV_HEADS * PLAN_VALUE_DIM,
    PLAN_KEY_WIDTH = PLAN_KV_HEADS * PLAN_HEAD_DIM,
    PLAN_VALUE_WEIGHTS = PLAN_OWN_WIDTH * PLAN_LATENT /* offset of the values' weights */
};

/* y += x, for rows of `width` elements. */
template <class T>
static __global__ void plan_add_rows_kernel(int64_t rows, int width, const T *x, int64_t x_pitch, float *y,
                                            int64_t y_pitch)
{
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < rows * width)
        y[at / width * y_pitch + at % width] += (float)x[at / width * x_pitch + at % width];
}

template <class T>
static inline int plan_add_rows(BurstCtx *c, PlanState *s, int64_t rows, int width, const T *x,
                                int64_t x_pitch, float *y, int64_t y_pitch)
{
    const int64_t elements = rows * width;
    if (elements == 0)
        return BURST_OK;
    plan_add_rows_kernel<T><<<(unsigned)((elements + 255) / 256), 256, 0, burst_gpu_compute(s->exec)>>>(
        rows, width, x, x_pitch, y, y_pitch);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

static inline int plan_home_latents(BurstCtx *c, PlanState *s, const BurstBf16 *k, const BurstBf16 *v)
{
    const size_t shared = PLAN_SHARED * sizeof *k;
    s->latents.k = k;
    s->latents.v = v;
    if (s->n > 0)
        PLAN_CUDA(cudaMemcpy2DAsync(s->buffer.own_shared, shared, k + PLAN_OWN, PLAN_KEY_WIDTH * sizeof *k,
                                    shared, (size_t)s->n, cudaMemcpyDeviceToDevice,
                                    burst_gpu_compute(s->exec)));
    return plan_home(s, BURST_T_KV, s->latents.latent, s->buffer.own_shared, NULL, NULL);
}

/* Sums that arrive start from zero. */
static inline int plan_home_sums(PlanState *s, float *dk, float *dv)
{
    s->latents.dk = dk;
    s->latents.dv = dv;
    BURST_TRY(burst_gpu_zero(s->exec, s->buffer.own_d_latent, (size_t)(s->n * PLAN_LATENT) * sizeof(float)));
    BURST_TRY(burst_gpu_zero(s->exec, s->buffer.own_d_shared, (size_t)(s->n * PLAN_SHARED) * sizeof(float)));
    return plan_home(s, BURST_T_DKV, s->buffer.own_d_latent, s->buffer.own_d_shared, NULL, NULL);
}

/* Rounds the latent's gradient, and adds the part that all heads share to the first head's dk
 * [heads][n][head_dim]. */
static inline int plan_latents_end(BurstCtx *c, PlanState *s)
{
    BURST_TRY(burst_op_to_tokens(s->exec, s->n, 1, PLAN_LATENT, s->buffer.own_d_latent, s->latents.d_latent));
    return plan_add_rows(c, s, s->n, PLAN_SHARED, s->buffer.own_d_shared, PLAN_SHARED,
                         s->latents.dk + PLAN_OWN, PLAN_HEAD_DIM);
}

/* Keys and values of a chunk: the owner's, or rebuilt from its latents. */
static inline int plan_pair_keys(PlanState *s, int part, int q, int kv, PlanWord **k, PlanWord **v)
{
    const PlanSlot *slot = s->held[BURST_T_KV][kv];
    const BurstBf16 *latent = (const BurstBf16 *)slot->part[0], *shared = (const BurstBf16 *)slot->part[1],
                    *weight = s->latents.weight;
    const int64_t n = s->key[kv].tokens;
    *k = (PlanWord *)(uintptr_t)(kv == s->me ? s->latents.k : s->buffer.latent_k); /* only read */
    *v = (PlanWord *)(uintptr_t)(kv == s->me ? s->latents.v : s->buffer.latent_v);
    if (kv == s->me)
        return BURST_OK;
    BURST_TRY(plan_part(s, part, q, kv));
    BURST_TRY(burst_op_linear(s->exec, n, PLAN_LATENT, PLAN_OWN_WIDTH, 1, latent, weight, NULL,
                              s->buffer.latent_own));
    BURST_TRY(burst_op_join(s->exec, n, PLAN_KV_HEADS, PLAN_OWN, PLAN_SHARED, s->buffer.latent_own, shared,
                            s->buffer.latent_k));
    BURST_TRY(burst_op_linear(s->exec, n, PLAN_LATENT, PLAN_VALUE_WIDTH, 1, latent,
                              weight + PLAN_VALUE_WEIGHTS, NULL, s->buffer.latent_v));
    return plan_part(s, BURST_P_IDLE, 0, 0);
}

/* For another rank's keys and values, gradients of one pair only. */
static inline int plan_pair_sums(PlanState *s, int kv, float **dk, float **dv)
{
    const size_t rows = (size_t)s->key[kv].tokens * sizeof(float);
    *dk = kv == s->me ? s->latents.dk : s->buffer.latent_dk;
    *dv = kv == s->me ? s->latents.dv : s->buffer.latent_dv;
    if (kv == s->me)
        return BURST_OK;
    BURST_TRY(burst_gpu_zero(s->exec, *dk, rows * PLAN_KEY_WIDTH));
    return burst_gpu_zero(s->exec, *dv, rows * PLAN_VALUE_WIDTH);
}

/* After the pair's launch, the keys' buffer holds their gradients by tokens, rounded like the step's.
 * Converts them to gradients of the latent and of the shared part, and adds these to fp32 sums. */
static inline int plan_contract(BurstCtx *c, PlanState *s, int kv)
{
    PlanSlot *slot = s->held[BURST_T_KV][kv], *sum = s->held[BURST_T_DKV][kv];
    const BurstBf16 *latent = (const BurstBf16 *)slot->part[0], *weight = s->latents.weight;
    BurstBf16 *d_key = s->buffer.latent_k, *d_own = s->buffer.latent_own, *d_value = s->buffer.latent_v,
              *d_latent = s->buffer.latent_round, *d_shared = d_latent + PLAN_TOKENS * PLAN_LATENT;
    const int64_t n = s->key[kv].tokens;
    BURST_TRY(burst_op_to_tokens(s->exec, n, PLAN_KV_HEADS, PLAN_HEAD_DIM, s->buffer.latent_dk, d_key));
    BURST_TRY(
        burst_op_join_back(s->exec, n, PLAN_KV_HEADS, PLAN_OWN, PLAN_SHARED, d_key, d_own, d_shared, false));
    BURST_TRY(burst_op_linear_dx(s->exec, n, PLAN_LATENT, PLAN_OWN_WIDTH, 1, d_own, weight, d_latent, false));
    BURST_TRY(
        burst_op_linear_dw(s->exec, n, PLAN_LATENT, PLAN_OWN_WIDTH, 1, d_own, latent, s->latents.gradient));
    BURST_TRY(burst_op_to_tokens(s->exec, n, PLAN_KV_HEADS, PLAN_VALUE_DIM, s->buffer.latent_dv, d_value));
    BURST_TRY(burst_op_linear_dx(s->exec, n, PLAN_LATENT, PLAN_VALUE_WIDTH, 1, d_value,
                                 weight + PLAN_VALUE_WEIGHTS, d_latent, true));
    BURST_TRY(burst_op_linear_dw(s->exec, n, PLAN_LATENT, PLAN_VALUE_WIDTH, 1, d_value, latent,
                                 s->latents.gradient + PLAN_VALUE_WEIGHTS));
    BURST_TRY(plan_add_rows(c, s, n, PLAN_LATENT, d_latent, PLAN_LATENT, (float *)sum->part[0], PLAN_LATENT));
    BURST_TRY(plan_add_rows(c, s, n, PLAN_SHARED, d_shared, PLAN_SHARED, (float *)sum->part[1], PLAN_SHARED));
    BURST_TRY(burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &slot->used));
    return burst_gpu_mark(s->exec, burst_gpu_compute(s->exec), &sum->used);
}

static inline int plan_pair_end(BurstCtx *c, PlanState *s, int q, int kv)
{
    if (kv == s->me)
        return BURST_OK;
    BURST_TRY(plan_part(s, BURST_P_GRAD, q, kv));
    BURST_TRY(plan_contract(c, s, kv));
    return plan_part(s, BURST_P_IDLE, 0, 0);
}

#endif
