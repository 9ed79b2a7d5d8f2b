/* families.h: what model families are to Hugging Face transformers: names, fields, defaults, as tables that
 * the compiler (models, `burstc import`) and the runtime (weights, export) share.
 */
#ifndef BURST_FAMILIES_H
#define BURST_FAMILIES_H

#include "burst_model.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- families ---- */
/* Which fields of config.json transformers reads of a type's windows, and which layers have one. layer_types
 * decides instead where the type reads it and it is given. */
typedef enum Windows {
    WINDOWS_NONE,
    WINDOWS_BY_FLAG,      /* use_sliding_window: layers from max_window_layers on */
    WINDOWS_WITHOUT_ROPE, /* use_sliding_window: layers without RoPE */
    WINDOWS_IN_ALL,
    WINDOWS_BUT_FOURTH, /* not the first, fifth, ... */
    WINDOWS_IN_RUNS,    /* all but the last of each `pattern` layers */
    WINDOWS_BY_PATTERN  /* the same with sliding_window_pattern, whose default is `pattern` */
} Windows;
/* "%d" in a name is the number of an expert. One tensor of a folder that holds one of a plan's by another
 * name, or several, their rows one after the other; by_heads: those that belong to a key head, then those of
 * the next. */
enum { FUSED_PARTS = 3 };
typedef struct FusedTensor {
    const char *name, *part[FUSED_PARTS];
    bool by_heads;
    bool by_queries; /* the same by heads of queries */
    bool by_scan; /* the same by key heads of a scan, of each its query, its key, its values and so on */
    bool by_experts; /* all experts' in one tensor of three dimensions, the experts' the first */
    bool transposed; /* a part's rows lie across the tensor, which has as many as a part has columns */
    bool alternate;  /* rows of the parts take turns */
    bool row;        /* a vector is a matrix of one row */
    bool channels;   /* a row for each channel of a convolution, [channels][1][kernel] */
} FusedTensor;
/* A tensor of a plan whose rows are several tensors of a folder, a scan's queries, keys and values: their
 * names as a plan's. */
typedef struct SplitTensor {
    const char *name, *part[FUSED_PARTS];
    bool joined; /* transformers joins them, and saves three parts as equal as can be */
} SplitTensor;
/* What a scale is by a field: its value, one by it, one by its root; or the root of hidden, by no field; the
 * value by the root of layers, by hidden, by the root of head_dim. */
typedef enum ScaleForm {
    SCALE_IS,
    SCALE_INVERSE,
    SCALE_INVERSE_ROOT,
    SCALE_ROOT_HIDDEN,
    SCALE_BY_ROOT_LAYERS,
    SCALE_BY_HIDDEN,
    SCALE_BY_ROOT_HEAD
} ScaleForm;
typedef struct ScaleField {
    const char *name; /* of config.json; NULL: none */
    int scale; /* BURST_SCALE_... */
    ScaleForm form;
    double absent; /* what transformers means where the field is not given; 0: none */
    int item; /* the field is a list of so many or more, of which this is the item, counted from 1; 0: no list
               */
    const char *times; /* another field, 1 where it is not given, whose power multiplies it; NULL: none */
    int power;
} ScaleField;
/* Layers with another rotary embedding than the model's: none, those that no_rope_layers says, those without
 * a window where others have one, all without one, those with a window (rope_parameters by type of layer),
 * all where position_embedding_type is not "rope"; ROPES_NONE: no layer turns, and no field says any; all
 * where rope_theta is null. */
typedef enum LayerRopes {
    ROPES_ALIKE,
    ROPES_LISTED,
    ROPES_OF_WINDOWS,
    ROPES_IN_WINDOWS,
    ROPES_BY_TYPE,
    ROPES_BY_WORD,
    ROPES_NONE,
    ROPES_BY_THETA
} LayerRopes;
/* Fields of config.json about experts: how many there are, how many a token chooses, the columns of each, and
 * whether their weights are divided by their sum (NULL: they always are). The numbers are meant where a field
 * is not given. */
