/* ---- weights: sharded over all ranks, gathered unit by unit, one ahead (ZeRO-3) ---- */

/* Starts the gather of this visit's unit when the buffer's last unit is no longer computed with. */
static int plan_gather(PlanState *s, int visit)
{
    const int unit = plan_unit_at(visit);
    cudaStream_t stream = burst_gpu_weights(s->gpu);
    BURST_TRY(burst_gpu_after(s->gpu, stream, &s->gather_free[visit % 2]));
    BURST_TRY(burst_gpu_part(s->gpu, stream, BURST_P_GATHER, unit, 0));
    BURST_TRY(burst_gpu_gather(s->gpu, s->weights.bf16[unit], burst_unit(&burst_plan, unit)->shard, s->weight[visit % 2]));
    BURST_TRY(burst_gpu_part(s->gpu, stream, BURST_P_IDLE, 0, 0));
    return burst_gpu_mark(s->gpu, stream, &s->gathered[visit % 2]);
}

/* The compute stream has the unit of this visit when it gets there; the next one is on its way. */
static int plan_visit(BurstCtx *c, PlanState *s, int visit, const BurstBf16 **weights)
{
    cudaStream_t compute = burst_gpu_compute(s->gpu);
    burst_doing(c, "gather of weights");
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    /* computing with the previous unit has been queued: its buffer is free after that */
    BURST_TRY(burst_gpu_mark(s->gpu, compute, &s->gather_free[(visit + 1) % 2]));
    if (visit == 0)
        BURST_TRY(plan_gather(s, 0));
    BURST_TRY(burst_gpu_after(s->gpu, compute, &s->gathered[visit % 2]));
    if (visit + 1 < PLAN_VISITS)
        BURST_TRY(plan_gather(s, visit + 1));
    *weights = s->weight[visit % 2];
    return BURST_OK;
}

static int plan_zero_grad(PlanState *s, int unit)
{
    const size_t elements = (size_t)(burst_unit(&burst_plan, unit)->shard * PLAN_WORLD);
    BURST_TRY(plan_part(s, BURST_P_ZERO, 0, 0));
    BURST_TRY(burst_gpu_after(s->gpu, burst_gpu_compute(s->gpu), &s->grad_free));
    return burst_gpu_zero(s->gpu, s->grad, elements * sizeof(float));
}

static int plan_reduce(BurstCtx *c, PlanState *s, int unit)
{
    cudaStream_t stream = burst_gpu_weights(s->gpu);
    burst_doing(c, "reduction of gradients");
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    BURST_TRY(burst_gpu_mark(s->gpu, burst_gpu_compute(s->gpu), &s->grad_ready));
    BURST_TRY(burst_gpu_after(s->gpu, stream, &s->grad_ready));
    BURST_TRY(burst_gpu_part(s->gpu, stream, BURST_P_REDUCE, unit, 0));
    BURST_TRY(burst_gpu_reduce(s->gpu, s->grad, burst_unit(&burst_plan, unit)->shard, s->weights.grad[unit], s->reduced));
    BURST_TRY(burst_gpu_part(s->gpu, stream, BURST_P_IDLE, 0, 0));
    return burst_gpu_mark(s->gpu, stream, &s->grad_free);
}

/* ---- head and loss: forward and backward at once; dx becomes the gradient of the last layer's output ---- */

// @insert head

/* ---- one sequence ---- */

static int plan_inputs(PlanState *s, const BurstBatch *b)
{
    BURST_TRY(burst_gpu_upload(s->gpu, b->token, (size_t)s->n * sizeof(int32_t), s->token));
    BURST_TRY(burst_gpu_upload(s->gpu, b->label, (size_t)s->n * sizeof(int32_t), s->label));
    return burst_gpu_upload(s->gpu, b->weight, (size_t)s->n * sizeof(float), s->label_weight);
}

static int plan_sequence_step(BurstCtx *c, void *state, BurstWeights *mirror, const BurstBatch *b, double scale,
                              double *loss_sum)
{
    PlanState *s = (PlanState *)state;
    const BurstBf16 *weights = NULL;
    int visit = 0;
    double loss = 0;
    (void)mirror;
    // @insert tables_changed
    BURST_TRY(plan_inputs(s, b));
    BURST_TRY(burst_gpu_zero(s->gpu, s->loss, sizeof(double)));
    BURST_TRY(plan_visit(c, s, visit++, &weights));
    BURST_TRY(plan_part(s, BURST_P_EMBED, 0, 0));
    BURST_TRY(burst_gpu_embed(s->gpu, s->n, PLAN_HIDDEN, s->token, weights, s->x[0]));
    for (int layer = 0; layer < PLAN_LAYERS; layer++) {
        BURST_TRY(plan_visit(c, s, visit++, &weights));
        BURST_TRY(plan_layer(c, s, layer, weights));
    }
    BURST_TRY(plan_visit(c, s, visit++, &weights));
    BURST_TRY(plan_head(c, s, weights, scale));
    for (int layer = PLAN_LAYERS - 1; layer >= 0; layer--) {
        BURST_TRY(plan_visit(c, s, visit++, &weights));
        BURST_TRY(plan_zero_grad(s, 1 + layer));
        BURST_TRY(plan_layer_back(c, s, layer, weights, s->grad));
        BURST_TRY(plan_reduce(c, s, 1 + layer));
    }
    BURST_TRY(plan_zero_grad(s, PLAN_EMBED));
    BURST_TRY(plan_part(s, BURST_P_EMBED, 0, 0));
    BURST_TRY(burst_gpu_embed_back(s->gpu, s->n, PLAN_HIDDEN, s->token, s->dx, s->grad));
    BURST_TRY(plan_reduce(c, s, PLAN_EMBED));
    BURST_TRY(burst_gpu_download(s->gpu, s->loss, sizeof(double), &loss));
    *loss_sum += loss;
    return burst_gpu_sync(s->gpu);
}

