/* step.h: a training step of one rank as data: values, operations, and passes that rewrite the list of
 * operations.
 *
 * The passes and their order: step/passes/pipeline.c. The last one adds where computing waits for other
 * streams; after it nothing else decides that.
 *
 * A step is a few blocks; a block is done once, or once a layer, and holds operations in their order. What
 * an operation reads and writes are values; an operation of a layer block means the value of its own layer
 * unless it says the next one's. Analysis unrolls the blocks; printing keeps them as loops.
 */
#ifndef STEP_H
#define STEP_H

#include "attention/attention.h"
#include "burst_parts.h"

/* ---- step/passes/model.c: the units of parameters that are gathered and reduced together (ZeRO,
 * arXiv 1910.02054) ---- */
/* values: of matrices drawn; of vectors, norms and biases. As BurstTensor.init_std has them */
#define FIRSTS(X) X(NORMAL, 0.02f) X(ONES, 0) X(ZEROS, -1)
typedef enum First {
#define X(id, init_std) FIRST_##id,
    FIRSTS(X)
#undef X
} First;
/* What a tensor rank has of it: all; so many of its rows, or of its columns. */
typedef enum Split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS } Split;
/* of one tensor rank; heads: which side heads are; parts: of the whole tensor */
typedef struct UnitTensor {
    const char *name;
    int64_t rows, cols, offset;
    First first;
    Split split, heads;
    int parts;
    bool sections; /* a rank has some of a scan's queries, keys and values each: BURST_BY_SECTIONS */
    /* In a unit in slices: elements of a rank's slice of the matrix that begins with this tensor, and where
     * its shard has that slice. 0: each rank has the tensor whole; SLICE_GOES_ON: it is in the matrix of the
     * tensor before it. */
    int64_t slice, slice_at;
} UnitTensor;
enum { SLICE_GOES_ON = -1 };
typedef struct Unit {
    const char *name, *full_name; /* full_name: of files, "model.layers.%d" */
    int repeat, ranks;
    int64_t elements, shard;
    /* that each rank has, at the begin of its shard; the rest of shards is gathered. 0 without slices */
    int64_t whole;
    int tensors;
    const UnitTensor *tensor;
} Unit;
int64_t unit_gathered(const Unit *u); /* elements of a gathered unit, padding included */
/* embedding, a layer of each kind, head, each group of a layer's experts, and where layers of some kinds have
 * none the empty unit of these; Unit.ranks: over which each is sharded, a layer over those of one tensor
 * rank; ranks: all of them; groups 0: experts are in the layer's. */
typedef struct Units {
    int n;
    const Unit *at;
    int ranks, head, groups;
    bool slices;
} Units;
/* within, and whether units are in slices: as Choice has it (choice_slices) */
Units units_make(Arena *a, const Program *p, const Shape *shape, int within, bool slices);
bool units_slice_experts(const Units *u); /* whether a rank has some of each layer's experts */
int64_t units_token_rows(const Units *u); /* of units in slices: a rank's rows of the vocabulary */
/* Rows of Units: the embedding's is the first, then there is one for each kind of layers, and the head's. */
int units_layer(int kind);
const Unit *units_of(const Units *u, const Model *m, int unit); /* unit: as burst_parts.h numbers them */

/* ---- step/passes/offload.c: values in the host's memory ---- */
/* as names; layers: that stage, as Choice has it */
const char *offload_at(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units,
                       Saving v, int layers, int values);

