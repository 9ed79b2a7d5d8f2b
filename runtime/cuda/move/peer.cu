/* peer.cu: at start-up, finds which ranks of the host can write into each other's device memory, and reports
 * why others cannot; and gathers of a few kilobytes by a kernel that does (one_shot.cuh).
 *
 * A rank exports its one allocation (CUDA IPC) and opens those of the host's other ranks; a pair uses peer
 * memory if both succeeded. Opening enables peer access as far as this allocation needs it; enabling it
 * explicitly would create a context on the other device, which costs memory there. Ranks with different
 * NCCL_HOSTID count as different hosts, so that one host can simulate several nodes. */
#include "cuda/gpu.h"
#include "cuda/move/one_shot.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AUTO, NCCL, PEER, TRANSPORTS };
static const char *const transport_names[TRANSPORTS] = {"auto", "nccl", "peer"};

#define REASONS(X) \
    X(NONE, "nothing") \
    X(FLAGS, "the device or its driver does not support 64-bit stream memory operations") \
    X(EXPORT, "its memory cannot be exported (cudaIpcGetMemHandle)") \
    X(HIDDEN, "the other rank's device is not visible to it, so it cannot open that device's memory") \
    X(ACCESS, "the two devices cannot access each other's memory") \
    X(OPEN, "it cannot open the other rank's memory (cudaIpcOpenMemHandle)") \
    X(WRITE, "its streams cannot write to the other rank's memory") \
    X(ARRIVAL, "a test write from the other rank did not arrive") \
    X(CROWD, "the host has too many ranks for peer memory")
enum {
#define REASON(name, text) REASON_##name,
    REASONS(REASON)
#undef REASON
    REASON_COUNT
};
static const char *const reason_text[REASON_COUNT] = {
#define REASON(name, text) text,
    REASONS(REASON)
#undef REASON
};

/* Why not: a reason and, if there is one, CUDA's error. */
typedef struct Refusal { int reason, error; } Refusal;
/* A rank's message to the others of its host. */
enum { BUS_ID = 32 };
typedef struct Offer {
    cudaIpcMemHandle_t handle;
    uint64_t bytes, host;
    int rank, transport;
    char bus[BUS_ID];
    Refusal refusal;
} Offer;
/* The results for each rank of the host; sent again after the trial. */
typedef struct Opened { Refusal refusal[PEERS_MOST]; } Opened;
static_assert(sizeof(Offer) <= HOST_SHARED_BYTES && sizeof(Opened) <= HOST_SHARED_BYTES, "one message each");

/* ---- the offer ---- */
static int chosen_transport(BurstGpu *g, int *transport)
{
    const char *text = getenv("BURST_TRANSPORT");
    for (*transport = text ? 0 : AUTO; text && *transport < TRANSPORTS; ++*transport)
        if (strcmp(text, transport_names[*transport]) == 0)
            break;
    if (*transport < TRANSPORTS)
        return BURST_OK;
    return burst_fail(g->ctx, BURST_E_USAGE, "BURST_TRANSPORT is '%s', expected auto, nccl or peer", text);
}

/* An entry of the driver, which is not linked: programs must start without one. */
static void *driver_entry(const char *name)
{
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t e = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found);
#else
    cudaError_t e = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    if (e != cudaSuccess)
        cudaGetLastError();
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? entry : NULL;
}

static bool have_flag_ops(BurstGpu *g)
{
    const PFN_cuDeviceGetAttribute_v2000 attribute = (PFN_cuDeviceGetAttribute_v2000)driver_entry(
        "cuDeviceGetAttribute");
    const PFN_cuDeviceGet_v2000 get = (PFN_cuDeviceGet_v2000)driver_entry("cuDeviceGet");
    CUdevice device;
    int has = 0;
    g->flag_ops = (PFN_cuStreamBatchMemOp_v11070)driver_entry("cuStreamBatchMemOp");
    return g->flag_ops && attribute && get && get(&device, g->device) == CUDA_SUCCESS &&
           attribute(&has, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device) == CUDA_SUCCESS && has;
}

