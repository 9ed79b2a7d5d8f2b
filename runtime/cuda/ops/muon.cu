/* muon.cu: Muon's update of a layer's matrices: momentum and parameters in fp32; the orthogonalising
 * iterations in bf16, as its authors run them, with fp32 accumulation. */
#include "optimizer/muon.h"
#include "cuda/gpu.h"

#include <math.h>

enum { THREADS = 256 };

static unsigned blocks_of(int64_t count) { return (unsigned)((count + THREADS - 1) / THREADS); }

/* ---- momentum and parameters ---- */
struct Momentum {
    float scale, keep;
};

/* As on the host: m = keep m + g, u = g + keep m. */
template <class G>
static __global__ void __launch_bounds__(THREADS)
    momentum_kernel(Momentum o, int64_t count, const G *grad, float *m, BurstBf16 *update)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const float g = (float)grad[i] * o.scale, moved = o.keep * m[i] + g;
    m[i] = moved;
    update[i] = __float2bfloat16_rn(g + o.keep * moved);
}

/* Updates the parameter and its rounded copy, and clears the gradient, as AdamW does. */
template <class G>
static __global__ void __launch_bounds__(THREADS)
    update_kernel(float decay, float scale, int64_t count, const BurstBf16 *update, float *param,
                  BurstBf16 *rounded, G *grad)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    param[i] = param[i] * decay - scale * (float)update[i];
    rounded[i] = __float2bfloat16_rn(param[i]);
    grad[i] = G(0.0f);
}

template <class G>
static int momentum_of(BurstGpu *g, const BurstGpuWeights *w, int unit, const BurstAdamW *o, G *grad,
                       BurstBf16 *update)
{
    MuonMatrix matrix[BURST_MUON_MATRICES];
    int n;
    BURST_TRY(muon_matrices(g->ctx, unit, matrix, &n));
    for (int i = 0; i < n; i++) {
        const MuonPart part = muon_part(g->ctx, g->rank, unit, &matrix[i]);
        if (!part.count)
            continue;
        momentum_kernel<<<blocks_of(part.count), THREADS, 0, g->compute>>>(
            Momentum{(float)o->grad_scale, (float)o->momentum}, part.count, grad + part.begin,
            w->m[unit] + part.begin, update + part.begin);
        BURST_TRY(gpu_launched(g, "momentum"));
    }
    return BURST_OK;
}

int burst_op_momentum(BurstGpu *g, const BurstGpuWeights *w, int unit, const BurstAdamW *o, BurstBf16 *update)
{
    return w->grad_bf16[unit] ? momentum_of(g, w, unit, o, w->grad_bf16[unit], update)
                              : momentum_of(g, w, unit, o, w->grad[unit], update);
}

template <class G>
static int update_of(BurstGpu *g, const BurstGpuWeights *w, int unit, const BurstAdamW *o, G *grad,
                     const BurstBf16 *update)
{
    MuonMatrix matrix[BURST_MUON_MATRICES];
    int n;
    BURST_TRY(muon_matrices(g->ctx, unit, matrix, &n));
    for (int i = 0; i < n; i++) {
        const MuonPart part = muon_part(g->ctx, g->rank, unit, &matrix[i]);
        const BurstMatrix shape = {matrix[i].tensor->rows, matrix[i].tensor->cols};
        if (!part.count)
            continue;
        update_kernel<<<blocks_of(part.count), THREADS, 0, g->compute>>>(
            (float)(1 - o->lr * o->decay), (float)(o->lr * burst_muon_scale(shape)), part.count,
            update + part.begin, w->param[unit] + part.begin, w->bf16[unit] + part.begin, grad + part.begin);
        BURST_TRY(gpu_launched(g, "update by Muon"));
    }
    return BURST_OK;
}

int burst_op_muon(BurstGpu *g, const BurstGpuWeights *w, int unit, const BurstAdamW *o, BurstBf16 *update)
{
    return w->grad_bf16[unit] ? update_of(g, w, unit, o, w->grad_bf16[unit], update)
                              : update_of(g, w, unit, o, w->grad[unit], update);
}

/* ---- Newton-Schulz ---- */
/* [rows][cols] stored as consecutive parts of its columns. */
struct Parts {
    int64_t rows, cols, width;
};

