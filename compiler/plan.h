/* plan.h: Schedule, Plan and Cost, the later half of the pipeline's types. Included by burst.h alone.
 *
 * Relative coordinates. The checker admits only indices of the form `coordinate + expression of loop variables and
 * sizes`, and conditions that read no coordinate. So every rank runs the same operations in the same order, and what
 * rank c does to chunk c + x another rank d does to chunk d + x. A trace with chunks relative to the rank that acts is
 * therefore the trace of all ranks at once, and a proof about it is a proof about all of them, however many there are.
 */
#ifndef BURST_PLAN_H
#define BURST_PLAN_H

/* ---- one point of the search: every setting decided ---- */
typedef struct Choice {
    int data;  /* data-parallel groups */
    int ranks; /* G: consecutive ranks that share one sequence */
    int size[MAX_COORDS], coords; /* the ranks as (node, lane) or (rank) */
    PartitionKind partition;
    int64_t block;
    const SchedText *schedule;
    Travel travel;
    Recompute recompute;
} Choice;

/* ---- Schedule: the statements of one direction, with streams, slots and waits ---- */
#define NODES(X) X(LOOP) X(IF) X(COMPUTE) X(PASS) X(RETURN) X(EXCHANGE)
typedef enum NodeKind {
#define X(id) N_##id,
    NODES(X)
#undef X
} NodeKind;
/* What an operation waits for before it touches memory. Found by slots.c, checked by verify.c, printed by the emitters:
 * a receive or a stream wait each. */
#define WAITS(X) /* id, name, what it guards */ \
    X(ARRIVED_Q, "arrived-q", "the Q chunk it reads has arrived") \
    X(ARRIVED_KV, "arrived-kv", "the KV chunk it reads has arrived") \
    X(ARRIVED, "arrived", "the chunk it sends has arrived") \
    X(FREE, "free", "the slot it fills is no longer read or sent") \
    X(COMPUTED, "computed", "the gradient it sends has been computed") \
    X(MERGED, "merged", "partial sums that arrived have been added")
enum {
#define X(id, name, what) WAIT_BIT_##id,
    WAITS(X)
#undef X
#define X(id, name, what) WAIT_##id = 1 << WAIT_BIT_##id,
    WAITS(X)
#undef X
};
typedef struct Node {
    NodeKind kind;
    const Stmt *stmt; /* where it comes from; LOOP and IF read lo, hi, cond of it */
    struct Node *next, *body;
    ChunkRef ref[2];  /* COMPUTE: Q, KV; PASS, RETURN, EXCHANGE: [0] */
    int channel;      /* PASS, RETURN, EXCHANGE: its stream, shared with no other operation */
    int pool;         /* PASS: where arrivals land */
    unsigned waits;
    bool alone;       /* all that its block holds */
    bool stays;       /* PASS of an accumulator: some iterations pass a chunk that is at home, and are left out */
    int returns;      /* RETURN: how many chunks each rank sends home, ... */
    int *return_offset; /* ... and which, relative to the sender */
} Node;

/* Buffers for chunks that are not at home. The k-th use takes slot k mod slots. */
typedef enum PoolKind { POOL_ARRIVAL, POOL_PARTIAL } PoolKind;
typedef struct Pool {
    PoolKind kind;
    TensorId tensor;
    int slots;
    const Node *pass; /* ARRIVAL: the pass (or return) that fills it */
    const char *name; /* identifier: "kv_lane", "dq_partial" */
} Pool;

/* One executed statement. Chunks and hops are relative to the acting rank, as indices c0 * size1 + c1. */
typedef struct Instance {
    const Node *node;
    int chunk[2]; /* COMPUTE: Q, KV; PASS: the chunk sent; RETURN: the chunk sent home */
    int hop;      /* PASS, RETURN: to rank me + hop; arrives there as chunk - hop */
    int64_t loop[MAX_SCHED_VARS]; /* values of the loop variables, for messages */
} Instance;
typedef struct Trace { int n; const Instance *at; } Trace;

