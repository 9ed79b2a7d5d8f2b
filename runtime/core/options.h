/* options.h: what the command line of an emitted program says (app/options.c reads it). */
#ifndef BURST_CORE_OPTIONS_H
#define BURST_CORE_OPTIONS_H

#include "burst_plan.h"

typedef struct Options {
    int64_t steps, every, seed, keep, progress, trace_steps, evaluate_every, evaluate_steps;
    double timeout;
    const char *data, *metrics, *checkpoint, *resume_file, *trace, *transport, *weights, *export_dir;
    const char *dtype; /* "bf16", "f32"; NULL: not given */
    const char *raw;   /* "2", "4"; NULL: not given */
    const char *prompts; /* file of prompts; NULL: standard input */
    int64_t new_tokens;  /* most that continue a prompt; 0: as many as the plan has */
    const char *evaluate_file;               /* NULL: the plan's */
    const BurstDataFile *files, *evaluation; /* [file_count] training files; validation file, NULL: none */
    int file_count, export_dtype;
    BurstDataFile file_of[BURST_DATA_FILES],
        evaluation_of; /* storage of these, if they are not the plan's */
    bool evaluate;     /* also before the first step */
    bool bytes, resume, fresh, plan_masks, plan_rope, share_gpus, quiet, help, version;
} Options;

#endif
