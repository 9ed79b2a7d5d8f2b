/* plan.h: Schedule, Plan and Cost, the later half of the pipeline's types. Included by burst.h alone.
 *
 * Relative coordinates. The checker admits only indices of the form `coordinate + expression of loop variables and
 * sizes`, and conditions that read no coordinate. So every rank runs the same operations in the same order, and what
 * rank c does to chunk c + x another rank d does to chunk d + x. A trace with chunks relative to the rank that acts is
 * therefore the trace of all ranks at once, and a proof about it is a proof about all of them, however many there are.
 *
 * Where a chunk of keys has pieces, piece p of relative chunk x is p * ranks + x: the same p at all ranks.
 */
#ifndef BURST_PLAN_H
#define BURST_PLAN_H

/* ---- one point of the search: every setting decided ---- */
enum { SAVING_LEVELS = 256, TAIL_LEVELS = 32 };
/* Where parameters and moments lie, and what updates them: the device; the host, its cores; the host, but the device, a unit at a time. */
typedef enum OptimizerPlace { OPTIMIZER_ON_DEVICE, OPTIMIZER_ON_HOST, OPTIMIZER_FETCHED } OptimizerPlace;
/* How the layers of one mask attend, where they do not all attend alike. mask: its text. */
typedef struct MaskChoice {
    const char *mask;
    const SchedText *schedule;
    Travel travel;
    int coords, size[MAX_COORDS], stride[MAX_COORDS]; /* as Choice has them, of the same ranks */
} MaskChoice;
typedef struct Choice {
    int data;  /* data-parallel groups */
    int tensor; /* ranks with a chunk: neighbours, which split each layer's weights; 0: one */
    int ranks; /* G: chunks of a sequence */
    int coords, size[MAX_COORDS], stride[MAX_COORDS]; /* the ranks as a product of rings: the sum of coordinate * stride */
    bool placed; /* ranks of the world are the sum of coordinate * place and group * data_stride; else groups follow each other */
    int place[MAX_COORDS], data_stride;
    PartitionKind partition;
    int64_t block;
    SharesKind shares;
    const int *share;        /* [ranks] tokens in proportion, once shares.c has found them; NULL: equal */
    const char *shares_text; /* as a layout has it, with `share` */
    const SchedText *schedule;
    Travel travel;
    int masks; /* of of_mask */
    const MaskChoice *of_mask; /* schedule, travel and sizes for the layers of each mask; NULL: those above, for all layers */
    Sharding sharding;
    int within; /* so many consecutive ranks share the weights, and other such groups have replicas; 0: all ranks do */
    int ffn_chunks; /* of the tokens; below 2: none */
    int token_chunks; /* of a layer's operations that treat tokens by themselves; below 2: none. With some, none of its own for ffn */
    bool chunk_queries; /* with chunks of tokens: attention too has a chunk of queries at a time */
    bool chunk_keys; /* ... with a chunk of keys at a time, which wait in the host's memory: see plan/step_keys.c */
    int head_chunks; /* of each layer's heads; below 2: none */
    int spared;    /* 0: as `saving` says; else so many of SAVING_LEVELS parts of what none saves are not saved */
    Saving saving; /* upper NULL: all that `none` saves */
    int64_t loss_tile; /* tokens whose logits are there at once; 0: what the runtime prefers for the vocabulary */
    int staged;    /* so many of the values that all layers save are staged to the host's memory, the largest first, ... */
    const char *offload; /* ... or these; NULL: none */
    int staged_layers; /* of the first so many; 0: of all but the last */
    bool fetch_chunks; /* what was staged comes back a chunk of the tokens at a time, in the loop of backward that reads it */
    OptimizerPlace optimizer;
    bool overlap;  /* what tensor ranks do among them is beside products: step_overlap.c */
    bool bf16_gradients; /* of weights, kept rounded */
    bool whole;    /* the layout says `ranges no` */
    bool ranges;   /* attention's transfers carry the tiles that somebody further along reads, or added to */
} Choice;

