/* checkpoint/folder.c: a run's folder: names, files of earlier runs, and whether it can be written. */
#include "checkpoint/checkpoint.h"

#include "core/context.h"
#include "files/files.h"
#include "files/lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 64, ASIDE = PATH_MAX - NAME, ASIDE_MOST = 10000 };

/* ---- names ---- */

void checkpoint_path(char *path, size_t size, const char *directory, int64_t done)
{
    snprintf(path, size, "%s/step-%08lld.burst", directory, (long long)done);
}

int unfinished_path(BurstCtx *c, char *path, size_t size, const Folder *f, int64_t done)
{
    if (snprintf(path, size, "%s/.step-%08lld.%016llx.part", f->path, (long long)done,
                 (unsigned long long)f->tag) < (int)size)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "the path '%s' is too long", f->path);
}

static bool has_ends(const char *name, const char *begin, const char *end)
{
    size_t n = strlen(name), b = strlen(begin), e = strlen(end);
    return n >= b + e && strncmp(name, begin, b) == 0 && strcmp(name + n - e, end) == 0;
}

/* -1: not the name of a checkpoint. */
static int64_t steps_in_name(const char *name)
{
    char again[NAME];
    long long done = strncmp(name, "step-", 5) == 0 ? strtoll(name + 5, NULL, 10) : 0;
    snprintf(again, sizeof again, "step-%08lld.burst", done);
    return done >= 1 && done <= CHECKPOINT_STEPS_MOST && strcmp(again, name) == 0 ? done : -1;
}

/* ---- existing files ---- */

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool add_steps(Steps *s, int64_t done)
{
    if (s->count == s->room) {
        int room = s->room ? 2 * s->room : 16;
        int64_t *grown = realloc(s->at, (size_t)room * sizeof *grown);
        if (!grown)
            return false;
        s->at = grown;
        s->room = room;
    }
    s->at[s->count++] = done;
    return true;
}

static int list_open(BurstCtx *c, DIR *d, const char *directory, bool complain, Steps *s)
{
    errno = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL; errno = 0) {
        int64_t done = steps_in_name(e->d_name);
        if (done > 0 && !add_steps(s, done))
            return burst_fail(c, BURST_E_MEMORY, "out of memory for the file list of '%s'", directory);
        if (complain && done < 0 && has_ends(e->d_name, "step-", ".burst"))
            say_line("ignoring '%s/%.*s': not a checkpoint's name (expected step-N.burst)", directory,
                     (int)strspn(e->d_name, "step-0123456789.burst"), e->d_name);
    }
    return errno ? io_failed(c, "read the directory", directory) : BURST_OK;
}

int checkpoint_list(BurstCtx *c, const char *directory, bool complain, Steps *s)
{
    *s = (Steps){0};
    DIR *d = opendir(directory);
    if (!d)
        return errno == ENOENT ? BURST_OK : io_failed(c, "read the directory", directory);
    int status = list_open(c, d, directory, complain, s);
    closedir(d);
    if (status == BURST_OK && s->count > 0)
        qsort(s->at, (size_t)s->count, sizeof *s->at, compare_steps);
    return status;
}

/* ---- opening ---- */

/* Removes unfinished files; their runs are dead, since this run has the lock. Links and other kinds of files
 * are skipped. */
static int remove_leftovers(BurstCtx *c, const char *directory)
{
    char path[PATH_MAX];
    struct stat st;
    DIR *d = opendir(directory);
    if (!d)
        return io_failed(c, "read the directory", directory);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        bool fits = snprintf(path, sizeof path, "%s/%s", directory, e->d_name) < (int)sizeof path;
        if (fits && has_ends(e->d_name, ".step-", ".part") && lstat(path, &st) == 0 && S_ISREG(st.st_mode))
            unlink(path);
    }
    closedir(d);
    return BURST_OK;
}

int checkpoint_take(BurstCtx *c, const BurstPlan *p, Folder *f)
{
    if (mkdir(f->path, 0777) != 0 && errno != EEXIST)
        return io_failed(c, "create the directory", f->path);
    BURST_TRY(lock_take(c, p, f->path, &f->lock));
    return f->lock >= 0 ? remove_leftovers(c, f->path) : BURST_OK;
}

