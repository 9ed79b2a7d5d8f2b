/* traces.h: schedules written out by hand, and clusters to run them on, for the tests of the cost
 * simulation. */
#ifndef TRACES_H
#define TRACES_H

#include "tools/tools.h"

typedef enum Direction { FORWARD, BACKWARD_KEYS, BACKWARD_QUERIES } Direction;
/* The rings of schedules/ring.sched (lanes 0: one coordinate of `nodes` ranks) and schedules/burst.sched,
 * with slots. */
Schedule *ring_trace(Arena *a, int nodes, int lanes, Direction direction);

/* Nodes of `gpus` devices; figures to be changed before use. 1 GB/s links, NICs of 0.1 GB/s, no latency. */
typedef struct TestCluster { Cluster cluster; NodeGroup group; Device device; Nic nic; } TestCluster;
void cluster_fill(TestCluster *c, int nodes, int gpus, int nics, bool cpu);

/* All ranks simulated; each computing takes `seconds`, each arrival of tensor t has bytes[t]. */
AttentionInput even_input(Arena *a, const Cluster *c, const Schedule *s, double seconds,
                          const double bytes[TENSOR_COUNT]);
double even_time(const Cluster *c, const Schedule *s, double seconds, const double bytes[TENSOR_COUNT]);

#endif
