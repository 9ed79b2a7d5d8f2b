/* ir/program.h: checked input, in base units, with names resolved and defaults filled in. */
#ifndef BURST_IR_PROGRAM_H
#define BURST_IR_PROGRAM_H

#include "ir/cluster.h"
#include "ir/layout.h"
#include "ir/model.h"

/* A program that continues prompts, instead of training. */
enum { MOST_LENGTHS = 16 };
typedef struct Infer {
    int lengths; /* 0: the program trains */
    int64_t
        length[MOST_LENGTHS]; /* of prompts, rising: each has a plan; the last is the program's sequence */
    int64_t tokens; /* most that continue a prompt */
    /* whether ranks that share a prompt each compute a part of a later token's products */
    enum { PRODUCTS_AUTO, PRODUCTS_WHOLE, PRODUCTS_SPLIT } products;
    Span span;
} Infer;
struct SchedText;
typedef struct Program {
    const char *topo_path, *model_path;
    Vec(const char *) inputs; /* every file read, imports and patterns included */
    const Target *target; /* of the emitted program; independent of the cluster's devices */
    Cluster cluster;
    Model model;
    int64_t sequence; /* tokens */
    Span sequence_span;
    const Table *tables;
    int table_count;
    const Mask *masks; /* the distinct masks of the layers */
    int mask_count;
    const Selection *selections; /* of the masks */
    int selection_count;
    int all_masks, all_tables; /* including those that every_mask appends */
    /* masks it could not add because they take parameters: "mine, other"; NULL: none */
    const char *open_masks;
    const int *layer_mask; /* [layers] index into masks */
    Layout layout;
    Train train;
    Infer infer;
    /* Attention alone, called from another program. The model has one layer per mask, and no widths but
     * attention's. */
    bool library;
    const struct SchedText *const *schedules; /* stock ones and those of --schedule */
    int schedule_count;
} Program;
bool program_reads(const Program *p, const char *path); /* whether the path leads to one of its inputs */

#endif