typedef struct ExpertFields {
    const char *experts, *top, *width, *normalize;
    int absent_experts, absent_top, absent_width;
    bool absent_normalize;
    /* columns of the shared expert, or of how many experts' columns it is (null: there is none); the weights'
     * scale; groups; alpha and limit of the activation. NULL: as `is` has it */
    const char *shared;
    int absent_shared;
    bool shared_counts;
    const char *scale, *groups, *top_groups, *alpha, *limit;
    bool listed; /* a number may be a list, of one for each layer */
    bool method; /* topk_method says whether groups are read: group_limited_greedy */
    int absent_groups, absent_top_groups;
    double absent_scale, absent_alpha, absent_limit;
    /* transformers adds the balance loss (BurstExperts.balance) where output_router_logits is true, times
     * router_aux_loss_coef, which this is where it is not given; 0: it adds none */
    double absent_balance;
    /* what no field says, but for numbers; alpha and scale 0: 1 */
    BurstExperts is;
} ExpertFields;
/* Fields of config.json about recurrent layers (BurstScan), and their values where one is not given; without
 * heads they have a convolution alone. `type`
 * is such a layer's in layer_types; without that list, each `interval`-th layer has attention (NULL: none
 * has). */
typedef struct ScanFields {
    const char *heads, *key_heads, *key_dim, *value_dim, *kernel;
    int absent_heads, absent_key_heads, absent_key_dim, absent_value_dim, absent_kernel;
    const char *type, *interval;
    int absent_interval;
    const char *also; /* another name of type; NULL: none */
    const char *attention; /* without layer_types: the numbers of layers with attention; NULL: no field */
    const char
        *expand; /* heads * value_dim by hidden_size; NULL: no field says it. It is 2 where it is absent */
    const char
        *total; /* heads * value_dim, in place of expand where it is not null; NULL: no field says it */
    int absent_total;
    /* whether the gate comes after the norm, true where it is absent: only where there is no norm */
    const char *gate_after;
    const char *limit; /* the least and the most step; NULL: no field says them */
    const char *least; /* the least alone, with its value where it is absent */
    double absent_least;
    bool optional; /* all layers may have attention */
    /* absent fields have the model's heads, three quarters of its width by heads, twice a head's keys */
    bool by_model;
    const char *doubles; /* whether beta is at most 2; true where it is absent. NULL: it is at most 1 */
    double norm_eps; /* of the norm of outputs; 0: the model's */
    int read; /* BURST_SCAN_READ_... */
    bool bias, skip,
        before; /* of the convolution; a head's number times its values; the gate before the norm */
} ScanFields;
/* Fields of config.json about an indexer (BurstIndexer) with one head of keys and norms, and their values
 * where one is not given: its heads, their elements, keys of a block, blocks that a query sees, and of these
 * the last ones, which it always sees. type: such a layer's in layer_types. */
typedef struct IndexFields {
    const char *type, *heads, *dim, *block, *top, *local;
    int absent_heads, absent_dim, absent_block, absent_top, absent_local;
} IndexFields;
/* Fields that say how many of the first layers have a dense network in place of experts:
 * first_k_dense_replace; mlp_layer_types, a list; moe_layer_start_index, with an end and an interval;
 * num_local_experts, which is 0 where all are dense. Or any layers: mlp_only_layers, a list, and all but each
 * decoder_sparse_step-th; of layers with one part those that the list of types says (Family.network). */
typedef enum DenseLayers {
    DENSE_NONE,
    DENSE_FIRST,
    DENSE_TYPES,
    DENSE_START,
    DENSE_ZERO,
    DENSE_LISTED,
    DENSE_SINGLE
} DenseLayers;
/* Another name that transformers takes for a field. */
typedef struct Alias {
    const char *name, *other;
} Alias;
/* Which parts layers have. */
typedef struct LayerParts {
    int qkv_bias, qk_norm;
    BurstLayer layer;
} LayerParts;
enum { PARTS = sizeof(LayerParts) / sizeof(int) };
/* A field of config.json, true or false, that says whether layers have some parts beside the family's. */
typedef struct PartField {
    const char *name;
    bool absent; /* its value where it is not given */
    LayerParts adds;
    bool negated; /* they are there where it is false */
} PartField;
/* A field that must be given, with the one value that is computed, as JSON. */
typedef struct FixedField {
    const char *name, *value;
} FixedField;
/* A row: model_type, architecture; which parts its layers have; and what transformers means where config.json
 * does not have a field: 0 of kv_heads: as many as heads, of head_dim: hidden / heads, of window: none. */
