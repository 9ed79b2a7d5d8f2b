/* host_side.h: what the CUDA runtime asks of the host runtime's context (whose header is C only). */
#ifndef BURST_CUDA_HOST_SIDE_H
#define BURST_CUDA_HOST_SIDE_H

#include "timeline/spans.h"

#ifdef __cplusplus
extern "C" {
#endif

int host_local(const BurstCtx *c);  /* this rank's number among those that share its memory */
const struct BurstPlan *host_plan(const BurstCtx *c);
/* all[i] = mine of the host's i-th rank, bytes each, at most HOST_SHARED_BYTES. Every rank of the host
 * calls. Waits. */
enum { HOST_SHARED_BYTES = 512, HOST_CHANNEL = 15 /* of the host's messages: free for the device's */ };
int host_share(BurstCtx *c, const void *mine, size_t bytes, void *all);
/* The same from all ranks of the world to rank 0, which alone needs `all`. */
int host_collect(BurstCtx *c, const void *mine, size_t bytes, void *all);
/* HOST_SHARED_BYTES of memory that messages can be sent from; any collective overwrites it. */
void *host_shared(BurstCtx *c);
/* this rank's number on its host, as the launcher counts where there is one */
int host_device(const BurstCtx *c);
int host_locals(const BurstCtx *c);    /* ranks that share memory with this one, and itself */
/* by mpirun, torchrun or srun: each process has an environment of its own */
bool host_launched(const BurstCtx *c);
/* Shows the other ranks of the host which device this one has (a number that tells devices apart). *other:
 * the first of them with the same, -1: none. All ranks call it; waits. */
int host_claim(BurstCtx *c, uint64_t device, int *other);
/* Of a unit's shard, what this rank has of a tensor, from `begin` to before `end`; end <= begin: nothing.
 * counts: it is this rank's to count where several have the same; copies: how many tensor ranks have. */
typedef struct HostPart { int64_t begin, end; bool counts; int copies; } HostPart;
HostPart host_part(const BurstCtx *c, const BurstUnit *u, const BurstTensor *t);
/* some tensor ranks, not all, that have the same of a tensor; else this rank alone */
BurstGroup host_copies(const BurstCtx *c);
/* bytes[count] of the group's first rank to all of it; count a multiple of 4, at most 256. Waits. */
int host_broadcast(BurstCtx *c, BurstGroup g, void *bytes, int count);
/* Keeps watch while waiting for the device: fails when another rank failed or was lost, or when nothing
 * has moved for the time limit (what: what is waited for). Zeroed memory begins the watch. */
typedef struct HostWatchdog { double begin, checked; } HostWatchdog;
int host_watchdog(BurstCtx *c, HostWatchdog *v, const char *what);
/* Whether another rank's failure or loss becomes known within this time: it is then the reason for this
 * one's, and the context's error. */
bool host_failure_known(BurstCtx *c, double seconds);
void host_nap(long microseconds);
/* Zeroed memory of this process in huge pages where the host has them, all of it present: written to by
 * as many threads as this rank has cores, since the kernel clears pages at 2 to 5 GB/s a core. NULL: there
 * is not so much. Freed by host_pages_free, whose bytes are the same. */
void *host_pages(BurstCtx *c, size_t bytes);
void host_pages_free(void *at, size_t bytes);
bool host_traced(const BurstCtx *c);          /* whether any step of this run is */
/* from now on the context knows the device; an empty one: no longer */
void host_watch(BurstCtx *c, HostDevice d);

#ifdef __cplusplus
}
#endif
#endif
