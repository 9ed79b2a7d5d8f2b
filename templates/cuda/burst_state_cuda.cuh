/* burst_state_cuda.cuh: the state of a program's rank on GPUs, and its set-up.
 *
 * The program has defined its sizes (PLAN_...), pools and PlanBuffers. Rank c of the group owns chunk c. Q
 * stands for queries (in backward for Q, dO, delta and lse), KV for keys and values, dKV for both gradients;
 * each part of a chunk is a buffer of its own. Chunks that travel are in the slots of a pool, used in
 * rotation. Nothing here waits on the host: streams and marks give the order. */
#ifndef BURST_STATE_CUDA_CUH
#define BURST_STATE_CUDA_CUH

#include "burst_step_cuda.h"
#include "burst_program.h"
#include "cuda_attention.cuh"

#include <string.h>

/* The unit of sizes of parts: bytes. */
typedef char PlanWord;
typedef struct PlanSlot {
    PlanWord *part[PLAN_PARTS];
    int chunk;       /* index of the chunk in it */
    bool started;    /* a partial sum to which something was added */
    bool pending;    /* a partial sum that arrives and is not yet added */
    BurstTileRanges tiles; /* tiles of the chunk that arrived */
    BurstMark arrived;              /* end of its transfer, on the channel's stream */
    BurstMark used;                 /* the last computing that reads it or adds to it */
    BurstMark sent[PLAN_CHANNELS];  /* its last transfer to another rank, by channel */
} PlanSlot;
typedef struct PlanPool {
    int tensor, slots, uses;
    PlanSlot slot[PLAN_MAX_SLOTS];
} PlanPool;
#ifdef PLAN_HOST_OPTIMIZER
typedef BurstWeights PlanWeights; /* in host memory */
#else
typedef BurstShards PlanWeights;
#endif
/* Bytes per token and head of each part that travels. */
static const int64_t plan_part_width[BURST_TENSORS][PLAN_PARTS] = {
    /* Q: q, d_o, delta, lse */ {2 * PLAN_HEAD_DIM, 2 * PLAN_VALUE_DIM, 4, 4},
    /* KV: k, v */ {2 * PLAN_KEY_PART, 2 * PLAN_VALUE_PART, 0, 0},
    /* O, a part of it: o, lse */ {4 * PLAN_VALUE_DIM, 4, 0, 0},
    /* dQ */ {4 * PLAN_HEAD_DIM, 0, 0, 0},
    /* dKV: dk, dv */ {4 * PLAN_KEY_PART, 4 * PLAN_VALUE_PART, 0, 0},
};
/* The pairs of one launch of either direction, which are pending until it is queued. */
typedef struct PlanLaunch {
    BurstForward forward[BURST_FORWARD_CHUNKS];
    BurstBackward backward[BURST_BACKWARD_CHUNKS];
    PlanSlot *slot[BURST_MOST_CHUNKS][4]; /* slots that a pair reads and adds to; NULL: none */
    const PlanSlot *queries;              /* of all pairs */
    bool gradients;                       /* the pairs are in `backward` */
    int pairs, q, kv;                     /* q, kv: chunks of the first pair */
    BurstTileRanges there[BURST_MOST_CHUNKS]; /* tiles of each pair's keys that it reads */
    /* PLAN_AT_ONCE: the first `home` chunks of keys are the rank's own. Two launches have a part of the
     * queries each: those that see no other keys, then, with `rest`, those that do; 0: one launch */
    int home;
    bool rest;
    bool listed; /* the lists of the first pair are made */
} PlanLaunch;

#ifdef PLAN_LIBRARY
/* Lists of tiles that a batch keeps for all its calls. */
typedef struct PlanKept { BurstTileLists lists; bool made; } PlanKept;
#endif

typedef struct PlanState {
#include "burst_state.h"
    double *loss;                  /* sum over counted tokens */
    BurstShards rounded; /* of a run that evaluates alone: the parameters, rounded */
    bool begun; /* earlier chunks of keys are in the output of these queries */
    int multiprocessors;
    BurstTokens tokens[PLAN_GROUP], key_tokens[PLAN_KEYS]; /* of chunk and key, on the device */
    BurstTokens queries; /* the current chunk of queries of all ranks that share heads */
    const BurstTables *table_values;
#ifdef PLAN_SELECTIONS
    BurstMark choosing[2]; /* begin and end of what ranks send each other to choose */
#endif
    int attended, to_attend;       /* pairs of this rank that were folded; all of its pairs */
    PlanLaunch launch;             /* the pending launch */
    bool at_once;                  /* ... has all pairs of this forward, whose keys it waits for */
#ifdef PLAN_SHARES
    /* of a share's query heads: the piece that an exchange or a launch has, from 1; 0: all */
    int head_piece;
    BurstMark piece_arrived[PLAN_HEAD_PIECES], piece_computed[PLAN_HEAD_PIECES];
#endif
#ifdef PLAN_LIBRARY
    /* lists of a launch, by mask, direction and index in a call; and the ints used for them */
    PlanKept kept[PLAN_MASKS][2][PLAN_KEPT];
    size_t kept_ints;
    int launches; /* in this call so far */
#endif
} PlanState;

