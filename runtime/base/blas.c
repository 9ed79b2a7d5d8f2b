/* blas.c: prepares OpenBLAS before its first product. */
#include "base/blas.h"

#include <cblas.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* per thread: the most that builds for x86-64 and arm64 request */
static const size_t buffer_bytes = (size_t)128 << 20;
static const size_t program_bytes = (size_t)64 << 20; /* with its libraries and stack */

/* Only OpenBLAS builds that choose their kernels at run time have these. */
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));

/* The instruction set of kernels: 0: at most AVX, 1: AVX2, 2: AVX-512. */
static int level_of_machine(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return 2;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 0;
#else
    return 0;
#endif
}

static int level_of_kernels(const char *core)
{
    static const struct {
        const char *core;
        int level;
    } known[] = {{"Haswell", 1},  {"Zen", 1},        {"Excavator", 1},
                 {"SkylakeX", 2}, {"Cooperlake", 2}, {"SapphireRapids", 2}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(core, known[i].core) == 0)
            return known[i].level;
    return 0;
}

/* OpenBLAS reads OPENBLAS_CORETYPE once, in its constructor; resetting its choice makes it read it again.
 * Releases that do not know a processor fall back to AVX2 kernels at half the rate (0.3.21 on Zen 4 and 5),
 * or to SSE3 at a fifth (on some Sapphire Rapids). */
static void choose_kernels(void)
{
    static const char *const best[] = {NULL, "Haswell", "SkylakeX"};
    const int level = level_of_machine();
    if (level <= level_of_kernels(openblas_get_corename()) || !gotoblas_dynamic_init ||
        !gotoblas_dynamic_quit)
        return;
    if (setenv("OPENBLAS_CORETYPE", best[level], 0) != 0) /* 0: does not override the user's value */
        return; /* slower, but correct */
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
}

/* The number of threads that its constructor starts, not the number that products use. */
static size_t threads_started(void)
{
    static size_t threads;
    if (!threads)
        threads = (size_t)openblas_get_num_threads();
    return threads;
}

bool burst_blas_fits(size_t bytes, char *text, size_t size)
{
    static const double mib = 1 << 20;
    struct rlimit room;
    const size_t threads = threads_started(), needed = bytes + program_bytes + threads * buffer_bytes;
    if (getrlimit(RLIMIT_AS, &room) != 0 || room.rlim_cur == RLIM_INFINITY || room.rlim_cur >= needed)
        return true;
    snprintf(text, size,
             "the address space is limited to %.0f MiB (ulimit -v), but %.0f MiB are needed: %.0f MiB for "
             "arenas and messages, %.0f MiB for each of %zu OpenBLAS threads, %.0f MiB for the program; "
             "raise the limit%s",
             (double)room.rlim_cur / mib, (double)needed / mib, (double)bytes / mib,
             (double)buffer_bytes / mib, threads, (double)program_bytes / mib,
             threads > 1 ? ", or set OPENBLAS_NUM_THREADS=1" : "");
    return false;
}

void burst_blas_setup(void)
{
    (void)threads_started(); /* before their number changes */
    choose_kernels();
    if (!getenv("OPENBLAS_NUM_THREADS"))
        openblas_set_num_threads(1);
}
