/* checkpoint/write.c: every rank writes its slices into one file, which gets its name once it is
 * complete. */
#include "checkpoint/checkpoint.h"

#include "core/region.h"
#include "core/weights.h"
#include "files/files.h"
#include "files/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* The sums of all slices are after the footer until they are combined; layout_room includes them. */
static off_t slice_sums_at(const Layout *l, int rank)
{
    return l->end + (off_t)rank * l->sections * (off_t)sizeof(uint32_t);
}

int checkpoint_create(BurstCtx *c, const Layout *l, const char *path)
{
    const off_t bytes = layout_room(l, c->world);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return io_failed(c, "write", path);
    bool reserved = reserve(fd, bytes);
    int reason = errno,
        status = close_written(c, fd, reserved && write_at(fd, l->header, (size_t)l->data_at, 0), path);
    if (status != BURST_OK)
        unlink(path);
    return reserved ? status
                    : burst_fail(c, BURST_E_IO, "cannot write '%s': a checkpoint takes %.4g GiB: %s", path,
                                 (double)bytes / (1 << 30), strerror(reason));
}

/* Whether ranks' shards follow each other in the section: tensor ranks split none of it, and it is one
 * unit. */
static bool is_in_order(const BurstPlan *p, int section)
{
    const int whole = section / CHECKPOINT_KINDS;
    return !unit_is_split(p, burst_unit(p, whole)) && burst_part_of_whole(p, whole, 1) < 0;
}

/* Elements of a section whose sum this rank computes: its shard, or none if a replica does. Where shards do
 * not follow each other it counts whole or not at all. */
static int64_t slice_of(const BurstPlan *p, int section, int rank)
{
    const BurstUnit *u = burst_unit(p, section / CHECKPOINT_KINDS);
    if (!is_in_order(p, section))
        return section % p->world == rank ? burst_whole_elements(p, section / CHECKPOINT_KINDS) : 0;
    int64_t left = u->elements - rank % plan_shards(p) * u->shard;
    if (left < 0 || !plan_writes(p, rank, section))
        return 0;
    return left < u->shard ? left : u->shard;
}

static bool write_runs(const BurstCtx *c, const BurstPlan *p, const BurstUnit *u, const float *slice, int fd,
                       off_t section_at)
{
    for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
        for (BurstRun r = {0}; tensor_is_written(p, c->rank, u, t) && burst_next_run(p, c->rank, u, t, &r);)
            if (!write_at(fd, slice + r.at, (size_t)r.count * sizeof *slice,
                          section_at + (off_t)((t->offset + r.from) * (int64_t)sizeof *slice)))
                return false;
    return true;
}

static bool write_slices(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Layout *l, int fd,
                         uint32_t *sums)
{
    float **const kind[CHECKPOINT_KINDS] = {w->param, w->m, w->v};
    for (int s = 0; s < l->sections; s++) {
        const int whole = s / CHECKPOINT_KINDS;
        float **of_kind = kind[s % CHECKPOINT_KINDS];
        for (int n = 0, unit = whole; unit >= 0; unit = burst_part_of_whole(p, whole, ++n))
            if (plan_writes(p, c->rank, s) &&
                !write_runs(c, p, burst_unit(p, unit), of_kind[unit], fd, l->section_at[s]))
                return false;
        if (is_in_order(p, s))
            sums[s] = (uint32_t)crc32_z(0, (const Bytef *)of_kind[whole],
                                        (size_t)slice_of(p, s, c->rank) * sizeof **of_kind);
    }
    return write_at(fd, sums, (size_t)l->sections * sizeof *sums, slice_sums_at(l, c->rank));
}

static bool sum_section(int fd, off_t at, off_t end, uint32_t *sum)
{
    unsigned char block[1 << 14];
    *sum = 0;
    for (; at < end; at += (off_t)sizeof block) {
        const size_t n = (size_t)(end - at) < sizeof block ? (size_t)(end - at) : sizeof block;
        if (!read_at(fd, block, n, at))
            return false;
        *sum = (uint32_t)crc32_z(*sum, block, n);
    }
    return true;
}

/* Computes sums of sections whose elements no rank has in order, by reading them once all ranks have
 * written. */
static int sum_split(BurstCtx *c, const BurstPlan *p, const Layout *l, const char *path)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    bool done = fd >= 0;
    for (int s = 0; done && s < l->sections; s++) {
        uint32_t sum;
        if (!is_in_order(p, s) && slice_of(p, s, c->rank))
            done = sum_section(fd, l->section_at[s], l->section_at[s + 1], &sum) &&
                   write_at(fd, &sum, sizeof sum, slice_sums_at(l, c->rank) + s * (off_t)sizeof sum);
    }
    return fd < 0 ? io_failed(c, "write", path) : close_written(c, fd, done, path);
}

