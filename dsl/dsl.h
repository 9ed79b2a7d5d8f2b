/* dsl/dsl.h: text to a checked Program. */
#ifndef BURST_DSL_H
#define BURST_DSL_H

#include "ir/ir.h"

/* ---- SchedText: a checked .sched file ---- */
/* dsl/: text to Program. Reads stock files from stock_dir (masks.burst, devices.topo, schedules). NULL
 * after errors. */
typedef struct FrontEnd {
    /* topo_path NULL: no cluster, and nothing of the layout that needs one is checked */
    const char *topo_path, *model_path;
    const char *stock_dir;           /* installed share folder: has masks.burst, devices.topo, schedules/ */
    const char *const *schedule_paths; /* --schedule, may be empty */
    int schedule_path_count;
    const Target *target;            /* NULL: that of the cluster's devices */
    bool library; /* attention alone, to be called from another program */
    bool every_mask; /* also what the user declares and no layer uses */
    int64_t sequence; /* tokens, instead of what the model says; 0: none */
    const char *model_text; /* what a file at model_path would have; NULL: that is read */
} FrontEnd;
const Program *front_end(Arena *a, Diags *d, const FrontEnd *in);
/* The same also after errors, as far as it can be read: which files and folders the texts name. Never
 * NULL. */
const Program *front_end_names(Arena *a, const FrontEnd *in);
/* A program with `tensor auto` is unchecked in what depends on that number: this is the same with the number
 * in its place, checked. NULL after errors. */
const Program *program_with_tensor(Arena *a, Diags *d, const Program *p, int tensor);
/* whether `tensor` may split layers over so many */
bool tensor_divides(const Model *m, int world, int64_t ranks);
void print_ast(Arena *a, Diags *d, const FrontEnd *in, Text *out); /* --emit=ast */
/* stock_dir NULL: it may use no other */
const SchedText *parse_schedule(Arena *a, Diags *d, const char *stock_dir, const char *path);

#endif