const Phase *phase_of(const Choice *c, bool backward); /* NULL where the schedule has none */
/* ---- choice_moves.c ---- */
bool choice_moves_queries(const Choice *c, bool backward); /* or outputs, or their gradients, to another rank */
bool choice_chunks_queries(const Choice *c);
bool choice_chunks_keys(const Choice *c);
int64_t tokens_in_chunk(int64_t tokens, int chunks); /* of so many chunks, all but the last */
int chunk_count(int64_t tokens, int chunks); /* chunks that there are then: there may be fewer */
bool choice_keeps_tail(const Choice *c); /* layers keep attention's output of a rank's last tokens alone */
int64_t choice_loss_tile(const Program *p, const Choice *c); /* tokens, never 0 */
int64_t tail_tokens(double share, int64_t tokens); /* so many of them, of the rank that has most: at least one, and not all */
int program_tensor(const Program *p); /* ranks that split each layer's weights, at least 1 */
int program_key_copies(const Program *p); /* of these, ranks that have the same key heads, at least 1 */
int program_head_chunks(const Program *p); /* of each layer's heads, at least 1 */
int program_heads(const Program *p), program_kv_heads(const Program *p); /* of all these chunks */
int program_chunk_kv_heads(const Program *p, bool is_short); /* of a chunk; the last ones may be short */
/* The same, whose model has the heads of one of so many chunks, of the largest; 1: all. Chunks differ by a key head at most. */
const Program *program_chunked(Arena *a, const Program *p, int chunks);
Model program_chunk_model(const Program *p, bool is_short);
int choice_heads(const Choice *c); /* ranks that share the heads, also where one direction alone exchanges */
int choice_tensor(const Choice *c); /* ranks with a chunk, the first of which choice_rank names */
void choice_shape(Choice *c, int coords, const int *size); /* the last coordinate innermost: its ranks are neighbours */
/* Ranks along the exchanged coordinate share the heads: in a direction that exchanges, each attends its share of them for the chunks
 * of all of these ranks together. Chunk c + x is then those of rank c + x and its peers along the coordinate, and x is 0 there. */
bool choice_by_heads(const Choice *c, bool backward); /* several ranks share the heads in this direction */
bool choice_exchanges(const Choice *c);              /* in either direction */
int choice_shares(const Choice *c, bool backward);   /* ranks that share the heads; 1: it does not exchange */
int choice_member(const Choice *c, int rank, int i); /* the i-th of the ranks that share the heads with that one */
int choice_rows(const Choice *c, bool backward);     /* ranks / shares */
int choice_pieces(const Choice *c);                  /* of a rank's chunk of KV and dKV; 1 before the schedule is decided */
int choice_chunks(const Choice *c);                  /* of KV and dKV: ranks * pieces */
bool chunk_is_home(const Choice *c, int chunk);      /* a relative one */
int chunk_piece(const Choice *c, int chunk);
int tensor_pieces(const Choice *c, TensorId t);      /* of its chunks: 1 but for KV and dKV */
/* What a direction's trace looks up: pair[q * choice_chunks + k] for its chunks, where any of their ranks' own has a pair; of chunks at
 * different places of the exchanged coordinate 0. The same table where it does not exchange. */
const uint8_t *choice_pairs(Arena *a, const Choice *c, bool backward, const uint8_t *pair);

/* ---- layout.c: what a layout decides, a row each ---- */
enum { DIMENSIONS = 21 };
typedef struct Dimension {
    const char *name;  /* as in the layout, and of its column in --explain */
    int column;        /* that column's width; 0: none */
    bool if_several;   /* a column only where several values are tried */
    bool by_need;      /* of its values the first that fits into memory, else all are tried */
    bool takes_host;   /* what its values spare the device, the host holds */
    bool need_first;   /* and what fits with it alone, before the other rows of that kind, is another candidate */
    /* Of a row by need: the number of the first value of another way to need less, whose first that fits is another candidate; values before
     * it are one way, those from it on the other. 0, or NULL: there is one way. */
    int (*other_way)(const Program *p);
    bool other_needs_less; /* its last needs less than the last of the first way, and is tried where that does not fit */
    int (*count)(const Program *p); /* of values; NULL: it follows from others */
    /* Decides for the n-th value, given those of the rows before; false: it is not to be tried, as the layout has another, or
     * could make no difference. */
    bool (*take)(const Program *p, Choice *c, int n);
    /* The n-th value that could stand here, whatever the layout has; false: there are not so many that could make a
     * difference. NULL: other rows follow from this one. */
    bool (*other)(const Program *p, Choice *c, int n);
    bool (*fits_each)(const Program *p); /* whether `burstc fit` has a row for each of these; NULL: none */
    const char *(*why_not)(Arena *a, const Program *p, const Choice *c); /* once all are decided; NULL: it works */
    const char *(*text)(Arena *a, const Choice *c); /* as the layout has it; NULL: it means nothing here */
} Dimension;
extern const Dimension dimensions[DIMENSIONS]; /* data first */
int dimension_row(const char *name); /* of one that there is */
const char *choice_why_not(Arena *a, const Program *p, const Choice *c);
Choice choice_on(const Program *p, const Choice *c); /* the same for a sequence of another length */
/* The values of the row `weights`, as count and take. */
int sharding_count(const Program *p);
bool sharding_take(const Program *p, Choice *c, int n);
const char *partition_text(Arena *a, PartitionKind kind, int64_t block); /* "blocks(4Ki)" */
const char *choice_text(Arena *a, const Choice *c); /* "layout { data 1; context 4; ... }", as a model may have it */

