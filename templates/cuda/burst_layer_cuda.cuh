/* burst_layer_cuda.cuh: functions of a step on GPUs other than its operations: attention of a layer, begin
 * and end of a sequence. */
#ifndef BURST_LAYER_CUDA_CUH
#define BURST_LAYER_CUDA_CUH

#include "burst_steps.h"

#include "burst_attention_cuda.cuh"

#ifdef PLAN_TAIL
/* Copies rows of the last tokens to o_tail [PLAN_TAIL][heads * value_dim] and lse_tail [heads][PLAN_TAIL].
 * back: from there to o and lse. */
static inline int plan_move_tail(BurstCtx *c, PlanState *s, BurstBf16 *o, float *lse, BurstBf16 *o_tail,
                                 float *lse_tail, bool back)
{
    const size_t row = (size_t)s->heads.queries * PLAN_VALUE_DIM, kept = (size_t)plan_kept(s),
                 n = (size_t)s->n, size = sizeof(float);
    const cudaStream_t stream = burst_gpu_compute(s->exec);
    BurstBf16 *at = o + (n - kept) * row;
    float *lse_at = lse + (n - kept);
    if (kept == 0)
        return BURST_OK;
    PLAN_CUDA(cudaMemcpyAsync(back ? at : o_tail, back ? o_tail : at, kept * row * sizeof *o,
                              cudaMemcpyDeviceToDevice, stream));
    PLAN_CUDA(cudaMemcpy2DAsync(back ? lse_at : lse_tail, size * (back ? n : PLAN_TAIL),
                                back ? lse_tail : lse_at, size * (back ? PLAN_TAIL : n), size * kept,
                                (size_t)s->heads.queries, cudaMemcpyDeviceToDevice, stream));
    return BURST_OK;
}

static inline int plan_keep(BurstCtx *c, PlanState *s, BurstBf16 *o, float *lse, BurstBf16 *o_tail,
                            float *lse_tail)
{
    return plan_move_tail(c, s, o, lse, o_tail, lse_tail, false);
}

/* plan_attention of the leading tokens, completed by the kept rows (BurstEngine, arXiv 2509.19836). Kernels
 * write lse without gaps between heads. */
static inline int plan_attention_rest(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q,
                                      const BurstBf16 *k, const BurstBf16 *v, BurstBf16 *o_tail,
                                      float *lse_tail, BurstBf16 *o, float *lse)
{
    const size_t n = (size_t)s->n, first = n - (size_t)plan_kept(s), size = sizeof(float);
    s->again = (int64_t)first;
    BURST_TRY(plan_attention(c, s, mask, q, k, v, o, s->buffer.lse_rest));
    s->again = 0;
    if (first > 0)
        PLAN_CUDA(cudaMemcpy2DAsync(lse, size * n, s->buffer.lse_rest, size * first, size * first,
                                    (size_t)s->heads.queries, cudaMemcpyDeviceToDevice,
                                    burst_gpu_compute(s->exec)));
    return plan_move_tail(c, s, o, lse, o_tail, lse_tail, true);
}
#endif

/* ---- begin and end of a sequence, and of the program ---- */

