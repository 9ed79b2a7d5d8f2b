/* main.c: the command line: parses the request and runs it. */
#include "base/progress.h"
#include "import/import.h"
#include "tools/forms.h"
#include "tools/help.h"
#include "tools/output.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- options ---- */

static int see_help(void)
{
    fputs("\nburstc: note: `burstc --help` lists the options\n", stderr);
    return EXIT_USAGE;
}

static int usage_error(const char *fmt, const char *what)
{
    fputs("burstc: error: ", stderr);
    fprintf(stderr, fmt, what);
    return see_help();
}

/* The folder with stock files: next to the program's, unless BURSTC_SHARE is set. */
static const char *share_folder(Arena *a)
{
    const char *given = environment("BURSTC_SHARE", NULL);
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

static const char *command_text(Arena *a, int argc, char **argv)
{
    const char *command = "burstc";
    for (int i = 1; i < argc; i++)
        command = arena_printf(a, "%s %s", command, shell_word(a, argv[i]));
    return command;
}

/* The value of `name value` or `name=value`; moves past it. NULL: another option. A value that looks like an
 * option means that the value is missing; such a file can be named ./-name. */
static const char *option_value(const char *name, int argc, char **argv, int *i)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0)
        return NULL;
    if (argv[*i][n] == '=' && n > 2)
        return argv[*i] + n + 1;
    const char *next = argv[*i][n] == 0 && *i + 1 < argc ? argv[*i + 1] : "";
    return *next && (next[0] != '-' || !next[1]) ? argv[++*i] : NULL;
}

static int given_twice(const char *name) { return usage_error("'%s' is given twice", name); }

/* names: one per line, up to a '='; otherwise: the text if no name is near. */
static int unknown_name(Arena *a, const char *kind, const char *word, char *names, const char *otherwise)
{
    enum { MOST = 64 };
    const char *name[MOST], *near;
    char *save = NULL;
    int n = 0;
    for (char *at = strtok_r(names, "\n", &save); at && n < MOST; at = strtok_r(NULL, "\n", &save))
        name[n++] = at;
    near = nearest_name(arena_copy(a, word, strcspn(word, "=")), name, n);
    fprintf(stderr, "burstc: error: unknown %s '%s'", kind, word);
    if (near)
        fprintf(stderr, "; did you mean '%s'?", near);
    else
        fputs(otherwise, stderr);
    return see_help();
}

/* command: "-", or the command that argv belongs to. */
static int unknown_option(Arena *a, const char *command, int argc, char **argv, int i)
{
    static const char *const with_value[] = {"-o", "--emit", "--schedule", "--dump-after"};
    for (int v = 0; v < countof(with_value); v++) {
        if (strcmp(argv[i], with_value[v]) != 0)
            continue;
        fprintf(stderr, "burstc: error: '%s' requires a value", argv[i]);
        if (i + 1 < argc && argv[i + 1][0])
            fprintf(stderr, ", and '%s' looks like an option; write './%s' for a file of that name",
                    argv[i + 1], argv[i + 1]);
        return see_help();
    }
    return unknown_name(a, "option", argv[i], help_options(a, command), "");
}

static int check_explore(const Request *o)
{
    if (!o->output || (!ends_with(o->output, ".html") && !is_stream(o->output)))
        return usage_error("%s", "explore requires an output page: give -o FILE.html");
    return 0;
}

static int check_fit(const Request *o)
{
    return o->topo && o->model ? 0 : usage_error("%s", "fit requires a cluster (.topo) and a model (.burst)");
}

static int explore(Arena *a, Diags *d, const Program *p, const FrontEnd *in, Text *out);
static int run_fit(Arena *a, Diags *d, const Program *p, const FrontEnd *in, Text *out);

/* The commands other than writing programs: `burstc NAME ...`. */
typedef struct Action {
    const char *name, *writes; /* its output, which has no forms */
    /* operands in any order: the cluster ends in .topo and is optional */
    bool any_order;
    int (*check)(const Request *o);
    int (*run)(Arena *a, Diags *d, const Program *p, const FrontEnd *in, Text *out);
} Action;
static const Action actions[] = {{"explore", "a page", true, check_explore, explore},
                                 {"fit", "a table", false, check_fit, run_fit}};

static const Action *find_action(const char *name)
{
    for (int i = 0; name && i < countof(actions); i++)
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    return NULL;
}