#define PLAN_CUDA(call)                                                                                \
    do {                                                                                               \
        cudaError_t error_ = (call);                                                                   \
        if (error_ != cudaSuccess)                                                                     \
            return burst_fail(c, BURST_E_MEMORY, "CUDA: %s in %s", cudaGetErrorString(error_), #call); \
    } while (0)

/* What the compute stream does from here on, for --trace and profilers. */
static inline int plan_part(PlanState *s, int part, int a, int b)
{
    return burst_gpu_part(s->exec, burst_gpu_compute(s->exec), part, a, b);
}

#include "burst_pieces.h"
#include "burst_turns.h"
#ifdef PLAN_SCAN_PIECES
#include "burst_scan_cuda.cuh"
#endif

/* ---- counts and corrections of experts ---- */

#ifdef PLAN_LOADS
static inline int plan_clear_counts(BurstCtx *c, PlanState *s, double *counts, int n)
{
    (void)c;
    return burst_gpu_zero(s->exec, counts, (size_t)n * sizeof *counts);
}

/* Waits for the device. */
static inline int plan_read_counts(BurstCtx *c, PlanState *s, const double *counts, int n, double *to)
{
    (void)c;
    return burst_gpu_download(s->exec, counts, (size_t)n * sizeof *counts, to);
}

static inline int plan_write_counts(BurstCtx *c, PlanState *s, const double *from, int n, double *counts)
{
    (void)c;
    return burst_gpu_upload(s->exec, from, (size_t)n * sizeof *from, counts);
}
#endif

#ifdef PLAN_CORRECTION
static inline int plan_put_corrections(BurstCtx *c, PlanState *s)
{
    (void)c;
    return burst_gpu_upload(s->exec, s->corrections, sizeof s->corrections, s->buffer.corrections);
}

static inline int plan_write_corrections(BurstCtx *c, PlanState *s, BurstWeights *w)
{
    (void)c, (void)w;
#ifdef PLAN_HOST_OPTIMIZER
    burst_write_corrections(c, &burst_plan, s->corrections, &s->weights);
    return BURST_OK;
#else
    return burst_gpu_write_corrections(s->exec, &burst_plan, s->corrections, &s->weights);
#endif
}
#endif

/* ---- set-up ---- */

static inline int plan_chunk_at(int at);

#if defined PLAN_QUERY_CHUNKS && defined PLAN_SHARES
/* The first token of a chunk among those of all ranks that share heads with `rank`, chunk by chunk. */
static inline int64_t plan_row_begin(int rank, int chunk)
{
    int64_t begin = 0;
    for (int i = 0; i < PLAN_SHARES; i++)
        begin += plan_query_begin(plan_tokens(plan_member(rank, i)), chunk);
    return begin;
}

/* Uploads positions of all tokens, chunk by chunk for ranks that share heads, through a host buffer. */
static inline int plan_row_positions(PlanState *s)
{
    int32_t *position = s->buffer.positions32;
    for (int row = 0; row < PLAN_GROUP; row += PLAN_SHARES)
        for (int chunk = 0; chunk < PLAN_QUERY_CHUNKS; chunk++)
            for (int i = 0; i < PLAN_SHARES; i++) {
                const BurstChunk *of = &s->key[plan_chunk_at(row + i)];
                for (int64_t j = plan_query_begin(of->tokens, chunk);
                     j < plan_query_begin(of->tokens, chunk + 1); j++)
                    *position++ = (int32_t)of->position[j];
            }
    return burst_gpu_upload(s->exec, s->buffer.positions32, PLAN_SEQUENCE * sizeof(int32_t),
                            s->buffer.chunk_positions);
}

/* The chunk's tokens without the first `before`; first: all tokens of the first rank that shares heads. */
static inline BurstTokens plan_row_tokens_of(const PlanState *s, const BurstTokens *first, int rank,
                                             int chunk, int64_t before)
{
    const int64_t at = first->position - s->buffer.device_positions + plan_row_begin(rank, chunk) + before;
    BurstTokens t = {};
    t.position = s->buffer.chunk_positions + at;
    for (int i = 0; i < PLAN_TABLES; i++)
        t.table[i] = s->buffer.chunk_values + i * PLAN_SEQUENCE + at;
    return t;
}
#endif

/* Sets the chunks of keys of rank r on the device, whose own tokens are there. */
static inline void plan_key_tokens(PlanState *s, int r)
{
    for (int p = 0; p < PLAN_PIECES; p++) {
        BurstTokens *key = &s->key_tokens[p * PLAN_GROUP + r];
        const int64_t begin = plan_piece_begin(s->chunk[r].tokens, p);
        *key = s->tokens[r];
        key->n = (int)s->key[p * PLAN_GROUP + r].tokens;
        key->position += begin;
        for (int t = 0; t < PLAN_TABLES; t++)
            key->table[t] += begin;
    }
}

/* Sets every chunk's positions, on the host with the hull of each tile, and on the device. */
static inline int plan_chunks(BurstCtx *c, PlanState *s)
{
    int64_t *position = s->buffer.positions;
    BurstSide *side = s->buffer.sides;
    int64_t begin = 0;
    s->me = plan_chunk_of(burst_rank(c));
    s->group = plan_group_of(burst_rank(c));
    for (int at = 0; at < PLAN_GROUP; at++) {
        const int i = plan_chunk_at(at);
        int64_t n = plan_tokens(i);
        int tiles = (int)((n + BURST_TILE - 1) / BURST_TILE);
        for (int64_t j = 0; j < n; j++) {
            position[j] = plan_position(i, j);
            s->buffer.positions32[begin + j] = (int32_t)position[j];
        }
        burst_sides(position, n, NULL, 0, side);
        s->chunk[i].tokens = n;
        s->chunk[i].position = position;
        s->chunk[i].side = side;
        s->chunk[i].tiles = tiles;
        s->tokens[i].n = (int)n;
        s->tokens[i].position = s->buffer.device_positions + begin;
        for (int t = 0; t < PLAN_TABLES; t++)
            s->tokens[i].table[t] = s->buffer.device_values + t * PLAN_SEQUENCE + begin;
        position += n;
        side += tiles;
        begin += n;
        plan_key_chunks(s, i, &side);
        plan_key_tokens(s, i);
    }
    plan_own_tokens(c, s);
#ifdef PLAN_SCAN_PIECES
    BURST_TRY(plan_find_pieces(c, s));
#endif
    BURST_TRY(burst_gpu_upload(s->exec, s->buffer.positions32, (size_t)begin * sizeof(int32_t),
                               s->buffer.device_positions));
#if defined PLAN_QUERY_CHUNKS && defined PLAN_SHARES
    return plan_row_positions(s);
#else
    return BURST_OK;
#endif
}

/* Gathers a device table's values at n positions. */
static inline int plan_gather_table(BurstCtx *c, PlanState *s, int n, const int32_t *position, int32_t *to)
{
    if (n == 0)
        return BURST_OK;
    burst_gather_table_kernel<<<(n + 255) / 256, 256, 0, burst_gpu_compute(s->exec)>>>(n, position,
                                                                                       s->buffer.device_table,
                                                                                       to);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

/* Uploads a batch's table values, in every chunk's local order. */
static inline int plan_upload_tables(BurstCtx *c, PlanState *s, const BurstTables *tables)
{
    for (int t = 0; t < PLAN_TABLES; t++) {
        BURST_TRY(burst_gpu_upload(s->exec, tables->table[t], PLAN_SEQUENCE * sizeof(int32_t),
                                   s->buffer.device_table));
        for (int i = 0; i < PLAN_GROUP; i++)
            BURST_TRY(plan_gather_table(c, s, s->tokens[i].n, s->tokens[i].position,
                                        (int32_t *)s->tokens[i].table[t]));
#if defined PLAN_QUERY_CHUNKS && defined PLAN_SHARES
        BURST_TRY(plan_gather_table(c, s, PLAN_SEQUENCE, s->buffer.chunk_positions,
                                    s->buffer.chunk_values + t * PLAN_SEQUENCE));
#endif
    }
    return BURST_OK;
}

#ifdef PLAN_BALANCED
/* Uploads this batch's positions. */
static inline int plan_upload_positions(PlanState *s)
{
    for (int i = 0; i < PLAN_GROUP; i++) {
        int32_t *to = s->buffer.positions32 + (s->tokens[i].position - s->buffer.device_positions);
        for (int64_t j = 0; j < s->chunk[i].tokens; j++)
            to[j] = (int32_t)s->chunk[i].position[j];
    }
    BURST_TRY(burst_gpu_upload(s->exec, s->buffer.positions32, PLAN_SEQUENCE * sizeof(int32_t),
                               s->buffer.device_positions));
#if defined PLAN_QUERY_CHUNKS && defined PLAN_SHARES
    return plan_row_positions(s);
#else
    return BURST_OK;
#endif
}
#endif

static inline int plan_live(BurstCtx *c, PlanState *s, const BurstTables *tables)
{
    BURST_TRY(plan_find_live(c, s, tables));
#ifdef PLAN_BALANCED
    if (tables && tables->position)
        BURST_TRY(plan_upload_positions(s));
#endif
    return tables ? plan_upload_tables(c, s, tables) : BURST_OK;
}

#ifdef PLAN_QUERY_CHUNKS
typedef struct PlanQueries { int64_t n[PLAN_QUERY_RANKS]; BurstTokens tokens; } PlanQueries;

static inline void plan_move_tokens(BurstTokens *tokens, int64_t first, int64_t rows)
{
    tokens->n = (int)rows;
    tokens->position += first;
    for (int t = 0; t < PLAN_TABLES; t++)
        tokens->table[t] += first;
}

/* Restricts queries of this rank, and of those that share heads with it, to a chunk of them; all: saves what
 * they were. */
static inline void plan_take_queries(PlanState *s, int chunk, PlanQueries *all)
{
    const int64_t first = plan_query_begin(s->n, chunk);
    all->tokens = s->tokens[s->me];
    plan_move_tokens(&s->tokens[s->me], first, plan_query_begin(s->n, chunk + 1) - first);
    for (int i = 0; i < PLAN_QUERY_RANKS; i++) {
        int64_t *n = &s->chunk[plan_query_rank(s->me, i)].tokens;
        all->n[i] = *n;
        *n = plan_query_begin(*n, chunk + 1) - plan_query_begin(*n, chunk);
    }
#ifdef PLAN_SHARES
    s->queries = plan_row_tokens_of(s, &s->key_tokens[plan_member(s->me, 0)], s->me, chunk, 0);
    s->queries.n = (int)(plan_row_begin(s->me, chunk + 1) - plan_row_begin(s->me, chunk));
#endif
}

static inline void plan_put_queries(PlanState *s, const PlanQueries *all)
{
    s->tokens[s->me] = all->tokens;
    for (int i = 0; i < PLAN_QUERY_RANKS; i++)
        s->chunk[plan_query_rank(s->me, i)].tokens = all->n[i];
}

#ifdef PLAN_KEY_CHUNKS
typedef struct PlanKeys { int64_t n[PLAN_KEYS]; BurstTokens tokens[PLAN_KEYS]; } PlanKeys;

/* Restricts keys of every rank to a chunk of them; all: saves what they were. */
static inline void plan_take_keys(PlanState *s, int chunk, PlanKeys *all)
{
    memcpy(all->tokens, s->key_tokens, sizeof all->tokens);
    for (int i = 0; i < PLAN_KEYS; i++) {
        all->n[i] = s->key[i].tokens;
        s->key[i].tokens = plan_key_rows(all->n[i], chunk);
#ifdef PLAN_SHARES
        int64_t before = 0;
        for (int k = 0; plan_member(i, k) != i; k++)
            before += plan_key_rows(plan_tokens(plan_member(i, k)), chunk);
        s->key_tokens[i] = plan_row_tokens_of(s, &all->tokens[plan_member(i, 0)], i, chunk, before);
        s->key_tokens[i].n = (int)s->key[i].tokens;
#else
        plan_move_tokens(&s->key_tokens[i], plan_query_begin(all->n[i], chunk), s->key[i].tokens);
#endif
    }
}

static inline void plan_put_keys(PlanState *s, const PlanKeys *all)
{
    memcpy(s->key_tokens, all->tokens, sizeof all->tokens);
    for (int i = 0; i < PLAN_KEYS; i++)
        s->key[i].tokens = all->n[i];
}
#endif
#endif

/* ---- launches of attention, for one pair of chunks or for the whole sequence: burst_pairs_cuda.cuh ---- */

static cudaError_t plan_launch_forward(PlanState *s, BurstForward *pair, int pairs);
static cudaError_t plan_launch_backward(PlanState *s, BurstBackward *pair, int pairs);
static cudaError_t plan_launch_setup(void);
static inline int plan_launch(BurstCtx *c, PlanState *s); /* of the pending pairs */
/* Ranges of keys travel in units of so many tokens if the mask's kernels have such tiles, or halves of
 * them. */
enum { PLAN_CARRIED = 2 * BURST_TILE };
static inline bool plan_carries_tiles(const PlanState *s);

/* Arguments of forward and backward for a pair. Rows of Q, dO and KV are token-major. */
static inline BurstRows plan_rows(char *at, int heads, int width)
{
    BurstRows r = {(BurstBf16 *)at, (int64_t)heads * width, width};
    return r;
}

#endif
