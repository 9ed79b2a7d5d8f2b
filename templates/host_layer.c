/* ---- attention of one layer ---- */

/* o [heads][n][head_dim] and lse [heads][n] from q, k, v by heads. */
static int plan_attention(BurstCtx *c, PlanState *s, int mask, const BurstTables *tables, const float *q, const float *k,
                          const float *v, float *o, float *lse)
{
    s->mask = mask;
    s->tables = tables;
    plan_home(s, BURST_T_Q, q, NULL, NULL, NULL);
    plan_home(s, BURST_T_KV, k, v, NULL, NULL);
    plan_home(s, BURST_T_O, o, lse, NULL, NULL);
    BurstAttend start = {.head_dim = PLAN_HEAD_DIM, .q_heads = PLAN_HEADS, .qc = &s->chunk[s->me], .o = o, .lse = lse};
    burst_attend_start(&start);
    return plan_forward(c, s);
}

/* dq [heads][n][head_dim], dk, dv [kv_heads][n][head_dim] from d_o, with the final o and lse. */
static int plan_attention_back(BurstCtx *c, PlanState *s, int mask, const BurstTables *tables, const float *q, const float *k,
                               const float *v, const float *o, const float *lse, const float *d_o, float *dq, float *dk,
                               float *dv)
{
    s->mask = mask;
    s->tables = tables;
    burst_part(c, BURST_P_GRAD_BEGIN, 0, 0);
    burst_attend_delta(PLAN_HEADS * s->n, PLAN_HEAD_DIM, o, d_o, s->delta);
    memset(dq, 0, (size_t)(PLAN_HEADS * PLAN_HEAD_DIM * s->n) * sizeof(float));
    memset(dk, 0, (size_t)(PLAN_KV_HEADS * PLAN_HEAD_DIM * s->n) * sizeof(float));
    memset(dv, 0, (size_t)(PLAN_KV_HEADS * PLAN_HEAD_DIM * s->n) * sizeof(float));
    plan_home(s, BURST_T_Q, q, d_o, s->delta, lse);
    plan_home(s, BURST_T_KV, k, v, NULL, NULL);
    plan_home(s, BURST_T_DQ, dq, NULL, NULL, NULL);
    plan_home(s, BURST_T_DKV, dk, dv, NULL, NULL);
    burst_part(c, BURST_P_IDLE, 0, 0);
    return plan_backward(c, s);
}

/* ---- one layer ---- */

/* w: the layer's weights, gathered. Recomputation calls parts of forward again: the first three functions. */

/* q, k, v from x[layer]; h becomes its norm. */
static void plan_before_attention(BurstCtx *c, PlanState *s, int layer, const float *w)
{
    const int64_t n = s->n, q = PLAN_HEADS * PLAN_HEAD_DIM, kv = PLAN_KV_HEADS * PLAN_HEAD_DIM;
    const int64_t *position = s->chunk[s->me].position;
    const int keep = layer % PLAN_KEPT;
    burst_part(c, BURST_P_NORM, 0, 0);
    burst_rmsnorm(n, PLAN_HIDDEN, s->x[layer], w + PLAN_W_NORM1, PLAN_NORM_EPS, s->h, s->rstd1[keep]);
    burst_part(c, BURST_P_PROJECT, 0, 0); /* with the rotation */
    burst_linear(n, PLAN_HIDDEN, (int)q, s->h, w + PLAN_W_Q, s->t, false);
    burst_rope_to_heads(n, PLAN_HEADS, PLAN_HEAD_DIM, PLAN_ROPE_THETA, position, s->t, s->q[keep]);
    burst_linear(n, PLAN_HIDDEN, (int)kv, s->h, w + PLAN_W_K, s->t, false);
    burst_rope_to_heads(n, PLAN_KV_HEADS, PLAN_HEAD_DIM, PLAN_ROPE_THETA, position, s->t, s->k[keep]);
    burst_linear(n, PLAN_HIDDEN, (int)kv, s->h, w + PLAN_W_V, s->t, false);
    burst_tokens_to_heads(n, PLAN_KV_HEADS, PLAN_HEAD_DIM, s->t, s->v[keep]);
    burst_part(c, BURST_P_IDLE, 0, 0);
}