static int check_action(const Request *o)
{
    const char *no = NULL;
    if (o->emit)
        no = "--emit";
    else if (o->explain)
        no = "--explain";
    else if (o->print_build)
        no = "--print-build";
    else if (o->dump_after)
        no = "--dump-after";
    else if (o->verify_each)
        no = "--verify-each";
    if (!o->model && o->action->any_order)
        return usage_error("%s requires a model (.burst)", o->action->name);
    if (no) {
        fprintf(stderr, "burstc: error: %s writes %s, which has no %s", o->action->name, o->action->writes,
                no);
        return see_help();
    }
    return o->action->check(o);
}

/* *twice: the name, if the option already had a value. */
static void take_once(const char **to, const char *value, const char *name, const char **twice)
{
    *twice = *to ? name : *twice;
    *to = value;
}

/* The cluster is the one that ends in .topo, where the other does not. */
static void order_operands(Request *o)
{
    if (!o->topo || !o->model || ends_with(o->topo, ".topo") || !ends_with(o->model, ".topo"))
        return;
    const char *model = o->topo;
    o->topo = o->model;
    o->model = model;
}

static int parse_options(Arena *a, Diags *d, int argc, char **argv, Request *o)
{
    o->schedules = NEW_ARRAY(a, const char *, argc);
    for (int i = 1; i < argc; i++) {
        const char *value, *wrong = NULL, *twice = NULL;
        if (strncmp(argv[i], "-W", 2) == 0)
            wrong = diags_option(d, argv[i]);
        else if ((value = option_value("-o", argc, argv, &i)))
            take_once(&o->output, value, "-o", &twice);
        else if ((value = option_value("--emit", argc, argv, &i)))
            take_once(&o->emit, value, "--emit", &twice);
        else if ((value = option_value("--schedule", argc, argv, &i)))
            o->schedules[o->schedule_count++] = value;
        else if ((value = option_value("--dump-after", argc, argv, &i)))
            take_once(&o->dump_after, value, "--dump-after", &twice);
        else if (strcmp(argv[i], "--verify-each") == 0)
            o->verify_each = true;
        else if (strcmp(argv[i], "--explain") == 0)
            o->explain = true;
        else if (strcmp(argv[i], "--print-build") == 0)
            o->print_build = true;
        else if (argv[i][0] == '-' && argv[i][1])
            return unknown_option(a, o->action ? o->action->name : "-", argc, argv, i);
        else if (!o->topo && (!o->action || !o->action->any_order || ends_with(argv[i], ".topo")))
            o->topo = argv[i];
        else if (!o->model)
            o->model = argv[i];
        else
            return usage_error(
                o->action && o->action->any_order
                    ? "expected one model and one cluster (a file that ends in .topo); unexpected '%s'"
                    : "expected one cluster and one model; unexpected '%s'",
                argv[i]);
        if (wrong || twice)
            return wrong ? usage_error("%s", wrong) : given_twice(twice);
    }
    order_operands(o);
    if (o->action)
        return check_action(o);
    if (!o->model)
        return usage_error("%s", "a cluster (.topo) and a model (.burst) are required");
    const bool prints = o->explain || o->print_build || o->dump_after || o->verify_each;
    if (!o->output && !o->emit && !prints)
        return usage_error("%s", "nothing to write: give -o FILE, --emit=FORM or --explain");
    return 0;
}

/* ---- forms ---- */

static bool form_exists(const char *name)
{
    return !name || strcmp(name, "ast") == 0 || target_named(name) || find_form(name);
}

/* Refuses a file name whose ending does not fit the form. */
static int check_suffix(const Request *o)
{
    const Form *form = o->emit ? find_form(o->emit) : NULL;
    if (o->output && ends_with(o->output, ".html") && !o->action)
        return usage_error("'%s' is an HTML page, which only `burstc explore` can write", o->output);
    if (is_picture(o->output) && (!form || !form->draw))
        return usage_error(
            "'%s' is a picture, which only --emit=mask, partition, schedule, cost or memory can write",
            o->output);
    return 0;
}

static int explore(Arena *a, Diags *d, const Program *p, const FrontEnd *in, Text *out)
{
    Found f = {0};
    if (in->topo_path)
        f = search_open(a, d, p);
    if (in->topo_path && (!f.plan || diags_errors(d) > 0)) /* a warning may be an error */
        return EXIT_DIAGNOSED;
    if (f.plan && !verify_step(a, d, plan_draft(f.plan)))
        return EXIT_INTERNAL;
    if (f.plan)
        f = search_complete(a, &f);
    explore_page(a, d, p, &f, out);
    return diags_errors(d) ? EXIT_INTERNAL : 0;
}

