/* burst.h: a plan's attention called from another program. `burstc CLUSTER MODEL -o plan.so` (or plan.a)
 * makes a plan; docs/library.md has a complete example.
 *
 * All ranks of a group open the same plan. All ranks make every call marked "collective", in the same order,
 * and from one thread of a rank at a time. Functions return BURST_SUCCESS or a negative status;
 * burst_error() then returns the reason. After a collective call has failed on any rank, all later calls
 * with that plan fail with the same reason. A plan has no global state: a process may have any number of
 * plans open, also for several ranks of one group. Attention and burst_move allocate nothing. A process
 * forked after a plan was opened may close its copy but must not call anything else with it; the plan stays
 * usable in the process that opened it.
 *
 * Arrays are dense, with this rank's rows one after the other: q and dQ [rows][heads][head_dim]; k and dK
 * [rows][kv_heads][head_dim]; v and dV [rows][kv_heads][value_dim]; o and dO [rows][heads][value_dim]; lse
 * [heads][rows], natural logarithms. value_dim is head_dim unless the model sets it. Elements are fp32 on
 * CPUs and bf16 in a plan for GPUs (lse, sinks and their gradients: fp32). */
#ifndef BURST_H
#define BURST_H

#include <stddef.h>
#include <stdint.h>

#define BURST_ABI 1