static int draw_tag(BurstCtx *c, Folder *f)
{
    if (getrandom(&f->tag, sizeof f->tag, 0) == sizeof f->tag)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "cannot get random bytes: %s", strerror(errno));
}

static int start_folder(BurstCtx *c, const BurstPlan *p, Folder *f)
{
    BURST_TRY(checkpoint_take(c, p, f));
    return draw_tag(c, f);
}

static int see_trial(BurstCtx *c, const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        return close(fd), BURST_OK;
    if (errno != ENOENT)
        return io_failed(c, "write", path);
    return burst_fail(c, BURST_E_IO,
                      "rank 0 created '%s', but rank %d cannot see it; with ranks on several hosts, "
                      "--checkpoint requires a shared file system",
                      path, c->rank);
}

/* The number of files that this run needs at a time beyond the existing ones: `keep` and the one being
 * written, but at least one, and no more than it writes. */
static int files_needed(BurstCtx *c, const Folder *f, int64_t done, int64_t writes, int64_t keep,
                        int64_t *needed)
{
    Steps s;
    int64_t there = 0;
    int status = checkpoint_list(c, f->path, false, &s);
    while (there < s.count && s.at[there] <= done)
        there++;
    free(s.at);
    const int64_t more = there < keep ? keep - there : 0;
    *needed = more < writes ? more + 1 : writes;
    *needed = *needed < writes ? *needed : writes;
    return status;
}

/* Reserves space as checkpoints will, but without writing weights. */
static int reserve_space(BurstCtx *c, const Layout *l, Folder *f, int64_t needed, int64_t keep)
{
    char path[PATH_MAX];
    for (f->tries = 0; f->tries < needed; f->tries++) {
        BURST_TRY(unfinished_path(c, path, sizeof path, f, f->tries));
        int status = checkpoint_create(c, l, path);
        if (status != BURST_OK && f->tries > 0)
            return burst_fail(c, status,
                              "not enough space in '%s' for %lld checkpoints (--keep %lld, plus the one "
                              "being written) of %.4g GiB each; there is space for %lld",
                              f->path, (long long)needed, (long long)keep,
                              (double)layout_room(l, c->world) / (1 << 30), (long long)f->tries);
        BURST_TRY(status);
    }
    return BURST_OK;
}

void checkpoint_tried(BurstCtx *c, Folder *f)
{
    char path[PATH_MAX];
    for (; f->tries > 0; f->tries--)
        if (unfinished_path(c, path, sizeof path, f, f->tries - 1) == BURST_OK)
            unlink(path);
}

static int try_laid_out(BurstCtx *c, const Layout *l, Folder *f, int64_t done, int64_t writes, int64_t keep)
{
    char path[PATH_MAX];
    int64_t needed;
    BURST_TRY(unfinished_path(c, path, sizeof path, f, 0));
    if (c->rank == 0) {
        BURST_TRY(files_needed(c, f, done, writes, keep, &needed));
        BURST_TRY(reserve_space(c, l, f, needed, keep));
    }
    double nothing = 0;
    BURST_TRY(await_files(c, &nothing, 1));
    BURST_TRY(see_trial(c, path));
    return await_files(c, &nothing, 1); /* rank 0 may remove it now */
}

int checkpoint_try(BurstCtx *c, const BurstPlan *p, Folder *f, int64_t done, int64_t writes, int64_t keep)
{
    Layout l;
    if (!f->path || writes < 1)
        return BURST_OK;
    burst_doing(c, "testing the checkpoint directory");
    BURST_TRY(layout_make(c, p, 0, &l));
    int status = try_laid_out(c, &l, f, done, writes, keep);
    layout_free(&l);
    return status;
}

/* Broadcasts rank 0's tag, in halves that doubles represent exactly. */
static int share_tag(BurstCtx *c, Folder *f)
{
    double half[2] = {(double)(f->tag >> 32), (double)(uint32_t)f->tag};
    BURST_TRY(await_files(c, half, 2));
    f->tag = (uint64_t)half[0] << 32 | (uint32_t)half[1];
    return BURST_OK;
}

