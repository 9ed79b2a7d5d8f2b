/* args.cuh: what kernels of recurrent layers read. Pieces are worked on by slabs: `chunks` chunks of each
 * piece from chunk `begin` on, so that what is kept of chunks has a constant size. */
#ifndef BURST_CUDA_SCAN_ARGS_CUH
#define BURST_CUDA_SCAN_ARGS_CUH

#include "burst_sizes.h"
#include "cuda/ops/scan/tile.cuh"

enum { CHUNK = BURST_SCAN_CHUNK };
/* A warp's 16 rows of a [64][64] factor as fragments of mma: [4 steps of 16 columns][lanes]. */
enum { FACTOR_STEPS = CHUNK / 16, FACTOR = CHUNK / 16 * FACTOR_STEPS * WARP };

typedef struct ScanArgs {
    int heads, key_heads, value_dim, columns, q, k, v, pieces, begin, chunks;
    bool normalize;
    float scale;
    const int32_t *place;
    const Bf16 *x, *skip;
    const float *beta, *decay;
    /* kept of each chunk and head of the slab: (I + A)^-1 and B, [FACTOR], and their transposes; a row's
     * numbers [CHUNK][2]: {beta, into, onto, sum of decays}, {by of q, by of k, begin, end} */
    uint4 *inverse, *between, *inverse_back, *between_back;
    float4 *row;
    int first[BURST_MOST_PIECES + 1];
} ScanArgs;

typedef struct ChunkPlace {
    int64_t row; /* of this rank */
    int rows;    /* at most 0: there is no such chunk */
    int64_t slot;
} ChunkPlace;

static __device__ __forceinline__ ChunkPlace chunk_place(const ScanArgs &a, int piece, int chunk)
{
    const int row = a.first[piece] + (a.begin + chunk) * CHUNK, left = a.first[piece + 1] - row;
    ChunkPlace c = {row, left < CHUNK ? left : CHUNK, (int64_t)piece * a.chunks + chunk};
    return c;
}

/* Chunks of a piece in the slab; and of all. */
static __device__ __forceinline__ int piece_chunks(const ScanArgs &a, int piece)
{
    return (a.first[piece + 1] - a.first[piece] + CHUNK - 1) / CHUNK;
}

static __device__ __forceinline__ int slab_chunks(const ScanArgs &a, int piece)
{
    const int left = piece_chunks(a, piece) - a.begin;
    return left < a.chunks ? left : a.chunks;
}

#endif
