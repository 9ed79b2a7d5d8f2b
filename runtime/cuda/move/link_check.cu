/* link_check.cu: at start-up, compares the rate from each rank to the next with the topology's.
 *
 * A wrong path is ten times slower and shows in no other way: copies staged through the host, a slow network
 * card, a link that is down. Each rank times a few pushes of its memory, which is still zero, into the next
 * rank's, also zero; or messages by NCCL between ranks without peer memory. All do so at the same time, as a
 * ring does. Rank 0 reports. */
#include "cuda/gpu.h"

#include <stdio.h>
#include <stdlib.h>

/* The timed ROUNDS are queued while the QUEUED ones run; the first is slow on an idle link. */
enum { QUEUED = 2, ROUNDS = 4, LINES = 8 };
static constexpr size_t MOST = 256u << 20, LEAST = 16u << 20; /* bytes */
static constexpr double LONGEST = 0.05;                       /* seconds of a round at the topology's rate */
/* fraction of the topology's rate that suffices */
static constexpr double SHARE = 0.75, NCCL_SHARE = 0.5;

typedef struct Rate { double measured, expected; int to, by_peer; } Rate;

/* The link from a rank to the next; both ends must compute the same. */
typedef struct Link { int from, to; double expected; size_t bytes; bool by_peer; } Link;

/* Not measured: small plans, in which start-up time would dominate; NCCL inside a node below MOST, which it
 * needs to reach its rate; links that the topology does not have. Nodes are the plan's: between them is a
 * card. */
static Link link_from(const BurstGpu *g, int from)
{
    const BurstPlan *p = host_plan(g->ctx);
    const int node = p->nodes > 0 && p->nodes <= g->world ? g->world / p->nodes : g->world;
    Link l = {from, (from + 1) % g->world, 0, 0, false};
    const bool inside = l.from / node == l.to / node;
    l.by_peer = g->peer_of[l.from == g->rank ? l.to : l.from] != NULL;
    l.expected = inside ? p->link_bandwidth : p->nic_bandwidth;
    l.bytes = g->bytes < MOST ? g->bytes : MOST;
    if (l.expected * LONGEST < (double)l.bytes)
        l.bytes = (size_t)(l.expected * LONGEST);
    if (l.bytes < (inside && !l.by_peer ? MOST : LEAST))
        l.bytes = 0;
    return l;
}

/* Sends to the next rank, and receives from the previous one if they have no peer memory. */
static int send_once(BurstGpu *g, const Link *out, const Link *in)
{
    const cudaStream_t stream = gpu_stream(g, 0);
    if (out->bytes && out->by_peer)
        CUDA_TRY(g, cudaMemcpyAsync(g->peer_of[out->to]->memory, g->memory, out->bytes,
                                    cudaMemcpyDeviceToDevice, stream));
    const bool sends = out->bytes && !out->by_peer, receives = in->bytes && !in->by_peer;
    if (!sends && !receives)
        return BURST_OK;
    NCCL_TRY(g, ncclGroupStart());
    if (sends)
        NCCL_TRY(g, ncclSend(g->memory, out->bytes, ncclInt8, out->to, g->comm[0], stream));
    if (receives)
        NCCL_TRY(g, ncclRecv(g->memory, in->bytes, ncclInt8, in->from, g->comm[0], stream));
    NCCL_TRY(g, ncclGroupEnd());
    return BURST_OK;
}

/* The first round opens connections. */
static int time_rounds(BurstGpu *g, const Link *out, const Link *in, cudaEvent_t begin, cudaEvent_t end,
                       double *rate)
{
    float ms = 0;
    BURST_TRY(send_once(g, out, in));
    BURST_TRY(burst_gpu_sync(g));
    BURST_TRY(burst_barrier(g->ctx, BurstGroup{0, 1, g->world}));
    for (int i = 0; i < QUEUED; i++)
        BURST_TRY(send_once(g, out, in));
    CUDA_TRY(g, cudaEventRecord(begin, gpu_stream(g, 0)));
    for (int i = 0; i < ROUNDS; i++)
        BURST_TRY(send_once(g, out, in));
    CUDA_TRY(g, cudaEventRecord(end, gpu_stream(g, 0)));
    BURST_TRY(burst_gpu_sync(g));
    CUDA_TRY(g, cudaEventElapsedTime(&ms, begin, end));
    *rate = ms > 0 ? ROUNDS * (double)out->bytes / (ms * 1e-3) : 0;
    return BURST_OK;
}

static int measure_rate(BurstGpu *g, const Link *out, const Link *in, double *rate)
{
    cudaEvent_t begin, end;
    CUDA_TRY(g, cudaEventCreate(&begin));
    CUDA_TRY(g, cudaEventCreate(&end));
    BURST_TRY(time_rounds(g, out, in, begin, end, rate));
    CUDA_TRY(g, cudaEventDestroy(begin));
    CUDA_TRY(g, cudaEventDestroy(end));
    return BURST_OK;
}

static void report(const BurstGpu *g, const Rate *rates)
{
    int slow = 0;
    for (int i = 0; i < g->world; i++) {
        const Rate *r = &rates[i];
        if (r->measured >= (r->by_peer ? SHARE : NCCL_SHARE) * r->expected || slow++ >= LINES)
            continue;
        fprintf(
            stderr,
            "burst: rank %d -> %d: measured %.3g GB/s over %s, expected %.3g GB/s from the topology; %s\n", i,
            r->to, r->measured * 1e-9, r->by_peer ? "peer memory" : "NCCL", r->expected * 1e-9,
            r->by_peer
                ? "check how the devices are connected (`nvidia-smi topo -m`), or correct the .topo file"
                : "check NCCL's path (NCCL_DEBUG=INFO), or correct the .topo file");
    }
    if (slow > LINES)
        fprintf(stderr, "burst: ... and %d more pair%s of ranks\n", slow - LINES, plural(slow - LINES));
}

static int collect(BurstGpu *g, const Rate *mine)
{
    Rate *all = (Rate *)calloc((size_t)g->world, sizeof *all);
    int status = all ? host_collect(g->ctx, mine, sizeof *mine, all)
                     : burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for the link rates of %d rank%s",
                                  g->world, plural(g->world));
    if (status == BURST_OK && g->rank == 0)
        report(g, all);
    free(all);
    return status;
}

int gpu_check_links(BurstGpu *g)
{
    if (g->world == 1 || g->may_share)
        return BURST_OK;
    const Link out = link_from(g, g->rank), in = link_from(g, (g->rank + g->world - 1) % g->world);
    Rate mine = {0, out.bytes ? out.expected : 0, out.to, out.by_peer};
    burst_doing(g->ctx, "checking the links");
    /* NCCL connects unwatched, so no rank may be late */
    BURST_TRY(burst_barrier(g->ctx, BurstGroup{0, 1, g->world}));
    BURST_TRY(measure_rate(g, &out, &in, &mine.measured));
    BURST_TRY(collect(g, &mine));
    /* no rank writes into this rank's memory any more */
    return burst_barrier(g->ctx, BurstGroup{0, 1, g->world});
}
