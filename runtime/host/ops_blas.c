/* ops_blas.c: the state OpenBLAS should be in before its first product. */
#include "host.h"

#include <cblas.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Only in an OpenBLAS that chooses its kernels at run time; without them there is nothing to choose. */
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));

static bool has_avx512(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

/* OpenBLAS reads OPENBLAS_CORETYPE once, in its constructor; forgetting that choice makes it read again. Releases that
 * do not know a processor (0.3.21: Zen 4, Zen 5) fall back to AVX2 kernels at half the rate. */
static void choose_kernels(void)
{
    const char *chosen = openblas_get_corename();
    bool avx2 = strcmp(chosen, "Haswell") == 0 || strcmp(chosen, "Zen") == 0;
    if (!avx2 || !has_avx512() || !gotoblas_dynamic_init || !gotoblas_dynamic_quit)
        return;
    if (setenv("OPENBLAS_CORETYPE", "SkylakeX", 0) != 0) /* 0: what the user has set stays */
        return; /* slower, and right */
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
}

void burst_blas_setup(void)
{
    choose_kernels();
    if (!getenv("OPENBLAS_NUM_THREADS"))
        openblas_set_num_threads(1);
}