/* ---- values ---- */
#define DIMS(X) /* id, text */ \
    X(ONE, "1") \
    X(TOKENS, "tokens") \
    X(HIDDEN, "hidden") \
    X(QUERY, "heads * head_dim") \
    X(KEY, "kv_heads * head_dim") \
    X(HEADS, "heads") \
    X(KEY_HEADS, "kv_heads") \
    X(HEAD, "head_dim") \
    X(FFN, "ffn") \
    X(PAIR, "2 * ffn") \
    X(UNIT, "unit") \
    X(SHARD, "shard") X(SCRATCH, "scratch") \
        X(MATRICES, "matrices of an owner") /* of the ranks that split a layer's weights */ \
        X(CHUNK, "chunk") X(TAIL, "tail") X(VOCAB, "vocab") \
            X(ALL_TOKENS, "all tokens") /* of values and outputs, where they are not as wide as keys and \
                   queries: dim_of */ \
        X(VALUE, "kv_heads * value_dim") \
            X(OUTPUT, "heads * value_dim") /* multi-head latent attention: a key's own elements, those that \
                                              all heads share, latents */ \
        X(OWN, "kv_heads * (head_dim - rotary)") X(SHARED, "rotary") X(LATENT, "latent") \
            X(QUERY_LATENT, \
              "query_latent") /* experts: rows of a token's choices are columns of the token here */ \
        X(EXPERTS, "experts") X(BOUNDS, "experts + 1") X(TOP, "top") X(SLOTS, "top") X(TOP_ROWS, "top") \
            X(EXPERT_WIDTH, "width") X(TOP_PAIR, "top * 2 * width") X(TOP_WIDTH, "top * width") \
                X(TOP_HIDDEN, "top * hidden") X(SHARED_FFN, "shared") X(SHARED_PAIR, "2 * shared") \
                    X(SHARED_GATE, \
                      "1") /* recurrent layers: queries, keys and values of a token; values; gates; heads */ \
        X(SCAN_COLUMNS, "scan columns") X(SCAN_VALUES, "scan heads * value_dim") X( \
            SCAN_GATES, "scan gates") X(SCAN_HEADS, "scan heads") X(SCAN_VALUE, "scan value_dim") \
            X(KERNEL, "kernel") X(TILES, "tiles of the sequence") X(LISTS, "lists of a tile") X( \
                CACHE, \
                "cache") /* all tokens, and those that continue a prompt */ /* of a sequence that ranks \
                                                                               share: pieces of a rank, the \
                                                                               rows before each, a state */ \
        X(SCAN_PIECES, "pieces") X(HALO, "pieces * (kernel - 1)") \
            X(SCAN_STATE, "scan heads * key_dim * value_dim") X(SCAN_GROUPS, "groups of the scan's norm") \
                X(INDEX_QUERY, "index heads * dim") X(INDEX_KEY, "index kv_heads * dim") \
                    X(INDEX_HEADS, "index heads") X(INDEX_KEY_HEADS, "index kv_heads") X(INDEX, "index dim")
typedef enum Dim {
#define X(id, text) DIM_##id,
    DIMS(X)
#undef X
} Dim;
/* ACTIVATION is as wide as the target has it. */
typedef enum Element { EL_ACTIVATION, EL_FLOAT, EL_INT, EL_BYTE } Element;
typedef enum Index {
    INDEX_NONE,
    INDEX_LAYER,
    INDEX_BOUNDARY /* layers + 1 */,
    INDEX_VISIT,
    INDEX_UNIT,
    INDEX_CHUNK /* of the tokens */,
    INDEX_SLOT /* two, which chunks of keys take in turn */
} Index;
typedef enum ValueKind {
    VALUE_INPUT,      /* of the batch: written before the step's first operation */
    VALUE_ACTIVATION, /* made by forward */
    VALUE_GRADIENT,   /* of an activation */
    /* a gathered unit: one for each visit; or for each unit, from its first use in the step to the last */
    VALUE_WEIGHT,
    VALUE_SUM, /* gradients of a unit before their reduction: one for each visit; or for each unit */
    VALUE_SHARD, /* a rank's part of a unit's gradients, from their reduction to the optimizer */
    /* parameters rounded for products: from the optimizer on, until their last use in the next step */
    VALUE_ROUNDED,
    VALUE_CACHE, /* of prompts, what later tokens read of a layer: kept from an operation to the end */
    VALUE_STATE, /* a rank's part of parameters and moments: there from start to end */
    VALUE_SCRATCH /* of one operation */
} ValueKind;
typedef struct Value {
    const char *name;
    ValueKind kind;
    Dim dim[2];
    Element element;
    Index index;
    bool by_heads; /* on the host [heads][tokens][head_dim]: what attention reads and writes */
    bool saved;    /* ACTIVATION: kept from forward to backward, one for each index from saved_from on */
    int saved_from;
    bool kept; /* ACTIVATION: saved of every layer, whatever a rule of recomputation says */
    bool frozen; /* ACTIVATION: of an indexer: nothing that has a gradient reads it */
    /* of all chunks of heads, one after the other; a value as wide as heads is else of one of them */
    bool all_heads;
    /* in the host's memory, which copies and an optimizer that is there alone read and write */
    bool host;
    bool of_last;  /* host: there is one of the last layer too */
    bool every;    /* host: layers that do not save it have one too, in one place for all of them */
    bool copy;     /* of `original`: forward's operations that read it mean that */
    int original; /* host: of what it is a copy */
    int gradient;  /* ACTIVATION: the value of its gradient; -1: none yet */
    int64_t bytes; /* SCRATCH, and others whose size is not their dimensions' product; 0: that product */
} Value;

