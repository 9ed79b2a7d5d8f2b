/* progress.h: a training run's progress line and metrics file. Rank 0 writes them. */
#ifndef BURST_PROGRESS_H
#define BURST_PROGRESS_H

#include "core/options.h"
#include "report/metrics.h"

typedef struct Progress {
    Metrics metrics;
    int64_t every, first, last; /* steps between lines */
    bool share_said; /* it was reported that a step took less time than the devices can */
    bool none_said;  /* it was reported that no token of a batch counts */
    bool terminal;   /* lines go to a terminal */
    double spent;    /* seconds of `counted` steps: all but the first, which is slower */
    int64_t counted;
    double memory; /* bytes in use where the ranks compute; the largest rank's */
} Progress;

/* done: steps loaded from a checkpoint. Files of earlier runs do not change until progress_begin. */
int progress_open(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t done);
int progress_begin(Progress *s, BurstCtx *c, const Options *o, int64_t done);
/* Whether the metrics of earlier runs have the evaluation after the loaded steps; only rank 0 knows. */
bool progress_evaluated(const Progress *s);
int progress_step(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t step,
                  const BurstStep *r, double seconds);
/* Reports an evaluation after so many steps. */
int progress_evaluation(Progress *s, BurstCtx *c, const Options *o, int64_t done, int64_t batches,
                        const BurstStep *r, double seconds);
int progress_memory(BurstCtx *c); /* prints what a device's memory is used for */
/* Returns status, or the failure to write the last lines. */
int progress_close(Progress *s, BurstCtx *c, int status);
#endif
