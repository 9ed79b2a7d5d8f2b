/* main.c: the driver. The pipeline is compile(), read top to bottom. */
#include "burst.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_DIAGNOSED = 1, EXIT_USAGE = 2, EXIT_INTERNAL = 3 };

typedef struct Options {
    const char *topo, *model, *output, *emit;
    const char **schedules;
    int schedule_count;
    bool explain, print_build;
    const char *command; /* as typed, for the emitted header */
    const char *share;   /* stock files, templates, headers of the runtime */
} Options;

static const char usage[] =
    "usage: burstc CLUSTER.topo MODEL.burst -o OUTPUT [options]\n"
    "       burstc probe [NODES DEVICES] [-o CLUSTER.topo]\n"
    "\n"
    "Writes a verified training program for the cluster and the model.\n"
    "  -o FILE.c            the program as C for CPUs; '-' is standard output\n"
    "  -o FILE.cu           the program as CUDA\n"
    "  -o FILE              the same, as the cluster's devices are, compiled ($CC or cc, $NVCC or nvcc)\n"
    "  --emit=FORM          instead: ast, mask, partition, schedule, plan, cost, trace, c or cuda, to -o or standard output\n"
    "  --schedule FILE      adds a .sched file; `schedule NAME;` in the layout chooses it\n"
    "  --explain            prints every candidate layout with what it loses by\n"
    "  --print-build        prints the command that compiles the program\n"
    "  --help, --version\n"
    "probe measures this machine's processors and writes a cluster of `cpu` devices.\n"
    "Exit status: 0, 1 after an error in the input, 2 after one in the command, 3 after a fault of burstc.\n";

/* ---- options ---- */

static int usage_error(const char *fmt, const char *what)
{
    fputs("burstc: error: ", stderr);
    fprintf(stderr, fmt, what);
    fputs("\nburstc: note: `burstc --help` lists the options\n", stderr);
    return EXIT_USAGE;
}

/* The folder with stock files: beside the program's, unless BURSTC_SHARE names it. */
static const char *share_folder(Arena *a)
{
    const char *given = getenv("BURSTC_SHARE");
    if (given)
        return given;
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        return "/usr/local/share/burstc";
    path[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (slash)
            *slash = 0;
    }
    return arena_printf(a, "%s/share/burstc", path);
}

/* One word of a shell's command line. Quoted where it must be, and never with a sign of C's comments in it, so that the
 * command can be copied from the emitted text. */
static void add_word(Text *t, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
    if (*word && !word[strspn(word, plain)]) {
        text_add(t, word);
        return;
    }
    text_add(t, "'");
    for (const char *s = word; *s; s++) {
        bool parted = (s[0] == '*' && s[1] == '/') || (s[0] == '/' && s[1] == '*');
        if (*s == '\'')
            text_add(t, "'\\''");
        else
            text_printf(t, parted ? "%c''" : "%c", *s);
    }
    text_add(t, "'");
}

static const char *word_text(Arena *a, const char *word)
{
    Text t = {0};
    add_word(&t, word);
    char *copy = arena_copy(a, t.at, t.n);
    text_free(&t);
    return copy;
}

static const char *command_text(Arena *a, int argc, char **argv)
{
    const char *command = "burstc";
    for (int i = 1; i < argc; i++)
        command = arena_printf(a, "%s %s", command, word_text(a, argv[i]));
    return command;
}

/* The value of `name value` or `name=value`; moves past it. NULL: another option. */
static const char *option_value(const char *name, int argc, char **argv, int *i)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0)
        return NULL;
    if (argv[*i][n] == '=' && n > 2)
        return argv[*i] + n + 1;
    return argv[*i][n] == 0 && *i + 1 < argc ? argv[++*i] : NULL;
}

static int parse_options(Arena *a, int argc, char **argv, Options *o)
{
    o->schedules = NEW_ARRAY(a, const char *, argc);
    for (int i = 1; i < argc; i++) {
        const char *value;
        if ((value = option_value("-o", argc, argv, &i)))
            o->output = value;
        else if ((value = option_value("--emit", argc, argv, &i)))
            o->emit = value;
        else if ((value = option_value("--schedule", argc, argv, &i)))
            o->schedules[o->schedule_count++] = value;
        else if (strcmp(argv[i], "--explain") == 0)
            o->explain = true;
        else if (strcmp(argv[i], "--print-build") == 0)
            o->print_build = true;
        else if (argv[i][0] == '-' && argv[i][1])
            return usage_error("unknown option or missing value: '%s'", argv[i]);
        else if (!o->topo)
            o->topo = argv[i];
        else if (!o->model)
            o->model = argv[i];
        else
            return usage_error("one cluster and one model, not also '%s'", argv[i]);
    }
    if (!o->model)
        return usage_error("%s", "a cluster (.topo) and a model (.burst) are needed");
    if (!o->output && !o->emit && !o->explain && !o->print_build)
        return usage_error("%s", "nothing to write: give -o FILE, --emit=FORM or --explain");
    return 0;
}