#ifndef PLAN_INFER
static int plan_begin(BurstCtx *c, PlanState *s, const BurstBatch *b, double loss)
{
    (void)c, (void)loss;
    s->table_values = &b->tables;
    BURST_TRY(burst_gpu_upload(s->exec, b->token, (size_t)s->own * sizeof(int32_t), s->buffer.device_token));
    BURST_TRY(burst_gpu_upload(s->exec, b->label, (size_t)s->own * sizeof(int32_t), s->buffer.device_label));
    BURST_TRY(
        burst_gpu_upload(s->exec, b->weight, (size_t)s->own * sizeof(float), s->buffer.device_label_weight));
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
#endif

static int plan_open(BurstCtx *c, BurstWeights *w, BurstExec **exec, PlanWeights *weights)
{
#ifdef PLAN_INFER
    (void)w;
    BURST_TRY(burst_gpu_open(c, PLAN_CHANNELS, PLAN_DEVICE_BYTES, exec));
    return burst_gpu_weights_tables(*exec, &burst_plan, weights);
#else
    const bool alone = burst_evaluates_alone(c);
    BURST_TRY(burst_gpu_open(c, PLAN_CHANNELS, alone ? PLAN_ALONE_DEVICE_BYTES : PLAN_DEVICE_BYTES, exec));
#ifdef PLAN_HOST_OPTIMIZER
    *weights = *w;
    return BURST_OK;
#else
    (void)w;
    return alone ? BURST_OK : burst_gpu_weights_take(*exec, &burst_plan, weights);
#endif
#endif
}

#ifdef PLAN_DEVICE_UPDATE
/* Sets where units are fetched for their update, in tables that the program fills; the source is pinned. */
static int plan_take_fetched(BurstCtx *c, PlanState *s)
{
    (void)c;
    BURST_TRY(burst_gpu_weights_tables(s->exec, &burst_plan, &s->fetched));
    return burst_gpu_pin_weights(s->exec, &burst_plan, &s->weights);
}
#endif

static int plan_ready(BurstCtx *c, PlanState *s, BurstWeights *w)
{
    int device = 0;
    s->token = s->buffer.device_token;
#ifndef PLAN_INFER
    s->loss = s->buffer.device_loss;
    s->label = s->buffer.device_label;
    s->label_weight = s->buffer.device_label_weight;
#endif
    s->position = s->tokens[s->me].position;
#ifdef PLAN_ROPE_TABLE
    s->turns = s->tokens[s->me].table[PLAN_ROPE_TABLE];
#endif
#ifdef PLAN_PLACE_TABLE
    s->place = s->tokens[s->me].table[PLAN_PLACE_TABLE];
#endif
#if defined PLAN_SCAN_COLUMNS && !defined PLAN_SCAN_PIECES
    s->scan_rows[1] = s->chunk[s->me].tokens;
    s->pieces = (BurstPieces){1, s->scan_rows};
#endif
    PLAN_CUDA(cudaGetDevice(&device));
    PLAN_CUDA(cudaDeviceGetAttribute(&s->multiprocessors, cudaDevAttrMultiProcessorCount, device));
    PLAN_CUDA(plan_launch_setup());
#ifndef PLAN_INFER
    if (s->alone)
        return burst_gpu_weights_round(s->exec, &burst_plan, w, &s->rounded);
#endif
#ifdef PLAN_HOST_OPTIMIZER
    (void)w;
    return BURST_OK;
#elif defined PLAN_INFER
    return burst_gpu_weights_round(s->exec, &burst_plan, w, &s->weights);
#else
    return burst_gpu_weights_load(s->exec, &burst_plan, w, &s->weights);
#endif
}

/* Before a checkpoint is written: copies the device's parameters to the host's. */
static inline int plan_save(BurstCtx *c, void *state, BurstWeights *w)
{
    (void)c, (void)state, (void)w;
#if defined PLAN_HOST_OPTIMIZER || defined PLAN_INFER
    return BURST_OK; /* the host has them already */
#else
    PlanState *s = (PlanState *)state;
    if (s->alone)
        return BURST_OK;
    return burst_gpu_weights_save(s->exec, &burst_plan, &s->weights, w);
#endif
}

#ifdef PLAN_SELECTIONS
#include "burst_select_cuda.cuh"
#endif
#ifdef PLAN_QUERY_CHUNKS
#include "burst_queries.h"
#elif defined PLAN_LATENTS || defined PLAN_SELECTIONS
#include "burst_not_alone.h"
#elif !defined PLAN_INFER
/* ---- attention alone, for tests and benchmarks: fp32 arrays on the host, by heads, rounded to bf16 on the
 * device ---- */

enum { PLAN_WIDEST = PLAN_VALUE_DIM > PLAN_HEAD_DIM ? PLAN_VALUE_DIM : PLAN_HEAD_DIM };

/* Uploads [heads][n][d] as [n][heads * d]. */
static inline int plan_upload_heads(PlanState *s, int heads, int d, const float *x, BurstBf16 *device)
{
    BurstBf16 row[PLAN_HEADS * PLAN_WIDEST];
    const size_t width = (size_t)d, count = (size_t)heads * width;
    for (int64_t i = 0; i < s->n; i++) {
        for (size_t j = 0; j < count; j++)
            row[j] = __float2bfloat16(
                x[((int64_t)(j / width) * s->n + i) * d + (int64_t)(j % width)]);
        BURST_TRY(burst_gpu_upload(s->exec, row, count * sizeof *row, device + (size_t)i * count));
    }
    return BURST_OK;
}

static inline int plan_download_heads(PlanState *s, int heads, int d, const BurstBf16 *device, float *x)
{
    BurstBf16 row[PLAN_HEADS * PLAN_WIDEST];
    const size_t width = (size_t)d, count = (size_t)heads * width;
    for (int64_t i = 0; i < s->n; i++) {
        BURST_TRY(burst_gpu_download(s->exec, device + (size_t)i * count, count * sizeof *row, row));
        for (size_t j = 0; j < count; j++)
            x[((int64_t)(j / width) * s->n + i) * d + (int64_t)(j % width)] = __bfloat162float(row[j]);
    }
    return BURST_OK;
}

static inline int plan_upload_qkv(PlanState *s, const float *q, const float *k, const float *v)
{
    BURST_TRY(plan_upload_heads(s, s->heads.queries, PLAN_HEAD_DIM, q, plan_act(s, PLAN_AT_Q(0))));
    BURST_TRY(plan_upload_heads(s, s->heads.keys, PLAN_HEAD_DIM, k, plan_act(s, PLAN_AT_K(0))));
    return plan_upload_heads(s, s->heads.keys, PLAN_VALUE_DIM, v, plan_act(s, PLAN_AT_V(0)));
}

static inline int plan_attention_forward(BurstCtx *c, void *state, int mask, const BurstTables *t,
                                         const float *q, const float *k, const float *v, float *o, float *lse)
{
    PlanState *s = (PlanState *)state;
    BurstBf16 *out = plan_act(s, PLAN_AT_O(0));
    float *out_lse = plan_floats(s, PLAN_AT_LSE(0));
    s->heads = plan_chunk_heads(0);
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, s, t));
    BURST_TRY(plan_upload_qkv(s, q, k, v));
    BURST_TRY(plan_attention(c, s, mask, plan_act(s, PLAN_AT_Q(0)), plan_act(s, PLAN_AT_K(0)),
                             plan_act(s, PLAN_AT_V(0)), out, out_lse));
    BURST_TRY(plan_download_heads(s, s->heads.queries, PLAN_VALUE_DIM, out, o));
    BURST_TRY(burst_gpu_download(s->exec, out_lse, (size_t)(PLAN_HEADS * s->n) * sizeof(float), lse));
    return burst_gpu_sync(s->exec);
}

