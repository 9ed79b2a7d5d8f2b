/* outputs.c: see outputs.h. Existing files are compared by device and inode, missing ones by folder and
 * name. */
#include "app/outputs.h"

#include "base/folder_files.h"
#include "base/output_file.h"
#include "core/context.h"
#include "data/source.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum Role { IN_FILE, IN_FOLDER, OUT_FILE, OUT_STREAM, OUT_CHECKPOINTS, OUT_EXPORT } Role;
typedef struct Named {
    const char *option, *path;
    Role role;
    char *target;       /* after following links */
    const char *leaf;   /* its last component */
    bool there, parent_there;
    struct stat st, parent;
} Named;
enum { NAMED_MOST = 10 + 2 * BURST_DATA_FILES };
typedef struct Names { Named at[NAMED_MOST]; int count; } Names;

/* Files that the owner of a folder reads or writes in it; NULL: other outputs may not be in it at all, or
 * may have any name. */
static bool (*const kept_names[])(const char *name) = {[IN_FOLDER] = is_weights_file,
                                                       [OUT_CHECKPOINTS] = is_checkpoint_file,
                                                       [OUT_EXPORT] = NULL};

/* ---- named files ---- */

static void strip_slashes(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
}

static bool resolve(Named *n)
{
    char *path = strdup(n->path);
    if (!path)
        return false;
    strip_slashes(path);
    n->target = output_follow(path);
    free(path);
    if (!n->target)
        return true; /* a cycle of links: opening it will report that */
    char *slash = strrchr(n->target, '/'),
         *folder = slash ? strndup(n->target, (size_t)(slash - n->target) + 1) : strdup(".");
    n->leaf = slash ? slash + 1 : n->target;
    n->there = stat(n->target, &n->st) == 0;
    n->parent_there = folder && stat(folder, &n->parent) == 0;
    free(folder);
    return true;
}

static bool add(Names *all, const char *option, const char *path, Role role)
{
    if (!path)
        return true;
    Named *n = &all->at[all->count++];
    *n = (Named){.option = option, .path = path, .role = role};
    return resolve(n);
}

/* Both files of a Megatron-LM pair. */
static bool add_data(Names *all, const char *option, const BurstDataFile *f)
{
    char bin[PATH_MAX], idx[PATH_MAX];
    if (!f)
        return true;
    if (f->raw || !source_pair(f->path, bin, idx))
        return add(all, option, f->path, IN_FILE);
    const bool added = add(all, option, bin, IN_FILE) && add(all, option, idx, IN_FILE);
    for (int i = all->count - 1; added && i >= all->count - 2; i--)
        all->at[i].path = f->path; /* as the user wrote it */
    return added;
}

static bool add_all(Names *all, const Options *o)
{
    *all = (Names){0};
    bool added = add(all, "the program", "/proc/self/exe", IN_FILE) &&
                 add(all, "standard output", "/proc/self/fd/1", OUT_STREAM);
    for (int i = 0; i < o->file_count; i++)
        added = added && add_data(all, "--data", &o->files[i]);
    added = added && add_data(all, "--evaluate", o->evaluation) &&
            add(all, "--resume", o->resume_file, IN_FILE);
    added = added && add(all, "--weights", o->weights, IN_FOLDER) &&
            add(all, "--metrics", o->metrics, OUT_FILE);
    added = added && add(all, "--trace", o->trace, OUT_FILE);
    return added && add(all, "--checkpoint", o->checkpoint, OUT_CHECKPOINTS) &&
           add(all, "--export", o->export_dir, OUT_EXPORT);
}

static void drop(Names *all)
{
    for (int i = 0; i < all->count; i++)
        free(all->at[i].target);
}

/* ---- equal files ---- */

static bool is_output(const Named *n)
{
    return n->role >= OUT_FILE;
}

/* Devices and FIFOs may have several uses. */
static bool is_stored(const Named *n)
{
    return !n->there || S_ISREG(n->st.st_mode) || S_ISDIR(n->st.st_mode);
}

static bool same(const Named *a, const Named *b)
{
    if (a->there != b->there || !is_stored(a))
        return false;
    if (a->there)
        return same_inode(&a->st, &b->st);
    return a->parent_there && b->parent_there && same_inode(&a->parent, &b->parent) &&
           strcmp(a->leaf, b->leaf) == 0;
}

/* /dev/stdout is standard output; checkpoints and weights have different names in one folder. */
static bool may_share(const Named *a, const Named *b)
{
    return (a->role == OUT_STREAM && output_is_open(b->target)) ||
           (a->role == IN_FOLDER && b->role == OUT_CHECKPOINTS);
}

static int compare_pair(BurstCtx *c, const Named *a, const Named *b)
{
    if (!a->target || !b->target || (!is_output(a) && !is_output(b)) || may_share(a, b) || !same(a, b))
        return BURST_OK;
    return burst_fail(c, BURST_E_USAGE, "%s %s is the same %s as %s%s%s; choose another", b->option, b->path,
                      b->role == OUT_FILE ? "file" : "directory", a->option, a->role == OUT_STREAM ? "" : " ",
                      a->role == OUT_STREAM ? "" : a->path);
}

/* ---- in a folder ---- */

/* At any depth. */
static bool lies_in(const Named *n, const Named *folder)
{
    char path[PATH_MAX], *slash = strrchr(n->target, '/'),
                         *parent = slash ? strndup(n->target, (size_t)(slash - n->target) + 1) : strdup(".");
    bool found = false, known = parent && realpath(parent, path);
    struct stat st;
    free(parent);
    while (known && !found && stat(path, &st) == 0) {
        found = same_inode(&st, &folder->st);
        slash = strrchr(path, '/');
        if (slash == path)
            break;
        *slash = 0;
    }
    return found;
}

static int compare_with_folder(BurstCtx *c, const Named *n, const Named *folder)
{
    if (!n->target || !folder->there || !S_ISDIR(folder->st.st_mode) || n == folder)
        return BURST_OK;
    if (folder->role == OUT_EXPORT && (n->role == OUT_FILE || n->role == OUT_CHECKPOINTS) &&
        lies_in(n, folder))
        return burst_fail(
            c, BURST_E_USAGE,
            "%s %s is inside %s %s, which must stay empty until the export; choose another path", n->option,
            n->path, folder->option, folder->path);
    if (n->role == OUT_FILE && kept_names[folder->role] &&
        folder_keeps(folder->path, n->path, kept_names[folder->role]))
        return burst_fail(c, BURST_E_USAGE, "%s %s is a file that belongs to %s %s; choose another path",
                          n->option, n->path, folder->option, folder->path);
    return BURST_OK;
}

/* ---- all ---- */

static int compare_all(BurstCtx *c, const Names *all)
{
    for (int i = 0; i < all->count; i++)
        for (int k = 0; k < all->count; k++) {
            if (i < k)
                BURST_TRY(compare_pair(c, &all->at[i], &all->at[k]));
            BURST_TRY(compare_with_folder(c, &all->at[i], &all->at[k]));
        }
    return BURST_OK;
}

int outputs_compare(BurstCtx *c, const Options *o)
{
    Names all;
    if (c->rank != 0)
        return BURST_OK;
    int status = add_all(&all, o)
                     ? compare_all(c, &all)
                     : burst_fail(c, BURST_E_MEMORY, "out of memory for the names of the outputs");
    drop(&all);
    return status;
}