typedef struct Schedule {
    const Choice *choice;
    bool backward;
    Node *body;
    int channels;
    int pools;
    Pool *pool;
    int partial_pool[TENSOR_COUNT]; /* pool of the tensor's partial sums, -1: none leaves home */
    Trace trace;
} Schedule;
/* Statements to nodes: one node a tensor, transfers moved before the computing they can overlap, channels numbered from
 * first_channel on, the trace unrolled. NULL after an error. */
Schedule *schedule_make(Arena *a, Diags *d, const Choice *c, bool backward, int first_channel);
/* Slots from liveness, waits, and what `return` sends: fills the schedule that schedule_make returned. */
void schedule_slots(Arena *a, Schedule *s);
void print_schedule(const Schedule *s, Text *out);
const char *wait_names(Arena *a, unsigned waits); /* "arrived free" */

/* Relative indices: sums wrap in each coordinate. */
const char *tensor_name(TensorId t);
bool tensor_accumulates(TensorId t);
void instance_print(const Schedule *s, const Instance *i, Text *out); /* without the loop variables */
int rel_add(const Choice *c, int x, int y);
int rel_sub(const Choice *c, int x, int y);
const char *instance_text(Arena *a, const Schedule *s, const Instance *i); /* "pass KV[r - 1] to r + 1, at s = 1" */

/* ---- prune.c: what a mask leaves of a trace, for every rank ---- */
typedef struct Live { int ranks, ops; uint8_t *op; /* [ops][ranks]: LIVE_* bits */ } Live;
enum { LIVE_COMPUTE = 1, LIVE_SEND = 2, LIVE_RECV = 4 };
/* pair[q * ranks + k]: whether the pair has any unmasked tile. */
Live prune(Arena *a, const Schedule *s, const uint8_t *pair);
/* The pairs of a mask under a partition; NULL mask: all. */
uint8_t *live_pairs(Arena *a, MaskMap *m, const Partition *p);

/* ---- memory.c: every buffer of a rank ---- */
typedef struct Buffer {
    const char *name;  /* field of the emitted state */
    const char *type;  /* element type; NULL: taken by the runtime, not by the emitted program */
    int copies;        /* kept activations, slots */
    bool array;        /* the field is an array of that many pointers */
    const char *shape; /* for the comment */
    int64_t elements;
    size_t bytes;      /* of all copies, each rounded up to 64 */
    bool device;       /* on the rank's GPU, else in its arena on the host */
    const Pool *pool;  /* slots of a pool: `name` is the pool's */
} Buffer;
/* total: where the rank computes, host or device; host: its arena. weights: the part of total that shards take. beside:
 * what a device gives to drivers and libraries. */
typedef struct Memory { int n; const Buffer *at; size_t weights, total, host, beside; } Memory;
/* The units of parameters that are gathered and reduced together (ZeRO-3). */
typedef struct UnitTensor { const char *name; int64_t rows, cols, offset; bool ones; } UnitTensor;
typedef struct Unit { const char *name; int repeat; int64_t elements, shard; int tensors; const UnitTensor *tensor; } Unit;
typedef struct Units { int n; const Unit *at; } Units; /* embedding, layer, head */
/* Of how many layers a rank keeps attention's o and lse, and the rest of what forward leaves for backward. */
typedef struct Kept { int attention, rest; } Kept;
Kept kept_layers(const Program *p, const Choice *c);
Units units_make(Arena *a, const Program *p);
int64_t travel_bytes(const Program *p, TensorId t); /* a token of what a pass of t sends */
/* Head parallelism: query heads that a rank attends, key heads that those read, and whether the first of these is also the
 * last of the rank before. Shares may be uneven. */
typedef struct Share { int heads, kv_heads; bool again; } Share;
Share share_of(const Model *m, int ranks, int rank);
struct Plan;
Memory memory_make(Arena *a, const Program *p, const Choice *c, const Partition *part, const Schedule *forward,
                   const Schedule *backward, Units units);

