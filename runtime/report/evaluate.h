/* evaluate.h: the loss on a file that is not trained on: the mean over its counted tokens, in its order. */
#ifndef BURST_EVALUATE_H
#define BURST_EVALUATE_H

#include "report/progress.h"

/* Opens and checks the file, where a run that begins after `done` steps will read it. */
int evaluate_ready(BurstCtx *c, const BurstPlan *p, const Options *o, int64_t done);
/* Whether an evaluation follows the step that was the done-th. */
bool evaluate_due(const Options *o, int64_t done);
/* Whether the evaluation after the last of `done` steps, which a checkpoint brought, has still to be made:
 * the run before was killed between the two, or no metrics say that it was made. *owed is the same on all
 * ranks. */
int evaluate_owed(BurstCtx *c, const Options *o, const Progress *show, int64_t done, bool *owed);
/* Weights stay as they are; loss and perplexity become lines of the progress and of the metrics. */
int evaluate(BurstCtx *c, const BurstPlan *p, const Options *o, Progress *show, void *state, BurstWeights *w,
             int64_t done);
#endif
