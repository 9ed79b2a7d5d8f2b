/* runtime/library/cuda/gpu.cu: the device of a plan inside another program: the functions of burst_gpu.h
 * that its text calls, besides the kernels shared with programs.
 *
 * The process may have many plans, streams and other libraries on the device. This file therefore never
 * waits for the device, never changes the environment, and allocates only events, a stream and a
 * communicator per channel. */
#include "burst_gpu.h"
#include "burst_library.h"
#include "cuda/gpu.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_MAJOR = 8 };

/* ---- errors ---- */

int gpu_cuda_failed(BurstGpu *g, cudaError_t e, const char *call)
{
    cudaGetLastError();
    return burst_fail(g->ctx, e == cudaErrorMemoryAllocation ? BURST_E_MEMORY : BURST_E_DEVICE,
                      "CUDA device %d: %s (%s)", g->device, cudaGetErrorString(e), call);
}

int gpu_nccl_failed(BurstGpu *g, ncclResult_t e, const char *call)
{
    return burst_fail(g->ctx, BURST_E_PEER, "NCCL: %s (%s): %s", ncclGetErrorString(e), call,
                      ncclGetLastError(NULL));
}

int gpu_aligned(BurstGpu *g, const char *kernel, int64_t width, uintptr_t addresses)
{
    if (width % 8 == 0 && addresses % 16 == 0)
        return BURST_OK;
    return burst_fail(g->ctx, BURST_E_USAGE, "%s: an array is not aligned to 16 bytes", kernel);
}

/* ---- order between streams ----
 * Each CUDA call costs the host about a microsecond, and a call of a plan should make few. Redundant waits
 * are therefore skipped: for a mark in the same stream, or for one before a mark of that stream that was
 * already waited for. Channels queue their waits when work that must wait is queued. Events belong to one
 * call, and marks are numbered across calls: marks of earlier calls have completed. */

/* Lanes: the channels, then computing. */
static int lane_of(const BurstGpu *g, cudaStream_t stream)
{
    int lane = 0;
    while (lane < g->channels && g->channel[lane] != stream)
        lane++;
    return lane;
}

static cudaStream_t stream_of(const BurstGpu *g, int lane)
{
    return lane < g->channels ? g->channel[lane] : g->compute;
}

/* The latest mark of lane `of` that the lane must wait for (done false) or has waited for (true). */
static BurstMark *wait_of(BurstGpu *g, int lane, int of, bool done)
{
    const int lanes = g->channels + 1;
    return &g->waits[((done ? lanes : 0) + lane) * lanes + of];
}

static bool of_this_call(const BurstGpu *g, const BurstMark *m) { return m->set > g->call; }

static int queue_wait(BurstGpu *g, int lane, const BurstMark *m)
{
    BurstMark *done = wait_of(g, lane, m->lane, true);
    if (!of_this_call(g, m) || m->set <= done->set)
        return BURST_OK;
    CUDA_TRY(g, cudaStreamWaitEvent(stream_of(g, lane), m->event, 0));
    *done = *m;
    return BURST_OK;
}

static int queue_waits(BurstGpu *g, int lane)
{
    for (int of = 0; of <= g->channels; of++)
        BURST_TRY(queue_wait(g, lane, wait_of(g, lane, of, false)));
    return BURST_OK;
}

static int next_event(BurstGpu *g, cudaEvent_t *event)
{
    cudaEvent_t made;
    if (g->marks == g->events)
        BURST_TRY(gpu_event(g, &made));
    *event = g->event[g->marks++];
    return BURST_OK;
}

int burst_gpu_mark(BurstGpu *g, cudaStream_t stream, BurstMark *m)
{
    const int lane = lane_of(g, stream);
    *m = BurstMark{};
    if (g->world == 1)
        return BURST_OK; /* everything runs in one stream */
    if (lane < g->channels)
        BURST_TRY(queue_waits(g, lane));
    BURST_TRY(next_event(g, &m->event));
    CUDA_TRY(g, cudaEventRecord(m->event, stream));
    m->set = ++g->place;
    m->lane = lane;
    g->lane[lane].last = *m;
    g->lane[lane].queued = false;
    return BURST_OK;
}

int burst_gpu_mark_too(BurstGpu *g, const BurstMark *same, BurstMark *m)
{
    (void)g;
    *m = *same;
    return BURST_OK;
}

int burst_gpu_after(BurstGpu *g, cudaStream_t stream, const BurstMark *m)
{
    const int lane = lane_of(g, stream);
    if (!of_this_call(g, m) || lane == m->lane)
        return BURST_OK;
    BurstMark *wait = wait_of(g, lane, m->lane, false);
    if (lane == g->channels)
        return queue_wait(g, lane, m);
    if (m->set > wait->set)
        *wait = *m;
    return BURST_OK;
}

/* ---- open and close ---- */

