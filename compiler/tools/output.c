/* output.c: opens and checks the destinations of output, before the work is done. */
#include "tools/output.h"

#include "base/progress.h"
#include "base/folder_files.h"
#include "base/output_file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool is_stream(const char *path)
{
    struct stat st;
    return strcmp(path, "-") == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

bool is_archive(const char *path) { return path && ends_with(path, ".a"); }

bool is_library(const char *path) { return path && (is_archive(path) || ends_with(path, ".so")); }

Destination destination_of(Arena *a, const Request *o, const Program *p)
{
    const char *suffix = p->target->suffix, *output = o->output;
    Destination t = {.source = output, .program = p->library ? "plan.so" : "train_plan"};
    const char *source = arena_printf(a, "%s%s", p->library ? "plan" : "train_plan", suffix);
    if (output && ends_with(output, suffix)) {
        size_t stem = strlen(output) - strlen(suffix);
        source = output;
        if (stem > 0 && output[stem - 1] != '/')
            t.program = arena_printf(a, "%.*s%s", (int)stem, output, p->library ? ".so" : "");
    } else if (output && !o->emit && !is_stream(output)) {
        t = (Destination){.program = output, .binary = true};
        t.source = source = arena_printf(a, "%s%s", output, suffix);
    }
    t.build = build_command(a, o->share, p, source, t.program);
    return t;
}

int cannot_write(const char *path, const char *reason)
{
    if (strcmp(path, "-") == 0)
        fprintf(stderr, "burstc: error: cannot write standard output: %s\n", reason);
    else
        fprintf(stderr, "burstc: error: cannot write '%s': %s\n", path, reason);
    return EXIT_DIAGNOSED;
}

int write_text(const Text *t, const char *path)
{
    progress_end();
    return text_write_file(t, path) == 0 ? 0 : cannot_write(path, output_reason(errno));
}

int print_text(const char *text)
{
    progress_end();
    return fputs(text, stdout) >= 0 && fflush(stdout) == 0 ? 0 : cannot_write("-", strerror(errno));
}

/* Refuses a folder, and a path where another user has put something. */
static int check_place(const char *path)
{
    struct stat st;
    char *target = output_follow(path);
    const int reason = target ? EPERM : errno;
    const bool there = stat(path, &st) == 0 && S_ISDIR(st.st_mode),
               trusted = target && output_is_trusted(target);
    free(target);
    if (reason == ENOMEM)
        out_of_memory();
    if (there)
        return cannot_write(path, strerror(EISDIR));
    return trusted ? 0 : cannot_write(path, output_reason(reason));
}

/* Finds errors that would otherwise appear only at the end, and refuses to overwrite an input. */
int check_output(const Request *o, const char *path)
{
    if (!path || is_stream(path))
        return 0;
    if (check_place(path) != 0)
        return EXIT_DIAGNOSED;
    bool input = (o->topo && same_file(path, o->topo)) || same_file(path, o->model);
    for (int i = 0; i < o->schedule_count; i++)
        input = input || same_file(path, o->schedules[i]);
    return input ? cannot_write(path, "it is an input") : 0;
}

/* Whether the path is the data file, or the other file of Megatron-LM's pair. */
static bool is_data(const BurstDataFile *f, const char *path)
{
    static const char *const pair[] = {".bin", ".idx"};
    char other[PATH_MAX];
    bool found = same_file(path, f->path);
    for (int i = 0; i < countof(pair) && strlen(f->path) < sizeof other; i++) {
        if (!ends_with(f->path, pair[i]))
            continue;
        strcpy(other, f->path);
        strcpy(other + strlen(other) - strlen(pair[i]), pair[!i]);
        found = found || same_file(path, other);
    }
    return found;
}

/* Checks against what is known once the inputs are read: imports and patterns, and files that the program
 * reads at run time, which a later compilation compares with the model. */
int check_imported(const Program *p, const char *path)
{
    const Train *t = &p->train;
    if (!path || is_stream(path))
        return 0;
    bool data = t->evaluate && is_data(t->evaluate, path);
    for (int i = 0; i < t->data_files; i++)
        data = data || is_data(&t->data[i], path);
    if (program_reads(p, path))
        return cannot_write(path, "it is an input");
    if (data)
        return cannot_write(path, "it is an input: the model's data");
    if (folder_keeps(t->weights, path, is_weights_file))
        return cannot_write(path, "it is an input: a file of the directory of `weights`");
    if (folder_keeps(t->export_dir, path, is_weights_file))
        return cannot_write(path, "it is a file of the directory of `export`");
    if (folder_keeps(t->checkpoint, path, is_checkpoint_file))
        return cannot_write(path, "it is a file of the directory of `checkpoint`");
    return 0;
}

int check_folder(const char *folder, const char *path)
{
    if (!path || is_stream(path))
        return 0;
    if (check_place(path) != 0)
        return EXIT_DIAGNOSED;
    return folder_keeps(folder, path, is_weights_file)
               ? cannot_write(path, "it is an input: a file of the directory that is imported")
               : 0;
}

/* Attention alone can be a library, but not a program. */
static int check_kind(const Destination *to, const Program *p)
{
    return to && to->binary && p->library && !is_library(to->program)
               ? cannot_write(to->program,
                              "the model has attention alone, which is written as a library: give "
                              "a name that ends in .so or .a")
               : 0;
}

/* Checks every file that the compilation writes. */
int check_destination(const Request *o, const Destination *to, const Program *p)
{
    int status = check_imported(p, o->output);
    if (status == 0)
        status = check_kind(to, p);
    if (status != 0 || !to)
        return status;
    status = check_output(o, to->source);
    if (status == 0)
        status = check_imported(p, to->source);
    if (status == 0 && to->binary && same_file(to->source, to->program))
        return cannot_write(to->program,
                            "it is the same file as the program's source, which is written next to it");
    return status;
}
