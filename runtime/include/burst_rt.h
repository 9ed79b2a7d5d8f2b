/* burst_rt.h: what an emitted training program calls. C17, no global state beyond a context.
 *
 * Conventions. Functions that can fail return 0 or a negative status and leave a text in the context
 * (burst_error). Arrays are row-major; a shape in brackets is [slowest ... fastest]. n: local tokens of
 * this rank, N: tokens of the whole sequence, D: hidden, H / Hk: query / key-value heads, d: head_dim. All
 * floating point is fp32 on the host backend; sums over tokens, norms and losses are accumulated in
 * double. Memory: every buffer comes from the rank's arena (burst_take), which the plan has sized; nothing
 * is allocated after start-up. The arena is shared memory, so peers on the same machine copy straight out
 * of it.
 */
#ifndef BURST_RT_H
#define BURST_RT_H

#include "burst_parts.h"
#include "burst_range.h"
#include "burst_layer.h"
#include "burst_rope.h"
#include "burst_scales.h"
#include "burst_train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BURST_RT_ABI 22 /* raised whenever an emitted program of an older burstc would no longer fit */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---- */
enum {
    BURST_OK = 0,
    BURST_E_USAGE = -1,  /* arguments, environment, world size: the program ends with 2 */
    BURST_E_MEMORY = -2, /* the arena or the machine has too little */
    BURST_E_IO = -3,     /* a file */
    BURST_E_PEER = -4,   /* a lost or stuck rank, a message of the wrong size */
    BURST_E_PLAN = -5,   /* the emitted program contradicts itself: a bug of burstc */
    BURST_E_NUMERIC = -6, /* loss is not finite */
    /* no device, too few, or of another kind than the program needs: the program ends with 3 */
    BURST_E_DEVICE = -7
};
#define BURST_TRY(call)                \
    do {                               \
        int burst_status_ = (call);    \
        if (burst_status_ != BURST_OK) \
            return burst_status_;      \
    } while (0)

typedef struct BurstCtx BurstCtx;
struct BurstPlan;
int burst_rank(const BurstCtx *c);
int burst_world(const BurstCtx *c);
const char *burst_error(const BurstCtx *c);
/* Records the text and returns code, so that callers can write `return burst_fail(c, BURST_E_IO, "...")`. */
int burst_fail(BurstCtx *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Takes 64-byte aligned zeroed memory from the arena; NULL (and an error text) where the plan counted too
 * little. */
void *burst_take(BurstCtx *c, size_t bytes);
size_t burst_arena_used(const BurstCtx *c);
/* Says what this rank does now: shown by the watchdog and when a rank is lost. The text must outlive the
 * call. */
void burst_doing(BurstCtx *c, const char *operation);
double burst_seconds(void); /* monotonic */
/* From now on the rank computes this part (BURST_P_*; its name's numbers), until the next call: for
 * --trace. Waits for messages cut it. */
void burst_part(BurstCtx *c, int part, int a, int b);

/* ---- messages: point to point, in order per (sender, receiver, channel) ---- */
/* A channel is one stream of the plan; two concurrent streams never share one. */
typedef struct BurstReq {
    int kind; /* 0 idle, 1 send, 2 receive */
    void *impl; /* transport's own */
} BurstReq;
/* the most channels one plan may use; 12.. belong to the runtime's collectives */
enum { BURST_CHANNELS = 16 };
/* Both return at once. The buffer (from the arena) must stay untouched until burst_wait. The receiver's
 * bytes must be the sender's: anything else is BURST_E_PEER naming both. peer is a world rank and not the
 * caller's own. */
int burst_send(BurstCtx *c, int channel, int peer, const void *data, size_t bytes, BurstReq *req);
int burst_recv(BurstCtx *c, int channel, int peer, void *data, size_t bytes, BurstReq *req);
/* The same of strips, one after the other: so many rows of `bytes` each, `pitch` bytes apart, which need
 * not be the other end's pitch; one request for all. */
typedef struct BurstStrip { void *data; size_t rows, bytes, pitch; } BurstStrip;
int burst_send_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req);
int burst_recv_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req);
uint64_t burst_sent_bytes(const BurstCtx *c); /* so far, by the plan's channels */
int burst_wait(BurstCtx *c, BurstReq *req); /* idle requests return at once; afterwards the request is idle */

/* ---- collectives over a group of ranks: first, first + stride, ... (every member calls, in the same
 * order) ---- */
