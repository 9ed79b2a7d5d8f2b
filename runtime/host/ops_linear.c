/* ops_linear.c: the three products of a linear layer, by BLAS. */
#include "burst_rt.h"

#include <cblas.h>

void burst_linear(int64_t n, int in, int out, const float *x, const float *w, float *y, bool add)
{
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)n, out, in, 1, x, in, w, in, add ? 1 : 0, y, out);
}

void burst_linear_dx(int64_t n, int in, int out, const float *dy, const float *w, float *dx, bool add)
{
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)n, in, out, 1, dy, out, w, in, add ? 1 : 0, dx, in);
}

void burst_linear_dw(int64_t n, int in, int out, const float *dy, const float *x, float *dw)
{
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, (blasint)n, 1, dy, out, x, in, 1, dw, in);
}
