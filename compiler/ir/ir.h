/* ir/ir.h: checked input (expressions, cluster, model, layout, schedules) and a point of the search
 * (Choice). */
#ifndef BURST_IR_IR_H
#define BURST_IR_IR_H

#include "base/base.h"
#include "burst_kernels.h"
#include "burst_mask.h"
#include "burst_range.h"
#include "burst_layer.h"
#include "burst_rope.h"
#include "burst_train.h"
#include "burst_scales.h"
#include "burst_tables.h"

/* ---- expressions: masks and schedule indices (made by dsl/check.c) ---- */
/* Functions of two numbers or more, one after the other: a row is all that the compiler has of one. It
 * takes burst_NAME, burst_NAME32 and burst_form_NAME (its bounds) from burst_mask.h. */
#define EXPR_FUNCTIONS(X) X(MIN, min) X(MAX, max) X(BITAND, bitand) X(BITOR, bitor) X(BITXOR, bitxor)
/* id; in .burst and .sched: text, shape, how strongly it binds; in C: text, shape */
#define EXPR_FUNCTION_OP(id, name) EXPR_OP(id, #name, CALL, 7, "burst_" #name, CALL)
#define EXPR_OPS \
    EXPR_OP(CONST, "", OWN, 7, "", OWN) \
    EXPR_OP(Q, "q", WORD, 7, "", OWN) \
    EXPR_OP(K, "k", WORD, 7, "", OWN) \
    EXPR_OP(VAR, "", OWN, 7, "", OWN) \
    EXPR_OP(TABLE_Q, "", OWN, 7, "", OWN) \
    EXPR_OP(TABLE_K, "", OWN, 7, "", OWN) \
    EXPR_OP(ADD, "+", INFIX, 5, "+", INFIX) \
    EXPR_OP(SUB, "-", INFIX, 5, "-", INFIX) \
    EXPR_OP(MUL, "*", INFIX, 6, "*", INFIX) \
    EXPR_OP(DIV, "/", INFIX, 6, "burst_floor_div", CALL) \
    EXPR_OP(MOD, "mod", INFIX, 6, "burst_floor_mod", CALL) \
    EXPR_OP(POW, "^", INFIX, 7, "", OWN) \
    EXPR_FUNCTIONS(EXPR_FUNCTION_OP) \
    EXPR_OP(ABS, "abs", CALL, 7, "burst_abs", CALL) \
    EXPR_OP(HASH, "hash", CALL, 7, "burst_hash", CALL) \
    EXPR_OP(PATTERN, "file", OWN, 7, "", OWN) \
    EXPR_OP(LT, "<", INFIX, 4, "<", INFIX) \
    EXPR_OP(LE, "<=", INFIX, 4, "<=", INFIX) \
    EXPR_OP(GT, ">", INFIX, 4, ">", INFIX) \
    EXPR_OP(GE, ">=", INFIX, 4, ">=", INFIX) \
    EXPR_OP(EQ, "==", INFIX, 4, "==", INFIX) \
    EXPR_OP(NE, "!=", INFIX, 4, "!=", INFIX) \
    EXPR_OP(AND, "and", INFIX, 2, "&&", INFIX) \
    EXPR_OP(OR, "or", INFIX, 1, "||", INFIX) \
    EXPR_OP(NOT, "not", PREFIX, 3, "!", PREFIX) \
    EXPR_OP(TRUE, "true", WORD, 7, "1", WORD) \
    EXPR_OP(FALSE, "false", WORD, 7, "0", WORD)
#define EXPR_OP(id, text, shape, strength, c, c_shape) E_##id,
typedef enum ExprOp { EXPR_OPS EXPR_OP_COUNT } ExprOp;
#undef EXPR_OP
/* OWN: as whoever writes it says. */
typedef enum ExprShape { SHAPE_OWN, SHAPE_WORD, SHAPE_INFIX, SHAPE_PREFIX, SHAPE_CALL } ExprShape;
typedef struct ExprOpText { const char *text; ExprShape shape; } ExprOpText;
typedef struct ExprOpRow { int strength; ExprOpText burst, c; } ExprOpRow;
extern const ExprOpRow expr_ops[EXPR_OP_COUNT];
typedef struct ExprFunction {
    int64_t (*value)(int64_t, int64_t);
    BurstForm (*form)(BurstForm, BurstForm, const BurstSide *q, const BurstSide *k);
} ExprFunction;
const ExprFunction *expr_function(ExprOp op); /* of EXPR_FUNCTIONS; NULL: it is none */
/* A 0/1 pattern read from a file: bit (row, col) says whether the block is kept; outside is not kept. */
typedef struct Pattern {
    const char *path;
    int64_t rows, cols;
    const uint8_t *bits;  /* rows * cols bytes 0/1 */
    /* (rows + 1) * (cols + 1): the ones before row and before col, modulo 2^32; NULL: not summed */
    const uint32_t *sums;
} Pattern;
/* Arithmetic is on int64; '/' and mod are floored, with a positive constant divisor (checked). Masks: Q,
 * K, TABLE_* and no VAR; every sub-value is proved to stay within +-2^62 on the sequence (checked).
 * Schedules: VAR only, and POW, whose left side is 2. */
