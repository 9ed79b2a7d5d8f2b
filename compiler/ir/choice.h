/* ir/choice.h: one point of the search, with every setting decided, and a rank's part of the model under
 * it. */
#ifndef BURST_IR_CHOICE_H
#define BURST_IR_CHOICE_H

#include "ir/program.h"
#include "ir/schedule.h"

enum { SAVING_LEVELS = 256, TAIL_LEVELS = 32 };
/* Where parameters and moments lie, and what updates them: on the device; on the host, updated by its cores;
 * on the host, updated by the device a unit at a time. */
typedef enum OptimizerPlace { OPTIMIZER_ON_DEVICE, OPTIMIZER_ON_HOST, OPTIMIZER_FETCHED } OptimizerPlace;
/* How the layers of one mask attend, if layers differ. mask: its text. */
typedef struct MaskChoice {
    const char *mask;
    const SchedText *schedule;
    Travel travel;
    int coords, size[MAX_COORDS], stride[MAX_COORDS]; /* as in Choice, for the same ranks */
} MaskChoice;
/* Results that are computed once and shared by all choices with equal values of these keys. */
typedef enum ChoiceKey {
    KEY_COUNTS = 1, /* the ranks' tokens and the counted pairs of their chunks */
    KEY_RANGES = 2, /* whether transfers of keys carry ranges */
    KEY_ATTENTION = 4, /* the time of attention */
    KEY_STEP = 8, /* the step's list, given the number of tokens and attention's scratch */
    KEY_ACTIVATIONS = 16, /* the memory of activations, close enough to bound it */
    KEY_ESCALATION = 32, /* settings that memory escalation decides (layout/layout.h) */
    KEY_RUNS = 64, /* how attention runs, which follows from the other settings by time */
    KEY_ATTENDS = KEY_RANGES | KEY_ATTENTION,
    KEY_TOKENS = KEY_COUNTS | KEY_ATTENDS
} ChoiceKey;
/* The fields of Choice with the keys that depend on each. Choice, choice_same and the tests read this table.
 * Columns: type, name, dimension, comparison (choice.c), keys */
