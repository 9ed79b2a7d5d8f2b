/* burst_scales.h: numbers that change what a model computes; 0: none. Names are those of models and plans. */
#ifndef BURST_SCALES_H
#define BURST_SCALES_H

/* id, name, constant of a program
 *   EMBEDDING: the embedding's output
 *   RESIDUAL: what attention and the feed-forward network add to their input
 *   ATTENTION: scores, in place of 1 / sqrt(head_dim)
 *   LOGIT: logits
 *   LOGIT_SOFTCAP: logits are cap tanh(logit / cap) (Gemma 2, arXiv 2408.00118) */
#define BURST_SCALE_ROWS(X) \
    X(EMBEDDING, "embedding_scale", "PLAN_EMBEDDING_SCALE") \
    X(RESIDUAL, "residual_scale", "PLAN_RESIDUAL_SCALE") \
    X(ATTENTION, "attention_scale", "PLAN_ATTENTION_SCALE") \
    X(LOGIT, "logit_scale", "PLAN_LOGIT_SCALE") \
    X(LOGIT_SOFTCAP, "logit_softcap", "PLAN_LOGIT_SOFTCAP")
enum {
#define X(id, name, constant) BURST_SCALE_##id,
    BURST_SCALE_ROWS(X)
#undef X
        BURST_SCALES
};
#endif
