/* wait.cu: watched waits for the device, marks, and copies between host and device. */
#include "cuda/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 256, SPINS = 500, NAP_US = 20, NAPS_A_LOOK = 16 };
/* seconds: NCCL may notice a lost peer before the launcher reports which rank it was */
static const double peers_word = 1;

int burst_gpu_sync(BurstGpu *g)
{
    return gpu_wait(g, NULL);
}

/* ---- errors ---- */
int gpu_cuda_failed(BurstGpu *g, cudaError_t e, const char *call)
{
    cudaGetLastError();
    g->broken = true;
    return burst_fail(g->ctx, e == cudaErrorMemoryAllocation ? BURST_E_MEMORY : BURST_E_PLAN,
                      "CUDA device %d: %s (%s)", g->device, cudaGetErrorString(e), call);
}

int gpu_nccl_failed(BurstGpu *g, ncclResult_t e, const char *call)
{
    g->broken = true;
    if (host_failure_known(g->ctx, peers_word))
        return BURST_E_PEER;
    return burst_fail(g->ctx, BURST_E_PEER, "NCCL: %s (%s): %s", ncclGetErrorString(e), call,
                      ncclGetLastError(NULL));
}

int gpu_lt_failed(BurstGpu *g, cublasStatus_t e, const char *call)
{
    return burst_fail(g->ctx, BURST_E_PLAN, "cublasLt: %s (%s)", cublasLtGetStatusString(e), call);
}

int gpu_aligned(BurstGpu *g, const char *kernel, int64_t width, uintptr_t addresses)
{
    if (width % 8 == 0 && addresses % 16 == 0)
        return BURST_OK;
    return burst_fail(g->ctx, BURST_E_PLAN,
                      "%s: rows have %lld elements; they must be a multiple of 8 and aligned to 16 bytes",
                      kernel, (long long)width);
}

/* ---- waiting ---- */
/* The n-th stream and its name; false if there are fewer. */
static bool nth_stream(BurstGpu *g, int n, cudaStream_t *stream, char *name, size_t size)
{
    static const char *const names[] = {"compute", "weights", "copies", "downloads", "tensor ranks"};
    const cudaStream_t streams[] = {g->compute, g->weights, g->copies, g->downloads, g->tensor};
    const int named = sizeof streams / sizeof *streams;
    if (n >= g->channels + named)
        return false;
    *stream = n < named ? streams[n] : g->channel[n - named];
    if (n < named)
        snprintf(name, size, "%s", names[n]);
    else
        snprintf(name, size, "channel %d", n - named);
    return true;
}

static cudaError_t query(BurstGpu *g, cudaEvent_t event)
{
    cudaError_t e = event ? cudaEventQuery(event) : cudaSuccess;
    char name[LINE];
    cudaStream_t stream;
    for (int i = 0; !event && e == cudaSuccess && nth_stream(g, i, &stream, name, sizeof name); i++)
        e = cudaStreamQuery(stream);
    if (e == cudaErrorNotReady)
        cudaGetLastError();
    return e;
}

static void describe_unfinished(BurstGpu *g, char *text, size_t size)
{
    char name[LINE];
    cudaStream_t stream;
    size_t used = 0;
    for (int i = 0; used < size && nth_stream(g, i, &stream, name, sizeof name); i++)
        if (cudaStreamQuery(stream) == cudaErrorNotReady)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
    cudaGetLastError();
    if (used < size)
        snprintf(text + used, size - used, " unfinished after %u of %u norms", *(volatile uint32_t *)g->beat,
                 g->beats);
}

/* The user of a communicator, by gpu_communicator's index. */
static const char *use_of(const BurstGpu *g, int i)
{
    if (i < g->channels)
        return "a channel's transfer";
    return i == g->channels + GROUP_TENSOR ? "tensor ranks" : "weights";
}

static int check_communicators(BurstGpu *g)
{
    for (int i = 0; i < g->channels + GPU_GROUPS; i++) {
        ncclResult_t state = ncclSuccess;
        const ncclComm_t comm = gpu_communicator(g, i);
        if (comm)
            NCCL_TRY(g, ncclCommGetAsyncError(comm, &state));
        if (state != ncclSuccess && state != ncclInProgress)
            return gpu_nccl_failed(g, state, use_of(g, i));
    }
    return BURST_OK;
}