/* ---- layout_layers.c: what differs between layers ---- */
int travel_count(const Program *p); /* the row `travel`, its functions as in Dimension */
bool travel_take(const Program *p, Choice *c, int n);
bool travel_other(const Program *p, Choice *c, int n);
const char *travel_why_not(Arena *a, const Program *p, const Choice *c);
const char *travel_text(Arena *a, const Choice *c);
const char *by_mask_text(Arena *a, const Choice *c, const char *(*text)(Arena *a, const Choice *c)); /* "near for window(4096), ring" */
/* Why the layers of a mask can't have what they have, beside those of the first; of any mask. NULL: they can. */
const char *mask_why_not(Arena *a, const Program *p, const Choice *c, int mask);
const char *layers_why_not(Arena *a, const Program *p, const Choice *c);
bool layers_share_sizes(const Choice *c); /* the coordinates of all layers have the same sizes */
bool sizes_equal(const Choice *x, const Choice *y);

/* ---- saving.c: the row of what layers save, its functions as in Dimension ---- */
const char *saving_why_no_chunks(const Choice *c, bool heads); /* why attention can't go through chunks of queries, or of heads; NULL: it can */
const char *saving_fewer(void);                                /* advice: "save fewer values with ..." */
const char *saving_again_text(Arena *a, const char *block);    /* a row of costs: what the block computes again */
Saving saving_of(const Choice *c);
int saving_other_way(const Program *p);
int saving_count(const Program *p);
bool saving_take(const Program *p, Choice *c, int n);
bool saving_other(const Program *p, Choice *c, int n);
const char *saving_why_not(Arena *a, const Program *p, const Choice *c);
const char *saving_choice_text(Arena *a, const Choice *c);

/* ---- layout_chunks.c: the rows `ffn chunks`, `token chunks`, `fetch` and `loss tile`, their functions as in Dimension ---- */
bool ffn_chunks_open(const Program *p);
int ffn_chunks_count(const Program *p);
bool ffn_chunks_take(const Program *p, Choice *c, int n);
bool ffn_chunks_other(const Program *p, Choice *c, int n);
const char *ffn_chunks_text(Arena *a, const Choice *c);
bool token_chunks_open(const Program *p);
int token_chunks_count(const Program *p);
bool token_chunks_take(const Program *p, Choice *c, int n);
int token_chunks_other_way(const Program *p);
const char *token_chunks_why_not(Arena *a, const Program *p, const Choice *c);
bool token_chunks_other(const Program *p, Choice *c, int n);
const char *token_chunks_text(Arena *a, const Choice *c);
int fetch_count(const Program *p); /* the row `fetch` */
bool fetch_take(const Program *p, Choice *c, int n);
bool fetch_open(const Program *p);
bool fetch_other(const Program *p, Choice *c, int n);
const char *fetch_why_not(Arena *a, const Program *p, const Choice *c);
const char *fetch_text(Arena *a, const Choice *c);

bool loss_tile_open(const Program *p);
int loss_tile_count(const Program *p);
bool loss_tile_take(const Program *p, Choice *c, int n);
bool loss_tile_other(const Program *p, Choice *c, int n);
const char *loss_tile_text(Arena *a, const Choice *c);

/* ---- layout_heads.c: the row `head chunks`, its functions as in Dimension ---- */
bool head_chunks_open(const Program *p);
int head_chunks_count(const Program *p);
bool head_chunks_take(const Program *p, Choice *c, int n);
bool head_chunks_other(const Program *p, Choice *c, int n);
const char *head_chunks_why_not(Arena *a, const Program *p, const Choice *c);
const char *head_chunks_text(Arena *a, const Choice *c);

