/* probe.c: `burstc probe`: this machine's processors as a cluster of cpu devices; its GPUs: probe_gpu.c.
 *
 * Measured, on one core: a matrix product in registers and copying in memory. What remains is taken from them: attention as
 * the share of the matrix rate that the host kernels reach, links as what one rank copies from another's memory.
 * All nodes of the cluster are this machine, so they divide its cores and its memory.
 */
#include "measure.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Rates of runtime/host's kernels over that of this file's matrix product, on the machine it was written on. */
static const double blas_share = 0.85, attention_forward_share = 0.43, attention_backward_share = 0.44;
static const double link_latency_us = 2; /* two cores hand over a flag */

enum { ROWS = 6, WIDTH = 16, DEPTH = 256 };
typedef float Lanes __attribute__((vector_size(WIDTH * sizeof(float)), aligned(WIDTH * sizeof(float)), may_alias));

#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* out[ROWS][2 * WIDTH] += a[DEPTH][ROWS] b[DEPTH][2 * WIDTH], `times` over: the inner loop of a matrix product. */
FOR_EACH_PROCESSOR
static void multiply(int times, const float *a, const Lanes *b, Lanes *out)
{
    Lanes sum[ROWS][2] = {0};
    for (int t = 0; t < times; t++)
        for (int k = 0; k < DEPTH; k++)
            for (int r = 0; r < ROWS; r++) {
                Lanes x = a[k * ROWS + r] - (Lanes){0};
                sum[r][0] += x * b[2 * k];
                sum[r][1] += x * b[2 * k + 1];
            }
    memcpy(out, sum, sizeof sum);
}

/* The best of several short runs: others may use the machine meanwhile. */
enum { RUNS = 5 };

static double matrix_rate(void)
{
    enum { TIMES = 2000 };
    static float a[DEPTH * ROWS];
    static Lanes b[DEPTH * 2], out[ROWS * 2];
    for (int i = 0; i < DEPTH * ROWS; i++)
        a[i] = 1e-3f * (float)(i % 7);
    for (int i = 0; i < DEPTH * 2; i++)
        for (int j = 0; j < WIDTH; j++)
            b[i][j] = 1e-3f * (float)((i + j) % 5);
    double best = 0;
    for (int run = 0; run < RUNS; run++) {
        double start = seconds();
        multiply(TIMES, a, b, out);
        double rate = 2.0 * ROWS * 2 * WIDTH * DEPTH * TIMES / (seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Bytes copied a second, beyond the caches. */
static double copy_rate(void)
{
    enum { BYTES = 64 << 20 };
    char *from = xmalloc(BYTES), *to = xmalloc(BYTES);
    memset(from, 1, BYTES);
    memset(to, 2, BYTES);
    double best = 0;
    for (int run = 0; run < RUNS; run++) {
        double start = seconds();
        memcpy(to, from, BYTES);
        double rate = BYTES / (seconds() - start);
        best = rate > best && to[run] == 1 ? rate : best;
    }
    free(from);
    free(to);
    return best;
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
    double memory = (double)pages * (double)page / (1 << 20), copy = copy_rate(), matrix = matrix_rate() * blas_share;
    int ranks = nodes * devices, node_cores = cores / nodes > 0 ? cores / nodes : 1;
    text_printf(out, "# Written by `burstc probe`: %d core%s, one device a rank.\n", cores, cores == 1 ? "" : "s");
    print_cluster(out, nodes, devices, copy);
    text_printf(out, "device core {\n  arch cpu; memory %.0f MiB; hbm %.1f GB/s;\n  matmul fp32 %.1f GFLOP/s;\n",
                memory / ranks, 2 * copy / 1e9, matrix / 1e9);
    text_printf(out, "  attention forward %.1f GFLOP/s; attention backward %.1f GFLOP/s;\n}\n",
                matrix * attention_forward_share / 1e9, matrix * attention_backward_share / 1e9);
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
