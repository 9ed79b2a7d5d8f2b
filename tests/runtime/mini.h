/* mini.h: a plan written by hand, small enough to be right by looking at it: tokens are embedded,
 * multiplied by one matrix, and scored by cross-entropy. Two units of weights, sharded over all ranks as
 * in a real program. */
#ifndef MINI_H
#define MINI_H

#include "burst_rt.h"

enum { MINI_CONTIGUOUS, MINI_STRIPED, MINI_ZIGZAG, MINI_PARTITIONS };
typedef struct Mini {
    int world, data, partition;
    int64_t sequence, batch, steps, separator;
    int ffn; /* of no effect: a fact that checkpoints remember */
    bool documents; /* a mask asks for the table "doc" */
    const char *fault; /* "kill 2 3": rank 2 is killed in the third step; also stop, exit, nan, hang, slow */
} Mini;

/* One plan at a time: its functions find their facts in static memory. */
const BurstPlan *mini_plan(const Mini *m);
enum { MINI_VOCAB = 23, MINI_HIDDEN = 6 };
#endif