/* ---- placement.c: which rank of the world has a chunk ---- */
int choice_rank(const Choice *c, int group, int chunk);
int placement_count(const Program *p);
bool placement_take(const Program *p, Choice *c, int n);
const char *placement_why_not(Arena *a, const Program *p, const Choice *c);
const char *placement_text(Arena *a, const Choice *c); /* as the layout has it; NULL: the usual order */
void placement_emit_c(Arena *a, const Choice *c, Text *out); /* plan_chunk_of(rank), plan_group_of(rank), plan_rank_of(group, chunk) */

/* ---- coords.c: the ranks of a group as the schedule's coordinates ---- */
bool coords_wanted(const Program *p, const SchedText *t); /* not: its sizes are open, and nobody asks for it */
int coords_most(const Program *p);                        /* ways there are at most to choose sizes */
bool coords_take(const Program *p, Choice *c, int n);     /* the n-th one, as the layout has it; false: there are not so many */
const char *coords_why_not(Arena *a, const Program *p, const Choice *c); /* there is none, or not as the schedule requires */

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
    X(MERGED, "merged", "partial sums that arrived have been added") \
    X(HOME, "home", "sums that came home have been added: their slots are free")
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
typedef struct Pool {
    TensorId tensor;
    int slots;
    const char *name; /* identifier: "kv_lane", "dq_partial" */
} Pool;

/* One executed statement. Chunks and hops are relative to the acting rank, as indices: sums of coordinate * stride. */
typedef struct Instance {
    const Node *node;
    int chunk[2]; /* COMPUTE: Q, KV; PASS: the chunk sent; RETURN: the chunk sent home */
    int hop;      /* PASS, RETURN: to rank me + hop, never in a piece; arrives there as chunk - hop */
    int64_t loop[MAX_LOOPS]; /* values of the loop variables, for messages */
    unsigned inside;         /* which of them: bit i, loop i is around it */
} Instance;
typedef struct Trace { int n; const Instance *at; } Trace;

