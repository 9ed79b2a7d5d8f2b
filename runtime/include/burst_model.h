/* burst_model.h: what the compiler and programs share about a model, besides its sizes. */
#ifndef BURST_MODEL_H
#define BURST_MODEL_H

#include <stdint.h>

/* ---- the parts of a layer; zeros describe a Llama ---- */
enum { BURST_NORM_RMS, BURST_NORM_LAYER };
/* Norms on the input of attention and the feed-forward network, on their output, or on both. */
enum { BURST_NORMS_BEFORE, BURST_NORMS_AFTER, BURST_NORMS_BOTH };
/* Attention and the feed-forward network in parallel: both read the layer's input, through one shared norm
 * or one each, and both outputs are added to it. */
enum { BURST_PARALLEL_NO, BURST_PARALLEL_ONE_NORM, BURST_PARALLEL_TWO_NORMS };
/* Activation of the feed-forward network. Kinds up to GEGLU_TANH gate one of two products by the other.
 * GELU_TANH is gelu's tanh approximation, RELU2 the square of relu. */
/* clang-format off: one row per line */
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
/* Experts in all layers, or in some, where the others have one feed-forward network: BurstExperts. */
enum { BURST_EXPERTS_NO, BURST_EXPERTS_ALL, BURST_EXPERTS_SOME };
/* eps of the norms of latents, independent of other norms' eps, as in DeepSeek-V2's code and all models that
 * adopted its attention. */
#define BURST_LATENT_EPS 1e-6f
typedef struct BurstLayer {
    int norm, norms, activation;
    int parallel; /* BURST_PARALLEL_... */
    int norm_bias, o_bias, mlp_bias;
    int head_bias; /* of the head: added to logits */
    int qk_norm_all; /* the norm of queries and of keys runs over all heads of a token */
    int qk_norm_rotated; /* queries and keys are normed after their rotation, not before it */
    int experts; /* which each token chooses, in place of one feed-forward network: BURST_EXPERTS_... */
    /* keys and values are computed from a latent: multi-head latent attention, arXiv 2405.04434 */
    int latent;
    int attention_gate; /* attention's output is multiplied by the sigmoid of a product of the layer's input
                         */
    int scan; /* some layers have a recurrent layer in place of attention: BurstScan */
    int single; /* some layers have only a mixer, or only a feed-forward network */
    int scan_norms; /* 1 more than the place of norms in layers with a scan; 0: as in others */
    int scan_eps; /* the norm of a scan's outputs has an epsilon of its own */
    int indexer; /* some layers choose blocks of keys with an indexer: BurstIndexer */
    int scan_plain; /* a scan's outputs have no norm: their gate alone */
    int scan_attends; /* layers with a scan have attention too, of the same input, and add both */
} BurstLayer;
/* Experts, which each token chooses (mixture of experts, arXiv 1701.06538). logits = x w_router^T (+ bias);
 * scores of a token are the softmax over all experts, or the sigmoid of each. It chooses the `top` experts of
 * the largest scores, of equal ones the lower number first; a correction is added to scores for the choice
 * alone (arXiv 2408.15664). With groups of equally many consecutive experts it chooses among those of the
 * `top_groups` best groups (arXiv 2405.04434), by their largest score or the sum of their two largest. An
 * expert's weight is its score, divided by the sum over the chosen plus `eps`, or by `least` where that is
 * more, where `normalize` says so, times `scale`. The layer's output is the sum of the chosen experts'
 * outputs, each times its weight, and of the shared expert's, which every token has. */