typedef struct Expr {
    ExprOp op;
    int64_t value; /* CONST: the number; VAR: the variable; TABLE_*: the table; others 0 */
    const struct Expr *a, *b;
    const Pattern *pattern; /* PATTERN: at (a, b) */
    Span span;
} Expr;
/* Evaluates on scalars; var may be NULL for masks. table[t][position] gives table values (NULL where there
 * are none). */
int64_t expr_eval(const Expr *e, int64_t q, int64_t k, const int64_t *var, const int32_t *const *table);
int64_t floor_div(int64_t a, int64_t b);
int64_t floor_mod(int64_t a, int64_t b);
bool expr_compares(ExprOp op);

/* ---- expr_text.c: expressions as text, in .burst or in C ---- */
/* FEWEST: by strength. OPERANDS: of infix operators inside of others, but for a chain of one that is
 * associative. ALL: around each. */
typedef enum Brackets { BRACKETS_FEWEST, BRACKETS_OPERANDS, BRACKETS_ALL } Brackets;
typedef struct ExprWriter {
    bool c;
    Brackets brackets;
    const char *suffix;     /* of functions in C: "32"; NULL: none */
    const char *(*before)(const Expr *e); /* in front of an infix operator's first operand; NULL: nothing */
    void (*own)(const struct ExprWriter *w, const Expr *e); /* writes what has a shape of its own */
    const void *with;       /* for `own` */
    Text *out;
} ExprWriter;
void expr_write(const ExprWriter *w, const Expr *e);
/* with its brackets as an operand of an infix operator */
void expr_write_operand(const ExprWriter *w, const Expr *e);

/* ---- target.c: what a program is written for, and what runs it. Passes read a row; none asks which
 * row it is ---- */
