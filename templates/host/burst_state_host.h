/* burst_state_host.h: the state of a program's rank on the host, and its set-up.
 *
 * The program has defined its sizes (PLAN_...), pools and PlanBuffers. Rank c of the group owns chunk c. Q
 * stands for queries (in backward for Q, dO, delta and lse), KV for keys and values, dKV for both gradients;
 * each part of a chunk is a message of its own. Chunks that travel are in the slots of a pool, used in
 * rotation. */
#ifndef BURST_STATE_HOST_H
#define BURST_STATE_HOST_H

#include "burst_step.h"
#include "burst_program.h"

#ifndef PLAN_SOFTCAP
#define PLAN_SOFTCAP 0 /* none */
#endif

/* The unit of sizes of parts. */
typedef float PlanWord;
typedef struct PlanSlot {
    PlanWord *part[PLAN_PARTS];
    int chunk;       /* index of the chunk in it */
    bool started;    /* a partial sum to which something was added */
    bool pending;    /* a partial sum that arrives and is not yet added */
    BurstTileRanges tiles; /* tiles of the chunk that arrived */
    BurstReq arriving[PLAN_PARTS];
    BurstReq leaving[PLAN_CHANNELS][PLAN_PARTS];
} PlanSlot;
typedef struct PlanPool {
    int tensor, slots, uses;
    PlanSlot slot[PLAN_MAX_SLOTS];
} PlanPool;
typedef BurstShards PlanWeights;
/* Floats per token and head of each part that travels. */
static const int64_t plan_part_width[BURST_TENSORS][PLAN_PARTS] = {
    [BURST_T_Q] = {PLAN_HEAD_DIM, PLAN_VALUE_DIM, 1, 1},
    [BURST_T_KV] = {PLAN_KEY_PART, PLAN_VALUE_PART},
    [BURST_T_O] = {PLAN_VALUE_DIM, 1, 1}, /* o, lse, rounding error of lse */
    [BURST_T_DQ] = {PLAN_HEAD_DIM},
    [BURST_T_DKV] = {PLAN_KEY_PART, PLAN_VALUE_PART},
};
typedef struct PlanState {
#include "burst_state.h"
    double loss[1];                /* sum over counted tokens */
    const BurstTables *tables;
#ifdef PLAN_DEVICE_UPDATE
    float
        *fetched_at[3][PLAN_LAYERS * (1 + PLAN_EXPERT_GROUPS) + 2]; /* parameters and moments of `fetched` */
#endif
} PlanState;

#include "burst_pieces.h"
#include "burst_turns.h"
#ifdef PLAN_SCAN_PIECES
#include "burst_scan_host.h"
#endif

/* ---- counts and corrections of experts ---- */

#ifdef PLAN_LOADS
static inline int plan_clear_counts(BurstCtx *c, PlanState *s, double *counts, int n)
{
    (void)c, (void)s;
    memset(counts, 0, (size_t)n * sizeof *counts);
    return BURST_OK;
}

static inline int plan_read_counts(BurstCtx *c, PlanState *s, const double *counts, int n, double *to)
{
    (void)c, (void)s;
    memcpy(to, counts, (size_t)n * sizeof *counts);
    return BURST_OK;
}

static inline int plan_write_counts(BurstCtx *c, PlanState *s, const double *from, int n, double *counts)
{
    return plan_read_counts(c, s, from, n, counts);
}
#endif

#ifdef PLAN_CORRECTION
/* Operations read them from the shards. */
static inline int plan_put_corrections(BurstCtx *c, PlanState *s) { return (void)c, (void)s, BURST_OK; }

static inline int plan_write_corrections(BurstCtx *c, PlanState *s, BurstWeights *w)
{
    burst_write_corrections(c, &burst_plan, s->corrections, w);
    return BURST_OK;
}
#endif

/* ---- set-up ---- */

/* Sets every chunk's positions, and the hull of each of their tiles. */
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
#ifdef PLAN_SCAN_PIECES
    return plan_find_pieces(c, s);
#else
    return BURST_OK;
#endif
}

static inline int plan_live(BurstCtx *c, PlanState *s, const BurstTables *tables)
{
#if defined PLAN_ROPE_TABLE || defined PLAN_PLACE_TABLE || \
    (defined PLAN_SCAN_COLUMNS && !defined PLAN_SCAN_PIECES)
    const BurstChunk *own = &s->chunk[s->me];
#endif
    BURST_TRY(plan_find_live(c, s, tables));
#ifdef PLAN_ROPE_TABLE
    for (int64_t i = 0; tables && i < own->tokens; i++)
        s->buffer.turns[i] = tables->table[PLAN_ROPE_TABLE][own->position[i]];
    s->turns = s->buffer.turns;
#endif
#ifdef PLAN_PLACE_TABLE
    for (int64_t i = 0; tables && i < own->tokens; i++)
        s->buffer.places[i] = tables->table[PLAN_PLACE_TABLE][own->position[i]];
    s->place = s->buffer.places;
#endif
#if defined PLAN_SCAN_COLUMNS && !defined PLAN_SCAN_PIECES
    s->scan_rows[1] = own->tokens;
    s->pieces = (BurstPieces){1, s->scan_rows};
#endif
    return BURST_OK;
}

#ifdef PLAN_QUERY_CHUNKS
typedef struct PlanQueries { BurstChunk chunk[PLAN_QUERY_RANKS]; } PlanQueries;

/* Restricts queries of this rank, and of those that share heads with it, to a chunk of them; all: saves what
 * they were. */
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
    for (int i = 0; i < PLAN_QUERY_RANKS; i++)
        s->chunk[plan_query_rank(s->me, i)] = all->chunk[i];
}

#ifdef PLAN_KEY_CHUNKS
typedef struct PlanKeys { BurstChunk key[PLAN_KEYS]; } PlanKeys;

/* Restricts keys of every rank to a chunk of them; all: saves what they were. */
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
