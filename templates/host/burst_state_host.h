/* burst_state_host.h: what a rank of a program on the host holds, and its set-up.
 *
 * The program has defined its sizes (PLAN_...), pools and PlanBuffers. Chunk c is what rank c of the group
 * owns at home. Q stands for queries (in backward for Q, dO, delta and lse), KV for keys and values, dKV
 * for both gradients; each part of a chunk is a message of its own. Chunks that travel live in the slots
 * of a pool, taken in rotation.
 */
#ifndef BURST_STATE_HOST_H
#define BURST_STATE_HOST_H

#include "burst_head_chunks.h"
#include "burst_mask.h"
#include "burst_step_host.h"

#include <math.h>

#ifdef PLAN_LIBRARY
#define PLAN_SCALE (s->score_scale) /* the caller's */
#elif defined PLAN_ATTENTION_SCALE
#define PLAN_SCALE ((float)PLAN_ATTENTION_SCALE)
#else
#define PLAN_SCALE (1 / sqrtf(PLAN_HEAD_DIM))
#endif
#ifndef PLAN_VALUE_DIM
#define PLAN_VALUE_DIM PLAN_HEAD_DIM /* of values and outputs */
#endif
#ifndef PLAN_SOFTCAP
#define PLAN_SOFTCAP 0 /* none */
#endif

#ifndef PLAN_PIECES
#define PLAN_PIECES 1 /* of a rank's keys */
#endif
#define PLAN_KEYS (PLAN_GROUP * PLAN_PIECES) /* chunks of keys */

/* What the program has at its end. */
extern const BurstPlan burst_plan;
extern const BurstMask *const plan_masks[PLAN_MASKS];
static int64_t plan_tokens(int chunk);
static int64_t plan_position(int chunk, int64_t i);
static int plan_chunk_of(int rank);
static int plan_group_of(int rank);
static int plan_rank_of(int group, int chunk);

enum { PLAN_PARTS = 4 };
/* In which parts of chunks are counted. */
typedef float PlanWord;
typedef struct PlanSlot {
    PlanWord *part[PLAN_PARTS];
    int chunk;       /* what it holds */
    bool started;    /* a partial sum: something was added */
    bool pending;    /* a partial sum that arrives and has not been added */
    BurstTileRanges tiles; /* of the chunk: what arrived of it */
    BurstReq arriving[PLAN_PARTS];
    BurstReq leaving[PLAN_CHANNELS][PLAN_PARTS];
} PlanSlot;
typedef struct PlanPool {
    int tensor, slots, uses;
    PlanSlot slot[PLAN_MAX_SLOTS];
} PlanPool;
typedef BurstShards PlanWeights;
/* Of a token's keys and values, the two parts in which they travel. */
#ifdef PLAN_LATENTS
#include "burst_latents.h"
enum { PLAN_KEY_PART = PLAN_LATENT, PLAN_VALUE_PART = PLAN_SHARED };
#else
enum { PLAN_KEY_PART = PLAN_HEAD_DIM, PLAN_VALUE_PART = PLAN_VALUE_DIM };
#endif
/* Floats a token and head of each part of what travels. */
static const int64_t plan_part_width[BURST_TENSORS][PLAN_PARTS] = {
    [BURST_T_Q] = {PLAN_HEAD_DIM, PLAN_VALUE_DIM, 1, 1},
    [BURST_T_KV] = {PLAN_KEY_PART, PLAN_VALUE_PART},
    [BURST_T_O] = {PLAN_VALUE_DIM, 1, 1}, /* o, lse, what rounding took from lse */
    [BURST_T_DQ] = {PLAN_HEAD_DIM},
    [BURST_T_DKV] = {PLAN_KEY_PART, PLAN_VALUE_PART},
};
typedef struct PlanState {
    BurstExec *exec;               /* what runs operations */
    PlanWeights weights;           /* this rank's parameters, gradients and moments */
    const int32_t *token, *label;  /* of the sequence, by this rank's tokens */
    const float *label_weight;
    const BurstPosition *position; /* of this rank's tokens */
#ifdef PLAN_ROPE_TABLE
    const BurstPosition *turns;    /* of these, by which RoPE turns */
#endif
    double scale;                  /* of the loss's gradient */
    int sequence;                  /* how many of the step are done */
    BurstArrival arrival[3];       /* of the units of two visits, and of a tied embedding for the head */
    BurstOrder reduction, tensor;  /* what tensor ranks do among them */
    BurstCopies copies;            /* to and from the host's memory */
#ifdef PLAN_DEVICE_UPDATE
    BurstShards fetched;           /* of the weights, where units of them come to be updated */
    float *fetched_at[3][PLAN_LAYERS + 2]; /* its tables of parameters and moments */
#endif
    /* what an update of units needs of the step; NULL: parameters stay as they are */
    const BurstAdamW *adamw;
    double loss[1];                /* sum over counted tokens */
    int me;     /* chunk of this rank */
    int group;  /* of ranks that share a sequence */
    int64_t n;  /* tokens of the chunk */
    /* of these, this rank's own; of the ranks that have the chunk together, all but the last have `each` */
    int64_t own, each;
    /* of them, the first that are attended again, outputs of the others having been kept; 0: all are
     * attended */
    int64_t again;
    bool adds;  /* sums of the keys' gradients are there: of queries before these */
    bool keys_there; /* and so are keys of all that share heads, with those sums */
    bool goes_on, follows; /* chunks of keys come before these, and after them: of the same queries */
    bool more;  /* queries come after these, which add to the same sums */
    int turn;   /* among these ranks */
    PlanChunkHeads heads; /* that attention has */
    BurstChunk chunk[PLAN_GROUP], key[PLAN_KEYS]; /* of queries, of keys */
    BurstLive live[PLAN_MASKS][2]; /* forward, backward: what the mask leaves of the schedule */
    int mask;                      /* of the attention that runs now */
    const BurstTables *tables;
    PlanSlot home[BURST_TENSORS];
    PlanSlot piece[BURST_TENSORS][PLAN_PIECES]; /* at home too: all but the first */
    PlanSlot *held[BURST_TENSORS][PLAN_KEYS]; /* where a chunk, or this rank's partial sum of it, is */
    PlanPool pool[PLAN_POOLS + 1];
#ifdef PLAN_SHARES
    bool by_heads; /* chunks of the direction that runs: shares of the heads, for all that share them */
    PlanSlot share[BURST_TENSORS]; /* the rank's own of these */
#endif
#ifdef PLAN_LATENTS
    PlanLatents latents;
#endif
    PlanBuffers buffer;
#ifdef PLAN_LIBRARY
    float score_scale; /* of the call */
#endif
} PlanState;

