/* burst_kernels.h: the forms of the CUDA attention kernels and their tiles. The compiler
 * (compiler/ir/kernels.c) and the kernels (templates/kernels/cuda_attention.cuh) use it; in the kernels
 * these functions are constants.
 *
 * A form is named by the oldest architecture that runs it: 80 (mma.sync) or 90 (wgmma and TMA, on sm_90a
 * only). */
#ifndef BURST_KERNELS_H
#define BURST_KERNELS_H

#ifdef __cplusplus
#define BURST_KERNELS_FUNCTION static constexpr
#else
#define BURST_KERNELS_FUNCTION static inline
#endif

/* Hulls of a tile's tokens: before and after its widest gap in positions. */
enum { BURST_HULLS = 2 };

/* The head_dims of the kernels: multiples of BURST_HEAD_DIM_STEP. value_dims, those of V, O and their
 * gradients, have the same limits and may differ from head_dim. */
enum { BURST_HEAD_DIM_STEP = 16, BURST_HEAD_DIM_LEAST = 32, BURST_HEAD_DIM_MOST = 256 };

/* Chunks of queries or keys in one launch of the sm_90a form; the sm_80 form takes one. */
enum { BURST_MOST_CHUNKS = 8 };

/* Backward of a selection splits the tiles of queries into at most 2^5 bands (BurstTileLists). */
enum { BURST_MOST_BAND_BITS = 5 };

/* Which of its form's key tiles a mask uses (mask_keys in compiler/mask/keys.c). LONG, forward only: its
 * lists of tiles are long. BLOCKS: forward tiles have 64 keys, and in both directions a consumer skips tiles
 * of which its BURST_90_PART tokens see nothing. */
enum { BURST_KEYS_USUAL, BURST_KEYS_LONG, BURST_KEYS_BLOCKS, BURST_KEYS_KINDS };
/* A list is long from this many keys a query on average over the sequence. */
enum { BURST_LONG_KEYS = 12288 };
/* Queries (backward: keys) of a consumer in the sm_90a form. With tiles of BLOCKS it skips tiles of which
 * these see nothing. */
enum { BURST_90_PART = 64 };

/* ---- attention of a token that continues a prompt (templates/kernels/cuda_decode.cuh) ---- */
/* Query heads of a block; blocks that have the key heads among them; parts of the cache that have blocks of
 * their own: as many as three blocks on each of 132 multiprocessors, which run together. */
enum { BURST_DECODE_BLOCKS = 396 };
BURST_KERNELS_FUNCTION int burst_decode_heads(int heads, int kv_heads)
{
    return heads / kv_heads > 8 ? 16 : 8;
}

BURST_KERNELS_FUNCTION int burst_decode_groups(int heads, int kv_heads)
{
    return kv_heads * ((heads / kv_heads + burst_decode_heads(heads, kv_heads) - 1) /
                       burst_decode_heads(heads, kv_heads));
}

BURST_KERNELS_FUNCTION int burst_decode_splits(int heads, int kv_heads)
{
    return burst_decode_groups(heads, kv_heads) < BURST_DECODE_BLOCKS
               ? BURST_DECODE_BLOCKS / burst_decode_groups(heads, kv_heads)
               : 1;
}

/* Floats of a head's part of the output: the part, normalised, and its log-sum-exp; on a device also what
 * aligns the next one. */
BURST_KERNELS_FUNCTION int burst_decode_row(int value_dim, int on_device)
{
    return value_dim + (on_device ? 4 : 1);
}

/* The same with a cache of latents (templates/kernels/cuda_decode_latent.cuh), whose rows are so wide: rows
 * that a block has in shared memory at a time, with 16 heads' queries, and its bytes; groups of heads; parts
 * of the cache, two blocks on each of 132 multiprocessors. */
enum { BURST_LATENT_BLOCKS = 264, BURST_LATENT_MOST = 1024 };
BURST_KERNELS_FUNCTION int burst_latent_bytes_of(int row, int keys)
{
    return (16 + keys) * 2 * ((row + 31) / 32 * 32 + 8) + 16 * 4 * (keys + 4) + keys;
}

BURST_KERNELS_FUNCTION int burst_latent_keys(int row)
{
    int keys = 64;
    while (keys > 16 && burst_latent_bytes_of(row, keys) > 99 << 10)
        keys /= 2;
    return keys;
}

BURST_KERNELS_FUNCTION int burst_latent_block_bytes(int row)
{
    return burst_latent_bytes_of(row, burst_latent_keys(row));
}

