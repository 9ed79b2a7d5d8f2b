/* burst_plan.h: the plan of an emitted program: its weights, optimizer, data and entry points. */
#ifndef BURST_PLAN_H
#define BURST_PLAN_H

#include "burst_context.h"
#include "burst_model.h"
#include "burst_parts.h"
#include "burst_range.h"
#include "burst_train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BURST_RT_ABI 28 /* raised when programs emitted by an older burstc no longer fit */

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
/* Updates param, m and v in place from grad * grad_scale; decoupled decay if `decays`. */
void burst_adamw(const BurstAdamW *o, int64_t count, bool decays, float *param, const float *grad, float *m,
                 float *v);
double burst_sum_squares(int64_t count, const float *x);
/* Orthogonalises matrix [rows][cols], or its columns in `parts` adjacent parts, by Muon's Newton-Schulz
 * iterations. scratch: burst_muon_scratch floats. */
void burst_newton_schulz(int rows, int cols, int parts, float *matrix, float *scratch);
/* to the nearest, ties to even */
void burst_round_bf16(int64_t count, const float *x, uint16_t *y);
void burst_keep_bf16(int64_t count, float *x); /* the same, in place as floats */

/* ---- weights: each unit is sharded in contiguous equal parts (ZeRO-3), over all ranks or over the plan's
 * shard_ranks: consecutive ranks, of which other groups hold replicas (AMSP, arXiv 2311.00257). Neighbouring
 * ranks may split a layer's tensors by rows or columns (Megatron-LM, arXiv 1909.08053); such a unit is
 * sharded over the ranks that have the same part. All of them hold the tensors that are not split, and
 * neighbours may hold the same part.
 * A plan with slices continues prompts: a shard is the unit's norms, biases and small matrices, which each
 * rank has, and then the rank's slice of each larger matrix, by which it multiplies later tokens. A gathered
 * unit has the same order, with all ranks' slices of a matrix one after the other ---- */
/* the ranks that share all weights, in the order of the parts of a unit that is not split */
BurstGroup burst_shard_group(const BurstCtx *c);
/* those of them that share a tensor rank's part of a unit */
BurstGroup burst_unit_group(const BurstCtx *c, int unit);
BurstGroup burst_tensor_group(const BurstCtx *c);  /* the ranks that split layers */
BurstGroup burst_replica_group(const BurstCtx *c); /* the ranks that hold the same parts as this one */
/* KEY: by key heads, if there are fewer than tensor ranks: neighbours have the same */
enum { BURST_WHOLE, BURST_BY_ROWS, BURST_BY_COLS, BURST_BY_KEY_ROWS, BURST_BY_KEY_COLS, BURST_BY_SECTIONS };
typedef struct BurstTensor {
    const char *name; /* within the unit, as in Hugging Face: "self_attn.q_proj.weight" */
    int64_t rows, cols;
    int64_t offset;   /* elements from the start of the unit of files */
    float init_std;   /* 0: ones (norms); -1: zeros (biases); both are vectors without decay */
    /* over tensor ranks: BURST_WHOLE, .... rows, cols and offset describe the whole tensor, as in files */
    int split;
} BurstTensor;
typedef struct BurstUnit {
    const char *name;      /* "model.embed_tokens", "model.layers.%d", "head" */
    int64_t elements;      /* without padding */
    int64_t shard;         /* elements a rank holds: ceil(a tensor rank's elements / ranks that share them) */
    int tensors;
    const BurstTensor *tensor;
    /* neighbouring layers of one kind; 1 for other units. Units are numbered in table order, repeats one
     * after the other: the embedding, layers, the head, each layer's first group of experts, each one's
     * second */
    int repeat;
} BurstUnit;
/* A unit of a plan with slices: elements at the start of each shard, which all ranks have; and for each
 * tensor the elements of a rank's slice of the matrix that begins with it. 0: each rank has the tensor
 * whole; -1: it is in the matrix of the tensor before it. */
typedef struct BurstSlices {
    int64_t whole;
    const int64_t *slice;
} BurstSlices;
typedef struct BurstWeights {
    int units;               /* repeats included */
    float **param, **grad, **m, **v; /* [units] -> [shard] in the arena */
    /* [units] -> [shard]: a device's gradients, kept in bf16; NULL: they are in `grad` */
    uint16_t **grad_bf16;
} BurstWeights;
/* The tokens of a chunk of n that are the rank's own outside attention and feed-forward: the first, and how
 * many. */
