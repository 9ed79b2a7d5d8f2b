/* kept_headers.c: caches libclang's parse of the CUDA toolkit's headers, a precompiled header of some 10 MB,
 * in the user's cache: parsing them takes longer than checking the program.
 *
 * Nothing here is an error: without a cached file, the check parses the headers. A child process writes the
 * file, since clang aborts on a full disk. Its name has a hash of its inputs and one of its content, since
 * clang crashes on damaged files; so a file under its name is complete. Clang detects changed headers by
 * their times and sizes. */
#include "emit/internal.h"

#ifdef BURST_LIBCLANG
#include "emit/libclang.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every CUDA program includes it through burst_gpu.h, and it includes the rest, but none of burstc's own
 * headers, which change. */
static const char prefix_text[] = "#include <cuda_bf16.h>\n";
/* Number of cached files: two for each toolkit or libclang in use. */
enum { KEPT_FILES = 8 };
static const char kept_prefix[] = "cuda-";

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211); /* FNV-1a */
    return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text) + 1);
}

/* Hashes all that determines the content, except the toolkit headers themselves and the folder of burstc's
 * headers, which are not in it. */
static uint64_t key_of(const char *const *flag, int flags, const char *cuda)
{
    char real[PATH_MAX];
    CXString version = clang()->getClangVersion();
    uint64_t hash = hash_text(UINT64_C(14695981039346656037), clang()->getCString(version));
    clang()->disposeString(version);
    for (int i = 0; i < flags; i++)
        if (strncmp(flag[i], "-I", 2) != 0)
            hash = hash_text(hash, flag[i]);
    hash = hash_text(hash, prefix_text);
    hash = hash_text(hash, realpath(cuda, real) ? real : cuda);
    hash = hash_text(hash, environment("CPATH", ""));
    return hash_text(hash, environment("CPLUS_INCLUDE_PATH", ""));
}

/* Whether no other user can have written it. */
static bool only_ours(const struct stat *s)
{
    return s->st_uid == geteuid() && !(s->st_mode & (S_IWGRP | S_IWOTH));
}

/* The folder, made if it is missing; NULL: no trusted folder. Nothing is made in another user's home, as
 * under sudo: that user could not write there. */
static const char *kept_folder(Arena *a)
{
    struct stat s;
    const char *cache = environment("BURST_CACHE", NULL);
    if (!cache) {
        const char *home = environment("HOME", "/"), *base = environment("XDG_CACHE_HOME", NULL);
        if (!base && (stat(home, &s) != 0 || s.st_uid != geteuid()))
            return NULL;
        if (!base)
            base = arena_printf(a, "%s/.cache", home);
        mkdir(base, 0700);
        cache = arena_printf(a, "%s/burst", base);
    }
    mkdir(cache, 0777);
    const char *folder = arena_printf(a, "%s/headers", cache);
    mkdir(folder, 0700);
    return stat(folder, &s) == 0 && S_ISDIR(s.st_mode) && only_ours(&s) ? folder : NULL;
}

static bool hash_file(int fd, uint64_t *hash)
{
    struct stat s;
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || !only_ours(&s) || s.st_size == 0)
        return false;
    void *bytes = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return false;
    *hash = hash_bytes(UINT64_C(14695981039346656037), bytes, (size_t)s.st_size);
    munmap(bytes, (size_t)s.st_size);
    return true;
}

static const char *kept_name(Arena *a, const char *folder, uint64_t key, uint64_t content)
{
    return arena_printf(a, "%s/%s%016" PRIx64 "-%016" PRIx64, folder, kept_prefix, key, content);
}

static int open_file(const char *path) { return open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); }