/* ---- operations ---- */
/* Operations are the rows of step/operations.def. */
typedef enum OpKind {
#define OPERATION(id, ...) OP_##id,
#include "step/operations.def"
#undef OPERATION
    OP_KINDS
} OpKind;
typedef enum WorkKind {
    WORK_NONE,
    WORK_MEMORY,
    WORK_CLEAR,
    WORK_PRODUCT,
    WORK_LOSS,
    WORK_NEXT, /* as LOSS, of one token */
    WORK_UPDATE,
    WORK_ATTENTION,
    WORK_COLLECTIVE,
    WORK_TENSOR,
    WORK_COPY,
    WORK_EXCHANGE,
    WORK_ORTHOGONAL,
    WORK_EXPERTS,
    WORK_SCAN,
    WORK_SELECT
} WorkKind;
typedef enum Stream {
    STREAM_COMPUTE,
    STREAM_WEIGHTS,
    STREAM_COPIES,
    STREAM_DOWNLOADS,
    STREAM_TENSOR,
    STREAMS
} Stream;
/* The form of an operation that several functions do. OTHER: LayerNorm, an activation but SwiGLU, a head
 * with bias or softcap. COLUMNS: a chunk's columns of a tensor. TO_TOKENS: from heads. LSE: with the gradient
 * of lse. ROWS: of a chunk of tokens. LATENTS: travel as keys and values. PARTS: of rows whose mean of
 * squares is an operand. SELECTED: over the lists of chosen blocks. CLAMPED: a SwiGLU of the experts' form.
 * SILU: a gate by it. SPLIT: by ranks that share a prompt. */
enum {
    FORM_OTHER = 1,
    FORM_COLUMNS = 2,
    FORM_TO_TOKENS = 4,
    FORM_LSE = 8,
    FORM_ROWS = 16,
    FORM_LATENTS = 32,
    FORM_PARTS = 64,
    FORM_SELECTED = 128,
    FORM_CLAMPED = 256,
    FORM_SILU = 512,
    FORM_SPLIT = 1024,
    FORM_SLICE = 2048
};
typedef struct OpRule { OpKind kind; const char *read, *write; bool weight; } OpRule;
typedef struct OpCall { int form; const char *function, *words; } OpCall;
enum { OP_RULES = 3, OP_CALLS = 5 };
/* A row of step/operations.def, whose head comment describes the members. The rules end where `read` is NULL,
 * the calls where `function` is. */
typedef struct OpRow {
    const char *name;
    int part; /* BURST_P_* */
    Stream stream;
    WorkKind work;
    int launches; /* kernels of a call on a GPU, of the loss for each tile; 0: one */
    OpRule backward[OP_RULES];
    OpCall call[OP_CALLS];
} OpRow;
const OpRow *op_row_of(OpKind k);
/* value -1: none; next 1: of the next index, -1: of the visit or layer before */
typedef struct Operand { int value, next; } Operand;
enum { OP_READS = 9, OP_WRITES = 7 };
/* in every sequence of a step, in the first, in the last */
typedef enum When { WHEN_ALWAYS, WHEN_FIRST, WHEN_LAST } When;
typedef struct Op {
    OpKind kind;
    /* WAIT: the kind of operation that computing waits for: step_event. What it reads is not read: it says
     * which one */
    OpKind awaits;
    When when;
    Operand read[OP_READS], write[OP_WRITES];
    bool adds[OP_WRITES];  /* to what is there, else from nothing */
    /* tensor of the block's unit that it reads, or whose gradient it adds to; NULL: none */
    const char *weight;
    /* products of one input: how many tensors, of which `weight` is the first; they follow each other in
     * the unit */
    int tensors;
    int scale; /* SCALE: BURST_SCALE_... */
    int group; /* of a layer's experts, from 1: it reads their unit, or adds to it; 0: the block's */
    bool again;     /* an operation of forward, repeated in backward */
    int scope;      /* the innermost that it is in; 0: the block */
    bool embedding; /* of the embedding's unit, whatever the block's: a head tied to it */
} Op;

