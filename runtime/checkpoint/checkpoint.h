/* checkpoint.h: the whole training state in one file a step (docs/runtime.md describes the format). */
#ifndef BURST_CHECKPOINT_H
#define BURST_CHECKPOINT_H

#include "core/internal.h"

#include <jansson.h>
#include <sys/types.h>

/* ---- a run's folder; every rank calls ---- */
typedef struct Folder {
    const char *path; /* NULL: this run writes no checkpoints */
    int lock;         /* of rank 0: its .lock, held as long as it is open; -1: the file system has no locks */
    uint64_t tag;     /* in the names of this run's unfinished files; the same on every rank */
    int64_t tries;    /* files of rank 0 that take room */
} Folder;
/* Makes the folder if it is missing, takes it for this run (another run that has it is an error that names
 * it), and removes what dead runs left unfinished. */
int checkpoint_open(BurstCtx *c, const BurstPlan *p, const char *path, Folder *f);
/* Takes the room of all files that this run, which writes `writes` and keeps the newest `keep`, needs at
 * once beyond those that are there after `done` steps: until checkpoint_tried. */
int checkpoint_try(BurstCtx *c, const BurstPlan *p, Folder *f, int64_t done, int64_t writes, int64_t keep);
void checkpoint_tried(BurstCtx *c, Folder *f);
/* A new folder of its own in `base`, for a state that finds no room where it should be. */
int checkpoint_elsewhere(BurstCtx *c, const char *base, char path[], size_t size, Folder *f);
/* Fails where the folder has checkpoints of more steps than this run begins with: they would win over its
 * own. */
int checkpoint_begins(BurstCtx *c, const Folder *f, int64_t done);
/* Moves those into a new folder in it. */
int checkpoint_set_aside(BurstCtx *c, const Folder *f, int64_t done);
void checkpoint_close(Folder *f);

/* Writes <folder>/step-%08d.burst, whole or not at all, and removes all but the newest `keep`. */
int checkpoint_write(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, Folder *f, int64_t done,
                     int64_t keep);
/* Fills the shards from `file`, or where that is NULL from the newest whole checkpoint of the directory
 * (none: *done stays 0 and the weights as they are). *done: steps behind it. */
int checkpoint_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *directory, const char *file,
                    int64_t *done);

/* ---- the file's layout: header, pad, sections, footer ---- */
enum { CHECKPOINT_VERSION = 1, CHECKPOINT_KINDS = 3, CHECKPOINT_PREFIX = 16, CHECKPOINT_PAGE = 4096 };
#define CHECKPOINT_MAGIC "BURSTCKP"
#define CHECKPOINT_END "BURSTEND"
#define CHECKPOINT_STEPS_MOST (INT64_C(1) << 52) /* so that doubles can tell ranks a number of steps */
/* A section is one kind (param, m, v) of one unit, its elements without padding. */
typedef struct Layout {
    /* of rank 0, when writing: [data_at]: magic, version, length of the JSON, JSON, zeros */
    char *header;
    int sections;
    off_t data_at, footer_at, end;
    off_t *section_at;  /* [sections + 1] */
} Layout;
/* What this plan writes after `done` steps; every rank calls. */
int layout_make(BurstCtx *c, const BurstPlan *p, int64_t done, Layout *l);
/* The sections of a file whose header ends at data_at. */
int layout_at(BurstCtx *c, const BurstPlan *p, off_t data_at, Layout *l);
void layout_free(Layout *l);
off_t layout_room(const Layout *l, int world); /* bytes while the ranks write it */
/* The facts of the header: {"model": ..., "units": ..., "step": ...}; the caller frees. NULL: no memory. */
json_t *checkpoint_facts(const BurstPlan *p, const BurstTrain *t, int64_t done);

/* ---- files ---- */
/* "cannot <what> <path>: <errno's reason>"; errno 0: it ends early. */
int io_failed(BurstCtx *c, const char *what, const char *path);
/* Closes a file that was written, or (written false, errno says why) was not; it is on the disk when this
 * returns BURST_OK. */
int close_written(BurstCtx *c, int fd, bool written, const char *path);
/* Takes the room of a new file, so that a full disk shows before anything is written. Where the file
 * system cannot, what it calls free has to do. false with errno. */
bool reserve(int fd, off_t bytes);
bool write_at(int fd, const void *data, size_t bytes, off_t at);
/* Rank 0 makes the folder and takes its lock. */
int checkpoint_take(BurstCtx *c, const BurstPlan *p, Folder *f);
/* Rank 0 makes the unfinished file of a checkpoint: with its header, and its room taken. */
int checkpoint_create(BurstCtx *c, const Layout *l, const char *path);
/* The steps of the checkpoints in a directory, in order. complain: on stderr, of names that only look like
 * one's. */
typedef struct Steps { int64_t *at; int count, room; } Steps;
int checkpoint_list(BurstCtx *c, const char *directory, bool complain, Steps *s);
void checkpoint_path(char *path, size_t size, const char *directory, int64_t done);
/* Of the file that this run writes before it gets that name. */
int unfinished_path(BurstCtx *c, char *path, size_t size, const Folder *f, int64_t done);

/* ---- one run a folder; rank 0 ---- */
/* Takes the folder's lock, which goes with the process. *fd -1: the file system has no locks, as stderr
 * says. */
int lock_take(BurstCtx *c, const BurstPlan *p, const char *directory, int *fd);
/* Whether the lock is still the folder's: it may have been replaced under the run. */
bool lock_stands(const char *directory, int fd);
#endif
