/* host_side.h: the host context's functions for the CUDA runtime (the context's own header is C only). */
#ifndef BURST_CUDA_HOST_SIDE_H
#define BURST_CUDA_HOST_SIDE_H

#include "core/spans.h"
#include "burst_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

int host_local(const BurstCtx *c);  /* this rank's index among those that share its memory */
const struct BurstPlan *host_plan(const BurstCtx *c);
/* all[i] = mine of the host's i-th rank, bytes each, at most HOST_SHARED_BYTES. Collective on the host.
 * Waits. */
enum { HOST_SHARED_BYTES = 512, HOST_CHANNEL = 15 /* of the host's messages: free for the device's */ };
int host_share(BurstCtx *c, const void *mine, size_t bytes, void *all);
/* The same from all ranks of the world to rank 0; only rank 0 needs `all`. */
int host_collect(BurstCtx *c, const void *mine, size_t bytes, void *all);
/* HOST_SHARED_BYTES of memory for sending messages; any collective overwrites it. */
void *host_shared(BurstCtx *c);
/* this rank's index on its host, as the launcher counts if there is one */
int host_device(const BurstCtx *c);
int host_locals(const BurstCtx *c);    /* number of ranks that share memory with this one, including it */
/* started by mpirun, torchrun or srun: each process has an environment of its own */
bool host_launched(const BurstCtx *c);
/* Tells the host's other ranks which device this one has (a number that identifies it). *other: the first
 * rank with the same device, -1: none. Collective on the host; waits. */
int host_claim(BurstCtx *c, uint64_t device, int *other);
/* This rank's part of a tensor in a unit's shard, [begin, end); end <= begin: nothing. counts: whether this
 * rank counts it, if several have it; copies: the number of tensor ranks that have it. */
typedef struct HostPart { int64_t begin, end; bool counts; int copies; } HostPart;
HostPart host_part(const BurstCtx *c, const BurstUnit *u, const BurstTensor *t);
/* the tensor ranks that have the same part of a tensor, if they are some and not all; else this rank */
BurstGroup host_copies(const BurstCtx *c);
/* Sends bytes[count] of the group's first rank to all of it; count: a multiple of 4, at most 256. Waits. */
int host_broadcast(BurstCtx *c, BurstGroup g, void *bytes, int count);
/* Called while waiting for the device: fails if another rank failed or was lost, or if nothing has moved
 * within the time limit. what: what is waited for. Starts from zeroed memory. */
typedef struct HostWatchdog { double begin, checked; } HostWatchdog;
int host_watchdog(BurstCtx *c, HostWatchdog *v, const char *what);
/* Whether another rank's failure or loss becomes known within this time; it is then the cause of this one's,
 * and the context's error. */
bool host_failure_known(BurstCtx *c, double seconds);
void host_nap(long microseconds);
/* Zeroed, resident memory of this process, in huge pages if the host has them. As many threads as this rank
 * has cores touch it, since the kernel clears pages at 2 to 5 GB/s per core. NULL: too little memory. Freed
 * by host_pages_free with the same size. */
void *host_pages(BurstCtx *c, size_t bytes);
void host_pages_free(void *at, size_t bytes);
bool host_traced(const BurstCtx *c);          /* whether any step of this run is traced */
/* Registers the device with the context; an empty one unregisters it. */
void host_watch(BurstCtx *c, HostDevice d);

#ifdef __cplusplus
}
#endif
#endif