/* What a loop counts: chunks of the tokens; of a rank's heads; the chunks of keys that a chunk of queries
 * attends to, in a loop over chunks of the tokens. */
typedef enum LoopDim { LOOP_TOKENS, LOOP_HEADS, LOOP_KEYS, LOOP_DIMS } LoopDim;
/* Nodes of a block's list, one inside the other: an operation names the innermost that it is in, and the
 * operations of a scope follow each other. LOOP repeats them for each index. AHEAD, in a loop, does them with
 * the index of the next turn, if there is one. BEGUN does them if earlier chunks of queries have begun the
 * sums of the chunk of keys. */
typedef enum ScopeKind { SCOPE_LOOP, SCOPE_AHEAD, SCOPE_BEGUN } ScopeKind;
typedef struct Scope {
    ScopeKind kind;
    LoopDim dim;
    int around; /* the scope that it is in; 0: the block */
    int turns; /* LOOP: only the first so many; 0: all. AHEAD: these have been before the loop */
    int early; /* AHEAD: the loop of these */
} Scope;

/* layers first to last, or last to first; all units; units of layers and of their experts */
typedef enum Repeat { REPEAT_ONCE, REPEAT_UP, REPEAT_DOWN, REPEAT_UNITS, REPEAT_LAYER_UNITS } Repeat;
typedef struct Block {
    const char *name;
    Repeat repeat;
    int first, end; /* UP, DOWN: layers, first <= layer < end */
    int unit;       /* of Units */
    Vec(Op) ops;
} Block;
/* Layers of each kind have blocks of their own, BLOCK_FORWARD + kind and so on: where a step has one kind the
 * others are empty. FORWARD_AGAIN: of a group's layers but the last, before its backward, where only the
 * first saves. BACKWARD_LOWER: of the layers that save less than those above; none where all save the same.
 * MOMENTUM, ORTHOGONALIZE, MATRICES: of Muon. DONE: where the optimizer's state lies in the host's memory.
 * From MOMENTUM on a block is of the update, once after all sequences. */
enum {
    BLOCK_EMBED,
    BLOCK_FORWARD,
    BLOCK_HEAD = BLOCK_FORWARD + LAYER_KINDS,
    BLOCK_FORWARD_AGAIN,
    BLOCK_BACKWARD = BLOCK_FORWARD_AGAIN + LAYER_KINDS,
    BLOCK_BACKWARD_LOWER = BLOCK_BACKWARD + LAYER_KINDS,
    BLOCK_EMBED_BACK = BLOCK_BACKWARD_LOWER + LAYER_KINDS,
    BLOCK_MOMENTUM,
    BLOCK_ORTHOGONALIZE,
    BLOCK_MATRICES,
    BLOCK_OPTIMIZER,
    BLOCK_DONE,
    STEP_BLOCKS
};
typedef struct Step {
    Arena *arena;
    const Program *program;
    Choice choice; /* of which a step has what KEY_STEP names */
    Shape shape;
    int64_t tokens, all_tokens; /* of the rank that has most; of the ranks that split its weights */
    int64_t chunk;  /* tokens of a chunk; the last has what is left */
    int chunks;     /* 1: none */
    int pieces; /* of a rank's tokens, which recurrent layers scan in place; 0: a rank has the sequence */
    /* of all operations of a layer that treat tokens by themselves; else of the feed-forward network's */
    bool by_tokens;
    bool by_queries; /* and of attention, which has a chunk of queries at a time and all keys */
    /* and a chunk of keys at a time, which wait in the host's memory: step/passes/tile_kv.c */
    bool by_keys;
    /* [masks][chunks] by_keys: with which chunks of keys a chunk of queries is attended, a bit each; NULL:
     * with all */
    const uint64_t *pairs;
    int64_t loss_tile; /* tokens whose logits are there at once */
    /* the last tokens, of which layers keep attention's output: fewer than all, at least 1; 0: no layer
     * does */
    int64_t tail;
    int sequences;  /* of a step, one after the other */
    /* what no layer saves, and attention's scratch, has a place for each layer; else one for all:
     * step_place_by_layer */
    bool by_layer;
    /* of which activations are staged: the first so many; at most all but the last, which fetches by
     * chunks alone stage */
    int offload_layers;
    Units units;
    Saving saving;
    int group; /* layers, of which the first saves; 1: each does */
    bool forward; /* alone: no gradients, no update */
    const int64_t *reach; /* [masks], of mask_reach; NULL: it does not infer */
    int64_t *kept; /* [masks]: of a prompt, tokens whose keys a rank keeps at most */
    Vec(Value) values;
    Vec(Scope) scopes; /* the first stands for a block */
    Block block[STEP_BLOCKS];
} Step;

