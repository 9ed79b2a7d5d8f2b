/* linear.cu: the three products of a linear layer. cublasLt is column-major: a row-major [r][c] matrix is
 * its c x r matrix, so operands are exchanged. Layouts and the chosen algorithm of every shape are
 * cached. A token that continues a prompt has kernels here: their time is that of reading the matrix. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 4, LARGEST_ALIGNMENT = 256 }; /* A, B, C, D */

/* ---- one token ---- */
/* A warp reads a row of the matrix. */
enum { THREADS = 256, ROWS = THREADS / WARP, AT_ONCE = 8 };

static __device__ __forceinline__ float dot(const uint4 &a, const uint4 &b, float sum)
{
    const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = fmaf(__uint_as_float(x[i] << 16), __uint_as_float(y[i] << 16), sum);
        sum = fmaf(__uint_as_float(x[i] & 0xffff0000u), __uint_as_float(y[i] & 0xffff0000u), sum);
    }
    return sum;
}

/* A lane's next AT_ONCE vectors, which are in flight together; zeros after the row. */
static __device__ __forceinline__ void load_row(const BurstBf16 *w, int i, int in, uint4 a[AT_ONCE])
{
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++)
        a[j] = i + j * VEC * WARP < in ? __ldcs((const uint4 *)(w + i + j * VEC * WARP))
                                       : make_uint4(0, 0, 0, 0);
}

/* The first vectors of a row are on their way before x is there. */
static __device__ __forceinline__ float row_product(int in, const BurstBf16 *w, const BurstBf16 *x)
{
    const int step = VEC * WARP;
    float sum = 0;
    int i = VEC * (threadIdx.x % WARP);
    uint4 a[AT_ONCE];
    load_row(w, i, in, a);
    await_previous();
    while (i < in) {
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i + j * step < in)
                sum = dot(a[j], *(const uint4 *)(x + i + j * step), sum);
        i += AT_ONCE * step;
        load_row(w, i, in, a);
    }
    return warp_sum(sum);
}

static __global__ void __launch_bounds__(THREADS) vector_kernel(VectorProduct p)
{
    const int row = blockIdx.x * ROWS + threadIdx.x / WARP;
    let_next_begin();
    if (row >= p.out)
        return;
    const float sum = row_product(p.in, p.w + row * p.row, p.x);
    if (threadIdx.x % WARP)
        return;
    const float y = p.add ? sum + __bfloat162float(p.add[row]) : sum;
    if (p.floats)
        p.floats[row] = y;
    else
        p.y[row] = __float2bfloat16_rn(y);
}

bool gpu_has_vector_product(const VectorProduct *p)
{
    return p->in % VEC == 0 && p->row % VEC == 0 && (address(p->x) | address(p->w)) % 16 == 0;
}

int gpu_vector_product(BurstGpu *g, const VectorProduct *p)
{
    return gpu_launch(g, true, vector_kernel, dim3((unsigned)((p->out + ROWS - 1) / ROWS)), THREADS, 0, *p);
}

/* ---- products ---- */
/* y^T [out][n] = W [out][in] x^T. */
int burst_op_linear_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *x,
                            const BurstBf16 *w, const BurstBf16 *add, BurstBf16 *y)
{
    const VectorProduct one = {in, out, row, x, w, add, y, NULL};
    if (n == 1 && gpu_has_vector_product(&one))
        return gpu_vector_product(g, &one);
    Shape s = {
        .transpose_a = 1, .m = out, .n = n, .k = in, .lda = row, .ldb = in, .ldc = out, .beta = add != NULL};
    return gpu_product(g, &s, w, x, add ? add : y, y);
}

/* dx^T [in][n] = W^T dy^T. */
int burst_op_linear_dx_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *dy,
                               const BurstBf16 *w, BurstBf16 *dx, bool add)
{
    Shape s = {.m = in, .n = n, .k = out, .lda = row, .ldb = out, .ldc = in, .beta = add};
    return gpu_product(g, &s, w, dy, dx, dx);
}

/* dw^T [in][out] += x^T dy. */
int burst_op_linear_dw_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *dy,
                               const BurstBf16 *x, float *dw)
{
    Shape s = {.transpose_b = 1,
               .m = in,
               .n = out,
               .k = n,
               .lda = in,
               .ldb = out,
               .ldc = row,
               .fp32_out = 1,
               .beta = 1};
    return gpu_product(g, &s, x, dy, dw, dw);
}

int burst_op_linear(BurstGpu *g, int64_t n, int in, int out, int tensors, const BurstBf16 *x,
                    const BurstBf16 *w, const BurstBf16 *add, BurstBf16 *y)
{
    return burst_op_linear_columns(g, n, in, out * tensors, in, x, w, add, y);
}

int burst_op_linear_dx(BurstGpu *g, int64_t n, int in, int out, int tensors, const BurstBf16 *dy,
                       const BurstBf16 *w, BurstBf16 *dx, bool add)
{
    return burst_op_linear_dx_columns(g, n, in, out * tensors, in, dy, w, dx, add);
}

int burst_op_linear_dw(BurstGpu *g, int64_t n, int in, int out, int tensors, const BurstBf16 *dy,
                       const BurstBf16 *x, float *dw)
{
    return burst_op_linear_dw_columns(g, n, in, out * tensors, in, dy, x, dw);
}

/* ---- planned products ---- */
struct Product {
    Product *next;
    Shape shape;
    uint32_t alignment[OPERANDS];
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t layout[3]; /* A, B, C and D */
    cublasLtMatmulAlgo_t algorithm;
};

