/* ir/program.h: checked input: base units, names resolved, defaults filled in. */
#ifndef BURST_IR_PROGRAM_H
#define BURST_IR_PROGRAM_H

#include "ir/cluster.h"
#include "ir/layout.h"
#include "ir/model.h"

struct SchedText;
typedef struct Program {
    const char *topo_path, *model_path;
    Vec(const char *) inputs; /* every file that was read, imports and patterns among them */
    const Target *target; /* what the program is written for, whatever the cluster's devices */
    Cluster cluster;
    Model model;
    int64_t sequence; /* tokens */
    Span sequence_span;
    const Table *tables;
    int table_count;
    const Mask *masks; /* the distinct masks that layers use */
    int mask_count;
    int all_masks, all_tables; /* including those that every_mask appends */
    /* that it could not add, since they take parameters: "mine, other"; NULL: none */
    const char *open_masks;
    const int *layer_mask; /* [layers] index into masks */
    Layout layout;
    Train train;
    /* Attention alone, to be called from another program: the model has a layer for each mask, and widths of
     * nothing else. */
    bool library;
    const struct SchedText *const *schedules; /* stock ones, and --schedule's */
    int schedule_count;
} Program;
bool program_reads(const Program *p, const char *path); /* whether the path leads to one of its inputs */

#endif