static int run_fit(Arena *a, Diags *d, const Program *p, const FrontEnd *in, Text *out)
{
    return fit(a, d, in, p, out);
}

static int run_action(Arena *a, Diags *d, const Request *o)
{
    FrontEnd in = {o->topo,
                   o->model,
                   o->share,
                   o->schedules,
                   o->schedule_count,
                   o->topo ? NULL : &targets[TARGET_C],
                   .every_mask = o->action->any_order};
    const Program *p = check_output(o, o->output) == 0 ? front_end(a, d, &in) : NULL;
    if (!p || check_imported(p, o->output) != 0)
        return EXIT_DIAGNOSED;
    mask_warn(d, p);
    mask_check_selections(d, p);
    Text t = {0};
    int status = diags_errors(d) ? EXIT_DIAGNOSED : o->action->run(a, d, p, &in, &t);
    if (status == 0)
        status = write_text(&t, o->output ? o->output : "-");
    text_free(&t);
    return status;
}

/* Refuses to overwrite a file that is not a measured cluster. */
static int check_probed(Arena *a, const char *path)
{
    static const char first[] = "# Written by `burstc probe`";
    size_t n;
    const char *text = is_stream(path) ? NULL : read_file(a, path, &n);
    if (!text)
        return 0;
    if (strncmp(text, first, sizeof first - 1) != 0)
        return cannot_write(path,
                            "the file exists and was not written by probe; remove it or give another name");
    fprintf(stderr, "burstc: note: '%s', which probe wrote earlier, will be overwritten\n", path);
    return 0;
}

static int probe_options(Arena *a, int argc, char **argv, ProbeOptions *o, const char **output)
{
    for (int i = 1; i < argc; i++) {
        char *end;
        const long n = strtol(argv[i], &end, 10);
        const char *value = option_value("-o", argc, argv, &i);
        if (value && *output)
            return given_twice("-o");
        if (value)
            *output = value;
        else if (!o->kind && !o->nodes && (strcmp(argv[i], "cpus") == 0 || strcmp(argv[i], "gpus") == 0))
            o->kind = *argv[i] == 'c' ? PROBE_CPUS : PROBE_GPUS;
        else if (*end == 0 && n > 0 && n <= 4096 && !(o->nodes && (o->devices || o->kind == PROBE_GPUS)))
            *(o->nodes ? &o->devices : &o->nodes) = (int)n;
        else if (argv[i][0] == '-')
            return unknown_option(a, "probe", argc, argv, i);
        else
            return usage_error("probe takes 'cpus' or 'gpus', the number of nodes and, for cpus, the "
                               "number of devices per node, not '%s'",
                               argv[i]);
    }
    return 0;
}

/* 0: not a number, or with another suffix. */
static int64_t whole_number(const char *text)
{
    char *suffix;
    const int64_t value = strtoll(text, &suffix, 10);
    if (value < 0 || value > INT64_MAX >> 20)
        return 0;
    if (strcmp(suffix, "Ki") == 0)
        return value << 10;
    if (strcmp(suffix, "Mi") == 0)
        return value << 20;
    return *suffix ? 0 : value;
}

static int run_probe(Arena *a, Diags *d, int argc, char **argv)
{
    const char *output = NULL;
    ProbeOptions o = {0};
    Text t = {0};
    int status = probe_options(a, argc, argv, &o, &output);
    output = output ? output : "-";
    if (status == 0)
        status = check_probed(a, output);
    if (status == 0)
        status = probe_machine(a, d, share_folder(a), &o, &t) ? write_text(&t, output) : EXIT_DIAGNOSED;
    text_free(&t);
    return status;
}

static int bench_options(Arena *a, int argc, char **argv, BenchOptions *o)
{
    const struct {
        const char *name;
        int64_t *at, most;
    } number[] = {{"--tokens", &o->tokens, 1 << 24},
                  {"--heads", &o->heads, 1024},
                  {"--kv_heads", &o->kv_heads, 1024},
                  {"--head_dim", &o->head_dim, 1024}};
    for (int i = 1; i < argc; i++) {
        const char *value = option_value("-o", argc, argv, &i);
        bool taken = value != NULL;
        if (value && o->output)
            return given_twice("-o");
        o->output = value ? value : o->output;
        if (strcmp(argv[i], "--peers") == 0)
            o->peers = taken = true;
        for (int k = 0; k < countof(number) && !taken; k++) {
            if (!(value = option_value(number[k].name, argc, argv, &i)))
                continue;
            if (*number[k].at)
                return given_twice(number[k].name);
            *number[k].at = whole_number(value);
            if (*number[k].at < 1 || *number[k].at > number[k].most)
                return usage_error("'%s' is not a whole number that bench accepts, such as 32Ki", value);
            taken = true;
        }
        if (!taken && argv[i][0] == '-')
            return unknown_option(a, "bench", argc, argv, i);
        if (!taken && o->what)
            return usage_error("bench takes one mask or one model; unexpected '%s'", argv[i]);
        o->what = taken ? o->what : argv[i];
    }
    return o->what ? 0
                   : usage_error("%s", "bench requires a mask, such as 'window(1024)', or a model (.burst)");
}