/* each: tokens of every rank before the last that has any */
typedef struct BurstOwn { int64_t first, tokens, each; } BurstOwn;
BurstOwn burst_own_tokens(const struct BurstPlan *p, int rank, int64_t n);
int burst_unit_count(const struct BurstPlan *p);
/* Files have a layer's tensors in one unit, also where its experts are in units of their own: the unit of
 * files, how many there are, the elements of one, and the n-th unit that it consists of; -1: there are no
 * more. */
int burst_whole_unit(const struct BurstPlan *p, int unit);
int burst_whole_count(const struct BurstPlan *p);
int64_t burst_whole_elements(const struct BurstPlan *p, int whole);
int burst_part_of_whole(const struct BurstPlan *p, int whole, int n);
const BurstUnit *burst_unit(const struct BurstPlan *p, int unit); /* its row of the table */
/* Takes the shards from the arena, one kind after the other (gradients last, unless the program places
 * them), and fills param from the plan's seed: element i of unit u is the same for every world size. */
int burst_weights_make(BurstCtx *c, const struct BurstPlan *p, BurstWeights *w);
size_t burst_weights_bytes(const struct BurstPlan *p); /* in the arena */
/* The optimizer in parts, on the rank's share of the host's cores: first the norm and AdamW's numbers of
 * this step, then each unit. For a unit, o NULL updates nothing, and bf16 (may be NULL) [shard] receives the
 * rounded parameters. Gradients are kept. */
int burst_update_begin(BurstCtx *c, const struct BurstPlan *p, const BurstWeights *w, int64_t step,
                       double *norm, BurstAdamW *o);
void burst_update_unit(BurstCtx *c, const struct BurstPlan *p, const BurstWeights *w, int unit,
                       const BurstAdamW *o, uint16_t *bf16);
/* Elements of a tensor that are adjacent both in the rank's shard of its unit and in the whole tensor:
 * `count`, from shard[at] and from tensor element `from` on. burst_next_run advances to the next run,
 * starting from {0}; false: no more. */
typedef struct BurstRun { int64_t at, from, count; } BurstRun;
bool burst_next_run(const struct BurstPlan *p, int rank, const BurstUnit *u, const BurstTensor *t,
                    BurstRun *r);
/* A matrix of a plan with slices: each rank has `elements` of it, in its shard from `at` on; gathered, those
 * of all ranks are in the unit from `gathered` on. burst_next_slice advances to the unit's next matrix,
 * starting from {0}; false: no more. */
typedef struct BurstSlice {
    int64_t at, gathered, elements;
    int tensor;
} BurstSlice;
const BurstSlices *burst_slices(const struct BurstPlan *p, const BurstUnit *u);
bool burst_next_slice(const struct BurstPlan *p, const BurstUnit *u, int ranks, BurstSlice *x);
/* Sums the part of the shard that several tensor ranks hold over these ranks. */
int burst_sum_copies(BurstCtx *c, int unit, float *shard);
double burst_learning_rate(const struct BurstPlan *p, int64_t step);

/* Corrections of all routers, [layers][experts], which each rank has (arXiv 2408.15664). Reads them from the
 * shards of all ranks: collective. */
int burst_read_corrections(BurstCtx *c, const struct BurstPlan *p, const BurstWeights *w, float *corrections);
/* Moves them by the plan's rate. choices: [layers][experts] of all ranks. */
void burst_move_corrections(const struct BurstPlan *p, const double *choices, float *corrections);
/* Puts them into this rank's shards; at: [units]. */
void burst_write_corrections(BurstCtx *c, const struct BurstPlan *p, const float *corrections,
                             BurstWeights *w);
/* Calls a function for each run of corrections that this rank's shards have, until one fails. from: the run
 * in [layers][experts]. */
typedef int BurstCorrectionRun(void *with, int unit, const BurstRun *r, int64_t from);
int burst_each_correction(BurstCtx *c, const struct BurstPlan *p, BurstCorrectionRun *run, void *with);

/* ---- a rank's part of one sequence of the batch ---- */
typedef struct BurstBatch {
    /* [n], at the chunk's positions (tables.position, if any). label: the token train.predict positions
     * ahead; -1 if the document ends before */
    const int32_t *token, *label;
    const float *weight;          /* [n] */
    BurstTables tables;           /* [N] each; "doc": number of the document */
} BurstBatch;

