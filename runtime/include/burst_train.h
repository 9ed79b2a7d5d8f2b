/* burst_train.h: what the compiler and programs share about training: token files, learning-rate schedules,
 * optimizers; loads of experts. */
#ifndef BURST_TRAIN_H
#define BURST_TRAIN_H

#include "burst_context.h"
#include "burst_model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BURST_DATA_FILES = 64 }; /* of a run, at most */
/* A file of tokens: burstc's own format, .npy, or Megatron-LM's .bin with its .idx. */
typedef struct BurstDataFile {
    const char *path;
    int raw;      /* bytes per token (1, 2 or 4) of a file without a header; 0: the format says */
    double share; /* of the sequences, relative to the other files */
} BurstDataFile;
#define BURST_SCHEDULE_ROWS(X) /* id, name: the learning rate after the warm-up */ \
    X(CONSTANT, "constant") X(COSINE, "cosine") X(LINEAR, "linear") X(WSD, "wsd")
enum {
#define X(id, name) BURST_SCHEDULE_##id,
    BURST_SCHEDULE_ROWS(X)
#undef X
};
#define BURST_OPTIMIZER_ROWS(X) /* id, name: for the matrices of layers; all else uses AdamW */ \
    X(ADAMW, "adamw") X(MUON, "muon")
enum {
#define X(id, name) BURST_OPTIMIZER_##id,
    BURST_OPTIMIZER_ROWS(X)
#undef X
};

/* ---- how many tokens choose each expert, and the loss that balances experts: on the host ---- */

/* Of tokens that the loss counts. */
typedef struct BurstLoads {
    double *choices; /* [layers][experts] tokens that chose each, since the step began */
    /* Of the running sequence's layers: rows, as many of them as have each expert among the `top` largest
     * logits, and sums of their softmax. Of this rank, from the end of forward on of all that share it. */
    double rows, *chosen, *softmax;
    double scale; /* of the gradient of a sequence's balance loss */
} BurstLoads;
/* Fails with the layer's number where a logit is not finite. */
int burst_op_count(BurstCtx *e, int64_t n, const BurstExperts *m, int layer, const int32_t *choice,
                   const float *logits, const int32_t *label, const float *weight, BurstLoads *l);
int burst_op_balance(BurstCtx *e, int64_t n, const BurstExperts *m, const float *logits, const int32_t *label,
                     const float *weight, BurstLoads *l);
int burst_op_balance_back(BurstCtx *e, int64_t n, const BurstExperts *m, const float *logits,
                          const int32_t *label, const float *weight, const BurstLoads *l, float *d_logits);

/* Sums numbers over all ranks, as many at a time as a sum takes. */
int burst_sum_counts(BurstCtx *c, double *count, int64_t n);
/* choices: [layers][experts] of all ranks. largest: [layers] choices of the most chosen expert over the mean;
 * 0: none. */
void burst_largest_loads(int layers, int experts, const double *choices, double *largest);

#ifdef __cplusplus
}
#endif
#endif
