/* base/parallel.h: independent tasks on the cores that this process may use. */
#ifndef BURST_BASE_PARALLEL_H
#define BURST_BASE_PARALLEL_H

/* Runs run(context, i) for each i in [0, n), several at a time. A task writes only its own part of the
 * context, and allocates in an arena of its own (arena_join), so that results do not depend on the number of
 * cores. Tasks of tasks, and tasks for which no thread can be created, run in turn. */
void parallel(int n, void (*run)(void *context, int i), void *context);

#endif