/* Uploads values as late as the step has them: o until delta is computed from it, then q, k, v, which may
 * share its memory. */
static inline int plan_attention_backward(BurstCtx *c, void *state, int mask, const BurstTables *t,
                                          const float *q, const float *k, const float *v, const float *o,
                                          const float *lse, const float *d_o, float *dq, float *dk, float *dv)
{
    PlanState *s = (PlanState *)state;
    const size_t head_bytes = (size_t)(s->n * PLAN_HEAD_DIM) * sizeof(float),
                 value_bytes = (size_t)(s->n * PLAN_VALUE_DIM) * sizeof(float);
    s->heads = plan_chunk_heads(0);
    BurstBf16 *to_o = plan_act(s, PLAN_AT_D_O(0));
    float *delta = plan_floats(s, PLAN_AT_DELTA), *to_q = plan_floats(s, PLAN_AT_D_Q(0)),
          *to_k = plan_floats(s, PLAN_AT_D_K(0)), *to_v = plan_floats(s, PLAN_AT_D_V(0)),
          *last_lse = plan_floats(s, PLAN_AT_LSE(0));
    if (PLAN_TABLES > 0)
        BURST_TRY(plan_live(c, s, t));
    BURST_TRY(plan_upload_heads(s, s->heads.queries, PLAN_VALUE_DIM, o, plan_act(s, PLAN_AT_O(0))));
    BURST_TRY(plan_upload_heads(s, s->heads.queries, PLAN_VALUE_DIM, d_o, to_o));
    BURST_TRY(burst_op_delta(s->exec, s->n, s->heads.queries, PLAN_VALUE_DIM, plan_act(s, PLAN_AT_O(0)), to_o,
                             delta));
    BURST_TRY(plan_upload_qkv(s, q, k, v));
    BURST_TRY(burst_gpu_upload(s->exec, lse, (size_t)(PLAN_HEADS * s->n) * sizeof(float), last_lse));
    BURST_TRY(plan_attention_back(c, s, mask, plan_act(s, PLAN_AT_Q(0)), plan_act(s, PLAN_AT_K(0)),
                                  plan_act(s, PLAN_AT_V(0)), last_lse, to_o, delta, to_q, to_k, to_v));
    BURST_TRY(burst_gpu_download(s->exec, to_q, PLAN_HEADS * head_bytes, dq));
    BURST_TRY(burst_gpu_download(s->exec, to_k, PLAN_KV_HEADS * head_bytes, dk));
    BURST_TRY(burst_gpu_download(s->exec, to_v, PLAN_KV_HEADS * value_bytes, dv));
    return burst_gpu_sync(s->exec);
}
#endif

#endif
