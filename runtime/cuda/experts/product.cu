/* product.cu: products of experts' matrices with the rows of the tokens that chose them. */
#include "cuda/gpu.h"
#include "cuda/experts/experts_sm80.cuh"
#include "cuda/experts/experts_sm90.cuh"

/* The kernels of sm_80 also where those of sm_90a could run; for tests. */
#ifndef BURST_EXPERTS_FORM
#define BURST_EXPERTS_FORM 90
#endif

/* Columns of a tile: of the fewest columns computed, each tile counted as so many more: narrow tiles load
 * more, and gradients are added by the line. As measured at 768, 2048, 2880 and 5760 columns. */
static int tile_columns(int columns, bool weights)
{
    const int choice[] = {256, 192, 128}, more = weights ? 96 : 16;
    int best = 256;
    for (int c : choice)
        if ((columns + c - 1) / c * (int64_t)(c + more) <
            (columns + best - 1) / best * (int64_t)(best + more))
            best = c;
    return best;
}

template <int FORM> static int launch(BurstGpu *g, const ExpertsProduct &p, int rows_a, int rows_b)
{
    const int wide = tile_columns(p.columns, ExpertsForm<FORM>::WEIGHTS);
    int major = 0, minor = 0, multiprocessors = 0;
    CUDA_TRY(g, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, g->device));
    CUDA_TRY(g, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, g->device));
    CUDA_TRY(g, cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, g->device));
    if (BURST_EXPERTS_FORM != 90 || major != 9 || minor != 0)
        CUDA_TRY(g, experts_launch_80<FORM>(p, multiprocessors, g->compute));
    else if (wide == 256)
        CUDA_TRY(g, (experts_launch_90<FORM, 256>(p, rows_a, rows_b, multiprocessors, g->compute)));
    else if (wide == 192)
        CUDA_TRY(g, (experts_launch_90<FORM, 192>(p, rows_a, rows_b, multiprocessors, g->compute)));
    else
        CUDA_TRY(g, (experts_launch_90<FORM, 128>(p, rows_a, rows_b, multiprocessors, g->compute)));
    return BURST_OK;
}

/* Rows of n tokens by the matrices of their experts. */
template <int FORM>
static int rows_product(BurstGpu *g, int64_t n, const BurstExperts *m, int inner, int columns,
                        const BurstBf16 *a, const int32_t *row, const int32_t *first, const BurstBf16 *w,
                        BurstBf16 *c)
{
    const int wide = ExpertsForm<FORM>::TURNED_B ? inner : columns;
    ExpertsProduct p = {a, w, c, row, first, (int32_t *)g->workspace, m->experts, 0, columns, inner, 0, 0};
    experts_divide(&p, m->top);
    BURST_TRY(gpu_aligned(g, "experts", inner | columns, address(a) | address(w) | address(c)));
    if (n == 0)
        return BURST_OK;
    return launch<FORM>(g, p, (int)burst_expert_rows(m, n), m->experts * wide);
}

/* Gradients of the experts' matrices [lines][columns]. */
template <int FORM>
static int weights_product(BurstGpu *g, int64_t n, const BurstExperts *m, int lines, int columns,
                           const BurstBf16 *a, const BurstBf16 *b, const int32_t *row, const int32_t *first,
                           float *dw)
{
    ExpertsProduct p = {a, b, dw, row, first, (int32_t *)g->workspace, m->experts, lines, columns, 0, 0, 0};
    experts_divide(&p, m->top);
    BURST_TRY(gpu_aligned(g, "experts", lines | columns, address(a) | address(b) | address(dw)));
    if (n == 0)
        return BURST_OK;
    return launch<FORM>(g, p, (int)burst_expert_rows(m, n), (int)burst_expert_rows(m, n));
}

int burst_op_experts_up(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *x,
                        const int32_t *row, const int32_t *first, const BurstBf16 *w, BurstBf16 *gate_up,
                        void *scratch)
{
    (void)scratch;
    return rows_product<EXPERTS_UP>(g, n, m, hidden, burst_experts_columns(m), x, row, first, w, gate_up);
}

int burst_op_experts_up_dw(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden,
                           const BurstBf16 *d_gate_up, const BurstBf16 *x, const int32_t *row,
                           const int32_t *first, float *dw, void *scratch)
{
    (void)scratch;
    return weights_product<EXPERTS_UP_DW>(g, n, m, burst_experts_columns(m), hidden, d_gate_up, x, row, first,
                                          dw);
}

int burst_op_experts_up_dx(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden,
                           const BurstBf16 *d_gate_up, const int32_t *first, const BurstBf16 *w,
                           BurstBf16 *rows)
{
    return rows_product<EXPERTS_UP_DX>(g, n, m, burst_experts_columns(m), hidden, d_gate_up, NULL, first, w,
                                       rows);
}

int burst_op_experts_down(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *x,
                          const int32_t *first, const BurstBf16 *w, BurstBf16 *rows)
{
    return rows_product<EXPERTS_DOWN>(g, n, m, m->width, hidden, x, NULL, first, w, rows);
}

int burst_op_experts_down_dw(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *dy,
                             const BurstBf16 *x, const int32_t *row, const int32_t *first, float *dw,
                             void *scratch)
{
    (void)scratch;
    return weights_product<EXPERTS_DOWN_DW>(g, n, m, hidden, m->width, dy, x, row, first, dw);
}

int burst_op_experts_down_dx(BurstGpu *g, int64_t n, const BurstExperts *m, int hidden, const BurstBf16 *dy,
                             const int32_t *row, const int32_t *first, const BurstBf16 *w, BurstBf16 *dx,
                             void *scratch)
{
    (void)scratch;
    return rows_product<EXPERTS_DOWN_DX>(g, n, m, hidden, m->width, dy, row, first, w, dx);
}