#include "burst_pieces.h"
#include "burst_turns.h"

/* ---- set-up ---- */

/* Positions of every chunk, and the hull of each of their tiles. */
static inline int plan_chunks(BurstCtx *c, PlanState *s)
{
    int64_t *position = s->buffer.positions;
    BurstSide *side = s->buffer.sides;
    s->me = plan_chunk_of(burst_rank(c));
    s->group = plan_group_of(burst_rank(c));
    for (int i = 0; i < PLAN_GROUP; i++) {
        int64_t n = plan_tokens(i);
        int tiles = (int)((n + BURST_TILE - 1) / BURST_TILE);
        for (int64_t j = 0; j < n; j++)
            position[j] = plan_position(i, j);
        burst_sides(position, n, NULL, 0, side);
        s->chunk[i] = (BurstChunk){.tokens = n, .position = position, .side = side, .tiles = tiles};
        position += n;
        side += tiles;
        plan_key_chunks(s, i, &side);
    }
    plan_own_tokens(c, s);
    return BURST_OK;
}

static inline int plan_live(BurstCtx *c, PlanState *s, const BurstTables *tables)
{
#ifdef PLAN_ROPE_TABLE
    const BurstChunk *own = &s->chunk[s->me];
#endif
    BURST_TRY(plan_find_live(c, s, tables));
#ifdef PLAN_ROPE_TABLE
    for (int64_t i = 0; tables && i < own->tokens; i++)
        s->buffer.turns[i] = tables->table[PLAN_ROPE_TABLE][own->position[i]];
    s->turns = s->buffer.turns;
#endif
    return BURST_OK;
}

#ifdef PLAN_QUERY_CHUNKS
typedef struct PlanQueries { BurstChunk chunk[PLAN_QUERY_RANKS]; } PlanQueries;

/* Queries of this rank, and of those that share heads with it, are this chunk of them; all: what they
 * were. */
static inline void plan_take_queries(PlanState *s, int chunk, PlanQueries *all)
{
    BurstSide *side = s->buffer.query_sides;
    for (int i = 0; i < PLAN_QUERY_RANKS; i++) {
        BurstChunk *q = &s->chunk[plan_query_rank(s->me, i)];
        const int64_t first = plan_query_begin(q->tokens, chunk),
                      rows = plan_query_begin(q->tokens, chunk + 1) - first;
        all->chunk[i] = *q;
        burst_sides(q->position + first, rows, PLAN_TABLES ? s->tables : NULL, PLAN_TABLES, side);
        *q = (BurstChunk){.tokens = rows,
                          .position = q->position + first,
                          .side = side,
                          .tiles = (int)((rows + BURST_TILE - 1) / BURST_TILE)};
        side += q->tiles;
    }
}

static inline void plan_put_queries(PlanState *s, const PlanQueries *all)
{
    s->adds = s->more = s->keys_there = s->goes_on = s->follows = false;
    for (int i = 0; i < PLAN_QUERY_RANKS; i++)
        s->chunk[plan_query_rank(s->me, i)] = all->chunk[i];
}

#ifdef PLAN_KEY_CHUNKS
typedef struct PlanKeys { BurstChunk key[PLAN_KEYS]; } PlanKeys;

/* Keys of every rank are this chunk of them; all: what they were. */
static inline void plan_take_keys(PlanState *s, int chunk, PlanKeys *all)
{
    BurstSide *side = s->buffer.key_sides;
    for (int i = 0; i < PLAN_KEYS; i++) {
        BurstChunk *k = &s->key[i];
        const int64_t first = plan_query_begin(k->tokens, chunk), rows = plan_key_rows(k->tokens, chunk);
        all->key[i] = *k;
        burst_sides(k->position + first, rows, PLAN_TABLES ? s->tables : NULL, PLAN_TABLES, side);
        *k = (BurstChunk){.tokens = rows,
                          .position = k->position + first,
                          .side = side,
                          .tiles = (int)((rows + BURST_TILE - 1) / BURST_TILE)};
        side += k->tiles;
    }
}

static inline void plan_put_keys(PlanState *s, const PlanKeys *all)
{
    for (int i = 0; i < PLAN_KEYS; i++)
        s->key[i] = all->key[i];
}
#endif
#endif

#endif
