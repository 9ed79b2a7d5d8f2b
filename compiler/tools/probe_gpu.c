/* probe_gpu.c: `burstc probe` on a machine with GPUs: their rates, memory and links, and its cards, as a cluster file.
 *
 * A program measures (measure.h); burstc makes rates of it that the simulation turns back into the measured times: attention's
 * are changed until it does, each by the case that has most to say about it.
 */
#include "tools/measure.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- attention ---- */
enum { TOKENS = 32 << 10, HEADS = 32, KV_HEADS = 8, SECONDS = 16, ROUNDS = 24 };
static const int own_row = -1; /* the rates of long rows */

/* What is timed, and the rate that it decides: attention_forward and _backward, or a row of its kind. */
static const struct Case { const char *mask; int head_dim, kind; } cases[] = {
    {"causal", 128, own_row},
    {"causal and (q - k) mod 2 == 0", 128, ATTENTION_PARTIAL},
    {"window(4096)", 128, ATTENTION_KEYS},
    {"window(2048)", 128, ATTENTION_KEYS},
    {"window(1024)", 128, ATTENTION_KEYS},
    {"window(512)", 128, ATTENTION_KEYS},
    {"causal", 64, ATTENTION_HEAD_DIM},
};
enum { CASES = countof(cases), DIRECTIONS = 2 };

typedef struct Fit {
    Device device;
    AttentionRate row[CASES * DIRECTIONS];
    AttentionWork work[CASES][DIRECTIONS];
    double measured[CASES][DIRECTIONS]; /* FLOP/s of the tiles' pairs */
    int at[CASES][DIRECTIONS];          /* of row; own_row */
} Fit;

static double *rate_at(Fit *f, int i, int direction)
{
    double *own = direction ? &f->device.attention_backward : &f->device.attention_forward;
    return f->at[i][direction] == own_row ? own : &f->row[f->at[i][direction]].rate;
}

static double rate_now(const Fit *f, int i, int direction)
{
    return attention_rate(&f->device, direction, cases[i].head_dim, f->work[i][direction]);
}

/* The work and rate of each case as the simulation counts it; rows by falling keys, as cases are. */
static void start_fit(Arena *a, const Program *p, const Measured *m, Fit *f)
{
    Piece piece;
    const PosSet all = pos_run(&piece, 0, p->sequence);
    for (int i = 0; i < CASES; i++) {
        const PairWork w = mask_work(mask_map(a, p, p->layer_mask[i], 64, 64), &all, &all);
        for (int b = 0; b < DIRECTIONS; b++) {
            const AttentionWork x = f->work[i][b] = attention_work(p, b, w, p->sequence, p->sequence);
            f->measured[i][b] = (b ? 10 : 4) * x.pairs * cases[i].head_dim * HEADS / m->attention[i].seconds[b];
            f->at[i][b] = cases[i].kind == own_row ? own_row : f->device.rates++;
            *rate_at(f, i, b) = f->measured[i][b];
            if (f->at[i][b] == own_row)
                continue;
            AttentionRate *r = &f->row[f->at[i][b]];
            r->kind = (AttentionKind)cases[i].kind, r->backward = b;
            r->value = r->kind == ATTENTION_HEAD_DIM ? cases[i].head_dim : r->kind == ATTENTION_KEYS ? llround(x.pairs / x.rows) : 0;
        }
    }
    f->device.rate = f->row;
}

/* None is faster than long rows of full tiles, but for other head_dims. */
static void fit_rates(Fit *f)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CASES; i++)
            for (int b = 0; b < DIRECTIONS; b++) {
                double *rate = rate_at(f, i, b), most = b ? f->device.attention_backward : f->device.attention_forward;
                *rate *= f->measured[i][b] / rate_now(f, i, b);
                if (f->at[i][b] != own_row && cases[i].kind != ATTENTION_HEAD_DIM)
                    *rate = fmin(*rate, most);
            }
}

static void print_attention(const Fit *f, Text *out)
{
    static const char *const direction[] = {"forward", "backward"}, *const kind[] = {
#define X(id, name) name,
        ATTENTION_KINDS(X)
#undef X
    };
    text_printf(out, "  attention forward %.1f TFLOP/s; attention backward %.1f TFLOP/s;\n", f->device.attention_forward * 1e-12,
                f->device.attention_backward * 1e-12);
    for (int i = 0; i < f->device.rates; i++) {
        const AttentionRate *r = &f->row[i];
        text_printf(out, "%sattention %s %s", i % 2 ? " " : "  ", direction[r->backward], kind[r->kind]);
        if (r->value)
            text_printf(out, " %lld", (long long)r->value);
        text_printf(out, " %.1f TFLOP/s;%s", r->rate * 1e-12, i % 2 ? "\n" : "");
    }
}

