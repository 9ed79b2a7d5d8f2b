/* kernel_test.h: fixed-seed random arrays and the error measure of the kernel tests. */
#ifndef KERNEL_TEST_H
#define KERNEL_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct Random { uint64_t state; } Random;

static inline uint32_t random_bits(Random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 32);
}

/* Uniform with variance 1. */
static inline float random_float(Random *r)
{
    return ((float)(random_bits(r) >> 8) / (1 << 23) - 1) * 1.7320508f;
}

/* Exactly n floats, so that AddressSanitizer sees one read too far; a block even where n is 0. */
static inline float *random_array(Random *r, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x + (n == 0));
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = random_float(r);
    return x;
}

static inline float *zero_floats(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x + (n == 0));
    assert_non_null(x);
    memset(x, 0, (size_t)n * sizeof *x);
    return x;
}

static inline float *copy_array(const float *x, int64_t n)
{
    float *y = malloc((size_t)n * sizeof *y + (n == 0));
    assert_non_null(y);
    if (n)
        memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

static inline double *zero_doubles(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* ||got - want|| / ||want||. Where want is 0 by cancellation, terms is the norm of what cancels; without
 * such terms got must be 0 too. NaN stays NaN and fails any <=. */
static inline double relative_error(int64_t n, const float *got, const double *want, double terms)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (norm == 0)
        norm = terms * terms;
    return norm == 0 && difference == 0 ? 0 : sqrt(difference / norm);
}

#define assert_close_terms(n, got, want, terms, tolerance) \
    do { \
        double error_ = relative_error(n, got, want, terms); \
        if (!(error_ <= (tolerance))) \
            fail_msg("%s: relative L2 error %.3g, allowed %.3g", #got, error_, (double)(tolerance)); \
    } while (0)
#define assert_close(n, got, want, tolerance) assert_close_terms(n, got, want, 0, tolerance)

#endif