typedef struct BurstGroup { int first, stride, count; } BurstGroup;
typedef struct BurstGather { BurstGroup group; int active; BurstReq *reqs; } BurstGather;
/* full[i*shard_elements ...] = shard of the i-th member. Started here, finished by burst_gather_wait;
 * computing may go on between the two. At most 4 may be under way. The shard must not change until every
 * member has waited. */
int burst_gather_start(BurstCtx *c, BurstGroup g, const float *shard, int64_t shard_elements, float *full,
                       BurstGather *op);
int burst_gather_wait(BurstCtx *c, BurstGather *op);
/* shard[j] += sum over members m (in order: same bits on every run) of full_m[me*shard_elements + j].
 * Returns when every member may change its full again. */
int burst_reduce_scatter(BurstCtx *c, BurstGroup g, float *full, int64_t shard_elements, float *shard);
/* As burst_gather_start, from begin to end: returns when every member may change its shard again. */
int burst_all_gather(BurstCtx *c, BurstGroup g, const float *shard, int64_t shard_elements, float *full);
/* data[j] = sum over members of data[j], the same bits on every member and on every run. */
int burst_sum_over(BurstCtx *c, BurstGroup g, float *data, int64_t elements);
/* sums in rank order; count <= 64 */
int burst_allreduce(BurstCtx *c, BurstGroup g, double *values, int count);
int burst_barrier(BurstCtx *c, BurstGroup g);

/* ---- masks: emitted for each mask of the plan ---- */
enum { BURST_EMPTY = 0, BURST_PARTIAL = 1, BURST_FULL = 2 };
enum { BURST_MAX_TABLES = 4 };
/* What masks read of one batch. */
typedef struct BurstTables {
    const int32_t *table[BURST_MAX_TABLES]; /* [N] by global position */
    /* [N] of the tokens of all chunks, chunk by chunk, each ascending; NULL: as the plan has them */
    const int64_t *position;
} BurstTables;
/* One tile's side: least and greatest global position, and of each table's values on those tokens. */
typedef struct BurstSide {
    int64_t lo, hi;
    int32_t table_lo[BURST_MAX_TABLES], table_hi[BURST_MAX_TABLES];
} BurstSide;
typedef struct BurstMask {
    const char *text;
    /* Sound: EMPTY and FULL are proofs, PARTIAL is no claim. */
    int (*tile)(const BurstSide *q, const BurstSide *k);
    /* keep[j] = 1 where (q, k[j]) is unmasked, else 0; n <= BURST_TILE. */
    void (*row)(int64_t q, const int64_t *k, int n, const BurstTables *t, uint8_t *keep);
} BurstMask;
/* Positions of one chunk, with the side of every BURST_TILE tokens (the last tile may be short). */
typedef struct BurstChunk {
    int64_t tokens;
    const int64_t *position;
    const BurstSide *side;
    int tiles;
} BurstChunk;
/* Fills side[(tokens + BURST_TILE - 1) / BURST_TILE] from positions and, where tables is not NULL, table
 * values. */
void burst_sides(const int64_t *position, int64_t tokens, const BurstTables *tables, int table_count,
                 BurstSide *side);
/* The hull of n sides, at least one. */
BurstSide burst_side_union(const BurstSide *side, int n);
/* What the mask leaves of two tiles. Tokens of one may lie far apart, as where two runs of a partition
 * meet in it: the mask is then asked of those at either side of the widest gap, so that what lies in
 * between, with other ranks, does not count. */
int burst_tile_cover(const BurstMask *m, const BurstChunk *q, int q_tile, const BurstChunk *k, int k_tile);
/* Whether any tile of the pair is not EMPTY: the rule by which pairs and transfers are skipped, on every
 * rank alike. */
bool burst_pair_live(const BurstMask *m, const BurstChunk *q, const BurstChunk *k);
/* A few runs of tiles of q or k (side: BURST_OF_...) outside of which all tiles of the pair are EMPTY: the
 * least hull, without its greatest gaps. */
BurstTileRanges burst_pair_tiles(const BurstMask *m, const BurstChunk *q, const BurstChunk *k, int side);

/* ---- attention on the host: one (query chunk, key chunk) pair (BurstAttention, section 3;
 * FlashAttention-2) ---- */
