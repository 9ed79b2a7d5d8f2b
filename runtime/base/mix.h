/* mix.h: numbers that look random and are the same whatever the world size. */
#ifndef BURST_BASE_MIX_H
#define BURST_BASE_MIX_H

#include <stdint.h>

static inline uint64_t mix64(uint64_t x) /* splitmix64's finaliser */
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static inline uint64_t hash3(uint64_t a, uint64_t b, uint64_t c)
{
    return mix64(mix64(mix64(a + 0x9e3779b97f4a7c15u) + b) + c * 0x9e3779b97f4a7c15u);
}

#endif
