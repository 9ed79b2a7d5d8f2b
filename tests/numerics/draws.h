/* draws.h: the inputs' random numbers: the same for the same stream and index, everywhere. */
#ifndef DRAWS_H
#define DRAWS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* splitmix64 of (stream, index), in (0, 1). */
static inline double uniform(uint64_t stream, uint64_t i)
{
    uint64_t z = stream * 0x9E3779B97F4A7C15u + (i + 1) * 0xD1B54A32D192ED03u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) * 0x1p-53;
}

/* To bf16, so that a backend that computes in bf16 has the same inputs. */
static inline float rounded(double exact)
{
    float x = (float)exact;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static inline float normal(uint64_t stream, uint64_t i)
{
    return rounded(sqrt(-2 * log(uniform(stream, 2 * i))) * cos(2 * M_PI * uniform(stream, 2 * i + 1)));
}

#endif
