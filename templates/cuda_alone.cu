/* ---- attention alone, for tests and benchmarks: fp32 arrays on the host, by heads, rounded to bf16 on the device ---- */

/* [heads][n][head_dim] to [n][heads * head_dim] on the device, a token at a time. */
static int plan_upload_heads(PlanState *s, int heads, const float *x, BurstBf16 *device)
{
    BurstBf16 row[PLAN_HEADS * PLAN_HEAD_DIM];
    const size_t count = (size_t)heads * PLAN_HEAD_DIM;
    for (int64_t i = 0; i < s->n; i++) {
        for (size_t j = 0; j < count; j++)
            row[j] = __float2bfloat16(x[((int64_t)(j / PLAN_HEAD_DIM) * s->n + i) * PLAN_HEAD_DIM + (int64_t)(j % PLAN_HEAD_DIM)]);
        BURST_TRY(burst_gpu_upload(s->gpu, row, count * sizeof *row, device + (size_t)i * count));
    }
    return BURST_OK;
}

static int plan_download_heads(PlanState *s, int heads, const BurstBf16 *device, float *x)
{
    BurstBf16 row[PLAN_HEADS * PLAN_HEAD_DIM];
    const size_t count = (size_t)heads * PLAN_HEAD_DIM;
    for (int64_t i = 0; i < s->n; i++) {
        BURST_TRY(burst_gpu_download(s->gpu, device + (size_t)i * count, count * sizeof *row, row));
        for (size_t j = 0; j < count; j++)
            x[((int64_t)(j / PLAN_HEAD_DIM) * s->n + i) * PLAN_HEAD_DIM + (int64_t)(j % PLAN_HEAD_DIM)] = __bfloat162float(row[j]);
    }
    return BURST_OK;
}

static int plan_upload_qkv(BurstCtx *c, PlanState *s, const BurstTables *t, const float *q, const float *k, const float *v)
{
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, s, t));
    BURST_TRY(plan_upload_heads(s, PLAN_HEADS, q, s->q[0]));
    BURST_TRY(plan_upload_heads(s, PLAN_KV_HEADS, k, s->k[0]));
    return plan_upload_heads(s, PLAN_KV_HEADS, v, s->v[0]);
}

static int plan_attention_forward(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q, const float *k,
                                  const float *v, float *o, float *lse)
{
    PlanState *s = (PlanState *)state;
    BURST_TRY(plan_upload_qkv(c, s, t, q, k, v));
    BURST_TRY(plan_attention(c, s, mask, s->q[0], s->k[0], s->v[0], s->o[0], s->lse[0]));
    BURST_TRY(plan_download_heads(s, PLAN_HEADS, s->o[0], o));
    BURST_TRY(burst_gpu_download(s->gpu, s->lse[0], (size_t)(PLAN_HEADS * s->n) * sizeof(float), lse));
    return burst_gpu_sync(s->gpu);
}

static int plan_attention_backward(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q, const float *k,
                                   const float *v, const float *o, const float *lse, const float *d_o, float *dq, float *dk,
                                   float *dv)
{
    PlanState *s = (PlanState *)state;
    const size_t head_bytes = (size_t)(s->n * PLAN_HEAD_DIM) * sizeof(float);
    BURST_TRY(plan_upload_qkv(c, s, t, q, k, v));
    BURST_TRY(plan_upload_heads(s, PLAN_HEADS, o, s->o[0]));
    BURST_TRY(plan_upload_heads(s, PLAN_HEADS, d_o, s->d_o));
    BURST_TRY(burst_gpu_upload(s->gpu, lse, (size_t)(PLAN_HEADS * s->n) * sizeof(float), s->lse[0]));
    BURST_TRY(plan_attention_back(c, s, mask, s->q[0], s->k[0], s->v[0], s->o[0], s->lse[0], s->d_o, s->dq, s->dk, s->dv));
    BURST_TRY(burst_gpu_download(s->gpu, s->dq, PLAN_HEADS * head_bytes, dq));
    BURST_TRY(burst_gpu_download(s->gpu, s->dk, PLAN_KV_HEADS * head_bytes, dk));
    BURST_TRY(burst_gpu_download(s->gpu, s->dv, PLAN_KV_HEADS * head_bytes, dv));
    return burst_gpu_sync(s->gpu);
}
