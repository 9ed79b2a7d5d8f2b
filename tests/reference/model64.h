/* model64.h: a dense float64 Llama-family model, the oracle of everything else.
 *
 * Written from the definitions alone, simply and slowly: one process, no tiles, no chunks, the whole
 * sequence and the whole attention matrix row by row. It shares no code with the compiler or the runtime.
 *
 * Arrays are row-major; a shape in brackets is [slowest ... fastest]. n: tokens of the sequence, D:
 * hidden, H / Hk: query / key-value heads, d: head_dim. Token i has the global position i. Query head h
 * reads key head h / (H / Hk). Weights are [out][in], as Hugging Face stores them. Memory that runs out
 * ends the program.
 */
#ifndef MODEL64_H
#define MODEL64_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether query position q may see key position k. */
typedef bool (*Keep64)(int64_t q, int64_t k, const void *ctx);
/* Blocks of keys that tiles of 128 queries choose; `always` need not be chosen. */
enum { SELECT64_FIRST_QUERY, SELECT64_PREVIOUS_MEAN, SELECT64_OWN_MEAN };
enum { SELECT64_MEAN_KEY, SELECT64_LIMITS, SELECT64_FIRST_KEY, SELECT64_MAX_KEY };
enum { SELECT64_OF_HEAD, SELECT64_OF_KV, SELECT64_OF_ALL };
typedef struct Select64 {
    int top, query, key, heads;
    int64_t block;
    bool noncausal, documents, indexer; /* indexer: scores are of queries and keys of its own */
    bool (*always)(int64_t q, int64_t k);
} Select64;
/* With a selection `keep` is what it may choose among; doc: numbers of documents. lists [tiles][lists of a
 * tile][top]: what it chose, rising, then -1; NULL: it is found here. */
typedef struct Mask64 {
    Keep64 keep;
    const void *ctx;
    const Select64 *select;
    const int32_t *doc;
    const int32_t *lists;
} Mask64;

/* Zeroed memory of count doubles; never NULL. Free with free(). */
double *new64(int64_t count);

/* Queries and keys by which a selection scores, with so many heads of so many elements. */
typedef struct Score64 {
    int heads, kv_heads, head_dim;
    const double *q, *k; /* [heads][n][d], [kv_heads][n][d] */
} Score64;

/* ---- attention alone (attention64.c) ---- */
typedef struct Attention64 {
    int64_t n;
    int heads, kv_heads, head_dim;
    Mask64 mask;
    const double *q;     /* [H][n][d] */
    const double *k, *v; /* [Hk][n][d], [Hk][n][e] */
    double softcap;      /* scores are softcap * tanh(S / softcap) before the mask; 0: S */
    const double *sink;  /* [H] a score beside each row's keys, whose value is 0; NULL: none */
    double *d_sink;      /* [H] backward adds to it; NULL: it does not */
    int value_dim;       /* e: of v, o and their gradients; 0: d */
    Score64 score; /* of an indexer */
    const double *p, *p_lse; /* set by attention64_keep: [H][n][n] probabilities and [H][n] lse */
} Attention64;
/* Computes the probabilities once for several of the functions below, which compute them anew otherwise. */
void attention64_keep(Attention64 *a, double *p, double *lse);
/* select64.c: [H][tiles][blocks] 1: chosen; NULL without a selection. */
uint8_t *select64(const Attention64 *a);
/* Blocks of lists that were given, and how many of them are chosen here too. */
extern int64_t select64_given, select64_agreed;
bool select64_keeps(const Attention64 *a, const uint8_t *chosen, int h, int64_t q, int64_t k);
/* o [H][n][e] and lse [H][n] are written. A row without keys gives o = 0 and lse = -inf. */
void attention64_forward(const Attention64 *a, double *o, double *lse);
/* dq [H][n][d], dk [Hk][n][d], dv [Hk][n][e] are added to; o is what forward gave. */
void attention64_backward(const Attention64 *a, const double *o, const double *d_o, double *dq, double *dk,
                          double *dv);
/* The same sums with every product replaced by its absolute value, the probabilities kept: o [H][n][e],
 * dq, dk, dv are written. Rounding errors of any other implementation are proportional to these, also
 * where the true sum cancels. */
void attention64_magnitude(const Attention64 *a, const double *true_o, const double *d_o, double *o,
                           double *dq, double *dk, double *dv);

