/* ---- attention of one layer ---- */

/* o [n][heads * head_dim] and lse [heads][n] from q, k, v. */
static int plan_attention(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q, const BurstBf16 *k, const BurstBf16 *v,
                          BurstBf16 *o, float *lse)
{
    s->mask = mask;
    plan_count_pairs(s);
    BURST_TRY(plan_home(s, BURST_T_Q, q, NULL, NULL, NULL));
    BURST_TRY(plan_home(s, BURST_T_KV, k, v, NULL, NULL));
    BURST_TRY(plan_home(s, BURST_T_O, lse, o, NULL, NULL));
    BURST_TRY(plan_forward(c, s));
    return plan_attend_none(c, s);
}

/* The kernels leave dQ in an order of columns of their own, without the scale: sums of it may travel and be added as they
 * are. Here, at home and complete, it gets its order; a warp 32 columns. */
static __global__ void plan_order_dq_kernel(float *dq, int64_t columns, float scale)
{
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = (int)(at % 32);
    float x = 0;
    if (at < columns)
        x = dq[at - lane + burst::dq_place(lane / 8, lane % 8 / 2, lane % 2)] * scale;
    __syncwarp();
    if (at < columns)
        dq[at] = x;
}

static int plan_order_dq(BurstCtx *c, PlanState *s, float *dq)
{
    const int64_t columns = PLAN_HEADS * s->n * PLAN_HEAD_DIM;
    if (columns == 0)
        return BURST_OK;
    plan_order_dq_kernel<<<(unsigned)((columns + 255) / 256), 256, 0, burst_gpu_compute(s->gpu)>>>(dq, columns, PLAN_SCALE);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

/* dq [heads][n][head_dim], dk, dv [kv_heads][n][head_dim] from d_o, with the final o and lse. */
static int plan_attention_back(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q, const BurstBf16 *k,
                               const BurstBf16 *v, const BurstBf16 *o, const float *lse, const BurstBf16 *d_o, float *dq,
                               float *dk, float *dv)
{
    s->mask = mask;
    BURST_TRY(plan_part(s, BURST_P_GRAD_BEGIN, 0, 0));
    BURST_TRY(burst_gpu_delta(s->gpu, s->n, PLAN_HEADS, PLAN_HEAD_DIM, o, d_o, s->delta));
    BURST_TRY(plan_home(s, BURST_T_Q, q, d_o, s->delta, lse));
    BURST_TRY(plan_home(s, BURST_T_KV, k, v, NULL, NULL));
    BURST_TRY(plan_clear(s, dq, dk, dv));
    BURST_TRY(plan_home(s, BURST_T_DQ, dq, NULL, NULL, NULL));
    BURST_TRY(plan_home(s, BURST_T_DKV, dk, dv, NULL, NULL));
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    BURST_TRY(plan_backward(c, s));
    BURST_TRY(plan_part(s, BURST_P_GRAD_END, 0, 0));
    return plan_order_dq(c, s, dq);
}

/* ---- one layer ---- */

/* w: the layer's weights, gathered. Recomputation calls parts of forward again: the first three functions. */

/* q, k, v from x[layer]; h becomes its norm. */
static int plan_before_attention(PlanState *s, int layer, const BurstBf16 *w)
{
    const int64_t n = s->n;
    const int q = PLAN_HEADS * PLAN_HEAD_DIM, kv = PLAN_KV_HEADS * PLAN_HEAD_DIM, keep = layer % PLAN_KEPT;
    const int32_t *position = s->tokens[s->me].position;
    BurstGpu *g = s->gpu;
    BURST_TRY(plan_part(s, BURST_P_NORM, 0, 0));
    BURST_TRY(burst_gpu_rmsnorm(g, n, PLAN_HIDDEN, s->x[layer], w + PLAN_W_NORM1, PLAN_NORM_EPS, s->h, s->rstd1[keep]));
    BURST_TRY(plan_part(s, BURST_P_PROJECT, 0, 0));
    BURST_TRY(burst_gpu_linear(g, n, PLAN_HIDDEN, q, s->h, w + PLAN_W_Q, NULL, s->q[keep]));
    BURST_TRY(burst_gpu_linear(g, n, PLAN_HIDDEN, kv, s->h, w + PLAN_W_K, NULL, s->k[keep]));
    BURST_TRY(burst_gpu_linear(g, n, PLAN_HIDDEN, kv, s->h, w + PLAN_W_V, NULL, s->v[keep]));
    BURST_TRY(plan_part(s, BURST_P_ROPE, 0, 0));
    BURST_TRY(burst_gpu_rope(g, n, PLAN_HEADS, PLAN_HEAD_DIM, PLAN_ROPE_THETA, position, s->q[keep]));
    BURST_TRY(burst_gpu_rope(g, n, PLAN_KV_HEADS, PLAN_HEAD_DIM, PLAN_ROPE_THETA, position, s->k[keep]));
    return plan_part(s, BURST_P_IDLE, 0, 0);
}

/* o and lse from q, k, v. */
static int plan_layer_attention(BurstCtx *c, PlanState *s, int layer)
{
    const int keep = layer % PLAN_KEPT, keep_o = layer % PLAN_KEPT_O;
    return plan_attention(c, s, plan_layer_mask[layer], s->q[keep], s->k[keep], s->v[keep], s->o[keep_o], s->lse[keep_o]);
}

/* x_mid, gate and up from o and x[layer]; h becomes x_mid's norm. */
static int plan_after_attention(PlanState *s, int layer, const BurstBf16 *w)
{
    const int64_t n = s->n;
    const int q = PLAN_HEADS * PLAN_HEAD_DIM, keep = layer % PLAN_KEPT, keep_o = layer % PLAN_KEPT_O;
    BurstGpu *g = s->gpu;
    BURST_TRY(plan_part(s, BURST_P_PROJECT, 0, 0));
    BURST_TRY(burst_gpu_linear(g, n, q, PLAN_HIDDEN, s->o[keep_o], w + PLAN_W_O, s->x[layer], s->x_mid[keep]));
    BURST_TRY(plan_part(s, BURST_P_NORM, 0, 0));
    BURST_TRY(burst_gpu_rmsnorm(g, n, PLAN_HIDDEN, s->x_mid[keep], w + PLAN_W_NORM2, PLAN_NORM_EPS, s->h, s->rstd2[keep]));
    BURST_TRY(plan_part(s, BURST_P_FFN, 0, 0));
    /* gate and up lie one after the other in the unit: one product */
    return burst_gpu_linear(g, n, PLAN_HIDDEN, 2 * PLAN_FFN, s->h, w + PLAN_W_GATE, NULL, s->gate_up[keep]);
}

/* x[layer] to x[layer + 1]. */
static int plan_layer(BurstCtx *c, PlanState *s, int layer, const BurstBf16 *w)
{
    const int64_t n = s->n;
    const int keep = layer % PLAN_KEPT;
    BurstGpu *g = s->gpu;
    burst_doing(c, "layer forward");
    BURST_TRY(plan_before_attention(s, layer, w));
    BURST_TRY(plan_layer_attention(c, s, layer));
    burst_doing(c, "layer forward");
    BURST_TRY(plan_after_attention(s, layer, w));
    BURST_TRY(burst_gpu_swiglu(g, n, PLAN_FFN, s->gate_up[keep], s->t));
    return burst_gpu_linear(g, n, PLAN_FFN, PLAN_HIDDEN, s->t, w + PLAN_W_DOWN, s->x_mid[keep], s->x[layer + 1]);
}

/* The FFN's half of backward: dx is the gradient of x[layer + 1] and becomes that of x_mid. d: the layer's gradients. */
static int plan_ffn_back(PlanState *s, int keep, const BurstBf16 *w, float *d)
{
    const int64_t n = s->n;
    BurstGpu *g = s->gpu;
    BURST_TRY(plan_part(s, BURST_P_FFN, 0, 0));
    BURST_TRY(burst_gpu_swiglu(g, n, PLAN_FFN, s->gate_up[keep], s->t));
    BURST_TRY(burst_gpu_linear_dw(g, n, PLAN_FFN, PLAN_HIDDEN, s->dx, s->t, d + PLAN_W_DOWN));
    BURST_TRY(burst_gpu_linear_dx(g, n, PLAN_FFN, PLAN_HIDDEN, s->dx, w + PLAN_W_DOWN, s->t2, false));
    BURST_TRY(burst_gpu_swiglu_back(g, n, PLAN_FFN, s->gate_up[keep], s->t2, s->d_gate_up));
    // @insert norm2_again
    BURST_TRY(burst_gpu_linear_dw(g, n, PLAN_HIDDEN, 2 * PLAN_FFN, s->d_gate_up, s->h, d + PLAN_W_GATE));
    BURST_TRY(burst_gpu_linear_dx(g, n, PLAN_HIDDEN, 2 * PLAN_FFN, s->d_gate_up, w + PLAN_W_GATE, s->dh, false));
    BURST_TRY(plan_part(s, BURST_P_NORM, 0, 0));
    return burst_gpu_rmsnorm_back(g, n, PLAN_HIDDEN, s->x_mid[keep], w + PLAN_W_NORM2, s->rstd2[keep], s->dh, s->dx, s->dx,
                                  d + PLAN_W_NORM2, s->norm_scratch);
}

/* One projection's backward; dh gets its part of the gradient of the normalised input h. */
static int plan_projection_back(PlanState *s, int out, const BurstBf16 *dt, const BurstBf16 *w, float *d, bool add)
{
    BURST_TRY(burst_gpu_linear_dw(s->gpu, s->n, PLAN_HIDDEN, out, dt, s->h, d));
    return burst_gpu_linear_dx(s->gpu, s->n, PLAN_HIDDEN, out, dt, w, s->dh, add);
}

/* dx: gradient of x[layer + 1], becomes that of x[layer]. */
static int plan_layer_back(BurstCtx *c, PlanState *s, int layer, const BurstBf16 *w, float *d)
{
    const int64_t n = s->n;
    const int q = PLAN_HEADS * PLAN_HEAD_DIM, kv = PLAN_KV_HEADS * PLAN_HEAD_DIM;
    const int keep = layer % PLAN_KEPT, keep_o = layer % PLAN_KEPT_O;
    const int32_t *position = s->tokens[s->me].position;
    BurstGpu *g = s->gpu;
    burst_doing(c, "layer backward");
    // @insert recompute
    BURST_TRY(plan_ffn_back(s, keep, w, d));
    BURST_TRY(plan_part(s, BURST_P_PROJECT, 0, 0));
    BURST_TRY(burst_gpu_linear_dw(g, n, q, PLAN_HIDDEN, s->dx, s->o[keep_o], d + PLAN_W_O));
    BURST_TRY(burst_gpu_linear_dx(g, n, q, PLAN_HIDDEN, s->dx, w + PLAN_W_O, s->d_o, false));
    // @insert recompute_qkv
    BURST_TRY(plan_attention_back(c, s, plan_layer_mask[layer], s->q[keep], s->k[keep], s->v[keep], s->o[keep_o],
                                  s->lse[keep_o], s->d_o, s->dq, s->dk, s->dv));
    burst_doing(c, "layer backward");
    // @insert norm1_again
    BURST_TRY(plan_part(s, BURST_P_ROPE, 0, 0));
    BURST_TRY(burst_gpu_rope_back(g, n, PLAN_HEADS, PLAN_HEAD_DIM, PLAN_ROPE_THETA, position, s->dq, s->t));
    BURST_TRY(plan_part(s, BURST_P_PROJECT, 0, 0));
    BURST_TRY(plan_projection_back(s, q, s->t, w + PLAN_W_Q, d + PLAN_W_Q, false));
    BURST_TRY(plan_part(s, BURST_P_ROPE, 0, 0));
    BURST_TRY(burst_gpu_rope_back(g, n, PLAN_KV_HEADS, PLAN_HEAD_DIM, PLAN_ROPE_THETA, position, s->dk, s->t));
    BURST_TRY(plan_part(s, BURST_P_PROJECT, 0, 0));
    BURST_TRY(plan_projection_back(s, kv, s->t, w + PLAN_W_K, d + PLAN_W_K, true));
    BURST_TRY(plan_part(s, BURST_P_ROPE, 0, 0));
    BURST_TRY(burst_gpu_rope_back(g, n, PLAN_KV_HEADS, PLAN_HEAD_DIM, 0, position, s->dv, s->t));
    BURST_TRY(plan_part(s, BURST_P_PROJECT, 0, 0));
    BURST_TRY(plan_projection_back(s, kv, s->t, w + PLAN_W_V, d + PLAN_W_V, true));
    BURST_TRY(plan_part(s, BURST_P_NORM, 0, 0));
    return burst_gpu_rmsnorm_back(g, n, PLAN_HIDDEN, s->x[layer], w + PLAN_W_NORM1, s->rstd1[keep], s->dh, s->dx, s->dx,
                                  d + PLAN_W_NORM1, s->norm_scratch);
}
