/* burst_attend.h: masks on tiles of tokens, attention of the host backend, and pruning of a schedule's
 * operations by masks. */
#ifndef BURST_ATTEND_H
#define BURST_ATTEND_H

#include "burst_int.h"
#include "burst_range.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct BurstCtx BurstCtx;

/* ---- masks on tiles ---- */
/* Fills side[(tokens + BURST_TILE - 1) / BURST_TILE] from positions and, unless tables is NULL, table
 * values. */
void burst_sides(const int64_t *position, int64_t tokens, const BurstTables *tables, int table_count,
                 BurstSide *side);
/* Returns the hull of n sides, n >= 1. */
BurstSide burst_side_union(const BurstSide *side, int n);
/* Evaluates the mask on two tiles. The tokens of a tile may lie far apart, for example if two runs of a
 * partition meet in it. The mask is then evaluated on each side of the widest gap, so that positions inside
 * the gap, which belong to other ranks, do not count. */
int burst_tile_cover(const BurstMask *m, const BurstChunk *q, int q_tile, const BurstChunk *k, int k_tile);
/* Whether any tile of the pair is not EMPTY. Every rank skips pairs and transfers by this rule. */
bool burst_pair_live(const BurstMask *m, const BurstChunk *q, const BurstChunk *k);
/* Returns a few runs of tiles of q or k (side: BURST_OF_...) that contain all tiles that are not EMPTY in
 * the pair: their hull without its largest gaps. */
BurstTileRanges burst_pair_tiles(const BurstMask *m, const BurstChunk *q, const BurstChunk *k, int side);

/* ---- selections: blocks of keys that tiles of queries choose at run time ----
 * A tile of queries scores each block of keys before it, by the product of one query with one key that
 * represents the block, and keeps the `top` blocks with the greatest scores. A selection is a condition of a
 * mask: where and (always or chosen). Which blocks may be chosen is decided by the static masks alone. */
/* id, as written. What represents a tile: its first query; the mean of the tile's before that are in the same
 * document as this first one; the mean of its own that are. */
#define BURST_SELECT_QUERIES(X) \
    X(FIRST_QUERY, "first Q") X(PREVIOUS_MEAN, "previous mean Q") X(OWN_MEAN, "mean Q")
/* What represents a block, of its keys in the document of its last one: their mean; in each channel that one
 * of the least and the greatest with the greater product (Quest, arXiv 2406.10774); the first; all of them,
 * of which the one with the greatest product counts (MSA, arXiv 2606.13392). */
#define BURST_SELECT_KEYS(X) \
    X(MEAN_KEY, "mean K") X(LIMITS, "minmax K") X(FIRST_KEY, "first K") X(MAX_KEY, "max K")
/* Which heads share a choice: none; those of one key head, by the sum of their scores; all. */
#define BURST_SELECT_HEADS(X) X(OF_HEAD, "each head") X(OF_KV, "kv_head") X(OF_ALL, "all heads")
#define BURST_SELECT_ID(id, name) BURST_SELECT_##id,
#define BURST_SELECT_NAME(id, name) name,
enum { BURST_SELECT_QUERIES(BURST_SELECT_ID) BURST_SELECT_QUERY_KINDS };
enum { BURST_SELECT_KEYS(BURST_SELECT_ID) BURST_SELECT_KEY_KINDS };
enum { BURST_SELECT_HEADS(BURST_SELECT_ID) BURST_SELECT_HEAD_KINDS };
/* Masks read what is chosen as a table of keys, 1 or 0, after those of the batch. */
enum { BURST_SELECT_TABLE = 3 };

typedef struct BurstSelection {
    int top, query, key, heads; /* BURST_SELECT_... */
    int64_t block, queries; /* keys of a block, queries of a tile */
    bool noncausal; /* blocks after a tile may be chosen */
    bool indexer; /* queries and keys are an indexer's, else the layer's */
    int documents; /* table that tells documents apart, counted from 1; 0: the sequence is one */
    bool by_position; /* that has positions in documents; else equal values in a document */
    const BurstMask *open; /* pairs that may be chosen and are not always kept; without a selection */
} BurstSelection;
/* A layer's choice. Heads are those of these arrays, q_heads a multiple of kv_heads and of lists, the lists
 * of a tile. */