#define BURST_SCORE_ROWS(X) X(SOFTMAX, "softmax") X(SIGMOID, "sigmoid")
enum {
#define X(id, name) BURST_SCORE_##id,
    BURST_SCORE_ROWS(X)
#undef X
        BURST_SCORES
};
#define BURST_GROUP_ROWS(X) X(MAX, "max") X(TWO, "two")
enum {
#define X(id, name) BURST_GROUP_##id,
    BURST_GROUP_ROWS(X)
#undef X
        BURST_GROUPS
};
enum { BURST_MOST_EXPERTS = 1024 };
typedef struct BurstExperts {
    int experts;    /* 0: the layer has none: a dense feed-forward */
    int top;        /* that a token chooses */
    int width;      /* columns of an expert's gate, and of its up */
    int activation; /* BURST_ACTIVATION_..., of the shared expert too */
    int score;      /* BURST_SCORE_... */
    int normalize;
    double eps, scale;
    int shared; /* columns of the shared expert's gate and up; 0: there is none */
    int shared_gate; /* its output is multiplied by the sigmoid of x w^T, w[hidden] */
    int correction;  /* added to scores for the choice: a buffer, which no optimizer changes */
    int groups, top_groups, group_score; /* 0: none; BURST_GROUP_... */
    int router_bias, bias; /* of logits; of the experts' products */
    double least;
    /* SwiGLU as silu(alpha g) / alpha * (u + offset), g and u clamped to at most `limit`, u to at least
     * -limit (GPT-OSS, arXiv 2508.10925); limit 0: none */
    double alpha, offset, limit;
    /* After each step a correction moves by the rate, up for experts that fewer tokens chose than the mean,
     * else down; 0: it stays. */
    double rate;
    /* Times the balance loss of a sequence, E sum_e f_e P_e (arXiv 2101.03961): of its counted tokens in all
     * layers with experts, f_e is the share that has e among the `top` largest logits, P_e the mean of the
     * softmax over all E; 0: none. */
    double balance;
    int everywhere; /* alpha, offset and limit are of the shared expert and of layers without experts too */
    /* Of a group of them that an operation has: its first one, and the most rows of a token, which are its
     * choices among them; rows 0: it has all. */
    int first, rows;
} BurstExperts;
static inline int burst_activation_gates(int activation) { return activation <= BURST_ACTIVATION_GEGLU_TANH; }
/* Columns of an expert's first product: its gate and up, or its up alone. */
static inline int burst_experts_columns(const BurstExperts *m)
{
    return (burst_activation_gates(m->activation) ? 2 : 1) * m->width;
}
/* Rows of n tokens at most. */
static inline int64_t burst_expert_rows(const BurstExperts *m, int64_t n)
{
    return n * (m->rows ? m->rows : m->top);
}
/* member, setting of a model, its words */
#define BURST_LAYER_FIELDS(X) \
    X(norm, "norm", "rmsnorm", "layernorm", 0, 0, 0, 0) \
    X(norms, "norms", "before", "after", "both", 0, 0, 0) \
    X(activation, "ffn", "swiglu", "geglu", "geglu_tanh", "gelu", "gelu_tanh", "relu2") \
    X(parallel, "parallel", "no", "yes", "two_norms", 0, 0, 0) \
    X(norm_bias, "norm_bias", "no", "yes", 0, 0, 0, 0) \
    X(o_bias, "o_bias", "no", "yes", 0, 0, 0, 0) \
    X(mlp_bias, "mlp_bias", "no", "yes", 0, 0, 0, 0) \
    X(head_bias, "head_bias", "no", "yes", 0, 0, 0, 0) \
    X(qk_norm_all, "qk_norm", "no or yes", "all", 0, 0, 0, 0) \
    X(qk_norm_rotated, "qk_norm", "no or yes", "rotated", 0, 0, 0, 0) \
    X(attention_gate, "attention_gate", "no", "yes", 0, 0, 0, 0)

/* ---- parameters of a rotary position embedding's frequencies (families/frequency.h) ---- */
/* Scaling of frequencies: linear (Position Interpolation, arXiv 2306.15595), llama3 (arXiv 2407.21783), yarn
 * (arXiv 2309.00071), dynamic (NTK, by the sequence's length), longrope (arXiv 2402.13753: a factor per
 * pair, for sequences up to `original` or longer). Names are those of transformers and of models. */
#define BURST_ROPE_ROWS(X) \
    X(DEFAULT, "default") \
    X(LINEAR, "linear") X(LLAMA3, "llama3") X(YARN, "yarn") X(DYNAMIC, "dynamic") X(LONGROPE, "longrope")