static int run_bench(Arena *a, Diags *d, int argc, char **argv)
{
    BenchOptions o = {0};
    Text t = {0};
    int status = bench_options(a, argc, argv, &o);
    o.output = o.output ? o.output : "-";
    if (status == 0 && check_output(&(Request){.model = o.what}, o.output) != 0)
        status = EXIT_DIAGNOSED;
    if (status == 0)
        status = bench(a, d, share_folder(a), &o, &t) ? write_text(&t, o.output) : EXIT_DIAGNOSED;
    text_free(&t);
    return status;
}

/* Runs without a cluster. */
static int run_import(Arena *a, Diags *d, int argc, char **argv)
{
    const char *output = NULL, *folder = NULL;
    for (int i = 1; i < argc; i++) {
        const char *value = option_value("-o", argc, argv, &i);
        if (value && output)
            return given_twice("-o");
        if (!value && argv[i][0] == '-' && argv[i][1])
            return unknown_option(a, "import", argc, argv, i);
        if (!value && folder)
            return usage_error("import takes one folder; unexpected '%s'", argv[i]);
        if (value)
            output = value;
        else
            folder = argv[i];
    }
    if (!folder)
        return usage_error("%s", "import needs a Hugging Face folder");
    Text t = {0};
    const bool imported = check_folder(folder, output) == 0 &&
                          import_folder(a, d, share_folder(a), folder, &t);
    int status = imported ? write_text(&t, output ? output : "-") : EXIT_DIAGNOSED;
    text_free(&t);
    return status;
}

static const struct {
    const char *name;
    int (*run)(Arena *a, Diags *d, int argc, char **argv);
} measures[] = {{"probe", run_probe}, {"bench", run_bench}, {"import", run_import}};

static int run_compiler(Arena *a, Diags *d, int argc, char **argv)
{
    Request o = {.share = share_folder(a), .command = command_text(a, argc, argv)};
    o.action = find_action(argc > 1 ? argv[1] : NULL);
    const int words = o.action ? 1 : 0;
    int status = parse_options(a, d, argc - words, argv + words, &o);
    if (status == 0 && !form_exists(o.emit))
        status = unknown_name(a, "form", o.emit, help_forms(a),
                              "; the forms are ast, mask, partition, schedule, step, plan, kernels, cost, "
                              "memory, trace, c and cuda");
    if (status == 0 && o.dump_after && !pass_exists(o.dump_after))
        status = unknown_name(a, "pass", o.dump_after, help_passes(a),
                              arena_printf(a, "; the passes are %s", pass_names(a)));
    if (status == 0)
        status = check_suffix(&o);
    if (status == 0)
        status = o.action ? run_action(a, d, &o) : compile(a, d, &o);
    return status;
}

/* A search makes and frees an arena for each candidate: memory returned to the system in between would be
 * cleared page by page when it is allocated once more. Threads allocate seldom, and share what is kept. */
static void keep_memory(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
}

int main(int argc, char **argv)
{
    const char *command;
    keep_memory();
    if (argc > 1 && strcmp(argv[1], "--complete") == 0)
        return help_complete(argc - 2, argv + 2);
    if (argc == 2 && strcmp(argv[1], "--man") == 0)
        return help_manual();
    if (help_asked(argc, argv, &command))
        return help_print(command);
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return print_text("burstc " BURSTC_VERSION "\n");
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    int status = -1;
    for (int i = 0; i < countof(measures) && argc > 1; i++)
        if (strcmp(argv[1], measures[i].name) == 0)
            status = measures[i].run(a, d, argc - 1, argv + 1);
    if (status < 0)
        status = run_compiler(a, d, argc, argv);
    progress_end();
    diags_print(d, stderr);
    arena_free(a);
    return status;
}
