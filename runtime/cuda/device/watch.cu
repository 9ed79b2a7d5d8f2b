/* watch.cu: parts of a step on the device's streams: timed events for --trace, ranges for profilers (NVTX).
 *
 * A stream that begins a part records an event; the next part's event ends it. All events are created when
 * the device is opened, and read when a traced step has ended and the device is idle. Without --trace and
 * without a profiler nothing is recorded. */
#include "cuda/gpu.h"

#if __has_include(<nvtx3/nvToolsExt.h>) /* some toolkits lack it: then there are no ranges */
#include <nvtx3/nvToolsExt.h>
#define BURST_NVTX
#endif

#include <stdio.h>
#include <stdlib.h>

enum { EVENTS = 1 << 16, NAME = 96 };

struct Watch {
    BurstGpu *gpu;
    Spans *spans;        /* of the traced step; else NULL */
#ifdef BURST_NVTX
    nvtxDomainHandle_t domain; /* NULL: no profiler */
#endif
    bool profiled;
    unsigned pushed;     /* lanes with an open range */
    cudaEvent_t base;    /* of the traced step; its time on the host's clock: */
    double anchor;
    cudaEvent_t *event;  /* [events] */
    int events, used;
};

/* ---- recording ---- */
int gpu_lane(const BurstGpu *g, cudaStream_t stream)
{
    for (int i = 0; i < g->channels; i++)
        if (stream == g->channel[i])
            return BURST_LANE_CHANNEL + i;
    const struct {
        cudaStream_t stream;
        int lane;
    } others[] = {{g->weights, BURST_LANE_WEIGHTS},
                  {g->copies, LANE_COPIES},
                  {g->tensor, LANE_TENSOR},
                  {g->downloads, LANE_DOWNLOADS}};
    for (const auto &x : others)
        if (stream == x.stream)
            return x.lane;
    return BURST_LANE_COMPUTE;
}

static cudaStream_t stream_of(const BurstGpu *g, int lane)
{
    if (lane >= BURST_LANE_CHANNEL)
        return g->channel[lane - BURST_LANE_CHANNEL];
    return lane == BURST_LANE_WEIGHTS ? g->weights : g->compute;
}

/* If no event is left, the lane's part ends here unrecorded, the new one is not begun, and both are
 * counted. */
static int record(Watch *w, int lane, int part, int a, int b)
{
    if (w->used == w->events) {
        w->spans->left_out += (w->spans->open[lane].part != BURST_P_IDLE) + (part != BURST_P_IDLE);
        w->spans->open[lane].part = BURST_P_IDLE;
        return BURST_OK;
    }
    if (spans_goes_on(w->spans, lane, part, a, b))
        return BURST_OK;
    CUDA_TRY(w->gpu, cudaEventRecord(w->event[w->used], stream_of(w->gpu, lane)));
    spans_switch(w->spans, lane, w->used++, part, a, b);
    return BURST_OK;
}

#ifdef BURST_NVTX
static void show_range(Watch *w, int lane, int part, int a, int b)
{
    if (w->pushed & 1u << lane)
        nvtxDomainRangePop(w->domain);
    w->pushed &= ~(1u << lane);
    if (part == BURST_P_IDLE)
        return;
    char name[NAME];
    const BurstSpan span = {0, 0, 0, a, b, (int16_t)part, (int16_t)lane};
    span_name(&span, name, sizeof name);
    nvtxEventAttributes_t range = {};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    nvtxDomainRangePushEx(w->domain, &range);
    w->pushed |= 1u << lane;
}

static bool open_domain(Watch *w)
{
    w->domain = nvtxDomainCreateA("burst");
    return w->domain != NULL;
}

static void close_domain(Watch *w)
{
    if (w->domain)
        nvtxDomainDestroy(w->domain);
}
#else
static void show_range(Watch *, int, int, int, int) {}
static bool open_domain(Watch *) { return false; }
static void close_domain(Watch *) {}
#endif

int burst_gpu_part(BurstGpu *g, cudaStream_t stream, int part, int a, int b)
{
    if (!g->watched)
        return BURST_OK;
    const int lane = gpu_lane(g, stream);
    if (g->watch->profiled)
        show_range(g->watch, lane, part, a, b);
    return g->watch->spans ? record(g->watch, lane, part, a, b) : BURST_OK;
}

void gpu_part_bytes(BurstGpu *g, int channel, size_t sent, size_t received)
{
    if (g->watched && g->watch->spans)
        g->watch->spans->open[BURST_LANE_CHANNEL + channel].bytes = (int64_t)(sent > received ? sent
                                                                                              : received);
}

/* ---- waits of the compute stream, which interrupt its part ---- */
/* The part that compute is shown as doing while it waits for a lane's mark. */
static int part_of_wait(int lane)
{
    switch (lane) {
    case BURST_LANE_WEIGHTS: return BURST_P_WAIT_WEIGHTS;
    case LANE_COPIES:
    case LANE_DOWNLOADS: return BURST_P_WAIT_COPY;
    case LANE_TENSOR: return BURST_P_TENSOR;
    default: return BURST_P_WAIT;
    }
}