enum {
#define X(id, name) BURST_ROPE_##id,
    BURST_ROPE_ROWS(X)
#undef X
        BURST_ROPE_KINDS
};
/* longrope: divisors of the pairs' frequencies. */
enum { BURST_ROPE_PAIRS = 128 };
typedef struct BurstRopeFactors {
    int count;
    double short_factor[BURST_ROPE_PAIRS], long_factor[BURST_ROPE_PAIRS];
} BurstRopeFactors;
typedef struct BurstRope {
    double theta;     /* 0: no rotation */
    int kind;         /* BURST_ROPE_...; fields below that the kind does not use are 0 */
    double factor;    /* positions are stretched by this factor */
    double original;  /* sequence length of the model's original training, in tokens */
    double low,
        high; /* turns in `original`: pairs with fewer get the whole factor, pairs with more get none */
    double attention; /* yarn, longrope: factor of cosines and sines */
    double length;    /* dynamic, longrope: tokens of a sequence */
    /* rotated elements of a head, from the first; negative: from the last (multi-head latent attention,
     * arXiv 2405.04434); 0: all */
    int rotary;
    int interleaved;  /* pairs are neighbours, 2j and 2j + 1; 0: halves, j and j + half */
    const BurstRopeFactors *factors; /* longrope; NULL: none */
    /* yarn: queries at position p are multiplied by 1 + query_beta log(1 + floor(p / original)) */
    double query_beta;
    double untruncated; /* yarn: 1: the pairs where its rise begins and ends are not rounded to whole ones */
} BurstRope;

/* ---- constants that change what a model computes; 0: none. Names are those of models and plans ---- */
/* id, name, constant of a program
 *   EMBEDDING: the embedding's output
 *   RESIDUAL: what attention and the feed-forward network add to their input
 *   ATTENTION: scores, in place of 1 / sqrt(head_dim)
 *   LOGIT: logits
 *   LOGIT_SOFTCAP: logits are cap tanh(logit / cap) (Gemma 2, arXiv 2408.00118)
 *   ATTENTION_OUT, SCAN_OUT, FFN_OUT: what attention, a scan, a dense network add to their input
 *   FFN_GATE: a dense network's gate, before its activation
 *   SCAN_GATE, SCAN_VALUE, SCAN_KEY, SCAN_QUERY, SCAN_STEP: a scan's z before silu, its values, keys and
 *   queries before the convolution, a token's step or decay before dt_bias is added (Falcon-H1) */
#define BURST_SCALE_ROWS(X) \
    X(EMBEDDING, "embedding_scale", "PLAN_EMBEDDING_SCALE") \
    X(RESIDUAL, "residual_scale", "PLAN_RESIDUAL_SCALE") \
    X(ATTENTION, "attention_scale", "PLAN_ATTENTION_SCALE") \
    X(LOGIT, "logit_scale", "PLAN_LOGIT_SCALE") \
    X(LOGIT_SOFTCAP, "logit_softcap", "PLAN_LOGIT_SOFTCAP") \
    X(ATTENTION_OUT, "attention_out_scale", "PLAN_ATTENTION_OUT_SCALE") \
    X(SCAN_OUT, "scan_out_scale", "PLAN_SCAN_OUT_SCALE") \
    X(FFN_OUT, "ffn_out_scale", "PLAN_FFN_OUT_SCALE") \
    X(FFN_GATE, "ffn_gate_scale", "PLAN_FFN_GATE_SCALE") \
    X(SCAN_GATE, "scan_gate_scale", "PLAN_SCAN_GATE_SCALE") \
    X(SCAN_VALUE, "scan_value_scale", "PLAN_SCAN_VALUE_SCALE") \
    X(SCAN_KEY, "scan_key_scale", "PLAN_SCAN_KEY_SCALE") \
    X(SCAN_QUERY, "scan_query_scale", "PLAN_SCAN_QUERY_SCALE") \
    X(SCAN_STEP, "scan_step_scale", "PLAN_SCAN_STEP_SCALE")
enum {
#define X(id, name, constant) BURST_SCALE_##id,
    BURST_SCALE_ROWS(X)
#undef X
        BURST_SCALES
};

/* ---- recurrent layers ----
 * A state S [key_dim][value_dim] per head follows the tokens of a document, from 0 at its first:
 *     S' = e^a S;  S = S' + k (beta v - r^T S');  o = scale q^T S (+ skip v)
 * with r = beta k (gated delta rule, arXiv 2412.06464) or r = 0 (Mamba-2, arXiv 2405.21060, where beta is the
 * step). a <= 0 is a head's decay. Over the tokens of a piece S becomes M S + E, its map: pieces on several
 * ranks are chained by these. */