typedef struct Schedule {
    const Choice *choice;
    const char *name; /* "near_queries", to tell it from those of other layers; NULL: all layers have it */
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

/* ---- attentions.c: the schedules of a choice, one for all layers or one for the layers of each mask ---- */
/* Layers attend one after the other, so all use the same streams, and their slots the same memory. */
typedef struct Attention { Choice *choice; const Schedule *way[2]; /* forward, backward */ } Attention;
struct Draft;
Choice choice_of_mask(const Choice *c, int mask); /* as all layers of that mask have it: without of_mask */
bool attentions_make(Arena *a, Diags *d, struct Draft *t); /* from t's program and choice; false after errors */
void attentions_decide(const struct Draft *t); /* what t's choice has decided since */
const char *attention_name(Arena *a, const Choice *c); /* "near_queries" */
const Schedule *draft_schedule(const struct Draft *t, int mask, bool backward);
int draft_channels(const struct Draft *t);   /* streams of transfers */
int draft_operations(const struct Draft *t); /* of the longest trace */

bool pass_moves(const Node *pass, int coord); /* whether it may lead along that one */
/* Relative indices: sums wrap in each coordinate; the piece stays. */
const char *tensor_name(TensorId t);
bool tensor_accumulates(TensorId t);
int result_tensor(bool backward, int side); /* what a pair adds to for its queries (side 0) or keys (1); -1: nothing */
int coord_inside(const Choice *c, int before); /* the outermost coordinate inside that one, -1: of all; -1 where there is none */
int rel_coord(const Choice *c, int index, int i);
int rel_hop(const Choice *c, int index, int i); /* the same the shorter way round: from -(size - 1) / 2 to size / 2 */
int rel_add(const Choice *c, int x, int y);
int rel_sub(const Choice *c, int x, int y);
const char *instance_text(Arena *a, const Schedule *s, const Instance *i); /* "pass KV[r - 1] to r + 1, at s = 1" */
const char *chunk_name(Arena *a, const Schedule *s, TensorId t, int chunk);  /* "KV[r - 1]" */

/* ---- prune.c: what a mask leaves of a trace, for every rank ---- */
typedef struct Live {
    int ranks, ops;
    uint8_t *op;           /* [ops][ranks]: LIVE_* bits */
    BurstTileRanges *tiles; /* [ops][ranks] of what arrives at the rank; all where chunks travel whole */
} Live;
enum { LIVE_COMPUTE = 1, LIVE_SEND = 2, LIVE_RECV = 4 };
/* pair[q * choice_chunks + k]: whether the pair has any unmasked tile, as choice_pairs has it for the direction. tiles, by pair: which tiles
 * of its queries and keys a live one has work for; NULL: chunks travel whole. */
Live prune(Arena *a, const Schedule *s, const uint8_t *pair, const BurstPairTiles *tiles);
/* Of all live pairs of a mask, for prune; NULL where the choice lets whole chunks travel. Of a side that does not travel: all tiles. */
const BurstPairTiles *schedule_tiles(Arena *a, const Schedule *s, PairCounts *counts);
int schedule_sides(const Schedule *s); /* whose chunks travel: bits 1 << BURST_OF_... */
BurstPairTiles pair_tiles_of(PairCounts *counts, int q, int k, int sides); /* of a live pair; of other sides all tiles */

/* ---- ranges.c: what attention's transfers of a layer send, all ranks of a group together ---- */
typedef struct Sent { int64_t bytes, whole; /* whole: if chunks of keys travelled whole */ } Sent;
struct Draft;
bool ranges_wanted(Arena *a, const struct Draft *d); /* by the layout, or for what they save; d without memory yet */
Sent ranges_sent(Arena *a, const struct Draft *d, int mask, bool backward); /* of a direction without exchanges */
void print_ranges(const struct Draft *d, Text *out); /* of --emit=plan; nothing where chunks travel whole */

/* ---- kernels.c: the CUDA attention kernels of a program's devices ---- */
typedef struct Kernels {
    int form;                      /* their architecture: 80, 90. 0: there are none */
    const char *forward, *backward; /* headers */
    BurstTileSizes tile;
    const char *missed, *unfit; /* the architecture of all devices, whose own kernels `unfit`; NULL: those run */
    double share[2];    /* of the rates that such devices state, what these reach forward and backward */
} Kernels;
Kernels kernels_of(const Program *p);
/* All forms, the best first; unfit: why the program cannot have it, after "kernels for <arch>"; NULL: it can. */
enum { KERNEL_FORMS = 2 };
typedef struct KernelForm { int form; const char *arch; BurstTileSizes tile; const char *unfit, *header[2]; } KernelForm;
int kernels_forms(const Program *p, KernelForm out[KERNEL_FORMS]);
/* Columns of a head that attention's products take at the rates that the devices state: head_dim as kernels pad it, over `share`. */
double kernels_columns(const Program *p, bool backward);
/* What the lists of live tiles of one launch take at most, for so many queries, and chunks of keys of so many tokens. turns: query heads whose dQ is added in a
 * fixed order; 0: none. */
typedef struct KernelLists { int64_t ints, sides; } KernelLists;
KernelLists kernels_lists(const Program *p, int64_t queries, int64_t tokens, int pieces, int turns);
void print_kernels(const struct Draft *d, Text *out); /* --emit=kernels */

/* ---- memory.c: what a rank has beside the values of its step, and attention's buffers in their scratch ---- */
struct Flow;
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
} Buffer;
/* total: where the rank computes, host or device; host: its arena. beside: what a device gives to drivers and libraries.
 * staged: of the host's memory, what the step's values take there beside all that; of a program for CPUs inside host too.
 * scratch: bytes of attention's. flow: the step's values with their places, which total and host count. */