/* ---- one optimizer step ---- */

static int plan_step(BurstCtx *c, void *state, BurstWeights *mirror, int64_t step, BurstStep *result)
{
    PlanState *s = (PlanState *)state;
    const int group = burst_rank(c) / PLAN_GROUP;
    double tokens, loss = 0;
    BurstBatch b;
    BURST_TRY(plan_count(c, s, step, &tokens));
    for (int i = 0; i < PLAN_SEQUENCES; i++) {
        BURST_TRY(burst_batch_read(c, &burst_plan, step, group * PLAN_SEQUENCES + i, &b));
        BURST_TRY(plan_sequence_step(c, s, mirror, &b, tokens > 0 ? 1 / tokens : 0, &loss));
    }
    BURST_TRY(burst_allreduce(c, plan_world(), &loss, 1));
    result->tokens = tokens;
    result->loss = tokens > 0 ? loss / tokens : 0;
    burst_doing(c, "optimizer");
    BURST_TRY(plan_part(s, BURST_P_OPTIMIZER, 0, 0));
    return burst_gpu_weights_update(s->gpu, &burst_plan, &s->weights, step, &result->norm);
}

/* ---- start ---- */

static int plan_start(BurstCtx *c, void *state, BurstWeights *mirror)
{
    PlanState *s = (PlanState *)state;
    int device = 0;
    BURST_TRY(burst_gpu_open(c, PLAN_CHANNELS, PLAN_DEVICE_BYTES, &s->gpu));
    PLAN_CUDA(cudaGetDevice(&device));
    PLAN_CUDA(cudaDeviceGetAttribute(&s->multiprocessors, cudaDevAttrMultiProcessorCount, device));
    BURST_TRY(burst_gpu_weights_make(s->gpu, &burst_plan, mirror, &s->weights));
    // @insert takes
    BURST_TRY(plan_chunks(c, s));
    // @insert live_make
    // @insert kernel_setup
    return plan_live(c, s, NULL);
}

/* Before a checkpoint is written: the host's mirror becomes what the device has. */
static int plan_save(BurstCtx *c, void *state, BurstWeights *mirror)
{
    PlanState *s = (PlanState *)state;
    (void)c;
    return burst_gpu_weights_save(s->gpu, &burst_plan, &s->weights, mirror);
}

/* ---- the plan ---- */

// @insert units
// @insert watching

static BurstPlan plan_values(void)
{
    BurstPlan p;
    memset(&p, 0, sizeof p);
    p.abi = BURST_RT_ABI;
    p.world = PLAN_WORLD;
    p.data = PLAN_DATA;
    p.group = PLAN_GROUP;
    p.nodes = PLAN_NODES;
    p.sequence = PLAN_SEQUENCE;
    p.max_tokens = PLAN_TOKENS;
    p.layers = PLAN_LAYERS;
    p.hidden = PLAN_HIDDEN;
    p.heads = PLAN_HEADS;
    p.kv_heads = PLAN_KV_HEADS;
    p.head_dim = PLAN_HEAD_DIM;
    p.ffn = PLAN_FFN;
    p.vocab = PLAN_VOCAB;
    p.norm_eps = PLAN_NORM_EPS;
    p.rope_theta = PLAN_ROPE_THETA;
    p.masks = plan_masks;
    p.layer_mask = plan_layer_mask;
    p.units = plan_units;
    p.unit_rows = 3;
    // @insert plan_values
    p.tokens_of = plan_tokens;
    p.position = plan_position;
    p.state_bytes = sizeof(PlanState);
    p.start = plan_start;
    p.step = plan_step;
    p.save = plan_save;
    p.sequence_step = plan_sequence_step;
    p.attention_forward = plan_attention_forward;
    p.attention_backward = plan_attention_backward;
    return p;
}

const BurstPlan burst_plan = plan_values();

#ifndef PLAN_NO_MAIN /* tests link this file as a library */
int main(int argc, char **argv)
{
    return burst_main(&burst_plan, argc, argv);
}
#endif
