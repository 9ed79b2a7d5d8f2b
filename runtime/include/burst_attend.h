/* burst_attend.h: what masks leave of tiles of tokens, attention of the host backend, and what masks leave of
 * the operations of a schedule. */
#ifndef BURST_ATTEND_H
#define BURST_ATTEND_H

#include "burst_range.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct BurstCtx BurstCtx;

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
