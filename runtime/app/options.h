/* options.h: the command line of an emitted program. */
#ifndef BURST_APP_OPTIONS_H
#define BURST_APP_OPTIONS_H

#include "core/options.h"

struct Identity;
/* Sets the plan's values, then the command line's. Returns BURST_OK, or BURST_E_USAGE with the reason in
 * text. */
int options_read(Options *o, const BurstPlan *p, int argc, char **argv, char *text, size_t size);
/* Adds the options that must be equal on all ranks. */
void options_identify(struct Identity *id, const Options *o);
void options_help(const BurstPlan *p, const char *program);
#endif