BURST_KERNELS_FUNCTION int burst_latent_groups(int heads) { return (heads + 15) / 16; }

BURST_KERNELS_FUNCTION int burst_latent_splits(int heads)
{
    return burst_latent_groups(heads) < BURST_LATENT_BLOCKS ? BURST_LATENT_BLOCKS / burst_latent_groups(heads)
                                                            : 1;
}

/* Limits of the kernels on a device: shared memory of a block, and the number of program tables whose values
 * a tile in shared memory holds. */
typedef struct BurstKernelRoom { int bytes, tables; } BurstKernelRoom;

/* Shared memory of a block by architecture, 80 for sm_80 (CUDA C++ Programming Guide, compute
 * capabilities). */
BURST_KERNELS_FUNCTION int burst_block_bytes(int arch)
{
    switch (arch) {
    case 80: case 87: return 163 << 10;
    case 86: case 89: case 120: case 121: return 99 << 10;
    default: return arch < 80 ? 64 << 10 : 227 << 10;
    }
}

/* Template parameters of a form's kernels; queries and keys are tokens of a tile. forward_q 0: the form does
 * not fit. */
typedef struct BurstTileSizes {
    int forward_q, forward_k[BURST_KEYS_KINDS];
    int forward_rows;                            /* queries of a warp */
    int backward_q, backward_k, backward_stages; /* stages: query tiles in shared memory */
} BurstTileSizes;

/* Bytes of a head's row in shared memory, in panels of 64 bf16 columns. */
BURST_KERNELS_FUNCTION int burst_row_bytes(int head_dim) { return (head_dim + 63) / 64 * 128; }

/* ---- sm_80 form ---- */
enum {
    /* registers of a thread for sums and scores; the other 63 hold addresses and operands */
    BURST_80_SUMS = 192,
    BURST_80_TILES = 163840, /* limit of a block's shared memory for tiles, bytes */
    /* warps of backward's block: a group of 32 keys times the parts that split queries and head_dim */
    BURST_80_WARPS = 8,
};

/* Parts that backward's queries and columns are split into; and head_dim padded with zeros, so that each
 * part has whole blocks of 16 columns. */
BURST_KERNELS_FUNCTION int burst_80_parts(int keys) { return BURST_80_WARPS * 32 / keys; }
BURST_KERNELS_FUNCTION int burst_80_columns(int head_dim, int keys)
{
    return (head_dim + 16 * burst_80_parts(keys) - 1) / (16 * burst_80_parts(keys)) * 16 *
           burst_80_parts(keys);
}

/* Bytes of `tiles`, and of positions and table values of `tokens` tokens. */
BURST_KERNELS_FUNCTION int burst_80_room(BurstKernelRoom room, int tiles, int tokens)
{
    return tiles <= BURST_80_TILES && tiles + tokens * 4 * (1 + room.tables) <= room.bytes;
}

/* 128 queries in warps of `rows`: four warps of 32, two blocks a multiprocessor; or eight warps of 16. Each
 * lane holds its part of O and of the scores. */
BURST_KERNELS_FUNCTION int burst_80_forward_fits(int head_dim, int value_dim, BurstKernelRoom room, int rows,
                                                 int keys)
{
    const int tiles = (128 + keys) * burst_row_bytes(head_dim) + keys * burst_row_bytes(value_dim);
    return rows * (value_dim + keys) / 32 <= BURST_80_SUMS && tiles * (rows / 16) <= BURST_80_TILES &&
           burst_80_room(room, tiles, 128 + keys);
}

/* Each lane holds its part of dK, dV (fp32), S and dS. Shared memory holds K, V, P, dS, and `stages` stages
 * of Q, dO, lse and delta. */
BURST_KERNELS_FUNCTION int burst_80_backward_fits(int head_dim, int value_dim, BurstKernelRoom room,
                                                  int queries, int keys, int stages)
{
    const int columns = burst_80_columns(head_dim, keys) + burst_80_columns(value_dim, keys);
    const int tiles = (keys + stages * queries) *
                          (burst_row_bytes(head_dim) + burst_row_bytes(value_dim)) +
                      2 * keys * queries * 2;
    room.bytes -= stages * queries * 2 * 4;
    return (columns + 2 * queries) / burst_80_parts(keys) <= BURST_80_SUMS &&
           burst_80_room(room, tiles, keys + stages * queries);
}

/* The largest tiles that fit in registers and shared memory, the cheapest reduction first: fewer rows a warp
 * double the loads of operands, fewer keys double the number of tiles, a single stage no longer hides the
 * loads of queries. */
