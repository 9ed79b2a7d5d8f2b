/* outputs.h: compares the files and folders of a command line before anything is written. */
#ifndef BURST_OUTPUTS_H
#define BURST_OUTPUTS_H

#include "app/options.h"

/* Fails if an output would overwrite an input, another output or a file of a folder, under any name, link or
 * mount, or would be in the folder that --export renames at the end. Rank 0 checks for all. */
int outputs_compare(BurstCtx *c, const Options *o);
#endif
