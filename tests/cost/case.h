/* case.h: a cluster and a model as texts, and the draft of one choice, for tests of the simulated step. */
#ifndef COST_CASE_H
#define COST_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/tools.h"

typedef struct Case {
    int nodes, gpus, layers, heads, kv_heads;
    const char *sequence, *mask, *device, *schedule, *recompute;
    PartitionKind partition;
    Travel travel;
    bool cuda;
    int nics, gbps; /* of a node, each; 0: one of 200 Gb/s a device */
    int data;       /* groups, each with one of so many sequences; 0: one */
    int link;       /* GB/s; 0: 300 */
    int batch;      /* sequences of a step; 0: one a group */
    Sharding sharding;
    OptimizerPlace optimizer;
    double tail;    /* of recompute "tail" */
    int sums;       /* GB/s of the link; 0: as the link */
    int alone;      /* GB/s of sums while nothing is computed; 0: sums */
    int both;       /* GB/s each way of copies to and from the host at once; 0: not given */
    double taking;  /* share of its rate that computing loses beside sums */
} Case;
extern const Case usual; /* four a100 in a node, a ring, 64Ki tokens, nothing masked */
Draft make(Arena *a, const Case *k);
void close_to(double got, double expected, double tolerance); /* relative */

#endif
