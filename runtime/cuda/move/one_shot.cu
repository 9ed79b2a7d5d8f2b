/* one_shot.cu: gathers of a few kilobytes by a kernel that writes into the peers' memory itself, as in
 * one-shot all-reduces of inference engines. Copy engines and stream memory operations take tens of
 * microseconds a message, and their flags have values that a recorded launch cannot repeat; here the device
 * counts.
 *
 * Each rank tells its peers that it is READY: what was queued before has read what their parts overwrite. It
 * waits for theirs, writes its part, tells them that it has ARRIVED, and waits for theirs. Flags of
 * peer_move.cu have one more channel for this; the flag of a rank to itself counts gathers. */
#include "cuda/gpu.h"

enum { READY, ARRIVED, KINDS, THREADS = 512 };

typedef struct Ends {
    char *whole;            /* the peer's */
    uint64_t *there, *here; /* [KINDS]: the peer's flags that this rank writes, and the reverse */
} Ends;

typedef struct OneShot {
    const char *part;
    char *own; /* this rank's place in its whole; may be part */
    int64_t bytes, at;
    uint64_t *count; /* gathers so far */
    int peers;
    Ends peer[PEERS_MOST - 1];
} OneShot;

static __device__ void tell(uint64_t *flag, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

static __device__ void await(const uint64_t *flag, uint64_t value)
{
    uint64_t now;
    do
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(now) : "l"(flag) : "memory");
    while (now < value);
}

template <class WORD> static __device__ void copy(const char *from, char *to, int64_t bytes)
{
    for (int64_t i = threadIdx.x; i < bytes / (int64_t)sizeof(WORD); i += THREADS)
        ((WORD *)to)[i] = ((const WORD *)from)[i];
}

/* One block. WORD: what the part is a multiple of, and aligned to. */
template <class WORD> static __global__ void __launch_bounds__(THREADS) one_shot_kernel(const OneShot a)
{
    const uint64_t number = *a.count + 1;
    const int i = (int)threadIdx.x;
    if (i < a.peers) {
        tell(a.peer[i].there + READY, number);
        await(a.peer[i].here + READY, number);
    }
    __syncthreads();
    for (int p = 0; p < a.peers; p++)
        copy<WORD>(a.part, a.peer[p].whole + a.at, a.bytes);
    if (a.part != a.own)
        copy<WORD>(a.part, a.own, a.bytes);
    __threadfence_system();
    __syncthreads();
    if (i < a.peers) {
        tell(a.peer[i].there + ARRIVED, number);
        await(a.peer[i].here + ARRIVED, number);
    }
    if (i == 0)
        *a.count = number;
}

/* Flags in `memory` that the host's rank `writer` writes. */
static uint64_t *flags_of(const BurstGpu *g, char *memory, int writer)
{
    return (uint64_t *)(memory + gpu_flags_at(g)) + ((g->channels + 2) * PEERS_MOST + writer) * KINDS;
}

bool burst_gpu_gathers_one_shot(BurstGpu *g, int unit)
{
    const Members *m = gpu_unit_members(g, unit);
    return m->peers && m->ranks.count > 1 && !g->may_share;
}

int burst_gpu_gather_one_shot(BurstGpu *g, int unit, const BurstBf16 *part, int64_t elements,
                              BurstBf16 *whole)
{
    const Members *m = gpu_unit_members(g, unit);
    const int me = host_local(g->ctx), member = (g->rank - m->ranks.first) / m->ranks.stride;
    OneShot a = {};
    a.part = (const char *)part;
    a.own = (char *)(whole + member * elements);
    a.bytes = elements * (int64_t)sizeof *part;
    a.at = member * a.bytes;
    a.count = flags_of(g, g->memory, me);
    for (int i = 0; i < m->ranks.count; i++) {
        const int rank = m->ranks.first + i * m->ranks.stride;
        const Peer *p = g->peer_of[rank];
        if (rank == g->rank)
            continue;
        a.peer[a.peers++] = Ends{p->memory + ((char *)whole - g->memory), flags_of(g, p->memory, me),
                                 flags_of(g, g->memory, p->local)};
    }
    if (((uintptr_t)part | (uintptr_t)whole | (uintptr_t)a.bytes) % sizeof(uint4) == 0)
        one_shot_kernel<uint4><<<1, THREADS, 0, g->compute>>>(a);
    else
        one_shot_kernel<BurstBf16><<<1, THREADS, 0, g->compute>>>(a);
    return gpu_launched(g, "one-shot gather");
}