typedef struct BurstAttend {
    int head_dim;           /* d: any positive number; 32, 64 and 128 are specialised */
    int value_dim; /* e: of v, o and their gradients; 0: as head_dim */
    int q_heads, kv_heads;  /* in these buffers */
    int q_head0, kv_head0;  /* their first global heads (head parallelism), else 0 */
    int group;              /* H / Hk of the model: query head h reads key head h / group (global numbers) */
    float scale;            /* 1 / sqrt(d) */
    /* scores are softcap tanh(S / softcap) before the mask (Gemma 2, arXiv 2408.00118); 0: S */
    float softcap;
    const BurstMask *mask;
    const BurstTables *tables;
    const BurstChunk *qc, *kc;
    const float *q;         /* [q_heads][qc->tokens][d] */
    const float *k, *v; /* [kv_heads][kc->tokens][d], [e] */
    float *o; /* forward: [q_heads][qc->tokens][e], normalised so far */
    float *lse;             /* [q_heads][qc->tokens]; -inf where no key was seen. Backward: the final one */
    float *lse_rest;        /* forward: what rounding took from lse, kept from pair to pair; like lse */
    const float *d_o; /* backward: [q_heads][qc->tokens][e] */
    const float *delta;     /* backward: rowsum(dO * O) [q_heads][qc->tokens] */
    float *dq, *dk, *dv;    /* backward: added to */
    float *scratch; /* burst_attend_scratch of the greater of d and e, private to the call */
} BurstAttend;
int64_t burst_attend_scratch(int head_dim);
/* Folds the pair into (o, lse, lse_rest). Start with o = 0, lse = -inf. Rows without a key stay so. */
void burst_attend_start(const BurstAttend *a);
void burst_attend_forward(const BurstAttend *a);
/* Two outputs of the same queries for different keys become that of all keys: (o, lse, rest) takes in the
 * other three, rows of d. Each weighs exp(its lse); rows without a key weigh nothing (FlashAttention-2,
 * section 3.1; Mesh-Attention's return of outputs). */
void burst_attend_merge(int64_t rows, int d, const float *o_in, const float *lse_in, const float *rest_in,
                        float *o, float *lse, float *rest);
void burst_attend_backward(const BurstAttend *a);
/* delta[h][i] = sum over d of d_o * o, for rows = heads * tokens. */
void burst_attend_delta(int64_t rows, int head_dim, const float *o, const float *d_o, float *delta);
/* ---- parts of the step's operations (burst_step.h) that programs call by themselves ---- */
/* Keys and values of some tokens from their latents [n][latent] and from every [n][shared], the last elements
 * of a key, which all heads have: k [heads][n][own + shared], v [heads][n][value]. w: [heads * own][latent]
 * of keys, then [heads * value][latent] of values. */
typedef struct BurstLatentSizes {
    int heads, own, shared, value, latent;
} BurstLatentSizes;
void burst_latents_expand(const BurstLatentSizes *s, int64_t n, const float *w, const float *latent,
                          const float *every, float *k, float *v);
/* Gradients dk, dv so, as what they add to those of latent, every (the sum over heads) and w. */
void burst_latents_contract(const BurstLatentSizes *s, int64_t n, const float *w, const float *latent,
                            const float *dk, const float *dv, float *d_latent, float *d_every, float *dw);
void burst_add(int64_t count, const float *x, float *y); /* y += x */
typedef struct BurstAdamW {
    double lr, beta1, beta2, eps, decay;
    int64_t step; /* from 1 */
    double grad_scale;
    double momentum; /* of Muon */
} BurstAdamW;
/* param, m, v updated in place from grad * grad_scale; decoupled decay where decays. */
void burst_adamw(const BurstAdamW *o, int64_t count, bool decays, float *param, const float *grad, float *m,
                 float *v);
double burst_sum_squares(int64_t count, const float *x);
/* matrix [rows][cols], or of its columns so many parts one after the other: orthogonalised by Muon's
 * Newton-Schulz iterations; scratch: burst_muon_scratch floats. */
void burst_newton_schulz(int rows, int cols, int parts, float *matrix, float *scratch);
/* to the nearest, of two to the even one */
void burst_round_bf16(int64_t count, const float *x, uint16_t *y);
void burst_keep_bf16(int64_t count, float *x); /* the same, as floats in their place */

