/* probe.c: `burstc probe`: this machine's processors as a cluster of cpu devices. probe_gpu.c has its GPUs.
 *
 * A program measures one core (measure.h, templates/burst_measure_host.h); probe_attention.c has attention's
 * rates. A link's rate is that of copying from another rank's memory. All nodes of the cluster are this
 * machine, so they divide its cores and memory. */
#include "tools/measure.h"

#include <sched.h>
#include <unistd.h>

static const double link_latency_us = 2; /* time of handing a flag from core to core */
static const double most_spread = 1.2;

static const ProbeCase cases[] = {
    {"causal", 128, PROBE_LONG},
    {PROBED_MASK, 128, ATTENTION_PARTIAL},
    {"window(256)", 128, ATTENTION_KEYS},
    {"window(64)", 128, ATTENTION_KEYS},
    {"causal", 64, ATTENTION_HEAD_DIM},
    {"causal", 32, ATTENTION_HEAD_DIM},
};
const ProbeCases probe_cpu_cases = {.n = countof(cases),
                                    .at = cases,
                                    .tokens = 1 << 10,
                                    .heads = 2,
                                    .kv_heads = 1,
                                    .seconds = 2,
                                    .unit_name = "GFLOP/s",
                                    .unit = 1e9};

static int usable_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* A card for each core of a node: its ranks may all copy from other nodes at the same time. */
static void print_cluster(Text *out, int nodes, int devices, int cards, double link)
{
    text_printf(out, "cluster here {\n  nodes %d { gpus %d of core;", nodes, devices);
    if (nodes > 1)
        text_printf(out, " nics %d of loop;", cards);
    text_add(out, " }\n");
    text_printf(out, "  link memory { bandwidth %.1f GB/s; latency %g us; }\n}\n", link / 1e9,
                link_latency_us);
    if (nodes > 1)
        text_printf(out,
                    "nic loop { bandwidth %.1f Gb/s; latency %g us; } # the nodes are all on this machine\n",
                    link * 8 / 1e9, link_latency_us);
}

bool probe_uncertain(const Measured *m)
{
    return m->spread > most_spread;
}

static const char uncertain[] = "the figures are uncertain: half of the repetitions of a measurement took "
                                "over 20 % longer than the best; run probe again on an idle machine";

void probe_cpu_print(Arena *a, const Program *p, const Measured *m, const ProbedHost *h, int devices,
                     Text *out)
{
    const double mib = 1 << 20, copied = m->copy / 2;
    const int cores = h->cores / h->nodes > 0 ? h->cores / h->nodes : 1;
    text_printf(
        out,
        "# Written by `burstc probe`: %s, %d core%s, one device a rank. Rates are the best of one core.\n",
        m->device, h->cores, plural(h->cores));
    if (probe_uncertain(m))
        text_printf(out, "# %s\n", uncertain);
    probe_print_cases(&probe_cpu_cases, m, out);
    print_cluster(out, h->nodes, devices, devices < cores ? devices : cores, copied);
    text_printf(out,
                "device core {\n  arch cpu; memory %.0f MiB; hbm %.1f GB/s; passes %.1f GB/s; norms %.1f "
                "GB/s;\n  matmul fp32 %.1f GFLOP/s; experts %.1f GFLOP/s;\n",
                h->memory / mib / (h->nodes * devices), m->copy / 1e9, m->passes / 1e9, m->norms / 1e9,
                m->product / 1e9, m->experts / 1e9);
    probe_print_rates(a, p, &probe_cpu_cases, m, out);
    text_printf(out, "}\nhost { memory %.0f MiB; pcie %.1f GB/s; cores %d; }\n", h->memory / mib / h->nodes,
                copied / 1e9, cores);
}

static bool probe_cpus(Arena *a, Diags *d, const char *share, const ProbedHost *h, int devices, Text *out)
{
    const Program *p = probe_program(a, d, share, &probe_cpu_cases, targets[TARGET_C].device, 1);
    const MeasureJob j = p ? probe_job(a, p, share, &probe_cpu_cases) : (MeasureJob){0};
    Measured m;
    if (!p || !measure_run(a, d, &j, &m))
        return false;
    if (probe_uncertain(&m))
        fprintf(stderr, "burstc: note: %s\n", uncertain);
    probe_cpu_print(a, p, &m, h, devices, out);
    return true;
}

bool probe_machine(Arena *a, Diags *d, const char *share, const ProbeOptions *o, Text *out)
{
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const ProbedHost h = {.nodes = o->nodes ? o->nodes : 1, .cores = usable_cores(), .memory = memory};
    const char *arch = NULL;
    const int gpus = o->kind == PROBE_CPUS || o->devices ? 0 : measure_gpus(a, d, &arch);
    if (gpus < 0)
        return false;
    if (gpus > 0)
        return probe_gpus(a, d, share, gpus, arch, h, out);
    if (o->kind == PROBE_GPUS)
        diag_error(d, (Span){0},
                   "nvidia-smi lists no GPU on this machine; use `burstc probe cpus` to measure the "
                   "processors");
    else if (h.memory <= 0 || h.cores <= 0)
        diag_error(d, (Span){0}, "cannot determine this machine's memory and number of processors");
    else
        return probe_cpus(a, d, share, &h, o->devices ? o->devices : 1, out);
    return false;
}