/* ---- passes ---- */
/* Forward of embedding, layer and head. */
Step *step_model(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units);
bool step_counts(const Program *p); /* how many tokens choose each expert */
/* Splits layers over tensor ranks: see step/passes/tensor_parallel.c. */
void step_tensor(Step *s);
/* Recurrent layers on several ranks a sequence: see step/passes/scan_pieces.c. */
void step_pieces(Step *s);
/* Where keys and values travel as their latents, attention reads these and what makes keys and values of
 * them. See step/passes/latents.c. */
void step_latents(Step *s);
/* Where attention goes through chunks of queries: queries have a norm of their own and are made after
 * keys. See step/passes/tile_queries.c. */
void step_queries(Step *s);
/* In a program that infers, each layer's keys and values are kept, and the head has the next token in place
 * of the loss: see step/passes/infer.c. */
void step_infer(Step *s);
/* Of a selection: tiles of the sequence, words of a tile's lists; and the scratch in which ranks choose, for
 * the largest selection. tokens: of the rank that has most. */
int64_t select_tiles(const Program *p, const Selection *s);
int64_t select_words(Heads h, const Selection *s);
/* Elements of a token's queries or keys by which it scores; rank: the layer's heads. */
int64_t select_row(const Model *m, const Selection *s, Heads rank, bool keys);
/* Words of 4 bytes that represent a block. */
int64_t select_key_words(const Program *p, const Selection *s, Heads rank);
int64_t select_scratch(const Program *p, const Shape *shape, int ranks, int64_t tokens);
/* Tokens of a rank's cache for a layer; layer -1: of a layer whose mask sees all. */
int64_t step_cache_tokens(const Step *s, int layer);
int64_t step_cache_rows(const Step *s, int mask); /* of layers with the mask */
bool step_keeps_keys(const Step *s, int layer);
/* All ranks' rows of the widest value that is cut to a prompt's last token; 0: one rank has the prompt. */
int64_t step_last_row_bytes(const Step *s);
bool step_keeps_latents(const Step *s); /* for later tokens, instead of keys and values */
bool step_is_recurrent(const Step *s, int layer);
/* Backward of every operation of forward, by the rules of step/passes/backward.c. */
void step_backward(Step *s);
/* Marks what layers save; what backward reads and nobody saved is made again just before it is read. Of
 * what is kept of the last tokens alone, values and the operation that keeps it. */
void step_save(Step *s, Saving v);
/* Backward of a layer, each operation after what it reads and `set` lacks, made again by operations of its
 * kind's forward. */
void make_again(Step *s, int kind, const Block *from, const char *set, Block *to);
/* Attention and its projections over chunks of the heads, as many as the program says. */
void step_heads(Step *s);
/* Operations that the predicate takes become loops over the dimension, as few as can be: what lies between
 * them goes before the loop if it reads nothing of it. See step/passes/tile.c. */
void step_tile(Step *s, Block *b, LoopDim d, bool (*takes)(const Step *s, const Op *o));
/* The scope of a loop whose operations are for the next turn; so many turns come in a loop before it. */
int step_ahead(Step *s, int loop, int turns);
/* In the loop over chunks of the tokens around `at`, the copy for each turn comes during the turn before, for
 * the first before the loop. Returns where the loop begins then. */
int step_prefetch(Step *s, Block *b, int at, Op copy);
/* Operations that treat tokens by themselves over so many chunks of the tokens: those that `by_tokens`
 * says. */
void step_chunks(Step *s, int64_t tokens, int chunks);
/* Attention in the loops over chunks of queries becomes a loop over chunks of keys, between their copies
 * to and from the host's memory. */
void step_keys(Step *s);
/* Of layers that ranks split, backward in an order in which what these ranks do among them is beside
 * products: see step/passes/overlap.c. */
void step_overlap(Step *s);
/* The values of `set` lie in the host's memory from forward to backward, of the layers that save them;
 * NULL: none. */
void step_space(Step *s, const char *set);
/* Where only the first of a group of layers saves: forward of the others' inputs again. See
 * step/passes/group_layers.c. */
