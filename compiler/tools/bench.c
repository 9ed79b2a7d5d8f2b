/* bench.c: `burstc bench`: measures attention under a model's masks, or under one mask, on this machine; on
 * a GPU if there is one. */
#include "tools/measure.h"
#include "tools/output.h"
#include "ir/kernels.h"

#include <string.h>

enum { SECONDS = 6, DIRECTIONS = 2 };
/* Used if neither the options nor a model say otherwise. */
typedef struct Defaults { int64_t tokens, heads, kv_heads, head_dim; } Defaults;
static const Defaults defaults[TARGETS] = {
    [TARGET_C] = {4 << 10, 4, 4, 128}, [TARGET_CUDA] = {32 << 10, 32, 8, 128}};

static bool is_model(const char *what)
{
    const size_t n = strlen(what);
    return n > 6 && strcmp(what + n - 6, ".burst") == 0;
}

/* Checks that the mask is a single expression that cannot end the statement around it. */
static bool check_mask(Diags *d, const char *mask)
{
    const size_t n = strcspn(mask, ";{}#\"\n\r");
    if (!mask[n])
        return true;
    diag_error(d, (Span){0}, "a mask must be one expression without %s, such as 'causal and q - k < 100'",
               mask[n] == '\n' || mask[n] == '\r' ? "a line's end" : "any of ; { } # \"");
    return false;
}

static const Program *program_of(Arena *a, Diags *d, const char *share, const BenchOptions *o,
                                 const Defaults *f, const char *arch)
{
    const MeasureModel m = {&o->what,         1, (int)f->heads, (int)f->kv_heads,
                            (int)f->head_dim, 1, f->tokens,     arch};
    if (!is_model(o->what))
        return check_mask(d, o->what) ? measure_program(a, d, share, &m) : NULL;
    const char *full = "full";
    const MeasureModel any = {&full, 1,         (int)f->heads, (int)f->kv_heads, (int)f->head_dim,
                              1,     f->tokens, arch};
    const Program *machine = measure_program(a, d, share, &any);
    const FrontEnd in = {.model_path = o->what,
                         .stock_dir = share,
                         .target = &targets[TARGET_C],
                         .sequence = o->tokens};
    const Program *p = machine ? front_end(a, d, &in) : NULL;
    if (!p)
        return NULL;
    Program *both = memcpy(NEW(a, Program), p, sizeof *p);
    both->cluster = machine->cluster;
    both->target = machine->target;
    both->library = false; /* a program measures it */
    return both;
}

/* Sizes that the options leave out come from the model or the defaults. */
static bool sizes_of(Diags *d, const BenchOptions *o, Program *p)
{
    Model *m = &p->model;
    m->heads = o->heads ? (int)o->heads : m->heads;
    if (o->kv_heads)
        m->kv_heads = (int)o->kv_heads;
    else if (o->heads && m->heads % m->kv_heads)
        m->kv_heads = m->heads;
    m->head_dim = o->head_dim ? (int)o->head_dim : m->head_dim;
    m->value_dim = o->head_dim ? m->head_dim : m->value_dim;
    if (o->peers && m->value_dim != m->head_dim)
        diag_error(d, (Span){0},
                   "--peers requires values as wide as keys, and the model has head_dim %d and value_dim %d",
                   m->head_dim, m->value_dim);
    else if (m->heads % m->kv_heads)
        diag_error(d, (Span){0}, "heads %d is not a multiple of kv_heads %d", m->heads, m->kv_heads);
    else if (p->target->device_memory && !kernels_of(p).form)
        diag_error(d, (Span){0},
                   "GPU kernels require a head_dim that is a multiple of %d from %d to %d, not %d",
                   p->target->head_dim.step, p->target->head_dim.least, p->target->head_dim.most,
                   m->head_dim % p->target->head_dim.step ? m->head_dim : m->value_dim);
    else if (p->mask_count > MEASURE_MOST)
        diag_error(d, (Span){0}, "the model has %d masks; bench accepts at most %d", p->mask_count,
                   MEASURE_MOST);
    else if (p->sequence > 1 << 24)
        diag_error(d, (Span){0}, "%lld tokens are too many for bench; use fewer, such as --tokens 64Ki",
                   (long long)p->sequence);
    else
        return true;
    return false;
}

/* ---- PyTorch's kernels ---- */
enum { PEERS_MOST = 4 };
/* why: the reason it could not run; "": it ran */
typedef struct Peer { char name[32], why[128]; double seconds[DIRECTIONS]; } Peer;

static bool check_peers(Diags *d, const Program *p)
{
    static const char look[] =
        "python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' >/dev/null 2>&1";
    if (!p->target->device_memory)
        diag_error(d, (Span){0}, "--peers requires a GPU, but nvidia-smi lists none on this machine");
    else if (run_command(look) != 0)
        diag_error(d, (Span){0}, "--peers requires a python3 in $PATH that has PyTorch with CUDA");
    else
        return true;
    return false;
}