#define CHOICE_FIELDS(X) \
    X(int, data, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ACTIVATIONS) /* data-parallel groups */ \
    /* neighbouring ranks that hold the same chunk and split each layer's weights; 0: one */ \
    X(int, tensor, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ACTIVATIONS) \
    X(int, ranks, , VALUE, KEY_TOKENS) /* G: chunks of a sequence */ \
    /* a rank is the sum of coordinate * stride over its rings; coords 0: no coordinates */ \
    X(int, coords, , VALUE, KEY_ATTENDS | KEY_ACTIVATIONS) \
    X(int, size, [MAX_COORDS], ARRAY, KEY_ATTENDS | KEY_ACTIVATIONS) \
    X(int, stride, [MAX_COORDS], ARRAY, KEY_ATTENDS) \
    /* a rank of the world is the sum of coordinate * place and group * data_stride; without `placed`, \
     * groups follow each other and these are 0 */ \
    X(bool, placed, , VALUE, KEY_ATTENDS) \
    X(int, place, [MAX_COORDS], ARRAY, KEY_ATTENDS) \
    X(int, data_stride, , VALUE, KEY_ATTENDS) \
    X(PartitionKind, partition, , VALUE, KEY_TOKENS) \
    X(int64_t, block, , VALUE, KEY_TOKENS) \
    X(SharesKind, shares, , VALUE, KEY_ACTIVATIONS) \
    /* [ranks] tokens in proportion, set by shares.c; NULL: equal */ \
    X(const int *, share, , SHARE, KEY_TOKENS) \
    X(const char *, shares_text, , TEXT, 0) /* as a layout writes it, with `share` */ \
    X(const SchedText *, schedule, , VALUE, KEY_ATTENDS | KEY_ACTIVATIONS) \
    X(Travel, travel, , VALUE, KEY_ATTENDS) \
    /* with travel KEYS: latents travel, and the attending rank computes keys and values from them \
     * (step/passes/latents.c) */ \
    X(bool, latents, , VALUE, KEY_ATTENDS | KEY_STEP) \
    X(int, masks, , VALUE, 0) /* number of entries in of_mask */ \
    /* schedule, travel and sizes of each mask's layers; NULL: the fields above, for all layers. Copies of a \
     * choice share it */ \
    X(const MaskChoice *, of_mask, , VALUE, KEY_ATTENDS) \
    X(Sharding, sharding, , VALUE, KEY_STEP) \
    /* number of consecutive ranks that shard the weights; each further group holds a replica. 0: all \
     * ranks */ \
    X(int, within, , VALUE, KEY_STEP) \
    X(int, ffn_chunks, , VALUE, KEY_STEP | KEY_ESCALATION) /* chunks of the tokens in ffn; below 2: none */ \
    /* units of weights that a layer's experts are in, equally many in each, one after the other; below 2: \
     * they are in the layer's */ \
    X(int, expert_groups, , VALUE, KEY_STEP | KEY_ESCALATION) \
    /* chunks of the tokens in a layer's token-wise operations; below 2: none. Excludes ffn_chunks */ \
    X(int, token_chunks, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ESCALATION) \
    /* with token chunks: attention also takes one chunk of queries at a time */ \
    X(bool, chunk_queries, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ESCALATION) \
    /* ... and one chunk of keys at a time, from the host's memory (step/passes/tile_kv.c) */ \
    X(bool, chunk_keys, , VALUE, KEY_ATTENDS | KEY_STEP | KEY_ESCALATION) \
    X(int, head_chunks, , VALUE, \
      KEY_ATTENDS | KEY_STEP | KEY_ESCALATION) /* chunks of each layer's heads; below 2: none */ \
    /* 0: `saving` holds; else this many of SAVING_LEVELS parts of what `none` saves are not saved, and \
     * `saving` holds the result */ \
    X(int, spared, , VALUE, KEY_ESCALATION) \
    X(Saving, saving, , SAVING, KEY_STEP | KEY_ESCALATION) /* upper NULL: all that `none` saves */ \
    /* tokens whose logits exist at a time; 0: the runtime's default for the vocabulary */ \
    X(int64_t, loss_tile, , VALUE, KEY_STEP | KEY_ESCALATION) \
    /* how many of the values that all layers save are offloaded to the host's memory, the largest first; \
     * `offload` has their names */ \
    X(int, offload_values, , VALUE, KEY_ESCALATION) \
    X(const char *, offload, , TEXT, KEY_STEP | KEY_ESCALATION) /* names of offloaded values; NULL: none */ \
    X(int, offload_layers, , VALUE, \
      KEY_STEP | KEY_ESCALATION) /* layers that offload, from the first; 0: all but the last */ \
    /* the loop of backward that reads an offloaded value fetches it one chunk of tokens at a time */ \
    X(bool, fetch_chunks, , VALUE, KEY_STEP | KEY_ESCALATION) \
    X(OptimizerPlace, optimizer, , VALUE, KEY_STEP | KEY_ESCALATION) \
    /* communication among tensor ranks overlaps products: step/passes/overlap.c */ \
    X(bool, overlap, , VALUE, KEY_STEP) \
    X(bool, bf16_gradients, , VALUE, KEY_STEP) /* of weights, rounded to bf16 */ \
    X(bool, whole, , VALUE, 0) /* the layout says `ranges no` */ \
    X(bool, on_device, , VALUE, 0) /* the layout says `offload none` */ \
    /* attention's transfers carry only the tiles that a later rank reads or that were added to */ \
    X(bool, ranges, , VALUE, KEY_RUNS) \
    /* forward, backward: a launch for each chunk of keys where one could have all (cost/launches.c) */ \
    X(bool, each_chunk, [2], ARRAY, KEY_RUNS) \
    /* in which ranks that share heads exchange and attend their query heads, so that transfers overlap \
     * computing; below 2: all at once */ \
    X(int, head_pieces, , VALUE, KEY_RUNS)
/* Facts derived from several fields, or from part of one: function of a choice, keys. */
#define CHOICE_FACTS(X) \
    X(choice_pieces, KEY_COUNTS) \
    X(choice_tail, KEY_ATTENTION)
typedef struct Choice {
#define X(type, name, dimension, kind, keys) type name dimension;
    CHOICE_FIELDS(X)
#undef X
} Choice;
/* Whether results with any of these keys are the same for both. */
bool choice_same(const Choice *x, const Choice *y, unsigned keys);
/* Equal for such choices. */
uint64_t choice_hash(const Choice *c, unsigned keys);
/* copies the fields that have any of these keys */
void choice_copy(Choice *to, const Choice *from, unsigned keys);
/* keys of the step's list; some lists also depend on the counted pairs */
unsigned choice_step_keys(const Choice *c);
const Phase *phase_of(const Choice *c, bool backward); /* NULL if the schedule has none */

/* ---- ir/choice.c ---- */
/* whether queries, outputs or their gradients travel to another rank */
bool choice_moves_queries(const Choice *c, bool backward);
bool choice_chunks_queries(const Choice *c);
/* Whether a program that continues prompts has each rank's slices of matrices, by which it multiplies later
 * tokens; prompts gather them. */