typedef struct BurstSelect {
    const BurstSelection *how;
    int q_heads, kv_heads, head_dim, lists;
    int64_t sequence;
    const BurstTables *tables;
    int table_count;
} BurstSelect;
/* Floats that represent a block of so many keys, or a tile, of one head. */
BURST_FN int64_t burst_select_width(int key, int64_t block, int head_dim)
{
    if (key == BURST_SELECT_MAX_KEY)
        return block * head_dim;
    return key == BURST_SELECT_LIMITS ? 2 * (int64_t)head_dim : head_dim;
}

/* The same on a device, in words of 4 bytes: of `max K` all keys, as bf16. */
BURST_FN int64_t burst_select_device_words(int key, int64_t block, int head_dim)
{
    return burst_select_width(key, block, head_dim) / (key == BURST_SELECT_MAX_KEY ? 2 : 1);
}

BURST_FN int64_t burst_select_query_width(int query, int head_dim)
{
    return query == BURST_SELECT_PREVIOUS_MEAN ? 2 * (int64_t)head_dim : head_dim;
}

/* Lists of a tile; heads: the layer's. */
BURST_FN int burst_select_lists(int heads, int q_heads, int kv_heads)
{
    if (heads == BURST_SELECT_OF_HEAD)
        return q_heads;
    return heads == BURST_SELECT_OF_KV ? kv_heads : 1;
}

/* What represents this chunk's blocks, out[blocks][kv_heads][burst_select_width], and tiles,
 * out[tiles][q_heads][burst_select_query_width], in the order of its tokens. A chunk has whole blocks and
 * tiles, except at the sequence's end. */
void burst_select_keys(const BurstSelect *s, const BurstChunk *c, const float *k, float *out);
void burst_select_queries(const BurstSelect *s, const BurstChunk *c, const float *q, float *out);
/* Moves what a chunk has of each unit of its tokens to where the unit is in the sequence: unit u at u * step.
 */
void burst_select_place(const BurstChunk *c, int64_t unit, int64_t words, const float *from, int64_t step,
                        float *to);
/* lists[tiles of the chunk][burst_select_lists][top]: numbers of blocks, rising, then -1. queries, keys: of
 * the whole sequence; of queries, only those of the chunk's tiles and of the tiles before these are read.
 * scratch: burst_select_scratch bytes (burst_model.h). */
void burst_select_blocks(const BurstSelect *s, const BurstChunk *c, const float *queries, const float *keys,
                         void *scratch, int32_t *lists);
bool burst_select_has(const int32_t *list, int top, int64_t block);
/* 0: each list of the chunk's tiles rises, has no block twice, and only blocks that may be chosen; else -1.
 */
int burst_select_check(const BurstSelect *s, const BurstChunk *c, const int32_t *lists);

/* ---- attention on the host for one pair of a query chunk and a key chunk (BurstAttention, section 3;
 * FlashAttention-2) ---- */
typedef struct BurstAttend {
    int head_dim;           /* d, positive; 32, 64 and 128 have specialised code */
    int value_dim; /* e, of v, o and their gradients; 0: head_dim */
    int q_heads, kv_heads;  /* in these buffers */
    int q_head0, kv_head0;  /* their first global heads (head parallelism), else 0 */
    int group;              /* H / Hk of the model: query head h reads key head h / group (global numbers) */
    float scale;            /* 1 / sqrt(d) */
    /* caps scores before the mask: softcap tanh(S / softcap) (Gemma 2, arXiv 2408.00118); 0: no cap */
    float softcap;
    const BurstMask *mask;
    const BurstTables *tables;
    /* [tiles of the sequence][chosen_lists][top]: of a mask with a selection */
    const int32_t *chosen;
    int chosen_lists;
    const BurstChunk *qc, *kc;
    const float *q;         /* [q_heads][qc->tokens][d] */
    const float *k, *v; /* [kv_heads][kc->tokens][d], [e] */
    float *o; /* forward: [q_heads][qc->tokens][e], normalised over the keys so far */
    float *lse;             /* [q_heads][qc->tokens]; -inf if no key was seen. Backward: the final values */
    float *lse_rest;        /* forward: rounding error of lse, carried from pair to pair; shaped like lse */
    const float *d_o; /* backward: [q_heads][qc->tokens][e] */
    const float *delta;     /* backward: rowsum(dO * O) [q_heads][qc->tokens] */
    float *dq, *dk, *dv;    /* backward: added to */
    float *scratch; /* burst_attend_scratch of the greater of d and e; not shared with other calls */
} BurstAttend;
int64_t burst_attend_scratch(int head_dim);
/* Adds the pair to (o, lse, lse_rest). Start with o = 0, lse = -inf. Rows without a key keep these
 * values. */
