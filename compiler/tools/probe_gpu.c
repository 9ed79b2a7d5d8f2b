/* probe_gpu.c: `burstc probe` on a machine with GPUs: their rates, memory, links and network cards as a
 * cluster file.
 *
 * A program measures (measure.h); probe_attention.c has attention's rates. */
#include "tools/measure.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- attention ---- */
static const ProbeCase cases[] = {
    {"causal", 128, PROBE_LONG},
    {"causal and (q - k) mod 2 == 0", 128, ATTENTION_PARTIAL},
    {"window(8192)", 128, ATTENTION_KEYS},
    {"window(4096)", 128, ATTENTION_KEYS},
    {"window(2048)", 128, ATTENTION_KEYS},
    {"window(1024)", 128, ATTENTION_KEYS},
    {"window(512)", 128, ATTENTION_KEYS},
    {"causal", 64, ATTENTION_HEAD_DIM},
};
const ProbeCases probe_gpu_cases = {.n = countof(cases),
                                    .at = cases,
                                    .tokens = 32 << 10,
                                    .heads = 32,
                                    .kv_heads = 8,
                                    .seconds = 16,
                                    .unit_name = "TFLOP/s",
                                    .unit = 1e12};

/* ---- network cards, from their drivers ---- */

/* The number at the file's begin; 0: none. */
static double number_in(Arena *a, const char *path)
{
    size_t n;
    const char *text = read_file(a, path, &n);
    const double x = text ? strtod(text, NULL) : 0;
    return x > 0 && x < 1e9 ? x : 0;
}

static void add_card(Cards *c, double gigabits)
{
    if (gigabits > c->gigabits)
        *c = (Cards){gigabits, 0};
    c->count += gigabits == c->gigabits && gigabits > 0;
}

/* InfiniBand and RoCE: the first port of each device. */
static void rdma_cards(Arena *a, const char *folder, Cards *c)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            add_card(c, number_in(a, arena_printf(a, "%s/%s/ports/1/rate", folder, e->d_name)));
    if (d)
        closedir(d);
}

/* Ethernet: interfaces of a device, not of a bridge or a container, that are up. */
static void ethernet_cards(Arena *a, const char *folder, Cards *c)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && access(arena_printf(a, "%s/%s/device", folder, e->d_name), F_OK) == 0)
            add_card(c, 1e-3 * number_in(a, arena_printf(a, "%s/%s/speed", folder, e->d_name)));
    if (d)
        closedir(d);
}

Cards probe_cards(Arena *a, const char *sys)
{
    Cards c = {0};
    rdma_cards(a, arena_printf(a, "%s/class/infiniband", sys), &c);
    if (!c.count)
        ethernet_cards(a, arena_printf(a, "%s/class/net", sys), &c);
    return c;
}

/* ---- the file ---- */

/* "NVIDIA H200" as a name of the language: h200. */
static const char *device_name(Arena *a, const char *device)
{
    const char *from = strncmp(device, "NVIDIA ", 7) == 0 ? device + 7 : device;
    char *name = arena_printf(a, "%s", from);
    int n = 0;
    for (; *from; from++)
        if (isalnum((unsigned char)*from))
            name[n++] = (char)tolower((unsigned char)*from);
        else if (n && name[n - 1] != '_')
            name[n++] = '_';
    while (n && name[n - 1] == '_')
        n--;
    name[n] = 0;
    return n && isalpha((unsigned char)name[0]) ? name : arena_printf(a, "gpu_%s", name);
}

static void print_links(const Measured *m, Text *out)
{
    static const char *const name[] = {"copy engines where GPUs are peers", "NCCL"};
    for (int i = 0; i < LINKS && m->gpus > 1; i++)
        text_printf(out, "# hops of 256 MiB by %s: %.1f GB/s, %.1f beside computing; of 16 KiB: %.1f us\n",
                    name[i], m->link[i].alone * 1e-9, m->link[i].beside * 1e-9, m->link[i].latency * 1e6);
    if (m->gpus == 1)
        text_add(out, "# one GPU: no link between GPUs was measured\n");
    text_printf(out,
                "# pinned memory: %.1f GB/s to a GPU; beside computing %.1f to it, %.1f from it, %.1f each "
                "way at once\n",
                m->pcie[0] * 1e-9, m->pcie[1] * 1e-9, m->pcie[2] * 1e-9, m->pcie[3] * 1e-9);
}

