/* progress.h: what a training run says of itself: the progress line and the metrics file. Rank 0 writes. */
#ifndef BURST_PROGRESS_H
#define BURST_PROGRESS_H

#include "report/metrics.h"
#include "app/options.h"

typedef struct Progress {
    Metrics metrics;
    int64_t every, first, last; /* steps between lines */
    bool share_said; /* that a step took less than the devices can */
    bool none_said;  /* that no token of a batch counts */
    bool terminal;   /* lines are for somebody who watches */
    double spent;    /* seconds of `counted` steps: all but the first, which is slower */
    int64_t counted;
    double memory; /* bytes in use where the ranks compute, of the rank with most */
} Progress;

/* done: steps that a checkpoint brought. Files of before are as they were until progress_begin. */
int progress_open(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t done);
int progress_begin(Progress *s, BurstCtx *c, const Options *o, int64_t done);
/* Whether the metrics of earlier runs have the evaluation after the steps that a checkpoint brought; rank 0
 * knows. */
bool progress_evaluated(const Progress *s);
int progress_step(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t step,
                  const BurstStep *r, double seconds);
/* What an evaluation after so many steps has found. */
int progress_evaluation(Progress *s, BurstCtx *c, const Options *o, int64_t done, int64_t batches,
                        const BurstStep *r, double seconds);
int progress_memory(BurstCtx *c); /* what a device's memory is used for, as a line */
/* Returns status, or the failure to write the last lines. */
int progress_close(Progress *s, BurstCtx *c, int status);
#endif