static int make_channel(BurstGpu *g, int i, ncclUniqueId *ids)
{
    int least, greatest;
    CUDA_TRY(g, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(g, cudaStreamCreateWithPriority(&g->channel[i], cudaStreamNonBlocking, greatest));
    if (g->world == 1)
        return BURST_OK;
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    if (g->rank == 0)
        NCCL_TRY(g, ncclGetUniqueId(&id));
    BURST_TRY(burst_library_gather(g->ctx, &id, ids, sizeof id));
    NCCL_TRY(g, ncclCommInitRank(&g->comm[i], g->world, ids[0], g->rank));
    return BURST_OK;
}

static int check_device(BurstGpu *g)
{
    cudaDeviceProp p;
    CUDA_TRY(g, cudaGetDevice(&g->device));
    CUDA_TRY(g, cudaGetDeviceProperties(&p, g->device));
    if (p.major < LEAST_MAJOR)
        return burst_fail(g->ctx, BURST_E_DEVICE,
                          "device %d (%s) has compute capability %d.%d, but %d.0 or higher is required",
                          g->device, p.name, p.major, p.minor, LEAST_MAJOR);
    return BURST_OK;
}

static int open_channels(BurstGpu *g)
{
    ncclUniqueId *ids = (ncclUniqueId *)calloc((size_t)g->world, sizeof *ids);
    g->channel = (cudaStream_t *)calloc((size_t)g->channels, sizeof *g->channel);
    g->comm = (ncclComm_t *)calloc((size_t)g->channels, sizeof *g->comm);
    const size_t lanes = (size_t)g->channels + 1;
    g->lane = (Lane *)calloc(lanes, sizeof *g->lane);
    g->waits = (BurstMark *)calloc(2 * lanes * lanes, sizeof *g->waits);
    int status = ids && g->channel && g->comm && g->lane && g->waits
                     ? check_device(g)
                     : burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for a device");
    for (int i = 0; i < g->channels && status == BURST_OK; i++)
        status = make_channel(g, i, ids);
    free(ids);
    return status;
}

int burst_library_gpu_open(BurstCtx *c, int channels, void **device)
{
    BurstGpu *g = (BurstGpu *)calloc(1, sizeof *g);
    if (!g)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a device");
    g->ctx = c;
    g->rank = burst_rank(c);
    g->world = burst_world(c);
    g->channels = channels;
    const int status = open_channels(g);
    *device = status == BURST_OK ? g : NULL;
    if (status != BURST_OK)
        burst_library_gpu_close(g);
    return status;
}

void burst_library_gpu_close(void *device)
{
    BurstGpu *g = (BurstGpu *)device;
    for (int i = 0; i < g->channels && g->channel && g->comm; i++) {
        if (g->channel[i])
            cudaStreamSynchronize(g->channel[i]);
        if (g->comm[i])
            ncclCommDestroy(g->comm[i]);
        if (g->channel[i])
            cudaStreamDestroy(g->channel[i]);
    }
    for (int i = 0; i < g->events; i++)
        cudaEventDestroy(g->event[i]);
    free(g->event);
    free(g->channel);
    free(g->comm);
    free(g->lane);
    free(g->waits);
    free(g);
}

void burst_library_gpu_use(BurstGpu *g, void *stream)
{
    g->compute = (cudaStream_t)stream;
    g->call = g->place;
    g->marks = 0;
}

int burst_library_gpu_end(BurstGpu *g)
{
    for (int i = 0; i < g->channels; i++) {
        Lane *l = &g->lane[i];
        if (l->queued)
            BURST_TRY(burst_gpu_mark(g, g->channel[i], &l->last));
        BURST_TRY(burst_gpu_after(g, g->compute, &l->last));
    }
    return BURST_OK;
}

/* ---- streams ---- */

cudaStream_t burst_gpu_compute(BurstGpu *g) { return g->compute; }

/* An error is reported by the next transfer, for which what could not be queued is kept. */
cudaStream_t burst_gpu_channel(BurstGpu *g, int channel)
{
    (void)queue_waits(g, channel);
    return g->channel[channel];
}

int burst_gpu_part(BurstGpu *g, cudaStream_t stream, int part, int a, int b)
{
    (void)g, (void)stream, (void)part, (void)a, (void)b;
    return BURST_OK;
}

int burst_gpu_upload(BurstGpu *g, const void *host, size_t bytes, void *device)
{
    CUDA_TRY(g, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, g->compute));
    return BURST_OK;
}

/* ---- transfers: by NCCL, on a channel's stream ---- */

static int copy_rows(BurstGpu *g, cudaStream_t stream, const BurstPiece *p, const void *from,
                     size_t from_pitch, void *to, size_t to_pitch)
{
    if (p->width && p->rows)
        CUDA_TRY(g, cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, p->width, p->rows,
                                      cudaMemcpyDeviceToDevice, stream));
    return BURST_OK;
}

/* Packing memory, used from its start in the order of the pieces; NULL: one message per row. */
typedef struct Packing {
    char *at;
    size_t left;
} Packing;

static bool travels(const BurstGpu *g, const BurstPiece *p)
{
    return p->peer != g->rank && gpu_piece_bytes(p) > 0;
}

