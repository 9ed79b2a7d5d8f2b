/* ops_blas.c: the state OpenBLAS should be in before its first product. */
#include "host.h"

#include <cblas.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Only in an OpenBLAS that chooses its kernels at run time; without them there is nothing to choose. */
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));

/* What kernels use: 0 no more than AVX, 1 AVX2, 2 AVX-512. */
static int level_of_machine(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return 2;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 0;
#else
    return 0;
#endif
}

static int level_of_kernels(const char *core)
{
    static const struct { const char *core; int level; } known[] = {{"Haswell", 1}, {"Zen", 1}, {"Excavator", 1},
                                                                    {"SkylakeX", 2}, {"Cooperlake", 2}, {"SapphireRapids", 2}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(core, known[i].core) == 0)
            return known[i].level;
    return 0;
}

/* OpenBLAS reads OPENBLAS_CORETYPE once, in its constructor; forgetting that choice makes it read again. Releases that
 * do not know a processor fall back to AVX2 kernels at half the rate (0.3.21 on Zen 4 and 5), or to SSE3 at a fifth (on some
 * Sapphire Rapids). */
static void choose_kernels(void)
{
    static const char *const best[] = {NULL, "Haswell", "SkylakeX"};
    const int level = level_of_machine();
    if (level <= level_of_kernels(openblas_get_corename()) || !gotoblas_dynamic_init || !gotoblas_dynamic_quit)
        return;
    if (setenv("OPENBLAS_CORETYPE", best[level], 0) != 0) /* 0: what the user has set stays */
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
