/* activation.cuh: activations and their slopes. */
#ifndef BURST_CUDA_ACTIVATION_CUH
#define BURST_CUDA_ACTIVATION_CUH

#include "burst_step_cuda.h"

#define BURST_GELU_ROOT 0.7978845608028654f /* of gelu's approximation: sqrt(2 / pi) */
#define BURST_GELU_CUBE 0.044715f

static __device__ __forceinline__ float activation_value(int kind, float x)
{
    switch (kind) {
    case BURST_ACTIVATION_GEGLU:
    case BURST_ACTIVATION_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case BURST_ACTIVATION_GEGLU_TANH:
    case BURST_ACTIVATION_GELU_TANH:
        return 0.5f * x * (1 + tanhf(BURST_GELU_ROOT * (x + BURST_GELU_CUBE * x * x * x)));
    case BURST_ACTIVATION_RELU2: return x <= 0 ? 0 : x * x; /* NaN propagates */
    default: return x / (1 + __expf(-x));
    }
}

static __device__ __forceinline__ float activation_slope(int kind, float x)
{
    float t;
    switch (kind) {
    case BURST_ACTIVATION_GEGLU:
    case BURST_ACTIVATION_GELU:
        return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * __expf(-0.5f * x * x);
    case BURST_ACTIVATION_GEGLU_TANH:
    case BURST_ACTIVATION_GELU_TANH:
        t = tanhf(BURST_GELU_ROOT * (x + BURST_GELU_CUBE * x * x * x));
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * BURST_GELU_ROOT * (1 + 3 * BURST_GELU_CUBE * x * x);
    case BURST_ACTIVATION_RELU2: return x <= 0 ? 0 : 2 * x;
    default: t = 1 / (1 + __expf(-x)); return t * (1 + x * (1 - t));
    }
}

/* Both, of which SwiGLU's need one exponential and one division. */
static __device__ __forceinline__ float activation_both(int kind, float x, float *slope)
{
    if (kind != BURST_ACTIVATION_SWIGLU) {
        *slope = activation_slope(kind, x);
        return activation_value(kind, x);
    }
    const float t = __fdividef(1, 1 + __expf(-x));
    *slope = t * (1 + x * (1 - t));
    return x * t;
}

#endif