static __device__ int64_t in_whole(const Parts &p, int64_t i)
{
    const int64_t row = i / p.width, part = row / p.rows;
    return (row - part * p.rows) * p.cols + part * p.width + (i - row * p.width);
}

/* whole = by_parts / (its norm + eps) */
static __global__ void __launch_bounds__(THREADS)
    normalize_kernel(Parts p, const double *squares, const BurstBf16 *by_parts, BurstBf16 *whole)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < p.rows * p.cols)
        whole[in_whole(p, i)] = __float2bfloat16_rn((float)by_parts[i] *
                                                    (float)(1 / (sqrt(*squares) + BURST_MUON_EPS)));
}

static __global__ void __launch_bounds__(THREADS)
    by_parts_kernel(Parts p, const BurstBf16 *whole, BurstBf16 *by_parts)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < p.rows * p.cols)
        by_parts[i] = whole[in_whole(p, i)];
}

/* Row-major d[m][n] = alpha op(a)[m][k] op(b)[k][n] + beta c. */
static int product(BurstGpu *g, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                   double alpha, const BurstBf16 *a, const BurstBf16 *b, double beta, const BurstBf16 *c,
                   BurstBf16 *d)
{
    const Shape s = {transpose_b,         transpose_a,         n, m, k,
                     transpose_b ? k : n, transpose_a ? m : k, n, 0, beta != 0};
    return gpu_scaled_product(g, &s, (float)alpha, b, a, (float)beta, c, d);
}

/* y = a x + (b s + c s s) x with s = x x^T, or the same from the other side if that is smaller. */
static int iterate(BurstGpu *g, int64_t rows, int64_t cols, const BurstBf16 *x, BurstBf16 *y, BurstBf16 *s,
                   BurstBf16 *polynomial)
{
    const bool wide = rows <= cols;
    const int64_t side = wide ? rows : cols;
    BURST_TRY(product(g, !wide, wide, side, side, wide ? cols : rows, 1, x, x, 0, s, s));
    BURST_TRY(product(g, false, false, side, side, side, BURST_MUON_C, s, s, BURST_MUON_B, s, polynomial));
    return wide ? product(g, false, false, rows, cols, rows, 1, polynomial, x, BURST_MUON_A, x, y)
                : product(g, false, false, rows, cols, cols, 1, x, polynomial, BURST_MUON_A, x, y);
}

static int orthogonalize(BurstGpu *g, const MuonMatrix *m, BurstBf16 *matrix, BurstBf16 *scratch)
{
    const BurstMatrix shape = {m->tensor->rows, m->tensor->cols};
    const Parts parts = {shape.rows, shape.cols, shape.cols / m->parts};
    const int64_t elements = shape.rows * shape.cols, side = burst_muon_side(shape);
    BurstBf16 *x = scratch, *y = x + burst_muon_room(elements), *s = y + burst_muon_room(elements),
              *polynomial = s + burst_muon_room(side * side);
    BURST_TRY(gpu_squares(g, elements, matrix));
    normalize_kernel<<<blocks_of(elements), THREADS, 0, g->compute>>>(parts, g->sums + SUM_BLOCKS, matrix, x);
    BURST_TRY(gpu_launched(g, "normalising a matrix"));
    for (int i = 0; i < BURST_MUON_ITERATIONS; i++) {
        BURST_TRY(iterate(g, shape.rows, shape.cols, x, y, s, polynomial));
        BurstBf16 *last = x;
        x = y, y = last;
    }
    by_parts_kernel<<<blocks_of(elements), THREADS, 0, g->compute>>>(parts, x, matrix);
    return gpu_launched(g, "parts of a matrix");
}

int burst_op_orthogonalize(BurstGpu *g, BurstBf16 *matrices, void *scratch)
{
    const int me = g->rank - burst_shard_group(g->ctx).first;
    MuonMatrix matrix[BURST_MUON_MATRICES];
    int n;
    for (int unit = 1; unit < burst_unit_count(host_plan(g->ctx)); unit++) {
        BURST_TRY(muon_matrices(g->ctx, unit, matrix, &n));
        for (int i = 0; i < n; i++)
            if (matrix[i].owner == me)
                BURST_TRY(orthogonalize(g, &matrix[i], matrices + matrix[i].at, (BurstBf16 *)scratch));
    }
    return BURST_OK;
}
