/* probe.c: `burstc probe`: this machine's processors as a cluster of cpu devices; its GPUs: probe_gpu.c.
 *
 * Measured, on one core: a matrix product in registers and copying in memory. What remains is taken from them: attention as
 * the share of the matrix rate that the host kernels reach, links as what one rank copies from another's memory.
 * All nodes of the cluster are this machine, so they divide its cores and its memory.
 */
#include "tools/measure.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double link_latency_us = 2; /* two cores hand over a flag */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The inner loop of a matrix product, out[ROWS][2 LANES] += a[DEPTH][ROWS] b[DEPTH][2 LANES] `times` over, for processors that
 * have such vectors. One source for all widths would not do: vectors that a processor lacks go through memory. */
enum { ROWS = 6, DEPTH = 256, MOST_LANES = 16 };
#define MULTIPLY(name, lanes, processor)                                                                    \
    typedef float name##_lanes __attribute__((vector_size((lanes) * sizeof(float)), may_alias));            \
    processor static void name(int times, const float *a, const float *b_floats, float *out)                \
    {                                                                                                       \
        const name##_lanes *b = (const name##_lanes *)b_floats;                                             \
        name##_lanes sum[ROWS][2] = {0};                                                                    \
        for (int t = 0; t < times; t++)                                                                     \
            for (int k = 0; k < DEPTH; k++)                                                                 \
                _Pragma("GCC unroll 6") for (int r = 0; r < ROWS; r++) {                                    \
                    const name##_lanes x = a[k * ROWS + r] - (name##_lanes){0};                             \
                    sum[r][0] += x * b[2 * k];                                                              \
                    sum[r][1] += x * b[2 * k + 1];                                                          \
                }                                                                                           \
        memcpy(out, sum, sizeof sum);                                                                       \
    }

MULTIPLY(multiply_4, 4, )
#ifdef __x86_64__
MULTIPLY(multiply_8, 8, __attribute__((target("avx2,fma"))))
MULTIPLY(multiply_16, 16, __attribute__((target("avx512f,avx512dq"))))
#endif

/* shares: rates of runtime/host's kernels over that of this file's product, fitted to steps of examples/demo.burst on one machine with
 * AVX-512 and on the same with AVX2 alone: exponentials take longer beside wider products. Without AVX2 they are not measured. */
typedef struct Kernel {
    void (*multiply)(int times, const float *a, const float *b, float *out);
    int lanes;
    double products, forward, backward;
} Kernel;
static const Kernel kernels[] = {
#ifdef __x86_64__
    {multiply_16, 16, 0.85, 0.43 * 0.85, 0.44 * 0.85},
    {multiply_8, 8, 0.85, 0.60 * 0.85, 0.62 * 0.85},
#endif
    {multiply_4, 4, 0.85, 0.60 * 0.85, 0.62 * 0.85},
};

