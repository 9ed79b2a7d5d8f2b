/* checkpoint.h: the whole training state in one file per step (docs/runtime.md describes the format). */
#ifndef BURST_CHECKPOINT_H
#define BURST_CHECKPOINT_H

#include "burst_plan.h"

#include <jansson.h>
#include <sys/types.h>

/* ---- a run's folder; every rank calls ---- */
typedef struct Folder {
    const char *path; /* NULL: this run writes no checkpoints */
    int lock;         /* on rank 0: its .lock, held while it is open; -1: the file system has no locks */
    uint64_t tag;     /* in the names of this run's unfinished files; the same on all ranks */
    int64_t tries;    /* files on rank 0 that reserve space */
} Folder;
/* Makes the folder if it is missing, locks it for this run (a run that holds it is an error that names that
 * run), and removes dead runs' unfinished files. */
int checkpoint_open(BurstCtx *c, const BurstPlan *p, const char *path, Folder *f);
/* Reserves the space for all files that this run needs at a time beyond those existing after `done` steps,
 * until checkpoint_tried. The run writes `writes` checkpoints and keeps the newest `keep`. */
int checkpoint_try(BurstCtx *c, const BurstPlan *p, Folder *f, int64_t done, int64_t writes, int64_t keep);
void checkpoint_tried(BurstCtx *c, Folder *f);
/* Makes a new folder in `base` for a state that does not fit where it should be. */
int checkpoint_elsewhere(BurstCtx *c, const char *base, char path[], size_t size, Folder *f);
/* Fails if the folder has checkpoints of later steps than this run begins with: they would win over its
 * own. */
int checkpoint_begins(BurstCtx *c, const Folder *f, int64_t done);
/* Moves those into a new folder inside it. */
int checkpoint_set_aside(BurstCtx *c, const Folder *f, int64_t done);
void checkpoint_close(Folder *f);

/* Writes <folder>/step-%08d.burst atomically, and removes all but the newest `keep`. */
int checkpoint_write(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, Folder *f, int64_t done,
                     int64_t keep);
/* Fills the shards from `file` or, if that is NULL, from the directory's newest complete checkpoint (if
 * there is none, *done stays 0 and the weights do not change). *done: steps done. */
int checkpoint_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *directory, const char *file,
                    int64_t *done);

/* ---- the file's layout: header, pad, sections, footer ---- */
enum { CHECKPOINT_VERSION = 1, CHECKPOINT_KINDS = 3, CHECKPOINT_PREFIX = 16, CHECKPOINT_PAGE = 4096 };
#define CHECKPOINT_MAGIC "BURSTCKP"
#define CHECKPOINT_END "BURSTEND"
#define CHECKPOINT_STEPS_MOST (INT64_C(1) << 52) /* so that ranks can exchange step numbers as doubles */
/* A section has one kind (param, m, v) of one unit of files, its elements without padding. */
typedef struct Layout {
    /* on rank 0, when writing: [data_at]: magic, version, length of the JSON, JSON, zeros */
    char *header;
    int sections;
    off_t data_at, footer_at, end;
    off_t *section_at;  /* [sections + 1] */
} Layout;
/* The layout of this plan's file after `done` steps. Collective. */
int layout_make(BurstCtx *c, const BurstPlan *p, int64_t done, Layout *l);
/* The layout of a file whose header ends at data_at. */
int layout_at(BurstCtx *c, const BurstPlan *p, off_t data_at, Layout *l);
void layout_free(Layout *l);
off_t layout_room(const Layout *l, int world); /* bytes while the ranks write it */
/* The facts of the header: {"model": ..., "units": ..., "step": ...}. The caller frees it. NULL: out of
 * memory. */
json_t *checkpoint_facts(const BurstPlan *p, const BurstTrain *t, int64_t done);

/* ---- files ---- */
/* On rank 0: makes the folder and takes its lock. */
int checkpoint_take(BurstCtx *c, const BurstPlan *p, Folder *f);
/* On rank 0: makes a checkpoint's unfinished file with its header, and reserves its space. */
int checkpoint_create(BurstCtx *c, const Layout *l, const char *path);
/* The steps of the checkpoints in a directory, sorted. complain: warns on stderr about names that only
 * resemble a checkpoint's. */
typedef struct Steps { int64_t *at; int count, room; } Steps;
int checkpoint_list(BurstCtx *c, const char *directory, bool complain, Steps *s);
void checkpoint_path(char *path, size_t size, const char *directory, int64_t done);
/* the path of a file until it is complete */
int unfinished_path(BurstCtx *c, char *path, size_t size, const Folder *f, int64_t done);
#endif
