/* checkpoint_read.c: verifies checkpoints and reads this rank's slices, whatever the world size that wrote them. */
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

enum { REASON = 256, DAMAGED = 1, BLOCK = 1 << 20 };

static uint32_t get32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int damaged(char *reason, const char *text)
{
    snprintf(reason, REASON, "%s", text);
    return DAMAGED;
}

static off_t data_after(uint32_t json_bytes)
{
    return ((off_t)CHECKPOINT_PREFIX + json_bytes + CHECKPOINT_PAGE - 1) / CHECKPOINT_PAGE * CHECKPOINT_PAGE;
}

static json_t *read_facts(int fd, off_t *data_at, char *reason)
{
    unsigned char prefix[CHECKPOINT_PREFIX];
    json_t *facts = NULL;
    if (!read_at(fd, prefix, sizeof prefix, 0) || memcmp(prefix, CHECKPOINT_MAGIC, 8) != 0 || get32(prefix + 8) != CHECKPOINT_VERSION) {
        damaged(reason, "it is not a checkpoint of this version");
        return NULL;
    }
    struct stat st;
    uint32_t n = get32(prefix + 12);
    char *text = fstat(fd, &st) == 0 && n < st.st_size ? malloc(n) : NULL;
    if (text && read_at(fd, text, n, CHECKPOINT_PREFIX))
        facts = json_loadb(text, n, 0, NULL);
    free(text);
    *data_at = data_after(n);
    if (!facts)
        damaged(reason, "its header cannot be read");
    return facts;
}

/* Another model is no damage: nothing older will fit either. */
static int other_model(BurstCtx *c, const char *path, json_t *there, json_t *here)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(here, "model"), key, value) {
        json_t *other = json_object_get(json_object_get(there, "model"), key);
        if (!json_equal(other, value))
            return burst_fail(c, BURST_E_USAGE, "%s is of another model: its %s is %lld, and the plan's %lld", path, key,
                              (long long)json_integer_value(other), (long long)json_integer_value(value));
    }
    if (!json_equal(json_object_get(there, "units"), json_object_get(here, "units")))
        return burst_fail(c, BURST_E_USAGE, "%s is of another model: its weights have other sizes", path);
    return BURST_OK;
}

static int compare(BurstCtx *c, const BurstPlan *p, const char *path, json_t *facts)
{
    json_t *here = checkpoint_facts(p, c->train, 0);
    if (!here)
        return burst_fail(c, BURST_E_MEMORY, "no memory for a checkpoint's header");
    int status = other_model(c, path, facts, here);
    json_decref(here);
    return status;
}

static uint32_t sum_of(int fd, off_t begin, off_t end, unsigned char *block, bool *readable)
{
    uLong sum = 0;
    for (off_t at = begin; at < end && *readable; at += BLOCK) {
        size_t n = (size_t)(end - at < BLOCK ? end - at : BLOCK);
        *readable = read_at(fd, block, n, at);
        sum = crc32_z(sum, block, n);
    }
    return (uint32_t)sum;
}

/* The ranks share the work: each looks at every world-th section, and all at header and footer. */
static int verify_sums(const BurstCtx *c, const Layout *l, int fd, unsigned char *footer, unsigned char *block, char *reason)
{
    bool readable = read_at(fd, footer, (size_t)(l->end - l->footer_at), l->footer_at);
    if (!readable || memcmp(footer + 4 * (l->sections + 1), CHECKPOINT_END, 8) != 0)
        return damaged(reason, "it is cut short");
    if (sum_of(fd, 0, l->data_at, block, &readable) != get32(footer + 4 * l->sections))
        return damaged(reason, "its header does not match its checksum");
    for (int s = c->rank; s < l->sections; s += c->world)
        if (sum_of(fd, l->section_at[s], l->section_at[s + 1], block, &readable) != get32(footer + 4 * s) || !readable)
            return damaged(reason, "its data do not match their checksum");
    return BURST_OK;
}