static int write_mine(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Layout *l,
                      const char *path)
{
    uint32_t *sums = calloc((size_t)l->sections, sizeof *sums);
    if (!sums)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the checkpoint's checksums");
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC), status;
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
            z_off_t bytes = (z_off_t)(slice_of(p, s, rank) * (int64_t)sizeof(float));
            footer[s] = (uint32_t)crc32_combine(footer[s], sums[s], bytes);
        }
    }
    footer[l->sections] = (uint32_t)crc32_z(0, (const Bytef *)l->header, (size_t)l->data_at);
    memcpy(footer + l->sections + 1, CHECKPOINT_END, 8);
    return write_at(fd, footer, (size_t)(l->end - l->footer_at), l->footer_at) && ftruncate(fd, l->end) == 0;
}

static int finish(BurstCtx *c, const BurstPlan *p, const Layout *l, const char *path)
{
    uint32_t *footer = calloc((size_t)l->sections + 3, sizeof *footer),
             *sums = calloc((size_t)l->sections, sizeof *sums);
    int status = BURST_OK;
    if (!footer || !sums) {
        status = burst_fail(c, BURST_E_MEMORY, "out of memory for the checkpoint's checksums");
    } else {
        int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        status = fd < 0 ? io_failed(c, "write", path)
                        : close_written(c, fd, combine(p, l, fd, footer, sums), path);
    }
    free(footer);
    free(sums);
    return status;
}

/* Gives the file its name, and makes the name durable. */
static int publish(BurstCtx *c, const char *directory, const char *path, const char *final)
{
    if (rename(path, final) != 0)
        return io_failed(c, "rename a file to", final);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return io_failed(c, "open", directory);
    return close_written(c, fd, true, directory);
}

/* Keeps newer checkpoints: damaged ones that a resumed run skipped. */
static int prune(BurstCtx *c, const char *directory, int64_t done, int64_t keep)
{
    char path[PATH_MAX];
    Steps s;
    int status = checkpoint_list(c, directory, false, &s);
    for (int i = s.count - 1, kept = 0; status == BURST_OK && i >= 0; i--) {
        checkpoint_path(path, sizeof path, directory, s.at[i]);
        if (s.at[i] <= done && ++kept > keep && unlink(path) != 0 && errno != ENOENT)
            status = io_failed(c, "remove", path);
    }
    free(s.at);
    return status;
}

/* Checks the lock: the folder may have been replaced during the run. */
static int hold(BurstCtx *c, const BurstPlan *p, Folder *f)
{
    if (f->lock < 0 || lock_stands(f->path, f->lock))
        return BURST_OK;
    close(f->lock);
    return checkpoint_take(c, p, f);
}

/* All ranks agree whether all have written: then none waits for one that failed, and all can try another
 * location. */
static int write_all(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Layout *l, Folder *f,
                     const char *path)
{
    int status = c->rank == 0 ? hold(c, p, f) : BURST_OK;
    if (status == BURST_OK && c->rank == 0)
        status = checkpoint_create(c, l, path);
    BURST_TRY(all_agree(c, status));
    BURST_TRY(all_agree(c, write_mine(c, p, w, l, path)));
    if (p->tensor || p->expert_groups)
        BURST_TRY(all_agree(c, sum_split(c, p, l, path)));
    return c->rank == 0 ? finish(c, p, l, path) : BURST_OK;
}

static int write_laid_out(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Layout *l, Folder *f,
                          int64_t done, int64_t keep)
{
    char path[PATH_MAX], final[PATH_MAX];
    BURST_TRY(unfinished_path(c, path, sizeof path, f, done));
    checkpoint_path(final, sizeof final, f->path, done);
    int status = write_all(c, p, w, l, f, path);
    if (c->rank != 0)
        return all_agree(c, status);
    if (status == BURST_OK)
        status = publish(c, f->path, path, final);
    if (status != BURST_OK)
        return unlink(path), all_agree(c, status);
    region_saved(c->region, final);
    if (atomic_load(&region_head(c->region)->state) != RUNNING)
        /* a failure report may name the previous checkpoint */
        return all_agree(c, BURST_OK);
    return all_agree(c, prune(c, f->path, done, keep));
}

int checkpoint_write(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, Folder *f, int64_t done,
                     int64_t keep)
{
    Layout l;
    burst_doing(c, "writing a checkpoint");
    BURST_TRY(layout_make(c, p, done, &l));
    int status = write_laid_out(c, p, w, &l, f, done, keep);
    layout_free(&l);
    return status;
}