/* Measures PyTorch's kernels under one mask; returns their number. */
static int run_peers(Arena *a, const MeasureJob *j, int i, Peer *peer)
{
    const MeasureCase *c = &j->at[i];
    Text mask = {0};
    int n = 0;
    char line[256];
    mask_text(j->program->masks[c->mask].expr, j->program->tables, &mask);
    FILE *f = popen(arena_printf(a, "timeout 240 python3 %s %d %d %d %d %s 2>/dev/null",
                                 shell_word(a, arena_printf(a, "%s/bench_peers.py", j->share)), c->tokens,
                                 c->heads, c->kv_heads, c->head_dim, shell_word(a, mask.at)),
                    "r");
    while (f && n < PEERS_MOST && fgets(line, sizeof line, f)) {
        Peer *p = &peer[n];
        *p = (Peer){0};
        if (sscanf(line, "peer %31[A-Za-z0-9-] %lf %lf", p->name, &p->seconds[0], &p->seconds[1]) == 3 &&
            p->seconds[0] > 0 && p->seconds[1] > 0)
            n++;
        else if (sscanf(line, "none %31[A-Za-z0-9-]: %127[^\n]", p->name, p->why) == 2)
            n++;
    }
    const int status = f ? pclose(f) : -1;
    if (status != 0 && n < PEERS_MOST) {
        peer[n] = (Peer){.name = "PyTorch"};
        snprintf(peer[n++].why, sizeof peer->why, "%s/bench_peers.py %s", j->share,
                 status < 0 ? "did not start" : "ended early, or took over 240 s");
    }
    text_free(&mask);
    return n;
}

static void print_line(const MeasureJob *j, const Measured *m, int i, int b, Text *out)
{
    static const char *const direction[] = {"forward", "backward"};
    const MeasureCase *c = &j->at[i];
    const MeasuredAttention *x = &m->attention[i];
    const double unit = j->program->target->device_memory ? 1e-12 : 1e-9;
    const int width = b ? 6 * c->head_dim + 4 * c->value_dim : 2 * (c->head_dim + c->value_dim);
    const double flops = width * x->pairs * c->heads, rate = flops / x->seconds[b];
    text_printf(out, "%-9s %10.3f %9.1f %9.1f %% %10.0f", direction[b], 1e3 * x->seconds[b], rate * unit,
                100 * rate / m->product, x->tiles[b]);
    if (x->cycles[b] > 0)
        text_printf(out, " %9.0f", x->cycles[b]);
    text_printf(out, "\n");
}

static void print_peer(const MeasuredAttention *x, double flops, const Peer *p, Text *out)
{
    if (p->why[0]) {
        text_printf(out, "none %s: %s\n", p->name, p->why);
        return;
    }
    text_printf(out, "%s: forward %.3f ms, %.1f TFLOP/s, %.2f times as long; backward %.3f ms, %.1f, %.2f\n",
                p->name, 1e3 * p->seconds[0], 1e-12 * flops / p->seconds[0], p->seconds[0] / x->seconds[0],
                1e3 * p->seconds[1], 2.5e-12 * flops / p->seconds[1], p->seconds[1] / x->seconds[1]);
}

static void print_table(Arena *a, const MeasureJob *j, const Measured *m, const BenchOptions *o, Text *out)
{
    const Program *p = j->program;
    const bool device = p->target->device_memory;
    const double all = (double)p->sequence * (double)p->sequence;
    const char *values = p->model.value_dim == p->model.head_dim
                             ? ""
                             : arena_printf(a, ", values of %d", p->model.value_dim);
    text_printf(
        out, "burst-bench 1\n%s: %lld token%s, %d head%s (%d of keys) of %d%s; a matrix product: %.1f %s\n",
        m->device, (long long)p->sequence, plural(p->sequence), p->model.heads, plural(p->model.heads),
        p->model.kv_heads, p->model.head_dim, values, m->product * (device ? 1e-12 : 1e-9),
        device ? "TFLOP/s" : "GFLOP/s, one core");
    for (int i = 0; i < j->cases; i++) {
        text_printf(out, "\n%s: %.0f pairs, %.2f %%\n", is_model(o->what) ? p->masks[i].text : o->what,
                    m->attention[i].pairs, 100 * m->attention[i].pairs / all);
        text_printf(out, "%-9s %10s %9s %11s %10s%s\n", "", "ms", device ? "TFLOP/s" : "GFLOP/s",
                    "of product", "tiles", device ? "  cycles a tile" : "");
        for (int b = 0; b < DIRECTIONS; b++)
            print_line(j, m, i, b, out);
        Peer peer[PEERS_MOST];
        const int n = o->peers ? run_peers(a, j, i, peer) : 0;
        for (int k = 0; k < n; k++)
            print_peer(&m->attention[i], 4 * m->attention[i].pairs * p->model.head_dim * p->model.heads,
                       &peer[k], out);
    }
}

bool bench(Arena *a, Diags *d, const char *share, const BenchOptions *o, Text *out)
{
    const char *arch = targets[TARGET_C].device;
    const int gpus = measure_gpus(a, d, &arch);
    Defaults f = defaults[gpus > 0 ? TARGET_CUDA : TARGET_C];
    f.tokens = o->tokens ? o->tokens : f.tokens;
    const Program *p = gpus < 0 ? NULL : program_of(a, d, share, o, &f, arch);
    if (!p)
        return false;
    if (check_imported(p, o->output) != 0)
        return false;
    Program *sized = memcpy(NEW(a, Program), p, sizeof *p);
    Measured m;
    if (!sizes_of(d, o, sized) || (o->peers && !check_peers(d, sized)))
        return false;
    MeasureCase *at = NEW_ARRAY(a, MeasureCase, sized->mask_count);
    for (int i = 0; i < sized->mask_count; i++)
        at[i] = (MeasureCase){i,
                              sized->model.head_dim,
                              sized->model.value_dim,
                              (int)sized->sequence,
                              sized->model.heads,
                              sized->model.kv_heads};
    const MeasureJob j = {sized, share, false, SECONDS, sized->mask_count, at};
    if (!measure_run(a, d, &j, &m))
        return false;
    print_table(a, &j, &m, o, out);
    return true;
}
