/* executor.h: runs a step's operations one after the other in float64, in memory packed as the compiler
 * says. */
#ifndef STEP_EXECUTOR_H
#define STEP_EXECUTOR_H

#include "tools/tools.h"

typedef struct Run {
    const Flow *flow;
    int sequences;
    int64_t tokens;
    const int32_t *token, *label; /* [sequences][tokens] */
    const double *label_weight;
    double scale;                 /* of the loss's gradient */
    /* [units] -> [elements of the unit, where ranks split it, of all of them together] */
    double *const *param;
    double **grad;                /* [units] -> added to: zeroed before */
    bool late[STREAMS];           /* what the stream does is done when compute waits for it, else at once */
    double loss;                  /* written */
} Run;
/* What no item holds is NaN after every operation. Operations, operands and places are taken as they are:
 * a wrong one gives wrong numbers, NaN, or touches what no item holds, which ends the run with false. */
bool step_run(Run *r);

/* The units that a step of so many layers visits, where only the first of a group saves its input; how many
 * visits there are, VISITS at most. */
enum { VISITS = 64 };
int visit_units(int layers, int group, int unit[VISITS]);

#endif