typedef struct Family {
    const char *type, *architecture;
    const char *published; /* what folders with code of their own have instead; NULL: the same */
    bool own_code; /* folders name code of their own, in auto_map, which computes what is described here */
    bool only_code; /* transformers has no class of it, and needs that code */
    bool part_only; /* of a larger model's folder, which has other tensors beside it */
    bool mrope; /* fields of RoPE by time, height and width, which are one number of text */
    bool ntk_alpha; /* RoPE of the type dynamic with `alpha` has theta times alpha^(head_dim / (head_dim - 2))
                     */
    bool scaled_queries; /* reads llama_4_scaling_beta, and no other RoPE than yarn */
    bool always_causal; /* is_causal does not reach its attention */
    bool sinks; /* heads have a learned one */
    bool either_way; /* folders have transposed tensors as they are, too: transformers tells by the shapes */
    bool mxfp4; /* folders may have experts' matrices as blocks of 4-bit numbers with scales */
    LayerParts parts; /* in any case */
    const PartField *flags; /* up to a name NULL; NULL: none */
    bool norms_less_one; /* folders have the weights of norms less one */
    /* NULL: rms_norm_eps, hidden_act, partial_rotary_factor, rope_theta, intermediate_size */
    const char *eps_field, *activation_field, *part_field, *theta_field, *ffn_field;
    const char
        *turns_field; /* elements of a head that turn, where no part is given; NULL: no field says it */
    const Alias *aliases; /* up to a name NULL; NULL: none */
    const char *activation; /* what that says; NULL: silu */
    bool one_activation; /* no field says it */
    /* block_auto_adjust_ff_dim, true where it is not given: the columns of ffn are two thirds of what their
     * field says, times block_ffn_dim_multiplier, up to a multiple of block_multiple_of */
    bool adjusts_ffn;
    int kv_heads, head_dim;
    /* of parts.layer.latent: kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, of
     * which 0 is hidden / heads */
    int latent, query_latent, own, shared, value_dim;
    const ExpertFields *moe; /* of parts.layer.experts */
    const ScanFields *scan; /* of parts.layer.scan */
    const IndexFields *index; /* of parts.layer.indexer, which some layers may have */
    /* of parts.layer.single: the type of layers with a dense network alone, and with experts alone (NULL:
     * none have them). Others have a mixer alone */
    const char *network, *sparse;
    /* the list of layers' types, which also says how many there are, or a string with a letter for each;
     * NULL: layer_types and num_hidden_layers */
    const char *types_field, *pattern_field;
    const char *const *unread; /* fields of parts that no layer may have, up to NULL; NULL: none */
    DenseLayers dense; /* of parts.layer.experts: which layers have none */
    int absent_dense; /* how many of the first where no field says it */
    bool mtp; /* folders may have layers beyond the last, which predict several tokens: no model has them */
    const FixedField *fixed; /* up to a name NULL; NULL: none */
    bool all_heads; /* as many key heads as heads, of hidden / heads: no field says them */
    double norm_eps;
    BurstRope rope;
    /* longrope alone scales it, and this is original_max_position_embeddings where only the block gives it;
     * 0: any kind does, and what the block gives holds */
    int original;
    double part; /* of a head turns, where partial_rotary_factor is not given; 0: all, and no field says it */
    bool interleaved;
    LayerRopes layer_ropes;
    double local_theta; /* BY_TYPE: of layers with a window */
    const char *local_theta_field; /* says it; NULL: no field does */
    bool tied;
    bool untied; /* transformers has two matrices, whatever tie_word_embeddings says */
    double softcap; /* where attn_logit_softcapping is not given; 0: transformers does not read it */
    Windows windows;
    int window, pattern; /* where sliding_window and sliding_window_pattern are not given */
    int from; /* the same of max_window_layers */
    bool window_needed; /* transformers computes none of it where sliding_window is null */
    bool types; /* reads layer_types */
    bool bos; /* transformers takes no null for bos_token_id, so that it is left out */
    ScaleField scales[BURST_SCALES + 1]; /* up to form 0 without a name */
    const char *layers; /* names of layers' tensors begin with it and a number; NULL: model.layers */
    const char *const *buffers; /* ends of names of tensors that are computed, up to NULL; NULL: none */
    const FusedTensor *fused; /* up to a name NULL; NULL: none */
    const FusedTensor *packed; /* in place of these in folders with mlp.experts.gate_up_proj; NULL: none */
    const char *packed_without; /* or without a tensor whose name ends so */
    const SplitTensor *splits; /* up to a name NULL; NULL: none */
    const char *const *off; /* fields that are written as false, up to NULL; NULL: none */
    const char *const *zero; /* dropouts that are not 0 where they are not given, up to NULL; NULL: none */
} Family;
/* A type of folders whose text model is one part, described by text_config, or beside the fields of other
 * parts in older ones. */
