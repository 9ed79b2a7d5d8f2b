/* burst_library_gpu.h: the device of a plan inside another program: that of the caller, its stream, and
 * channels of NCCL's. */
#ifndef BURST_LIBRARY_GPU_H
#define BURST_LIBRARY_GPU_H

#include "burst_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

int burst_library_gpu_open(BurstCtx *c, int channels, void **device);
void burst_library_gpu_close(void *device);
/* A call: computing is in this stream from here on, and what earlier calls marked is done before it. So a
 * call can be captured in a CUDA graph: it waits for nothing that is not captured with it. */
void burst_library_gpu_use(BurstGpu *g, void *stream);
int burst_library_gpu_end(BurstGpu *g); /* the stream goes on when all channels are done */

#ifdef __cplusplus
}
#endif
#endif