static int make_offer(BurstGpu *g, Offer *o)
{
    memset(o, 0, sizeof *o);
    BURST_TRY(chosen_transport(g, &o->transport));
    o->bytes = g->bytes;
    o->host = g->host;
    o->rank = g->rank;
    CUDA_TRY(g, cudaDeviceGetPCIBusId(o->bus, sizeof o->bus, g->device));
    if (!have_flag_ops(g))
        o->refusal = Refusal{REASON_FLAGS, cudaSuccess};
    else if (o->transport != NCCL)
        o->refusal.error = cudaIpcGetMemHandle(&o->handle, g->memory);
    if (o->refusal.error != cudaSuccess)
        o->refusal.reason = REASON_EXPORT;
    cudaGetLastError();
    return BURST_OK;
}

/* ---- opening ---- */
/* Memory of a device that a launcher hides from this process may open all the same; it only cannot be
 * queried first. */
static Refusal open_memory(BurstGpu *g, const Offer *theirs, char **memory)
{
    int device = 0, access = 1;
    const bool visible = cudaDeviceGetByPCIBusId(&device, theirs->bus) == cudaSuccess;
    /* CUDA does not count a device as its own peer */
    const bool other = visible && device != g->device;
    cudaError_t e = other ? cudaDeviceCanAccessPeer(&access, g->device, device) : cudaSuccess;
    if (e == cudaSuccess && access)
        e = cudaIpcOpenMemHandle((void **)memory, theirs->handle, cudaIpcMemLazyEnablePeerAccess);
    cudaGetLastError();
    if (e == cudaSuccess && access)
        return Refusal{REASON_NONE, cudaSuccess};
    *memory = NULL;
    if (!access)
        return Refusal{REASON_ACCESS, e};
    return Refusal{visible ? REASON_OPEN : REASON_HIDDEN, e};
}

/* ---- a trial ---- */
/* written by a rank's stream into all memory that it has opened */
static constexpr uint64_t TRIAL = 0x6275727374;

static size_t trial_at(const BurstGpu *g, int writer)
{
    return gpu_flags_at(g) + (size_t)writer * sizeof(uint64_t);
}

static Refusal try_write(BurstGpu *g, const Peer *p)
{
    CUstreamBatchMemOpParams o = {};
    o.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    o.writeValue.address = (CUdeviceptr)(p->memory + trial_at(g, host_local(g->ctx)));
    o.writeValue.value64 = TRIAL;
    if (g->flag_ops(g->weights, 1, &o, 0) != CUDA_SUCCESS)
        return Refusal{REASON_WRITE, cudaSuccess};
    const cudaError_t e = cudaStreamSynchronize(g->weights);
    cudaGetLastError();
    return Refusal{e == cudaSuccess ? REASON_NONE : REASON_WRITE, e};
}

/* After all have written: reads what has arrived from ranks that opened this memory, and resets the flags to
 * zero. */
static int look_for_trials(BurstGpu *g, const Opened *all, Opened *mine)
{
    uint64_t written[PEERS_MOST];
    CUDA_TRY(g, cudaMemcpy(written, g->memory + trial_at(g, 0), sizeof written, cudaMemcpyDeviceToHost));
    CUDA_TRY(g, cudaMemset(g->memory + trial_at(g, 0), 0, sizeof written));
    CUDA_TRY(g, cudaDeviceSynchronize());
    for (int i = 0; i < g->peers; i++) {
        const int local = g->peer[i].local;
        const bool has_written = all[local].refusal[host_local(g->ctx)].reason == REASON_NONE;
        Refusal *refusal = &mine->refusal[local];
        if (has_written && written[local] != TRIAL && refusal->reason == REASON_NONE)
            *refusal = Refusal{REASON_ARRIVAL, cudaSuccess};
    }
    return BURST_OK;
}

/* Whether the two ranks should use peer memory. */
static bool meant(const Offer *a, const Offer *b)
{
    return a->rank != b->rank && a->host == b->host && a->transport != NCCL;
}