/* What is taken away from the state before a token is written. */
#define BURST_SCAN_READ_ROWS(X) X(NONE, "none") X(KEY, "k")
enum {
#define X(id, name) BURST_SCAN_READ_##id,
    BURST_SCAN_READ_ROWS(X)
#undef X
        BURST_SCAN_READS
};
typedef struct BurstScan {
    int heads, key_heads; /* of values and states; of queries and keys: a divisor. Head h reads key head
                         h / (heads / key_heads) */
    int key_dim, value_dim; /* of a head. On a device key_dim 64, 128 or 256, value_dim a multiple of 64 */
    int read; /* BURST_SCAN_READ_... */
    int normalize; /* queries and keys by their length, 1 / sqrt(sum x^2 + BURST_SCAN_EPS) */
    double scale; /* of queries, after normalize */
    /* a row: the columns of all queries, of all keys and of all values begin at q, k and v */
    int columns, q, k, v;
    /* gates, read k: beta = beta_most sigmoid(.); none: beta = softplus(.) within [step_least, step_most] */
    double beta_most, step_least, step_most;
    double step_scale; /* of what dt_bias is added to; 0: 1 */
} BurstScan;
#define BURST_SCAN_EPS 1e-6
#define BURST_MOST_STEP 1e30 /* step_most where there is no limit */

/* Pieces of this rank: runs of consecutive positions of the sequence, rows first[i] up to first[i + 1], not
 * empty. first[0] is 0, first[count] the number of rows. */
enum { BURST_MOST_PIECES = 128 };
typedef struct BurstPieces {
    int count;
    const int64_t *first;
} BurstPieces;
/* Maps of all `total` pieces of a sequence: piece p, in the order of positions, is at maps[slot[p]]. The
 * rank's own i-th piece is number[i], ascending. */
typedef struct BurstFold {
    int total, pieces;
    const int32_t *slot, *number;
} BurstFold;

/* Consecutive positions that a chunk has as consecutive rows. */
typedef struct BurstSequencePiece {
    int64_t position, row, rows; /* of its first token */
    int chunk, index; /* index: among the chunk's */
} BurstSequencePiece;

/* Adds a chunk's next token: it continues the last piece, or begins one. first: the chunk's first piece.
 * `most` pieces are the most of a chunk; -1: it has more. Returns the number of pieces. */
static inline int burst_scan_add(BurstSequencePiece *piece, int count, int first, int most, int chunk,
                                 int64_t row, int64_t position)
{
    BurstSequencePiece *last = count > first ? &piece[count - 1] : 0;
    if (last && position == last->position + last->rows) {
        last->rows++;
        return count;
    }
    if (count - first >= most)
        return -1;
    piece[count] = (BurstSequencePiece){position, row, 1, chunk, count - first};
    return count + 1;
}

/* Sorts pieces by their positions: each follows the one before it. */
static inline void burst_scan_sort(BurstSequencePiece *piece, int count)
{
    for (int i = 1; i < count; i++) {
        const BurstSequencePiece x = piece[i];
        int at = i;
        for (; at > 0 && piece[at - 1].position > x.position; at--)
            piece[at] = piece[at - 1];
        piece[at] = x;
    }
}

/* Depthwise causal convolution over the last `kernel` rows. */
enum { BURST_MOST_KERNEL = 4 };
typedef struct BurstConv {
    int channels;
    int kernel; /* 2 up to BURST_MOST_KERNEL */
    int silu; /* applied to the sum */
    /* of inputs: scale[0], from the columns of `from` on the next one; scale[0] 0: 1 */
    int from[2];
    double scale[3];
} BurstConv;
static inline double burst_conv_scale(const BurstConv *c, int channel)
{
    return c->scale[0] > 0 ? c->scale[(channel >= c->from[0]) + (channel >= c->from[1])] : 1;
}

