/* gate.cuh: what multiplies a branch (BURST_GATE_...), and its slope. */
#ifndef BURST_CUDA_SCAN_GATE_CUH
#define BURST_CUDA_SCAN_GATE_CUH

#include "burst_model.h"

static __device__ __forceinline__ float gate_value(int gate, float z)
{
    if (gate == BURST_GATE_PLAIN)
        return z;
    const float s = 1 / (1 + __expf(-z));
    return gate == BURST_GATE_SILU ? z * s : s;
}

static __device__ __forceinline__ float gate_slope(int gate, float z)
{
    if (gate == BURST_GATE_PLAIN)
        return 1;
    const float s = 1 / (1 + __expf(-z));
    return gate == BURST_GATE_SILU ? s * (1 + z * (1 - s)) : s * (1 - s);
}

#endif