bool choice_slices(const Program *p, const Choice *c);
bool choice_chunks_keys(const Choice *c);
int64_t tokens_in_chunk(int64_t tokens, int chunks); /* tokens of every chunk but the last */
int chunk_count(int64_t tokens, int chunks); /* chunks that result; may be fewer than asked for */
bool choice_keeps_tail(const Choice *c); /* layers save attention's output of a rank's last tokens only */
double choice_tail(const Choice *c); /* the share of the tokens whose output they save; else 0 */
int64_t choice_loss_tile(const Program *p, const Choice *c); /* in tokens, never 0 */
/* that share of the tokens of the rank with most: at least one, and not all */
int64_t tail_tokens(double share, int64_t tokens);
int choice_tensor(const Choice *c); /* ranks that hold the same chunk; choice_rank gives the first of them */
/* the last coordinate is innermost: ranks along it are neighbours */
void choice_set_sizes(Choice *c, int coords, const int *size);
/* Ranks along the exchanged coordinate share the heads. In a direction that exchanges, each attends its
 * share of the heads for the chunks of all of these ranks together. Chunk c + x then means the chunks of
 * rank c + x and its peers along the coordinate; x is 0 along the coordinate itself. */
/* whether several ranks share the heads in this direction */
bool choice_by_heads(const Choice *c, bool backward);
bool choice_exchanges(const Choice *c);              /* in either direction */
/* ranks that share the heads; 1: this direction does not exchange */
int choice_shares(const Choice *c, bool backward);
/* the i-th of the ranks that share the heads with `rank` */
int choice_member(const Choice *c, int rank, int i);
int choice_rows(const Choice *c, bool backward);     /* ranks / shares */
/* pieces of a rank's chunk of KV and dKV; 1 before the schedule is decided */
int choice_pieces(const Choice *c);
int choice_chunks(const Choice *c);                  /* chunks of KV and dKV: ranks * pieces */
bool chunk_is_own(const Choice *c, int chunk);      /* whether a relative chunk is the rank's own */
int chunk_piece(const Choice *c, int chunk);
/* pieces of the tensor's chunks: 1 except for KV and dKV */
int tensor_pieces(const Choice *c, TensorId t);
/* The table that a direction's trace reads: [q * choice_chunks + k] is set if any two chunks of the groups
 * have a pair. It is 0 for chunks that differ along the exchanged coordinate. Without an exchange it is
 * `pair` itself. */
const uint8_t *choice_pairs(Arena *a, const Choice *c, bool backward, const uint8_t *pair);

/* ---- ir/shape.c: a rank's part of the model ---- */
typedef struct Heads {
    int heads, kv_heads;
} Heads;
/* The model as a choice splits it: over tensor ranks, and a rank's heads into chunks that attention takes
 * one after the other. */
typedef struct Shape {
    int tensor; /* ranks that split each layer's weights, at least 1 */
    int key_copies; /* neighbours among them that hold the same key heads, at least 1 */
    int ffn; /* columns of one rank */
    Heads rank; /* heads of one rank, all chunks together */
    int head_chunks; /* at least 1 */
    int short_chunks; /* the last so many chunks have one key head less, and the queries that read it */
    Heads chunk; /* heads of the largest chunk */
    int expert_groups; /* units that a layer's experts are in; 0: they are in the layer's */
} Shape;
Shape shape_of(const Program *p, const Choice *c);
Shape shape_unchunked(Shape s); /* the same without chunks of heads */
Heads shape_chunk(const Shape *s, bool is_short);
int program_tensor(const Program *p); /* the layout's `tensor`, at least 1 */
Shape program_shape(const Program *p); /* the split by `tensor` alone */

bool layers_share_sizes(const Choice *c); /* whether the coordinates of all layers have the same sizes */
bool sizes_equal(const Choice *x, const Choice *y);

Saving saving_of(const Choice *c);

/* ---- attentions.c: the schedules of a choice, one for all layers or one for the layers of each mask ---- */
Choice choice_of_mask(const Choice *c, int mask); /* the choice for all layers of one mask, without of_mask */
/* Relative indices: sums wrap in each coordinate; the piece is kept. */
const char *tensor_name(TensorId t);
const char *choice_travel_name(const Choice *c); /* as a layout writes it: "keys" */
bool tensor_accumulates(TensorId t);
/* the tensor that a pair adds to on its queries' (side 0) or keys' (1) side; -1: none */
int result_tensor(bool backward, int side);
/* the outermost coordinate inside `before` (-1: of all); -1 if there is none */
int coord_inside(const Choice *c, int before);
int rel_coord(const Choice *c, int index, int i);
/* the same, the shorter way round: from -(size - 1) / 2 to size / 2 */
int rel_hop(const Choice *c, int index, int i);
int rel_add(const Choice *c, int x, int y);
int rel_sub(const Choice *c, int x, int y);

#endif