/* Begins with the host's next rank, as Peer lists do. */
static void open_offers(BurstGpu *g, int locals, const Offer *offer, Opened *mine)
{
    const int me = host_local(g->ctx);
    for (int i = 1; i < locals; i++) {
        const int local = (me + i) % locals;
        const Offer *theirs = &offer[local];
        Refusal *refusal = &mine->refusal[local];
        if (!meant(&offer[me], theirs))
            continue;
        *refusal = offer[me].refusal;
        if (refusal->reason != REASON_NONE || theirs->refusal.reason != REASON_NONE)
            continue; /* the other rank reports why */
        Peer *p = &g->peer[g->peers++];
        *p = Peer{theirs->rank, local, NULL};
        *refusal = open_memory(g, theirs, &p->memory);
        if (p->memory)
            *refusal = try_write(g, p);
    }
}

/* Whether every rank of the world has every other's memory. All ranks compute the same. */
static bool all_opened(const BurstGpu *g, int locals, const Offer *offer, const Opened *all)
{
    for (int i = 0; i < locals; i++)
        for (int j = 0; j < locals; j++)
            if (i != j && (!meant(&offer[i], &offer[j]) || all[i].refusal[j].reason != REASON_NONE))
                return false;
    return locals == g->world;
}

/* Keeps the pairs in which both succeeded. */
static int keep_mutual(BurstGpu *g, const Opened *all)
{
    const int me = host_local(g->ctx);
    int kept = 0;
    for (int i = 0; i < g->peers; i++) {
        const Peer p = g->peer[i];
        if (p.memory && all[me].refusal[p.local].reason == REASON_NONE &&
            all[p.local].refusal[me].reason == REASON_NONE)
            g->peer[kept++] = p;
        else if (p.memory)
            CUDA_TRY(g, cudaIpcCloseMemHandle(p.memory));
    }
    g->peers = kept;
    for (int i = 0; i < kept; i++)
        g->peer_of[g->peer[i].rank] = &g->peer[i];
    return BURST_OK;
}

/* ---- reporting why not ---- */
static void describe(const Refusal *r, char *text, size_t size)
{
    const char *error = r->error ? cudaGetErrorString((cudaError_t)r->error) : "";
    snprintf(text, size, "%s%s%s", reason_text[r->reason], *error ? ": " : "", error);
}

/* The host's first rank reports, once, the first pair that should use peer memory and cannot. */
static int report(BurstGpu *g, int locals, const Offer *offer, const Opened *all)
{
    char text[256];
    int refused = 0, a = 0, b = 0;
    for (int i = locals - 1; i >= 0; i--)
        for (int j = locals - 1; j >= 0; j--)
            if (meant(&offer[i], &offer[j]) && all[i].refusal[j].reason != REASON_NONE)
                refused++, a = i, b = j;
    if (!refused)
        return BURST_OK;
    describe(&all[a].refusal[b], text, sizeof text);
    if (offer[a].transport == PEER)
        return burst_fail(g->ctx, BURST_E_USAGE,
                          "--transport peer: rank %d cannot use the memory of rank %d: %s; use --transport "
                          "auto to fall back to NCCL",
                          offer[a].rank, offer[b].rank, text);
    if (host_local(g->ctx) == 0)
        fprintf(stderr,
                "burst: using NCCL instead of peer memory from rank %d to rank %d of one host%s, which is "
                "slower: %s\n",
                offer[a].rank, offer[b].rank, refused > 1 ? " (and other pairs)" : "", text);
    return BURST_OK;
}

/* Senders compute the receiver's addresses, so memory must be laid out alike. All ranks must have been given
 * the same settings. */
static int check_alike(BurstGpu *g, int locals, const Offer *offer)
{
    const Offer *mine = &offer[host_local(g->ctx)];
    for (int i = 0; i < locals; i++)
        if (offer[i].transport != mine->transport)
            return burst_fail(
                g->ctx, BURST_E_USAGE,
                "BURST_TRANSPORT is %s on rank %d but %s on rank %d; set the same value on all ranks",
                transport_names[mine->transport], g->rank, transport_names[offer[i].transport],
                offer[i].rank);
    for (int i = 0; i < locals; i++)
        if (offer[i].bytes != g->bytes)
            return burst_fail(g->ctx, BURST_E_PLAN,
                              "rank %d has %zu bytes of device memory but rank %d has %llu; all ranks need "
                              "the same memory layout",
                              g->rank, g->bytes, offer[i].rank, (unsigned long long)offer[i].bytes);
    return BURST_OK;
}

