/* ---- what a rank has of a chunk: its owner's tokens, with all heads ---- */

/* Bytes a token of each part of what travels. */
static const int64_t plan_part_width[BURST_TENSORS][PLAN_PARTS] = {
    /* Q: q, d_o, delta, lse */ {2 * PLAN_HEADS * PLAN_HEAD_DIM, 2 * PLAN_HEADS * PLAN_HEAD_DIM, 4 * PLAN_HEADS, 4 * PLAN_HEADS},
    /* KV: k, v */ {2 * PLAN_KV_HEADS * PLAN_HEAD_DIM, 2 * PLAN_KV_HEADS * PLAN_HEAD_DIM, 0, 0},
    /* O stays at home */ {0, 0, 0, 0},
    /* dQ */ {4 * PLAN_HEADS * PLAN_HEAD_DIM, 0, 0, 0},
    /* dKV: dk, dv */ {4 * PLAN_KV_HEADS * PLAN_HEAD_DIM, 4 * PLAN_KV_HEADS * PLAN_HEAD_DIM, 0, 0},
};

static int64_t plan_part_bytes(const PlanState *s, int tensor, int part, int chunk)
{
    return plan_part_width[tensor][part] * s->chunk[chunk].tokens;
}

/* Of the largest chunk of any rank. */
static BURST_MAYBE_UNUSED int64_t plan_slot_bytes(int pool, int tensor, int part)
{
    (void)pool;
    return plan_part_width[tensor][part] * PLAN_TOKENS;
}

/* Where the rank's own chunk is. */
static PlanSlot *plan_own(PlanState *s, int tensor)
{
    return &s->home[tensor];
}

static BurstTokens plan_tokens_of(const PlanState *s, int chunk)
{
    return s->tokens[chunk];
}

/* The chunk whose positions lie at place `at` of all. */
static int plan_chunk_at(int at)
{
    return at;
}

/* Heads that the rank has of a chunk, and the first of them. */
typedef struct PlanHeads { int first, count; } PlanHeads;

static PlanHeads plan_heads(const PlanState *s, bool keys)
{
    const PlanHeads all = {0, keys ? PLAN_KV_HEADS : PLAN_HEADS};
    (void)s;
    return all;
}

static float *plan_running_output(PlanState *s)
{
    return s->o_sum;
}

/* Gradients at home are sums, from zero. */
static int plan_clear(PlanState *s, float *dq, float *dk, float *dv)
{
    const size_t head = (size_t)(s->n * PLAN_HEAD_DIM) * sizeof(float);
    BURST_TRY(burst_gpu_zero(s->exec, dq, PLAN_HEADS * head));
    BURST_TRY(burst_gpu_zero(s->exec, dk, PLAN_KV_HEADS * head));
    return burst_gpu_zero(s->exec, dv, PLAN_KV_HEADS * head);
}

/* At the end of a direction: computing goes on when what leaves the rank's own chunk has left it. */
static int plan_settle_own(PlanState *s, int tensor)
{
    for (int channel = 0; channel < PLAN_CHANNELS; channel++)
        BURST_TRY(burst_gpu_after(s->exec, burst_gpu_compute(s->exec), &s->home[tensor].sent[channel]));
    return BURST_OK;
}

