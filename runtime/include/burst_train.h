/* burst_train.h: what the compiler and programs share about training: token files, learning-rate schedules,
 * optimizers. */
#ifndef BURST_TRAIN_H
#define BURST_TRAIN_H

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

#endif
