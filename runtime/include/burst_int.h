/* burst_int.h: integer arithmetic, defined once for the compiler and for what it emits (C and CUDA). */
#ifndef BURST_INT_H
#define BURST_INT_H

#include <stdint.h>

#ifdef __CUDACC__
#define BURST_FN static inline __host__ __device__
#else
#define BURST_FN static inline
#endif

/* divisors are positive */
BURST_FN int64_t burst_floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

BURST_FN int64_t burst_floor_mod(int64_t a, int64_t b)
{
    const int64_t rest = a % b;
    return rest < 0 ? rest + b : rest;
}

BURST_FN int64_t burst_min(int64_t a, int64_t b) { return a < b ? a : b; }
BURST_FN int64_t burst_max(int64_t a, int64_t b) { return a > b ? a : b; }
BURST_FN int64_t burst_abs(int64_t a) { return a < 0 ? -a : a; }

/* ---- the hash of mask expressions ---- */
/* hash(a, b) in a mask is burst_hash(a, b): it must look random and be the same number everywhere. Its
 * multiplications have 32 bits, so that compilers can vectorise them. */
#define BURST_HASH_LAST INT64_C(0x7fffffff) /* values are 0 .. BURST_HASH_LAST */

/* Finaliser of MurmurHash3. */
BURST_FN uint32_t burst_mix(uint32_t h)
{
    h = (h ^ h >> 16) * UINT32_C(0x85ebca6b);
    h = (h ^ h >> 13) * UINT32_C(0xc2b2ae35);
    return h ^ h >> 16;
}

BURST_FN uint32_t burst_fold(int64_t x)
{
    return (uint32_t)x ^ (uint32_t)((uint64_t)x >> 32);
}

BURST_FN int64_t burst_hash(int64_t a, int64_t b)
{
    const uint32_t first = burst_mix(burst_fold(a) + UINT32_C(0x9e3779b9));
    return (int64_t)(burst_mix(first ^ burst_fold(b) * UINT32_C(0x9e3779b1)) >> 1);
}

#endif
