/* burst_train.h: what compiler and programs share of training: files of tokens, schedules of the learning
 * rate, optimizers. */
#ifndef BURST_TRAIN_H
#define BURST_TRAIN_H

enum { BURST_DATA_FILES = 64 }; /* the most that a run reads */
/* A file of tokens: one of ours, .npy, or Megatron-LM's .bin with its .idx. */
typedef struct BurstDataFile {
    const char *path;
    int raw;      /* bytes a token of a file without a header, 1, 2 or 4; 0: its format says */
    double share; /* of the sequences, beside the other files' */
} BurstDataFile;
#define BURST_SCHEDULE_ROWS(X) /* id, name: of the learning rate after the warm-up */ \
    X(CONSTANT, "constant") X(COSINE, "cosine") X(LINEAR, "linear") X(WSD, "wsd")
enum {
#define X(id, name) BURST_SCHEDULE_##id,
    BURST_SCHEDULE_ROWS(X)
#undef X
};
#define BURST_OPTIMIZER_ROWS(X) /* id, name: of matrices of layers; of all else AdamW */ \
    X(ADAMW, "adamw") X(MUON, "muon")
enum {
#define X(id, name) BURST_OPTIMIZER_##id,
    BURST_OPTIMIZER_ROWS(X)
#undef X
};

#endif
