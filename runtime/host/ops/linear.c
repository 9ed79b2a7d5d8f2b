/* host/ops/linear.c: the three products of a linear layer, by BLAS. */
#include "burst_step.h"

#include <cblas.h>

int burst_op_linear_columns(BurstExec *e, int64_t n, int in, int out, int row, const BurstAct *x,
                            const BurstAct *w, const BurstAct *add, BurstAct *y)
{
    (void)e;
    if (add && add != y)
        memcpy(y, add, (size_t)(n * out) * sizeof *y);
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)n, out, in, 1, x, in, w, row,
                    add ? 1 : 0, y, out);
    return BURST_OK;
}

int burst_op_linear_dx_columns(BurstExec *e, int64_t n, int in, int out, int row, const BurstAct *dy,
                               const BurstAct *w, BurstAct *dx, bool add)
{
    (void)e;
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)n, in, out, 1, dy, out, w, row,
                    add ? 1 : 0, dx, in);
    return BURST_OK;
}

int burst_op_linear_dw_columns(BurstExec *e, int64_t n, int in, int out, int row, const BurstAct *dy,
                               const BurstAct *x, float *dw)
{
    (void)e;
    if (n > 0)
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, (blasint)n, 1, dy, out, x, in, 1, dw,
                    row);
    return BURST_OK;
}

int burst_op_linear(BurstExec *e, int64_t n, int in, int out, int tensors, const BurstAct *x,
                    const BurstAct *w, const BurstAct *add, BurstAct *y)
{
    for (int64_t t = 0; t < tensors; t++)
        BURST_TRY(burst_op_linear_columns(e, n, in, out, in, x, w + t * in * out,
                                          add ? add + t * n * out : NULL, y + t * n * out));
    return BURST_OK;
}

int burst_op_linear_dw(BurstExec *e, int64_t n, int in, int out, int tensors, const BurstAct *dy,
                       const BurstAct *x, float *dw)
{
    for (int64_t t = 0; t < tensors; t++)
        BURST_TRY(burst_op_linear_dw_columns(e, n, in, out, in, dy + t * n * out, x, dw + t * in * out));
    return BURST_OK;
}

int burst_op_linear_dx(BurstExec *e, int64_t n, int in, int out, int tensors, const BurstAct *dy,
                       const BurstAct *w, BurstAct *dx, bool add)
{
    for (int64_t t = 0; t < tensors; t++)
        BURST_TRY(burst_op_linear_dx_columns(e, n, in, out, in, dy + t * n * out, w + t * in * out, dx,
                                             add || t > 0));
    return BURST_OK;
}
