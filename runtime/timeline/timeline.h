/* timeline.h: --trace: which steps are traced, and their output: a file of trace events (Chrome's format,
 * for Perfetto) and a table of parts. Rank 0 writes both. */
#ifndef BURST_TIMELINE_H
#define BURST_TIMELINE_H

#include "core/options.h"
#include "files/output.h"

typedef struct Timeline {
    const char *path; /* NULL: nothing is traced */
    OutputFile out;   /* on rank 0 */
    bool any;         /* an event was written */
    int64_t first, last; /* traced steps */
    double zero;      /* seconds at the file's time 0 */
    int64_t left_out;
    /* over all traced steps; most: of the rank with most of each step */
    double mean[BURST_ROW_COUNT], most[BURST_ROW_COUNT], calls[BURST_ROW_COUNT], seconds;
} Timeline;

/* done: steps done before. The run's second step is the first traced one, since the first also sets things
 * up. */
int timeline_open(Timeline *t, BurstCtx *c, const Options *o, int64_t done);
/* before and after each step; no effect if it is not traced */
int timeline_begin(Timeline *t, BurstCtx *c, int64_t step);
int timeline_end(Timeline *t, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t step);
int timeline_close(Timeline *t, int status); /* returns status; removes an unfinished file */
#endif