void burst_attend_start(const BurstAttend *a);
void burst_attend_forward(const BurstAttend *a);
/* Merges two outputs of the same queries for different keys: (o, lse, rest) becomes the output for all keys.
 * Rows of d; each output has weight exp(lse), and 0 in rows without a key (FlashAttention-2, section 3.1;
 * Mesh-Attention's return of outputs). */
void burst_attend_merge(int64_t rows, int d, const float *o_in, const float *lse_in, const float *rest_in,
                        float *o, float *lse, float *rest);
void burst_attend_backward(const BurstAttend *a);
/* delta[h][i] = sum over d of d_o * o, for rows = heads * tokens. */
void burst_attend_delta(int64_t rows, int head_dim, const float *o, const float *d_o, float *delta);
/* ---- parts of the step's operations (burst_step.h) that programs call separately ---- */
/* Computes keys and values from latents [n][latent] and from every [n][shared], the last elements of a key,
 * which all heads share: k [heads][n][own + shared], v [heads][n][value]. w: [heads * own][latent] for keys,
 * then [heads * value][latent] for values. */
typedef struct BurstLatentSizes {
    int heads, own, shared, value, latent;
} BurstLatentSizes;
void burst_latents_expand(const BurstLatentSizes *s, int64_t n, const float *w, const float *latent,
                          const float *every, float *k, float *v);
/* Adds the gradients that dk and dv (in the same shapes) cause to those of latent, every (summed over heads)
 * and w. */
void burst_latents_contract(const BurstLatentSizes *s, int64_t n, const float *w, const float *latent,
                            const float *dk, const float *dv, float *d_latent, float *d_every, float *dw);
void burst_add(int64_t count, const float *x, float *y); /* y += x */

/* ---- pruning: the operations of the schedule that a mask leaves (one trace per mask and direction) ---- */
/* The emitted trace function replays the schedule of one rank. The runtime replays all ranks, so both ends
 * of a transfer make the same decision without communicating. */
typedef struct BurstTrace BurstTrace;
void burst_trace_compute(BurstTrace *t, int q_chunk, int kv_chunk); /* attend or grad */
void burst_trace_pass(BurstTrace *t, int tensor, int chunk, int to); /* to: rank in the group */
typedef void (*burst_trace_fn)(BurstTrace *t, int me);
/* [ops] of this rank, in program order. sent, received: tiles of the chunk that transfers carry; NULL: whole
 * chunks. */
typedef struct BurstLive {
    int ops;
    uint8_t *compute, *send, *recv;
    BurstTileRanges *sent, *received;
} BurstLive;
/* keys: number of key chunks, a multiple of group; rank r owns those equal to r modulo group.
 * pair_live[q_chunk * keys + kv_chunk]. pair_tiles: same order, burst_pair_tiles of live pairs; NULL:
 * transfers carry whole chunks. out's arrays are allocated for at most max_ops operations. */
int burst_live_make(BurstCtx *c, int max_ops, BurstLive *out);
/* call it after burst_live_make if transfers carry ranges */
int burst_live_make_ranges(BurstCtx *c, BurstLive *out);
int burst_live_fill(BurstCtx *c, burst_trace_fn trace, int group, int keys, int me, bool backward,
                    const uint8_t *pair_live, const BurstPairTiles *pair_tiles, BurstLive *out);

#ifdef __cplusplus
}
#endif
#endif
