/* output.h: outputs of a run, as output_file.h writes them; failures are said in the context. */
#ifndef BURST_OUTPUT_H
#define BURST_OUTPUT_H

#include "base/output_file.h"
#include "burst_context.h"

int output_begin(BurstCtx *c, const char *path, OutputFile *o);
/* closes it; it has its name now, or this fails */
int output_keep(BurstCtx *c, const char *path, OutputFile *o);
/* Whether all that was printed on stdout is there. */
int output_printed(BurstCtx *c);
#endif