int gpu_wait_shown(BurstGpu *g, cudaStream_t stream, const BurstMark *m, int begins, BurstSpan *cut)
{
    if (!g->watched || !g->watch->spans || stream != g->compute || m->lane == BURST_LANE_COMPUTE)
        return BURST_OK;
    if (!begins)
        return record(g->watch, BURST_LANE_COMPUTE, cut->part, cut->a, cut->b);
    *cut = g->watch->spans->open[BURST_LANE_COMPUTE];
    const int part = part_of_wait(m->lane);
    return record(g->watch, BURST_LANE_COMPUTE, part, part == BURST_P_WAIT ? m->lane - BURST_LANE_CHANNEL : 0,
                  0);
}

/* ---- a traced step ---- */
/* The streams are idle, so the base event is passed as soon as it is queued, between the two clock reads. */
static int trace_begin(void *arg, Spans *spans)
{
    BurstGpu *g = (BurstGpu *)arg;
    Watch *w = g->watch;
    const double before = burst_seconds();
    CUDA_TRY(g, cudaEventRecord(w->base, g->compute));
    CUDA_TRY(g, cudaEventSynchronize(w->base));
    w->anchor = (before + burst_seconds()) / 2;
    w->spans = spans;
    w->used = 0;
    g->watched = true;
    return BURST_OK;
}

static int seconds_of(Watch *w, double *when)
{
    float ms = 0;
    CUDA_TRY(w->gpu, cudaEventElapsedTime(&ms, w->base, w->event[(int)*when]));
    *when = w->anchor + 1e-3 * (double)ms;
    return BURST_OK;
}

/* Waits for the device, and converts events to seconds. */
static int trace_end(void *arg)
{
    BurstGpu *g = (BurstGpu *)arg;
    Watch *w = g->watch;
    for (int lane = 0; lane < BURST_LANE_CHANNEL + g->channels; lane++)
        BURST_TRY(record(w, lane, BURST_P_IDLE, 0, 0));
    BURST_TRY(gpu_wait(g, NULL));
    for (int i = 0; i < w->spans->n; i++) {
        BURST_TRY(seconds_of(w, &w->spans->at[i].begin));
        BURST_TRY(seconds_of(w, &w->spans->at[i].end));
    }
    w->spans = NULL;
    g->watched = w->profiled;
    return BURST_OK;
}

static int rest(void *arg)
{
    return gpu_wait((BurstGpu *)arg, NULL);
}

/* ---- memory ---- */
int gpu_memory_now(BurstGpu *g, size_t *used)
{
    size_t available = 0, total = 0;
    CUDA_TRY(g, cudaMemGetInfo(&available, &total));
    *used = total - available;
    return BURST_OK;
}

static int memory_now(void *arg, size_t *used)
{
    return gpu_memory_now((BurstGpu *)arg, used);
}

/* A plan for one node expects copy engines, which need no communicators. */
static int unplanned_channels(const BurstGpu *g)
{
    return g->world > 1 && !g->all_peers && host_plan(g->ctx)->nodes <= 1 ? g->channels : 0;
}

/* Other processes' use of the device is counted as the context's. */
static int describe_memory(void *arg, char *text, size_t size)
{
    static const double gib = 1.0 / (1 << 30);
    BurstGpu *g = (BurstGpu *)arg;
    size_t used = 0, opened = 0;
    BURST_TRY(gpu_memory_now(g, &used));
    for (int i = 0; i < GPU_TAKEN; i++)
        opened += g->taken[i];
    const int unplanned = unplanned_channels(g);
    const int length = snprintf(text, size,
                                "%.3f GiB in use: plan %.3f, runtime %.3f, NCCL %.3f, context %.3f, links "
                                "%.3f, allocated later (connections, libraries) %.3f",
                                (double)used * gib, (double)g->taken[TAKEN_PLAN] * gib,
                                (double)g->taken[TAKEN_OWN] * gib, (double)g->taken[TAKEN_NCCL] * gib,
                                (double)g->taken[TAKEN_CONTEXT] * gib, (double)g->taken[TAKEN_LINKS] * gib,
                                used > opened ? (double)(used - opened) * gib : 0.0);
    if (unplanned && length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length,
                 "; not in the prediction: %d channels by NCCL, about %.3f", unplanned,
                 (double)unplanned * BURST_GPU_CHANNEL_BYTES * gib);
    return BURST_OK;
}

/* ---- set-up ---- */
static int make_events(BurstGpu *g, Watch *w)
{
    w->event = (cudaEvent_t *)calloc(EVENTS, sizeof *w->event);
    if (!w->event)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for the trace");
    CUDA_TRY(g, cudaEventCreate(&w->base));
    for (; w->events < EVENTS; w->events++)
        CUDA_TRY(g, cudaEventCreate(&w->event[w->events]));
    return BURST_OK;
}

int gpu_watch_open(BurstGpu *g)
{
    Watch *w = g->watch = (Watch *)calloc(1, sizeof *w);
    if (!w)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for the trace");
    w->gpu = g;
    g->watched = w->profiled = open_domain(w);
    if (host_traced(g->ctx))
        BURST_TRY(make_events(g, w));
    host_watch(g->ctx, HostDevice{g, rest, trace_begin, trace_end, memory_now, describe_memory});
    return BURST_OK;
}

void gpu_watch_close(BurstGpu *g, bool orderly)
{
    Watch *w = g->watch;
    host_watch(g->ctx, HostDevice{});
    if (!w)
        return;
    for (int i = 0; i < w->events && orderly; i++)
        cudaEventDestroy(w->event[i]);
    if (w->base && orderly)
        cudaEventDestroy(w->base);
    close_domain(w);
    free(w->event);
    free(w);
}
