/* fail_alloc.c: preloaded, it makes allocations of the program fail. From main on, what the program itself
 * asks for is counted; with FAIL_LIBC=1, what libc asks for instead. Libraries go on.
 *
 *   FAIL_SWEEP=N   each of the first N allocations fails in a fork of its own, while the run itself goes
 *                  on; the fork must end with status 3, "out of memory" and nothing else on stderr, and
 *                  leave no file in this folder
 *   FAIL_ALLOC=N   the N-th allocation fails, here
 *   FAIL_REPORT    a file for what went wrong, and at last for the number of allocations
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t bytes);
int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                      void (*)(void), void *);

static bool counting, libc;
static long calls, sweep, alone, wrong, forks;
static const char *low, *high; /* of the program, or of libc */
static const char expected[] = "burstc: error: out of memory\n";

static void report(const char *text, long number, int status, const char *said)
{
    const char *path = getenv("FAIL_REPORT");
    char line[512];
    int n = snprintf(line, sizeof line, "%s %ld, wait status %d: %.300s\n", text, number, status, said);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        _exit(125);
    close(fd);
}

static int files_here(void)
{
    int n = 0;
    DIR *d = opendir(".");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* The fork, whose allocation fails; the caller returns NULL to the program. */
static void be_without_memory(int errors)
{
    dup2(errors, 2);
    dup2(open("/dev/null", O_WRONLY), 1);
}

static void judge(pid_t child, int errors, int files)
{
    int status = -1;
    char said[sizeof expected + 64] = "";
    waitpid(child, &status, 0);
    ssize_t n = pread(errors, said, sizeof said - 1, 0);
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 3 && n >= 0 && strcmp(said, expected) == 0;
    if (!good)
        report("allocation", calls, status, said);
    if (files_here() != files)
        report("a file is left after allocation", calls, status, said);
    wrong += !good || files_here() != files;
}

/* Whether this allocation fails. */
static bool fails(const char *caller)
{
    if (!counting || caller < low || caller >= high)
        return false;
    calls++;
    if (calls == alone)
        return true;
    if (calls > sweep)
        return false;
    counting = false;
    int errors = memfd_create("errors", 0), files = files_here();
    pid_t child = fork();
    if (child == 0) {
        be_without_memory(errors);
        sweep = 0;
        return true;
    }
    forks++;
    judge(child, errors, files);
    close(errors);
    counting = true;
    return false;
}

void *malloc(size_t bytes)
{
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t size)
{
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t bytes)
{
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(old, bytes);
}

/* The first object is the program. */
static int find_callers(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (libc && !strstr(info->dlpi_name, "/libc.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_LOAD && (!low || at < low))
            low = at;
        if (p->p_type == PT_LOAD && at + p->p_memsz > high)
            high = at + p->p_memsz;
    }
    return 1;
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **env)
{
    libc = number("FAIL_LIBC");
    dl_iterate_phdr(find_callers, NULL);
    sweep = number("FAIL_SWEEP");
    alone = number("FAIL_ALLOC");
    pid_t me = getpid();
    counting = true;
    int status = real_main(argc, argv, env);
    counting = false;
    if (getpid() == me && !alone)
        report(wrong ? "wrong" : "allocations", wrong ? wrong : calls, status, "");
    return status;
}

int __libc_start_main(int (*main_fn)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    __typeof__(&__libc_start_main) real = (__typeof__(&__libc_start_main))dlsym(RTLD_NEXT,
                                                                                "__libc_start_main");
    real_main = main_fn;
    return real(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
