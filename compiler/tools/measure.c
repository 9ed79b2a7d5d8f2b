/* measure.c: programs that measure this machine: their text, how they are run, and what they print. */
#include "tools/measure.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the text ---- */

static void emit_kernels(const Program *p, Text *out)
{
    const Kernels k = kernels_of(p);
    if (p->train.deterministic)
        text_add(out, "#define PLAN_DETERMINISTIC 1\n");
    text_printf(out, "#define BURST_FORM %d\n#include \"burst_gpu.h\"\n#include \"cuda_attention.cuh\"\n\n",
                k.form);
    for (int m = 0; m < p->mask_count; m++)
        mask_emit_cuda(p, m, out);
    text_printf(out, "#include \"%s\"\n#include \"%s\"\n\n", k.forward, k.backward);
}

static void emit_host_masks(const Program *p, Text *out)
{
    text_add(out, "#include \"burst_rt.h\"\n#include \"burst_mask.h\"\n\n");
    for (int m = 0; m < p->mask_count; m++)
        mask_emit_c(p, m, out);
}

void measure_emit(const MeasureJob *j, Text *out)
{
    const bool device = j->program->target->device_memory;
    text_add(out,
             "/* Written by burstc " BURSTC_VERSION ": measures attention and what else a step does. */\n");
    if (j->program->model.softcap > 0)
        text_printf(out, "#define PLAN_SOFTCAP ((float)%.9g)\n", j->program->model.softcap);
    if (device)
        emit_kernels(j->program, out);
    else
        emit_host_masks(j->program, out);
    text_printf(out, "#define MEASURE_MACHINE %d\n#define MEASURE_SECONDS %g\n#define MEASURE_CASES(X)",
                j->machine, j->seconds);
    for (int i = 0; i < j->cases; i++)
        text_printf(out, " \\\n    X(%d, %s%d, %d, %d, %d)", j->at[i].head_dim,
                    device ? "PlanMask" : "plan_mask", j->at[i].mask, j->at[i].tokens, j->at[i].heads,
                    j->at[i].kv_heads);
    text_printf(out, "\n#include \"%s\"\n", device ? "burst_measure_cuda.cuh" : "burst_measure_host.h");
}

/* ---- what it prints ---- */

/* A line of the output: a name and positive numbers. */
typedef struct Figure { const char *name; size_t at; int numbers; double lo, hi; unsigned of; } Figure;
/* where it is printed: of the whole machine; of processors, of GPUs, of several */
enum { MACHINE = 1, HOST = 2, DEVICE = 4, LINKED = 8 };
#define AT(member) offsetof(Measured, member)
static const Figure figures[] = {
    {"product", AT(product), 1, 1e6, 1e18, 0},
    {"passes", AT(passes), 1, 1e6, 1e16, MACHINE},
    {"norms", AT(norms), 1, 1e6, 1e16, MACHINE},
    {"copy", AT(copy), 1, 1e6, 1e16, MACHINE},
    {"spread", AT(spread), 1, 1, 1e9, MACHINE | HOST},
    {"pcie", AT(pcie), 2, 1e6, 1e15, MACHINE | DEVICE},
    {"link auto", AT(link[LINK_AUTO]), 3, 1e-9, 1e15, MACHINE | DEVICE | LINKED},
    {"link nccl", AT(link[LINK_NCCL]), 3, 1e-9, 1e15, MACHINE | DEVICE | LINKED},
};
#undef AT

typedef struct Reader { Arena *arena; const char *at; int line; } Reader;

/* The rest of the next line if it begins with the words; NULL otherwise. */
static char *line_of(Reader *r, const char *words)
{
    const size_t n = strlen(words);
    const char *end = strchr(r->at, '\n');
    if (!end || strncmp(r->at, words, n) != 0 || (r->at[n] != ' ' && r->at[n] != '\n'))
        return NULL;
    char *rest = arena_copy(r->arena, r->at + n, (size_t)(end - r->at) - n);
    r->at = end + 1;
    r->line++;
    return rest;
}

/* So many numbers from lo to hi, and nothing behind them. */
static bool numbers_of(const char *text, int n, double lo, double hi, double *out)
{
    for (int i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(text, &end);
        if (end == text || !(out[i] >= lo && out[i] <= hi))
            return false;
        text = end;
    }
    return !*text;
}

static bool read_device(Reader *r, Measured *out)
{
    const char *gpus = line_of(r, "gpus"), *device = gpus ? line_of(r, "device") : NULL;
    double count;
    char *end;
    if (!device || !numbers_of(gpus, 1, 1, 1024, &count) || count != floor(count))
        return false;
    out->gpus = (int)count;
    out->memory = strtod(device, &end);
    if (end == device || !(out->memory >= 1e6 && out->memory <= 1e15))
        return false;
    snprintf(out->device, sizeof out->device, "%s", end + strspn(end, " "));
    for (char *c = out->device; *c; c++)
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    return true;
}

