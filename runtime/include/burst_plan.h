/* burst_plan.h: the plan of an emitted program: its weights, their optimizer, data, and how it runs. */
#ifndef BURST_PLAN_H
#define BURST_PLAN_H

#include "burst_context.h"
#include "burst_model.h"
#include "burst_parts.h"
#include "burst_attend.h"
#include "burst_train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BURST_RT_ABI 22 /* raised whenever an emitted program of an older burstc would no longer fit */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the optimizer on the host ---- */
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
    BurstExperts experts; /* of layer.experts */
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

#ifdef __cplusplus
}
#endif
#endif
