/* step/memory/memory.h: what a rank has in its memories, and all that the passes before have made for one
 * choice (Draft). */
#ifndef BURST_STEP_MEMORY_MEMORY_H
#define BURST_STEP_MEMORY_MEMORY_H

#include "step/step.h"

/* ---- liveness.c: when each value is in use; pack.c: where it lies ---- */
/* Bytes of a memory that are little enough, so that no better packing of it is looked for; 0: as little as
 * can be. */
typedef struct MemoryBudget {
    int64_t device, host;
} MemoryBudget;
#define MEMORY_UNBOUNDED ((MemoryBudget){INT64_MAX, 0})
/* A stretch of memory: all values of one item have the same place. */
typedef struct Item {
    int value, index; /* index of the value; -1: one item for all of them */
    int64_t bytes;
    Vec(Range) live;  /* operations that find it in use: in order, not touching each other */
    int64_t offset;   /* step_pack */
} Item;
typedef struct Flow {
    const Step *step;
    int ops, items;
    const StepOp *op;
    Item *item;
    const int *same;      /* [values]: the value in whose place it lies, itself where none */
    /* [values][1 + index]: of `item`; -1: none; first the one of all indices without their own */
    int *const *item_of;
    int64_t live_peak, packed; /* bytes on the device: most in use at any operation; what the packing takes */
    int64_t host_peak, host;   /* the same of the host's memory, an arena of its own */
    int64_t state, host_state; /* of packed and host, what parameters and moments take: the begin */
    int64_t align;             /* of the packing */
    /* nothing has a place: packed and host are the peaks, and a packing takes as much or more */
    bool unpacked;
    int peak_at, host_peak_at; /* the operations of live_peak and host_peak */
} Flow;
/* Unrolls, and finds of each value where it is in use. Writes of streams beside compute are in use from
 * where they start; what such a stream reads is free when compute has waited for something later of that
 * stream. */
Flow *step_flow(Arena *a, const Step *s);
/* Most bytes of activations and their gradients that are in use at any operation, in the host's memory or
 * the device's. */
int64_t flow_active_peak(Arena *a, const Flow *f, bool host);
bool item_live(const Item *i, int op);
void item_add_range(Arena *a, Item *i, Range r); /* among its others, joined with those that it touches */
/* the first of its ranges that does not end before op; their number: none */
int first_range_to(const Item *i, int op);
/* NULL where the unrolled step touches no such value. */
const Item *flow_item(const Flow *f, int value, int index);
/* of its own; else the one of all such indices */
bool value_has_place(const Step *s, const Value *v, int index);
bool item_on_host(const Flow *f, const Item *i);
/* Offsets in the arena of its memory without overlap in time and place, each a multiple of align.
 * Parameters and moments come first, unit by unit. */
void step_pack(Arena *a, Flow *f, int64_t align, MemoryBudget fits);
void step_place_by_layer(Step *s, bool by_layer);
/* The step's flow, packed; with places by layer where that takes much less. most: no values have places
 * where they surely take more. */
Flow *step_place(Arena *a, Step *s, int64_t align, MemoryBudget fits, MemoryBudget most);

/* ---- step/memory/report.c: what is alive ---- */
/* What is in use on the device at the peak, a row a value, the largest first: how many rows; alive: as
 * many as there are items. */
typedef struct Alive { int value, count; int64_t bytes; } Alive;
int step_alive(const Flow *f, Alive *alive);
void print_lifetimes(const Flow *f, Text *out);
#define STEP_USES(X) /* id, column of a table, what it is */ \
    X(STATE, "state", "parameters and moments") X(WEIGHT, "weights", "gathered and rounded weights") \
    X(SUM, "sums", "gradients of weights") X(SAVED, "saved", "activations saved for backward") \
    X(ACTIVE, "active", "other activations") X(GRADIENT, "gradients", "gradients of activations") \
    X(SCRATCH, "scratch", "scratch of operations")
typedef enum Use {
#define X(id, column, what) USE_##id,
    STEP_USES(X)
#undef X
    USES
} Use;
typedef struct UseText { const char *column, *what; } UseText;
extern const UseText use_text[USES];
Use value_use(const Value *v);
/* [ops][USES] bytes in use on the device at each operation; their sums' most is live_peak */
int64_t *step_uses(Arena *a, const Flow *f);
int64_t uses_sum(const int64_t *uses, int op);
/* Operations of visits that follow each other, both ends included, and the one of them where most is
 * alive. */