/* ---- building the program ---- */

/* Flags that link the runtime, one a line, written when burstc was built. Those that begin with a dot are relative. */
static const char *link_flags(Arena *a, const Options *o, bool cuda)
{
    size_t n;
    char *text = read_file(a, arena_printf(a, "%s/%s", o->share, cuda ? "link_cuda.txt" : "link.txt"), &n), *save = NULL;
    const char *host = " -lburst_rt -lopenblas -ljansson -lz -lm -lpthread";
    const char *flags = text ? "" : cuda ? arena_printf(a, " -lburst_rt_cuda%s -lnccl -lcublasLt", host) : host;
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        flags = arena_printf(a, "%s %s", flags, word_text(a, *line == '.' ? arena_printf(a, "%s/%s", o->share, line) : line));
    return flags;
}

/* nvcc for the architecture of the cluster's devices; the host compiler's warnings are fatal there too. */
static const char *cuda_command(Arena *a, const Options *o, const Program *p, const char *source, const char *program)
{
    const char *nvcc = getenv("NVCC"), *arch = p->cluster.groups[0].device->arch;
    const char *number = strncmp(arch, "sm_", 3) == 0 ? arch + 3 : "90a";
    return arena_printf(a, "%s -std=c++17 -O3 -gencode arch=compute_%s,code=sm_%s -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror "
                        "%s %s -o %s%s", nvcc ? nvcc : "nvcc", number, number,
                        word_text(a, arena_printf(a, "-I%s/include", o->share)), word_text(a, source), word_text(a, program),
                        link_flags(a, o, true));
}

/* For a shell. $CC may be several words. */
static const char *build_command(Arena *a, const Options *o, const Program *p, const char *source, const char *program)
{
    const char *cc = getenv("CC");
    if (p->cuda)
        return cuda_command(a, o, p, source, program);
    return arena_printf(a, "%s -std=gnu17 -O2 -march=native -Wall -Wextra -Werror %s %s -o %s%s", cc ? cc : "cc",
                        word_text(a, arena_printf(a, "-I%s/include", o->share)), word_text(a, source), word_text(a, program),
                        link_flags(a, o, false));
}

