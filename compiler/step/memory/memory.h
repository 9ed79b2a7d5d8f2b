/* step/memory/memory.h: the contents of a rank's memories, and all that earlier passes made for one choice
 * (Draft). */
#ifndef BURST_STEP_MEMORY_MEMORY_H
#define BURST_STEP_MEMORY_MEMORY_H

#include "step/step.h"

/* ---- liveness.c: when each value is in use; pack.c: its offset ---- */
/* Bytes of a memory below which packing need not be improved; 0: pack as tightly as possible. quick: few
 * orders are tried, so that more may be lost, a few per cent at most. */
typedef struct MemoryBudget {
    int64_t device, host;
    bool quick;
    int64_t limit; /* what the device has; 0: not known */
} MemoryBudget;
#define MEMORY_UNBOUNDED ((MemoryBudget){INT64_MAX, 0, false, 0})
/* A range of memory: all values of one item share it. */
typedef struct Item {
    int value, index; /* index of the value; -1: one item for all of them */
    int64_t bytes;
    Vec(Range) live;  /* operations during which it is in use: sorted, not adjacent */
    int64_t offset;   /* set by step_pack */
} Item;
typedef struct Flow {
    const Step *step;
    int ops, items;
    const StepOp *op;
    Item *item;
    const int *same;      /* [values]: the value with which it shares memory; itself if none */
    /* [values][1 + index]: index into `item`; -1: none; first the one of all indices without their own */
    int *const *item_of;
    /* device bytes: live_peak: most in use at any operation; packed: size of the packing */
    int64_t live_peak, packed;
    int64_t host_peak, host;   /* the same for host memory, which has an arena of its own */
    int64_t state, host_state; /* the parts of packed and host for parameters and moments, which come first */
    int64_t align;             /* of the packing */
    /* values have no offsets: packed and host are the peaks, a lower bound of any packing */
    bool unpacked;
    int peak_at, host_peak_at; /* operations of live_peak and host_peak */
} Flow;
/* Unrolls the step, and finds where each value is in use. Values written by other streams are in use from
 * where the operation starts; values read by such a stream are free once compute has waited for something
 * later of that stream. */
Flow *step_flow(Arena *a, const Step *s);
/* The flow of step_evaluation, with the offsets of the packed step. */
const Flow *flow_evaluation(Arena *a, const Flow *step);
/* The same packed on its own, without moments; scratch: bytes of attention's. */
const Flow *flow_alone(Arena *a, const Flow *step, int64_t scratch);
/* Most bytes of activations and their gradients in use at any operation, in host or device memory. */
int64_t flow_active_peak(Arena *a, const Flow *f, bool host);
bool item_live(const Item *i, int op);
void item_add_range(Arena *a, Item *i, Range r); /* inserts a range, merged with those that it touches */
/* the first of its ranges that does not end before op; their number: none */
int first_range_to(const Item *i, int op);
/* NULL: the unrolled step does not use it. */
const Item *flow_item(const Flow *f, int value, int index);
/* of its own; otherwise it shares that of all such indices */
bool value_has_place(const Step *s, const Value *v, int index);
bool item_on_host(const Flow *f, const Item *i);
/* Finds offsets in the arena of its memory, each a multiple of align, so that items in use at the same time
 * do not overlap. Parameters and moments come first, unit by unit. */
void step_pack(Arena *a, Flow *f, int64_t align, MemoryBudget fits);
void step_place_by_layer(Step *s, bool by_layer);
/* The step's flow, packed; with offsets by layer if that takes much less. most: values get no offsets if
 * they surely exceed it. */
Flow *step_place(Arena *a, Step *s, int64_t align, MemoryBudget fits, MemoryBudget most);

/* ---- step/memory/report.c: live values ---- */
/* The values in use on the device at the peak, largest first. Returns their number; alive: f->items
 * entries. */
typedef struct Alive { int value, count; int64_t bytes; } Alive;
int step_alive(const Flow *f, Alive *alive);
void print_lifetimes(const Flow *f, Text *out);
#define STEP_USES(X) /* id, column of a table, description */ \
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
/* [ops][USES] device bytes in use at each operation; live_peak is the largest sum */
int64_t *step_uses(Arena *a, const Flow *f);
int64_t uses_sum(const int64_t *uses, int op);
/* Consecutive visits, from first to last operation, and the operation with most live bytes. */
typedef struct Section { int first, last, at; } Section;
/* Sections of the step in order, at most `most` for a block's layers. Returns their number. */
int step_sections(Arena *a, const Flow *f, const int64_t *uses, int most, Section **out);
const char *section_text(Arena *a, const Flow *f, const Section *s); /* "forward, layers 0 to 3" */
const char *step_op_text(Arena *a, const Flow *f, int op);           /* "again swiglu (backward, layer 7)" */