typedef struct Memory { int n; const Buffer *at; size_t total, host, beside, staged; int64_t scratch, keys; const struct Flow *flow; } Memory;
/* ---- plan/step_model.c: the units of parameters that are gathered and reduced together (ZeRO, arXiv 1910.02054) ---- */
typedef enum First { FIRST_NORMAL, FIRST_ONES, FIRST_ZEROS } First; /* values: of matrices drawn; of vectors, norms and biases */
/* What a tensor rank has of it: all; so many of its rows, or of its columns. */
typedef enum Split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS } Split;
typedef struct UnitTensor { const char *name; int64_t rows, cols, offset; First first; Split split, heads; int parts; } UnitTensor; /* of one tensor rank; heads: which side heads are; parts: of the whole tensor */
typedef struct Unit { const char *name; int repeat, ranks; int64_t elements, shard; int tensors; const UnitTensor *tensor; } Unit;
/* embedding, layer, head; Unit.ranks: over which each is sharded, a layer over those of one tensor rank; ranks: all of them. */
typedef struct Units { int n; const Unit *at; int ranks; } Units;
Units units_make(Arena *a, const Program *p, int within); /* as Choice has it */
/* ---- plan/step_auto.c: what layers save, by time and bytes ---- */
/* What spares most seconds a byte, in a share of the bytes that `none` saves; pairs: that a rank attends. */
Saving saving_at(Arena *a, const Program *p, const Partition *part, Units units, double pairs, double share);
/* ---- plan/step_space.c: values in the host's memory ---- */
enum { MOST_STAGED = 16 }; /* more than a layer saves */
const char *offload_at(Arena *a, const Program *p, const Partition *part, Units units, Saving v, int layers, int values); /* as names; layers: that stage, as Choice has it */
/* Bytes a token of what a pass of t sends of so many heads. */
int64_t travel_bytes(const Model *m, const Target *target, TensorId t, bool backward, int heads, int kv_heads);
/* Head parallelism: query heads that the i-th of so many ranks attends, key heads that those read, and whether the first of these is
 * also the last of the rank before. Shares may be uneven. */
typedef struct Share { int heads, kv_heads; bool again; } Share;
Share share_of(const Model *m, int shares, int i);
/* What a direction's chunks are: the most tokens and heads that any rank has of one. again: how many of those that share heads read
 * a key head that one before them reads too. */
typedef struct RowSizes { int shares; int64_t tokens; int heads, kv_heads, again; } RowSizes;
RowSizes row_sizes(const Program *p, const Choice *c, const Partition *part, bool backward);
struct Plan;
struct Draft;
Memory memory_make(Arena *a, const struct Draft *d);
void memory_add_step(Memory *m, const Program *p, const struct Flow *f, Units units);
/* Bytes of a memory that are little enough, so that no better packing of it is looked for; 0: as little as can be. */
typedef struct PackRoom { int64_t device, host; } PackRoom;
/* What the step's values may take beside what is there before memory_add_step. */
PackRoom memory_room(const struct Draft *d);

/* A memory of a rank. staged: what waits for backward there; rows: buffers outside of arenas are; flow: the step's values, where most of
 * them lie in it, else NULL. */
typedef struct Space { const char *name, *of; double capacity; size_t total, beside, staged; bool device, rows; const struct Flow *flow; } Space;
enum { MOST_SPACES = 2 };

/* ---- Plan: only verify makes one ---- */
typedef struct Plan Plan;
/* All that the passes before have made for one choice. */
typedef struct Draft {
    const Program *program;
    Choice choice;
    const Partition *partition;
    PairCounts **counts;    /* [program->mask_count] */
    int attentions;         /* 0: after errors */
    const Attention *attention;
    const int *mask_attention; /* [program->mask_count] which of them layers of a mask have */
    Units units;
    Memory memory;
    const struct StepParts *attended; /* of another draft that attends alike (cost.h); NULL: attention is simulated */
} Draft;
/* The six proofs of docs/architecture.md. NULL after an error that names the broken proof and the line. */
const Plan *verify(Arena *a, Diags *d, const Draft *draft);
int memory_spaces(const Draft *d, Space *space); /* [MOST_SPACES]; how many */
const char *memory_uncounted(const Program *p); /* what a process takes beside what is predicted; NULL: the prediction has it */
bool memory_fits(const Draft *draft); /* proof 6 */
bool device_fits(const Draft *draft); /* ... but for the hosts */
bool host_fits(const Draft *draft);   /* its part of the memory of hosts: all ranks of a node together */
/* Parts of it, for tests: proofs 1 to 5 of one direction, and what a mask leaves of it for every rank. */
bool verify_schedule(Arena *a, Diags *d, const Schedule *s);
bool verify_pruned(Arena *a, Diags *d, const Schedule *s, const uint8_t *pair, const BurstPairTiles *tiles, const char *mask);
const Draft *plan_draft(const Plan *p);
void print_plan(const Plan *p, Text *out);

