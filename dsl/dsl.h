/* dsl/dsl.h: text to a checked Program. */
#ifndef BURST_DSL_H
#define BURST_DSL_H

#include "ir/program.h"
#include "ir/schedule.h"

/* dsl/: reads texts and stock files of stock_dir (masks.burst, devices.topo, schedules) into a Program.
 * Returns NULL after errors. */
typedef struct FrontEnd {
    /* topo_path NULL: no cluster; settings of the layout that need one are not checked */
    const char *topo_path, *model_path;
    const char *stock_dir;           /* installed share folder with masks.burst, devices.topo, schedules/ */
    const char *const *schedule_paths; /* --schedule, may be empty */
    int schedule_path_count;
    const Target *target;            /* NULL: the cluster's devices' target */
    bool library; /* only attention, to be called from another program */
    bool every_mask; /* includes the user's masks that no layer uses */
    int64_t sequence; /* tokens, overriding the model's; 0: not given */
    const char *model_text; /* contents of model_path; NULL: read the file */
} FrontEnd;
const Program *front_end(Arena *a, Diags *d, const FrontEnd *in);
/* The same, but after errors as far as the texts can be read, to find the files and folders that they name.
 * Never NULL. */
const Program *front_end_names(Arena *a, const FrontEnd *in);
/* Without `tensor auto`: the program with this number, checked; a program with `tensor auto` is not checked
 * in what depends on the number. Returns NULL after errors. */
const Program *program_with_tensor(Arena *a, Diags *d, const Program *p, int tensor);
/* whether layers can be split over so many ranks */
bool tensor_divides(const Model *m, int world, int64_t ranks);
void print_ast(Arena *a, Diags *d, const FrontEnd *in, Text *out); /* --emit=ast */
/* stock_dir NULL: it may not use other schedules */
const SchedText *parse_schedule(Arena *a, Diags *d, const char *stock_dir, const char *path);

#endif
