/* ir/layout.h: a layout as written, before the search decides its open settings. */
#ifndef BURST_IR_LAYOUT_H
#define BURST_IR_LAYOUT_H

#include "base/base.h"

/* A setting of the layout: given by the user or left to the search. */
typedef struct Setting { int64_t value; bool is_auto, given; Span span; } Setting;
typedef enum PartitionKind {
    PART_CONTIGUOUS,
    PART_ZIGZAG,
    PART_STRIPED,
    PART_BLOCKS,
    PART_BALANCED, /* runs of tokens, assigned to ranks for each batch; planned as one block of runs a rank */
    PART_KINDS
} PartitionKind;
typedef enum Travel { TRAVEL_KEYS, TRAVEL_QUERIES, TRAVELS } Travel;
/* Values of a layout's travel: the Travels, and latents, from which keys and values are computed */
enum { TRAVEL_LATENTS = TRAVELS, TRAVEL_WORDS };
/* What a layer saves from forward to backward, as names of the step's values between spaces, in falling
 * order. A norm's output and the product of the activated gate and up are in no row, because recomputing
 * them is cheap for their memory. */
#define RECOMPUTE_ROWS(X) /* id, name, saved */ \
    X(NONE, "none", \
      " x rstd1 q_low rstd_q_low q_raw rstd_q q kv_low rstd_kv_low k_raw rstd_k k v o lse x_mid rstd2 " \
      "gate_up up shared_gate_up shared_logit logits expert_gate_up attn_gate scan_in scan_z scan_gates " \
      "scan_o " \
      "rstd_scan " \
      "attn rstd_attn mlp rstd_mlp ") \
    X(FFN, "ffn", \
      " x rstd1 q_low rstd_q_low q_raw rstd_q q kv_low rstd_kv_low k_raw rstd_k k v o lse x_mid rstd2 attn " \
      "rstd_attn mlp rstd_mlp attn_gate scan_in scan_z scan_gates scan_o rstd_scan ") \
    X(SELECTIVE, "selective", \
      " x o lse scan_o ") /* selective checkpoint++ (LoongTrain, arXiv 2406.18485) */ \
    X(TAIL, "tail", \
      " x o_tail lse_tail scan_o ") /* of the last tokens only (BurstEngine, arXiv 2509.19836) */ \
    X(FULL, "full", " x ")
typedef enum Recompute {
#define X(id, name, saved) RECOMPUTE_##id,
    RECOMPUTE_ROWS(X)
#undef X
    RECOMPUTES
} Recompute;
/* What every rank holds whole. Parameters and moments are sharded in each (arXiv 1910.02054), over all ranks
 * or over groups that each hold a full replica (hybrid: AMSP, arXiv 2311.00257). */
/* id, name, whether a unit's weights are gathered once a step, whether its gradients are reduced once a
 * step */
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
/* ir/saving.c, up to saving_text */
extern const char *const recompute_names[RECOMPUTES];
const char *saved_most(void);  /* what `none` saves */
const char *saved_least(void); /* what `full` saves */
bool saves(const char *set, const char *name); /* whether the set of names contains this one */
/* What layers save: `upper` from layer `from` on, and `lower`, a subset, before it. tail: the share of a
 * rank's tokens, its last ones, that o_tail and lse_tail hold. group: only the first of this many
 * consecutive layers saves; 0: each saves. */
typedef struct Saving { const char *lower, *upper; int from; double tail; int group; } Saving;
Saving saving_by(Recompute rule, double tail); /* in all layers */
int saving_group(Saving v); /* 1: each layer saves */
bool names_same(const char *x, const char *y); /* two sets as texts; NULL: none */
bool saving_same(Saving v, Saving w);
Recompute saving_rule(Saving v); /* RECOMPUTES: no rule says exactly this */
const char *saving_text(Arena *a, Saving v); /* as a layout writes it */
extern const char *const sharding_names[SHARDINGS];   /* ir/program.c */
enum { LEAST_LOSS_TILE = 16, MOST_LOSS_TILE = 65536 }; /* tokens */
enum { MAX_COORDS = 8 };
typedef struct Sizes { int n; int64_t at[MAX_COORDS]; /* 0: open */ Span span; } Sizes;
/* How the tokens of a sequence are divided among ranks of different speed. */
#define SHARES_ROWS(X) /* id, name: a rank's tokens are in proportion to its speed at this */ \
    X(EQUAL, "equal") X(STEP, "the step") X(ATTENTION, "attention") X(REST, "all but attention") \
    X(GIVEN, "given")
