/* lock.h: one run a folder. Rank 0 calls. */
#ifndef BURST_LOCK_H
#define BURST_LOCK_H

#include "burst_plan.h"

/* Takes the folder's lock, which the process's end releases. *fd -1: the file system has no locks, which
 * stderr reports. */
int lock_take(BurstCtx *c, const BurstPlan *p, const char *directory, int *fd);
/* Whether the lock is still the folder's: the file may have been replaced during the run. */
bool lock_stands(const char *directory, int fd);

#endif