BURST_KERNELS_FUNCTION BurstTileSizes burst_tiles_80(int head_dim, int value_dim, BurstKernelRoom room)
{
    BurstTileSizes t = {128, {0, 0, 0}, 0, 0, 0, 0};
    for (int rows = 32; rows >= 16 && !t.forward_rows; rows /= 2)
        for (int keys = 128; keys >= 64 && !t.forward_rows; keys /= 2)
            if (burst_80_forward_fits(head_dim, value_dim, room, rows, keys))
                t.forward_rows = rows, t.forward_k[0] = t.forward_k[1] = t.forward_k[2] = keys;
    for (int stages = 2; stages >= 1 && !t.backward_k; stages--)
        for (int keys = 128; keys >= 64 && !t.backward_k; keys /= 2)
            for (int queries = 128; queries >= 64 && !t.backward_k; queries /= 2)
                if (burst_80_backward_fits(head_dim, value_dim, room, queries, keys, stages))
                    t.backward_q = queries, t.backward_k = keys, t.backward_stages = stages;
    return t;
}

/* ---- sm_90a form ---- */
enum {
    BURST_90_SUMS = 196,     /* registers of a thread for O, scores and P, of 232 */
    BURST_90_TILES = 229376, /* limit of shared memory for tiles, of a block's 227 KB */
};

/* 128 queries, 64 a warpgroup. Each lane holds value_dim / 2 sums, keys / 2 scores and half as many
 * registers of P. Shared memory holds Q and two stages of K and V. */
BURST_KERNELS_FUNCTION int burst_90_forward_fits(int head_dim, int value_dim, int keys)
{
    return value_dim / 2 + keys / 2 + keys / 4 <= BURST_90_SUMS &&
           (128 + 2 * keys) * burst_row_bytes(head_dim) + 2 * keys * burst_row_bytes(value_dim) <=
               BURST_90_TILES;
}

/* The tiles for 64 and 128 were found by measuring; 32 and 96 use the same. For larger head_dims a warpgroup
 * has registers for dK or dV of 64 keys, not for both, so each computes one of them. */
BURST_KERNELS_FUNCTION BurstTileSizes burst_tiles_90(int head_dim, int value_dim)
{
    const BurstTileSizes none = {0, {0, 0, 0}, 0, 0, 0, 0};
    const BurstTileSizes d64 = {192, {128, 128, 64}, 16, 128, 128, 2},
                         d128 = {128, {128, 176, 64}, 16, 64, 128, 2};
    BurstTileSizes large = {128, {0, 0, 64}, 16, 64, 64, 2};
    for (int keys = 176; keys >= 64 && !large.forward_k[0]; keys -= 16)
        if (burst_90_forward_fits(head_dim, value_dim, keys))
            large.forward_k[0] = large.forward_k[1] = keys;
    switch (head_dim) {
    case 32: case 64: return d64;
    case 96: case 128: return d128;
    case 192: case 256: return large;
    default: return none;
    }
}

BURST_KERNELS_FUNCTION int burst_head_dim_made(int head_dim)
{
    return head_dim >= BURST_HEAD_DIM_LEAST && head_dim <= BURST_HEAD_DIM_MOST &&
           head_dim % BURST_HEAD_DIM_STEP == 0;
}

/* Narrower values: those of MiniCPM3 and of DeepSeek-V2 and V3. */
BURST_KERNELS_FUNCTION int burst_90_made(int head_dim, int value_dim)
{
    return head_dim == value_dim || (head_dim == 96 && value_dim == 64) ||
           (head_dim == 192 && value_dim == 128);
}

BURST_KERNELS_FUNCTION BurstTileSizes burst_tile_sizes(int form, int head_dim, int value_dim,
                                                       BurstKernelRoom room)
{
    const BurstTileSizes none = {0, {0, 0, 0}, 0, 0, 0, 0};
    if (!burst_head_dim_made(head_dim) || !burst_head_dim_made(value_dim))
        return none;
    if (form == 90)
        return burst_90_made(head_dim, value_dim) ? burst_tiles_90(head_dim, value_dim) : none;
    return burst_tiles_80(head_dim, value_dim, room);
}

/* Parts of a tile of `tokens` tokens that a form's kernels classify separately, with key tiles of kind
 * `keys` (BurstTileLists). */
BURST_KERNELS_FUNCTION int burst_tile_parts(int form, int keys, int tokens)
{
    return form == 90 && keys == BURST_KEYS_BLOCKS ? tokens / BURST_90_PART : 1;
}

#endif
