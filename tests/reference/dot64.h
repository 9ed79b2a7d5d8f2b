/* dot64.h: sums of products in float64. */
#pragma once
#include <stdint.h>

/* Eight partial sums: one alone would wait for each addition. All processors add in the same order. */
typedef double Eight64 __attribute__((vector_size(64), aligned(8), may_alias));
typedef float EightFloats __attribute__((vector_size(32), aligned(4), may_alias));

static inline double dot64_total(const Eight64 *parts)
{
    double sum = 0;
    for (int i = 0; i < 8; i++)
        sum += (*parts)[i];
    return sum;
}

static inline double dot64(int64_t n, const double *a, const double *b)
{
    Eight64 parts = {0};
    double rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        parts += *(const Eight64 *)(a + i) * *(const Eight64 *)(b + i);
    for (; i < n; i++)
        rest += a[i] * b[i];
    return rest + dot64_total(&parts);
}

static inline double dot64_of_floats(int64_t n, const float *a, const float *b)
{
    Eight64 parts = {0};
    double rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        parts += __builtin_convertvector(*(const EightFloats *)(a + i), Eight64) *
                 __builtin_convertvector(*(const EightFloats *)(b + i), Eight64);
    for (; i < n; i++)
        rest += (double)a[i] * b[i];
    return rest + dot64_total(&parts);
}
