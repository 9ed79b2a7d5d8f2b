/* test_muon.c: the host's orthogonalisation against the same iterations in float64, also of a matrix whose
 * columns lie in parts; and how the ranks share matrices. */
#include "burst_muon.h"
#include "burst_rt.h"
#include "base/blas.h"
#include "kernel_test.h"
#include "model64.h"

#include <string.h>

/* Part after part of the columns. */
static int64_t place_of(int rows, int cols, int parts, int64_t i)
{
    const int64_t row = i / cols, col = i % cols, width = cols / parts;
    return col / width * rows * width + row * width + col % width;
}

static void check_shape(int rows, int cols, int parts)
{
    const int64_t n = (int64_t)rows * cols;
    Random r = {(uint64_t)(rows * 1000 + cols)};
    float *plain = random_array(&r, n), *x = zero_floats(n),
          *scratch = zero_floats(burst_muon_scratch((BurstMatrix){rows, cols}));
    double *want = zero_doubles(n), most = 0;
    for (int64_t i = 0; i < n; i++) {
        want[i] = plain[i];
        x[place_of(rows, cols, parts, i)] = plain[i];
    }
    orthogonal64(rows, cols, want);
    burst_newton_schulz(rows, cols, parts, x, scratch);
    for (int64_t i = 0; i < n; i++) {
        const double apart = fabs(x[place_of(rows, cols, parts, i)] - want[i]);
        most = apart > most ? apart : most;
    }
    if (most > 1e-5) /* five times what fp32 leaves of such matrices */
        fail_msg("%d x %d in %d parts: %.2e apart", rows, cols, parts, most);
    free(plain), free(x), free(scratch), free(want);
}

static void newton_schulz(void **state)
{
    (void)state;
    static const int shape[][3] = {{2, 2, 1},   {3, 5, 1},   {5, 3, 1},   {24, 24, 1}, {24, 24, 4},
                                   {17, 40, 1}, {17, 40, 5}, {40, 18, 3}, {64, 8, 2},  {2, 300, 3}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        check_shape(shape[i][0], shape[i][1], shape[i][2]);
}

/* A matrix without a gradient does not move. */
static void zeros(void **state)
{
    (void)state;
    float x[12] = {0}, scratch[512];
    assert_true(burst_muon_scratch((BurstMatrix){3, 4}) <= 512);
    burst_newton_schulz(3, 4, 1, x, scratch);
    for (int i = 0; i < 12; i++)
        assert_true(x[i] == 0);
}

/* Each matrix once, apart from the owner's others; no rank does more than the mean and a matrix. Of kinds of
 * layers, every second layer is of the first. */
static void check_share(const BurstMatrices *kind, int kinds, int layers, int ranks)
{
    enum { MOST = 4096 };
    BurstMatrices of[64];
    BurstMatrix matrix[MOST];
    int owner[MOST], matrices = 0;
    int64_t at[MOST], load[64], elements[64], all = 0, largest = 0;
    for (int l = 0; l < layers; l++) {
        of[l] = kind[l % kinds];
        for (int i = 0; i < of[l].n; i++)
            matrix[matrices++] = of[l].matrix[i];
    }
    burst_muon_share(of, layers, ranks, owner, at, load, elements);
    for (int i = 0; i < matrices; i++) {
        const int64_t n = matrix[i].rows * matrix[i].cols;
        assert_in_range(owner[i], 0, ranks - 1);
        assert_true(at[i] >= 0 && at[i] % BURST_MUON_ALIGN == 0 && at[i] + n <= elements[owner[i]]);
        for (int j = 0; j < i; j++) {
            const int64_t m = matrix[j].rows * matrix[j].cols;
            assert_true(owner[i] != owner[j] || at[i] >= at[j] + m || at[j] >= at[i] + n);
        }
    }
    for (int i = 0; i < matrices; i++) {
        const int64_t flops = burst_muon_flops(matrix[i]);
        all += flops;
        largest = flops > largest ? flops : largest;
    }
    for (int r = 0; r < ranks; r++)
        assert_true(load[r] <= all / ranks + largest);
}

static void share(void **state)
{
    (void)state;
    static const BurstMatrix llama[] = {{4096, 4096},  {1024, 4096},  {1024, 4096}, {4096, 4096},
                                        {14336, 4096}, {14336, 4096}, {4096, 14336}},
                             small[] = {{8, 24}, {24, 8}};
    for (int ranks = 1; ranks <= 64; ranks += ranks < 9 ? 1 : 11) {
        const BurstMatrices kinds[] = {{llama, 7}, {small, 2}, {small, 1}};
        check_share(&kinds[0], 1, 32, ranks);
        check_share(&kinds[1], 1, 3, ranks);
        check_share(&kinds[2], 1, 1, ranks);
        check_share(kinds, 2, 33, ranks);
        check_share(kinds, 3, 8, ranks);
    }
}

int main(void)
{
    burst_blas_setup();
    const struct CMUnitTest tests[] = {cmocka_unit_test(newton_schulz), cmocka_unit_test(zeros),
                                       cmocka_unit_test(share)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
