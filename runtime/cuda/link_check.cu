/* link_check.cu: at start-up, the rate from each rank to the next against what the topology says.
 *
 * A wrong path costs a factor of ten and nothing else tells: copies that are staged through the host, a slow network card, a
 * link that is down. Each rank times some pushes of its memory, which is still all zeros, into the next rank's, which is
 * too; or, between ranks without peer memory, messages by NCCL. All at the same time, as a ring does. Rank 0 reports.
 */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 2, LINES = 8 };
static constexpr size_t MOST = 256u << 20, LEAST = 16u << 20; /* bytes: NCCL reaches its rate at the former only */
static constexpr double SHARE = 0.7, NCCL_SHARE = 0.5;        /* of the topology's rate that is enough */

typedef struct Rate { double measured, expected; int to, by_peer; } Rate;

static int next_rank(const BurstGpu *g)
{
    return (g->rank + 1) % g->world;
}

/* Ranks of one node as the plan has it; what they use is the topology's link, else a network card. */
static double expected_rate(const BurstGpu *g)
{
    const BurstPlan *p = host_plan(g->ctx);
    const int node = p->nodes > 0 ? g->world / p->nodes : g->world;
    const bool inside = node <= 0 || g->rank / node == next_rank(g) / node;
    return inside ? p->link_bandwidth : p->nic_bandwidth;
}

/* What this rank sends, and receives from the one before: each side by NCCL where the two have no peer memory. */
static int send_once(BurstGpu *g, size_t bytes)
{
    const int to = next_rank(g), from = (g->rank + g->world - 1) % g->world;
    const Peer *peer = g->peer_of[to];
    const cudaStream_t stream = gpu_stream(g, 0);
    if (peer)
        CUDA_TRY(g, cudaMemcpyAsync(peer->memory, g->memory, bytes, cudaMemcpyDeviceToDevice, stream));
    if (peer && g->peer_of[from])
        return BURST_OK;
    NCCL_TRY(g, ncclGroupStart());
    if (!peer)
        NCCL_TRY(g, ncclSend(g->memory, bytes, ncclInt8, to, g->comm[0], stream));
    if (!g->peer_of[from])
        NCCL_TRY(g, ncclRecv(g->memory, bytes, ncclInt8, from, g->comm[0], stream));
    NCCL_TRY(g, ncclGroupEnd());
    return BURST_OK;
}

/* The first round opens connections. */
static int time_rounds(BurstGpu *g, size_t bytes, cudaEvent_t begin, cudaEvent_t end, double *rate)
{
    float ms = 0;
    BURST_TRY(send_once(g, bytes));
    BURST_TRY(burst_gpu_sync(g));
    BURST_TRY(burst_barrier(g->ctx, BurstGroup{0, 1, g->world}));
    CUDA_TRY(g, cudaEventRecord(begin, gpu_stream(g, 0)));
    for (int i = 0; i < ROUNDS; i++)
        BURST_TRY(send_once(g, bytes));
    CUDA_TRY(g, cudaEventRecord(end, gpu_stream(g, 0)));
    BURST_TRY(burst_gpu_sync(g));
    CUDA_TRY(g, cudaEventElapsedTime(&ms, begin, end));
    *rate = ROUNDS * (double)bytes / (ms * 1e-3);
    return BURST_OK;
}

static int measure_rate(BurstGpu *g, size_t bytes, double *rate)
{
    cudaEvent_t begin, end;
    CUDA_TRY(g, cudaEventCreate(&begin));
    CUDA_TRY(g, cudaEventCreate(&end));
    BURST_TRY(time_rounds(g, bytes, begin, end, rate));
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
        fprintf(stderr, "burst: rank %d -> %d: %.3g GB/s over %s, the topology says %.3g GB/s: %s\n", i, r->to, r->measured * 1e-9,
                r->by_peer ? "peer memory" : "NCCL", r->expected * 1e-9,
                r->by_peer ? "see `nvidia-smi topo -m` for what connects the two devices, or correct the .topo"
                           : "NCCL_DEBUG=INFO shows NCCL's way; or correct the .topo");
    }
    if (slow > LINES)
        fprintf(stderr, "burst: ... and so between %d ranks more\n", slow - LINES);
}

/* Small plans are not measured: what starts a transfer would count for too much. Then, as with NCCL inside a node below
 * MOST, nothing is expected. */
int gpu_check_links(BurstGpu *g)
{
    const size_t bytes = g->bytes < MOST ? g->bytes : MOST;
    Rate mine = {0, expected_rate(g), next_rank(g), g->world > 1 && g->peer_of[next_rank(g)] != NULL};
    if (g->world == 1 || bytes < LEAST)
        return BURST_OK;
    burst_doing(g->ctx, "checking the links");
    BURST_TRY(burst_barrier(g->ctx, BurstGroup{0, 1, g->world})); /* NCCL connects unwatched: nobody is late */
    BURST_TRY(measure_rate(g, bytes, &mine.measured));
    if (!mine.by_peer && bytes < MOST)
        mine.expected = 0;
    Rate *all = (Rate *)calloc((size_t)g->world, sizeof *all);
    int status = all ? host_collect(g->ctx, &mine, sizeof mine, all) : burst_fail(g->ctx, BURST_E_MEMORY, "no memory for %d rates", g->world);
    if (status == BURST_OK && g->rank == 0)
        report(g, all);
    free(all);
    BURST_TRY(status);
    return burst_barrier(g->ctx, BurstGroup{0, 1, g->world}); /* nobody writes into this rank's memory any more */
}
