/* fuzz.c: any bytes as a .topo, .burst or .sched file must end in a Program or in messages, without a
 * leak, a hang or undefined behaviour. Built three times, FUZZ_LANGUAGE says for which language.
 *
 * With clang -fsanitize=fuzzer this is a libFuzzer target; with -DFUZZ_REPLAY a plain program that runs
 * the files (or all files of the folders) given. The environment names the folders: BURST_STOCK with the
 * stock files, BURST_BASE with base.topo and base.burst, the other half of an input.
 */
#include "tools/tools.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LANGUAGE_TOPO 0
#define LANGUAGE_BURST 1
#define LANGUAGE_SCHED 2

static const char *folder(const char *variable)
{
    const char *value = getenv(variable);
    if (!value) {
        fprintf(stderr, "%s is not set\n", variable);
        exit(2);
    }
    return value;
}

/* The input as a file without a disk. */
static int memory_file(const uint8_t *data, size_t size)
{
    int fd = memfd_create("input", 0);
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size)) {
        perror("memfd");
        exit(2);
    }
    return fd;
}

static void run_front_end(Arena *a, Diags *d, const char *path)
{
    const char *base = folder("BURST_BASE");
    FrontEnd in = {.target = &targets[TARGET_C],
                   .stock_dir = folder("BURST_STOCK"),
                   .topo_path = arena_printf(a, "%s/base.topo", base),
                   .model_path = arena_printf(a, "%s/base.burst", base)};
    if (FUZZ_LANGUAGE == LANGUAGE_TOPO)
        in.topo_path = path;
    else
        in.model_path = path;
    const Program *p = front_end(a, d, &in);
    if ((p != NULL) != (diags_errors(d) == 0))
        abort(); /* a Program and errors, or neither */
}

static void run_schedule(Arena *a, Diags *d, const char *path)
{
    const SchedText *s = parse_schedule(a, d, folder("BURST_STOCK"), path);
    if ((s != NULL) != (diags_errors(d) == 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memory_file(data, size);
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const char *path = arena_printf(a, "/proc/self/fd/%d", fd);
    if (FUZZ_LANGUAGE == LANGUAGE_SCHED)
        run_schedule(a, d, path);
    else
        run_front_end(a, d, path);
    char *printed = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&printed, &length);
    diags_print(d, out);
    Text ast = {0};
    print_ast(a, d, &(FrontEnd){.model_path = path}, &ast);
    diags_print(d, out);
    fclose(out);
    free(printed);
    text_free(&ast);
    arena_free(a);
    close(fd);
    return 0;
}

#ifdef FUZZ_REPLAY
#include <dirent.h>

static int replay(Arena *a, const char *path);

static int replay_folder(Arena *a, DIR *dir, const char *path)
{
    int runs = 0;
    for (const struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            runs += replay(a, arena_printf(a, "%s/%s", path, e->d_name));
    closedir(dir);
    return runs;
}

static int replay(Arena *a, const char *path)
{
    size_t len;
    DIR *dir = opendir(path);
    if (dir)
        return replay_folder(a, dir, path);
    const char *text = read_file(a, path, &len);
    if (!text) {
        perror(path);
        exit(2);
    }
    LLVMFuzzerTestOneInput((const uint8_t *)text, len);
    return 1;
}

int main(int argc, char **argv)
{
    Arena *a = arena_new();
    int runs = 0;
    for (int i = 1; i < argc; i++)
        runs += replay(a, argv[i]);
    arena_free(a);
    printf("%d inputs\n", runs);
    return runs ? 0 : 2;
}
#endif
