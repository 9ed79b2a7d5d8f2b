/* burst_layer.h: which parts a model's layers are made of, beside their sizes. Zeros are a Llama's. */
#ifndef BURST_LAYER_H
#define BURST_LAYER_H

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
    int latent; /* keys and values are made of a latent: multi-head latent attention, arXiv 2405.04434 */
} BurstLayer;
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
#endif
