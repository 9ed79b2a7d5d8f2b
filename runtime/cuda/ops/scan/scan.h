/* scan.h: recurrent layers on a stream, as host code calls them: burst_step.h's operations without a context.
 */
#ifndef BURST_CUDA_SCAN_SCAN_H
#define BURST_CUDA_SCAN_SCAN_H

#include "burst_sizes.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef __nv_bfloat16 Bf16;

typedef struct ScanCall {
    const BurstScan *s;
    const BurstPieces *p;
    const int32_t *place;
    const Bf16 *x, *skip;
    const float *beta, *decay;
    char *scratch;
    cudaStream_t stream;
} ScanCall;

void scan_forward(const ScanCall &c, const float *before, Bf16 *o, float *after);
void scan_backward(const ScanCall &c, const float *before, const Bf16 *d_o, const float *d_after, Bf16 *dx,
                   float *d_beta, float *d_decay, float *d_skip, float *d_before);
void scan_map(const ScanCall &c, float *maps);
void scan_map_back(const ScanCall &c, const Bf16 *d_o, float *maps);
/* At most SCAN_MOST_FOLDED pieces. */
enum { SCAN_MOST_FOLDED = BURST_GPU_FOLDED_PIECES };
void scan_fold(const BurstScan *s, const BurstFold *f, bool back, const float *maps, float *out,
               cudaStream_t stream);

#endif
