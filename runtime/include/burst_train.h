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

/* ---- how many tokens choose each expert, and the loss that balances experts ---- */

/* Of tokens that the loss counts; in memory of the target. */
typedef struct BurstLoads {
    /* [layers][experts] tokens that chose each, since the step began; NaN where a logit was not finite */
    double *choices;
    /* Of the running sequence's layers: [experts] rows that have each expert among the `top` largest logits,
     * the number of rows, and [experts] sums of their softmax, in this order without gaps. Of this rank, from
     * the end of forward on of all that share the sequence. */
    double *chosen, *rows, *softmax;
    double scale; /* of the gradient of a sequence's balance loss */
} BurstLoads;

/* Sums numbers over all ranks, as many at a time as a sum takes. */
int burst_sum_counts(BurstCtx *c, double *count, int64_t n);
/* Fails with the number of the first layer that has a NaN among its choices. */
int burst_check_choices(BurstCtx *c, int layers, int experts, const double *choices);
/* choices: [layers][experts] of all ranks. largest: [layers] choices of the most chosen expert over the mean;
 * 0: none. */
void burst_largest_loads(int layers, int experts, const double *choices, double *largest);

#ifdef __cplusplus
}
#endif
#endif