/* ---- Cost: a simulated step ---- */
typedef struct Cost {
    double step;      /* seconds, the slowest rank */
    double compute;   /* busy seconds of that rank's compute */
    double attention, again, update; /* of compute: attention, what backward recomputes beside it, the optimizer */
    double tile_flops; /* of all tiles of that attention, masked pairs of partial ones included */
    double attention_forward, attention_backward; /* seconds of one layer, mean over layers */
    double exposed;   /* seconds that compute waits for transfers, of that rank, whole step */
    double bytes_link, bytes_nic; /* sent by one rank in a step, mean */
    double bytes_uplink[MAX_LEVELS]; /* of bytes_nic, those that leave one of each level of the cluster */
    double flops;     /* of the step, all ranks; backward counted twice forward */
    double imbalance; /* most loaded rank's pairs / mean */
    double peak;      /* of a rank's matrix products, flop/s; mean over ranks */
    size_t memory;    /* bytes of a rank at the peak, with what libraries take */
    const char *critical; /* what the slowest rank waits for most, for --explain */
    bool hidden;          /* it waits for less than 1 % of the step */
    const double *rows;   /* [BURST_ROW_COUNT] seconds of a step of that rank, by rows of --trace's table */
} Cost;
/* enough: of a step that is longer in any case, what sharing the wire adds is left out; INFINITY: none. */
Cost cost_simulate(Arena *a, const Plan *p, double enough);
/* Whether a Cost is of the program itself. C for CPUs planned for GPUs has the layout that suits these; how long it takes
 * on whatever CPUs run it, the cluster does not say. */
bool cost_is_of_program(const Program *p);
/* Seconds that a step does not fall below with what the draft has, nor where it saves less or more of it lies with the host; any_weights:
 * nor with other values of the row `weights` either. From the simulated attention, with a wire of their own for collectives. */
typedef struct Bound { double step, any_weights; } Bound;
Bound cost_bound(Arena *a, const Draft *d);
Bound cost_bound_computing(Arena *a, const Draft *d); /* lower, and found sooner: attention waits for no transfer; ranges need not be decided */
const char *cost_waits_text(const Cost *c); /* what is most waited for, as forms and pictures say it */
const char *cost_loses_text(Arena *a, const Choice *c, const Cost *x, const Cost *best); /* why x, of choice c, is slower, from both figures */
double cost_mfu(const Program *p, const Cost *c); /* the predicted share of what all ranks' matrix products could do */
const char *cost_mfu_text(Arena *a, double mfu); /* where it is above all: why; NULL: it is not */
/* What a step takes at least with so many data-parallel groups, whatever else is chosen: perfect balance, and no transfer of
 * attention waited for. pairs: [mask_count] unmasked pairs of a sequence. */
double cost_least(const Program *p, const double *pairs, int data);
void print_cost(const Plan *p, const Cost *c, Text *out);

/* ---- shares.c: ranks of different speed have different shares of a sequence ---- */
typedef struct Speeds Speeds; /* of the cluster's devices */
Speeds *shares_speeds(Arena *a, const Program *p, const double *pairs); /* pairs: as of cost_least */
bool shares_differ(const Program *p, const Choice *c); /* ranks that share a sequence are on different devices */
void shares_take(Arena *a, const Program *p, Speeds *s, Choice *c); /* decides share and shares_text */
const char *shares_why_not(Arena *a, const Program *p, const Choice *c);

void print_trace(Arena *a, const Plan *p, Text *out); /* emit_watching.c: the predicted step, for Perfetto */

/* ---- search.c: decides what the layout leaves open ---- */
/* A candidate of the table that --explain prints; why_not NULL: it works. */
typedef struct Tried {
    Choice choice;
    Cost cost;
    const char *why_not;
    bool chosen;
    const char *verdict;
    PairCounts **counts; /* of its partition, by mask: counted already */
} Tried;
typedef struct Found {
    const Plan *plan;
    Cost cost;
    const char *table, *remarks; /* for --explain; its last lines */
    bool column[DIMENSIONS];     /* that it has */
    const Tried *tried;
    int tried_count, judged;     /* judged: how often a candidate went through the passes */
    bool too_large; /* plan NULL: for want of memory */
} Found;
#define SEARCH_TIE 1e-3 /* what is simpler wins unless another is faster by more than this share */
Found search(Arena *a, Diags *d, const Program *p); /* plan NULL after errors */
/* USUAL: what cannot win or cannot fit is left out where there are many; for tests: WHOLE: never; CUT: always. The choice is the same.
 * other: seconds of a step that another program takes, INFINITY: there is none; what is left out then need not take less. */
