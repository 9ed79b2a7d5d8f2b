/* checkpoint.h: the whole training state in one file a step (docs/runtime.md describes the format). */
#ifndef BURST_CHECKPOINT_H
#define BURST_CHECKPOINT_H

#include "internal.h"

#include <jansson.h>
#include <sys/types.h>

/* Writes <directory>/step-%08d.burst, whole or not at all, and removes all but the newest `keep`. Every rank calls. */
int checkpoint_write(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const char *directory, int64_t done, int64_t keep);
/* Fills the shards from `file`, or where that is NULL from the newest whole checkpoint of the directory (none: *done
 * stays 0 and the weights as they are). *done: steps behind it. Every rank calls. */
int checkpoint_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *directory, const char *file, int64_t *done);

/* ---- the file's layout: header, pad, sections, footer ---- */
enum { CHECKPOINT_VERSION = 1, CHECKPOINT_KINDS = 3, CHECKPOINT_PREFIX = 16, CHECKPOINT_PAGE = 4096 };
#define CHECKPOINT_MAGIC "BURSTCKP"
#define CHECKPOINT_END "BURSTEND"
/* A section is one kind (param, m, v) of one unit, its elements without padding. */
typedef struct Layout {
    char *header;       /* [data_at]: magic, version, length of the JSON, JSON, zeros; NULL when reading */
    int sections;
    off_t data_at, footer_at, end;
    off_t *section_at;  /* [sections + 1] */
} Layout;
/* What this plan writes after `done` steps. */
int layout_make(BurstCtx *c, const BurstPlan *p, int64_t done, Layout *l);
/* The sections of a file whose header ends at data_at. */
int layout_at(BurstCtx *c, const BurstPlan *p, off_t data_at, Layout *l);
void layout_free(Layout *l);
/* The facts of the header: {"model": ..., "units": ..., "step": ...}; the caller frees. NULL: no memory. */
json_t *checkpoint_facts(const BurstPlan *p, const BurstTrain *t, int64_t done);

/* ---- files ---- */
/* "cannot <what> <path>: <errno's reason>" */
int io_failed(BurstCtx *c, const char *what, const char *path);
/* Closes a file that was written, or (written false, errno says why) was not; it is on the disk when this returns BURST_OK. */
int close_written(BurstCtx *c, int fd, bool written, const char *path);
bool write_at(int fd, const void *data, size_t bytes, off_t at);
/* false with errno 0: the file ends before. */
bool read_at(int fd, void *data, size_t bytes, off_t at);
/* The newest checkpoint in the directory that has fewer than `below` steps behind it: its steps, or -1. */
int64_t newest_checkpoint(const char *directory, int64_t below);
void checkpoint_path(char *path, size_t size, const char *directory, int64_t done);
#endif