static int verify(BurstCtx *c, const Layout *l, int fd, char *reason)
{
    unsigned char *footer = malloc((size_t)(l->end - l->footer_at)), *block = malloc(BLOCK);
    int status = footer && block ? verify_sums(c, l, fd, footer, block, reason)
                                 : burst_fail(c, BURST_E_MEMORY, "no memory to verify a checkpoint");
    free(footer);
    free(block);
    return status;
}

static bool read_slices(const BurstCtx *c, const BurstPlan *p, BurstWeights *w, const Layout *l, int fd)
{
    float **const kind[CHECKPOINT_KINDS] = {w->param, w->m, w->v};
    for (int s = 0; s < l->sections; s++) {
        const BurstUnit *u = burst_unit(p, s / CHECKPOINT_KINDS);
        int64_t first = c->rank * u->shard, left = u->elements - first;
        int64_t count = left < 0 ? 0 : left < u->shard ? left : u->shard;
        float *slice = kind[s % CHECKPOINT_KINDS][s / CHECKPOINT_KINDS];
        memset(slice, 0, (size_t)u->shard * sizeof *slice);
        if (!read_at(fd, slice, (size_t)count * sizeof *slice, l->section_at[s] + (off_t)(first * (int64_t)sizeof *slice)))
            return false;
    }
    return true;
}

/* BURST_OK, DAMAGED with the reason, or an error. */
static int check_open(BurstCtx *c, const BurstPlan *p, const char *path, int fd, Layout *l, int64_t *done, char *reason)
{
    off_t data_at = 0;
    json_t *facts = read_facts(fd, &data_at, reason);
    if (!facts)
        return DAMAGED;
    *done = json_integer_value(json_object_get(facts, "step"));
    int status = compare(c, p, path, facts);
    json_decref(facts);
    BURST_TRY(status);
    BURST_TRY(layout_at(c, p, data_at, l));
    return verify(c, l, fd, reason);
}

/* What one rank finds damaged is damaged for all. */
static int agree(BurstCtx *c, int status, char *reason)
{
    double bad = status == DAMAGED;
    if (status < 0)
        return status;
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, &bad, 1));
    return bad == 0 ? BURST_OK : *reason ? DAMAGED : damaged(reason, "its data do not match their checksum");
}

static int read_file(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *path, int64_t *done, char *reason)
{
    Layout l = {0};
    *reason = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int status = fd < 0 ? damaged(reason, strerror(errno)) : check_open(c, p, path, fd, &l, done, reason);
    status = agree(c, status, reason);
    if (status == BURST_OK && !read_slices(c, p, w, &l, fd))
        status = burst_fail(c, BURST_E_IO, "cannot read %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    layout_free(&l);
    return status;
}

/* Rank 0 looks into the directory for all: -1 where there is none. */
static int newest_for_all(BurstCtx *c, const char *directory, int64_t below, int64_t *newest)
{
    double value = c->rank == 0 ? (double)newest_checkpoint(directory, below) : 0;
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, &value, 1));
    *newest = (int64_t)value;
    return BURST_OK;
}

static int read_newest(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *directory, int64_t *done)
{
    char path[PATH_MAX], reason[REASON];
    int64_t newest, below = INT64_MAX;
    for (;; below = newest) {
        BURST_TRY(newest_for_all(c, directory, below, &newest));
        if (newest < 0)
            break;
        checkpoint_path(path, sizeof path, directory, newest);
        int status = read_file(c, p, w, path, done, reason);
        if (status != DAMAGED)
            return status;
        if (c->rank == 0)
            fprintf(stderr, "burst: %s is not used: %s\n", path, reason);
    }
    if (below != INT64_MAX)
        return burst_fail(c, BURST_E_IO, "no checkpoint in %s is whole", directory);
    if (c->rank == 0)
        fprintf(stderr, "burst: no checkpoint in %s: starting from the beginning\n", directory);
    *done = 0;
    return BURST_OK;
}

int checkpoint_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *directory, const char *file, int64_t *done)
{
    char reason[REASON];
    burst_doing(c, "reading a checkpoint");
    if (!file)
        return read_newest(c, p, w, directory, done);
    int status = read_file(c, p, w, file, done, reason);
    return status == DAMAGED ? burst_fail(c, BURST_E_IO, "cannot resume from %s: %s", file, reason) : status;
}
