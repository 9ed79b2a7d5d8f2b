/* ir/model.h: the model, its masks and its training. */
#ifndef BURST_IR_MODEL_H
#define BURST_IR_MODEL_H

#include "base/base.h"
#include "burst_model.h"
#include "burst_tables.h"
#include "burst_train.h"

typedef struct Expr Expr; /* ir/expr.h */
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
    BurstExperts experts; /* which each token chooses, in place of ffn */
    double softcap; /* of scores, before the mask: cap tanh(S / cap) (Gemma 2, arXiv 2408.00118); 0: none */
    /* learned: a score a head that takes weight in each row and has no value (GPT-OSS, arXiv 2508.10925) */
    bool sinks;
    bool tied, qkv_bias, qk_norm;
    Span heads_span, kv_heads_span, head_dim_span; /* head_dim_span: of heads where head_dim is not given */
    Span rotary_span, latent_span, experts_span;
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

#endif
