/* options.h: the command line of an emitted program. */
#ifndef BURST_OPTIONS_H
#define BURST_OPTIONS_H

#include "core/internal.h"

typedef struct Options {
    int64_t steps, every, seed, keep, progress, trace_steps;
    double timeout;
    const char *data, *metrics, *checkpoint, *resume_file, *trace, *transport, *weights, *export_dir;
    const char *dtype; /* "bf16", "f32"; NULL: not given */
    int export_dtype;
    bool bytes, resume, fresh, plan_masks, share_gpus, quiet, help, version;
} Options;

/* Fills in the plan's values and then the command line's. BURST_OK, or BURST_E_USAGE with the reason in
 * text. */
int options_read(Options *o, const BurstPlan *p, int argc, char **argv, char *text, size_t size);
/* Adds what must be equal on all ranks. */
void options_identify(struct Identity *id, const Options *o);
void options_help(const BurstPlan *p, const char *program);
#endif