void step_group(Step *s);
/* Bytes a token of a chunk of keys, for each chunk of queries that it is attended with, in all layers of a
 * mask: fetched, fetched where queries before have begun its sums, staged. */
typedef struct KeyCopies { int64_t fetched, begun, staged; } KeyCopies;
KeyCopies step_key_copies(const Step *s, int mask);
/* A token, of values of DIM_TOKENS or DIM_ALL_TOKENS: what a sequence stages, or fetches, beside these. */
int64_t step_copied_bytes(const Step *s, OpKind k, Dim tokens);
/* Gathers one visit ahead, gradients zeroed before and reduced after a unit's backward, each as often as
 * `sharding` says; where groups of ranks have replicas of the weights, shards summed over these in the
 * last sequence; the optimizer. A reduction of every sequence adds to the shard from the second on. bf16:
 * the shard's gradients are rounded to bf16 where a reduction adds to them. */
void step_weights(Step *s, Sharding sharding, bool bf16);
int step_group_end(const Step *s, const Block *b, int group); /* after the group's last operation */
/* Where parameters and moments lie in the host's memory: gradients to it and parameters back, or these and
 * moments to the device and back. */
void step_optimizer(Step *s);
/* Where Muon updates matrices: momentum, whole matrices at their owners, and back. See step/passes/muon.c. */
void step_muon(Step *s);
/* Of the rank with most: elements of its matrices, scratch, products, and matrices. */
typedef struct MuonShare {
    int64_t elements, scratch, flops, matrices;
} MuonShare;
MuonShare muon_share(Arena *a, const Program *p, Units units);
/* Where computing waits for the streams beside it, as operations of the list: see step/passes/waits.c. */
void step_waits(Step *s);
/* Which chunks of keys a choice's chunks of queries are attended with, as Step has them; NULL: with all.
 * counts: [masks]. */
const uint64_t *step_pairs(Arena *a, const Program *p, const Choice *c, const Partition *part,
                           PairCounts *const *counts);
/* Evaluation's step: forward and the loss alone, of a whole step's list: see step/passes/evaluation.c. */
Step *step_evaluation(Arena *a, const Step *s);
/* All of them, and scratch of operations; pairs: of step_pairs; attention: bytes of attention's, one for
 * both directions; keys: of it what stays from one chunk of queries to the next. Of the choice it reads
 * what KEY_STEP names alone. */
Step *step_make(Arena *a, const Program *p, const Choice *c, const Partition *part, Units units,
                const uint64_t *pairs, int64_t attention, int64_t keys);
typedef struct StepInput {
    const Program *program;
    const Choice *choice;
    const Partition *partition;
    Units units;
    const uint64_t *pairs;
    int64_t attention, keys;
} StepInput;
/* The same; the list is seen after each pass. */
typedef void (*SeeStep)(void *to, const char *pass, const Step *s);
Step *step_make_watched(Arena *a, const StepInput *in, SeeStep see, void *to);
const char *step_pass_name(int pass); /* from 0 on; NULL: there are no more */

/* ---- values and operations by name ---- */
int step_value(const Step *s, const char *name); /* -1: none of that name */
/* Of the experts, of that group if they are in groups */
int step_expert_value(const Step *s, const char *name, int group);
int step_add_value(Step *s, Value v);
void op_read(Op *o, int value, int next);              /* one more operand */
int op_first(const Block *b, OpKind k);                /* of that kind, which the block has */
bool op_in_block(const Block *b, OpKind k); /* whether it has one of that kind */
void op_insert(Step *s, Block *b, int at, Op o);       /* before the operation at `at` */
void op_write(Op *o, int value, int next, bool adds);
bool op_touches(const Step *s, const Op *o, bool (*is)(const Value *v)); /* reads or writes such a value */
int value_indices(const Step *s, const Value *v);      /* how many there are of it */
/* whether it may write where it reads: it works element by element */
bool op_in_place(const Step *s, OpKind k);
bool op_spends(OpKind k); /* may overwrite an activation that nothing reads later */
bool dim_of_heads(Dim d);
Dim dim_of(const Model *m, Dim d); /* the dimension, by its usual name where the model has no other */
bool dim_of_indexer(Dim d);
bool dim_of_scan(Dim d); /* of heads of recurrent layers */
BurstScan scan_of_rank(const Model *m, int tensor); /* what a tensor rank has of a recurrent layer */
bool dim_of_pairs(Dim d); /* a gate and the product that it gates */
bool dim_of_keys(Dim d); /* of key heads, as wide as attention reads them */
bool dim_of_queries(Dim d); /* the same of queries and outputs */
bool is_of_heads(const Value *v);
/* Whether the operation's operand is one chunk's part of a value that has all: rows of all tokens, or
 * heads of all heads. */
