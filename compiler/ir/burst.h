/* burst.h: every type that flows between the passes of burstc, in the order of the pipeline.
 *
 *   Source -> Ast -> Program -> MaskMap -> Partition -> Schedule (+ slots) -> Plan -> Cost -> text
 *
 * Each pass reads what the one before it made and makes a new value in the caller's arena; nothing is changed
 * afterwards. Ast types live in dsl/ast.h, which only dsl/ reads.
 *
 * Units: bytes, bytes/s, FLOP/s, nanoseconds, tokens. Ranges are half open unless a name ends in _last.
 */
#ifndef BURST_H
#define BURST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "burst_kernels.h"
#include "burst_range.h"
#include "core/plural.h"

#define BURSTC_VERSION "0.1.0"
#define countof(a) ((int)(sizeof(a) / sizeof(*(a))))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* ---- arena.c: memory of one compile, freed at once ---- */
typedef struct Arena Arena;
Arena *arena_new(void);
void arena_free(Arena *a);
/* Zeroed, 16-byte aligned, never NULL: when memory is out, prints "burstc: error: out of memory" and exits with 3. */
void *arena_alloc(Arena *a, size_t bytes);
char *arena_copy(Arena *a, const char *text, size_t len); /* NUL-terminated copy */
char *arena_printf(Arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
size_t arena_bytes(const Arena *a); /* what the arena holds from the system */
/* malloc/realloc for code that cannot use an arena (flex, bison); same failure behaviour. */
void *xmalloc(size_t bytes);
void *xrealloc(void *p, size_t bytes);
/* What they do then; also for libc functions that fail with ENOMEM. */
_Noreturn void out_of_memory(void);
#define NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define NEW_ARRAY(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))

/* A growing array of T in an arena: Vec(int) v = {0}; *vec_push(arena, &v) = 3;  v.at[i], v.n */
#define Vec(T) struct { T *at; int n, cap; }
void *vec_grow_(Arena *a, void *at, int n, int *cap, size_t size);
#define vec_push(a, v) \
    ((v)->n < (v)->cap ? (void)0 : (void)((v)->at = vec_grow_((a), (v)->at, (v)->n, &(v)->cap, sizeof(*(v)->at))), &(v)->at[(v)->n++])

/* ---- text.c: growing text, written to files atomically ---- */
typedef struct Text { char *at; size_t n, cap; } Text; /* NUL-terminated once written to; free with text_free */
void text_printf(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_vprintf(Text *t, const char *fmt, va_list ap);
void text_add(Text *t, const char *s);
void text_add_n(Text *t, const char *s, size_t n);
void text_free(Text *t);
char *text_keep(Arena *a, Text *t); /* a copy in the arena; the text itself is freed */
char *bytes_text(Arena *a, double bytes, int digits); /* "1.55 GiB", "64.00 MiB": in the unit that suits */
/* Writes the text to path as output_file.h says: a file changes whole or not at all; 0, or -1 with errno. "-" is standard
 * output. */
int text_write_file(const Text *t, const char *path);
/* Reads a whole file into the arena; NULL with errno. */
char *read_file(Arena *a, const char *path, size_t *len);
/* Whether both names lead to one file, by links of either kind. */
bool same_file(const char *a, const char *b);
/* A variable of the environment; one that is empty is not set. */
const char *environment(const char *name, const char *otherwise);

/* ---- diag.c: diagnostics as clang's ---- */
typedef struct Source {
    const char *name; /* as the user wrote it, or as an import found it */
    const char *text; /* NUL-terminated */
    size_t len;
} Source;
typedef struct Span { /* bytes [begin, end) of src; src NULL: no place (command line) */
    const Source *src;
    uint32_t begin, end;
} Span;
enum { DIAG_MAX_ERRORS = 20 };
/* What is legal and most likely not meant. By name each may be left out or be an error (-Wno-NAME, -Werror=NAME). */
#define WARNINGS(X) /* id, name, what it is about: for --help and docs/language.md */ \
    X(EMPTY_MASK, "empty-mask", "a mask that keeps no pair of query and key") \
    X(EMPTY_ROWS, "empty-rows", "a mask that leaves a query without a key") \
    X(ONE_DOCUMENT, "one-document", "a mask that reads `doc` where no `separator` ends a document") \
    X(UNUSED_COSINE, "unused-cosine", "`cosine` where the warm-up takes all steps") \
    X(UNUSED_SETTING, "unused-setting", "a setting of the layout that has nothing to act on") \
    X(FEW_TOKENS, "few-tokens", "a rank with less than one kernel tile of a sequence") \
    X(UNCHECKED_TEXT, "unchecked-text", "a program that libclang could not read again")
typedef enum Warning {
#define X(id, name, what) WARN_##id,
    WARNINGS(X)
#undef X
    WARNING_COUNT
} Warning;
typedef struct Diags Diags;
Diags *diags_new(Arena *a);
/* Messages are not capitalised and have no full stop. Arguments that quote input put it in '...'. */
void diag_error(Diags *d, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_warn(Diags *d, Warning w, Span at, const char *fmt, ...) PRINTF_LIKE(4, 5);
void diag_note(Diags *d, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4); /* belongs to the last error or warning */
void diag_fixit(Diags *d, Span at, const char *replacement);              /* printed below the carets */
/* Takes an option: -Wno-NAME, -WNAME, -Werror, -Werror=NAME, -Wno-error, -Wno-error=NAME; the later of two wins. NULL, or
 * what is wrong with it. Warnings that are errors count as such. */
const char *diags_option(Diags *d, const char *option);
int diags_errors(const Diags *d);
const char *diags_first(const Diags *d); /* text of the first error, "" without one */
/* Prints all (up to 20 errors, then "too many errors"), sorted as reported, and clears. Never exits. */
void diags_print(Diags *d, FILE *out);
/* The nearest of names to word within edit distance 1 + len/4, or NULL. */
const char *nearest_name(const char *word, const char *const *names, int n);
/* Line and column, 1-based, of a span's begin. */
void span_line(Span at, int *line, int *column);
Span span_join(Span a, Span b);

/* ---- expressions: masks and schedule indices (made by dsl/check.c) ---- */
#define EXPR_OPS(X) /* id, text, C precedence class */ \
    X(CONST, "")  X(Q, "q")  X(K, "k")  X(VAR, "")        \
    X(TABLE_Q, "") X(TABLE_K, "")                          \
    X(ADD, "+") X(SUB, "-") X(MUL, "*") X(DIV, "/") X(MOD, "mod") X(POW, "^") \
    X(MIN, "min") X(MAX, "max") X(ABS, "abs") X(HASH, "hash") X(PATTERN, "file") \
    X(LT, "<") X(LE, "<=") X(GT, ">") X(GE, ">=") X(EQ, "==") X(NE, "!=") \
    X(AND, "and") X(OR, "or") X(NOT, "not") X(TRUE, "true") X(FALSE, "false")
typedef enum ExprOp {
#define X(id, text) E_##id,
    EXPR_OPS(X)
#undef X
} ExprOp;
/* A 0/1 pattern read from a file: bit (row, col) says whether the block is kept; outside is not kept. */
typedef struct Pattern {
    const char *path;
    int64_t rows, cols;
    const uint8_t *bits;  /* rows * cols bytes 0/1 */
    const uint32_t *sums; /* (rows + 1) * (cols + 1): the ones before row and before col, modulo 2^32; NULL: not summed */
} Pattern;
/* Arithmetic is on int64; '/' and mod are floored, with a positive constant divisor (checked). Masks: Q, K, TABLE_*
 * and no VAR; every sub-value is proved to stay within +-2^62 on the sequence (checked). Schedules: VAR only, and POW, whose left side is 2. */
typedef struct Expr {
    ExprOp op;
    int64_t value; /* CONST: the number; VAR: the variable; TABLE_*: the table; others 0 */
    const struct Expr *a, *b;
    const Pattern *pattern; /* PATTERN: at (a, b) */
    Span span;
} Expr;
/* Evaluates on scalars; var may be NULL for masks. table[t][position] gives table values (NULL where there are none). */
int64_t expr_eval(const Expr *e, int64_t q, int64_t k, const int64_t *var, const int32_t *const *table);
int64_t floor_div(int64_t a, int64_t b);
int64_t floor_mod(int64_t a, int64_t b);

/* ---- target.c: what a program is written for, and what runs it. Passes read a row; none asks which row it is ---- */
typedef struct Target {
    const char *name;             /* of --emit, "cuda" */
    const char *language, *device; /* for messages: "CUDA", "GPU" */
    const char *suffix;           /* of a file with the program's text */
    struct {
        const char *variable, *compiler; /* the environment's name for the compiler, and the usual one */
        const char *flags;               /* '@' stands for the devices' architecture, "90a" */
        const char *link_file, *link;    /* flags that link the runtime: the file that has them, and where there is none */
    } build;
    struct { int least, most, step; } head_dim; /* that attention kernels are made for: multiples of step; 0: any */
    int activation_bytes;         /* of an element of activations and gathered weights; all else is fp32 */
    int align;                    /* of what is taken from the arena of a rank */
    bool device_memory;           /* a rank's buffers are on its device, beside an arena on the host */
    bool one_layout;              /* tokens and heads are one layout, and rotation works in place */
    bool copies_at_wait;          /* a transfer is copied by the rank that waits for it, in its own time */
    bool shares_cores;            /* devices of a node share its cores */
    double least_kernel;          /* seconds of the shortest kernel */
    const char *matmul_type;      /* that devices state their rate in */
    double attention_share[2];    /* forward, backward: of the matrix rate, where a device says nothing */
    double memory_rate, link_rate; /* bytes/s, where a device says nothing */
    double passes_share;          /* of hbm that passes over activations reach, where a device says nothing */
} Target;
enum { TARGET_C, TARGET_CUDA, TARGETS }; /* for the table and tests */
extern const Target targets[TARGETS];
const Target *target_named(const char *name);      /* NULL: none */
const Target *target_of_suffix(const char *path);  /* NULL: none */

/* ---- Program: checked input, base units, names resolved, defaults filled in ---- */
/* A rate of attention beside those of long rows of full tiles: at another head_dim, with so many keys a query (backward: queries a
 * key), in partial tiles. */
#define ATTENTION_KINDS(X) X(HEAD_DIM, "head_dim") X(KEYS, "keys") X(PARTIAL, "partial")
typedef enum AttentionKind {
#define X(id, name) ATTENTION_##id,
    ATTENTION_KINDS(X)
#undef X
    ATTENTION_KIND_COUNT
} AttentionKind;
typedef struct AttentionRate { AttentionKind kind; bool backward; int64_t value; double rate; Span span; } AttentionRate;
typedef struct Device {
    const char *name, *arch;
    const Target *target; /* what runs on it */
    double memory, hbm, passes, norms; /* bytes, bytes/s; passes over activations, and those of norms and rotation */
    double matmul, attention_forward, attention_backward; /* FLOP/s; attention over the pairs of tiles that are not empty */
    const AttentionRate *rate; /* [rates] by falling value */
    int rates;
    Span span;
} Device;
typedef struct Nic { const char *name; double bandwidth, latency; Span span; } Nic; /* bytes/s, ns */
typedef struct NodeGroup { int nodes, gpus, nics; const Device *device; const Nic *nic; Span span; } NodeGroup;
/* Nodes under switches of their own, as a rack: what leaves it shares its uplinks. */
typedef struct Level {
    const char *name;
    int nodes;               /* that one holds, a multiple of those of the level inside it */
    double uplink;           /* bytes/s out of one and into it; 0: what the cards of its nodes carry together */
    double oversubscription; /* divides the uplink */
    double latency;          /* ns, of a message that leaves one */
    Span span;
} Level;
enum { MAX_LEVELS = 6 };
typedef struct Cluster {
    const char *name;
    const Target *target; /* what runs on its devices, which is what is simulated; NULL: it has none */
    const NodeGroup *groups;
    int group_count;
    int nodes, world; /* totals */
    double link_bandwidth, link_latency; /* inside a node, per device and direction: bytes/s, ns */
    double oversubscription;
    Level level[MAX_LEVELS]; /* above the nodes, the innermost first */
    int levels;
    double host_memory, pcie; /* bytes a node, bytes/s */
    int64_t pcie_shared;      /* so many devices of a node have `pcie` together; 0: each has it */
    double host_bandwidth;    /* of a node's memory: bytes/s; 0: not given */
    int host_cores;
    Span span;
} Cluster;
int cluster_most_ranks(const Cluster *c); /* of a node */
/* Bytes/s of a rank's share of its host's memory. Where the cluster does not say: 5 GB/s a core, at most 200 GB/s. */
double cluster_host_rate(const Cluster *c);
double cluster_pcie(const Cluster *c); /* of a device while all of its node copy: bytes/s */
int cluster_node_of(const Cluster *c, int rank); /* global node index */
const NodeGroup *cluster_group_of(const Cluster *c, int rank);
int cluster_crossed(const Cluster *c, int node, int other); /* levels that a message between two nodes leaves, the innermost first */
int cluster_units(const Cluster *c, int level);             /* how many racks, say, of which the last may hold fewer nodes */
double cluster_uplink(const Cluster *c, int level, int unit); /* bytes/s of one, each direction; 0: not known */
const Device *cluster_least_memory(const Cluster *c); /* the device with the least */
double cluster_slowest_nic(const Cluster *c); /* bytes/s of a card; 0: the cluster has none, or does not say */
int cluster_node_ranks(const Cluster *c); /* of each node; 0: they have different numbers */
/* Whether groups of so many consecutive ranks can share the weights of layers that `tensor` ranks split: whole nodes or parts of one, since
 * only then are a ring's links known. */
bool cluster_shards(const Cluster *c, int tensor, int64_t ranks);

typedef struct Model {
    const char *name;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    double norm_eps, rope_theta;
    double softcap; /* of scores, before the mask: cap tanh(S / cap) (Gemma 2, arXiv 2408.00118); 0: none */
    bool sinks; /* learned: a score a head that takes weight in each row and has no value (GPT-OSS, arXiv 2508.10925) */
    bool tied, qkv_bias, qk_norm;
    Span heads_span, kv_heads_span, head_dim_span; /* head_dim_span: of heads where head_dim is not given */
} Model;
typedef struct Table { const char *name; int64_t len_min, len_max; /* 0: planned for the worst case */ Span span; } Table;
typedef struct Mask {
    const char *text; /* as written with arguments, e.g. "mine(32768, 4)": for comments and tables */
    const Expr *expr; /* boolean over q, k */
    Span span;
} Mask;

/* A value of the layout: chosen by the user or left to the search. */
typedef struct Setting { int64_t value; bool is_auto, given; Span span; } Setting;
typedef enum PartitionKind { PART_CONTIGUOUS, PART_ZIGZAG, PART_STRIPED, PART_BLOCKS, PART_KINDS } PartitionKind;
typedef enum Travel { TRAVEL_KEYS, TRAVEL_QUERIES, TRAVELS } Travel;
/* What a layer saves from forward to backward, as names of the step's values between spaces: less and less. Cheap beside its
 * memory, and therefore in no row: a norm's output, the product of the activated gate and up. */
#define RECOMPUTE_ROWS(X) /* id, name, saved */ \
    X(NONE, "none", " x rstd1 q_raw rstd_q q k_raw rstd_k k v o lse x_mid rstd2 gate_up ") \
    X(FFN, "ffn", " x rstd1 q_raw rstd_q q k_raw rstd_k k v o lse x_mid rstd2 ") \
    X(SELECTIVE, "selective", " x o lse ") /* selective checkpoint++ (LoongTrain, arXiv 2406.18485) */ \
    X(TAIL, "tail", " x o_tail lse_tail ") /* of the last tokens alone (BurstEngine, arXiv 2509.19836) */ \
    X(FULL, "full", " x ")
typedef enum Recompute {
#define X(id, name, saved) RECOMPUTE_##id,
    RECOMPUTE_ROWS(X)
#undef X
    RECOMPUTES
} Recompute;
/* What every rank holds whole; parameters and moments are sharded in each (arXiv 1910.02054), over all ranks or over those of a
 * group, which then has a replica of them all (hybrid: AMSP, arXiv 2311.00257). */
#define SHARDING_ROWS(X) /* id, name, a unit's weights are gathered once a step, its gradients are reduced once a step */ \
    X(ZERO3, "zero3", false, false) X(ZERO2, "zero2", true, false) X(ZERO1, "zero1", true, true) \
    X(NO_SYNC, "zero3_no_sync", false, true) /* as no_sync of PyTorch's FSDP */
typedef enum Sharding {
#define X(id, name, weights, gradients) SHARDING_##id,
    SHARDING_ROWS(X)
#undef X
    SHARDINGS
} Sharding;
extern const char *const partition_names[PART_KINDS]; /* partition.c */
extern const char *const travel_names[TRAVELS];       /* schedule.c */
extern const char *const yes_no[2], *const gradient_names[2], *const fetch_names[2], *const update_names[2]; /* ir/program.c: of `ranges` and `overlap`, `gradients`, `fetch`, `update` */
extern const char *const recompute_names[RECOMPUTES]; /* layout/recompute.c, and what follows up to saving_text */
const char *saved_most(void);  /* by `none` */
const char *saved_least(void); /* by `full` */
bool saves(const char *set, const char *name); /* whether a set of names has this one */
/* What layers save: those from `from` on `upper`, those before it `lower`, which is a part of it. tail: of a rank's tokens, the last of
 * them, the share that o_tail and lse_tail have. */
typedef struct Saving { const char *lower, *upper; int from; double tail; } Saving;
Saving saving_by(Recompute rule, double tail); /* in all layers */
Recompute saving_rule(Saving v); /* RECOMPUTES: none says just that */
const char *saving_text(Arena *a, Saving v); /* as a layout has it */
extern const char *const sharding_names[SHARDINGS];   /* ir/program.c */
enum { LEAST_LOSS_TILE = 16, MOST_LOSS_TILE = 65536 }; /* tokens */
enum { MAX_COORDS = 8 };
typedef struct Sizes { int n; int64_t at[MAX_COORDS]; /* 0: open */ Span span; } Sizes;
/* How the tokens of a sequence are shared out to ranks of different speed. */
#define SHARES_ROWS(X) /* id, what a rank's tokens are in proportion to: its speed at */ \
    X(EQUAL, "equal") X(STEP, "the step") X(ATTENTION, "attention") X(REST, "all but attention") X(GIVEN, "given")
typedef enum SharesKind {
#define X(id, name) SHARES_##id,
    SHARES_ROWS(X)
#undef X
    SHARES_KINDS
} SharesKind;
enum { MOST_SHARE = 1000 };
enum { MOST_KEY_CHUNKS = 64 }; /* `token chunks N, keys` */
/* `schedule near for window(4Ki), ring;`: what the layout has for the layers of a mask. schedule NULL: auto. */
typedef struct LayerSetting { const char *schedule; Span schedule_span; Setting travel; } LayerSetting;
typedef struct GivenShare { const char *device; /* NULL: of the next rank */ int share; Span span; } GivenShare;
typedef struct GivenShares { int n; const GivenShare *at; } GivenShares; /* by rank, or by device */
typedef struct Layout {
    Setting data, context, heads, tensor;
    Sizes sizes; /* of context as several coordinates, `4 x 8`; n 0: as a number, or not said */
    Setting partition, block; /* PartitionKind; block size for blocks(B) */
    Setting shares; /* SharesKind */
    GivenShares given_shares;
    Setting travel;
    Setting ranges; /* whether transfers of keys carry ranges of tiles */
    Setting weights, ffn_chunks, token_chunks, head_chunks; /* Sharding; how many */
    bool chunk_queries;    /* `token chunks 4, attention` */
    bool chunk_keys;       /* `token chunks 4, keys`: of queries, and of keys */
    Setting loss_tile;     /* tokens; 0: as many as suit the vocabulary */
    Setting overlap;       /* of what tensor ranks do among them with products */
    Setting fetch;         /* of what was staged, index of fetch_names */
    Setting gradients;     /* of weights, index of gradient_names */
    Setting within; /* consecutive ranks over which weights are sharded; not given: all, or what the search finds */
    Saving saving; /* upper NULL: auto */
    Span saving_span;
    Setting offload; /* value: how many of the values that layers save are staged to the host's memory, or MOST_STAGED */
    const char *offloaded; /* `offload activations(...)`: as names between spaces; NULL: none are named */
    Setting staged_layers; /* `offload activations, layers 6`: of the first so many; not given: of all but the last */
    bool host_optimizer;   /* `offload optimizer` */
    Setting update;        /* where it updates what lies there, index of update_names */
    Setting placement;    /* is_auto: all orders of the axes are tried */
    int placement_names;  /* axes from the innermost on */
    const char *placement_name[MAX_COORDS + 1];
    const char *schedule; /* NULL: auto */
    Span schedule_span;
    const LayerSetting *of_mask; /* [mask_count] schedule and travel of layers, where the layout tells them apart; the first is above */
    Span span;
} Layout;
typedef struct Train {
    const char *data;      /* path as written; NULL: random tokens */
    bool bytes;            /* any file, one token a byte, also with more than 256 tokens */
    int64_t separator;     /* token that ends a document; -1: none */
    int64_t predict;       /* labels are the token so many positions ahead */
    int64_t steps, batch, seed, checkpoint_every, warmup;
    const char *checkpoint; /* directory; NULL: none */
    const char *weights, *export_dir; /* Hugging Face folders; NULL: none */
    bool export_f32;        /* else bf16 */
    double lr, lr_end, beta1, beta2, decay, clip, adam_eps;
    bool cosine;
    bool deterministic;     /* sums have the same order on every run: the same bits */
    Span deterministic_span;
    Span span;
} Train;
struct SchedText;
typedef struct Program {
    const char *topo_path, *model_path;
    Vec(const char *) inputs; /* every file that was read, imports and patterns among them */
    const Target *target; /* what the program is written for, whatever the cluster's devices */
    Cluster cluster;
    Model model;
    int tensor; /* ranks that split each layer's weights; the model's heads, kv_heads and ffn are then one rank's. 0: none do */
    int key_copies; /* tensor ranks, neighbours, that have the same key head: more than kv_heads split layers. 0: one */
    int head_chunks; /* of each layer's heads, one after the other; the model's heads and kv_heads are then those of the largest. 0: none */
    int short_chunks; /* the last so many of these have a key head less, with the queries that read it */
    int64_t sequence; /* tokens */
    Span sequence_span;
    const Table *tables;
    int table_count;
    const Mask *masks; /* the distinct masks that layers use */
    int mask_count;
    int all_masks, all_tables; /* with those that every_mask adds behind them */
    const char *open_masks;    /* that it could not add, since they take parameters: "mine, other"; NULL: none */
    const int *layer_mask; /* [layers] index into masks */
    Layout layout;
    Train train;
    const struct SchedText *const *schedules; /* stock ones, and --schedule's */
    int schedule_count;
} Program;

/* ---- SchedText: a checked .sched file ---- */
#define TENSORS(X) /* id, name in .sched, accumulator? */ \
    X(Q, "Q", 0) X(KV, "KV", 0) X(O, "O", 1) X(DQ, "dQ", 1) X(DKV, "dKV", 1)
typedef enum TensorId {
#define X(id, name, acc) T_##id,
    TENSORS(X)
#undef X
    TENSOR_COUNT
} TensorId;
/* In backward, Q stands for the bundle Q, dO, D, lse; KV for K and V; dKV for dK and dV. */
enum { FIRST_LOOP = 2 * MAX_COORDS, MAX_LOOPS = 12, MAX_SCHED_VARS = FIRST_LOOP + MAX_LOOPS };
/* heads: of the chunks of all ranks along the exchanged coordinate, the rank's share of the heads; its index there is NULL.
 * all: no index. piece: which one of the chunk; NULL: it has one, or all are meant. */
typedef struct ChunkRef { TensorId tensor; const Expr *index[MAX_COORDS], *piece; bool heads, all; Span span; } ChunkRef;
#define STATEMENTS(X) X(FOR) X(IF) X(ATTEND) X(GRAD) X(PASS) X(RETURN) X(EXCHANGE)
typedef enum StmtKind {
#define X(id) S_##id,
    STATEMENTS(X)
#undef X
} StmtKind;
typedef struct Stmt {
    StmtKind kind;
    Span span;               /* the whole statement up to its body */
    Span by, mirrored;       /* the `use` and the `mirrors` that wrote it here; src NULL: none did */
    struct Stmt *next, *body;
    int var;                 /* FOR: variable, lo .. hi inclusive */
    const char *var_name;
    bool each_piece;         /* FOR: of the one statement in it, which names no piece */
    const Expr *lo, *hi;
    const Expr *cond;        /* IF */
    ChunkRef refs[6];        /* ATTEND/GRAD: [0] Q with [1] KV; PASS, RETURN, EXCHANGE: nrefs of them */
    int nrefs;
    const Expr *to[MAX_COORDS]; /* PASS: destination coordinates, wrap around */
    bool tokens_to_heads;    /* EXCHANGE */
} Stmt;
Span stmt_place(const Stmt *s); /* in the schedule's own text */
/* One direction. exchanges: it has an EXCHANGE, and so all its chunks are by heads. of: the direction that this one mirrors, src NULL: none. */
typedef struct Phase { Span span, of; const Stmt *body; bool exchanges; } Phase;
typedef struct Require { const Expr *cond; Span span; struct Require *next; } Require; /* of the sizes */
/* Variables of its expressions: coordinate i is i, its size is MAX_COORDS + i, loop variables from FIRST_LOOP on. */
typedef struct SchedText {
    const char *name;
    const Source *source;
    int coords;
    const char *coord_name[MAX_COORDS], *size_name[MAX_COORDS]; /* "l" of "W" */
    const char *way_name[MAX_COORDS]; /* what moves along it: "lane", or where no word says so the coordinate's name */
    bool lanes;               /* the last coordinate is `lane`: left open, it is the ranks of a node */
    int vars;
    const char *var_name[MAX_SCHED_VARS]; /* all variables, for printing */
    const Require *requires;
    int pieces;               /* of a rank's chunk of KV and dKV: as many contiguous shares of its tokens */
    int exchanged;            /* the coordinate that its exchanges are over; -1: it has none */
    int rings;                /* coordinates that `context` has the sizes of: of several all but the exchanged one, which `heads` has */
    const Phase *forward;
    const Phase *backward[TRAVELS]; /* NULL where the file has none; "backward { }" without a word sets both */
    Span span;
} SchedText;

/* dsl/: text to Program. Reads stock files from stock_dir (masks.burst, devices.topo, schedules). NULL after errors. */
typedef struct FrontEnd {
    const char *topo_path, *model_path; /* topo_path NULL: no cluster, and nothing of the layout that needs one is checked */
    const char *stock_dir;           /* installed share folder: has masks.burst, devices.topo, schedules/ */
    const char *const *schedule_paths; /* --schedule, may be empty */
    int schedule_path_count;
    const Target *target;            /* NULL: that of the cluster's devices */
    bool every_mask; /* also what the user declares and no layer uses */
    int64_t sequence; /* tokens, instead of what the model says; 0: none */
    int tensor;       /* what `tensor auto` stands for; 0: it stays open, and what depends on it unchecked */
    bool offloads;    /* a layout without `offload` stands for `offload auto`; else for none */
} FrontEnd;
const Program *front_end(Arena *a, Diags *d, const FrontEnd *in);
bool tensor_divides(const Model *m, int world, int64_t ranks); /* whether `tensor` may split layers over so many; the model's as it is written */
void print_ast(Arena *a, Diags *d, const FrontEnd *in, Text *out); /* --emit=ast */
const SchedText *parse_schedule(Arena *a, Diags *d, const char *stock_dir, const char *path); /* stock_dir NULL: it may use no other */

/* ---- PosSet, Partition ---- */
/* Positions start + j*stride + t for j < count, t < run, in that order (j outer). run <= stride. */
typedef struct Piece { int64_t start, run, stride, count; } Piece;
typedef struct PosSet { int64_t tokens; int npieces; const Piece *pieces; } PosSet; /* local order: pieces in turn */
PosSet pos_first(Arena *a, const PosSet *s, int64_t tokens); /* its first so many */
PosSet pos_run(Piece *p, int64_t begin, int64_t end); /* one run; p is its piece */
int64_t pos_cut(int64_t tokens, int i, int shares);   /* where the i-th of so many contiguous shares begins */
PosSet pos_share(Arena *a, const PosSet *s, int i, int shares); /* of the local order */
/* Appends a piece, or a run; leaves out an empty one and joins a run to the one before where they touch. pieces: s's, with room. */
void pos_add_piece(PosSet *s, Piece *pieces, Piece p);
void pos_add_run(PosSet *s, Piece *pieces, int64_t begin, int64_t end);
int64_t pos_piece_tokens(const Piece *p);
int64_t pos_before(const PosSet *s, int64_t x);       /* how many positions are less than x */
typedef struct Partition {
    PartitionKind kind;
    int64_t block;  /* blocks(B) */
    int ranks;      /* G: ranks that share one sequence */
    int64_t sequence;
    int64_t max_tokens; /* of any rank */
    const int64_t *before; /* [ranks + 1]: the shares of the ranks before each; NULL: all are equal */
    const PosSet *of; /* [ranks] */
} Partition;
const Partition *partition_make(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks); /* equal shares */
/* share: [ranks] a rank's tokens in proportion, from 1 to MOST_SHARE; NULL: equal. */
const Partition *partition_shared(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks, const int *share);
void print_partition(const Partition *p, Text *out);
/* Emits C: `static int64_t plan_position(int chunk, int64_t i)` and `static int64_t plan_tokens(int chunk)`, closed
 * forms whose length does not depend on ranks or tokens. */
void partition_emit_c(const Partition *p, Text *out);

/* ---- MaskMap ---- */
typedef enum Cover { COVER_EMPTY, COVER_PARTIAL, COVER_FULL } Cover;
typedef struct PairWork {
    Cover cover;  /* from tile hulls: EMPTY means that no kernel tile is launched */
    int64_t pairs, tiles_full, tiles_partial;
    double pairs_error; /* relative; 0: exact */
    bool tiles_estimated;
} PairWork;
typedef struct MaskMap MaskMap;
MaskMap *mask_map(Arena *a, const Program *p, int mask, int tile_q, int tile_k);
/* Work of one (query chunk, key chunk) pair. Kernel tiles cut the local order every tile_q / tile_k tokens. */
PairWork mask_work(MaskMap *m, const PosSet *q, const PosSet *k);
void mask_map_begin(MaskMap *m); /* before another partition, which has its part of the time that counting may take */
Cover mask_pair_cover(MaskMap *m, const PosSet *q, const PosSet *k); /* the cover alone, cheaper */
/* Whether it is not EMPTY: 1 or 0; -1 where so many looks at parts do not tell. */
int mask_pair_live(MaskMap *m, const PosSet *q, const PosSet *k, int64_t limit);
/* A few runs of tiles of q or k (side: BURST_OF_...) outside of which all tiles of the pair are EMPTY: what burst_pair_tiles finds. All of
 * them where so many looks do not tell. */
BurstTileRanges mask_pair_tiles(MaskMap *m, const PosSet *q, const PosSet *k, int side, int64_t limit);
/* Whether every tile of the pair outside of these runs is EMPTY, by a look at what is outside. */
bool mask_tiles_within(MaskMap *m, const PosSet *q, const PosSet *k, int side, BurstTileRanges ranges);
/* ---- pair_counts.c: the work of pairs of chunks, counted once for all that share a partition ---- */
typedef struct PairCounts PairCounts;
PairCounts *pair_counts(Arena *a, MaskMap *m, const Partition *p, int pieces); /* of a chunk of keys */
PairWork pair_work(PairCounts *c, int q, int k);  /* of two chunks; of keys k is piece * ranks + rank */
PairWork pair_row(const PairCounts *c, int q);    /* of a chunk with the whole sequence; not remembered */
double pair_share_before(const PairCounts *c, int q, int64_t tokens); /* of these, those of its first so many queries */
const double *pair_shares(PairCounts *c, int q, int parts); /* and of each of so many runs of its queries; of the last number asked for remembered */
/* [chunks] where all ranks cut their tokens into so many (at most 64): a bit for each chunk of keys that has anything for a chunk of
 * queries at any two ranks, whatever the tables; and for the chunk itself. Remembered of the last number asked for. */
const uint64_t *pair_chunks(PairCounts *c, int chunks);
PairWork pair_whole(PairCounts *c);               /* of the whole sequence with itself */
const uint8_t *pair_live(PairCounts *c);          /* [q * ranks * pieces + k]: whether the pair has any unmasked tile */
BurstTileRanges pair_tiles(PairCounts *c, int q, int k, int side); /* of a live pair: for which tiles of its queries or keys there is work */
bool pair_tiles_suffice(PairCounts *c, int q, int k, int side, BurstTileRanges ranges); /* for no others */
/* ---- attention_rate.c: what kernels compute of a pair of chunks, one head, and at which rate ---- */
/* Pairs of the kernel's tiles that are not empty, those of partial ones, and the rows that have any: queries, backward keys. */
typedef struct AttentionWork { double pairs, partial, rows; } AttentionWork;
AttentionWork attention_work(const Program *p, bool backward, PairWork w, int64_t q_tokens, int64_t k_tokens);
double attention_rate(const Device *d, bool backward, int head_dim, AttentionWork w); /* FLOP/s of the pairs of tiles */
/* Columns of a head that attention's products take at that rate: as its kernels pad head_dim, and more where they are not of the devices'
 * own form. */
double attention_columns(const Program *p, const Device *d, bool backward);

/* mask/cell.c: of the pairs of a cell, those that the mask keeps. With tile 1 the share is 0 only where none is kept and 1 only where
 * all are; with larger tiles 0 only where none is computed and 1 only where all are full. Where it is not sure, either may be so. */
typedef struct MaskShare { double share; bool sure; } MaskShare;
MaskShare mask_share(MaskMap *m, const PosSet *q, const PosSet *k, int64_t tile);
typedef struct MaskSum { PairWork work; double density; } MaskSum;
MaskSum mask_sum(MaskMap *m); /* of the whole sequence with itself */
/* The expression in the language of .burst, with the fewest parentheses; tables may be NULL (then t0, t1, ...). */
void mask_text(const Expr *e, const Table *tables, Text *out);
void print_mask(const Program *p, int mask, Text *out);              /* --emit=mask: density, picture, counts */
void mask_warn(Diags *d, const Program *p); /* -Wempty-mask, -Wempty-rows: only what is sure; -Wone-document */
/* Emits C (see BurstMask in burst_rt.h): plan_mask<i>_tile and plan_mask<i>_row. */
void mask_emit_c(const Program *p, int mask, Text *out);
/* Emits CUDA: plan_mask<i>_tile, plan_mask<i>_keep of one pair, and PlanMask<i>, the kernels' template argument. */
void mask_emit_cuda(const Program *p, int mask, Text *out);
/* mask/keys.c: BURST_KEYS_*: which key tiles forward takes where the predicate has 32 bits; whether hashes decide by blocks of an odd
 * number of 64 tokens. */
int mask_keys(const Program *p, int mask);
bool mask_in_blocks(const Program *p, int mask);
bool program_reads(const Program *p, const char *path); /* whether the path leads to one of its inputs */

/* Input text made safe: inside a C comment, and as a C string literal with its quotes. */
void mask_comment(const char *text, Text *out);
void mask_quote(const char *text, Text *out);

#include "ir/plan.h"

#endif
