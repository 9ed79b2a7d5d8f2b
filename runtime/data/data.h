/* data.h: the sequences that a rank reads, to train and to evaluate on. */
#ifndef BURST_DATA_DATA_H
#define BURST_DATA_DATA_H

#include "burst_plan.h"

#include <stdio.h>

int data_ready(BurstCtx *c, const BurstPlan *p); /* opens and checks the data, where no batch was read yet */
void data_close(BurstCtx *c);
void data_print(FILE *to, const BurstTrain *t); /* the files, as a model has them: "a.tok" 0.7, "b.tok" 0.3 */
/* The same of the file to evaluate on, and how many sequences it has. */
int data_evaluation_ready(BurstCtx *c, const BurstPlan *p, int64_t *sequences);
void data_swap(BurstCtx *c); /* sequences are read from the one to evaluate on, or again from the data */

#endif