bool op_takes_rows(const Step *s, const Op *o, int value);
/* Whether an operation of a loop has all of the value with every chunk: of heads, what is not as wide; of
 * tokens, attention's keys. */
bool op_takes_whole(const Step *s, const Op *o, int value);
bool op_takes_keys(const Step *s, const Op *o, int value); /* the latter, whatever loop the operation is in */
Op op_make(OpKind k);                                  /* without operands */
/* whether other ranks have the same shards, so that gradients are summed over them too */
bool step_replicates(const Step *s);
const Unit *step_unit(const Step *s, int unit); /* its row of Units */
int step_kinds(const Step *s); /* of layers */
/* BLOCK_FORWARD of all kinds' blocks of forward, and so on: the first of them; others are themselves */
int block_phase(int block);
int block_kind(int block); /* of a layer's block; else 0 */
/* Blocks of forward, backward and backward_lower of all kinds of layers: how many. */
int step_layer_blocks(const Step *s, int blocks[STEP_BLOCKS]);
bool block_of_layer(int block);
/* Whether layers of the kind have the activation: operations of their forward read or write it. Other values:
 * true. */
bool step_has_value(const Step *s, int kind, int value);
/* whether products and gathers read copies: rounded to the type of activations, or of the host's */
bool step_copies_params(const Step *s);
const char *step_param(const Step *s);  /* the value that they read */
/* of a stream beside compute, begun after what the weights' stream was given before it */
bool op_follows_weights(OpKind k);
int expert_rows(const Model *m, const Shape *s); /* of a token, at most: of a group of experts */
/* elements of a rank with so many heads; 1: of a dimension that is no model's */
int64_t model_dim(const Model *m, const Shape *s, Heads h, Dim d);
int64_t step_bytes(const Step *s, const Value *v, int unit); /* of one; unit: whose, where it is a unit's */
int64_t step_row_bytes(const Step *s, const Value *v);
/* Units are numbered embedding 0, layers 1 .., head layers + 1; visits as burst_parts.h has them. */
int step_units(const Step *s);
int step_group_unit(const Step *s, int layer, int group); /* of a layer's experts, from 1 */
/* Whether it has weights of a layer, such as its experts in groups; units of layers without experts are
 * empty. */
bool unit_is_of_layer(const Step *s, int unit);
/* Groups that the experts of the block's layers are in; 0: they have none, or are in the layer's unit. */
int step_groups(const Step *s, int block);
int step_unit_row(const Step *s, const Op *o, const Block *b); /* of Units, of the operation's unit */
int step_visits(const Step *s);
int unit_of_visit(const Step *s, int visit);
int64_t step_sequences(const Step *s); /* of a step, one after the other */
bool op_runs(const Op *o, int64_t sequence, int64_t sequences); /* in this one of so many */
const char *op_name(OpKind k);
Stream op_stream(OpKind k);
/* Whether it reads what other streams made only once computing has waited for that: it computes, or tensor
 * ranks go on with what computing made. */
bool op_follows_compute(OpKind k);
Op op_wait(OpKind awaits); /* for such an operation */
bool op_copies(OpKind k); /* between the memories */
WorkKind op_work_kind(OpKind k);
int op_part(const Op *o); /* BURST_P_* */
const UnitTensor *op_tensor(const Step *s, const Op *o, const Block *b);
const UnitTensor *unit_tensor(const Unit *u, const char *name); /* NULL: it has none of the name */
/* Whether each rank does a part of the operation for a later token, by its slices, and ranks gather or add up
 * the results at its end; products by experts are added up by OP_COMBINE. */
bool step_has_slices(const Step *s, const Block *b, const Op *o);
const char *step_value_text(Arena *a, const Step *s, int value); /* "gate_up [tokens][2 * ffn], saved" */
void print_step(const Step *s, Text *out); /* --emit=step */

