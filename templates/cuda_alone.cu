/* ---- attention alone, for tests and benchmarks: fp32 arrays on the host, by heads, rounded to bf16 on the device ---- */

/* [heads][n][head_dim] to [n][heads * head_dim] on the device, a token at a time. */
static int plan_upload_heads(PlanState *s, int heads, const float *x, BurstBf16 *device)
{
    BurstBf16 row[PLAN_HEADS * PLAN_HEAD_DIM];
    const size_t count = (size_t)heads * PLAN_HEAD_DIM;
    for (int64_t i = 0; i < s->n; i++) {
        for (size_t j = 0; j < count; j++)
            row[j] = __float2bfloat16(x[((int64_t)(j / PLAN_HEAD_DIM) * s->n + i) * PLAN_HEAD_DIM + (int64_t)(j % PLAN_HEAD_DIM)]);
        BURST_TRY(burst_gpu_upload(s->exec, row, count * sizeof *row, device + (size_t)i * count));
    }
    return BURST_OK;
}

static int plan_download_heads(PlanState *s, int heads, const BurstBf16 *device, float *x)
{
    BurstBf16 row[PLAN_HEADS * PLAN_HEAD_DIM];
    const size_t count = (size_t)heads * PLAN_HEAD_DIM;
    for (int64_t i = 0; i < s->n; i++) {
        BURST_TRY(burst_gpu_download(s->exec, device + (size_t)i * count, count * sizeof *row, row));
        for (size_t j = 0; j < count; j++)
            x[((int64_t)(j / PLAN_HEAD_DIM) * s->n + i) * PLAN_HEAD_DIM + (int64_t)(j % PLAN_HEAD_DIM)] = __bfloat162float(row[j]);
    }
    return BURST_OK;
}

static int plan_upload_qkv(PlanState *s, const float *q, const float *k, const float *v)
{
    BURST_TRY(plan_upload_heads(s, PLAN_HEADS, q, plan_act(s, PLAN_AT_Q(0))));
    BURST_TRY(plan_upload_heads(s, PLAN_KV_HEADS, k, plan_act(s, PLAN_AT_K(0))));
    return plan_upload_heads(s, PLAN_KV_HEADS, v, plan_act(s, PLAN_AT_V(0)));
}

static int plan_attention_forward(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q, const float *k,
                                  const float *v, float *o, float *lse)
{
    PlanState *s = (PlanState *)state;
    BurstBf16 *out = plan_act(s, PLAN_AT_O(0));
    float *out_lse = plan_floats(s, PLAN_AT_LSE(0));
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, s, t));
    BURST_TRY(plan_upload_qkv(s, q, k, v));
    BURST_TRY(plan_attention(c, s, mask, plan_act(s, PLAN_AT_Q(0)), plan_act(s, PLAN_AT_K(0)), plan_act(s, PLAN_AT_V(0)), out, out_lse));
    BURST_TRY(plan_download_heads(s, PLAN_HEADS, out, o));
    BURST_TRY(burst_gpu_download(s->exec, out_lse, (size_t)(PLAN_HEADS * s->n) * sizeof(float), lse));
    return burst_gpu_sync(s->exec);
}

/* Values are there when the step has them there: o until delta is made of it, and then q, k, v, which may lie where it was. */
static int plan_attention_backward(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q, const float *k,
                                   const float *v, const float *o, const float *lse, const float *d_o, float *dq, float *dk,
                                   float *dv)
{
    PlanState *s = (PlanState *)state;
    const size_t head_bytes = (size_t)(s->n * PLAN_HEAD_DIM) * sizeof(float);
    BurstBf16 *to_o = plan_act(s, PLAN_AT_D_O(0));
    float *delta = plan_floats(s, PLAN_AT_DELTA), *to_q = plan_floats(s, PLAN_AT_D_Q(0)), *to_k = plan_floats(s, PLAN_AT_D_K(0)),
          *to_v = plan_floats(s, PLAN_AT_D_V(0)), *last_lse = plan_floats(s, PLAN_AT_LSE(0));
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, s, t));
    BURST_TRY(plan_upload_heads(s, PLAN_HEADS, o, plan_act(s, PLAN_AT_O(0))));
    BURST_TRY(plan_upload_heads(s, PLAN_HEADS, d_o, to_o));
    BURST_TRY(burst_op_delta(s->exec, s->n, PLAN_HEADS, PLAN_HEAD_DIM, plan_act(s, PLAN_AT_O(0)), to_o, delta));
    BURST_TRY(plan_upload_qkv(s, q, k, v));
    BURST_TRY(burst_gpu_upload(s->exec, lse, (size_t)(PLAN_HEADS * s->n) * sizeof(float), last_lse));
    BURST_TRY(plan_attention_back(c, s, mask, plan_act(s, PLAN_AT_Q(0)), plan_act(s, PLAN_AT_K(0)), plan_act(s, PLAN_AT_V(0)), last_lse, to_o, delta,
                                  to_q, to_k, to_v));
    BURST_TRY(burst_gpu_download(s->exec, to_q, PLAN_HEADS * head_bytes, dq));
    BURST_TRY(burst_gpu_download(s->exec, to_k, PLAN_KV_HEADS * head_bytes, dk));
    BURST_TRY(burst_gpu_download(s->exec, to_v, PLAN_KV_HEADS * head_bytes, dv));
    return burst_gpu_sync(s->exec);
}

