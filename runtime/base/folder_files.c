/* folder_files.c: see folder_files.h. */
#include "base/folder_files.h"

#include "base/output_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), e = strlen(end);
    return n >= e && strcmp(name + n - e, end) == 0;
}

bool is_weights_file(const char *name)
{
    static const char *const ends[] = {".safetensors", ".json",  ".bin",     ".pt",   ".pth",
                                       ".h5",          ".gguf",  ".msgpack", ".onnx", ".model",
                                       ".tiktoken",    ".jinja", ".py",      ".md",   ".bpe",
                                       ".codes",       ".vocab", ".spm",     ".npz",  ".yaml"};
    static const char *const begins[] = {"merges.txt", "vocab.txt", "LICENSE", "NOTICE", ".gitattributes"};
    bool found = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        found = found || ends_with(name, ends[i]);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        found = found || strncmp(name, begins[i], strlen(begins[i])) == 0;
    return found;
}

bool is_checkpoint_file(const char *name)
{
    return strcmp(name, ".lock") == 0 || (ends_with(name, ".burst") && strncmp(name, "step-", 5) == 0);
}

bool same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether target, where links lead, has a kept name in the folder. */
static bool is_named(const struct stat *folder, const char *target, bool (*is_kept)(const char *name))
{
    const char *slash = strrchr(target, '/');
    char *parent = slash ? strndup(target, (size_t)(slash - target) + 1) : strdup(".");
    struct stat st;
    const bool found = parent && stat(parent, &st) == 0 && same_inode(&st, folder);
    free(parent);
    return found && is_kept(slash ? slash + 1 : target);
}

static bool is_linked(const char *folder, const char *target, bool (*is_kept)(const char *name))
{
    struct stat st, entry;
    bool found = false;
    DIR *d = stat(target, &st) == 0 && S_ISREG(st.st_mode) ? opendir(folder) : NULL;
    for (struct dirent *e; d && !found && (e = readdir(d)) != NULL;)
        found = is_kept(e->d_name) && fstatat(dirfd(d), e->d_name, &entry, 0) == 0 && same_inode(&entry, &st);
    if (d)
        closedir(d);
    return found;
}

bool folder_keeps(const char *folder, const char *path, bool (*is_kept)(const char *name))
{
    struct stat st;
    char *target = folder && stat(folder, &st) == 0 && S_ISDIR(st.st_mode) ? output_follow(path) : NULL;
    const bool found = target && (is_named(&st, target, is_kept) || is_linked(folder, target, is_kept));
    free(target);
    return found;
}