/* ---- weights: sharded in contiguous equal parts, unit by unit (ZeRO-3), over all ranks, or over the
 * consecutive ranks of a group where other groups have replicas (AMSP, arXiv 2311.00257): the
 * plan's shard_ranks. Neighbouring ranks may split a layer's tensors by rows or columns
 * (Megatron-LM, arXiv 1909.08053): a unit of such tensors is sharded over the ranks that have
 * the same of them. What is not split all of them have besides, and neighbours may have the same
 * part ---- */
/* that share all weights; in their order the parts of a unit that is not split */
BurstGroup burst_shard_group(const BurstCtx *c);
/* of these, those that share a tensor rank's part of a unit */
BurstGroup burst_unit_group(const BurstCtx *c, int unit);
BurstGroup burst_tensor_group(const BurstCtx *c);  /* that split layers among them */
BurstGroup burst_replica_group(const BurstCtx *c); /* that hold the same parts as this rank */
/* of key heads, fewer than tensor ranks: neighbours have the same */
enum { BURST_WHOLE, BURST_BY_ROWS, BURST_BY_COLS, BURST_BY_KEY_ROWS, BURST_BY_KEY_COLS };
typedef struct BurstTensor {
    const char *name; /* within the unit, as Hugging Face: "self_attn.q_proj.weight" */
    int64_t rows, cols;
    int64_t offset;   /* elements from the unit's begin */
    float init_std;   /* 0: ones (norms); -1: zeros (biases); these are vectors and do not decay */
    /* over tensor ranks: BURST_WHOLE, .... Rows, cols and offset are the whole's, as files have it */
    int split;
} BurstTensor;
typedef struct BurstUnit {
    const char *name;      /* "model.embed_tokens", "model.layers.%d", "head" */
    int64_t elements;      /* without padding */
    int64_t shard;         /* elements a rank holds: ceil(a tensor rank's elements / ranks that share them) */
    int tensors;
    const BurstTensor *tensor;
    int repeat;            /* layers; 1 for the others. Units are numbered in table order, repeats in turn */
} BurstUnit;
typedef struct BurstWeights {
    int units;               /* with repeats */
    float **param, **grad, **m, **v; /* [units] -> [shard] in the arena */
    /* [units] -> [shard]: gradients of a device, kept in bf16; NULL: they are `grad` */
    uint16_t **grad_bf16;
} BurstWeights;
/* Of a chunk of n tokens the first, and how many, that are the rank's own outside of attention and
 * feed-forward. */
/* each: of the ranks before the last that have any */
typedef struct BurstOwn { int64_t first, tokens, each; } BurstOwn;
BurstOwn burst_own_tokens(const struct BurstPlan *p, int rank, int64_t n);
int burst_unit_count(const struct BurstPlan *p);
const BurstUnit *burst_unit(const struct BurstPlan *p, int unit); /* its row of the table */
/* Takes the shards from the arena, kind after kind (gradients last, unless the program places them), and
 * fills param from the plan's seed: element i of unit u is the same number whatever the world size. */
int burst_weights_make(BurstCtx *c, const struct BurstPlan *p, BurstWeights *w);
size_t burst_weights_bytes(const struct BurstPlan *p); /* of the arena */
/* The optimizer's parts, on the rank's share of the host's cores: the norm and AdamW's numbers of this step;
 * then each unit. There o NULL updates nothing, and bf16, where it is not NULL, is [shard] of the parameters,
 * rounded. Gradients stay. */
int burst_update_begin(BurstCtx *c, const struct BurstPlan *p, const BurstWeights *w, int64_t step,
                       double *norm, BurstAdamW *o);
void burst_update_unit(BurstCtx *c, const struct BurstPlan *p, const BurstWeights *w, int unit,
                       const BurstAdamW *o, uint16_t *bf16);
/* Elements of a tensor that follow each other both in the rank's shard of its unit and in the whole
 * tensor: `count` from shard[at] and from tensor element `from` on. The next run; begins with {0}; false:
 * there are no more. */
typedef struct BurstRun { int64_t at, from, count; } BurstRun;
bool burst_next_run(const struct BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t,
                    BurstRun *r);
/* shard, of what several tensor ranks have of the unit's tensors: its sum over these ranks. */
int burst_sum_copies(BurstCtx *c, int unit, float *shard);
double burst_learning_rate(const struct BurstPlan *p, int64_t step);

