/* ir/choice.h: a point of the search: every setting decided; and what a rank has of the model then. */
#ifndef BURST_IR_CHOICE_H
#define BURST_IR_CHOICE_H

#include "ir/program.h"
#include "ir/schedule.h"

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

bool layers_share_sizes(const Choice *c); /* the coordinates of all layers have the same sizes */
bool sizes_equal(const Choice *x, const Choice *y);

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

#endif
