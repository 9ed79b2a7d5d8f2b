/* burst_chunks_cuda.cuh: a rank's part of a chunk on GPUs: all of its owner's tokens, with all heads. */
#ifndef BURST_CHUNKS_CUDA_CUH
#define BURST_CHUNKS_CUDA_CUH

#include "burst_state_cuda.cuh"
#include "burst_chunks.h"

static inline BurstTokens plan_tokens_of(const PlanState *s, int tensor, int chunk)
{
    return tensor == BURST_T_KV ? s->key_tokens[chunk] : s->tokens[chunk];
}

/* The chunk at index `at` of the positions of all chunks. */
static inline int plan_chunk_at(int at)
{
    return at;
}

/* The rank's heads of a chunk: the first, and their number. */
typedef struct PlanHeads { int first, count; } PlanHeads;

static inline PlanHeads plan_heads(const PlanState *s, bool keys)
{
    const PlanHeads all = {0, keys ? s->heads.keys : s->heads.queries};
    return all;
}

/* NULL if there is a single pair or a single launch: then no running output is needed. */
static inline float *plan_running_output(PlanState *s)
{
#if (PLAN_GROUP * PLAN_PIECES > 1 && !PLAN_AT_ONCE) || defined PLAN_KEY_CHUNKS
    return s->buffer.o_sum;
#else
    (void)s;
    return NULL;
#endif
}

/* Clears gradients at their owner, which are sums. */
static inline int plan_clear(PlanState *s, float *dq, float *dk, float *dv)
{
    const int64_t rows = s->heads.keys * plan_own_keys(s);
    const size_t keys = (size_t)(rows * PLAN_HEAD_DIM) * sizeof(float),
                 values = (size_t)(rows * PLAN_VALUE_DIM) * sizeof(float);
    if (!s->tile.resumes)
        BURST_TRY(burst_gpu_zero(s->exec, dq,
                                 (size_t)(s->heads.queries * s->chunk[s->me].tokens * PLAN_HEAD_DIM) *
                                     sizeof(float)));
    if (s->tile.adds)
        return BURST_OK;
    BURST_TRY(burst_gpu_zero(s->exec, dk, keys));
    return burst_gpu_zero(s->exec, dv, values);
}

/* Queues the pending pairs, which have all heads. */
static inline int plan_launch_heads(BurstCtx *c, PlanState *s, int pairs)
{
    PlanLaunch *l = &s->launch;
    PLAN_CUDA(l->gradients ? plan_launch_backward(s, l->backward, pairs)
                           : plan_launch_forward(s, l->forward, pairs));
    return BURST_OK;
}

/* At the end of a direction, makes computing wait until the rank's own chunk has been sent. */
static inline int plan_settle_own(PlanState *s, int tensor)
{
    for (int p = 0; p < plan_pieces_of(tensor); p++)
        for (int channel = 0; channel < PLAN_CHANNELS; channel++)
            BURST_TRY(burst_gpu_after(s->exec, burst_gpu_compute(s->exec),
                                      &plan_home_slot(s, tensor, p)->sent[channel]));
    return BURST_OK;
}

#endif