/* ---- step/scopes.c: loops in the list ---- */
int scope_add(Step *s, Scope n); /* its number */
const Scope *op_scope(const Step *s, const Op *o);
bool scope_inside(const Step *s, int scope, int around); /* or the same */
int scope_below(const Step *s, int scope, int around); /* of those around `scope`, the one in `around` */
/* The first operation of the scope, which `at` is in; the one after its last */
int scope_begin(const Step *s, const Block *b, int at, int scope);
int scope_end(const Step *s, const Block *b, int at, int scope);
/* The same with the loop of the first copies, if that is just before */
int scope_start(const Step *s, const Block *b, int at, int scope);
int op_loop(const Step *s, const Op *o, LoopDim d); /* the innermost of that dimension; 0: none */
bool op_in_loop(const Step *s, const Op *o, LoopDim d);
bool op_is_ahead(const Step *s, const Op *o, LoopDim d); /* it has the index of that loop's next turn */
bool op_if_begun(const Step *s, const Op *o); /* in a scope BEGUN */
LoopDim op_dim(const Step *s, const Op *o); /* which loop says what rows or heads it has; LOOP_DIMS: none */
int op_chunks(const Step *s, const Op *o); /* of that loop; 1: of none */
bool op_same_loop(const Step *s, const Op *a, const Op *b); /* in one outermost scope */
int loop_begin(const Step *s, const Block *b, int at); /* where that scope starts; itself: it is in none */
int loop_end(const Step *s, const Block *b, int at); /* after the last */

/* ---- step/unroll.c: the step unrolled ---- */
/* visit: of a unit, counted from 0. index: of each loop that it is in; turn: how many came before in it. */
typedef struct StepOp {
    const Op *op;
    int block, layer, visit, unit, index[LOOP_DIMS], turn[LOOP_DIMS];
} StepOp;
/* In the last layer: of its last token alone. */
bool op_of_last_token(const Step *s, const StepOp *o);
/* Whether a layer's chunk of queries is attended with the chunk of keys. */
bool step_attends(const Step *s, int layer, int chunk, int key);
/* Whether chunks of queries before this one are attended with its chunk of keys. */
bool step_begun(const Step *s, const StepOp *o);
int op_visit(const Step *s, const StepOp *o); /* of its unit: StepOp has that of the block */
int op_chunk(const Step *s, const StepOp *o); /* of op_dim; 0: none */
int op_slot(const Step *s, const StepOp *o); /* of values with two, which it has in its innermost loop */
/* Which chunk of the value's rows the operation has: of its keys or its queries. */
int op_row(const Step *s, const StepOp *o, int value);
/* of a chunk of heads that has a key head less than others */
bool op_is_short(const Step *s, const StepOp *o);
/* Whether its i-th output is added to: also a sum over chunks of heads, of keys or of queries, after the
 * first. */
bool op_adds(const Step *s, const StepOp *o, int i);
typedef struct Range { int first, last; } Range; /* operations, both included */
/* All operations of a sequence in their order, and those of the optimizer, one at a time. idle: NULL, or of
 * each block [operations] which are left out: not all of a loop's. */
typedef void (*SeeOp)(void *to, const StepOp *at);
void step_walk(const Step *s, bool *const idle[], SeeOp see, void *to);
/* The same as an array; how many. */
int step_unroll(Arena *a, const Step *s, const StepOp **out);
int operand_index(const Step *s, const StepOp *o, Operand x); /* of the value that the operand means */
/* Streams beside computing mark where they are after each operation, and computing waits for a mark. A mark
 * that is set again means the later operation: so a wait is for the last operation of its event that was
 * queued, and with it for all that its stream was given before. Gathers and fetches take two marks in turn,
 * or more; operations of other kinds have one for all of them. A gather is done when its own event is waited
 * for, and not before: the host's copies what it gathers then. Of a wait, the event that it waits for. */
enum { EVENT_SLOTS = 3, STEP_EVENTS = EVENT_SLOTS * OP_KINDS };
int step_event(const Step *s, const StepOp *o);
/* The layers whose value the operation copies, or waits for the copy of; of no copy, all. Of these, the first
 * of each group of so many. */
Range copied_layers(const Step *s, const Op *o);
int copied_group(const Step *s, const Op *o);
/* Whether layers of the kind have what the operation copies, or waits for the copy of. */
bool copied_kind(const Step *s, const Op *o, int kind);
/* false: gathers for a visit that does not come, copies of a layer that is none */
bool op_follows(const Step *s, const StepOp *o);

#endif
