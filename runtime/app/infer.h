/* infer.h: what a program that infers does in place of training: it continues the prompts that it reads. */
#ifndef BURST_APP_INFER_H
#define BURST_APP_INFER_H

#include "core/options.h"

/* Prompts are lines of JSON, {"prompt": [ids]}, with "tokens" (how many continue it at most), "stop" (ids
 * after one of which it ends) and "logits" (true: print them) if wanted. Prints a line for each token as it
 * comes, and one after the last of a prompt. */
int infer(BurstCtx *c, const BurstPlan *p, const Options *o, void *state, BurstWeights *w);

#endif
