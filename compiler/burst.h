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
    ((v)->at = vec_grow_((a), (v)->at, (v)->n, &(v)->cap, sizeof(*(v)->at)), &(v)->at[(v)->n++])

/* ---- text.c: growing text, written to files atomically ---- */
typedef struct Text { char *at; size_t n, cap; } Text; /* NUL-terminated once written to; free with text_free */
void text_printf(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_vprintf(Text *t, const char *fmt, va_list ap);
void text_add(Text *t, const char *s);
void text_add_n(Text *t, const char *s, size_t n);
void text_free(Text *t);
/* Writes the text to path by a temporary file beside it and rename; 0, or -1 with errno. "-" is standard output. */
int text_write_file(const Text *t, const char *path);
/* Reads a whole file into the arena; NULL with errno. */
char *read_file(Arena *a, const char *path, size_t *len);

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
typedef struct Diags Diags;
Diags *diags_new(Arena *a);
/* Messages are not capitalised and have no full stop. Arguments that quote input put it in '...'. */
void diag_error(Diags *d, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_warn(Diags *d, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_note(Diags *d, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4); /* belongs to the last error or warning */
void diag_fixit(Diags *d, Span at, const char *replacement);              /* printed below the carets */
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
    X(ADD, "+") X(SUB, "-") X(MUL, "*") X(DIV, "/") X(MOD, "mod") \
    X(MIN, "min") X(MAX, "max") X(ABS, "abs") X(HASH, "hash") X(PATTERN, "file") \
    X(LT, "<") X(LE, "<=") X(GT, ">") X(GE, ">=") X(EQ, "==") X(NE, "!=") \
    X(AND, "and") X(OR, "or") X(NOT, "not") X(TRUE, "true") X(FALSE, "false")
typedef enum ExprOp {
#define X(id, text) E_##id,
    EXPR_OPS(X)
#undef X
} ExprOp;
/* A 0/1 pattern read from a file: bit (row, col) says whether the block is kept; outside is not kept. */
typedef struct Pattern { const char *path; int64_t rows, cols; const uint8_t *bits; /* rows*cols bytes 0/1 */ } Pattern;
/* Arithmetic is on int64; '/' and mod are floored, with a positive constant divisor (checked). Masks: Q, K, TABLE_*
 * and no VAR; every sub-value is proved to stay within +-2^62 on the sequence (checked). Schedules: VAR only. */
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

/* ---- Program: checked input, base units, names resolved, defaults filled in ---- */
typedef struct Device {
    const char *name, *arch; /* arch "cpu": the host backend */
    bool is_cpu;
    double memory, hbm; /* bytes, bytes/s */
    double matmul, attention_forward, attention_backward; /* FLOP/s; attention over unmasked pairs */
    Span span;
} Device;
typedef struct Nic { const char *name; double bandwidth, latency; Span span; } Nic; /* bytes/s, ns */
typedef struct NodeGroup { int nodes, gpus, nics; const Device *device; const Nic *nic; Span span; } NodeGroup;
typedef struct Cluster {
    const char *name;
    const NodeGroup *groups;
    int group_count;
    int nodes, world; /* totals */
    double link_bandwidth, link_latency; /* inside a node, per device and direction: bytes/s, ns */
    double oversubscription;
    double host_memory, pcie; /* bytes a node, bytes/s */
    int host_cores;
    Span span;
} Cluster;
int cluster_node_of(const Cluster *c, int rank); /* global node index */
int cluster_local_of(const Cluster *c, int rank); /* device index inside its node */
const NodeGroup *cluster_group_of(const Cluster *c, int rank);

typedef struct Model {
    const char *name;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    double norm_eps, rope_theta;
    bool tied;
    Span span, heads_span, kv_heads_span, head_dim_span; /* head_dim_span: of heads where head_dim is not given */
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
typedef enum Recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTES } Recompute; /* keeps less and less */
extern const char *const partition_names[PART_KINDS]; /* partition.c */
extern const char *const travel_names[TRAVELS];       /* schedule.c */
extern const char *const recompute_names[RECOMPUTES]; /* schedule.c */
typedef struct Layout {
    Setting data, context, heads, tensor;
    Setting partition, block; /* PartitionKind; block size for blocks(B) */
    Setting travel, recompute;
    const char *schedule; /* NULL: auto */
    Span schedule_span;
    Span span;
} Layout;
typedef struct Train {
    const char *data;      /* path as written; NULL: random tokens. A file with the token-file header, or any bytes */
    int64_t separator;     /* token that ends a document; -1: none */
    int64_t steps, batch, seed, checkpoint_every, warmup;
    const char *checkpoint; /* directory; NULL: none */
    const char *weights, *export_dir; /* Hugging Face folders; NULL: none */
    bool export_f32;        /* else bf16 */
    double lr, lr_end, beta1, beta2, decay, clip, adam_eps;
    bool cosine;
    Span span;
} Train;
struct SchedText;
typedef struct Program {
    const char *topo_path, *model_path;
    bool cuda;       /* the program is CUDA; else C for CPUs, whatever the cluster's devices */
    Cluster cluster;
    Model model;
    int64_t sequence; /* tokens */
    Span sequence_span;
    const Table *tables;
    int table_count;
    const Mask *masks; /* the distinct masks that layers use */
    int mask_count;
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
enum { MAX_COORDS = 2, MAX_SCHED_VARS = 16 };
typedef struct ChunkRef { TensorId tensor; const Expr *index[MAX_COORDS]; bool whole; /* no index */ Span span; } ChunkRef;
#define STATEMENTS(X) X(FOR) X(IF) X(ATTEND) X(GRAD) X(PASS) X(RETURN) X(EXCHANGE)
typedef enum StmtKind {
#define X(id) S_##id,
    STATEMENTS(X)
#undef X
} StmtKind;
typedef struct Stmt {
    StmtKind kind;
    Span span;               /* the whole statement up to its body */
    struct Stmt *next, *body;
    int var;                 /* FOR: variable, lo .. hi inclusive */
    const char *var_name;
    const Expr *lo, *hi;
    const Expr *cond;        /* IF */
    ChunkRef refs[6];        /* ATTEND/GRAD: [0] Q with [1] KV; PASS, RETURN, EXCHANGE: nrefs of them */
    int nrefs;
    const Expr *to[MAX_COORDS]; /* PASS: destination coordinates, wrap around */
    bool tokens_to_heads;    /* EXCHANGE */
} Stmt;
/* Variables of its expressions: coordinate i is i, its size is MAX_COORDS + i, loop variables follow. */
typedef struct SchedText {
    const char *name;
    const Source *source;
    int coords;
    const char *coord_name[MAX_COORDS], *size_name[MAX_COORDS]; /* "node" of "N" */
    int vars;
    const char *var_name[MAX_SCHED_VARS]; /* all variables, for printing */
    const Stmt *forward;
    const Stmt *backward[TRAVELS]; /* NULL where the file has none; "backward { }" without a word sets both */
    bool exchanges; /* has an EXCHANGE: a head-parallel schedule */
    Span span;
} SchedText;

/* dsl/: text to Program. Reads stock files from stock_dir (masks.burst, devices.topo, schedules). NULL after errors. */
typedef struct FrontEnd {
    const char *topo_path, *model_path;
    const char *stock_dir;           /* installed share folder: has masks.burst, devices.topo, schedules/ */
    const char *const *schedule_paths; /* --schedule, may be empty */
    int schedule_path_count;
    enum { TARGET_C, TARGET_CUDA, TARGET_CLUSTER } target; /* Program.cuda; CLUSTER: as the cluster's devices are */
} FrontEnd;
const Program *front_end(Arena *a, Diags *d, const FrontEnd *in);
void print_ast(Arena *a, Diags *d, const FrontEnd *in, Text *out); /* --emit=ast */
const SchedText *parse_schedule(Arena *a, Diags *d, const char *path);

/* ---- PosSet, Partition ---- */
/* Positions start + j*stride + t for j < count, t < run, in that order (j outer). run <= stride. */
typedef struct Piece { int64_t start, run, stride, count; } Piece;
typedef struct PosSet { int64_t tokens; int npieces; const Piece *pieces; } PosSet; /* local order: pieces in turn */
int64_t pos_at(const PosSet *s, int64_t i);
void pos_hull(const PosSet *s, int64_t first, int64_t count, int64_t *lo, int64_t *hi_last);
typedef struct Partition {
    PartitionKind kind;
    int64_t block;  /* blocks(B) */
    int ranks;      /* G: ranks that share one sequence */
    int64_t sequence;
    int64_t max_tokens; /* of any rank */
    const PosSet *of; /* [ranks] */
} Partition;
const Partition *partition_make(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks);
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
} PairWork;
typedef struct MaskMap MaskMap;
MaskMap *mask_map(Arena *a, const Program *p, int mask, int tile_q, int tile_k);
Cover mask_cover(const Expr *e, int64_t q_lo, int64_t q_last, int64_t k_lo, int64_t k_last); /* interval evaluation */
/* Work of one (query chunk, key chunk) pair. Kernel tiles cut the local order every tile_q / tile_k tokens. */
PairWork mask_work(MaskMap *m, const PosSet *q, const PosSet *k);
Cover mask_pair_cover(MaskMap *m, const PosSet *q, const PosSet *k); /* the cover alone, cheaper */
void print_mask(const Program *p, int mask, Text *out);              /* --emit=mask: density, picture, counts */
/* Emits C (see BurstMask in burst_rt.h): plan_mask<i>_tile and plan_mask<i>_row. */
void mask_emit_c(const Program *p, int mask, Text *out);
/* Emits CUDA: plan_mask<i>_tile, plan_mask<i>_keep of one pair, and PlanMask<i>, the kernels' template argument. */
void mask_emit_cuda(const Program *p, int mask, Text *out);

/* Input text made safe: inside a C comment, and as a C string literal with its quotes. */
void mask_comment(const char *text, Text *out);
void mask_quote(const char *text, Text *out);

#include "plan.h"

#endif