/* o and lse from q, k, v. */
static int plan_layer_attention(BurstCtx *c, PlanState *s, int layer, const BurstTables *tables)
{
    const int keep = layer % PLAN_KEPT, keep_o = layer % PLAN_KEPT_O;
    return plan_attention(c, s, plan_layer_mask[layer], tables, s->q[keep], s->k[keep], s->v[keep], s->o[keep_o],
                          s->lse[keep_o]);
}

/* x_mid, gate and up from o and x[layer]; h becomes x_mid's norm. */
static void plan_after_attention(BurstCtx *c, PlanState *s, int layer, const float *w)
{
    const int64_t n = s->n, q = PLAN_HEADS * PLAN_HEAD_DIM;
    const int keep = layer % PLAN_KEPT;
    burst_part(c, BURST_P_PROJECT, 0, 0);
    burst_heads_to_tokens(n, PLAN_HEADS, PLAN_HEAD_DIM, s->o[layer % PLAN_KEPT_O], s->t);
    memcpy(s->x_mid[keep], s->x[layer], (size_t)(n * PLAN_HIDDEN) * sizeof(float));
    burst_linear(n, (int)q, PLAN_HIDDEN, s->t, w + PLAN_W_O, s->x_mid[keep], true);
    burst_part(c, BURST_P_NORM, 0, 0);
    burst_rmsnorm(n, PLAN_HIDDEN, s->x_mid[keep], w + PLAN_W_NORM2, PLAN_NORM_EPS, s->h, s->rstd2[keep]);
    burst_part(c, BURST_P_FFN, 0, 0);
    burst_linear(n, PLAN_HIDDEN, PLAN_FFN, s->h, w + PLAN_W_GATE, s->gate[keep], false);
    burst_linear(n, PLAN_HIDDEN, PLAN_FFN, s->h, w + PLAN_W_UP, s->up[keep], false);
}

/* x[layer] to x[layer + 1]. */
static int plan_layer(BurstCtx *c, PlanState *s, int layer, const float *w, const BurstTables *tables)
{
    const int64_t n = s->n;
    const int keep = layer % PLAN_KEPT;
    burst_doing(c, "layer forward");
    plan_before_attention(c, s, layer, w);
    BURST_TRY(plan_layer_attention(c, s, layer, tables));
    burst_doing(c, "layer forward");
    plan_after_attention(c, s, layer, w);
    burst_swiglu(n * PLAN_FFN, s->gate[keep], s->up[keep], s->t);
    memcpy(s->x[layer + 1], s->x_mid[keep], (size_t)(n * PLAN_HIDDEN) * sizeof(float));
    burst_linear(n, PLAN_FFN, PLAN_HIDDEN, s->t, w + PLAN_W_DOWN, s->x[layer + 1], true);
    return BURST_OK;
}

/* The FFN's half of backward: dx is the gradient of x[layer + 1] and becomes that of x_mid. g: the layer's gradients. */
static void plan_ffn_back(PlanState *s, int keep, const float *w, float *g)
{
    const int64_t n = s->n;
    burst_swiglu(n * PLAN_FFN, s->gate[keep], s->up[keep], s->t);
    burst_linear_dw(n, PLAN_FFN, PLAN_HIDDEN, s->dx, s->t, g + PLAN_W_DOWN);
    burst_linear_dx(n, PLAN_FFN, PLAN_HIDDEN, s->dx, w + PLAN_W_DOWN, s->t2, false);
    burst_swiglu_back(n * PLAN_FFN, s->gate[keep], s->up[keep], s->t2, s->d_gate, s->d_up);
    // @insert norm2_again
    burst_linear_dw(n, PLAN_HIDDEN, PLAN_FFN, s->d_gate, s->h, g + PLAN_W_GATE);
    burst_linear_dw(n, PLAN_HIDDEN, PLAN_FFN, s->d_up, s->h, g + PLAN_W_UP);
    burst_linear_dx(n, PLAN_HIDDEN, PLAN_FFN, s->d_gate, w + PLAN_W_GATE, s->dh, false);
    burst_linear_dx(n, PLAN_HIDDEN, PLAN_FFN, s->d_up, w + PLAN_W_UP, s->dh, true);
    burst_rmsnorm_back(n, PLAN_HIDDEN, s->x_mid[keep], w + PLAN_W_NORM2, s->rstd2[keep], s->dh, s->dx, g + PLAN_W_NORM2);
}

