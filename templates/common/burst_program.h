/* burst_program.h: the begin of a program's state, on either target: sizes that follow from the sizes it
 * defines, and declarations of what it defines at its end. */
#ifndef BURST_PROGRAM_H
#define BURST_PROGRAM_H

#include "burst_head_chunks.h"
#include "burst_tile.h"
#include "burst_mask.h"

#include <math.h>

#ifdef PLAN_LIBRARY
#define PLAN_SCALE (s->score_scale) /* the caller's scale */
#elif defined PLAN_ATTENTION_SCALE
#define PLAN_SCALE ((float)PLAN_ATTENTION_SCALE)
#else
#define PLAN_SCALE (1 / sqrtf(PLAN_HEAD_DIM))
#endif
#ifndef PLAN_VALUE_DIM
#define PLAN_VALUE_DIM PLAN_HEAD_DIM /* of values and outputs */
#endif

#ifndef PLAN_AT_ONCE
#define PLAN_AT_ONCE 0 /* forward launches once per chunk of keys */
#endif
#ifndef PLAN_IN_GROUPS
#define PLAN_IN_GROUPS 0 /* neither has it launches for several chunks */
#endif
#ifndef PLAN_GRADS_AT_ONCE
#define PLAN_GRADS_AT_ONCE 0 /* backward launches once per chunk of keys */
#endif
#ifndef PLAN_PIECES
#define PLAN_PIECES 1 /* of a rank's keys */
#endif
#define PLAN_KEYS (PLAN_GROUP * PLAN_PIECES) /* chunks of keys */
#ifndef PLAN_EXPERT_GROUPS
#define PLAN_EXPERT_GROUPS 0 /* units of weights that a layer's experts are in; 0: the layer's */
#endif
#ifndef PLAN_HEAD_PIECES
#define PLAN_HEAD_PIECES 1 /* in which all-to-alls and attention take a share's query heads */
#endif

/* Defined at the program's end. */
extern const BurstPlan burst_plan;
extern const BurstMask *const plan_masks[PLAN_MASKS];
static int64_t plan_tokens(int chunk);
static int64_t plan_position(int chunk, int64_t i);
static int plan_chunk_of(int rank);
static int plan_group_of(int rank);
static int plan_rank_of(int group, int chunk);

#ifdef PLAN_INFER
/* The running prompt. */
typedef struct PlanInfer {
    bool decodes;        /* a token after it is running */
#ifdef PLAN_SLICES
    bool sliced; /* that is multiplied by each rank's slices; prompts gather them */
#ifdef PLAN_SLICE_EXPERTS
    BurstExperts experts; /* whose slices the rank has */
#endif
#endif
    int64_t prompt;      /* its tokens */
    int64_t rows;        /* this rank's of its length, which are kept first */
    int64_t more;        /* tokens that followed, before the running one */
    const int32_t *own;  /* the rank's tokens of it */
    bool ends;           /* a prompt is running: in the last layer its last token goes on alone */
    int64_t end;         /* that token among this rank's; -1: another rank has it */
    int64_t last;        /* the rank's own token whose logits are needed; -1: another rank's */
    int32_t *found;      /* the token with the greatest, in the memory that computes */
    int32_t next;        /* the same on the host */
    BurstPosition at[1]; /* of the running token */
    int32_t token[1];
    int64_t first, kept; /* of a prompt's rows here, those that the running layer keeps */
    const BurstAct *k, *v; /* what the running layer keeps: keys and values, or latents and shared elements */
#ifdef PLAN_KEEPS_LATENTS
    const BurstAct *weight; /* of the running layer's keys and values from latents */
#endif
    float *parts;          /* of outputs of the running token */
#ifdef PLAN_SCAN_COLUMNS
    BurstAct *conv; /* of the running layer: rows before its convolution, the last token's the last */
    float *state;   /* and its state after the last token */
#endif
} PlanInfer;
#endif

#ifdef PLAN_SCAN_PIECES
/* Pieces of the sequence in its order, and how many each chunk has. */
typedef struct PlanScan {
    BurstSequencePiece piece[PLAN_GROUP * PLAN_SCAN_PIECES];
    int pieces_of[PLAN_GROUP];
    int64_t rows[PLAN_SCAN_PIECES + 1];                /* where this rank's own begin */
    int32_t slot[PLAN_GROUP * PLAN_SCAN_PIECES], number[PLAN_SCAN_PIECES];
    BurstFold fold;
    BurstOrder order; /* of their transfers, on a device */
} PlanScan;
#endif

enum { PLAN_PARTS = 4 };
/* The two parts in which a token's keys and values travel. */
#ifdef PLAN_LATENTS
#include "burst_latents.h"
enum { PLAN_KEY_PART = PLAN_LATENT, PLAN_VALUE_PART = PLAN_SHARED };
#else
enum { PLAN_KEY_PART = PLAN_HEAD_DIM, PLAN_VALUE_PART = PLAN_VALUE_DIM };
#endif

#endif