static uint32_t alignment_of(const void *p)
{
    uintptr_t at = (uintptr_t)p | LARGEST_ALIGNMENT;
    return (uint32_t)(at & (~at + 1));
}

static int describe_operation(BurstGpu *g, Product *p)
{
    cublasOperation_t a = p->shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      b = p->shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_TRY(g, cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_TRY(g, cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    LT_TRY(g, cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    return BURST_OK;
}

static int describe_layouts(BurstGpu *g, Product *p)
{
    const Shape *s = &p->shape;
    int64_t rows_a = s->transpose_a ? s->k : s->m, cols_a = s->transpose_a ? s->m : s->k;
    int64_t rows_b = s->transpose_b ? s->n : s->k, cols_b = s->transpose_b ? s->k : s->n;
    cudaDataType_t out = s->fp32_out ? CUDA_R_32F : CUDA_R_16BF;
    LT_TRY(g, cublasLtMatrixLayoutCreate(&p->layout[0], CUDA_R_16BF, (uint64_t)rows_a, (uint64_t)cols_a,
                                         s->lda));
    LT_TRY(g, cublasLtMatrixLayoutCreate(&p->layout[1], CUDA_R_16BF, (uint64_t)rows_b, (uint64_t)cols_b,
                                         s->ldb));
    LT_TRY(g, cublasLtMatrixLayoutCreate(&p->layout[2], out, (uint64_t)s->m, (uint64_t)s->n, s->ldc));
    return BURST_OK;
}

static int prefer(BurstGpu *g, const Product *p, cublasLtMatmulPreference_t preference)
{
    static const cublasLtMatmulPreferenceAttributes_t attribute[OPERANDS] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    size_t workspace = WORKSPACE_BYTES;
    LT_TRY(g, cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &workspace, sizeof workspace));
    for (int i = 0; i < OPERANDS; i++)
        LT_TRY(g, cublasLtMatmulPreferenceSetAttribute(preference, attribute[i], &p->alignment[i],
                                                       sizeof p->alignment[i]));
    return BURST_OK;
}

static int choose(BurstGpu *g, Product *p, cublasLtMatmulPreference_t preference)
{
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    BURST_TRY(prefer(g, p, preference));
    cublasStatus_t e = cublasLtMatmulAlgoGetHeuristic(g->lt, p->operation, p->layout[0], p->layout[1],
                                                      p->layout[2], p->layout[2], preference, 1, &best,
                                                      &found);
    if (e == CUBLAS_STATUS_SUCCESS && found) {
        p->algorithm = best.algo;
        return BURST_OK;
    }
    const Shape *s = &p->shape;
    return burst_fail(g->ctx, BURST_E_PLAN,
                      "cublasLt has no algorithm for a matrix product of %lld x %lld x %lld (%s)",
                      (long long)s->m, (long long)s->n, (long long)s->k, cublasLtGetStatusString(e));
}

static int plan(BurstGpu *g, Product *p)
{
    cublasLtMatmulPreference_t preference;
    BURST_TRY(describe_operation(g, p));
    BURST_TRY(describe_layouts(g, p));
    LT_TRY(g, cublasLtMatmulPreferenceCreate(&preference));
    int status = choose(g, p, preference);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static void product_free(Product *p)
{
    for (cublasLtMatrixLayout_t layout : p->layout)
        if (layout)
            cublasLtMatrixLayoutDestroy(layout);
    if (p->operation)
        cublasLtMatmulDescDestroy(p->operation);
    free(p);
}

static Product *find(BurstGpu *g, const Shape *s, const uint32_t alignment[OPERANDS])
{
    for (Product *p = g->products; p; p = p->next)
        if (memcmp(&p->shape, s, sizeof *s) == 0 && memcmp(p->alignment, alignment, sizeof p->alignment) == 0)
            return p;
    return NULL;
}

/* A program has about ten shapes, so the list is short; it grows only in the first step. */
static int planned(BurstGpu *g, const Shape *s, const uint32_t alignment[OPERANDS], Product **out)
{
    *out = find(g, s, alignment);
    if (*out)
        return BURST_OK;
    Product *p = (Product *)calloc(1, sizeof *p);
    if (!p)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for a matrix-product plan");
    p->shape = *s;
    memcpy(p->alignment, alignment, sizeof p->alignment);
    int status = plan(g, p);
    if (status != BURST_OK) {
        product_free(p);
        return status;
    }
    p->next = g->products;
    *out = g->products = p;
    return BURST_OK;
}

int gpu_product(BurstGpu *g, const Shape *s, const void *a, const void *b, const void *c, void *d)
{
    return gpu_scaled_product(g, s, 1, a, b, (float)s->beta, c, d);
}

int gpu_scaled_product(BurstGpu *g, const Shape *s, float alpha, const void *a, const void *b, float beta,
                       const void *c, void *d)
{
    const uint32_t alignment[OPERANDS] = {alignment_of(a), alignment_of(b), alignment_of(c), alignment_of(d)};
    Product *p;
    if (s->m == 0 || s->n == 0 || s->k == 0)
        return BURST_OK; /* no tokens */
    BURST_TRY(planned(g, s, alignment, &p));
    LT_TRY(g, cublasLtMatmul(g->lt, p->operation, &alpha, a, p->layout[0], b, p->layout[1], &beta, c,
                             p->layout[2], d, p->layout[2], &p->algorithm, g->workspace, WORKSPACE_BYTES,
                             g->compute));
    return BURST_OK;
}

void gpu_products_free(BurstGpu *g)
{
    for (Product *p = g->products, *next; p; p = next) {
        next = p->next;
        product_free(p);
    }
    g->products = NULL;
}
