/* burst_model.h: what compiler and programs share of a model, beside its sizes. */
#ifndef BURST_MODEL_H
#define BURST_MODEL_H

/* ---- which parts layers are made of; zeros are a Llama's ---- */
enum { BURST_NORM_RMS, BURST_NORM_LAYER };
/* Norms of what attention and the feed-forward network read, of what they make, of both. */
enum { BURST_NORMS_BEFORE, BURST_NORMS_AFTER, BURST_NORMS_BOTH };
/* Attention and the feed-forward network side by side: both read the layer's input, through one norm or
 * through one each, and both are added to it. */
enum { BURST_PARALLEL_NO, BURST_PARALLEL_ONE_NORM, BURST_PARALLEL_TWO_NORMS };
/* What the feed-forward network's first products become; up to GEGLU_TANH one of two gates the other.
 * GELU_TANH is gelu by its approximation, RELU2 the square of relu. */
/* clang-format off: a row a line */
#define BURST_ACTIVATION_ROWS(X) \
    X(SWIGLU, "swiglu") \
    X(GEGLU, "geglu") \
    X(GEGLU_TANH, "geglu_tanh") \
    X(GELU, "gelu") \
    X(GELU_TANH, "gelu_tanh") \
    X(RELU2, "relu2")
/* clang-format on */
enum {
#define X(id, name) BURST_ACTIVATION_##id,
    BURST_ACTIVATION_ROWS(X)
#undef X
        BURST_ACTIVATIONS
};
/* What the norms of latents add to a mean of squares, whatever other norms do: so DeepSeek-V2's code has it,
 * and that of all who took over its attention. */
#define BURST_LATENT_EPS 1e-6f
typedef struct BurstLayer {
    int norm, norms, activation;
    int parallel; /* BURST_PARALLEL_... */
    int norm_bias, o_bias, mlp_bias;
    int head_bias; /* of the head: of logits */
    int qk_norm_all; /* the norm of queries and of keys is over all heads of a token */
    int experts; /* which each token chooses, in place of one feed-forward network: BurstExperts */
    int latent; /* keys and values are made of a latent: multi-head latent attention, arXiv 2405.04434 */
} BurstLayer;
/* Experts, which each token chooses (mixture of experts, arXiv 1701.06538). logits = x w_router^T; scores of
 * a token are the softmax over all experts, or the sigmoid of each. It chooses the `top` experts of the
 * largest scores, of equal ones the lower number first. An expert's weight is its score, divided by the sum
 * over the chosen plus `eps` where `normalize` says so, times `scale`. The layer's output is the sum of the
 * chosen experts' outputs, each times its weight. */
#define BURST_SCORE_ROWS(X) X(SOFTMAX, "softmax") X(SIGMOID, "sigmoid")
enum {
#define X(id, name) BURST_SCORE_##id,
    BURST_SCORE_ROWS(X)
#undef X
        BURST_SCORES
};
enum { BURST_MOST_EXPERTS = 1024 };
typedef struct BurstExperts {
    int experts;    /* 0: the layer has none: a dense feed-forward */
    int top;        /* that a token chooses */
    int width;      /* columns of an expert's gate and up */
    int activation; /* BURST_ACTIVATION_..., with a gate */
    int score;      /* BURST_SCORE_... */
    int normalize;
    double eps, scale;
} BurstExperts;
/* member, a model's setting, its words */
#define BURST_LAYER_FIELDS(X) \
    X(norm, "norm", "rmsnorm", "layernorm", 0, 0, 0, 0) \
    X(norms, "norms", "before", "after", "both", 0, 0, 0) \
    X(activation, "ffn", "swiglu", "geglu", "geglu_tanh", "gelu", "gelu_tanh", "relu2") \
    X(parallel, "parallel", "no", "yes", "two_norms", 0, 0, 0) \
    X(norm_bias, "norm_bias", "no", "yes", 0, 0, 0, 0) \
    X(o_bias, "o_bias", "no", "yes", 0, 0, 0, 0) \
    X(mlp_bias, "mlp_bias", "no", "yes", 0, 0, 0, 0) \
    X(head_bias, "head_bias", "no", "yes", 0, 0, 0, 0) \
    X(qk_norm_all, "qk_norm", "no or yes", "all", 0, 0, 0, 0)