/* ---- one sequence of the batch, as this rank sees it ---- */
typedef struct BurstBatch {
    /* [n], at the chunk's positions (tables.position, where there are any); label: the token train.predict
     * positions ahead, -1 where a document ends before */
    const int32_t *token, *label;
    const float *weight;          /* [n] */
    BurstTables tables;           /* [N] each; "doc": number of the document */
} BurstBatch;

/* ---- the plan: constants and entry points of an emitted program ---- */
enum { BURST_BF16, BURST_F32 }; /* what weights are written as */
typedef struct BurstTrain {
    const BurstDataFile *data; /* [data_files]; none: random tokens */
    int data_files;
    int packed;                    /* documents are packed into sequences by best fit */
    const BurstDataFile *evaluate; /* the file to evaluate on; NULL: none */
    int64_t evaluate_every; /* steps between evaluations, in addition to that after the last step; 0: none */
    int64_t evaluate_steps; /* batches of each; 0: all of the file */
    int64_t separator; /* token that ends a document, -1: none */
    int64_t predict;   /* labels are the token so many positions ahead; 0: 1 */
    int64_t steps, batch, seed, checkpoint_every, warmup;
    const char *checkpoint;
    /* Hugging Face folders to start from and to write after the last step; NULL: none */
    const char *weights, *export_dir;
    int export_dtype;                 /* BURST_BF16, BURST_F32 */
    double lr, lr_end, beta1, beta2, eps, decay, clip;
    int schedule;        /* BURST_SCHEDULE_...: how lr becomes lr_end */
    int64_t decay_steps; /* WSD: of the last so many steps */
    int optimizer;       /* BURST_OPTIMIZER_... */
    double momentum;     /* of Muon */
} BurstTrain;
typedef struct BurstStep {
    double loss; /* mean over counted tokens of the global batch */
    double tokens;
    double norm;
} BurstStep;
typedef struct BurstPlan {
    int abi;
    const char *source;          /* "lab.topo model.burst" */
    int world, data, group;      /* data groups of `group` ranks each share one sequence */
    int shard_ranks;             /* consecutive ranks that share the weights; 0: all */
    int tensor;                  /* neighbouring ranks that have a chunk together, and split layers; 0: one */
    /* of the cluster; ranks are split evenly in order for the progress line only */
    int nodes;
    int64_t sequence, max_tokens;
    int64_t balanced;            /* tokens of a run whose chunk is decided for each batch; 0: none is */
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, tied;
    const char *family; /* what it is to Hugging Face, model_type; NULL: the first that fits */
    double norm_eps;
    BurstRope rope;
    const BurstRope *ropes; /* of which the first is rope; NULL: it is every layer's */
    const int *layer_rope; /* [layers] -> ropes */
    double scale[BURST_SCALES]; /* 0: none */
    BurstLayer layer;
    /* of multi-head latent attention; latent 0: none, and values are as wide as keys. rope.rotary has how
     * many elements of a key all heads share */
    int value_dim, latent, query_latent;
    double softcap;                /* of attention's scores; 0: none */
    const BurstMask *const *masks; /* NULL: not told */
    const int *layer_mask;         /* [layers] -> masks */
    const BurstUnit *units;
    int unit_rows;
    /* names of the per-token tables the masks use: "doc" is filled from separators */
    const char *const *tables;
    int table_count;
    BurstTrain train;
    double predicted_seconds;    /* of one step */
    double flops;                /* of one step on all ranks, backward counted twice forward */
    /* a device's inside its node, and a network card's, each way, bytes/s; 0: not said */
    double link_bandwidth, nic_bandwidth;
    bool on_gpu;                 /* of the CUDA backend */
    bool places_gradients;       /* start says where gradients lie: BurstWeights.grad */
    size_t arena_bytes;          /* a rank */
    size_t offloaded_bytes;      /* a rank; of a device's values, pinned on the host beside the arena */
    double peak_flops;           /* of a rank by its data sheet, flop/s: what MFU is a share of; 0: unknown */
    double matmul_flops;         /* its rate of matrix products, flop/s */
    uint64_t text_hash;          /* of the emitted text: ranks compare it before they begin; 0: not told */
    size_t predicted_memory;     /* where the rank computes: arena_bytes, or a device's in all */
    /* [BURST_ROW_COUNT] seconds of a step, by rows of the table of parts; NULL: none */
    const double *predicted_rows;
    const BurstForecast *forecast;    /* the predicted step laid out; NULL: none */
    const char *const *channel_names; /* [channels] what travels there: "kv_lane"; NULL: nothing */
    int channels;
    int64_t (*tokens_of)(int chunk);
    int64_t (*position)(int chunk, int64_t i);
    int (*chunk_of)(int rank);   /* NULL: rank % group; the same of ranks that have it together */
    size_t state_bytes;
    /* Carves this rank's buffers; state is zeroed memory of state_bytes. */
    int (*start)(BurstCtx *c, void *state, BurstWeights *w);
    /* One optimizer step over `train.batch` sequences: zero gradients to updated weights. */
    int (*step)(BurstCtx *c, void *state, BurstWeights *w, int64_t step, BurstStep *result);
    /* The same without the update, and without a norm: the loss of a batch. */
    int (*evaluate)(BurstCtx *c, void *state, BurstWeights *w, int64_t step, BurstStep *result);
    /* Where weights live elsewhere (on a device): brings w up to date, before a checkpoint is written.
     * NULL: they are here. */
    int (*save)(BurstCtx *c, void *state, BurstWeights *w);
    /* Forward and backward of one sequence, gradients added to the shards by all but the first of a step;
     * scale = 1 / counted tokens. */
    int (*sequence_step)(BurstCtx *c, void *state, BurstWeights *w, const BurstBatch *b, double scale,
                         double *loss_sum);
    /* Attention alone, for tests and benchmarks: mask m; q, o, d_o, dq [H][n][d]; k, v, dk, dv [Hk][n][d]. */
    int (*attention_forward)(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q,
                             const float *k, const float *v, float *o, float *lse);
    int (*attention_backward)(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q,
                              const float *k, const float *v, const float *o, const float *lse,
                              const float *d_o, float *dq, float *dk, float *dv);
} BurstPlan;