/* The share of its rate that computing loses beside a reduction. */
static double taken(const Measured *m)
{
    return fmin(fmax(0, 1 - 1 / m->reduction[2]), 0.9);
}

static void print_cluster(const Measured *m, const ProbedHost *h, const char *device, Text *out)
{
    const MeasuredLink *l = &m->link[LINK_AUTO];
    text_printf(out, "cluster here {\n  nodes %d { gpus %d of %s;", h->nodes, m->gpus, device);
    if (h->cards.count)
        text_printf(out, " nics %d of card;", h->cards.count);
    text_add(out, " }\n");
    if (m->gpus > 1)
        text_printf(out,
                    "  link gpus { bandwidth %.1f GB/s; sums %.1f GB/s alone %.1f GB/s taking %.3f; latency "
                    "%.1f us; }\n",
                    l->beside * 1e-9, m->reduction[1] * 1e-9, m->reduction[0] * 1e-9, taken(m),
                    l->latency * 1e6);
    text_add(out, "}\n");
    if (h->cards.count)
        text_printf(out, "nic card { bandwidth %g Gb/s; } # as its driver says; not measured\n",
                    h->cards.gigabits);
}

/* Data sheets' dense bf16 rates in TFLOP/s, by the drivers' names of devices. */
static const struct { const char *name; double peak; } data_sheet[] = {
    {"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989}, {"H200 NVL", 835}, {"H200", 989}, {"GH200", 989},
    {"H800 PCIe", 756}, {"H800", 989},     {"H20", 148},  {"A100", 312},    {"A800", 312},
};

/* Empty if the data sheet is not known, or lower than the measured rate. */
static const char *peak_text(Arena *a, const Measured *m)
{
    for (int i = 0; i < countof(data_sheet); i++)
        if (strstr(m->device, data_sheet[i].name))
            return m->product * 1e-12 > data_sheet[i].peak
                       ? ""
                       : arena_printf(a, " peak %g TFLOP/s;", data_sheet[i].peak);
    return "";
}

void probe_gpu_print(Arena *a, const Program *p, const Measured *m, const ProbedHost *h, Text *out)
{
    const char *device = device_name(a, m->device), *arch = p->cluster.groups[0].device->arch;
    text_printf(out,
                "# Written by `burstc probe`: %d %s (%s).\n# Rates are medians of rounds in which products, "
                "attention and passes follow each other, as in a step.\n",
                m->gpus, m->device, arch);
    if (m->gpus > 1)
        text_printf(out,
                    "# They are the slowest GPU's: its products take %.3f times as long as the fastest "
                    "GPU's, causal attention %.3f forward and %.3f backward.\n",
                    m->apart[0], m->apart[1], m->apart[2]);
    probe_print_cases(&probe_gpu_cases, m, out);
    print_links(m, out);
    print_cluster(m, h, device, out);
    text_printf(out,
                "device %s {\n  arch %s; memory %.0f MiB; hbm %.1f GB/s; passes %.1f GB/s; norms %.1f "
                "GB/s;\n  matmul bf16 %.1f TFLOP/s; experts %.1f TFLOP/s;%s\n",
                device, arch, floor(m->memory / (1 << 20)), m->copy * 1e-9, m->passes * 1e-9, m->norms * 1e-9,
                m->product * 1e-12, m->experts * 1e-12, peak_text(a, m));
    probe_print_rates(a, p, &probe_gpu_cases, m, out);
    text_printf(out, "}\nhost { memory %.0f MiB; pcie %.1f GB/s both %.1f GB/s; cores %d; }\n",
                floor(h->memory / (1 << 20)), fmin(m->pcie[1], m->pcie[2]) * 1e-9, m->pcie[3] * 1e-9,
                h->cores);
}

/* ---- measuring ---- */

bool probe_gpus(Arena *a, Diags *d, const char *share, int gpus, const char *arch, ProbedHost h, Text *out)
{
    const Program *p = probe_program(a, d, share, &probe_gpu_cases, arch, gpus);
    Measured m;
    if (!p)
        return false;
    h.cards = probe_cards(a, "/sys");
    if (h.nodes > 1 && !h.cards.count) {
        diag_error(d, (Span){0},
                   "a cluster of several nodes requires a network card, but none is up on this machine; use "
                   "`burstc probe gpus` to measure this node alone");
        return false;
    }
    const MeasureJob j = probe_job(a, p, share, &probe_gpu_cases);
    if (!measure_run(a, d, &j, &m))
        return false;
    probe_gpu_print(a, p, &m, &h, out);
    return true;
}
