/* ---- attention of one layer ---- */

/* Channels follow computing up to here: until now, what is attention's scratch held other values of the step. So the first use of a
 * slot needs no wait of its own. */
static int plan_follow(PlanState *s)
{
    for (int channel = 0; channel < PLAN_CHANNELS && PLAN_WORLD > 1; channel++)
        BURST_TRY(burst_gpu_after(s->exec, burst_gpu_channel(s->exec, channel), &s->home[BURST_T_KV].used));
    return BURST_OK;
}

/* o [n][heads * head_dim] and lse [heads][n] from q, k, v. */
static int plan_attention(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q, const BurstBf16 *k, const BurstBf16 *v,
                          BurstBf16 *o, float *lse)
{
    s->mask = mask;
    plan_count_pairs(s);
    BURST_TRY(plan_home(s, BURST_T_Q, q, NULL, NULL, NULL));
    BURST_TRY(plan_home(s, BURST_T_KV, k, v, NULL, NULL));
    BURST_TRY(plan_home(s, BURST_T_O, lse, o, NULL, NULL));
    BURST_TRY(plan_follow(s));
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
    plan_order_dq_kernel<<<(unsigned)((columns + 255) / 256), 256, 0, burst_gpu_compute(s->exec)>>>(dq, columns, PLAN_SCALE);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

/* dq [heads][n][head_dim], dk, dv [kv_heads][n][head_dim] from d_o, with the final lse and delta. */
static int plan_attention_back(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q, const BurstBf16 *k, const BurstBf16 *v,
                               const float *lse, const BurstBf16 *d_o, const float *delta, float *dq, float *dk, float *dv)
{
    s->mask = mask;
    BURST_TRY(plan_part(s, BURST_P_GRAD_BEGIN, 0, 0));
    BURST_TRY(plan_home(s, BURST_T_Q, q, d_o, delta, lse));
    BURST_TRY(plan_home(s, BURST_T_KV, k, v, NULL, NULL));
    BURST_TRY(plan_clear(s, dq, dk, dv));
    BURST_TRY(plan_home(s, BURST_T_DQ, dq, NULL, NULL, NULL));
    BURST_TRY(plan_home(s, BURST_T_DKV, dk, dv, NULL, NULL));
    BURST_TRY(plan_follow(s));
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    BURST_TRY(plan_backward(c, s));
    BURST_TRY(plan_part(s, BURST_P_GRAD_END, 0, 0));
    return plan_order_dq(c, s, dq);
}

/* ---- begin and end of a sequence, and of the program ---- */

static int plan_begin(BurstCtx *c, PlanState *s, const BurstBatch *b, double loss)
{
    (void)c, (void)loss;
    BURST_TRY(burst_gpu_upload(s->exec, b->token, (size_t)s->n * sizeof(int32_t), s->device_token));
    BURST_TRY(burst_gpu_upload(s->exec, b->label, (size_t)s->n * sizeof(int32_t), s->device_label));
    BURST_TRY(burst_gpu_upload(s->exec, b->weight, (size_t)s->n * sizeof(float), s->device_label_weight));
    return burst_gpu_zero(s->exec, s->loss, sizeof(double));
}

static int plan_end(BurstCtx *c, PlanState *s, double *loss)
{
    double sum = 0;
    (void)c;
    BURST_TRY(burst_gpu_download(s->exec, s->loss, sizeof(double), &sum));
    *loss += sum;
    return burst_gpu_sync(s->exec);
}

static int plan_open(BurstCtx *c, BurstWeights *w, BurstExec **exec, BurstShards *weights)
{
    (void)w;
    BURST_TRY(burst_gpu_open(c, PLAN_CHANNELS, PLAN_DEVICE_BYTES, exec));
    return burst_gpu_weights_take(*exec, &burst_plan, weights);
}

static int plan_ready(BurstCtx *c, PlanState *s, BurstWeights *w)
{
    int device = 0;
    s->token = s->device_token;
    s->label = s->device_label;
    s->label_weight = s->device_label_weight;
    s->position = s->tokens[s->me].position;
    PLAN_CUDA(cudaGetDevice(&device));
    PLAN_CUDA(cudaDeviceGetAttribute(&s->multiprocessors, cudaDevAttrMultiProcessorCount, device));
    // @insert kernel_setup
    return burst_gpu_weights_load(s->exec, &burst_plan, w, &s->weights);
}

/* Before a checkpoint is written: the host's mirror becomes what the device has. */
static int plan_save(BurstCtx *c, void *state, BurstWeights *w)
{
    PlanState *s = (PlanState *)state;
    (void)c;
    return burst_gpu_weights_save(s->exec, &burst_plan, &s->weights, w);
}