static bool read_attention(Reader *r, int i, MeasuredAttention *out)
{
    double x[7];
    const char *line = line_of(r, arena_printf(r->arena, "attention %d", i));
    if (!line || !numbers_of(line, 7, 0, 1e18, x) || !(x[1] > 0 && x[4] > 0))
        return false;
    *out = (MeasuredAttention){x[0], {x[1], x[4]}, {x[2], x[5]}, {x[3], x[6]}};
    return true;
}

static bool read_figures(Reader *r, const MeasureJob *j, Measured *out, bool machine)
{
    const unsigned here = (j->machine ? MACHINE : 0) | (j->program->target->device_memory ? DEVICE : HOST) |
                          (out->gpus > 1 ? LINKED : 0);
    for (int i = 0; i < countof(figures); i++) {
        const Figure *f = &figures[i];
        if (!(f->of & MACHINE) == machine || f->of & ~here)
            continue;
        const char *line = line_of(r, f->name);
        if (!line || !numbers_of(line, f->numbers, f->lo, f->hi, (double *)((char *)out + f->at)))
            return false;
    }
    return true;
}

const char *measure_read(Arena *a, const char *text, const MeasureJob *j, Measured *out)
{
    Reader r = {a, text, 1};
    *out = (Measured){0};
    bool good = line_of(&r, "burst-measure 1") && read_device(&r, out) && read_figures(&r, j, out, false);
    for (int i = 0; good && i < j->cases; i++)
        good = read_attention(&r, i, &out->attention[i]);
    good = good && read_figures(&r, j, out, true) && line_of(&r, "end") && !*r.at;
    return good ? NULL
                : arena_printf(a, "line %d of what the measuring program printed is not as expected: '%.*s'",
                               r.line, (int)strcspn(r.at, "\n") < 200 ? (int)strcspn(r.at, "\n") : 200, r.at);
}

/* ---- a folder of its own ---- */

static const char *make_folder(Arena *a, Diags *d)
{
    char *folder = arena_printf(a, "%s/burstc-XXXXXX", environment("TMPDIR", "/tmp"));
    if (mkdtemp(folder))
        return folder;
    diag_error(d, (Span){0}, "cannot make a folder '%s': %s", folder, strerror(errno));
    return NULL;
}

static bool write_into(Diags *d, const char *path, Text *t)
{
    const bool written = text_write_file(t, path) == 0;
    if (!written)
        diag_error(d, (Span){0}, "cannot write '%s': %s", path, strerror(errno));
    text_free(t);
    return written;
}

static void remove_folder(Arena *a, const char *folder)
{
    run_command(arena_printf(a, "rm -rf %s", shell_word(a, folder)));
}

/* ---- running it ---- */

static bool found(Arena *a, const char *command)
{
    return run_command(arena_printf(a, "command -v %s >/dev/null 2>&1", command)) == 0;
}

/* nvcc where its installer puts it, if it is in no folder of $PATH. */
static bool find_compiler(Arena *a, Diags *d, const Target *t)
{
    static const char installed[] = "/usr/local/cuda/bin/nvcc";
    const char *compiler = environment(t->build.variable, t->build.compiler);
    if (found(a, compiler))
        return true;
    if (t->device_memory && !getenv(t->build.variable) && access(installed, X_OK) == 0)
        return setenv(t->build.variable, installed, 1) == 0;
    diag_error(d, (Span){0},
               "no '%s' here, which compiles the program that measures this machine: install %s, or set %s "
               "to the compiler's path",
               compiler, t->device_memory ? "the CUDA toolkit (12 or later)" : "a C compiler",
               t->build.variable);
    return false;
}

/* That the libraries are there which the link file names by their paths. */
static bool find_libraries(Arena *a, Diags *d, const MeasureJob *j)
{
    size_t n;
    const char *file = j->program->target->build.link_file;
    char *text = read_file(a, arena_printf(a, "%s/%s", j->share, file), &n), *save = NULL;
    if (!text)
        diag_error(d, (Span){0}, "'%s/%s' is missing: this burstc was built without the runtime for %ss%s",
                   j->share, file, j->program->target->device,
                   j->program->target->device_memory ? ", which needs nvcc and NCCL where CMake runs" : "");
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        const char *path = *line == '.' ? arena_printf(a, "%s/%s", j->share, line) : line;
        if (*path != '/' || access(path, R_OK) == 0)
            continue;
        diag_error(d, (Span){0}, "the library '%s' is missing: '%s/%s' names what programs are linked with",
                   path, j->share, file);
        return false;
    }
    return text != NULL;
}

