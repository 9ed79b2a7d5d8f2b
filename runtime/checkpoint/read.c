/* checkpoint/read.c: verifies checkpoints and reads this rank's slices, for any world size of the writer. */
#include "checkpoint/checkpoint.h"

#include "core/region.h"
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Why a file is not used. A reason found by one rank is shared with all. */
#define REASONS(X) \
    X(UNREADABLE, "some ranks cannot read it") \
    X(IRREGULAR, "it is not a regular file") \
    X(FOREIGN, "it is not a checkpoint of this version") \
    X(SHORT, "the file is truncated") \
    X(HEADER_SUM, "its header does not match its checksum") \
    X(HEADER, "its header cannot be read") \
    X(STEPS, "the step in its header is not valid") \
    X(NAME, "its name and its header give different steps") \
    X(LENGTH, "its length does not match the weights in its header") \
    X(SUM, "its data does not match its checksum")
enum Reason {
    WHOLE,
#define X(id, text) id,
    REASONS(X)
#undef X
    REASON_COUNT
};
static const char *const reason_text[REASON_COUNT] = {
    [WHOLE] = "",
#define X(id, text) [id] = text,
    REASONS(X)
#undef X
};
enum { DAMAGED = 1, BLOCK = 1 << 20, TEXT_FLAGS = JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII };
enum { TRAILER = 12 }; /* the header's sum and the end mark */

/* A file from one rank's view. */
typedef struct Source {
    const char *path;
    int64_t named; /* steps in its name; 0: any */
    int fd;
    off_t size;
    Layout l;
    json_t *facts;
    int64_t done;
    enum Reason reason;
    int error; /* errno, if it is UNREADABLE here */
} Source;

static int damaged(Source *s, enum Reason reason)
{
    s->error = reason == UNREADABLE ? errno : 0;
    s->reason = reason;
    return DAMAGED;
}

static const char *text_of(const Source *s)
{
    return s->error ? strerror(s->error) : reason_text[s->reason];
}

static uint32_t get32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static off_t data_after(uint32_t json_bytes)
{
    return ((off_t)CHECKPOINT_PREFIX + json_bytes + CHECKPOINT_PAGE - 1) / CHECKPOINT_PAGE * CHECKPOINT_PAGE;
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

/* The header is used only after its sum, at the file's end, was verified. */
static int check_header(Source *s, uint32_t *json_bytes, unsigned char *block)
{
    unsigned char prefix[CHECKPOINT_PREFIX], trailer[TRAILER];
    bool readable = true;
    if (!read_at(s->fd, prefix, sizeof prefix, 0) || memcmp(prefix, CHECKPOINT_MAGIC, 8) != 0 ||
        get32(prefix + 8) != CHECKPOINT_VERSION)
        return damaged(s, FOREIGN);
    *json_bytes = get32(prefix + 12);
    s->l.data_at = data_after(*json_bytes);
    if (s->size < s->l.data_at + TRAILER || !read_at(s->fd, trailer, sizeof trailer, s->size - TRAILER) ||
        memcmp(trailer + 4, CHECKPOINT_END, 8) != 0)
        return damaged(s, SHORT);
    return sum_of(s->fd, 0, s->l.data_at, block, &readable) == get32(trailer) && readable
               ? BURST_OK
               : damaged(s, HEADER_SUM);
}

static int read_facts(Source *s, uint32_t json_bytes)
{
    char *text = malloc((size_t)json_bytes + 1);
    if (text && read_at(s->fd, text, json_bytes, CHECKPOINT_PREFIX))
        s->facts = json_loadb(text, json_bytes, 0, NULL);
    free(text);
    return json_is_object(s->facts) ? BURST_OK : damaged(s, HEADER);
}

static int check_steps(Source *s)
{
    const json_t *step = json_object_get(s->facts, "step");
    s->done = json_integer_value(step);
    if (!json_is_integer(step) || s->done < 1 || s->done > CHECKPOINT_STEPS_MOST)
        return damaged(s, STEPS);
    return s->named && s->named != s->done ? damaged(s, NAME) : BURST_OK;
}

/* Another model is not damage: no older file will fit either. */
static int other_model(BurstCtx *c, const char *path, json_t *there, json_t *here)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(here, "model"), key, value) {
        json_t *other = json_object_get(json_object_get(there, "model"), key);
        if (!json_equal(other, value))
            return burst_fail(c, BURST_E_USAGE,
                              "'%s' belongs to a different model: %s is %lld, expected %lld", path, key,
                              (long long)json_integer_value(other), (long long)json_integer_value(value));
    }
    if (!json_equal(json_object_get(there, "units"), json_object_get(here, "units")))
        return burst_fail(c, BURST_E_USAGE,
                          "'%s' belongs to a different model: the sizes of its weights differ", path);
    return BURST_OK;
}