/* The key's file if it is complete; removes a damaged one. */
static KeptHeaders find_file(Arena *a, const char *folder, uint64_t key)
{
    const char *start = arena_printf(a, "%s%016" PRIx64 "-", kept_prefix, key);
    KeptHeaders found = {.file = -1};
    DIR *names = opendir(folder);
    for (struct dirent *e; found.file < 0 && names && (e = readdir(names));) {
        if (strncmp(e->d_name, start, strlen(start)) != 0)
            continue;
        uint64_t content = 0;
        found.path = arena_printf(a, "%s/%s", folder, e->d_name);
        found.file = open_file(found.path);
        if (found.file >= 0 && hash_file(found.file, &content) &&
            strcmp(found.path, kept_name(a, folder, key, content)) == 0)
            continue;
        kept_headers_close(&found, true);
    }
    if (names)
        closedir(names);
    return found;
}

/* Also removes files of killed runs. */
static void remove_oldest(Arena *a, const char *folder)
{
    int n = KEPT_FILES + 1;
    while (n > KEPT_FILES) {
        const char *oldest = NULL;
        time_t at = 0;
        DIR *names = opendir(folder);
        n = 0;
        for (struct dirent *e; names && (e = readdir(names));) {
            struct stat s;
            const char *path = arena_printf(a, "%s/%s", folder, e->d_name);
            if (strncmp(e->d_name, kept_prefix, strlen(kept_prefix)) != 0 || lstat(path, &s) != 0)
                continue;
            n++;
            if (!oldest || s.st_mtime < at)
                oldest = path, at = s.st_mtime;
        }
        if (names)
            closedir(names);
        if (n > KEPT_FILES && unlink(oldest) != 0)
            return;
    }
}

/* Includes the key, since hosts and containers with a common home may have equal process numbers. */
static const char *new_name(Arena *a, const char *folder, uint64_t key, pid_t child)
{
    return arena_printf(a, "%s/%snew-%016" PRIx64 "-%ld", folder, kept_prefix, key, (long)child);
}

/* Runs in the child. */
static void make_file(Arena *a, const char *folder, uint64_t key, const char *const *flag, int flags,
                      const char *dropped)
{
    const char *made = new_name(a, folder, key, getpid());
    struct CXUnsavedFile files[] = {{"kept_headers.cu", prefix_text, sizeof prefix_text - 1},
                                    {dropped, "", 0}};
    CXIndex index = clang()->createIndex(0, 0);
    CXTranslationUnit unit = NULL;
    if (clang()->parseTranslationUnit2(index, files[0].Filename, flag, flags, files, countof(files),
                                       CXTranslationUnit_Incomplete | CXTranslationUnit_ForSerialization,
                                       &unit) != CXError_Success ||
        clang()->getNumDiagnostics(unit) > 0 ||
        clang()->saveTranslationUnit(unit, made, 0) != CXSaveError_None)
        return;
    uint64_t content;
    int file = open_file(made);
    if (file >= 0 && hash_file(file, &content))
        rename(made, kept_name(a, folder, key, content));
    remove_oldest(a, folder);
}

KeptHeaders kept_headers(Arena *a, const char *const *flag, int flags, const char *cuda, const char *dropped)
{
    const char *folder = kept_folder(a);
    if (!folder)
        return (KeptHeaders){.file = -1};
    const uint64_t key = key_of(flag, flags, cuda);
    KeptHeaders kept = find_file(a, folder, key);
    if (kept.file >= 0) {
        futimens(kept.file, NULL); /* the least recently used one is removed first */
        return kept;
    }
    pid_t child = access(folder, W_OK) == 0 ? fork() : -1;
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO); /* hides clang's output if it aborts */
        umask(077);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* no core file if it aborts */
        make_file(a, folder, key, flag, flags, dropped);
        _exit(0);
    }
    if (child < 0)
        return kept;
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    unlink(new_name(a, folder, key, child)); /* exists only if the child failed */
    return find_file(a, folder, key);
}

void kept_headers_close(KeptHeaders *kept, bool bad)
{
    if (kept->file >= 0)
        close(kept->file);
    if (bad)
        unlink(kept->path);
    kept->file = -1;
}
#endif
