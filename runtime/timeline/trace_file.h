/* trace_file.h: the file of --trace: JSON in Chrome's trace-event format, for Perfetto. A process is a rank,
 * a thread a stream. burstc uses it too, to write only the predicted step. */
#ifndef BURST_TRACE_FILE_H
#define BURST_TRACE_FILE_H

#include "burst_plan.h"

#include <stdio.h>

/* Calls follow this order. *any: false before the first. Write errors are left to ferror. */
void trace_file_begin(FILE *f, bool *any, const BurstPlan *p); /* names all rows */
/* seconds are added to its times */
void trace_file_span(FILE *f, bool *any, int process, double offset, const BurstSpan *s);
void trace_file_step(FILE *f, bool *any, int64_t step, double begin, double seconds);
/* the predicted step */
void trace_file_forecast(FILE *f, bool *any, const BurstPlan *p);
void trace_file_end(FILE *f, const BurstPlan *p, int64_t left_out);
#endif