/* What each case reached of its unmasked pairs, and of the product's rate. */
static void print_cases(const Measured *m, Text *out)
{
    text_printf(out, "# attention, %d tokens, %d heads (%d of keys): TFLOP/s of unmasked pairs\n", TOKENS, HEADS, KV_HEADS);
    for (int i = 0; i < CASES; i++) {
        const MeasuredAttention *x = &m->attention[i];
        const double flops = 4e-12 * x->pairs * cases[i].head_dim * HEADS;
        text_printf(out, "#   %-32s head_dim %3d  forward %5.1f  backward %5.1f\n", cases[i].mask, cases[i].head_dim, flops / x->seconds[0],
                    2.5 * flops / x->seconds[1]);
    }
}

/* ---- network cards, by what their drivers say ---- */

/* The number that the file begins with, 0: none. */
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
        text_printf(out, "# hops of 256 MiB by %s: %.1f GB/s, %.1f beside computing; of 16 KiB: %.1f us\n", name[i], m->link[i].alone * 1e-9,
                    m->link[i].beside * 1e-9, m->link[i].latency * 1e6);
    if (m->gpus == 1)
        text_add(out, "# one GPU: no link between GPUs was measured\n");
    text_printf(out, "# pinned memory to a GPU: %.1f GB/s, %.1f beside computing\n", m->pcie[0] * 1e-9, m->pcie[1] * 1e-9);
}

static void print_cluster(const Measured *m, const ProbedHost *h, const char *device, Text *out)
{
    const MeasuredLink *l = &m->link[LINK_AUTO];
    text_printf(out, "cluster here {\n  nodes %d { gpus %d of %s;", h->nodes, m->gpus, device);
    if (h->cards.count)
        text_printf(out, " nics %d of card;", h->cards.count);
    text_add(out, " }\n");
    if (m->gpus > 1)
        text_printf(out, "  link gpus { bandwidth %.1f GB/s; latency %.1f us; }\n", l->beside * 1e-9, l->latency * 1e6);
    text_add(out, "}\n");
    if (h->cards.count)
        text_printf(out, "nic card { bandwidth %g Gb/s; } # as its driver says; not measured\n", h->cards.gigabits);
}

void probe_print(Arena *a, const Program *p, const Measured *m, const ProbedHost *h, Text *out)
{
    const char *device = device_name(a, m->device), *arch = p->cluster.groups[0].device->arch;
    Fit f = {0};
    start_fit(a, p, m, &f);
    fit_rates(&f);
    text_printf(out, "# Written by `burstc probe`: %d %s (%s).\n# Rates are medians of rounds in which products, attention and passes follow each other, as in a step.\n",
                m->gpus, m->device, arch);
    print_cases(m, out);
    print_links(m, out);
    print_cluster(m, h, device, out);
    text_printf(out, "device %s {\n  arch %s; memory %.0f MiB; hbm %.1f GB/s; passes %.1f GB/s; norms %.1f GB/s;\n  matmul bf16 %.1f TFLOP/s;\n", device, arch,
                floor(m->memory / (1 << 20)), m->copy * 1e-9, m->passes * 1e-9, m->norms * 1e-9, m->product * 1e-12);
    print_attention(&f, out);
    text_printf(out, "}\nhost { memory %.0f MiB; pcie %.1f GB/s; cores %d; }\n", floor(h->memory / (1 << 20)), m->pcie[1] * 1e-9, h->cores);
}

/* ---- measuring ---- */

const Program *probe_program(Arena *a, Diags *d, const char *share, const char *arch, int gpus)
{
    const char *masks[CASES];
    for (int i = 0; i < CASES; i++)
        masks[i] = cases[i].mask;
    const MeasureModel m = {masks, CASES, HEADS, KV_HEADS, cases[0].head_dim, gpus, TOKENS, arch};
    return measure_program(a, d, share, &m);
}

MeasureJob probe_job(Arena *a, const Program *p, const char *share)
{
    MeasureCase *at = NEW_ARRAY(a, MeasureCase, CASES);
    for (int i = 0; i < CASES; i++)
        at[i] = (MeasureCase){p->layer_mask[i], cases[i].head_dim, TOKENS, HEADS, KV_HEADS};
    return (MeasureJob){p, share, true, SECONDS, CASES, at};
}

bool probe_gpus(Arena *a, Diags *d, const char *share, int gpus, const char *arch, ProbedHost h, Text *out)
{
    const Program *p = probe_program(a, d, share, arch, gpus);
    Measured m;
    if (!p)
        return false;
    h.cards = probe_cards(a, "/sys");
    if (h.nodes > 1 && !h.cards.count) {
        diag_error(d, (Span){0}, "no network card is up here, which several nodes need; `burstc probe gpus` describes this node alone");
        return false;
    }
    const MeasureJob j = probe_job(a, p, share);
    if (!measure_run(a, d, &j, &m))
        return false;
    probe_print(a, p, &m, &h, out);
    return true;
}