/* ---- Plan: only verify makes one ---- */
typedef struct Plan Plan;
/* All that the passes before have made for one choice. */
typedef struct Draft {
    const Program *program;
    Choice choice;
    const Partition *partition;
    MaskMap **maps;         /* [program->mask_count] */
    const Schedule *forward, *backward;
    Units units;
    Memory memory;
} Draft;
/* The six proofs of docs/architecture.md. NULL after an error that names the broken proof and the line. */
const Plan *verify(Arena *a, Diags *d, const Draft *draft);
bool memory_fits(const Draft *draft); /* proof 6 */
/* Parts of it, for tests: proofs 1 to 5 of one direction, and what a mask leaves of it for every rank. */
bool verify_schedule(Arena *a, Diags *d, const Schedule *s);
bool verify_pruned(Arena *a, Diags *d, const Schedule *s, const uint8_t *pair, const char *mask);
const Draft *plan_draft(const Plan *p);
int64_t plan_pairs(const Plan *p, int mask, int rank); /* unmasked pairs that the rank computes in one forward */
void print_plan(const Plan *p, Text *out);

/* ---- Cost: a simulated step ---- */
typedef struct Cost {
    double step;      /* seconds, the slowest rank */
    double compute;   /* busy seconds of that rank's compute */
    double attention_forward, attention_backward; /* seconds of one layer, mean over layers */
    double exposed;   /* seconds that compute waits for transfers, of that rank, whole step */
    double bytes_link, bytes_nic; /* sent by one rank in a step, mean */
    double flops;     /* of the step, all ranks; backward counted twice forward */
    double imbalance; /* most loaded rank's pairs / mean */
    double peak;      /* of a rank's matrix products, flop/s; mean over ranks */
    size_t memory;    /* bytes of a rank at the peak, with what libraries take */
    const char *critical; /* what the slowest rank waits for most, for --explain */
    const double *rows;   /* [BURST_ROW_COUNT] seconds of a step of that rank, by rows of --trace's table */
} Cost;
Cost cost_simulate(Arena *a, const Plan *p);
void print_cost(const Plan *p, const Cost *c, Text *out);

void print_trace(Arena *a, const Plan *p, Text *out); /* emit_watching.c: the predicted step, for Perfetto */

/* ---- search.c: decides what the layout leaves open ---- */
typedef struct Found { const Plan *plan; Cost cost; const char *table; /* for --explain */ } Found;
Found search(Arena *a, Diags *d, const Program *p); /* plan NULL after errors */
Draft draft_make(Arena *a, Diags *d, const Program *p, const Choice *c); /* forward NULL after errors */

/* ---- emit.c: text of the program ---- */
typedef struct EmitOptions { const char *command, *template_dir, *build; } EmitOptions;
int emit_program(Arena *a, Diags *d, const Found *f, const EmitOptions *o, Text *out); /* C or CUDA; 0, -1 after errors */

/* ---- check_text.c: the emitted text, read again by libclang ---- */
/* Reports as errors, at their line of the text `name`: what clang diagnoses (-Wall -Wextra), dropped statuses of burst_ and
 * plan_ functions, buffers of PlanState that plan_start does not take or nothing uses, calls outside the runtime and a
 * short list. Where a marker comment "template: FILE:LINE" precedes (it names the line below it; "template end" closes
 * the part), a note names the template's line. runtime_include: the folder of burst_rt.h. 0, -1 after problems; without
 * libclang (BURST_STATIC, or not found) warns once and returns 0. */
int check_emitted_c(Arena *a, Diags *d, const char *name, const Text *text, const char *runtime_include, bool cuda);

/* ---- probe.c: a cluster of cpu devices with the figures of this machine; 0, or -1 ---- */
int probe(Text *out, int nodes, int devices);

#endif