/* Reports changes between two runs that are allowed. A fact that an older file lacks is not a change. */
static void add_differences(FILE *to, json_t *there, json_t *here)
{
    /* differences in the first two are errors */
    static const char *const free_to_change[] = {"model", "units", "step", "source", "world"};
    const char *key;
    json_t *value;
    json_object_foreach(here, key, value) {
        json_t *other = json_object_get(there, key);
        bool told = other && !json_equal(other, value);
        for (size_t i = 0; i < sizeof free_to_change / sizeof *free_to_change; i++)
            told = told && strcmp(key, free_to_change[i]) != 0;
        if (!told)
            continue;
        char *was = json_dumps(other, TEXT_FLAGS), *is = json_dumps(value, TEXT_FLAGS);
        fprintf(to, "%s%s was %s, now %s", ftell(to) > 0 ? "; " : "", key, was ? was : "?", is ? is : "?");
        free(was);
        free(is);
    }
}

static void say_differences(const char *path, json_t *there, json_t *here)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    if (!to)
        return;
    add_differences(to, there, here);
    if (fclose(to) == 0 && n > 0)
        say_line("resuming from '%s' with changed settings: %s", path, text);
    free(text);
}

/* First moments of matrices are different sums, and Muon has no second moments. An older file has
 * AdamW's. */
static int other_optimizer(BurstCtx *c, const char *path, json_t *there, json_t *here)
{
    const char *was = json_string_value(json_object_get(there, "optimizer")),
               *is = json_string_value(json_object_get(here, "optimizer"));
    was = was ? was : "adamw";
    if (is && strcmp(was, is) == 0)
        return BURST_OK;
    return burst_fail(c, BURST_E_USAGE,
                      "'%s' has the moments of optimizer %s, and this program trains with %s: resume it with "
                      "%s, or start from exported weights",
                      path, was, is ? is : "another one", was);
}

static int compare(BurstCtx *c, const Source *s, json_t *here)
{
    if (!here)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the checkpoint header");
    BURST_TRY(other_model(c, s->path, s->facts, here));
    return other_optimizer(c, s->path, s->facts, here);
}

/* The ranks divide the work: each verifies every world-th section. */
static int verify_sums(const BurstCtx *c, Source *s, unsigned char *footer, unsigned char *block)
{
    const Layout *l = &s->l;
    bool readable = read_at(s->fd, footer, (size_t)(l->end - l->footer_at), l->footer_at);
    for (int i = c->rank; readable && i < l->sections; i += c->world)
        if (sum_of(s->fd, l->section_at[i], l->section_at[i + 1], block, &readable) != get32(footer + 4 * i))
            return damaged(s, readable ? SUM : UNREADABLE);
    return readable ? BURST_OK : damaged(s, UNREADABLE);
}

static int verify(BurstCtx *c, Source *s, unsigned char *block)
{
    if (s->l.end != s->size)
        return damaged(s, LENGTH);
    unsigned char *footer = malloc((size_t)(s->l.end - s->l.footer_at));
    int status = footer ? verify_sums(c, s, footer, block)
                        : burst_fail(c, BURST_E_MEMORY, "out of memory while verifying a checkpoint");
    free(footer);
    return status;
}

static bool read_runs(const BurstCtx *c, const BurstPlan *p, const BurstUnit *u, float *slice, int fd,
                      off_t section_at)
{
    memset(slice, 0, (size_t)u->shard * sizeof *slice);
    for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
        for (BurstRun r = {0}; burst_next_run(p, c->rank, u, t, &r);)
            if (!read_at(fd, slice + r.at, (size_t)r.count * sizeof *slice,
                         section_at + (off_t)((t->offset + r.from) * (int64_t)sizeof *slice)))
                return false;
    return true;
}

static bool read_slices(const BurstCtx *c, const BurstPlan *p, BurstWeights *w, const Layout *l, int fd)
{
    float **const kind[CHECKPOINT_KINDS] = {w->param, w->m, w->v};
    for (int s = 0; s < l->sections; s++) {
        const int whole = s / CHECKPOINT_KINDS;
        /* a run that only evaluates has no moments */
        for (int n = 0, unit = whole; unit >= 0; unit = burst_part_of_whole(p, whole, ++n)) {
            float *slice = kind[s % CHECKPOINT_KINDS][unit];
            if (slice && !read_runs(c, p, burst_unit(p, unit), slice, fd, l->section_at[s]))
                return false;
        }
    }
    return true;
}