typedef enum SearchEffort { SEARCH_USUAL, SEARCH_WHOLE, SEARCH_CUT } SearchEffort;
Found search_with(Arena *a, Diags *d, const Program *p, SearchEffort effort, double other);
/* ---- search_tensor.c ---- */
/* The same where it may be open over how many ranks layers are split, and what lies in the host's memory: in is what p was made of. The
 * plan's program then says both. */
Found search_open(Arena *a, Diags *d, const FrontEnd *in, const Program *p);
const char *search_table(Arena *a, const Found *f); /* for --explain */
void layout_warn_idle(Diags *d, const Program *p, const Choice *c); /* layout_idle.c: of settings that have nothing to act on */
bool travel_is_idle(const Choice *c); /* one backward serves both */
void search_warn(Diags *d, const Program *p, const Choice *c); /* of a choice that is bad for any layout's kernels */
/* ---- search_layers.c ---- */
/* Has the layers of each mask attend as it takes least, of what the layout leaves open; c stays as it is where that is one way for all.
 * NULL, or what does not work. */
const char *layers_choose(Arena *a, const Program *p, const Partition *part, PairCounts **counts, Choice *c);
/* ---- search.c ---- */
Draft draft_make(Arena *a, Diags *d, const Program *p, const Choice *c); /* attentions 0 after errors */

/* ---- others.c: other choices than the search's, compiled ---- */
/* cost: also of what does not fit, but not where why_not says what else does not work. */
typedef struct Judged { Draft draft; Cost cost; bool fits; const char *why_not; } Judged;
Judged judge_choice(Arena *a, const Program *p, const Choice *c, PairCounts **counts); /* counts: of its partition; NULL: none yet */
typedef struct Other { const char *what; /* "weights zero2" */ size_t needs; double step; bool fits; const char *why_not; } Other;
int others_of(Arena *a, const Draft *d, Other **out); /* with one row of layout.c decided otherwise, in their order; how many */
const char *setting_text(Arena *a, int row, const Choice *c); /* "weights zero2" */
const char *schedule_text(Arena *a, const Choice *c); /* "ring", "near for local, ring" */

/* ---- memory_print.c: --emit=memory ---- */
void print_memory(const Plan *p, const Cost *c, Text *out);

/* ---- fit.c: the longest sequences that fit ---- */
/* A table of them; false after errors. */
bool fit(Arena *a, Diags *d, const FrontEnd *in, const Program *p, Text *out);

/* ---- emit.c: text of the program ---- */
void emit_program(Arena *a, const Found *f, const char *command, Text *out); /* C or CUDA; command: as typed, for its first comment */

/* ---- check_text.c: the emitted text, read again by libclang ---- */
/* Reports as errors, at their line of the text `name`: what clang diagnoses (-Wall -Wextra), dropped statuses of burst_ and
 * plan_ functions, buffers of PlanBuffers that plan_alloc does not take or nothing uses, calls outside the runtime and a
 * short list. runtime_include: the folder of burst_rt.h and of the other headers that it includes. 0, -1 after problems; without
 * libclang 0 after a warning. */
int check_emitted_c(Arena *a, Diags *d, const char *name, const Text *text, const char *runtime_include,
                    const Target *target);

/* ---- build.c: commands for a shell ---- */
const char *shell_word(Arena *a, const char *word); /* quoted where it must be */
/* How a program is compiled and linked with what is in the share folder. */
const char *build_command(Arena *a, const char *share, const Program *p, const char *source, const char *program);
int run_command(const char *command); /* its exit status, or -1 */

/* ---- probe.c: a cluster with the figures of this machine ---- */
int probe(Text *out, int nodes, int devices); /* of cpu devices; 0, or -1 */
/* `burstc probe [cpus | gpus] [NODES [DEVICES]]`: of GPUs where nvidia-smi lists any and nothing else is said. 0, or an exit status. */
typedef struct ProbeOptions { enum { PROBE_ANY, PROBE_CPUS, PROBE_GPUS } kind; int nodes, devices; /* 0: not given */ } ProbeOptions;
bool probe_machine(Arena *a, Diags *d, const char *share, const ProbeOptions *o, Text *out); /* false: an error is in d */

/* ---- bench.c: `burstc bench`: attention of a model, or of one mask, on this machine ---- */
typedef struct BenchOptions { const char *what, *output; int64_t tokens, heads, kv_heads, head_dim; /* 0: not given */ bool peers; } BenchOptions;
bool bench(Arena *a, Diags *d, const char *share, const BenchOptions *o, Text *out); /* false: an error is in d */

#endif
