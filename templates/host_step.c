/* ---- weights: sharded over all ranks, gathered unit by unit, one ahead (ZeRO-3) ---- */

static int plan_gather(BurstCtx *c, PlanState *s, BurstWeights *w, int visit)
{
    int unit = plan_unit_at(visit);
    return burst_gather_start(c, plan_world(), w->param[unit], burst_unit(&burst_plan, unit)->shard, s->weight[visit % 2],
                              &s->gather[visit % 2]);
}

/* The unit of this visit is here when the call returns; the next one is on its way. */
static int plan_visit(BurstCtx *c, PlanState *s, BurstWeights *w, int visit, const float **weights)
{
    if (visit == 0)
        BURST_TRY(plan_gather(c, s, w, 0));
    burst_doing(c, "gather of weights");
    burst_part(c, BURST_P_GATHER, plan_unit_at(visit), 0);
    BURST_TRY(burst_gather_wait(c, &s->gather[visit % 2]));
    if (visit + 1 < PLAN_VISITS)
        BURST_TRY(plan_gather(c, s, w, visit + 1));
    *weights = s->weight[visit % 2];
    burst_part(c, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

static float *plan_zero_grad(PlanState *s, int unit)
{
    size_t elements = (size_t)(burst_unit(&burst_plan, unit)->shard * PLAN_WORLD);
    memset(s->grad, 0, elements * sizeof(float));
    return s->grad;
}

static int plan_reduce(BurstCtx *c, PlanState *s, BurstWeights *w, int unit)
{
    burst_doing(c, "reduction of gradients");
    burst_part(c, BURST_P_REDUCE, unit, 0);
    BURST_TRY(burst_reduce_scatter(c, plan_world(), s->grad, burst_unit(&burst_plan, unit)->shard, w->grad[unit]));
    burst_part(c, BURST_P_IDLE, 0, 0);
    return BURST_OK;
}

/* ---- head and loss: forward and backward at once; dx becomes the gradient of the last layer's output ---- */

// @insert head

/* ---- one sequence ---- */

static int plan_sequence_step(BurstCtx *c, void *state, BurstWeights *w, const BurstBatch *b, double scale, double *loss_sum)
{
    PlanState *s = state;
    const float *weights = NULL;
    int visit = 0;
    // @insert tables_changed
    BURST_TRY(plan_visit(c, s, w, visit++, &weights));
    burst_part(c, BURST_P_EMBED, 0, 0);
    burst_embed(s->n, PLAN_HIDDEN, b->token, weights, s->x[0]);
    for (int layer = 0; layer < PLAN_LAYERS; layer++) {
        BURST_TRY(plan_visit(c, s, w, visit++, &weights));
        BURST_TRY(plan_layer(c, s, layer, weights, &b->tables));
    }
    BURST_TRY(plan_visit(c, s, w, visit++, &weights));
    BURST_TRY(plan_head(c, s, w, weights, b, scale, loss_sum));
    for (int layer = PLAN_LAYERS - 1; layer >= 0; layer--) {
        BURST_TRY(plan_visit(c, s, w, visit++, &weights));
        float *g = plan_zero_grad(s, 1 + layer);
        BURST_TRY(plan_layer_back(c, s, layer, weights, g, &b->tables));
        BURST_TRY(plan_reduce(c, s, w, 1 + layer));
    }
    burst_part(c, BURST_P_EMBED, 0, 0);
    burst_embed_back(s->n, PLAN_HIDDEN, b->token, s->dx, plan_zero_grad(s, PLAN_EMBED));
    return plan_reduce(c, s, w, PLAN_EMBED);
}

/* ---- one optimizer step ---- */

static int plan_step(BurstCtx *c, void *state, BurstWeights *w, int64_t step, BurstStep *result)
{
    PlanState *s = state;
    const int group = burst_rank(c) / PLAN_GROUP;
    double tokens, loss = 0;
    BurstBatch b;
    BURST_TRY(plan_count(c, s, step, &tokens));
    for (int i = 0; i < PLAN_SEQUENCES; i++) {
        BURST_TRY(burst_batch_read(c, &burst_plan, step, group * PLAN_SEQUENCES + i, &b));
        BURST_TRY(plan_sequence_step(c, s, w, &b, tokens > 0 ? 1 / tokens : 0, &loss));
    }
    BURST_TRY(burst_allreduce(c, plan_world(), &loss, 1));
    result->tokens = tokens;
    result->loss = tokens > 0 ? loss / tokens : 0;
    burst_doing(c, "optimizer");
    burst_part(c, BURST_P_OPTIMIZER, 0, 0);
    return burst_weights_update(c, &burst_plan, w, step, &result->norm);
}

/* ---- start ---- */

static int plan_start(BurstCtx *c, void *state, BurstWeights *w)
{
    PlanState *s = state;
    (void)w;
    // @insert takes
    BURST_TRY(plan_chunks(c, s));
    // @insert live_make
    return plan_live(c, s, NULL);
}

/* ---- attention alone ---- */

static int plan_attention_forward(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q, const float *k,
                                  const float *v, float *o, float *lse)
{
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, state, t));
    return plan_attention(c, state, mask, t, q, k, v, o, lse);
}

static int plan_attention_backward(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q, const float *k,
                                   const float *v, const float *o, const float *lse, const float *d_o, float *dq, float *dk,
                                   float *dv)
{
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, state, t));
    return plan_attention_back(c, state, mask, t, q, k, v, o, lse, d_o, dq, dk, dv);
}

/* ---- the plan ---- */

// @insert units
// @insert watching

const BurstPlan burst_plan = {
    .abi = BURST_RT_ABI,
    .world = PLAN_WORLD,
    .data = PLAN_DATA,
    .group = PLAN_GROUP,
    .nodes = PLAN_NODES,
    .sequence = PLAN_SEQUENCE,
    .max_tokens = PLAN_TOKENS,
    .layers = PLAN_LAYERS,
    .hidden = PLAN_HIDDEN,
    .heads = PLAN_HEADS,
    .kv_heads = PLAN_KV_HEADS,
    .head_dim = PLAN_HEAD_DIM,
    .ffn = PLAN_FFN,
    .vocab = PLAN_VOCAB,
    .norm_eps = PLAN_NORM_EPS,
    .rope_theta = PLAN_ROPE_THETA,
    .masks = plan_masks,
    .layer_mask = plan_layer_mask,
    .units = plan_units,
    .unit_rows = 3,
    // @insert plan_values
    .tokens_of = plan_tokens,
    .position = plan_position,
    .state_bytes = sizeof(PlanState),
    .start = plan_start,
    .step = plan_step,
    .sequence_step = plan_sequence_step,
    .attention_forward = plan_attention_forward,
    .attention_backward = plan_attention_backward,
};

#ifndef PLAN_NO_MAIN /* tests link this file as a library */
int main(int argc, char **argv)
{
    return burst_main(&burst_plan, argc, argv);
}
#endif