static int check_blocks(BurstCtx *c, const BurstPlan *p, Source *s, json_t *here, unsigned char *block)
{
    uint32_t json_bytes;
    BURST_TRY(check_header(s, &json_bytes, block));
    BURST_TRY(read_facts(s, json_bytes));
    BURST_TRY(check_steps(s));
    BURST_TRY(compare(c, s, here));
    BURST_TRY(layout_at(c, p, s->l.data_at, &s->l));
    return verify(c, s, block);
}

/* Returns BURST_OK, DAMAGED, or an error. */
static int check(BurstCtx *c, const BurstPlan *p, Source *s, json_t *here)
{
    struct stat st;
    /* a FIFO may have no writer */
    s->fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (s->fd < 0 || fstat(s->fd, &st) != 0)
        return damaged(s, UNREADABLE);
    if (!S_ISREG(st.st_mode))
        return damaged(s, IRREGULAR);
    s->size = st.st_size;
    unsigned char *block = malloc(BLOCK);
    int status = block ? check_blocks(c, p, s, here, block)
                       : burst_fail(c, BURST_E_MEMORY, "out of memory while verifying a checkpoint");
    free(block);
    return status;
}

/* A file that one rank finds damaged is damaged for all; a rank's own reason comes before another's. */
static int agree(BurstCtx *c, Source *s, int status)
{
    double found[REASON_COUNT] = {0};
    if (status < 0)
        return status;
    found[s->reason] = 1;
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, found, REASON_COUNT));
    for (int i = WHOLE + 1; s->reason == WHOLE && i < REASON_COUNT; i++)
        if (found[i] > 0)
            s->reason = (enum Reason)i;
    return s->reason == WHOLE ? BURST_OK : DAMAGED;
}

static int read_file(BurstCtx *c, const BurstPlan *p, BurstWeights *w, Source *s)
{
    json_t *here = checkpoint_facts(p, c->train, 0);
    int status = agree(c, s, check(c, p, s, here));
    if (status == BURST_OK && !read_slices(c, p, w, &s->l, s->fd))
        status = io_failed(c, "read", s->path);
    if (status == BURST_OK && c->rank == 0) {
        say_differences(s->path, s->facts, here);
        region_saved(c->region, s->path);
    }
    json_decref(s->facts);
    json_decref(here);
    if (s->fd >= 0)
        close(s->fd);
    layout_free(&s->l);
    return status;
}

/* Rank 0 has listed the directory for all; -1: no more. */
static int next_for_all(BurstCtx *c, const Steps *s, int i, int64_t *steps)
{
    const double found = i >= 0 ? (double)s->at[i] : -1;
    double value = c->rank == 0 ? found : 0;
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, &value, 1));
    *steps = (int64_t)value;
    return BURST_OK;
}

static int read_listed(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *directory,
                       const Steps *listed, int64_t *done)
{
    char path[PATH_MAX];
    int64_t steps;
    for (int i = 0;; i++) {
        BURST_TRY(next_for_all(c, listed, listed->count - 1 - i, &steps));
        if (steps < 0 && i > 0)
            return burst_fail(c, BURST_E_IO, "no valid checkpoint in '%s'", directory);
        if (steps < 0)
            break;
        checkpoint_path(path, sizeof path, directory, steps);
        Source s = {.path = path, .named = steps};
        int status = read_file(c, p, w, &s);
        if (status != DAMAGED)
            return *done = s.done, status;
        if (c->rank == 0)
            say_line("ignoring '%s': %s", path, text_of(&s));
    }
    if (c->rank == 0)
        say_line("no checkpoint in '%s'; starting from step 0", directory);
    return BURST_OK;
}

static int read_newest(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *directory, int64_t *done)
{
    Steps listed = {0};
    int status = c->rank == 0 ? checkpoint_list(c, directory, true, &listed) : BURST_OK;
    if (status == BURST_OK)
        status = read_listed(c, p, w, directory, &listed, done);
    free(listed.at);
    return status;
}

int checkpoint_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *directory, const char *file,
                    int64_t *done)
{
    burst_doing(c, "reading a checkpoint");
    *done = 0;
    if (!file)
        return read_newest(c, p, w, directory, done);
    Source s = {.path = file};
    int status = read_file(c, p, w, &s);
    *done = s.done;
    return status == DAMAGED ? burst_fail(c, BURST_E_IO, "cannot resume from '%s': %s", file, text_of(&s))
                             : status;
}