static int run(const char *command)
{
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        fprintf(stderr, "burstc: error: cannot run /bin/sh: %s\n", strerror(errno));
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool names_binary(const char *output)
{
    return !ends_with(output, ".c") && !ends_with(output, ".cu") && strcmp(output, "-") != 0;
}

static int write_text(const Text *t, const char *path)
{
    if (text_write_file(t, path) == 0)
        return 0;
    fprintf(stderr, "burstc: error: cannot write '%s': %s\n", path, strerror(errno));
    return EXIT_DIAGNOSED;
}

/* The program, checked; as C or, through the C compiler, as a binary beside its source. */
static int write_program(Arena *a, Diags *d, const Options *o, const Found *f)
{
    const Program *p = plan_draft(f->plan)->program;
    const char *suffix = p->cuda ? ".cu" : ".c";
    bool binary = names_binary(o->output), standard = strcmp(o->output, "-") == 0;
    const char *source = binary ? arena_printf(a, "%s%s", o->output, suffix) : o->output;
    const char *program = binary ? o->output : arena_printf(a, "%.*s", (int)(strlen(o->output) - strlen(suffix)), o->output);
    const char *build = build_command(a, o, p, source, standard ? "train_plan" : program);
    EmitOptions e = {.command = o->command, .template_dir = arena_printf(a, "%s/templates", o->share), .build = build};
    Text t = {0};
    const char *include = arena_printf(a, "%s/include", o->share);
    int status = emit_program(a, d, f, &e, &t) != 0 || check_emitted_c(a, d, source, &t, include, p->cuda) != 0 ? EXIT_DIAGNOSED : 0;
    if (status == 0)
        status = write_text(&t, source);
    text_free(&t);
    if (status == 0 && binary && run(build) != 0) {
        diag_error(d, (Span){0}, "the C compiler failed: %s", build);
        status = EXIT_DIAGNOSED;
    }
    return status;
}

/* ---- forms ---- */

static void form_mask(const Found *f, Text *out)
{
    const Program *p = plan_draft(f->plan)->program;
    for (int m = 0; m < p->mask_count; m++)
        print_mask(p, m, out);
}

static void form_partition(const Found *f, Text *out)
{
    print_partition(plan_draft(f->plan)->partition, out);
}

static void form_schedule(const Found *f, Text *out)
{
    print_schedule(plan_draft(f->plan)->forward, out);
    print_schedule(plan_draft(f->plan)->backward, out);
}

static void form_plan(const Found *f, Text *out)
{
    print_plan(f->plan, out);
}

static void form_cost(const Found *f, Text *out)
{
    print_cost(f->plan, &f->cost, out);
}

/* The predicted step, for Perfetto. */
static void form_trace(const Found *f, Text *out)
{
    Arena *a = arena_new();
    print_trace(a, f->plan, out);
    arena_free(a);
}

static const struct Form { const char *name; void (*print)(const Found *f, Text *out); } forms[] = {
    {"mask", form_mask},         {"partition", form_partition}, {"schedule", form_schedule},
    {"plan", form_plan},         {"cost", form_cost},           {"trace", form_trace},
};

static const struct Form *find_form(const char *name)
{
    for (int i = 0; i < countof(forms); i++)
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    return NULL;
}

static bool form_exists(const char *name)
{
    return !name || strcmp(name, "ast") == 0 || strcmp(name, "c") == 0 || strcmp(name, "cuda") == 0 || find_form(name);
}

/* ---- the pipeline ---- */

static int print_form(const Options *o, const Found *f)
{
    Text t = {0};
    find_form(o->emit)->print(f, &t);
    int status = write_text(&t, o->output ? o->output : "-");
    text_free(&t);
    return status;
}

static int print_tree(Arena *a, Diags *d, const Options *o, const FrontEnd *in)
{
    Text t = {0};
    print_ast(a, d, in, &t);
    int status = diags_errors(d) ? EXIT_DIAGNOSED : write_text(&t, o->output ? o->output : "-");
    text_free(&t);
    return status;
}

/* C and CUDA by name; all else, binaries and the forms before the program, as the cluster's devices are. */
static int target_of(const Options *o)
{
    if (o->emit ? strcmp(o->emit, "cuda") == 0 : o->output && ends_with(o->output, ".cu"))
        return TARGET_CUDA;
    if (o->emit ? strcmp(o->emit, "c") == 0 : o->output && ends_with(o->output, ".c"))
        return TARGET_C;
    return TARGET_CLUSTER;
}

static int compile(Arena *a, Diags *d, Options *o)
{
    FrontEnd in = {o->topo, o->model, o->share, o->schedules, o->schedule_count, target_of(o)};
    if (o->emit && strcmp(o->emit, "ast") == 0)
        return print_tree(a, d, o, &in);
    const Program *p = front_end(a, d, &in);
    if (!p)
        return EXIT_DIAGNOSED;
    Found f = search(a, d, p); /* mask, partition, schedule, slots, verify, cost of each candidate */
    if (!f.plan)
        return EXIT_DIAGNOSED;
    if (o->explain)
        fputs(f.table, stdout);
    if (o->print_build)
        printf("%s\n", build_command(a, o, p, p->cuda ? "train_plan.cu" : "train_plan.c", "train_plan"));
    if (o->emit && find_form(o->emit))
        return print_form(o, &f);
    if (o->emit && !o->output)
        o->output = "-";
    return o->output ? write_program(a, d, o, &f) : 0;
}

static int run_probe(int argc, char **argv)
{
    const char *output = "-";
    int number[2] = {1, 1}, numbers = 0;
    for (int i = 2; i < argc; i++) {
        char *end;
        long n = strtol(argv[i], &end, 10);
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            output = argv[++i];
        else if (*end == 0 && n > 0 && n <= 4096 && numbers < 2)
            number[numbers++] = (int)n;
        else
            return usage_error("probe takes two numbers, nodes and devices of a node, not '%s'", argv[i]);
    }
    Text t = {0};
    int status = probe(&t, number[0], number[1]) == 0 ? write_text(&t, output) : EXIT_INTERNAL;
    text_free(&t);
    return status;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts("burstc " BURSTC_VERSION);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "probe") == 0)
        return run_probe(argc, argv);
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Options o = {.share = share_folder(a), .command = command_text(a, argc, argv)};
    int status = parse_options(a, argc, argv, &o);
    if (status == 0 && !form_exists(o.emit))
        status = usage_error("--emit=%s is none of ast, mask, partition, schedule, plan, cost, trace, c, cuda", o.emit);
    if (status == 0)
        status = compile(a, d, &o);
    diags_print(d, stderr);
    arena_free(a);
    return status;
}
