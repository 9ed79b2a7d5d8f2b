/* burst.h: the attention of a plan inside another program. `burstc CLUSTER MODEL -o plan.so` (or plan.a)
 * makes a plan; docs/library.md has a complete example.
 *
 * Every rank of a group opens the same plan, and every call marked "collective" is made by all ranks in
 * the same order, from one thread of a rank at a time. Functions return BURST_SUCCESS or a negative status;
 * burst_error() then has the reason. After a collective call has failed on any rank, all later ones of that
 * plan fail with the same reason. A plan has no global state: any number may be open in a process, also as
 * several ranks of one group. Attention allocates nothing, and burst_move nothing either. A process that was
 * forked after a plan was opened may close its copy, and calls nothing else of it: the plan goes on in the
 * one that opened it.
 *
 * Arrays are dense, rows of this rank one after the other: q and dQ [rows][heads][head_dim]; k and dK
 * [rows][kv_heads][head_dim]; v and dV [rows][kv_heads][value_dim]; o and dO [rows][heads][value_dim]; lse
 * [heads][rows], natural logarithms. value_dim is head_dim where the model has no other. On CPUs elements
 * are fp32; a plan for GPUs has bf16 (lse, sinks and their gradients: fp32).
 */
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
    BURST_BAD_ARGUMENT = -1, /* of this call */
    BURST_NO_MEMORY = -2,
    BURST_BAD_PLAN = -3,     /* no plan, one of another burstc, or one that contradicts itself */
    BURST_PEERS = -4,        /* another rank failed, was lost, or called something else */
    BURST_NO_DEVICE = -5     /* no GPU, or not one that the plan is for */
} BurstStatus;

/* The ranks that attend together. all_gather: `bytes` from each rank, in the order of ranks, at every one;
 * returns 0, or anything else after an error. It is called by burst_plan_open alone. */
typedef struct BurstGroup {
    int rank, size;
    int (*all_gather)(void *context, const void *in, void *out, size_t bytes);
    void *context;
} BurstGroup;

typedef struct BurstPlan BurstPlan;
typedef struct BurstBatch BurstBatch;
typedef struct BurstLibrary BurstLibrary; /* a plan that was linked into the program */

/* ---- plans ---- */
/* Collective. path: of plan.so. After an error *plan is NULL, and burst_error(NULL) has the reason. */
int burst_plan_open(const char *path, const BurstGroup *group, BurstPlan **plan);
/* The same of attention.a, which the program was linked with: BURST_LINKED(attention). */
int burst_plan_use(const BurstLibrary *library, const BurstGroup *group, BurstPlan **plan);
#define BURST_LINKED(name) (&burst_library_##name)
#define BURST_DECLARE(name) extern const BurstLibrary burst_library_##name
/* Ends what the plan has open. Its batches must have been closed. Not collective. */
void burst_plan_close(BurstPlan *plan);
/* Of a rank that cannot make the call which the others make: theirs end with this reason. */
void burst_plan_abort(BurstPlan *plan, const char *reason);

typedef struct BurstInfo {
    int ranks, heads, kv_heads, head_dim, value_dim;
    int64_t tokens;                  /* of a batch, on all ranks together */
    int masks, tables;
    const char *const *mask_name;    /* [masks] as the model has them */
    const char *const *table_name;   /* [tables] per-token tables that masks read */
    size_t element_bytes;            /* of q, k, v, o and their gradients: 4 fp32, 2 bf16 */
    size_t align;                    /* of workspace and a batch's memory: bytes */
    const char *target;              /* "c", "cuda" */
    const char *layout;              /* what was chosen, as a model has it */
    uint64_t hash;                   /* of the plan's text */
} BurstInfo;
const BurstInfo *burst_plan_info(const BurstPlan *plan);

typedef enum BurstSpace {
    BURST_WORKSPACE, /* of a call of attention: the caller's, undefined between calls; aligned to `align` */
    BURST_BATCH_MEMORY, /* of burst_batch_load: the caller's, until the batch is closed; 0 on CPUs */
    BURST_HOST_MEMORY, /* of each batch, its own */
    BURST_PEER_MEMORY /* that the plan owns on its device, for its peers to write */
} BurstSpace;
size_t burst_plan_bytes(const BurstPlan *plan, BurstSpace space);

/* ---- batches ---- */
/* Documents packed without padding: document i has the tokens from cu_seqlens[i] to cu_seqlens[i + 1], of
 * documents + 1 numbers from 0 to the plan's tokens, never falling. cu_seqlens NULL: one document.
 * tables[t]: values by token of the plan's t-th table; NULL, all or one: "doc", "first", "last" and
 * "position" (document of a token, that document's first and last token, the token's position in it) are
 * made from cu_seqlens; others must be given. Works on the host, without the other ranks; what is given here
 * must be the same on all of them. */
int burst_batch_make(BurstPlan *plan, const int32_t *cu_seqlens, int documents, const int32_t *const *tables,
                     BurstBatch **batch);
/* Makes a batch ready for calls in `stream`'s order (a cudaStream_t; on CPUs NULL). memory: of
 * BURST_BATCH_MEMORY bytes. */
int burst_batch_load(BurstBatch *batch, void *memory, void *stream);
void burst_batch_close(BurstBatch *batch);

/* Which tokens a rank has. BALANCED: those that it attends for. CONTIGUOUS: the tokens from
 * rank * tokens / ranks on. REPLICATED: all of them, on every rank. */
typedef enum BurstLayout { BURST_BALANCED, BURST_CONTIGUOUS, BURST_REPLICATED } BurstLayout;
/* How many rows this rank has. row [rows]: the token of each; position [rows]: its number inside its
 * document; both may be NULL. */
int64_t burst_batch_rows(const BurstBatch *batch, BurstLayout layout, int32_t *row, int32_t *position);

/* ---- calls; all collective ----
 * Calls with one batch follow each other on the device: in one stream, or in streams that wait for each
 * other. */
/* o and lse of BALANCED rows. sinks [heads]: a learned score that takes weight and has no value, or NULL;
 * lse is without it. scale: of q k, above 0; 0: 1 / sqrt(head_dim). A row that sees no key has o = 0 and
 * lse = -inf. */
int burst_attention_forward(BurstBatch *batch, int mask, const void *q, const void *k, const void *v,
                            const float *sinks, float scale, void *o, float *lse, void *workspace,
                            void *stream);
/* The gradients, from d_o and, where it is not NULL, d_lse [heads][rows]; sinks, scale, o, lse: of forward.
 * dsinks [heads]: of this rank's rows alone; NULL without sinks. */
int burst_attention_backward(BurstBatch *batch, int mask, const void *q, const void *k, const void *v,
                             const float *sinks, float scale, const void *o, const float *lse,
                             const void *d_o, const float *d_lse, void *dq, void *dk, void *dv, float *dsinks,
                             void *workspace, void *stream);
/* Rows of any width from one layout to another. From REPLICATED is not a transfer: each rank takes its own.
 */
int burst_move(BurstBatch *batch, BurstLayout from, BurstLayout to, const void *in, void *out,
               size_t row_bytes, void *stream);

/* ---- errors ---- */
/* Of the plan's last failure; of NULL: of this thread's last burst_plan_open, or call that was given a NULL
 * plan or batch (BURST_BAD_ARGUMENT; burst_plan_info: NULL, burst_plan_bytes: 0). Never NULL. */
const char *burst_error(const BurstPlan *plan);

#ifdef __cplusplus
}
#endif
#endif
