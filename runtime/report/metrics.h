/* metrics.h: the metrics file: one JSON object a line. A line is there whole or not at all. */
#ifndef BURST_METRICS_H
#define BURST_METRICS_H

#include "core/internal.h"

enum { METRICS_LINE = 1024 };
typedef struct Metrics {
    const char *path;
    int fd;
    bool regular;
    bool fifo, unread; /* unread: nobody has it open for reading; fd is -1 then */
    char evaluation[METRICS_LINE]; /* the file's line of an evaluation after the steps done; "": none */
} Metrics;

/* Opens the file and leaves it as it is. path NULL: no metrics. */
int metrics_open(BurstCtx *c, const char *path, Metrics *m);
/* Empties it; where a run goes on after `done` steps, mends what a killed run has left of its last line.
 * again: lines of later steps are removed, since these steps are trained again; but none is where other lines
 * follow. */
int metrics_begin(BurstCtx *c, Metrics *m, int64_t done, bool again);
/* Lines of a FIFO that nobody reads any more are dropped, until somebody does; that is said. */
__attribute__((format(printf, 3, 4))) int metrics_line(BurstCtx *c, Metrics *m, const char *format, ...);
/* Returns status, or the failure to write what was still under way. */
int metrics_close(BurstCtx *c, Metrics *m, int status);
#endif