/* The limit counts from the last progress: a step of a long sequence may take longer. */
static int look_around(BurstGpu *g, HostWatchdog *v, uint32_t *beat)
{
    char text[LINE] = "";
    uint32_t now = *(volatile uint32_t *)g->beat;
    if (now != *beat)
        *v = HostWatchdog{};
    *beat = now;
    BURST_TRY(check_communicators(g));
    describe_unfinished(g, text, sizeof text);
    return host_watchdog(g->ctx, v, text);
}

int gpu_wait(BurstGpu *g, cudaEvent_t event)
{
    HostWatchdog v = {};
    uint32_t beat = *(volatile uint32_t *)g->beat;
    for (long spins = 0;; spins++) {
        cudaError_t e = query(g, event);
        if (e == cudaSuccess)
            return BURST_OK;
        if (e != cudaErrorNotReady)
            return gpu_cuda_failed(g, e, "waiting");
        if (spins < SPINS)
            continue;
        host_nap(NAP_US);
        int status = spins % NAPS_A_LOOK ? BURST_OK : look_around(g, &v, &beat);
        g->broken |= status != BURST_OK;
        BURST_TRY(status);
    }
}

/* ---- marks ---- */
int burst_gpu_mark(BurstGpu *g, cudaStream_t stream, BurstMark *m)
{
    if (!m->event)
        BURST_TRY(gpu_event(g, &m->event));
    CUDA_TRY(g, cudaEventRecord(m->event, stream));
    m->set = 1;
    m->lane = gpu_lane(g, stream);
    return BURST_OK;
}

int burst_gpu_mark_too(BurstGpu *g, const BurstMark *same, BurstMark *m)
{
    (void)same; /* each mark has an event of its own, since it is recorded again later */
    return burst_gpu_mark(g, g->compute, m);
}

int burst_gpu_after(BurstGpu *g, cudaStream_t stream, const BurstMark *m)
{
    BurstSpan cut = {};
    if (!m->set)
        return BURST_OK;
    BURST_TRY(gpu_wait_shown(g, stream, m, 1, &cut));
    CUDA_TRY(g, cudaStreamWaitEvent(stream, m->event, 0));
    return gpu_wait_shown(g, stream, m, 0, &cut);
}

/* ---- copies ---- */
static unsigned next_slot(Staging *s)
{
    return s->next++ % STAGING_SLOTS;
}

static size_t piece_of(size_t bytes, size_t at)
{
    return bytes - at < STAGING_BYTES ? bytes - at : STAGING_BYTES;
}

/* Waits only if all slots are in use. */
int burst_gpu_upload(BurstGpu *g, const void *host, size_t bytes, void *device)
{
    for (size_t at = 0; at < bytes; at += STAGING_BYTES) {
        unsigned slot = next_slot(&g->staging);
        size_t piece = piece_of(bytes, at);
        BURST_TRY(gpu_wait(g, g->staging.free[slot]));
        memcpy(g->staging.slot[slot], (const char *)host + at, piece);
        CUDA_TRY(g, cudaMemcpyAsync((char *)device + at, g->staging.slot[slot], piece, cudaMemcpyHostToDevice,
                                    g->compute));
        CUDA_TRY(g, cudaEventRecord(g->staging.free[slot], g->compute));
    }
    return BURST_OK;
}

/* The link fills one slot while the host empties the previous one. */
int burst_gpu_download(BurstGpu *g, const void *device, size_t bytes, void *host)
{
    unsigned before = 0;
    for (size_t at = 0; at < bytes + STAGING_BYTES; at += STAGING_BYTES) {
        unsigned slot = before;
        if (at < bytes) {
            slot = next_slot(&g->staging);
            BURST_TRY(gpu_wait(g, g->staging.free[slot]));
            CUDA_TRY(g, cudaMemcpyAsync(g->staging.slot[slot], (const char *)device + at, piece_of(bytes, at),
                                        cudaMemcpyDeviceToHost, g->compute));
            CUDA_TRY(g, cudaEventRecord(g->staging.free[slot], g->compute));
        }
        if (at > 0 && at - STAGING_BYTES < bytes) {
            BURST_TRY(gpu_wait(g, g->staging.free[before]));
            memcpy((char *)host + at - STAGING_BYTES, g->staging.slot[before],
                   piece_of(bytes, at - STAGING_BYTES));
        }
        before = slot;
    }
    return BURST_OK;
}