/* ---- data ---- */
/* Reads sequence `index` of step `step` for this rank (positions from the plan): number step * batch + index
 * of all sequences, of a file by the files' shares, in an order drawn from the seed each epoch; resumable by
 * construction. */
int burst_batch_read(BurstCtx *c, const BurstPlan *p, int64_t step, int64_t index, BurstBatch *out);

/* ---- running ---- */
/* The main of an emitted program: options, launch (alone: one process a rank; under mpirun, torchrun,
 * srun: takes its place), data, steps, checkpoints, progress line, metrics. Returns the exit code: 0, 1
 * (failed), 2 (usage), 3 (no device). */
int burst_main(const BurstPlan *p, int argc, char **argv);
/* Runs body on every rank of the plan as burst_main does, without the training loop: for tests and
 * benchmarks. */
int burst_launch(const BurstPlan *p, int argc, char **argv,
                 int (*body)(BurstCtx *c, const BurstPlan *p, void *arg), void *arg);

/* ---- pruning: which operations of the schedule the mask leaves (one trace per mask and direction) ---- */
/* The emitted trace function replays the schedule of one rank; the runtime replays all ranks, so that both
 * sides of a transfer decide alike without talking. */
typedef struct BurstTrace BurstTrace;
void burst_trace_compute(BurstTrace *t, int q_chunk, int kv_chunk); /* attend or grad */
void burst_trace_pass(BurstTrace *t, int tensor, int chunk, int to); /* to: rank in the group */
typedef void (*burst_trace_fn)(BurstTrace *t, int me);
/* [ops] of this rank, in program order. sent, received: which tiles of the chunk; NULL: transfers carry
 * whole chunks. */
typedef struct BurstLive {
    int ops;
    uint8_t *compute, *send, *recv;
    BurstTileRanges *sent, *received;
} BurstLive;
/* keys: chunks of keys, a multiple of group: rank r owns those that are r modulo it. pair_live[q_chunk *
 * keys + kv_chunk]; pair_tiles likewise, of live pairs as burst_pair_tiles has them, or NULL: whole chunks
 * travel. out's arrays are made for at most max_ops. */
int burst_live_make(BurstCtx *c, int max_ops, BurstLive *out);
int burst_live_make_ranges(BurstCtx *c, BurstLive *out); /* after it, where transfers carry ranges */
int burst_live_fill(BurstCtx *c, burst_trace_fn trace, int group, int keys, int me, bool backward,
                    const uint8_t *pair_live, const BurstPairTiles *pair_tiles, BurstLive *out);

#ifdef __cplusplus
}
#endif
#endif
