/* host/ops/muon.c: the orthogonalisation of a matrix by Newton-Schulz iterations, in fp32, by BLAS. */
#include "burst_muon.h"
#include "burst_rt.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/* Copies rows of [rows][cols] from consecutive parts of its columns, or with `back` to them. */
static void copy_parts(int rows, int cols, int parts, float scale, float *whole, float *by_parts, bool back)
{
    const int64_t width = cols / parts;
    for (int64_t part = 0; part < parts; part++)
        for (int64_t row = 0; row < rows; row++) {
            float *one = whole + row * cols + part * width, *other = by_parts + (part * rows + row) * width;
            for (int64_t i = 0; i < width && !back; i++)
                one[i] = other[i] * scale;
            if (back)
                memcpy(other, one, (size_t)width * sizeof *one);
        }
}

/* c = alpha a op(b) + beta c; a [m][k]. */
static void product(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float *a,
                    const float *b, float beta, float *c)
{
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, m, n, k, alpha, a, transpose_a ? m : k, b,
                transpose_b ? k : n, beta, c, n);
}

/* y = a x + (b s + c s s) x with s = x x^T, or the same from the other side if that is smaller. */
static void iterate(int rows, int cols, const float *x, float *y, float *s, float *polynomial)
{
    const bool wide = rows <= cols;
    const int side = wide ? rows : cols;
    product(!wide, wide, side, side, wide ? cols : rows, 1, x, x, 0, s);
    memcpy(polynomial, s, (size_t)side * (size_t)side * sizeof *s);
    product(false, false, side, side, side, (float)BURST_MUON_C, s, s, (float)BURST_MUON_B, polynomial);
    memcpy(y, x, (size_t)rows * (size_t)cols * sizeof *x);
    if (wide)
        product(false, false, rows, cols, rows, 1, polynomial, x, (float)BURST_MUON_A, y);
    else
        product(false, false, rows, cols, cols, 1, x, polynomial, (float)BURST_MUON_A, y);
}

void burst_newton_schulz(int rows, int cols, int parts, float *matrix, float *scratch)
{
    const BurstMatrix shape = {rows, cols};
    const int64_t elements = (int64_t)rows * cols, side = burst_muon_side(shape);
    float *x = scratch, *y = x + burst_muon_room(elements), *s = y + burst_muon_room(elements),
          *polynomial = s + burst_muon_room(side * side);
    const double norm = sqrt(burst_sum_squares(elements, matrix)) + BURST_MUON_EPS;
    copy_parts(rows, cols, parts, (float)(1 / norm), x, matrix, false);
    for (int i = 0; i < BURST_MUON_ITERATIONS; i++) {
        iterate(rows, cols, x, y, s, polynomial);
        float *last = x;
        x = y, y = last;
    }
    copy_parts(rows, cols, parts, 1, x, matrix, true);
}
