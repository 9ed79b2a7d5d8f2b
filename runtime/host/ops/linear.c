/* host/ops/linear.c: the three products of a linear layer, by BLAS; a bias. */
#include "burst_rt.h"

#include <cblas.h>

void burst_linear_columns(int64_t n, int in, int out, int row, const float *x, const float *w, float *y,
                          bool add)
{
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)n, out, in, 1, x, in, w, row,
                    add ? 1 : 0, y, out);
}

void burst_linear_dx_columns(int64_t n, int in, int out, int row, const float *dy, const float *w, float *dx,
                             bool add)
{
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)n, in, out, 1, dy, out, w, row,
                    add ? 1 : 0, dx, in);
}

void burst_linear_dw_columns(int64_t n, int in, int out, int row, const float *dy, const float *x, float *dw)
{
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, (blasint)n, 1, dy, out, x, in, 1, dw,
                    row);
}

void burst_linear(int64_t n, int in, int out, const float *x, const float *w, float *y, bool add)
{
    burst_linear_columns(n, in, out, in, x, w, y, add);
}

void burst_linear_dx(int64_t n, int in, int out, const float *dy, const float *w, float *dx, bool add)
{
    burst_linear_dx_columns(n, in, out, in, dy, w, dx, add);
}

void burst_linear_dw(int64_t n, int in, int out, const float *dy, const float *x, float *dw)
{
    burst_linear_dw_columns(n, in, out, in, dy, x, dw);
}

void burst_bias(int64_t n, int width, const float *x, const float *b, float *y)
{
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < width; j++)
            y[i * width + j] = x[i * width + j] + b[j];
}

/* A strip of columns at a time, so that sums over tokens are doubles without a buffer of `width` of them. */
void burst_bias_back(int64_t n, int width, const float *dy, float *db)
{
    enum { STRIP = 64 };
    for (int first = 0; first < width; first += STRIP) {
        const int columns = width - first < STRIP ? width - first : STRIP;
        double sum[STRIP] = {0};
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < columns; j++)
                sum[j] += (double)dy[i * width + first + j];
        for (int j = 0; j < columns; j++)
            db[first + j] += (float)sum[j];
    }
}