/* ---- recurrent layers (scan64.c): the gated delta rule ---- */
/* Value head h reads key head h / (heads / key_heads). kernel: of the convolution. heads 0: none */
typedef struct Scan64 {
    int heads, key_heads, key_dim, value_dim, kernel;
    /* nothing is read from the state before a token is written (Mamba-2); rows are values, keys, queries
     * then. The convolution has a bias; a head's values times a number are added; the gate comes before the
     * norm; there is no norm. beside: its layers have attention too, of the same input (Falcon-H1). */
    bool plain, bias, skip, before, bare, beside;
    double step_least, step_most; /* plain: of softplus */
} Scan64;

/* ---- the whole model (model64.c) ---- */
typedef struct Shape64 {
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    double norm_eps, rope_theta;
    bool tied; /* the LM head is the embedding */
    double softcap; /* of attention; 0: none */
    bool qkv_bias; /* vectors are added to the projections of q, k and v (Qwen2) */
    bool qk_norm;  /* each head of q and k has an RMSNorm before it is rotated (Qwen3) */
    bool sinks;    /* learned: a weight a head, self_attn.sinks */
    /* multi-head latent attention: elements of what a token's keys and values are made of, and its queries
     * (0: of the layer's input); of a key those that turn, the last ones, which all heads share; of a value.
     * 0: none */
    int latent, query_latent, shared, value_dim;
    const int32_t *position; /* by which tokens of the sequence turn; NULL: by their numbers */
    bool
        attention_gate; /* attention's output times the sigmoid of a product of the layer's input (Qwen3.5) */
    bool qk_norm_rotated; /* with qk_norm: it follows the rotation (Hunyuan) */
    bool qk_norm_all; /* with qk_norm: all heads of a token together have one norm (OLMo 2) */
    /* Experts of width ffn, of which a token chooses `top`; 0: one network. Scores are a softmax or sigmoids;
     * weights of the chosen are score_scale times their scores, divided by their sum plus score_eps where
     * they are normalized. gap: the least distance from the last chosen score to the next; NULL: not asked.
     * agreed: counts choices that a batch gives and that are its own too; NULL: not asked. */
    int experts, top;
    bool sigmoid, normalize;
    double score_eps, score_scale, *gap;
    int64_t *agreed;
    int shared_ffn; /* columns of the network that every token has beside its experts; 0: none */
    bool shared_gate; /* its output is multiplied by the sigmoid of x w^T, w [D] */
    /* a router's bias and its correction, which is added to scores for the choice alone; biases of the
     * experts' three matrices; groups, of which top_groups have the experts to choose from, by their largest
     * score or (two) the sum of the two largest */
    bool router_bias, correction, expert_bias, two;
    int groups, top_groups;
    double least; /* of the sum that weights are divided by */
    /* silu(alpha g) / alpha (u + offset) of g and u clamped at limit; 0: none */
    double alpha, offset, limit;
    const bool *dense; /* [layers] which have one network, of width dense_ffn; NULL: none */
    int dense_ffn;
    /* in place of attention, of layers with `scans` [layers]; place [n]: a token's in its document, 0 at the
     * first, where states and convolutions begin anew */
    Scan64 scan;
    const bool *scans;
    /* an indexer (MSA, arXiv 2606.13392): its heads, those of its keys, their elements, of which the first
     * so many turn, and whether they are normed; of layers with `indexed` [layers]. heads 0: none */
    struct Index64 {
        int heads, kv_heads, dim, rotary;
        bool norm;
    } index;
    const bool *indexed;
    const int32_t *place;
    double attention_out, scan_out; /* scales of what the mixers of a layer add to its input; 0: none */
} Shape64;
/* experts64.c: router [E][D], bias and correction [E] or NULL; w: of each expert gate, up [ffn][D], down
 * [D][ffn], and where it has biases those of gate and up [ffn], of down [D]. choice [n][top]: the experts
 * that are taken; NULL: those that are best. */
typedef struct Experts64 {
    double *router, *bias, *correction, *w;
    const int32_t *choice;
} Experts64;
int64_t expert64_size(const Shape64 *s); /* of one expert's w */
/* y [n][D] is added to, and the least gap comes back. Backward adds to dx, dw. */
double experts64_forward(const Shape64 *s, int64_t n, const double *x, const Experts64 *w, double *y);
void experts64_backward(const Shape64 *s, int64_t n, const double *x, const Experts64 *w, const double *dy,
                        double *dx, const Experts64 *dw);