typedef enum SharesKind {
#define X(id, name) SHARES_##id,
    SHARES_ROWS(X)
#undef X
    SHARES_KINDS
} SharesKind;
enum { OFFLOAD_ALL = 32 }; /* more values than a layer saves */
enum { MOST_SHARE = 1000 };
enum { MOST_KEY_CHUNKS = 64 }; /* `token chunks N, keys` */
/* `schedule near for window(4Ki), ring;`: the layout's settings for one mask's layers. schedule NULL:
 * auto. */
typedef struct LayerSetting { const char *schedule; Span schedule_span; Setting travel; } LayerSetting;
typedef struct GivenShare {
    const char *device; /* NULL: the next rank */
    int share;
    Span span;
} GivenShare;
typedef struct GivenShares { int n; const GivenShare *at; } GivenShares; /* by rank, or by device */
/* ---- settings.c: settings of a layout that are a word or a count ---- */
/* The default of a setting: `auto`; the first word or the least number; or the same where the layout can't
 * say `auto`. */
typedef enum Otherwise { OTHERWISE_AUTO, OTHERWISE_FIRST, OTHERWISE_FIXED } Otherwise;
/* Each setting is a member of Layout, and dsl/ parses its statement by the form that these tables generate;
 * dsl/ has parsers of its own for other settings. Columns: member, text, Otherwise, words. The setting's
 * value is the index of the word */
#define WORD_SETTINGS(X) \
    X(ranges, "ranges", AUTO, "no", "yes") /* whether transfers of keys carry ranges of tiles */ \
    X(fetch, "fetch", FIRST, "layers", "chunks") /* of offloaded values */ \
    X(update, "update", AUTO, "host", "device") /* what updates state in the host's memory */ \
    X(gradients, "gradients", FIXED, "fp32", "bf16") /* of weights */ \
    X(overlap, "overlap", AUTO, "no", "yes") /* of tensor ranks' communication with products */
/* member, text, Otherwise, least and most */
#define COUNT_SETTINGS(X) \
    X(ffn_chunks, "ffn chunks", AUTO, 1, 1 << 10) \
    X(head_chunks, "head chunks", FIRST, 1, 1 << 10)
typedef struct SettingForm {
    const char *name;
    size_t at;                /* offset of its Setting in Layout; 0: none */
    Otherwise otherwise;
    const char *const *words; /* [word_count] */
    int word_count;           /* 0: a count */
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
    Sizes sizes; /* context as several coordinates, `4 x 8`; n 0: a number, or not given */
    Setting partition, block; /* PartitionKind; block size for blocks(B) */
    Setting shares; /* SharesKind */
    GivenShares given_shares;
    Setting travel;
    Setting weights, token_chunks; /* Sharding; the number of chunks */
    bool chunk_queries;    /* `token chunks 4, attention` */
    bool chunk_keys;       /* `token chunks 4, keys`: chunks of queries and of keys */
    Setting expert_groups; /* units of weights that a layer's experts are in; below 2: the layer's */
    Setting loss_tile;     /* tokens; 0: chosen for the vocabulary */
    /* consecutive ranks that shard the weights; not given: all, or left to the search */
    Setting within;
    Saving saving; /* upper NULL: auto */
    Span saving_span;
    /* value: how many of the values that layers save are offloaded to the host's memory, or OFFLOAD_ALL */
    Setting offload;
    const char *offloaded; /* `offload activations(...)`: names between spaces; NULL: none named */
    /* `offload activations, layers 6`: layers that offload, from the first; not given: all but the last */
    Setting offload_layers;
    bool host_optimizer;   /* `offload optimizer` */
    Setting placement;    /* is_auto: try all orders of the axes */
    int placement_names;  /* axes, from the innermost */
    const char *placement_name[MAX_COORDS + 1];
    const char *schedule; /* NULL: auto */
    Span schedule_span;
    /* [mask_count] schedule and travel per mask, if they differ; the first is also above */
    const LayerSetting *of_mask;
    Span span;
} Layout;
/* The rows of both tables; NULL ends them. */
extern const SettingForm *const setting_forms[];
void settings_otherwise(Layout *l); /* sets each setting to its default */
const Setting *setting_at(const Layout *l, size_t at);

#endif
