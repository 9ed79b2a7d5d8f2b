/* one_shot.cuh: gathers of a few kilobytes by a kernel that writes into the peers' memory itself, as in
 * one-shot all-reduces of inference engines. Copy engines and stream memory operations take tens of
 * microseconds a message, and their flags have values that a recorded launch cannot repeat; here the device
 * counts.
 *
 * Each rank tells its peers that it is READY: what was queued before has read what their parts overwrite. It
 * waits for theirs, writes its part, tells them that it has ARRIVED, and waits for theirs. Flags of
 * peer_move.cu have one more channel for this; the flag of a rank to itself counts gathers. */
#ifndef BURST_ONE_SHOT_CUH
#define BURST_ONE_SHOT_CUH

#include "cuda/gpu.h"

enum { ONE_SHOT_READY, ONE_SHOT_ARRIVED, ONE_SHOT_KINDS, ONE_SHOT_THREADS = 512 };

typedef struct OneShotPeer {
    char *whole;            /* the peer's */
    uint64_t *there, *here; /* [ONE_SHOT_KINDS]: the peer's flags that this rank writes, and the reverse */
} OneShotPeer;

typedef struct OneShot {
    const char *part;
    char *own; /* this rank's place in its whole; may be part */
    int64_t bytes, at;
    uint64_t *count; /* gathers so far */
    int peers;
    OneShotPeer peer[PEERS_MOST - 1];
} OneShot;

static __device__ void one_shot_tell(uint64_t *flag, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

static __device__ void one_shot_await(const uint64_t *flag, uint64_t value)
{
    uint64_t now;
    do
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(now) : "l"(flag) : "memory");
    while (now < value);
}

template <class WORD> static __device__ void one_shot_copy(const char *from, char *to, int64_t bytes)
{
    for (int64_t i = threadIdx.x; i < bytes / (int64_t)sizeof(WORD); i += ONE_SHOT_THREADS)
        ((WORD *)to)[i] = ((const WORD *)from)[i];
}

/* One block. WORD: what the part is a multiple of, and aligned to. */
template <class WORD>
static __global__ void __launch_bounds__(ONE_SHOT_THREADS) one_shot_kernel(const OneShot a)
{
    const uint64_t number = *a.count + 1;
    const int i = (int)threadIdx.x;
    if (i < a.peers) {
        one_shot_tell(a.peer[i].there + ONE_SHOT_READY, number);
        one_shot_await(a.peer[i].here + ONE_SHOT_READY, number);
    }
    __syncthreads();
    for (int p = 0; p < a.peers; p++)
        one_shot_copy<WORD>(a.part, a.peer[p].whole + a.at, a.bytes);
    if (a.part != a.own)
        one_shot_copy<WORD>(a.part, a.own, a.bytes);
    __threadfence_system();
    __syncthreads();
    if (i < a.peers) {
        one_shot_tell(a.peer[i].there + ONE_SHOT_ARRIVED, number);
        one_shot_await(a.peer[i].here + ONE_SHOT_ARRIVED, number);
    }
    if (i == 0)
        *a.count = number;
}

#endif