/* qkv [2 key heads key_dim + heads value_dim][D]: queries, keys, values; z [heads value_dim][D]; b, a
 * [heads][D]; conv [columns of qkv][kernel]; norm [value_dim]; out [D][heads value_dim]; a_log, dt_bias
 * [heads]; conv_bias [columns], d [heads], or NULL. Plain: no b, and norm [heads value_dim], or NULL if bare
 */
typedef struct Scan64Weights {
    double *qkv, *z, *b, *a, *conv, *norm, *out, *a_log, *dt_bias, *conv_bias, *d;
} Scan64Weights;
/* x, y [n][D]. y is written; backward adds to dx and dw. */
void scan64_forward(const Shape64 *s, int64_t n, const double *x, const Scan64Weights *w, double *y);
void scan64_backward(const Shape64 *s, int64_t n, const double *x, const Scan64Weights *w, const double *dy,
                     double *dx, const Scan64Weights *dw);
/* One weight tensor inside the flat vector of all weights. */
typedef struct Tensor64 {
    char name[80]; /* as Hugging Face: "model.layers.0.self_attn.q_proj.weight" */
    int64_t rows, cols, offset;
    bool decays; /* weight decay: matrices, not norms */
} Tensor64;
int tensor64_count(const Shape64 *s);
/* Fills t[tensor64_count(s)] in the flat vector's order; the number of all weights comes back. */
int64_t tensor64_table(const Shape64 *s, Tensor64 *t);
typedef struct Batch64 {
    int64_t n;
    const int32_t *token, *label; /* [n]; labels < 0 are ignored */
    const double *weight;         /* [n] */
    const Mask64 *mask;           /* [layers] */
    const int32_t *choice; /* [layers][n][top]: the experts that tokens take; NULL: those they choose */
} Batch64;
/* Whether results of operations are rounded to bf16, as devices keep them. */
__attribute__((weak)) bool rounds64;
static inline void round64(int64_t n, double *x)
{
    int exponent;
    for (int64_t i = 0; rounds64 && i < n; i++) {
        const double part = frexp(x[i], &exponent);
        x[i] = ldexp(nearbyint(ldexp(part, 8)), exponent - 8);
    }
}
/* Slopes jump at bounds, such as a clamp's: a value within `near` of one may be beyond it in fp32. Backward
 * numbers such values as it finds them, and takes those in `other` to be on the other side. near 0: none. */
enum { KINKS64 = 64 };
typedef struct Kinks64 {
    double near;
    int found;
    bool other[KINKS64];
} Kinks64;
__attribute__((weak)) Kinks64 kinks64;
/* Whether a value is above its bound, given how far; only for slopes. */
static inline bool above64(double by)
{
    if (kinks64.near == 0 || !(fabs(by) <= kinks64.near))
        return by > 0;
    const int number = kinks64.found++;
    return (by > 0) != (number < KINKS64 && kinks64.other[number]);
}
/* The sum over tokens of weight * (logsumexp(logits) - logits[label]); adds the gradient of scale * that
 * sum to grad (the layout of w), unless grad is NULL. */
double model64_sequence(const Shape64 *s, const double *w, const Batch64 *b, double scale, double *grad);

/* ---- the update (optimizer64.c) ---- */
typedef struct Train64 {
    int64_t steps, warmup;
    double lr, lr_end, beta1, beta2, eps, decay, clip; /* clip 0: none */
    bool cosine;                                       /* false: constant after the warmup */
    bool muon;       /* of the layers' matrices: Moonlight's Muon instead of AdamW */
    double momentum; /* of it */
} Train64;
/* step counts from 0. The warmup's steps are lr / warmup, 2 lr / warmup, ... lr; then half a cosine whose
 * value at step `warmup` is lr and whose value at step `steps`, one past the last, would be lr_end (as
 * transformers' schedule). */
double learning_rate64(const Train64 *t, int64_t step);
/* x [rows][cols] -> its five Newton-Schulz iterations as Muon has them. */
void orthogonal64(int64_t rows, int64_t cols, double *x);
/* Clips grad by its global norm (which comes back, as before clipping) and applies AdamW, or Muon to the
 * layers' matrices, to w, m and v. step counts from 0. tensors: which weights decay. */
double update64(const Train64 *t, int64_t step, int tensors, const Tensor64 *tensor, double *w, double *grad,
                double *m, double *v);

#endif