/* ---- ranges.c: what attention's transfers of a layer send, all ranks of a group together ---- */
struct Draft;

/* ---- step/memory/buffers.c: a rank's memory outside of the step's values, and attention's buffers in its
 * scratch ---- */
typedef struct Buffer {
    const char *name;  /* field of the emitted state */
    const char *type;  /* element type; NULL: allocated by the runtime, not by the emitted program */
    int copies;        /* slots */
    bool array;        /* the field is an array of that many pointers */
    const char *shape; /* for the comment */
    int64_t elements;
    size_t bytes;      /* of all copies, each rounded up to 64 bytes, or 256 on a device */
    bool device;       /* on the rank's GPU; otherwise in its arena on the host */
    const Pool *pool;  /* slots of a pool, whose name it has */
    int64_t at;        /* offset in attention's scratch, or in its keys; -1: allocated separately */
    bool keys;         /* persists from one chunk of queries to the next */
    unsigned directions; /* that use it: bit 0: forward; bit 1: backward */
} Buffer;
/* total: memory of the host or device that computes; host: the host's arena; beside: device memory of
 * drivers and libraries; offloaded: host memory of the step's values in addition to that (in programs for
 * CPUs also inside host); scratch: bytes of attention's; flow: the step's values with their offsets, which
 * total and host include. */
typedef struct Memory {
    int n;
    const Buffer *at;
    size_t total, host, beside, offloaded;
    int64_t scratch, keys;
    const struct Flow *flow;
} Memory;

/* ---- step/passes/offload.c: values in host memory ---- */
/* Bytes per token of a pass of t with so many heads. */
int64_t travel_bytes(const Model *m, const Target *target, TensorId t, bool backward, bool latents, int heads,
                     int kv_heads);
/* Head parallelism: query heads of the i-th of `shares` ranks, the key heads that they read, and whether the
 * first of these is also the previous rank's last. Shares may be uneven. */
typedef struct Share { int heads, kv_heads; bool again; } Share;
Share share_of(Heads all, int shares, int i);
/* Chunks of a direction: the most tokens and heads that any rank has of one. again: ranks sharing heads
 * whose first key head the previous rank reads too. */
typedef struct RowSizes { int shares; int64_t tokens; int heads, kv_heads, again; } RowSizes;
RowSizes row_sizes(const Shape *s, const Choice *c, const Partition *part, bool backward);
struct Draft;
Memory memory_make(Arena *a, const struct Draft *d);
void memory_add_step(Memory *m, const Program *p, const struct Flow *f, Units units);
/* Memory left for the step's values before memory_add_step. */
MemoryBudget memory_budget(const struct Draft *d);
/* Whether the values surely exceed the budget; host 0: host memory has no arena of its own. */
bool memory_over(MemoryBudget most, int64_t device, int64_t host);
/* A memory of a rank. offloaded: values that are kept there for backward; rows: buffers outside of arenas
 * are in it; flow: the step's values if most of them are in it, else NULL. */
typedef struct Space {
    const char *name, *of;
    double capacity;
    size_t total, beside, offloaded;
    bool device, rows;
    const struct Flow *flow;
} Space;
enum { MOST_SPACES = 2 };

/* ---- Plan: only verify makes one ---- */
/* All that earlier passes made for one choice. */
typedef struct Draft {
    const Program *program;
    Choice choice;
    Shape shape; /* of the choice */
    const Partition *partition;
    PairCounts **counts;    /* [program->mask_count] */
    Attentions attention;
    Units units;
    Memory memory;
    /* of another draft with the same attention (cost.h); NULL: attention is simulated */
    const struct StepParts *attended;
    const struct StepModel *model; /* NULL, or as cost_model */
    /* its attention's work and traffic, found when its ranges were chosen (cost.h); NULL: not found */
    const struct AttentionLoads *loads;
    struct DrawnInputs *drawn; /* shared with others (cost.h); NULL: its own */
} Draft;
/* What a training program takes to evaluate alone (`--steps 0 --evaluate`): weights and forward, without
 * moments, gradients and backward's scratch. As of Memory; flow NULL: it does not evaluate. */
typedef struct AloneMemory {
    const struct Flow *flow;
    int64_t scratch; /* of attention's forward */
    size_t total, host, offloaded, beside;
} AloneMemory;
AloneMemory memory_alone(Arena *a, const Draft *d);
const char *memory_alone_text(Arena *a, const Draft *d); /* a line; "" where there is none */
/* Memory of a process that the prediction leaves out; NULL: none. */
const char *memory_uncounted(const Program *p);

#endif