/* The widest that this processor has and programs are compiled for (BURST_MARCH). */
static const Kernel *kernel_here(void)
{
    const Kernel *k = kernels;
#ifdef __x86_64__
    const bool any = strcmp(BURST_MARCH, "native") == 0, v4 = any || strcmp(BURST_MARCH, "x86-64-v4") == 0;
    const bool v3 = v4 || strcmp(BURST_MARCH, "x86-64-v3") == 0;
    __builtin_cpu_init();
    if (!v4 || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq"))
        k++;
    if (k != kernels && (!v3 || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")))
        k++;
#endif
    return k;
}

/* The best of several short runs: others may use the machine meanwhile. */
enum { RUNS = 25 };
typedef struct Rate { double best; bool uncertain; } Rate;

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Uncertain where half of the runs took more than a fifth longer than the best one. */
static Rate rate_of(double work, double *took)
{
    qsort(took, RUNS, sizeof *took, by_size);
    return (Rate){work / took[0], took[RUNS / 2] > 1.2 * took[0]};
}

static Rate matrix_rate(const Kernel *kernel)
{
    enum { TIMES = 200 }; /* about a millisecond: on a busy machine some runs are not interrupted */
    static _Alignas(64) float a[DEPTH * ROWS], b[DEPTH * 2 * MOST_LANES], out[ROWS * 2 * MOST_LANES];
    double took[RUNS];
    for (int i = 0; i < DEPTH * ROWS; i++)
        a[i] = 1e-3f * (float)(i % 7);
    for (int i = 0; i < DEPTH * 2 * MOST_LANES; i++)
        b[i] = 1e-3f * (float)(i % 5);
    for (int run = 0; run < RUNS; run++) {
        const double start = seconds();
        kernel->multiply(TIMES, a, b, out);
        took[run] = seconds() - start;
    }
    return rate_of(2.0 * ROWS * 2 * kernel->lanes * DEPTH * TIMES, took);
}

/* Bytes copied a second, beyond the caches. */
static Rate copy_rate(void)
{
    enum { BYTES = 64 << 20 };
    char *from = xmalloc(BYTES), *to = xmalloc(BYTES);
    double took[RUNS];
    memset(from, 1, BYTES);
    memset(to, 2, BYTES);
    for (int run = 0; run < RUNS; run++) {
        const double start = seconds();
        memcpy(to, from, BYTES);
        took[run] = to[run] == 1 ? seconds() - start : 1e9;
    }
    free(from);
    free(to);
    return rate_of(BYTES, took);
}

static int usable_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static void print_cluster(Text *out, int nodes, int devices, double link)
{
    text_printf(out, "cluster here {\n  nodes %d { gpus %d of core;%s }\n", nodes, devices,
                nodes > 1 ? " nics 1 of loop;" : "");
    text_printf(out, "  link memory { bandwidth %.1f GB/s; latency %g us; }\n}\n", link / 1e9, link_latency_us);
    if (nodes > 1)
        text_printf(out, "nic loop { bandwidth %.1f Gb/s; latency %g us; } # the nodes are all on this machine\n",
                    link * 8 / 1e9, link_latency_us);
}

int probe(Text *out, int nodes, int devices)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int cores = usable_cores();
    if (pages <= 0 || page <= 0 || cores <= 0)
        return -1;
    const double memory = (double)pages * (double)page / (1 << 20);
    const Kernel *kernel = kernel_here();
    const Rate products = matrix_rate(kernel), copies = copy_rate();
    const double product = products.best, copy = copies.best;
    int ranks = nodes * devices, node_cores = cores / nodes > 0 ? cores / nodes : 1;
    text_printf(out, "# Written by `burstc probe`: %d core%s, one device a rank.\n", cores, plural(cores));
    if (products.uncertain || copies.uncertain) {
        static const char said[] = "the figures are uncertain: half of the repetitions took more than a fifth longer than the best, which counts; "
                                   "run probe again on an idle machine";
        text_printf(out, "# %s\n", said);
        fprintf(stderr, "burstc: note: %s\n", said);
    }
    print_cluster(out, nodes, devices, copy);
    text_printf(out, "device core {\n  arch cpu; memory %.0f MiB; hbm %.1f GB/s;\n  matmul fp32 %.1f GFLOP/s;\n",
                memory / ranks, 2 * copy / 1e9, product * kernel->products / 1e9);
    text_printf(out, "  attention forward %.1f GFLOP/s; attention backward %.1f GFLOP/s;\n}\n",
                product * kernel->forward / 1e9, product * kernel->backward / 1e9);
    text_printf(out, "host { memory %.0f MiB; pcie %.1f GB/s; cores %d; }\n", memory / nodes, copy / 1e9, node_cores);
    return 0;
}

bool probe_machine(Arena *a, Diags *d, const char *share, const ProbeOptions *o, Text *out)
{
    const int nodes = o->nodes ? o->nodes : 1;
    const char *arch = NULL;
    const int gpus = o->kind == PROBE_CPUS || o->devices ? 0 : measure_gpus(a, d, &arch);
    if (gpus < 0)
        return false;
    if (gpus > 0) {
        const ProbedHost h = {.nodes = nodes, .cores = usable_cores(), .memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)};
        return probe_gpus(a, d, share, gpus, arch, h, out);
    }
    if (o->kind == PROBE_GPUS)
        diag_error(d, (Span){0}, "nvidia-smi lists no GPU here; `burstc probe cpus` describes the processors");
    else if (probe(out, nodes, o->devices ? o->devices : 1) == 0)
        return true;
    else
        diag_error(d, (Span){0}, "this machine does not say how much memory and how many processors it has");
    return false;
}
