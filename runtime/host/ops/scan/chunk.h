/* chunk.h: a chunk of a recurrent layer's tokens and one head, in the notation of the chunked gated delta
 * rule (arXiv 2412.06464, section 3.3): with A and B, in which decays stand between tokens, written = (I +
 * A)^-1 (U - Rt S);  o = Qt S + B written;  S after = end S + Kh^T written. A document's first token may be
 * anywhere in the chunk: tokens of two documents have 0 in A and B, and only tokens of the first document
 * read S, only those of the last reach the state after. */
#ifndef BURST_HOST_SCAN_CHUNK_H
#define BURST_HOST_SCAN_CHUNK_H

#include "burst_sizes.h"

#include <stdbool.h>
#include <string.h>

typedef struct Chunk {
    const BurstScan *s;
    int rows;
    /* tokens before `entered` belong to the document that comes in, those from `leaves` on to the one that
     * goes on: `rows` and 0 where no document begins */
    int entered, leaves;
    float end; /* the decay of all tokens; 0: a document begins in the chunk */
    float *beta, *into,
        *onto; /* [rows]; decay from the chunk's begin to a token, from a token to its end, or 0 */
    float *q, *k; /* [rows][key_dim], normalised and scaled */
    float *qt, *rt, *kh; /* into q, into beta k (or 0), onto k */
    float *u, *written; /* [rows][wide]: beta v, and (I + A)^-1 (u - rt S) */
    float *a, *b, *between; /* [rows][rows]; between: decays, 0 above the diagonal and between documents */
    float *state; /* [key_dim][wide] */
    /* for gradients */
    float *d_o, *d_written; /* [rows][wide] */
    float *d_a, *d_b; /* [rows][rows] */
    float *dq, *dr, *dk, *d_onto; /* [rows][key_dim] */
    double pairs[BURST_SCAN_CHUNK]; /* of a token's decay: of pairs of tokens that it stands between */
    double entry[BURST_SCAN_CHUNK]; /* of a token's reads of the state before the chunk, by their decay */
    float *states; /* [chunks][key_dim][value_dim], before each chunk */
} Chunk;

/* The arrays lie in scratch, burst_scan_floats(s, n). */
Chunk chunk_at(const BurstScan *s, float *scratch);
static inline int chunk_wide(const Chunk *c) { return c->s->value_dim + c->s->key_dim; }

/* Rows and arrays that chunks are of. */
typedef struct ScanRows {
    const int32_t *place;
    const float *x, *beta, *decay;
} ScanRows;
/* A head's chunk that begins at the row. u is followed by zeros up to the chunk's width. */
void chunk_load(Chunk *c, const ScanRows *r, int64_t row, int rows, int head);
/* d_o of the same chunk, followed by zeros. */
void chunk_load_gradient(Chunk *c, const float *d_o, int64_t row, int head);
/* written, and the state after the chunk. columns: of state, value_dim or all. */
void chunk_advance(Chunk *c, int columns);
/* d_written, the gradient of u, from d_o and the state's gradient after the chunk, in `state`, which becomes
 * the one before it. */
void chunk_retreat(Chunk *c, int columns);

/* Chunks of a piece. */
static inline int64_t chunks_of(int64_t rows) { return (rows + BURST_SCAN_CHUNK - 1) / BURST_SCAN_CHUNK; }
static inline int chunk_rows(int64_t first, int64_t end)
{
    return end - first < BURST_SCAN_CHUNK ? (int)(end - first) : BURST_SCAN_CHUNK;
}

/* y = alpha op(a) op(b) + beta y, [m][n], k summed. */
typedef struct ScanMatrix {
    const float *at;
    int pitch, transposed;
} ScanMatrix;
void scan_product(int m, int n, int k, float alpha, ScanMatrix a, ScanMatrix b, float beta, float *y,
                  int pitch);

#endif