int checkpoint_open(BurstCtx *c, const BurstPlan *p, const char *path, Folder *f)
{
    *f = (Folder){.path = path, .lock = -1};
    burst_doing(c, "opening the checkpoint directory");
    if (c->rank == 0)
        BURST_TRY(start_folder(c, p, f));
    return share_tag(c, f);
}

int checkpoint_elsewhere(BurstCtx *c, const char *base, char path[], size_t size, Folder *f)
{
    *f = (Folder){.path = path, .lock = -1};
    int status = c->rank == 0 ? draw_tag(c, f) : BURST_OK;
    BURST_TRY(all_agree(c, status));
    BURST_TRY(share_tag(c, f));
    if (snprintf(path, size, "%s/burst-rescued-%016llx", base, (unsigned long long)f->tag) >= (int)size)
        status = burst_fail(c, BURST_E_IO, "the path '%s' is too long", base);
    else if (c->rank == 0 && mkdir(path, 0777) != 0)
        status = io_failed(c, "create the directory", path);
    return all_agree(c, status);
}

void checkpoint_close(Folder *f)
{
    if (f->path && f->lock >= 0)
        close(f->lock);
    *f = (Folder){.lock = -1};
}

/* ---- checkpoints of earlier runs ---- */

int checkpoint_begins(BurstCtx *c, const Folder *f, int64_t done)
{
    Steps s;
    if (!f->path || c->rank != 0)
        return BURST_OK;
    int status = checkpoint_list(c, f->path, false, &s);
    long long newest = s.count > 0 ? s.at[s.count - 1] : -1;
    free(s.at);
    if (status != BURST_OK || newest <= done)
        return status;
    if (done)
        return burst_fail(c, BURST_E_USAGE,
                          "'%s' has checkpoints later than step %lld, where this run starts (up to step "
                          "%lld); use --fresh to move them to a subdirectory, or choose another directory",
                          f->path, (long long)done, newest);
    return burst_fail(
        c, BURST_E_USAGE,
        "'%s' has checkpoints of an earlier run, up to step %lld; use --resume to continue from there, "
        "--fresh to move them to a subdirectory and start over, or choose another directory",
        f->path, newest);
}

static int make_aside(BurstCtx *c, const char *directory, char path[ASIDE])
{
    for (int i = 1; i < ASIDE_MOST; i++) {
        if (snprintf(path, ASIDE, "%s/earlier-%d", directory, i) >= ASIDE)
            return burst_fail(c, BURST_E_IO, "the path '%s' is too long", directory);
        if (mkdir(path, 0777) == 0)
            return BURST_OK;
        if (errno != EEXIST)
            break;
    }
    return io_failed(c, "create the directory", path);
}

/* Starts with the oldest: if interrupted, the newest is still in place. */
static int move_aside(BurstCtx *c, const char *directory, const Steps *s, int first)
{
    char aside[ASIDE], from[PATH_MAX], to[PATH_MAX];
    BURST_TRY(make_aside(c, directory, aside));
    for (int i = first; i < s->count; i++) {
        checkpoint_path(from, sizeof from, directory, s->at[i]);
        checkpoint_path(to, sizeof to, aside, s->at[i]);
        if (rename(from, to) != 0)
            return io_failed(c, "move", from);
    }
    const int moved = s->count - first;
    say_line("moved %d earlier checkpoint%s of '%s' to '%s'", moved, moved > 1 ? "s" : "", directory, aside);
    return BURST_OK;
}

int checkpoint_set_aside(BurstCtx *c, const Folder *f, int64_t done)
{
    Steps s;
    int first = 0;
    if (!f->path || c->rank != 0)
        return BURST_OK;
    int status = checkpoint_list(c, f->path, false, &s);
    while (first < s.count && s.at[first] <= done)
        first++;
    if (status == BURST_OK && first < s.count)
        status = move_aside(c, f->path, &s, first);
    free(s.at);
    return status;
}