/* One projection's backward: dt [n][out] token-major; dh gets its part of the gradient of the normalised input h. */
static void plan_projection_back(PlanState *s, int out, const float *dt, const float *w, float *g, bool add)
{
    burst_linear_dw(s->n, PLAN_HIDDEN, out, dt, s->h, g);
    burst_linear_dx(s->n, PLAN_HIDDEN, out, dt, w, s->dh, add);
}

/* dx: gradient of x[layer + 1], becomes that of x[layer]. */
static int plan_layer_back(BurstCtx *c, PlanState *s, int layer, const float *w, float *g, const BurstTables *tables)
{
    const int64_t n = s->n;
    const int q = PLAN_HEADS * PLAN_HEAD_DIM, kv = PLAN_KV_HEADS * PLAN_HEAD_DIM;
    const int keep = layer % PLAN_KEPT, keep_o = layer % PLAN_KEPT_O;
    const int64_t *position = s->chunk[s->me].position;
    burst_doing(c, "layer backward");
    // @insert recompute
    burst_part(c, BURST_P_FFN, 0, 0); /* with its norm */
    plan_ffn_back(s, keep, w, g);
    burst_part(c, BURST_P_PROJECT, 0, 0);
    burst_heads_to_tokens(n, PLAN_HEADS, PLAN_HEAD_DIM, s->o[keep_o], s->t);
    burst_linear_dw(n, q, PLAN_HIDDEN, s->dx, s->t, g + PLAN_W_O);
    burst_linear_dx(n, q, PLAN_HIDDEN, s->dx, w + PLAN_W_O, s->t2, false);
    burst_tokens_to_heads(n, PLAN_HEADS, PLAN_HEAD_DIM, s->t2, s->d_o);
    // @insert recompute_qkv
    BURST_TRY(plan_attention_back(c, s, plan_layer_mask[layer], tables, s->q[keep], s->k[keep], s->v[keep], s->o[keep_o],
                                  s->lse[keep_o], s->d_o, s->dq, s->dk, s->dv));
    burst_doing(c, "layer backward");
    // @insert norm1_again
    burst_part(c, BURST_P_PROJECT, 0, 0); /* with the rotation */
    burst_rope_back(n, PLAN_HEADS, PLAN_HEAD_DIM, PLAN_ROPE_THETA, position, s->dq, s->t);
    plan_projection_back(s, q, s->t, w + PLAN_W_Q, g + PLAN_W_Q, false);
    burst_rope_back(n, PLAN_KV_HEADS, PLAN_HEAD_DIM, PLAN_ROPE_THETA, position, s->dk, s->t);
    plan_projection_back(s, kv, s->t, w + PLAN_W_K, g + PLAN_W_K, true);
    burst_heads_to_tokens(n, PLAN_KV_HEADS, PLAN_HEAD_DIM, s->dv, s->t);
    plan_projection_back(s, kv, s->t, w + PLAN_W_V, g + PLAN_W_V, true);
    burst_part(c, BURST_P_NORM, 0, 0);
    burst_rmsnorm_back(n, PLAN_HIDDEN, s->x[layer], w + PLAN_W_NORM1, s->rstd1[keep], s->dh, s->dx, g + PLAN_W_NORM1);
    return BURST_OK;
}
