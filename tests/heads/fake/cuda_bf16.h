/* cuda_bf16.h: bf16 as bits. */
#pragma once
#include <stdint.h>
#include <string.h>
typedef struct __nv_bfloat16 { uint16_t bits; } __nv_bfloat16;

static inline __nv_bfloat16 __float2bfloat16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return __nv_bfloat16{(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

static inline float __bfloat162float(__nv_bfloat16 x)
{
    const uint32_t bits = (uint32_t)x.bits << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}