static bool compile_and_run(Arena *a, Diags *d, const MeasureJob *j, const char *folder, const char **printed)
{
    const char *source = arena_printf(a, "%s/measure%s", folder, j->program->target->suffix),
               *program = arena_printf(a, "%s/measure", folder);
    const char *output = arena_printf(a, "%s/output", folder),
               *build = build_command(a, j->share, j->program, source, program);
    Text t = {0};
    size_t n;
    measure_emit(j, &t);
    if (!write_into(d, source, &t))
        return false;
    if (run_command(build) != 0) {
        diag_error(d, (Span){0}, "the program that measures this machine does not compile or link: %s",
                   build);
        return false;
    }
    const int code = run_command(arena_printf(a, "%s >%s", shell_word(a, program), shell_word(a, output)));
    *printed = read_file(a, output, &n);
    if (code == 0 && *printed)
        return true;
    diag_error(d, (Span){0}, "the program that measures this machine ended with %d; it is kept: %s", code,
               program);
    return false;
}

bool measure_run(Arena *a, Diags *d, const MeasureJob *j, Measured *out)
{
    const char *folder, *printed, *wrong;
    if (!find_compiler(a, d, j->program->target) || !find_libraries(a, d, j) ||
        !(folder = make_folder(a, d)) || !compile_and_run(a, d, j, folder, &printed))
        return false;
    wrong = measure_read(a, printed, j, out);
    if (wrong)
        diag_error(d, (Span){0}, "%s; it is kept: %s/measure", wrong, folder);
    else
        remove_folder(a, folder);
    return !wrong;
}

/* ---- programs of masks ---- */

static void print_model(const MeasureModel *m, Text *out)
{
    for (int i = 0; i < m->n; i++)
        text_printf(out, "mask measured%d = %s;\n", i, m->masks[i]);
    text_printf(out,
                "model measured { layers %d; hidden 64; heads %d; kv_heads %d; head_dim %d; ffn swiglu 64; "
                "vocab 64; }\n",
                m->n, m->heads, m->kv_heads, m->head_dim);
    text_add(out, "attention { default measured0;");
    for (int i = 1; i < m->n; i++)
        text_printf(out, " layers %d: measured%d;", i, i);
    text_printf(out, " }\nsequence %lld;\n", (long long)m->tokens);
}

const Program *measure_program(Arena *a, Diags *d, const char *share, const MeasureModel *m)
{
    const char *folder = make_folder(a, d);
    Text topo = {0}, model = {0};
    if (!folder)
        return NULL;
    const FrontEnd in = {.topo_path = arena_printf(a, "%s/machine.topo", folder),
                         .model_path = arena_printf(a, "%s/masks.burst", folder),
                         .stock_dir = share};
    if (strcmp(m->arch, targets[TARGET_C].device) == 0)
        text_add(&topo, "cluster machine { nodes 1 { cpus 1 of cpu; } }\n");
    else
        text_printf(&topo,
                    "device machine { arch %s; memory 1 GB; matmul bf16 1 TFLOP/s; }\ncluster machine { "
                    "nodes 1 { gpus %d of machine; } }\n",
                    m->arch, m->gpus);
    print_model(m, &model);
    const Program *p = write_into(d, in.topo_path, &topo) && write_into(d, in.model_path, &model)
                           ? front_end(a, d, &in)
                           : NULL;
    remove_folder(a, folder);
    return p;
}

/* ---- the GPUs of this machine ---- */

int measure_gpus(Arena *a, Diags *d, const char **arch)
{
    int gpus = 0, major = 0, minor = 0;
    FILE *f = popen("nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null", "r");
    char line[64];
    while (f && fgets(line, sizeof line, f)) {
        int x, y;
        if (sscanf(line, "%d.%d", &x, &y) != 2)
            continue;
        if (gpus++ && (x != major || y != minor)) {
            diag_error(
                d, (Span){0},
                "GPUs of compute capability %d.%d and %d.%d are in this machine; only one kind is measured",
                major, minor, x, y);
            pclose(f);
            return -1;
        }
        major = x, minor = y;
    }
    if (!f || pclose(f) != 0)
        return 0;
    if (gpus && (major < 8 || major > 99 || minor < 0 || minor > 9)) {
        diag_error(d, (Span){0},
                   "the GPUs here have compute capability %d.%d; programs need 8.0 (sm_80) or later", major,
                   minor);
        return -1;
    }
    *arch = arena_printf(a, "sm_%d%d%s", major, minor, major == 9 && minor == 0 ? "a" : "");
    return gpus;
}
