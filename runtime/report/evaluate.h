/* evaluate.h: the loss on a validation file: the mean over its counted tokens, in its order. */
#ifndef BURST_EVALUATE_H
#define BURST_EVALUATE_H

#include "report/progress.h"

/* Opens and checks the file, if a run that begins after `done` steps will read it. */
int evaluate_ready(BurstCtx *c, const BurstPlan *p, const Options *o, int64_t done);
/* Whether an evaluation follows the done-th step. */
bool evaluate_due(const Options *o, int64_t done);
/* Whether the evaluation after the last of `done` steps, loaded from a checkpoint, is still to be made: the
 * previous run was killed between the two, or no metrics show that it was made. *owed is the same on all
 * ranks. */
int evaluate_owed(BurstCtx *c, const Options *o, const Progress *show, int64_t done, bool *owed);
/* Weights do not change. Loss and perplexity are added to progress lines and metrics. */
int evaluate(BurstCtx *c, const BurstPlan *p, const Options *o, Progress *show, void *state, BurstWeights *w,
             int64_t done);
#endif
