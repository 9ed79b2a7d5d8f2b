/* burst_measure_times.h: statistics of repeated measurements. */
#ifndef BURST_MEASURE_TIMES_H
#define BURST_MEASURE_TIMES_H

#include <stdlib.h>

static inline int measure_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts n > 0 times. */
static inline double measure_median(int n, double *times)
{
    qsort(times, (size_t)n, sizeof *times, measure_by_size);
    return times[n / 2];
}

static inline double measure_best(int n, double *times)
{
    qsort(times, (size_t)n, sizeof *times, measure_by_size);
    return times[0];
}

/* The median divided by the smallest time. */
static inline double measure_spread(int n, double *times)
{
    return measure_median(n, times) / times[0];
}

#endif
