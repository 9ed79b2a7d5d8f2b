/* checkpoint_write.c: every rank writes its slices into one file, which gets its name when it is whole. */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* The sums of all slices stand behind the footer until they have been combined. */
static off_t slice_sums_at(const Layout *l, int rank)
{
    return l->end + (off_t)rank * l->sections * (off_t)sizeof(uint32_t);
}

static int create(BurstCtx *c, const Layout *l, const char *directory, const char *path)
{
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return io_failed(c, "make the directory", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return io_failed(c, "write", path);
    int reason = posix_fallocate(fd, 0, slice_sums_at(l, c->world)); /* a full disk shows before anything is written */
    bool written = reason == 0 && write_at(fd, l->header, (size_t)l->data_at, 0);
    errno = reason ? reason : errno;
    return close_written(c, fd, written, path);
}

static int64_t slice_of(const BurstUnit *u, int rank)
{
    int64_t left = u->elements - rank * u->shard;
    return left < 0 ? 0 : left < u->shard ? left : u->shard;
}

static bool write_slices(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Layout *l, int fd, uint32_t *sums)
{
    float **const kind[CHECKPOINT_KINDS] = {w->param, w->m, w->v};
    for (int s = 0; s < l->sections; s++) {
        const BurstUnit *u = burst_unit(p, s / CHECKPOINT_KINDS);
        const float *slice = kind[s % CHECKPOINT_KINDS][s / CHECKPOINT_KINDS];
        size_t bytes = (size_t)slice_of(u, c->rank) * sizeof *slice;
        sums[s] = (uint32_t)crc32_z(0, (const Bytef *)slice, bytes);
        if (!write_at(fd, slice, bytes, l->section_at[s] + (off_t)(c->rank * u->shard * (int64_t)sizeof *slice)))
            return false;
    }
    return write_at(fd, sums, (size_t)l->sections * sizeof *sums, slice_sums_at(l, c->rank));
}

static int write_mine(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Layout *l, const char *path)
{
    uint32_t *sums = calloc((size_t)l->sections, sizeof *sums);
    if (!sums)
        return burst_fail(c, BURST_E_MEMORY, "no memory for a checkpoint's checksums");
    int fd = open(path, O_WRONLY | O_CLOEXEC), status;
    if (fd < 0)
        status = io_failed(c, "write", path);
    else
        status = close_written(c, fd, write_slices(c, p, w, l, fd, sums), path);
    free(sums);
    return status;
}

/* footer: a sum for each section, one for the header, and the end mark. */
static bool combine(const BurstPlan *p, const Layout *l, int fd, uint32_t *footer, uint32_t *sums)
{
    for (int rank = 0; rank < p->world; rank++) {
        if (!read_at(fd, sums, (size_t)l->sections * sizeof *sums, slice_sums_at(l, rank)))
            return false;
        for (int s = 0; s < l->sections; s++) {
            z_off_t bytes = (z_off_t)(slice_of(burst_unit(p, s / CHECKPOINT_KINDS), rank) * (int64_t)sizeof(float));
            footer[s] = (uint32_t)crc32_combine(footer[s], sums[s], bytes);
        }
    }
    footer[l->sections] = (uint32_t)crc32_z(0, (const Bytef *)l->header, (size_t)l->data_at);
    memcpy(footer + l->sections + 1, CHECKPOINT_END, 8);
    return write_at(fd, footer, (size_t)(l->end - l->footer_at), l->footer_at) && ftruncate(fd, l->end) == 0;
}

static int finish(BurstCtx *c, const BurstPlan *p, const Layout *l, const char *path)
{
    uint32_t *footer = calloc((size_t)l->sections + 3, sizeof *footer), *sums = calloc((size_t)l->sections, sizeof *sums);
    int status = BURST_OK;
    if (!footer || !sums) {
        status = burst_fail(c, BURST_E_MEMORY, "no memory for a checkpoint's checksums");
    } else {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        status = fd < 0 ? io_failed(c, "write", path) : close_written(c, fd, combine(p, l, fd, footer, sums), path);
    }
    free(footer);
    free(sums);
    return status;
}

/* Gives the file its name, and makes sure that the name outlives a crash. */
static int publish(BurstCtx *c, const char *directory, const char *path, const char *final)
{
    if (rename(path, final) != 0)
        return io_failed(c, "rename a file to", final);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return io_failed(c, "open", directory);
    return close_written(c, fd, true, directory);
}

/* Newer ones than this, left by a run that was resumed from further back, stay. */
static void prune(const char *directory, int64_t done, int64_t keep)
{
    char path[PATH_MAX];
    for (int64_t kept = 1; (done = newest_checkpoint(directory, done)) >= 0; kept++)
        if (kept >= keep) {
            checkpoint_path(path, sizeof path, directory, done);
            unlink(path);
        }
}

static int write_all(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Layout *l, const char *directory, int64_t done)
{
    char path[PATH_MAX], final[PATH_MAX];
    BurstGroup all = {0, 1, c->world};
    checkpoint_path(final, sizeof final, directory, done);
    if (snprintf(path, sizeof path, "%s/.step-%08lld.part", directory, (long long)done) >= (int)sizeof path)
        return burst_fail(c, BURST_E_IO, "the name of %s is too long", directory);
    if (c->rank == 0)
        BURST_TRY(create(c, l, directory, path));
    BURST_TRY(burst_barrier(c, all));
    BURST_TRY(write_mine(c, p, w, l, path));
    BURST_TRY(burst_barrier(c, all));
    if (c->rank != 0)
        return BURST_OK;
    BURST_TRY(finish(c, p, l, path));
    return publish(c, directory, path, final);
}

int checkpoint_write(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const char *directory, int64_t done, int64_t keep)
{
    Layout l;
    burst_doing(c, "writing a checkpoint");
    BURST_TRY(layout_make(c, p, done, &l));
    int status = write_all(c, p, w, &l, directory, done);
    layout_free(&l);
    if (status == BURST_OK && c->rank == 0)
        prune(directory, done, keep);
    return status;
}
