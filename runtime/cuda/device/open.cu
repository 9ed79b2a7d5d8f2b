/* open.cu: creates a rank's streams, communicators and memory. Nothing is allocated later. */
#include "cuda/gpu.h"

#include <stdlib.h>
#include <string.h>

enum { ID_BYTES = sizeof(ncclUniqueId) };
static constexpr size_t ALIGNMENT = 256, PAGE = (size_t)2 << 20;

/* Transfers have priority over computing: their few blocks should not queue after a wave of it. */
static int make_streams(BurstGpu *g)
{
    int least, greatest;
    CUDA_TRY(g, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(g, cudaStreamCreateWithPriority(&g->compute, cudaStreamNonBlocking, least));
    CUDA_TRY(g, cudaStreamCreateWithPriority(&g->weights, cudaStreamNonBlocking, greatest));
    CUDA_TRY(g, cudaStreamCreateWithPriority(&g->copies, cudaStreamNonBlocking, greatest));
    CUDA_TRY(g, cudaStreamCreateWithPriority(&g->downloads, cudaStreamNonBlocking, greatest));
    CUDA_TRY(g, cudaStreamCreateWithPriority(&g->tensor, cudaStreamNonBlocking, greatest));
    for (int i = 0; i < g->channels; i++)
        CUDA_TRY(g, cudaStreamCreateWithPriority(&g->channel[i], cudaStreamNonBlocking, greatest));
    return BURST_OK;
}

/* Creates none if the group is this rank alone. */
static int make_communicator(BurstGpu *g, BurstGroup group, ncclComm_t *out)
{
    ncclUniqueId id;
    if (group.count == 1)
        return BURST_OK;
    if (g->rank == group.first)
        NCCL_TRY(g, ncclGetUniqueId(&id));
    BURST_TRY(host_broadcast(g->ctx, group, &id, ID_BYTES));
    NCCL_TRY(g, ncclCommInitRank(out, group.count, id, (g->rank - group.first) / group.stride));
    return BURST_OK;
}

/* NVLink multicast is off unless requested: it needs a fabric manager, which not every machine has. */
static int make_communicators(BurstGpu *g)
{
    if (g->world == 1)
        return BURST_OK;
    if (setenv("NCCL_NVLS_ENABLE", "0", 0) != 0)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for an environment variable");
    BURST_TRY(gpu_name_host(g));
    /* each takes 0.2 GB; channels need none if all ranks are peers */
    for (int i = 0; i < g->channels && !g->all_peers; i++)
        BURST_TRY(make_communicator(g, BurstGroup{0, 1, g->world}, &g->comm[i]));
    for (int i = 0; i < GPU_GROUPS; i++)
        if (i != GROUP_SPLIT || g->group[GROUP_TENSOR].ranks.count > 1)
            BURST_TRY(make_communicator(g, g->group[i].ranks, &g->group[i].comm));
    return BURST_OK;
}

/* All ranks of the group agree whether they have each other's memory. */
static int agree_on_peers(BurstGpu *g, Members *m)
{
    double apart = 0;
    for (int i = 0; i < m->ranks.count; i++) {
        const int rank = m->ranks.first + i * m->ranks.stride;
        apart += rank != g->rank && !g->peer_of[rank];
    }
    BURST_TRY(burst_allreduce(g->ctx, m->ranks, &apart, 1));
    m->peers = apart == 0;
    return BURST_OK;
}

/* Tensor ranks split layers, which are the units from the second on. */
static int make_groups(BurstGpu *g)
{
    const BurstGroup tensor = burst_tensor_group(g->ctx), shards = burst_shard_group(g->ctx);
    g->group[GROUP_SHARDS].ranks = shards;
    g->group[GROUP_SPLIT].ranks = tensor.count > 1 ? burst_unit_group(g->ctx, 1) : shards;
    g->group[GROUP_REPLICAS].ranks = burst_replica_group(g->ctx);
    g->group[GROUP_TENSOR].ranks = tensor;
    g->group[GROUP_COPIES].ranks = host_copies(g->ctx);
    for (Members &m : g->group)
        BURST_TRY(agree_on_peers(g, &m));
    return BURST_OK;
}

static int make_staging(BurstGpu *g)
{
    char *at;
    CUDA_TRY(g, cudaMallocHost((void **)&at, STAGING_SLOTS * STAGING_BYTES));
    for (int i = 0; i < STAGING_SLOTS; i++) {
        g->staging.slot[i] = at + i * STAGING_BYTES;
        BURST_TRY(gpu_event(g, &g->staging.free[i]));
    }
    CUDA_TRY(g, cudaMallocHost((void **)&g->beat, sizeof *g->beat));
    *g->beat = 0;
    return BURST_OK;
}

/* Device memory that came into use since the last call. */
static int measure(BurstGpu *g, int step, size_t *last)
{
    size_t used = 0;
    BURST_TRY(gpu_memory_now(g, &used));
    g->taken[step] += used > *last ? used - *last : 0;
    *last = used;
    return BURST_OK;
}

/* Allocates whole pages: the driver may map memory of other sizes in smaller pages, and peers then copy into
 * it at 277 GB/s instead of the link's 391. */
static int make_buffers(BurstGpu *g)
{
    const size_t bytes = (gpu_flags_at(g) + FLAG_BYTES + PAGE - 1) / PAGE * PAGE;
    CUDA_TRY(g, cudaMalloc((void **)&g->memory, bytes));
    CUDA_TRY(g, cudaMemset(g->memory, 0, bytes));
    return BURST_OK;
}

static int make_own(BurstGpu *g)
{
    CUDA_TRY(g, cudaMalloc((void **)&g->workspace, BURST_GPU_OWN_BYTES - FLAG_BYTES));
    g->sums = (double *)(g->workspace + WORKSPACE_BYTES);
    LT_TRY(g, cublasLtCreate(&g->lt));
    BURST_TRY(make_staging(g));
    CUDA_TRY(g, cudaDeviceSynchronize());
    return BURST_OK;
}

static int open_all(BurstGpu *g)
{
    g->channel = (cudaStream_t *)calloc((size_t)g->channels + 1, sizeof *g->channel);
    g->comm = (ncclComm_t *)calloc((size_t)g->channels + 1, sizeof *g->comm);
    g->met = (uint8_t *)calloc((size_t)g->channels + 2, (size_t)g->world);
    g->greeting = (Greeting *)calloc(2 * (size_t)g->world, sizeof *g->greeting);
    g->peer_of = (const Peer **)calloc((size_t)g->world, sizeof *g->peer_of);
    g->messages = (uint32_t *)calloc((size_t)g->channels + 2, PEERS_MOST * 2 * sizeof *g->messages);
    g->expected = (uint64_t *)calloc((size_t)g->channels + 2, PEERS_MOST * sizeof *g->expected);
    g->pieces = (BurstPiece *)calloc(2 * (size_t)g->world, sizeof *g->pieces);
    if (!g->channel || !g->comm || !g->met || !g->greeting || !g->peer_of || !g->messages || !g->expected ||
        !g->pieces)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for %d channels", g->channels);
    BURST_TRY(gpu_take_device(g));
    size_t used = 0;
    BURST_TRY(make_streams(g));
    BURST_TRY(measure(g, TAKEN_CONTEXT, &used));
    BURST_TRY(make_buffers(g));
    BURST_TRY(measure(g, TAKEN_PLAN, &used));
    BURST_TRY(make_own(g));
    BURST_TRY(measure(g, TAKEN_OWN, &used));
    BURST_TRY(gpu_peers_open(g));
    BURST_TRY(make_groups(g));
    BURST_TRY(measure(g, TAKEN_LINKS, &used));
    BURST_TRY(make_communicators(g));
    BURST_TRY(measure(g, TAKEN_NCCL, &used));
    BURST_TRY(gpu_check_links(g));
    BURST_TRY(measure(g, TAKEN_LINKS, &used));
    return gpu_watch_open(g);
}

int burst_gpu_open(BurstCtx *c, int channels, size_t device_bytes, BurstGpu **out)
{
    BurstGpu *g = (BurstGpu *)calloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the device state");
    g->ctx = c;
    g->rank = burst_rank(c);
    g->world = burst_world(c);
    g->channels = channels;
    g->bytes = device_bytes;
    burst_doing(c, "opening the device");
    int status = open_all(g);
    if (status == BURST_OK)
        *out = g;
    else
        burst_gpu_close(g);
    return status;
}

/* After a failure the streams may never become idle, and freeing device memory would wait for them. */
static bool came_to_rest(BurstGpu *g)
{
    return !g->broken && !*burst_error(g->ctx) && burst_gpu_sync(g) == BURST_OK &&
           burst_barrier(g->ctx, BurstGroup{0, 1, g->world}) == BURST_OK;
}

/* No rank frees memory that another has opened. */
static bool left_peers(BurstGpu *g)
{
    gpu_peers_close(g);
    return burst_barrier(g->ctx, BurstGroup{0, 1, g->world}) == BURST_OK;
}

static void release_device(BurstGpu *g)
{
    if (g->graph)
        cudaGraphExecDestroy(g->graph);
    gpu_products_free(g);
    cublasLtDestroy(g->lt);
    for (int i = 0; i < g->events; i++)
        cudaEventDestroy(g->event[i]);
    for (int i = 0; i < g->channels; i++)
        cudaStreamDestroy(g->channel[i]);
    cudaStreamDestroy(g->compute);
    cudaStreamDestroy(g->weights);
    if (g->pinned)
        cudaHostUnregister(g->pinned);
    cudaStreamDestroy(g->copies);
    cudaStreamDestroy(g->downloads);
    cudaStreamDestroy(g->tensor);
    cudaFree(g->memory);
    cudaFree(g->workspace);
    cudaFreeHost(g->staging.slot[0]);
    cudaFreeHost(g->beat);
    if (g->staged) {
        cudaHostUnregister(g->staged);
        host_pages_free(g->staged, g->staged_bytes);
    }
}

void burst_gpu_close(BurstGpu *g)
{
    if (!g)
        return;
    bool orderly = came_to_rest(g) && left_peers(g);
    /* Aborting frees device memory, which waits for the streams. NCCL's kernels end when aborted, but a
     * stream that waits for a lost peer's flag never does; the rest is released with the process. */
    for (int i = 0; g->comm && i < g->channels + GPU_GROUPS; i++) {
        const ncclComm_t comm = gpu_communicator(g, i);
        if (comm && (orderly || g->peers == 0))
            orderly ? ncclCommDestroy(comm) : ncclCommAbort(comm);
    }
    gpu_watch_close(g, orderly);
    if (orderly)
        release_device(g);
    free(g->tables);
    free(g->event);
    free(g->met);
    free(g->greeting);
    free(g->peer_of);
    free(g->messages);
    free(g->expected);
    free(g->pieces);
    free(g->channel);
    free(g->comm);
    free(g);
}

void *burst_gpu_take(BurstGpu *g, size_t bytes)
{
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (rounded < bytes || rounded > g->bytes - g->used) {
        burst_fail(
            g->ctx, BURST_E_MEMORY,
            "the plan reserved %zu bytes of device memory, but %zu more were requested after the first %zu",
            g->bytes, bytes, g->used);
        return NULL;
    }
    void *at = g->memory + g->used;
    g->used += rounded;
    return at;
}

/* ---- recorded launches ---- */
int burst_gpu_graph_begin(BurstGpu *g, bool *records)
{
    *records = !g->watched;
    if (*records)
        CUDA_TRY(g, cudaStreamBeginCapture(g->compute, cudaStreamCaptureModeThreadLocal));
    return BURST_OK;
}

int burst_gpu_graph_end(BurstGpu *g)
{
    cudaGraph_t graph;
    CUDA_TRY(g, cudaStreamEndCapture(g->compute, &graph));
    const cudaError_t made = cudaGraphInstantiate(&g->graph, graph, 0);
    CUDA_TRY(g, cudaGraphDestroy(graph));
    CUDA_TRY(g, made);
    return BURST_OK;
}

int burst_gpu_graph_run(BurstGpu *g)
{
    CUDA_TRY(g, cudaGraphLaunch(g->graph, g->compute));
    return BURST_OK;
}

bool burst_gpu_graph_there(const BurstGpu *g) { return g->graph != NULL; }

int burst_gpu_graph_drop(BurstGpu *g)
{
    if (g->graph)
        CUDA_TRY(g, cudaGraphExecDestroy(g->graph));
    g->graph = NULL;
    return BURST_OK;
}

cudaStream_t burst_gpu_compute(BurstGpu *g)
{
    return g->compute;
}

cudaStream_t burst_gpu_channel(BurstGpu *g, int channel)
{
    return g->channel[channel];
}

cudaStream_t burst_gpu_tensor(BurstGpu *g)
{
    return g->tensor;
}

cudaStream_t burst_gpu_weights(BurstGpu *g)
{
    return g->weights;
}
