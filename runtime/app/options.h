/* options.h: the command line of an emitted program. */
#ifndef BURST_OPTIONS_H
#define BURST_OPTIONS_H

#include "core/internal.h"

typedef struct Options {
    int64_t steps, every, seed, keep, progress, trace_steps, evaluate_every, evaluate_steps;
    double timeout;
    const char *data, *metrics, *checkpoint, *resume_file, *trace, *transport, *weights, *export_dir;
    const char *dtype; /* "bf16", "f32"; NULL: not given */
    const char *raw;   /* "2", "4"; NULL: not given */
    const char *evaluate_file;               /* NULL: the plan's */
    const BurstDataFile *files, *evaluation; /* [file_count] training files; validation file, NULL: none */
    int file_count, export_dtype;
    BurstDataFile file_of[BURST_DATA_FILES],
        evaluation_of; /* storage of these, if they are not the plan's */
    bool evaluate;     /* also before the first step */
    bool bytes, resume, fresh, plan_masks, plan_rope, share_gpus, quiet, help, version;
} Options;

/* Sets the plan's values, then the command line's. Returns BURST_OK, or BURST_E_USAGE with the reason in
 * text. */
int options_read(Options *o, const BurstPlan *p, int argc, char **argv, char *text, size_t size);
/* Adds the options that must be equal on all ranks. */
void options_identify(struct Identity *id, const Options *o);
void options_help(const BurstPlan *p, const char *program);
#endif