#ifdef __cplusplus
extern "C" {
#endif

typedef enum BurstStatus {
    BURST_SUCCESS = 0,
    BURST_BAD_ARGUMENT = -1, /* an argument of this call */
    BURST_NO_MEMORY = -2,
    BURST_BAD_PLAN = -3,     /* not a plan, made by another burstc, or inconsistent */
    BURST_PEERS = -4,        /* another rank failed, was lost, or made another call */
    BURST_NO_DEVICE = -5     /* no GPU, or one that the plan was not made for */
} BurstStatus;

/* The ranks that attend together. all_gather collects `bytes` bytes from each rank, in the order of ranks,
 * on every rank, and returns 0, or nonzero after an error. Only burst_plan_open calls it. */
typedef struct BurstGroup {
    int rank, size;
    int (*all_gather)(void *context, const void *in, void *out, size_t bytes);
    void *context;
} BurstGroup;

typedef struct BurstPlan BurstPlan;
typedef struct BurstBatch BurstBatch;
typedef struct BurstLibrary BurstLibrary; /* a plan linked into the program */

/* ---- plans ---- */
/* Collective. path: plan.so. After an error *plan is NULL and burst_error(NULL) returns the reason. */
int burst_plan_open(const char *path, const BurstGroup *group, BurstPlan **plan);
/* The same for attention.a linked into the program: BURST_LINKED(attention). */
int burst_plan_use(const BurstLibrary *library, const BurstGroup *group, BurstPlan **plan);
#define BURST_LINKED(name) (&burst_library_##name)
#define BURST_DECLARE(name) extern const BurstLibrary burst_library_##name
/* Frees what the plan holds. Its batches must have been closed. Not collective. */
void burst_plan_close(BurstPlan *plan);
/* Called by a rank that cannot make the others' next collective call: theirs fail with this reason. */
void burst_plan_abort(BurstPlan *plan, const char *reason);

typedef struct BurstInfo {
    int ranks, heads, kv_heads, head_dim, value_dim;
    int64_t tokens;                  /* of a batch, on all ranks together */
    int masks, tables;
    const char *const *mask_name;    /* [masks] as in the model */
    const char *const *table_name;   /* [tables] per-token tables that masks read */
    size_t element_bytes;            /* element size of q, k, v, o and their gradients: 4 (fp32), 2 (bf16) */
    size_t align;                    /* alignment of the workspace and of a batch's memory, bytes */
    const char *target;              /* "c", "cuda" */
    const char *layout;              /* the settings that were chosen, in the model's syntax */
    uint64_t hash;                   /* of the plan's text */
} BurstInfo;
const BurstInfo *burst_plan_info(const BurstPlan *plan);

typedef enum BurstSpace {
    /* workspace of an attention call, from the caller: undefined between calls, aligned to `align` */
    BURST_WORKSPACE,
    /* memory for burst_batch_load, from the caller until the batch is closed; 0 on CPUs */
    BURST_BATCH_MEMORY,
    BURST_HOST_MEMORY, /* allocated by each batch */
    BURST_PEER_MEMORY /* allocated by the plan on its device, written by peers */
} BurstSpace;
size_t burst_plan_bytes(const BurstPlan *plan, BurstSpace space);

/* ---- batches ---- */
/* Documents packed without padding: document i has the tokens from cu_seqlens[i] to cu_seqlens[i + 1].
 * cu_seqlens has documents + 1 numbers that rise from 0 to the plan's tokens; equal neighbours are allowed.
 * NULL: one document. tables[t]: the values of the plan's t-th table by token. An entry, or tables itself,
 * may be NULL for "doc", "first", "last" and "position" (a token's document, the document's first and last
 * token, the token's position in it), which are then computed from cu_seqlens; other tables must be given.
 * Runs on the host without the other ranks; all ranks must pass the same values. */
int burst_batch_make(BurstPlan *plan, const int32_t *cu_seqlens, int documents, const int32_t *const *tables,
                     BurstBatch **batch);
/* Prepares a batch for calls, in the order of `stream` (a cudaStream_t; NULL on CPUs). memory:
 * BURST_BATCH_MEMORY bytes. */
int burst_batch_load(BurstBatch *batch, void *memory, void *stream);
void burst_batch_close(BurstBatch *batch);

/* Which tokens a rank has. BALANCED: those that it attends for. CONTIGUOUS: a contiguous share, starting at
 * token rank * tokens / ranks. REPLICATED: all, on every rank. */
typedef enum BurstLayout { BURST_BALANCED, BURST_CONTIGUOUS, BURST_REPLICATED } BurstLayout;
/* Returns the number of this rank's rows. row [rows]: the token of each row; position [rows]: its position
 * in its document. Both may be NULL. */
int64_t burst_batch_rows(const BurstBatch *batch, BurstLayout layout, int32_t *row, int32_t *position);

/* ---- calls; all collective ----
 * Calls with one batch must be ordered on the device: in one stream, or in streams that wait for each
 * other. */
/* Computes o and lse of the BALANCED rows. sinks [heads]: per head, a learned score that takes weight and
 * has no value, or NULL; lse excludes it. scale: factor of q k, positive; 0: 1 / sqrt(head_dim). A row that
 * sees no key has o = 0 and lse = -inf. */
int burst_attention_forward(BurstBatch *batch, int mask, const void *q, const void *k, const void *v,
                            const float *sinks, float scale, void *o, float *lse, void *workspace,
                            void *stream);
/* Computes the gradients from d_o and d_lse [heads][rows] (NULL: none). sinks, scale, o, lse: as in forward.
 * dsinks [heads]: from this rank's rows only; NULL without sinks. */
int burst_attention_backward(BurstBatch *batch, int mask, const void *q, const void *k, const void *v,
                             const float *sinks, float scale, const void *o, const float *lse,
                             const void *d_o, const float *d_lse, void *dq, void *dk, void *dv, float *dsinks,
                             void *workspace, void *stream);
/* Moves rows of any width from one layout to another. From REPLICATED nothing is transferred: each rank
 * copies its own rows. */
int burst_move(BurstBatch *batch, BurstLayout from, BurstLayout to, const void *in, void *out,
               size_t row_bytes, void *stream);

/* ---- errors ---- */
/* The reason of the plan's last failure. NULL: of this thread's last failed burst_plan_open, or of its last
 * call with a NULL plan or batch (BURST_BAD_ARGUMENT; burst_plan_info: NULL, burst_plan_bytes: 0). Never
 * returns NULL. */
const char *burst_error(const BurstPlan *plan);

#ifdef __cplusplus
}
#endif
#endif