/* ---- the plan: constants and entry points of an emitted program ---- */
enum { BURST_BF16, BURST_F32 }; /* type of written weights */
typedef struct BurstTrain {
    const BurstDataFile *data; /* [data_files]; none: random tokens */
    int data_files;
    int packed;                    /* documents are packed into sequences by best fit */
    const BurstDataFile *evaluate; /* the file to evaluate on; NULL: none */
    /* steps between evaluations, in addition to the one after the last step; 0: none */
    int64_t evaluate_every;
    int64_t evaluate_steps; /* batches per evaluation; 0: the whole file */
    int64_t separator; /* token that ends a document; -1: none */
    int64_t predict;   /* labels are the token this many positions ahead; 0: 1 */
    int64_t steps, batch, seed, checkpoint_every, warmup;
    const char *checkpoint;
    /* Hugging Face folders to start from and to write after the last step; NULL: none */
    const char *weights, *export_dir;
    int export_dtype;                 /* BURST_BF16, BURST_F32 */
    double lr, lr_end, beta1, beta2, eps, decay, clip;
    int schedule;        /* BURST_SCHEDULE_...: the path of lr to lr_end */
    int64_t decay_steps; /* WSD: the last steps, in which lr decays */
    int optimizer;       /* BURST_OPTIMIZER_... */
    double momentum;     /* of Muon */
} BurstTrain;
typedef struct BurstStep {
    double loss; /* mean over counted tokens of the global batch */
    double tokens;
    double norm;
    double balance; /* mean over the batch's sequences of the experts' balance loss */
    /* [layers] choices of the expert that most counted tokens chose, over the mean; 0: no experts; NULL: not
     * counted */
    const double *loads;
} BurstStep;
typedef struct BurstAlone {
    size_t arena_bytes, offloaded_bytes, predicted_memory;
} BurstAlone;
typedef struct BurstPlan {
    int abi;
    const char *source;          /* "lab.topo model.burst" */
    int world, data, group;      /* data groups of `group` ranks each share one sequence */
    int shard_ranks;             /* consecutive ranks that share the weights; 0: all */
    int tensor;                  /* neighbouring ranks that hold the same chunk and split layers; 0: one */
    /* of the cluster; only the progress line divides ranks among them */
    int nodes;
    int64_t sequence, max_tokens;
    int64_t balanced;            /* tokens of a run that is assigned to a chunk for each batch; 0: fixed */
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, tied;
    const char *family; /* Hugging Face's model_type; NULL: the first family that fits */
    double norm_eps;
    BurstRope rope;
    const BurstRope *ropes; /* the first is rope; NULL: all layers use rope */
    const int *layer_rope; /* [layers] -> ropes */
    double scale[BURST_SCALES]; /* 0: none */
    BurstLayer layer;
    BurstExperts experts; /* of layer.experts */
    BurstIndexer indexer; /* of layers whose selection scores with it; heads 0: of none */
    BurstScan scan; /* of layer.scan */
    /* multi-head latent attention; latent 0: none, and values are as wide as keys. rope.rotary: elements of
     * a key that all heads share */
    int value_dim, latent, query_latent;
    double softcap;                /* of attention's scores; 0: none */
    const BurstMask *const *masks; /* NULL: not given */
    const int *layer_mask;         /* [layers] -> masks */
    const BurstUnit *units;
    int unit_rows;
    int expert_groups; /* units that a layer's experts are in; 0: the layer's */
    /* names of the per-token tables that masks use; "doc" is filled from separators */
    const char *const *tables;
    int table_count;
    BurstTrain train;
    double predicted_seconds;    /* of one step */
    double flops;                /* of one step on all ranks; backward counts twice forward */
    /* of a device inside its node and of a network card, each direction, bytes/s; 0: not given */
    double link_bandwidth, nic_bandwidth;
    bool on_gpu;                 /* CUDA backend */
    bool places_gradients;       /* `start` places gradients: BurstWeights.grad */
    size_t arena_bytes;          /* per rank */
    size_t offloaded_bytes;      /* per rank: a device's values, pinned on the host besides the arena */
    double peak_flops;           /* of a rank by its data sheet, FLOP/s, the denominator of MFU; 0: unknown */
    double matmul_flops;         /* its rate of matrix products, FLOP/s */
    uint64_t text_hash;          /* of the emitted text: ranks compare it at start-up; 0: not given */
    size_t predicted_memory;     /* where the rank computes: arena_bytes, or the device's total */
    /* the same of a run that evaluates and does not train; arena_bytes 0: as a run that trains */
    BurstAlone alone;
    bool evaluates_alone; /* the run is one, and these are the plan's sizes */
    /* [BURST_ROW_COUNT] seconds of a step, by rows of the table of parts; NULL: none */
    const double *predicted_rows;
    const BurstForecast *forecast;    /* the predicted step, laid out in time; NULL: none */
    const char *const *channel_names; /* [channels] what travels on each: "kv_lane"; NULL: nothing */
    int channels;
    int64_t (*tokens_of)(int chunk);
    int64_t (*position)(int chunk, int64_t i);
    int (*chunk_of)(int rank);   /* NULL: rank % group; ranks that hold the same chunk have the same number */
    size_t state_bytes;
    /* Places this rank's buffers; state is zeroed memory of state_bytes. */
    int (*start)(BurstCtx *c, void *state, BurstWeights *w);
    /* One optimizer step over `train.batch` sequences, from zero gradients to updated weights. */
    int (*step)(BurstCtx *c, void *state, BurstWeights *w, int64_t step, BurstStep *result);
    /* The loss of a batch: no update and no norm. */
    int (*evaluate)(BurstCtx *c, void *state, BurstWeights *w, int64_t step, BurstStep *result);
    /* Copies the device's weights to w before a checkpoint is written. NULL: they are already there. */
    int (*save)(BurstCtx *c, void *state, BurstWeights *w);
    /* Forward and backward of one sequence. All but the first of a step add to the shards' gradients. scale
     * = 1 / counted tokens. */
    int (*sequence_step)(BurstCtx *c, void *state, BurstWeights *w, const BurstBatch *b, double scale,
                         double *loss_sum);
    /* A program that infers has these in place of `step`: lengths of prompts, rising; most tokens that
     * continue one. */
    const int64_t *lengths;
    int length_count;
    int64_t new_tokens;
    /* Takes a prompt of n tokens, which lengths[length] holds, and the token after it; own: for as many as
     * burst_own_tokens has of max_tokens. */
    int (*prompt)(BurstCtx *c, void *state, int length, const int32_t *token, int64_t n, int32_t *own,
                  int32_t *next);
    int (*token)(BurstCtx *c, void *state, int32_t token,
                 int32_t *next); /* the next one after another token */
    int (*logits)(BurstCtx *c, void *state, float **logits); /* [vocab], of the last of either; not twice */
    const BurstSlices *slices; /* of each row of units; NULL: each rank has an equal part of a unit */
    /* Attention alone, for tests and benchmarks: mask m; q, o, d_o, dq [H][n][d]; k, v, dk, dv [Hk][n][d]. */
    int (*attention_forward)(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q,
                             const float *k, const float *v, float *o, float *lse);
    int (*attention_backward)(BurstCtx *c, void *state, int mask, const BurstTables *t, const float *q,
                              const float *k, const float *v, const float *o, const float *lse,
                              const float *d_o, float *dq, float *dk, float *dv);
} BurstPlan;

/* Whether this run evaluates and does not train. */
bool burst_evaluates_alone(const BurstCtx *c);

/* ---- data ---- */
/* Reads this rank's part of sequence `index` of step `step`: number step * batch + index of all sequences,
 * divided among files by their shares, in an order drawn from the seed each epoch. Any step can be read
 * without the ones before it. */
int burst_batch_read(BurstCtx *c, const BurstPlan *p, int64_t step, int64_t index, BurstBatch *out);

/* ---- running ---- */
/* The main function of an emitted program: options, launch (alone: one process per rank; under mpirun,
 * torchrun or srun: as the rank given by it), data, steps, checkpoints, progress line, metrics. Returns the
 * exit code: 0, 1 (failed), 2 (usage), 3 (no device). */
int burst_main(const BurstPlan *p, int argc, char **argv);
/* Runs body on every rank of the plan as burst_main does, without the training loop: for tests and
 * benchmarks. */
int burst_launch(const BurstPlan *p, int argc, char **argv,
                 int (*body)(BurstCtx *c, const BurstPlan *p, void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