typedef struct Whole {
    const char *type, *architecture, *part; /* part: model_type of the text model */
    bool tied; /* where no field says it, and there is no head beside the embedding */
    const char *absent; /* JSON: fields that published text_configs leave out; NULL: none */
    bool outer; /* text_config does not say whether weights are tied, whatever it has */
} Whole;
extern const Whole wholes[]; /* up to a type NULL */
extern const Family families[];
extern const int family_count;
const Family *family_named(const char *type); /* NULL: there is none */
/* The first whose layers can have exactly these parts; NULL: there is none. */
const Family *family_with(const LayerParts *parts);
/* NULL: the family has no such scale */
const ScaleField *family_scale(const Family *f, int scale);
/* A scale that is 0 as the number that it stands for; a softcap stays 0. */
double scale_number(const double scale[BURST_SCALES], int which, double head_dim);
/* Whether layers with these parts have one of those that the field adds: then it is true. */
bool part_field_is_on(const PartField *f, const LayerParts *parts);
void parts_add(LayerParts *parts, const LayerParts *more);
/* The family's, with those that fields add of which the layers have one. */
LayerParts family_parts(const Family *f, const LayerParts *parts);
bool family_has(const Family *f, const LayerParts *parts);
/* The tensor of a table that holds this one, and the how manieth of its parts it is; NULL: it stands by
 * itself. */
const FusedTensor *family_fused(const FusedTensor *table, const char *tensor, int *part);
/* Which expert's matrix a tensor of a plan is; -1: of none. */
int tensor_expert(const char *tensor);

/* ---- rotary embedding ---- */
/* A number of a kind of scaling: its name in config.json and in a model, its place in BurstRope, its bounds.
 */
typedef struct RopeField {
    const char *json, *name;
    size_t at;
    double lo, hi;
    double absent; /* what is meant where it is not given; 0: it must be */
    bool option; /* 0 where it is not given */
    bool negated; /* an option that is 1 where the field is false */
} RopeField;
enum { ROPE_FIELDS = 8 /* the last has no name */ };
typedef struct RopeKind {
    const char *name;
    RopeField field[ROPE_FIELDS];
} RopeKind; /* up to a name NULL */
extern const RopeKind rope_kinds[BURST_ROPE_KINDS];
double *rope_number(BurstRope *r, const RopeField *f);
double rope_value(const BurstRope *r, const RopeField *f);
/* What yarn and longrope multiply by where nothing else is said. */
double rope_yarn_attention(double factor);
double rope_long_attention(double factor, double original);
/* "500000 llama3 { factor 8; ... }": what a model says after `rope`, cut to the size. */
enum { ROPE_TEXT = 8192 };
void rope_text(const BurstRope *r, char *text, size_t size);
bool rope_same(const BurstRope *a, const BurstRope *b); /* to 6 digits, as files may have them */
/* NULL, or why frequencies cannot be computed for heads of d elements */
const char *rope_wrong(const BurstRope *r, int d);

#endif
