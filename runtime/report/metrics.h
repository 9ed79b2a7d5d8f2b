/* metrics.h: the metrics file: one JSON object a line. Lines are written whole or not at all. */
#ifndef BURST_METRICS_H
#define BURST_METRICS_H

#include "burst_plan.h"

enum { METRICS_LINE = 8192 };
typedef struct Metrics {
    const char *path;
    int fd;
    bool regular;
    bool fifo, unread; /* unread: no process has it open for reading; fd is then -1 */
    char evaluation[METRICS_LINE]; /* the file's line of an evaluation after the steps done; "": none */
} Metrics;

/* Opens the file without changing it. path NULL: no metrics. */
int metrics_open(BurstCtx *c, const char *path, Metrics *m);
/* Empties it or, if a run resumes after `done` steps, repairs the last line of a killed run. again: removes
 * lines of later steps, which are trained once more, unless other lines follow. */
int metrics_begin(BurstCtx *c, Metrics *m, int64_t done, bool again);
/* Lines to a FIFO without a reader are dropped until there is one, which is reported. */
__attribute__((format(printf, 3, 4))) int metrics_line(BurstCtx *c, Metrics *m, const char *format, ...);
/* Returns status, or the failure to write pending lines. */
int metrics_close(BurstCtx *c, Metrics *m, int status);
#endif
