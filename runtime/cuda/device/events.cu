/* events.cu: events that are created once and kept until the device is closed, for a program and for a plan
 * inside another. */
#include "cuda/gpu.h"

#include <stdlib.h>

int gpu_event(BurstGpu *g, cudaEvent_t *out)
{
    cudaEvent_t *grown = (cudaEvent_t *)realloc(g->event, (size_t)(g->events + 1) * sizeof *grown);
    if (!grown)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for %d events", g->events + 1);
    g->event = grown;
    CUDA_TRY(g, cudaEventCreateWithFlags(out, cudaEventDisableTiming));
    g->event[g->events++] = *out;
    return BURST_OK;
}