/* ---- what the frequencies of a rotary position embedding follow from (families/frequency.h) ---- */
/* How frequencies are scaled: linear (Position Interpolation, arXiv 2306.15595), llama3 (arXiv 2407.21783),
 * yarn (arXiv 2309.00071), dynamic (NTK, by the length of the sequence), longrope (arXiv 2402.13753: a factor
 * for each pair, of sequences up to `original` or of longer ones). Names are those of transformers and of
 * models. */
#define BURST_ROPE_ROWS(X) \
    X(DEFAULT, "default") \
    X(LINEAR, "linear") X(LLAMA3, "llama3") X(YARN, "yarn") X(DYNAMIC, "dynamic") X(LONGROPE, "longrope")
enum {
#define X(id, name) BURST_ROPE_##id,
    BURST_ROPE_ROWS(X)
#undef X
        BURST_ROPE_KINDS
};
/* Of longrope: what the frequency of each pair is divided by. */
enum { BURST_ROPE_PAIRS = 128 };
typedef struct BurstRopeFactors {
    int count;
    double short_factor[BURST_ROPE_PAIRS], long_factor[BURST_ROPE_PAIRS];
} BurstRopeFactors;
typedef struct BurstRope {
    double theta;     /* 0: nothing turns */
    int kind;         /* BURST_ROPE_...; all below is 0 where the kind does not have it */
    double factor;    /* positions are stretched so many times */
    double original;  /* tokens of the sequences that the model was trained on before */
    double low,
        high; /* turns in `original`: pairs that turn less get the whole factor, that turn more none */
    double attention; /* yarn, longrope: what cosines and sines are multiplied by */
    double length;    /* dynamic, longrope: tokens of a sequence */
    /* elements of a head that turn, the first ones; below 0: so many of the last ones (multi-head latent
     * attention, arXiv 2405.04434); 0: all */
    int rotary;
    int interleaved;  /* pairs are neighbours, 2j and 2j + 1; 0: halves, j and j + half */
    const BurstRopeFactors *factors; /* longrope; NULL: none */
    /* yarn: queries at position p are multiplied by 1 + query_beta log(1 + floor(p / original)) */
    double query_beta;
    double untruncated; /* yarn: 1: the pairs where its rise begins and ends are not rounded to whole ones */
} BurstRope;

/* ---- numbers that change what a model computes; 0: none. Names are those of models and plans ---- */
/* id, name, constant of a program
 *   EMBEDDING: the embedding's output
 *   RESIDUAL: what attention and the feed-forward network add to their input
 *   ATTENTION: scores, in place of 1 / sqrt(head_dim)
 *   LOGIT: logits
 *   LOGIT_SOFTCAP: logits are cap tanh(logit / cap) (Gemma 2, arXiv 2408.00118) */
#define BURST_SCALE_ROWS(X) \
    X(EMBEDDING, "embedding_scale", "PLAN_EMBEDDING_SCALE") \
    X(RESIDUAL, "residual_scale", "PLAN_RESIDUAL_SCALE") \
    X(ATTENTION, "attention_scale", "PLAN_ATTENTION_SCALE") \
    X(LOGIT, "logit_scale", "PLAN_LOGIT_SCALE") \
    X(LOGIT_SOFTCAP, "logit_softcap", "PLAN_LOGIT_SOFTCAP")
enum {
#define X(id, name, constant) BURST_SCALE_##id,
    BURST_SCALE_ROWS(X)
#undef X
        BURST_SCALES
};

#endif
