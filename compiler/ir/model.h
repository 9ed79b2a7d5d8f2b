/* ir/model.h: the model, its masks and its training. */
#ifndef BURST_IR_MODEL_H
#define BURST_IR_MODEL_H

#include "base/base.h"
#include "burst_model.h"
#include "burst_tables.h"
#include "burst_train.h"

typedef struct Expr Expr; /* ir/expr.h */
/* What layers of one kind consist of: layers of a model may be of a few kinds, which alternate in any order.
 */
enum { LAYER_KINDS = 4 };
typedef struct KindParts {
    bool experts; /* the feed-forward network is experts; else dense */
    bool scan;    /* the mixer is a scan, alone or beside attention (layer.scan_attends); else attention */
    bool no_mixer, no_network; /* it has only the other one */
    bool indexer; /* its selection scores blocks with an indexer */
} KindParts;
typedef struct Model {
    const char *name;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int value_dim; /* of values and of attention's output, per head; default: head_dim */
    /* Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). Keys and values are computed from a
     * latent of this many elements a token and from `shared` elements of a key that all heads share and that
     * RoPE rotates; queries from a latent of their own. 0: from the layer's input */
    int latent, query_latent, shared;
    /* row of the table of families that describes it to Hugging Face; NULL: the first that fits */
    const char *family;
    double norm_eps;
    BurstRope rope;
    int ropes; /* 0: all layers use rope */
    const BurstRope *rope_of; /* [ropes]; the first is rope */
    const int *layer_rope; /* [layers] -> rope_of */
    /* table whose values are RoPE's positions, counted from 1; 0: positions in the sequence */
    int rope_table;
    double scale[BURST_SCALES]; /* 0: none */
    BurstLayer layer;
    BurstExperts experts; /* which each token chooses, in place of ffn or in some layers */
    BurstScan scan; /* the mixer of some layers, a recurrent layer, in place of attention; heads 0: of none */
    int scan_kernel; /* rows of its convolution */
    /* of the convolution; outputs plus a head's number times its values; what the norm has before it */
    bool scan_bias, scan_skip, scan_gate_before;
    double scan_eps; /* of the norm of its outputs; 0: norm_eps */
    Span scan_span;
    /* table of a token's position in its document, counted from 1, where scans restart; 0: no layer has one
     */
    int place_table;
    bool no_mixer, no_network; /* of a model with one kind: model_with_kind */
    int kinds;            /* of layers; 0 and 1: all have the parts of kind[0] */
    KindParts kind[LAYER_KINDS];
    const int *layer_kind; /* [layers] -> kind; NULL: all are of kind 0 */
    double softcap; /* caps scores before the mask: cap tanh(S / cap) (Gemma 2, arXiv 2408.00118); 0: none */
    /* learned: one score per head that takes weight in each row and has no value (GPT-OSS, arXiv
     * 2508.10925) */
    bool sinks;
    bool selects; /* masks of some layers have selections */
    BurstIndexer indexer; /* of layers whose selection scores with it; heads 0: of none */
    Span indexer_span;
    bool tied, qkv_bias, qk_norm;
    Span heads_span, kv_heads_span, head_dim_span; /* head_dim_span: that of heads if head_dim is not given */
    Span rotary_span, latent_span, experts_span;
} Model;
/* ---- program.c ---- */
int model_kinds(const Model *m); /* at least 1 */
int model_kind(const Model *m, int layer); /* of a layer */
int model_layers_of(const Model *m, int kind); /* how many layers are of the kind */
bool model_attends(const Model *m, int layer); /* whether the layer has attention */
/* The model if all layers were of the kind: without the parts that they lack. */
Model model_with_kind(const Model *m, int kind);
/* "moe": how layers of the kind are named where there are several; "": there is one */
const char *model_kind_name(const Model *m, int kind);
bool model_same_kind(const KindParts *a, const KindParts *b);
typedef struct Table {
    const char *name;
    BurstTableKind kind;
    int64_t len_min, len_max; /* of documents; 0: planned for the worst case, as for kind GIVEN */
    const struct Lengths *lengths; /* distribution that they are drawn from (data/lengths.h); NULL: uniform */
    Span span;
} Table;
/* Blocks of keys that each tile of queries chooses at run time (burst_attend.h). */
typedef struct Selection {
    const char *text; /* as written, with arguments: "sparse(16, 64)" */
    int64_t top, block, queries;
    const char *score; /* as written: "dot", or the indexer's name */
    bool indexer; /* queries and keys are the indexer's */
    int query, key, heads; /* BURST_SELECT_... */
    int64_t query_rows, key_rows; /* rows of a head's elements that represent a tile, a block */
    bool by_position; /* `documents` has positions in documents */
    int for_each; /* 1: a list for each query head; 0: for each key head; -1: one */
    bool noncausal; /* blocks after a tile may be chosen */
    int documents; /* table of documents that `where` reads, counted from 1; 0: none */
    const Expr *where, *always; /* static: pairs that may be chosen; those that need not be */
    const Expr *open; /* where and not always */
    Span span, query_span;
} Selection;
typedef struct Mask {
    const char *text; /* as written, with arguments, e.g. "mine(32768, 4)": for comments and tables */
    const Expr *expr; /* boolean over q, k */
    Span span;
    int selection; /* that it uses, counted from 1; 0: none */
    int *keys; /* [2] cached mask_keys of forward and backward, -1: not yet computed; NULL: not cached */
    double *block_time; /* [2] cached mask_block_time, -1: not yet computed; NULL: not cached */
    int64_t *reach; /* cached mask_reach, -1: not yet computed; NULL: not cached */
} Mask;
typedef struct Train {
    const BurstDataFile *data; /* [data_files], paths as written; none: random tokens */
    int data_files;
    bool packed;                            /* documents are packed into sequences */
    const BurstDataFile *evaluate;          /* NULL: none */
    int64_t evaluate_every, evaluate_steps; /* steps 0: the whole file */
    int64_t separator;     /* token that ends a document; -1: none */
    int64_t predict;       /* labels are the token this many positions ahead */
    int64_t steps, batch, seed, checkpoint_every, warmup;
    Span batch_span; /* src NULL: derived from the layout's `data` */
    const char *checkpoint; /* directory; NULL: none */
    const char *weights, *export_dir; /* Hugging Face folders; NULL: none */
    Span weights_span;
    bool export_f32;        /* else bf16 */
    double lr, lr_end, beta1, beta2, decay, clip, adam_eps;
    int schedule;           /* BURST_SCHEDULE_... */
    int64_t decay_steps;    /* of WSD */
    int optimizer;          /* BURST_OPTIMIZER_... */
    Span optimizer_span;    /* its name; src NULL: not given */
    double momentum;        /* of Muon */
    bool deterministic;     /* sums have a fixed order: every run has the same bits */
    Span deterministic_span;
    Span span;
} Train;

#endif