typedef struct Section { int first, last, at; } Section;
/* The step in order: of the layers of a block so many sections at most; how many in all. */
int step_sections(Arena *a, const Flow *f, const int64_t *uses, int most, Section **out);
const char *section_text(Arena *a, const Flow *f, const Section *s); /* "forward, layers 0 to 3" */
const char *step_op_text(Arena *a, const Flow *f, int op);           /* "again swiglu (backward, layer 7)" */

/* ---- ranges.c: what attention's transfers of a layer send, all ranks of a group together ---- */
struct Draft;

/* ---- step/memory/buffers.c: what a rank has beside the values of its step, and attention's buffers
 * in their scratch ---- */
typedef struct Buffer {
    const char *name;  /* field of the emitted state */
    const char *type;  /* element type; NULL: taken by the runtime, not by the emitted program */
    int copies;        /* slots */
    bool array;        /* the field is an array of that many pointers */
    const char *shape; /* for the comment */
    int64_t elements;
    size_t bytes;      /* of all copies, each rounded up to 64, or 256 on a device */
    bool device;       /* on the rank's GPU, else in its arena on the host */
    const Pool *pool;  /* slots of a pool: `name` is the pool's */
    int64_t at;        /* bytes from the begin of attention's scratch, or of its keys; -1: taken by itself */
    bool keys;         /* stays from one chunk of queries to the next */
    unsigned directions; /* that use it: bit 0, forward; bit 1, backward */
} Buffer;
/* total: where the rank computes, host or device; host: its arena. beside: what a device gives to drivers
 * and libraries. offloaded: of the host's memory, what the step's values take there beside all that; of a
 * program for CPUs inside host too. scratch: bytes of attention's. flow: the step's values with their
 * places, which total and host count. */
typedef struct Memory {
    int n;
    const Buffer *at;
    size_t total, host, beside, offloaded;
    int64_t scratch, keys;
    const struct Flow *flow;
} Memory;

/* ---- step/passes/offload.c: values in the host's memory ---- */
/* Bytes a token of what a pass of t sends of so many heads. */
int64_t travel_bytes(const Model *m, const Target *target, TensorId t, bool backward, bool latents, int heads,
                     int kv_heads);
/* Head parallelism: query heads that the i-th of so many ranks attends, key heads that those read, and
 * whether the first of these is also the last of the rank before. Shares may be uneven. */
typedef struct Share { int heads, kv_heads; bool again; } Share;
Share share_of(Heads all, int shares, int i);
/* What a direction's chunks are: the most tokens and heads that any rank has of one. again: how many of
 * those that share heads read a key head that one before them reads too. */
typedef struct RowSizes { int shares; int64_t tokens; int heads, kv_heads, again; } RowSizes;
RowSizes row_sizes(const Shape *s, const Choice *c, const Partition *part, bool backward);
struct Draft;
Memory memory_make(Arena *a, const struct Draft *d);
void memory_add_step(Memory *m, const Program *p, const struct Flow *f, Units units);
/* What the step's values may take beside what is there before memory_add_step. */
MemoryBudget memory_budget(const struct Draft *d);
/* Whether they surely take more than there is; host 0: the host's memory has no arena of its own. */
bool memory_over(MemoryBudget most, int64_t device, int64_t host);
/* A memory of a rank. offloaded: what waits for backward there; rows: buffers outside of arenas are; flow:
 * the step's values, where most of them lie in it, else NULL. */
typedef struct Space {
    const char *name, *of;
    double capacity;
    size_t total, beside, offloaded;
    bool device, rows;
    const struct Flow *flow;
} Space;
enum { MOST_SPACES = 2 };

/* ---- Plan: only verify makes one ---- */
/* All that the passes before have made for one choice. */
typedef struct Draft {
    const Program *program;
    Choice choice;
    Shape shape; /* of the choice */
    const Partition *partition;
    PairCounts **counts;    /* [program->mask_count] */
    Attentions attention;
    Units units;
    Memory memory;
    /* of another draft that attends alike (cost.h); NULL: attention is simulated */
    const struct StepParts *attended;
    /* what its attention computes and moves, found when its ranges were decided (cost.h); NULL: it was not */
    const struct AttentionLoads *loads;
} Draft;
/* What a process takes beside what is predicted; NULL: the prediction has it. */
const char *memory_uncounted(const Program *p);

#endif