typedef struct Target {
    const char *name;             /* of --emit, "cuda" */
    const char *language, *device; /* for messages: "CUDA", "GPU" */
    const char *suffix;           /* of a file with the program's text */
    struct {
        const char *variable, *compiler; /* the environment's name for the compiler, and the usual one */
        const char *flags;               /* '@' stands for the devices' architecture, "90a" */
        /* flags that link the runtime: the file that has them, and where there is none */
        const char *link_file, *link;
        /* of attention as a library: what is added to flags, and the same two */
        const char *library_flags, *library_file, *library_link;
    } build;
    /* that attention kernels are made for: multiples of step; 0: any */
    struct { int least, most, step; } head_dim;
    int activation_bytes;         /* of an element of activations and gathered weights; all else is fp32 */
    int align; /* of values in the arena of a rank */
    bool device_memory; /* a rank's buffers are on its device, in addition to an arena on the host */
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
/* A rate of attention in addition to those of long rows of full tiles: at another head_dim, with so many keys
 * a query (backward: queries a key), in partial tiles. */
#define ATTENTION_KINDS(X) X(HEAD_DIM, "head_dim") X(KEYS, "keys") X(PARTIAL, "partial")
typedef enum AttentionKind {
#define X(id, name) ATTENTION_##id,
    ATTENTION_KINDS(X)
#undef X
    ATTENTION_KIND_COUNT
} AttentionKind;
typedef struct AttentionRate {
    AttentionKind kind;
    bool backward;
    int64_t value;
    double rate;
    Span span;
} AttentionRate;
typedef struct Device {
    const char *name, *arch;
    const Target *target; /* what runs on it */
    /* bytes, bytes/s; passes over activations, and those of norms and rotation */
    double memory, hbm, passes, norms;
    /* FLOP/s; attention over the pairs of tiles that are not empty */
    double matmul, attention_forward, attention_backward;
    double peak; /* of its data sheet, FLOP/s, which MFU is a share of; matmul where it is not given */
    const AttentionRate *rate; /* [rates] by falling value */
    int rates;
    bool unmeasured; /* the rates are its data sheet's, scaled by what other devices reach */
    Span span;
} Device;
typedef struct Nic { const char *name; double bandwidth, latency; Span span; } Nic; /* bytes/s, ns */
typedef struct NodeGroup {
    int nodes, gpus, nics;
    const Device *device;
    const Nic *nic;
    bool nics_in_turn; /* of fewer cards than devices: device i has card i % nics, not i * nics / gpus */
    Span span;
} NodeGroup;
/* Nodes under switches of their own, as a rack: what leaves it shares its uplinks. */
typedef struct Level {
    const char *name;
    int nodes;               /* that one holds, a multiple of those of the level inside it */
    /* bytes/s out of one and into it; 0: what the cards of its nodes carry together */
    double uplink;
    double oversubscription; /* divides the uplink */
    double latency;          /* ns, of a message that leaves one */
    Span span;
} Level;
enum { MAX_LEVELS = 6 };
typedef struct Cluster {
    const char *name;
    const Target *target; /* runs on its devices and is simulated; NULL: it has none */
    const NodeGroup *groups;
    int group_count;
    int nodes, world; /* totals */
    double link_bandwidth, link_latency; /* inside a node, per device and direction: bytes/s, ns */
    double link_sums; /* of what a reduction sends beside computing; 0: the bandwidth */
    double oversubscription;
    Level level[MAX_LEVELS]; /* above the nodes, the innermost first */
    int levels;
    double host_memory, pcie; /* bytes a node, bytes/s */
    bool host_assumed;        /* the text does not say how much memory a host has */
    int64_t pcie_shared;      /* so many devices of a node have `pcie` together; 0: each has it */
    double host_bandwidth;    /* of a node's memory: bytes/s; 0: not given */
    int host_cores;
    Span span;
} Cluster;
int cluster_most_ranks(const Cluster *c); /* of a node */
/* Bytes/s of a rank's share of its host's memory. Where the cluster does not say: 5 GB/s a core, at most
 * 200 GB/s. */
double cluster_host_rate(const Cluster *c);
double cluster_pcie(const Cluster *c); /* of a device while all of its node copy: bytes/s */
int cluster_node_of(const Cluster *c, int rank); /* global node index */
int cluster_place_of(const Cluster *c, int rank); /* among the ranks of its node */
const NodeGroup *cluster_group_of(const Cluster *c, int rank);
/* levels that a message between two nodes leaves, the innermost first */
int cluster_crossed(const Cluster *c, int node, int other);
/* how many racks, say, of which the last may hold fewer nodes */
int cluster_units(const Cluster *c, int level);
/* bytes/s of one, each direction; 0: not known */
double cluster_uplink(const Cluster *c, int level, int unit);
const Device *cluster_least_memory(const Cluster *c); /* the device with the least */
/* bytes/s of a card; 0: the cluster has none, or does not say */
double cluster_slowest_nic(const Cluster *c);
int cluster_node_ranks(const Cluster *c); /* of each node; 0: they have different numbers */
/* Whether groups of so many consecutive ranks can share the weights of layers that `tensor` ranks split:
 * whole nodes or parts of one, since only then are a ring's links known. */
bool cluster_shards(const Cluster *c, int tensor, int64_t ranks);
typedef struct Model {
    const char *name;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int value_dim; /* of values and of attention's output, a head; else head_dim */
    /* multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values are made of a latent of so
     * many elements a token, and of `shared` elements of a key that all heads have and that turn; queries of
     * a latent of their own. 0: they are made of the layer's input */
    int latent, query_latent, shared;
    const char *family; /* of the table of families: what it is to Hugging Face; NULL: the first that fits */
    double norm_eps;
    BurstRope rope;
    int ropes; /* 0: rope is every layer's */
    const BurstRope *rope_of; /* [ropes], of which the first is rope */
    const int *layer_rope; /* [layers] -> rope_of */
    int rope_table; /* by whose values RoPE turns, counted from 1; 0: by positions in the sequence */
    double scale[BURST_SCALES]; /* 0: none */
    BurstLayer layer;
    double softcap; /* of scores, before the mask: cap tanh(S / cap) (Gemma 2, arXiv 2408.00118); 0: none */
    /* learned: a score a head that takes weight in each row and has no value (GPT-OSS, arXiv 2508.10925) */
    bool sinks;
    bool tied, qkv_bias, qk_norm;
    Span heads_span, kv_heads_span, head_dim_span; /* head_dim_span: of heads where head_dim is not given */
    Span rotary_span, latent_span;
} Model;
typedef struct Table {
    const char *name;
    BurstTableKind kind;
    int64_t len_min, len_max; /* of documents; 0: planned for the worst case, as where kind is GIVEN */
    const struct Lengths *lengths; /* from which they are drawn (data/lengths.h); NULL: evenly */
    Span span;
} Table;
typedef struct Mask {
    const char *text; /* as written with arguments, e.g. "mine(32768, 4)": for comments and tables */
    const Expr *expr; /* boolean over q, k */
    Span span;
    int *keys; /* [2] mask_keys of forward and backward once asked, -1 before; NULL: found each time */
} Mask;
/* A value of the layout: chosen by the user or left to the search. */
typedef struct Setting { int64_t value; bool is_auto, given; Span span; } Setting;
typedef enum PartitionKind {
    PART_CONTIGUOUS,
    PART_ZIGZAG,
    PART_STRIPED,
    PART_BLOCKS,
    PART_BALANCED, /* runs of tokens whose rank each batch decides; planned as blocks of a run a rank */
    PART_KINDS
} PartitionKind;
typedef enum Travel { TRAVEL_KEYS, TRAVEL_QUERIES, TRAVELS } Travel;
/* What a layout says: these, or latents, which are keys and values as what they are made of */
enum { TRAVEL_LATENTS = TRAVELS, TRAVEL_WORDS };
/* What a layer saves from forward to backward, as names of the step's values between spaces: less and
 * less. Cheap compared to its memory, and therefore in no row: a norm's output, the product of the activated
 * gate and up. */
#define RECOMPUTE_ROWS(X) /* id, name, saved */ \
    X(NONE, "none", \
      " x rstd1 q_low rstd_q_low q_raw rstd_q q kv_low rstd_kv_low k_raw rstd_k k v o lse x_mid rstd2 " \
      "gate_up up " \
      "attn rstd_attn mlp rstd_mlp ") \
    X(FFN, "ffn", \
      " x rstd1 q_low rstd_q_low q_raw rstd_q q kv_low rstd_kv_low k_raw rstd_k k v o lse x_mid rstd2 attn " \
      "rstd_attn mlp rstd_mlp ") \
    X(SELECTIVE, "selective", " x o lse ") /* selective checkpoint++ (LoongTrain, arXiv 2406.18485) */ \
    X(TAIL, "tail", " x o_tail lse_tail ") /* of the last tokens alone (BurstEngine, arXiv 2509.19836) */ \
    X(FULL, "full", " x ")
typedef enum Recompute {
#define X(id, name, saved) RECOMPUTE_##id,
    RECOMPUTE_ROWS(X)
#undef X
    RECOMPUTES
} Recompute;
/* What every rank holds whole; parameters and moments are sharded in each (arXiv 1910.02054), over all
 * ranks or over those of a group, which then has a replica of them all (hybrid: AMSP, arXiv 2311.00257). */
/* id, name, a unit's weights are gathered once a step, its gradients are reduced once a step */
#define SHARDING_ROWS(X) \
    X(ZERO3, "zero3", false, false) X(ZERO2, "zero2", true, false) X(ZERO1, "zero1", true, true) \
    X(NO_SYNC, "zero3_no_sync", false, true) /* as no_sync of PyTorch's FSDP */
typedef enum Sharding {
#define X(id, name, weights, gradients) SHARDING_##id,
    SHARDING_ROWS(X)
#undef X
    SHARDINGS
} Sharding;
extern const char *const partition_names[PART_KINDS]; /* partition.c */
extern const char *const travel_names[TRAVEL_WORDS]; /* choice.c */
/* ir/saving.c, and what follows up to saving_text */
extern const char *const recompute_names[RECOMPUTES];
const char *saved_most(void);  /* by `none` */
const char *saved_least(void); /* by `full` */
bool saves(const char *set, const char *name); /* whether a set of names has this one */
/* What layers save: those from `from` on `upper`, those before it `lower`, which is a part of it. tail: of
 * a rank's tokens, the last of them, the share that o_tail and lse_tail have. group: of so many consecutive
 * layers only the first saves; 0: each saves. */
typedef struct Saving { const char *lower, *upper; int from; double tail; int group; } Saving;
Saving saving_by(Recompute rule, double tail); /* in all layers */
int saving_group(Saving v); /* 1: each layer saves */
Recompute saving_rule(Saving v); /* RECOMPUTES: none says just that */
const char *saving_text(Arena *a, Saving v); /* as a layout has it */
extern const char *const sharding_names[SHARDINGS];   /* ir/program.c */
enum { LEAST_LOSS_TILE = 16, MOST_LOSS_TILE = 65536 }; /* tokens */
enum { MAX_COORDS = 8 };
typedef struct Sizes { int n; int64_t at[MAX_COORDS]; /* 0: open */ Span span; } Sizes;
/* How the tokens of a sequence are shared out to ranks of different speed. */
#define SHARES_ROWS(X) /* id, what a rank's tokens are in proportion to: its speed at */ \
    X(EQUAL, "equal") X(STEP, "the step") X(ATTENTION, "attention") X(REST, "all but attention") \
    X(GIVEN, "given")
typedef enum SharesKind {
#define X(id, name) SHARES_##id,
    SHARES_ROWS(X)
#undef X
    SHARES_KINDS
} SharesKind;
enum { MOST_SHARE = 1000 };
enum { MOST_KEY_CHUNKS = 64 }; /* `token chunks N, keys` */
/* `schedule near for window(4Ki), ring;`: what the layout has for the layers of a mask. schedule NULL:
 * auto. */
typedef struct LayerSetting { const char *schedule; Span schedule_span; Setting travel; } LayerSetting;
typedef struct GivenShare {
    const char *device; /* NULL: of the next rank */
    int share;
    Span span;
} GivenShare;
typedef struct GivenShares { int n; const GivenShare *at; } GivenShares; /* by rank, or by device */
/* ---- settings.c: settings of a layout that are one of some words, or a count ---- */
/* What holds where the layout does not say it: `auto`; the first word, or the least number; the same, and
 * the layout can't say `auto`. */
typedef enum Otherwise { OTHERWISE_AUTO, OTHERWISE_FIRST, OTHERWISE_FIXED } Otherwise;
/* Each is a member of Layout, and dsl/ reads its statement by the form that these tables make of it; the
 * statements of other settings are dsl's own. member, as it is written, Otherwise, words: the setting's
 * value is the word's index */
#define WORD_SETTINGS(X) \
    X(ranges, "ranges", AUTO, "no", "yes") /* whether transfers of keys carry ranges of tiles */ \
    X(fetch, "fetch", FIRST, "layers", "chunks") /* of what was offloaded */ \
    X(update, "update", AUTO, "host", "device") /* where it updates what lies in the host's memory */ \
    X(gradients, "gradients", FIXED, "fp32", "bf16") /* of weights */ \
    X(overlap, "overlap", AUTO, "no", "yes") /* of what tensor ranks do among them with products */
/* member, as it is written, Otherwise, least and most */
#define COUNT_SETTINGS(X) \
    X(ffn_chunks, "ffn chunks", AUTO, 1, 1 << 10) \
    X(head_chunks, "head chunks", FIRST, 1, 1 << 10)
typedef struct SettingForm {
    const char *name;
    size_t at;                /* its Setting in Layout; 0 also where it is none */
    Otherwise otherwise;
    const char *const *words; /* [word_count] */
    int word_count;           /* 0: it is a count */
    int64_t least, most;
} SettingForm;
#define X(member, ...) extern const SettingForm form_##member;
WORD_SETTINGS(X)
COUNT_SETTINGS(X)
#undef X
typedef struct Layout {
#define X(member, ...) Setting member;
    WORD_SETTINGS(X)
    COUNT_SETTINGS(X)
#undef X
    Setting data, context, heads, tensor;
    Sizes sizes; /* of context as several coordinates, `4 x 8`; n 0: as a number, or not said */
    Setting partition, block; /* PartitionKind; block size for blocks(B) */
    Setting shares; /* SharesKind */
    GivenShares given_shares;
    Setting travel;
    Setting weights, token_chunks; /* Sharding; how many */
    bool chunk_queries;    /* `token chunks 4, attention` */
    bool chunk_keys;       /* `token chunks 4, keys`: of queries, and of keys */
    Setting loss_tile;     /* tokens; 0: as many as suit the vocabulary */
    /* consecutive ranks over which weights are sharded; not given: all, or what the search finds */
    Setting within;
    Saving saving; /* upper NULL: auto */
    Span saving_span;
    /* value: how many of the values that layers save are offloaded to the host's memory, or OFFLOAD_ALL */
    Setting offload;
    const char *offloaded; /* `offload activations(...)`: as names between spaces; NULL: none are named */
    /* `offload activations, layers 6`: of the first so many; not given: of all but the last */
    Setting offload_layers;
    bool host_optimizer;   /* `offload optimizer` */
    Setting placement;    /* is_auto: all orders of the axes are tried */
    int placement_names;  /* axes from the innermost on */
    const char *placement_name[MAX_COORDS + 1];
    const char *schedule; /* NULL: auto */
    Span schedule_span;
    /* [mask_count] schedule and travel of layers, where the layout tells them apart; the first is above */
    const LayerSetting *of_mask;
    Span span;
} Layout;
/* All of the two tables; NULL ends them. */
extern const SettingForm *const setting_forms[];
void settings_otherwise(Layout *l); /* sets each to what holds where the layout does not say it */
const Setting *setting_at(const Layout *l, size_t at);
typedef struct Train {
    const BurstDataFile *data; /* [data_files], paths as written; none: random tokens */
    int data_files;
    bool packed;                            /* documents are packed into sequences */
    const BurstDataFile *evaluate;          /* NULL: none */
    int64_t evaluate_every, evaluate_steps; /* steps 0: all of the file */
    int64_t separator;     /* token that ends a document; -1: none */
    int64_t predict;       /* labels are the token so many positions ahead */
    int64_t steps, batch, seed, checkpoint_every, warmup;
    Span batch_span; /* src NULL: it follows from the layout's `data` */
    const char *checkpoint; /* directory; NULL: none */
    const char *weights, *export_dir; /* Hugging Face folders; NULL: none */
    Span weights_span;
    bool export_f32;        /* else bf16 */
    double lr, lr_end, beta1, beta2, decay, clip, adam_eps;
    int schedule;           /* BURST_SCHEDULE_... */
    int64_t decay_steps;    /* of WSD */
    int optimizer;          /* BURST_OPTIMIZER_... */
    Span optimizer_span;    /* its name; src NULL: it is not given */
    double momentum;        /* of Muon */
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
/* heads: of the chunks of all ranks along the exchanged coordinate, the rank's share of the heads; its
 * index there is NULL. all: no index. piece: which one of the chunk; NULL: it has one, or all are meant. */
typedef struct ChunkRef {
    TensorId tensor;
    const Expr *index[MAX_COORDS], *piece;
    bool heads, all;
    Span span;
} ChunkRef;
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
/* One direction. exchanges: it has an EXCHANGE, and so all its chunks are by heads. of: the direction that
 * this one mirrors, src NULL: none. */
typedef struct Phase { Span span, of; const Stmt *body; bool exchanges; } Phase;
typedef struct Require { const Expr *cond; Span span; struct Require *next; } Require; /* of the sizes */
/* Variables of its expressions: coordinate i is i, its size is MAX_COORDS + i, loop variables from
 * FIRST_LOOP on. */
typedef struct SchedText {
    const char *name;
    const Source *source;
    int coords;
    const char *coord_name[MAX_COORDS], *size_name[MAX_COORDS]; /* "l" of "W" */
    /* what moves along it: "lane", or where no word says so the coordinate's name */
    const char *way_name[MAX_COORDS];
    bool lanes;               /* the last coordinate is `lane`: left open, it is the ranks of a node */
    int vars;
    const char *var_name[MAX_SCHED_VARS]; /* all variables, for printing */
    const Require *requires;
    int pieces;               /* of a rank's chunk of KV and dKV: as many contiguous shares of its tokens */
    int exchanged;            /* the coordinate that its exchanges are over; -1: it has none */
    /* coordinates that `context` has the sizes of: of several all but the exchanged one, which `heads` has */
    int rings;
    const Phase *forward;
    /* NULL where the file has none; "backward { }" without a word sets both */
    const Phase *backward[TRAVELS];
    Span span;
} SchedText;

/* ---- PosSet, Partition ---- */
/* Positions start + j*stride + t for j < count, t < run, in that order (j outer). run <= stride. */
typedef struct Piece { int64_t start, run, stride, count; } Piece;
/* local order: pieces in turn */
typedef struct PosSet { int64_t tokens; int npieces; const Piece *pieces; } PosSet;
PosSet pos_first(Arena *a, const PosSet *s, int64_t tokens); /* its first so many */
PosSet pos_run(Piece *p, int64_t begin, int64_t end); /* one run; p is its piece */
int64_t pos_cut(int64_t tokens, int i, int shares);   /* where the i-th of so many contiguous shares begins */
PosSet pos_share(Arena *a, const PosSet *s, int i, int shares); /* of the local order */
/* Appends a piece, or a run; leaves out an empty one and joins a run to the one before where they touch.
 * pieces: s's, with room. */
void pos_add_piece(PosSet *s, Piece *pieces, Piece p);
void pos_add_run(PosSet *s, Piece *pieces, int64_t begin, int64_t end);
int64_t pos_piece_tokens(const Piece *p);
int64_t pos_before(const PosSet *s, int64_t x);       /* how many positions are less than x */

/* ---- attention_rate.c: what kernels compute of a pair of chunks, one head, and at which rate ---- */
bool program_reads(const Program *p, const char *path); /* whether the path leads to one of its inputs */

/* ---- one point of the search: every setting decided ---- */
enum { SAVING_LEVELS = 256, TAIL_LEVELS = 32 };
/* Where parameters and moments lie, and what updates them: the device; the host, its cores; the host, but
 * the device, a unit at a time. */
typedef enum OptimizerPlace { OPTIMIZER_ON_DEVICE, OPTIMIZER_ON_HOST, OPTIMIZER_FETCHED } OptimizerPlace;
/* How the layers of one mask attend, where they do not all attend alike. mask: its text. */
typedef struct MaskChoice {
    const char *mask;
    const SchedText *schedule;
    Travel travel;
    int coords, size[MAX_COORDS], stride[MAX_COORDS]; /* as Choice has them, of the same ranks */
} MaskChoice;
/* What is found once for all choices that are the same in what it depends on. */
typedef enum ChoiceKey {
    KEY_COUNTS = 1, /* the ranks' tokens, and the counted pairs of their chunks */
    KEY_RANGES = 2, /* whether transfers of keys carry ranges */
    KEY_ATTENTION = 4, /* the time of attention */
    KEY_STEP = 8, /* the step's list, of as many tokens and with as much scratch for attention */
    KEY_ACTIVATIONS = 16, /* the memory of activations, near enough to bound it */
    KEY_ESCALATION = 32, /* of settings that memory escalation decides (layout/layout.h) */
    KEY_ATTENDS = KEY_RANGES | KEY_ATTENTION,
    KEY_TOKENS = KEY_COUNTS | KEY_ATTENDS
} ChoiceKey;
/* The fields of Choice, each with what depends on it: Choice, choice_same and the tests read this table.
 * type, name, dimension, how two are compared (choice.c), keys */
#define CHOICE_FIELDS(X) \
    X(int, data, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ACTIVATIONS) /* data-parallel groups */ \
    /* ranks with a chunk: neighbours, which split each layer's weights; 0: one */ \
    X(int, tensor, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ACTIVATIONS) \
    X(int, ranks, , VALUE, KEY_TOKENS) /* G: chunks of a sequence */ \
    /* the ranks as a product of rings: the sum of coordinate * stride; of no coordinate 0 */ \
    X(int, coords, , VALUE, KEY_ATTENDS | KEY_ACTIVATIONS) \
    X(int, size, [MAX_COORDS], ARRAY, KEY_ATTENDS | KEY_ACTIVATIONS) \
    X(int, stride, [MAX_COORDS], ARRAY, KEY_ATTENDS) \
    /* ranks of the world are the sum of coordinate * place and group * data_stride; else groups follow \
     * each other, and these are 0 */ \
    X(bool, placed, , VALUE, KEY_ATTENDS) \
    X(int, place, [MAX_COORDS], ARRAY, KEY_ATTENDS) \
    X(int, data_stride, , VALUE, KEY_ATTENDS) \
    X(PartitionKind, partition, , VALUE, KEY_TOKENS) \
    X(int64_t, block, , VALUE, KEY_TOKENS) \
    X(SharesKind, shares, , VALUE, KEY_ACTIVATIONS) \
    /* [ranks] tokens in proportion, once shares.c has found them; NULL: equal */ \
    X(const int *, share, , SHARE, KEY_TOKENS) \
    X(const char *, shares_text, , TEXT, 0) /* as a layout has it, with `share` */ \
    X(const SchedText *, schedule, , VALUE, KEY_ATTENDS | KEY_ACTIVATIONS) \
    X(Travel, travel, , VALUE, KEY_ATTENDS) \
    /* with travel KEYS: keys and values travel as their latents, and are made of them where they are \
     * attended: see step/passes/latents.c */ \
    X(bool, latents, , VALUE, KEY_ATTENDS | KEY_STEP) \
    X(int, masks, , VALUE, 0) /* of of_mask */ \
    /* schedule, travel and sizes for the layers of each mask; NULL: those above, for all layers. Nothing \
     * is found once where there are some, but for the list */ \
    X(const MaskChoice *, of_mask, , VALUE, 0) \
    X(Sharding, sharding, , VALUE, KEY_STEP) \
    /* so many consecutive ranks share the weights, other such groups have replicas; 0: all ranks do */ \
    X(int, within, , VALUE, KEY_STEP) \
    X(int, ffn_chunks, , VALUE, KEY_STEP | KEY_ESCALATION) /* of the tokens; below 2: none */ \
    /* of a layer's operations that treat tokens by themselves; below 2: none. With some, none of its own \
     * for ffn */ \
    X(int, token_chunks, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ESCALATION) \
    /* with chunks of tokens: attention too has a chunk of queries at a time */ \
    X(bool, chunk_queries, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ESCALATION) \
    /* ... with a chunk of keys at a time, which wait in the host's memory: see step/passes/tile_kv.c */ \
    X(bool, chunk_keys, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ESCALATION) \
    X(int, head_chunks, , VALUE, \
      KEY_ATTENDS | KEY_STEP | KEY_ESCALATION) /* of each layer's heads; below 2: none */ \
    /* 0: as `saving` says; else so many of SAVING_LEVELS parts of what none saves are not saved; `saving` \
     * has what that comes to */ \
    X(int, spared, , VALUE, KEY_ESCALATION) \
    X(Saving, saving, , SAVING, KEY_STEP | KEY_ESCALATION) /* upper NULL: all that `none` saves */ \
    /* tokens whose logits are there at once; 0: what the runtime prefers for the vocabulary */ \
    X(int64_t, loss_tile, , VALUE, KEY_STEP | KEY_ESCALATION) \
    /* so many of the values that all layers save are offloaded to the host's memory, the largest first: \
     * `offload` has their names */ \
    X(int, offload_values, , VALUE, KEY_ESCALATION) \
    X(const char *, offload, , TEXT, \
      KEY_STEP | KEY_ESCALATION) /* names of what is offloaded; NULL: nothing */ \
    X(int, offload_layers, , VALUE, \
      KEY_STEP | KEY_ESCALATION) /* of the first so many; 0: of all but the last */ \
    /* what was offloaded comes back a chunk of the tokens at a time, in the loop of backward that reads it \
     */ \
    X(bool, fetch_chunks, , VALUE, KEY_STEP | KEY_ESCALATION) \
    X(OptimizerPlace, optimizer, , VALUE, KEY_STEP | KEY_ESCALATION) \
    /* what tensor ranks do among them is beside products: step/passes/overlap.c */ \
    X(bool, overlap, , VALUE, KEY_STEP) \
    X(bool, bf16_gradients, , VALUE, KEY_STEP) /* of weights, kept rounded */ \
    X(bool, whole, , VALUE, 0) /* the layout says `ranges no` */ \
    /* attention's transfers carry the tiles that somebody further along reads, or added to */ \
    X(bool, ranges, , VALUE, 0)
/* What follows from several fields, or is a part of one: function of a choice, keys. */
#define CHOICE_FACTS(X) \
    X(choice_pieces, KEY_COUNTS) \
    X(choice_tail, KEY_ATTENTION)
typedef struct Choice {
#define X(type, name, dimension, kind, keys) type name dimension;
    CHOICE_FIELDS(X)
#undef X
} Choice;
/* Whether what has one of these keys is the same for both. */
bool choice_same(const Choice *x, const Choice *y, unsigned keys);
void choice_copy(Choice *to, const Choice *from, unsigned keys); /* the fields that have one of these keys */
unsigned choice_step_keys(const Choice *c); /* of the step's list: some lists also have the counted pairs */
const Phase *phase_of(const Choice *c, bool backward); /* NULL where the schedule has none */

/* ---- ir/choice.c ---- */
/* or outputs, or their gradients, to another rank */
bool choice_moves_queries(const Choice *c, bool backward);
bool choice_chunks_queries(const Choice *c);
bool choice_chunks_keys(const Choice *c);
int64_t tokens_in_chunk(int64_t tokens, int chunks); /* of so many chunks, all but the last */
int chunk_count(int64_t tokens, int chunks); /* chunks that there are then: there may be fewer */
bool choice_keeps_tail(const Choice *c); /* layers keep attention's output of a rank's last tokens alone */
double choice_tail(const Choice *c); /* the share of the tokens whose output they keep then; else 0 */
int64_t choice_loss_tile(const Program *p, const Choice *c); /* tokens, never 0 */
/* so many of them, of the rank that has most: at least one, and not all */
int64_t tail_tokens(double share, int64_t tokens);
int choice_tensor(const Choice *c); /* ranks with a chunk, the first of which choice_rank names */
/* the last coordinate innermost: its ranks are neighbours */
void choice_set_sizes(Choice *c, int coords, const int *size);
/* Ranks along the exchanged coordinate share the heads: in a direction that exchanges, each attends its
 * share of them for the chunks of all of these ranks together. Chunk c + x is then those of rank c + x and
 * its peers along the coordinate, and x is 0 there. */
bool choice_by_heads(const Choice *c, bool backward); /* several ranks share the heads in this direction */
bool choice_exchanges(const Choice *c);              /* in either direction */
int choice_shares(const Choice *c, bool backward);   /* ranks that share the heads; 1: it does not exchange */
/* the i-th of the ranks that share the heads with that one */
int choice_member(const Choice *c, int rank, int i);
int choice_rows(const Choice *c, bool backward);     /* ranks / shares */
/* of a rank's chunk of KV and dKV; 1 before the schedule is decided */
int choice_pieces(const Choice *c);
int choice_chunks(const Choice *c);                  /* of KV and dKV: ranks * pieces */
bool chunk_is_home(const Choice *c, int chunk);      /* a relative one */
int chunk_piece(const Choice *c, int chunk);
int tensor_pieces(const Choice *c, TensorId t);      /* of its chunks: 1 but for KV and dKV */
/* What a direction's trace looks up: pair[q * choice_chunks + k] for its chunks, where any of their ranks'
 * own has a pair; of chunks at different places of the exchanged coordinate 0. The same table where it
 * does not exchange. */
const uint8_t *choice_pairs(Arena *a, const Choice *c, bool backward, const uint8_t *pair);

/* ---- ir/shape.c: what a rank has of the model ---- */
typedef struct Heads {
    int heads, kv_heads;
} Heads;
/* The model as a choice splits it: over tensor ranks, and of these a rank's heads into chunks that attention
 * has one after the other. */
typedef struct Shape {
    int tensor; /* ranks that split each layer's weights, at least 1 */
    int key_copies; /* of these, neighbours that have the same key heads, at least 1 */
    int ffn; /* columns of a rank */
    Heads rank; /* of a rank, in all chunks */
    int head_chunks; /* at least 1 */
    int short_chunks; /* the last so many of these have a key head less, with the queries that read it */
    Heads chunk; /* of the largest chunk */
} Shape;
Shape shape_of(const Program *p, const Choice *c);
Shape shape_unchunked(Shape s); /* the same with all heads at a time */
Heads shape_chunk(const Shape *s, bool is_short);
int program_tensor(const Program *p); /* what the layout's `tensor` says, at least 1 */
Shape program_shape(const Program *p); /* as that alone splits the model */

/* ---- layout/layers.c: what differs between layers ---- */
bool layers_share_sizes(const Choice *c); /* the coordinates of all layers have the same sizes */
bool sizes_equal(const Choice *x, const Choice *y);

/* ---- saving.c ---- */
Saving saving_of(const Choice *c);

/* ---- attentions.c: the schedules of a choice, one for all layers or one for the layers of each mask ---- */
Choice choice_of_mask(const Choice *c, int mask); /* as all layers of that mask have it: without of_mask */
/* Relative indices: sums wrap in each coordinate; the piece stays. */
const char *tensor_name(TensorId t);
const char *choice_travel_name(const Choice *c); /* as a layout has it: "keys" */
bool tensor_accumulates(TensorId t);
/* what a pair adds to for its queries (side 0) or keys (1); -1: nothing */
int result_tensor(bool backward, int side);
/* the outermost coordinate inside that one, -1: of all; -1 where there is none */
int coord_inside(const Choice *c, int before);
int rel_coord(const Choice *c, int index, int i);
/* the same the shorter way round: from -(size - 1) / 2 to size / 2 */
int rel_hop(const Choice *c, int index, int i);
int rel_add(const Choice *c, int x, int y);
int rel_sub(const Choice *c, int x, int y);

/* ---- kernels.c: the CUDA attention kernels of a program's devices ---- */
typedef struct Kernels {
    int form;                      /* their architecture: 80, 90. 0: there are none */
    const char *forward, *backward; /* headers */
    BurstTileSizes tile;
    /* the architecture of all devices, whose own kernels `unfit`; NULL: those run */
    const char *missed, *unfit;
    double share[2];    /* of the rates that such devices state, what these reach forward and backward */
} Kernels;
Kernels kernels_of(const Program *p);
/* What the kernels' headers ask of the program that includes them. */
void kernels_define(const Program *p, Text *out);
/* All forms, the best first; unfit: why the program cannot have it, after "kernels for <arch>"; NULL: it
 * can. */
enum { KERNEL_FORMS = 2 };
typedef struct KernelForm {
    int form;
    const char *arch;
    BurstTileSizes tile;
    const char *unfit, *header[2];
} KernelForm;
int kernels_forms(const Program *p, KernelForm out[KERNEL_FORMS]);
/* Columns of a head in attention's products, on average: forward two of keys and values, backward three and
 * two. */
double model_columns(const Model *m, bool backward);
/* Columns of a head that attention's products take at the rates that the devices state: head_dim as
 * kernels pad it, over `share`. */
double kernels_columns(const Program *p, bool backward);

/* ---- step/passes/offload.c: values in the host's memory ---- */
enum { OFFLOAD_ALL = 16 }; /* more than a layer saves */

#endif