static int connect(BurstGpu *g, int locals, Offer *offer, Opened *all)
{
    Offer mine;
    Opened opened;
    memset(&opened, 0, sizeof opened);
    BURST_TRY(make_offer(g, &mine));
    BURST_TRY(host_share(g->ctx, &mine, sizeof mine, offer));
    BURST_TRY(check_alike(g, locals, offer));
    open_offers(g, locals, offer, &opened);
    BURST_TRY(host_share(g->ctx, &opened, sizeof opened, all));
    BURST_TRY(look_for_trials(g, all, &opened));
    BURST_TRY(host_share(g->ctx, &opened, sizeof opened, all));
    BURST_TRY(keep_mutual(g, all));
    g->all_peers = all_opened(g, locals, offer, all);
    return report(g, locals, offer, all);
}

/* More ranks than the lists hold. */
static int refuse_crowd(BurstGpu *g, int locals)
{
    int transport;
    BURST_TRY(chosen_transport(g, &transport));
    if (transport == PEER)
        return burst_fail(g->ctx, BURST_E_USAGE, "--transport peer: %s: found %d, at most %d",
                          reason_text[REASON_CROWD], locals, PEERS_MOST);
    if (transport == AUTO && host_local(g->ctx) == 0)
        fprintf(stderr, "burst: using NCCL for all transfers: %s: found %d, at most %d\n",
                reason_text[REASON_CROWD], locals, PEERS_MOST);
    return BURST_OK;
}

int gpu_peers_open(BurstGpu *g)
{
    const int locals = host_locals(g->ctx);
    const size_t flags = (size_t)(g->channels + 3) * PEERS_MOST * 2 * sizeof(uint64_t); /* one_shot.cuh: 1 */
    if (flags > FLAG_BYTES)
        return burst_fail(g->ctx, BURST_E_PLAN, "%d channels exceed the number of flags in peer memory",
                          g->channels);
    if (locals > PEERS_MOST)
        return refuse_crowd(g, locals);
    Offer *offer = (Offer *)calloc((size_t)locals, sizeof *offer);
    Opened *opened = (Opened *)calloc((size_t)locals, sizeof *opened);
    int status = offer && opened
                     ? connect(g, locals, offer, opened)
                     : burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for %d peer memory handles", locals);
    free(offer);
    free(opened);
    return status;
}

/* Called before any rank frees memory that others have opened. */
void gpu_peers_close(BurstGpu *g)
{
    for (int i = 0; i < g->peers; i++)
        cudaIpcCloseMemHandle(g->peer[i].memory);
    g->peers = 0;
}

/* ---- one-shot gathers ---- */
/* Flags in `memory` that the host's rank `writer` writes. */
static uint64_t *one_shot_flags(const BurstGpu *g, char *memory, int writer)
{
    return (uint64_t *)(memory + gpu_flags_at(g)) +
           ((g->channels + 2) * PEERS_MOST + writer) * ONE_SHOT_KINDS;
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
    a.count = one_shot_flags(g, g->memory, me);
    for (int i = 0; i < m->ranks.count; i++) {
        const int rank = m->ranks.first + i * m->ranks.stride;
        const Peer *p = g->peer_of[rank];
        if (rank == g->rank)
            continue;
        a.peer[a.peers++] = OneShotPeer{p->memory + ((char *)whole - g->memory),
                                        one_shot_flags(g, p->memory, me),
                                        one_shot_flags(g, g->memory, p->local)};
    }
    if (((uintptr_t)part | (uintptr_t)whole | (uintptr_t)a.bytes) % sizeof(uint4) == 0)
        one_shot_kernel<uint4><<<1, ONE_SHOT_THREADS, 0, g->compute>>>(a);
    else
        one_shot_kernel<BurstBf16><<<1, ONE_SHOT_THREADS, 0, g->compute>>>(a);
    return gpu_launched(g, "one-shot gather");
}
