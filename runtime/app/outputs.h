/* outputs.h: the files and folders of a command line, compared before anything is written. */
#ifndef BURST_OUTPUTS_H
#define BURST_OUTPUTS_H

#include "app/options.h"

/* Fails where an output would write over an input, over another output or over a file of a folder, by
 * whatever name, link or mount it is reached, or would lie in the folder that --export gives its name at
 * the end. Rank 0 looks, for all. */
int outputs_compare(BurstCtx *c, const Options *o);
#endif
