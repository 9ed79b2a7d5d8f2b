/* test_blas.c: which kernels and how many threads OpenBLAS has after burst_blas_setup. */
#include "base/blas.h"
#include "kernel_test.h"

#include <cblas.h>

void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));

static bool machine_has_avx512(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

/* OpenBLAS as it would be had its constructor chosen these kernels. */
static void pretend(const char *core)
{
    setenv("OPENBLAS_CORETYPE", core, 1);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv("OPENBLAS_CORETYPE");
}

static float sum_of_product(void)
{
    float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, c[4] = {0};
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2);
    return c[0] + c[1] + c[2] + c[3];
}

static void one_thread(void **state)
{
    (void)state;
    openblas_set_num_threads(2);
    burst_blas_setup();
    assert_int_equal(openblas_get_num_threads(), 1);
}

static void threads_asked_for_stay(void **state)
{
    (void)state;
    openblas_set_num_threads(2);
    int before = openblas_get_num_threads();
    setenv("OPENBLAS_NUM_THREADS", "2", 1);
    burst_blas_setup();
    unsetenv("OPENBLAS_NUM_THREADS");
    assert_int_equal(openblas_get_num_threads(), before);
}

static void avx512_kernels_replace(const char *core)
{
    if (!machine_has_avx512() || !gotoblas_dynamic_init)
        skip();
    pretend(core);
    assert_string_equal(openblas_get_corename(), core);
    burst_blas_setup();
    assert_string_equal(openblas_get_corename(), "SkylakeX");
    assert_true(sum_of_product() == 19 + 22 + 43 + 50);
    unsetenv("OPENBLAS_CORETYPE");
}

static void avx512_kernels_replace_avx2(void **state)
{
    (void)state;
    avx512_kernels_replace("Haswell");
}

/* What releases choose that do not know the processor at all. */
static void avx512_kernels_replace_sse3(void **state)
{
    (void)state;
    avx512_kernels_replace("Prescott");
}

static void a_choice_stays(void **state)
{
    (void)state;
    if (!machine_has_avx512() || !gotoblas_dynamic_init)
        skip();
    pretend("Haswell");
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    burst_blas_setup();
    unsetenv("OPENBLAS_CORETYPE");
    assert_string_equal(openblas_get_corename(), "Haswell");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),
        cmocka_unit_test(threads_asked_for_stay),
        cmocka_unit_test(avx512_kernels_replace_avx2), cmocka_unit_test(avx512_kernels_replace_sse3),
        cmocka_unit_test(a_choice_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