/* Where NCCL reads or writes the piece. */
static int take_place(BurstGpu *g, const BurstPiece *p, Packing *packing, char **at)
{
    const size_t needed = (size_t)burst_gpu_packing((int64_t)p->width, (int64_t)p->rows, (int64_t)p->pitch);
    *at = (char *)p->data;
    if (!needed || !packing->at)
        return BURST_OK;
    if (needed > packing->left)
        return burst_fail(g->ctx, BURST_E_PLAN, "a transfer needs %zu bytes of packing memory more",
                          needed - packing->left);
    *at = packing->at;
    packing->at += needed, packing->left -= needed;
    return BURST_OK;
}

/* Packs pieces that are not contiguous, or unpacks them. */
static int pack(BurstGpu *g, cudaStream_t stream, const BurstPiece *p, int count, bool out, Packing *packing)
{
    for (int i = 0; i < count; i++) {
        char *at;
        if (!travels(g, &p[i]))
            continue;
        BURST_TRY(take_place(g, &p[i], packing, &at));
        if (at == p[i].data)
            continue;
        BURST_TRY(out ? copy_rows(g, stream, &p[i], at, p[i].width, p[i].data, p[i].pitch)
                      : copy_rows(g, stream, &p[i], p[i].data, p[i].pitch, at, p[i].width));
    }
    return BURST_OK;
}

static int move_one(BurstGpu *g, int channel, const BurstPiece *p, char *at, bool sends)
{
    const bool whole = at != p->data || p->rows == 1 || p->pitch == p->width;
    const size_t messages = whole ? 1 : p->rows, bytes = gpu_piece_bytes(p) / messages;
    for (size_t row = 0; row < messages; row++, at += p->pitch)
        if (sends)
            NCCL_TRY(g, ncclSend(at, bytes, ncclInt8, p->peer, g->comm[channel], g->channel[channel]));
        else
            NCCL_TRY(g, ncclRecv(at, bytes, ncclInt8, p->peer, g->comm[channel], g->channel[channel]));
    return BURST_OK;
}

static int move_all(BurstGpu *g, int channel, const BurstPiece *p, int count, Packing packing, bool sends)
{
    for (int i = 0; i < count; i++) {
        char *at;
        if (!travels(g, &p[i]))
            continue;
        BURST_TRY(take_place(g, &p[i], &packing, &at));
        BURST_TRY(move_one(g, channel, &p[i], at, sends));
    }
    return BURST_OK;
}

/* Copies a rank's pieces for itself, in the same order on both sides. */
static int copy_own(BurstGpu *g, cudaStream_t stream, const BurstPiece *send, int sends,
                    const BurstPiece *receive, int receives)
{
    for (int i = 0, j = 0; i < sends; i++) {
        if (send[i].peer != g->rank)
            continue;
        while (j < receives && receive[j].peer != g->rank)
            j++;
        if (j == receives)
            return burst_fail(g->ctx, BURST_E_PLAN, "rank %d sends itself more than it receives", g->rank);
        if (send[i].data != receive[j].data)
            BURST_TRY(copy_rows(g, stream, &send[i], send[i].data, send[i].pitch, receive[j].data,
                                receive[j].pitch));
        j++;
    }
    return BURST_OK;
}

int burst_gpu_exchange(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                       int receives, void *packing, size_t packing_bytes)
{
    const Packing sent = {(char *)packing, packing_bytes};
    Packing rest = sent;
    bool any = false;
    BURST_TRY(queue_waits(g, channel));
    g->lane[channel].queued = true;
    BURST_TRY(copy_own(g, g->channel[channel], send, sends, receive, receives));
    for (int i = 0; i < sends; i++)
        any = any || travels(g, &send[i]);
    for (int i = 0; i < receives; i++)
        any = any || travels(g, &receive[i]);
    if (!any)
        return BURST_OK;
    BURST_TRY(pack(g, g->channel[channel], send, sends, false, &rest));
    NCCL_TRY(g, ncclGroupStart());
    int status = move_all(g, channel, send, sends, sent, true);
    if (status == BURST_OK)
        status = move_all(g, channel, receive, receives, rest, false);
    NCCL_TRY(g, ncclGroupEnd());
    return status == BURST_OK ? pack(g, g->channel[channel], receive, receives, true, &rest) : status;
}

static void pieces_of(const BurstBuffer *b, int count, int peer, BurstPiece *p)
{
    for (int i = 0; i < count; i++)
        p[i] = BurstPiece{peer, b[i].data, b[i].bytes, 1, b[i].bytes, b[i].lands, b[i].bytes};
}

int burst_gpu_hop(BurstGpu *g, int channel, const BurstBuffer *send, int sends, int to,
                  const BurstBuffer *receive, int receives, int from)
{
    BurstPiece out[BURST_GPU_BUFFERS], in[BURST_GPU_BUFFERS];
    if (sends > BURST_GPU_BUFFERS || receives > BURST_GPU_BUFFERS)
        return burst_fail(g->ctx, BURST_E_PLAN, "a transfer has more than %d buffers", BURST_GPU_BUFFERS);
    pieces_of(send, sends, to, out);
    pieces_of(receive, receives, from, in);
    return burst_gpu_exchange(g, channel, out, sends, in, receives, NULL, 0);
}