/* What multiplies a branch: the gate itself, its sigmoid or its silu. */
#define BURST_GATE_ROWS(X) X(PLAIN, "plain") X(SIGMOID, "sigmoid") X(SILU, "silu")
enum {
#define X(id, name) BURST_GATE_##id,
    BURST_GATE_ROWS(X)
#undef X
        BURST_GATES
};
/* RMSNorm of each of `groups` groups of `width` elements of a row, and a gate z of the same shape: after the
 * norm y = norm(x) w f(z), before it y = norm(x f(z)) w. */
typedef struct BurstGatedNorm {
    int groups, width;
    int shared; /* w [width] is that of each group; else [groups][width] */
    int before; /* the gate comes before the norm */
    int gate; /* BURST_GATE_... */
    double eps;
    double scale; /* of z; 0: 1 */
} BurstGatedNorm;
static inline double burst_scale_or_one(double scale) { return scale > 0 ? scale : 1; }

/* ---- selections (burst_attend.h) ---- */
/* An indexer: queries and keys of its own, products of a layer's normed input, that score blocks of keys for
 * a selection. Nothing else reads them, so that no loss of the model trains their weights: these stay as they
 * are, as for models whose indexer was trained before. heads 0: there is none. */
typedef struct BurstIndexer {
    int heads, kv_heads, dim;
    int rotary; /* elements of a head that RoPE turns, from the first */
    int norm; /* RMSNorm of each head */
} BurstIndexer;
#define BURST_INDEXER_TENSORS "self_attn.indexer." /* as their names begin */

enum { BURST_SIDE_BYTES = 48 }; /* of a BurstSide */

/* Bytes of burst_select_blocks' scratch: of each block its side and its number, of each that is kept its
 * score. */
static inline int64_t burst_select_scratch(int64_t blocks, int64_t top)
{
    return blocks * (BURST_SIDE_BYTES + 4) + 16 * top;
}

/* The same on a device (templates/kernels/cuda_select.cuh): sides of all blocks and tiles, a bit for each
 * tile of a rank and block, and the scores of BURST_SELECT_ROWS lists. */
enum { BURST_SELECT_ROWS = 2048 };
static inline int64_t burst_select_work(int64_t blocks, int64_t tiles, int64_t own_tiles)
{
    return BURST_SIDE_BYTES * (blocks + tiles) + 4 * own_tiles * ((blocks + 31) / 32) +
           4 * BURST_SELECT_ROWS * blocks;
}

/* The scratch in which ranks choose together, in bytes from its begin: what represents a rank's blocks and
 * tiles, and its lists, each also of all ranks, before and after they are placed in the sequence; on a device
 * also tables by position. words: of a block, of a tile, of a tile's lists; top: of a list. */
typedef struct BurstSelectSizes {
    int64_t tokens, sequence, ranks, block, queries, key_words, query_words, list_words, top;
    int64_t device, tables; /* whether it is one; of the program */
} BurstSelectSizes;
typedef struct BurstSelectPlaces {
    int64_t own, parts, keys, tiles, work, tables, bytes;
    int64_t own_words; /* that a rank sends at most */
} BurstSelectPlaces;

static inline BurstSelectPlaces burst_select_places(const BurstSelectSizes *s)
{
    const int64_t blocks = (s->sequence + s->block - 1) / s->block,
                  tiles = (s->sequence + s->queries - 1) / s->queries,
                  own_blocks = (s->tokens + s->block - 1) / s->block,
                  own_tiles = (s->tokens + s->queries - 1) / s->queries, own_keys = own_blocks * s->key_words,
                  own_queries = own_tiles * s->query_words, own_lists = own_tiles * s->list_words;
    BurstSelectPlaces p;
    p.own = 0;
    p.own_words = own_keys > own_queries ? own_keys : own_queries;
    p.own_words = ((p.own_words > own_lists ? p.own_words : own_lists) + 15) / 16 * 16;
    p.parts = 4 * p.own_words;
    p.keys = p.parts + 4 * p.own_words * s->ranks;
    p.tiles = p.keys + 4 * blocks * s->key_words;
    p.work = (p.tiles + 4 * tiles * s->query_words + 63) / 64 * 64;
    p.tables = p.work + (s->device ? burst_select_work(blocks, tiles, own_tiles)
                                   : burst_select_scratch(blocks, s->top));
    p.bytes = p.tables + (s->device ? 4 * s->tables * s->sequence : 0);
    return p;
}

#endif
