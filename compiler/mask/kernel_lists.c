/* mask/kernel_lists.c: what the lists of live tiles of one launch of a CUDA attention kernel take. */
#include "mask/mask.h"

static int64_t tiles(int64_t tokens, int tile)
{
    return (tokens + tile - 1) / tile;
}

/* As burst_lists_ints in templates/kernels/cuda_attention.cuh. */
static int64_t ints(int64_t own, int64_t other)
{
    return own * (other + 5) + 2;
}

/* Keys of a launch: one chunk, or its pieces, each with a last tile of its own. */
static int64_t key_tiles(int64_t tokens, int pieces, int tile)
{
    return pieces * tiles((tokens + pieces - 1) / pieces, tile);
}

/* The kind of key tiles that makes the longest lists: that of blocks, if a mask is of them. */
static int shortest_keys(const Program *p)
{
    for (int i = 0; i < p->mask_count; i++)
        if (mask_in_blocks(p, i))
            return BURST_KEYS_BLOCKS;
    return BURST_KEYS_USUAL;
}

KernelLists kernels_lists(const Program *p, int64_t queries, int64_t tokens, int pieces, int turns)
{
    const Kernels k = kernels_of(p);
    const BurstTileSizes *t = &k.tile;
    const int keys = shortest_keys(p);
    const int64_t parts[2] = {burst_tile_parts(k.form, keys, t->forward_q), burst_tile_parts(k.form, keys, t->backward_k)};
    const int64_t q[2] = {tiles(queries, t->forward_q), tiles(queries, t->backward_q)};
    const int64_t kv[2] = {key_tiles(tokens, pieces, t->forward_k[keys]), key_tiles(tokens, pieces, t->backward_k)};
    const int64_t forward = ints(q[0], kv[0]), backward = ints(kv[1], q[1]) + (turns ? (kv[1] + turns) * q[1] : 0);
    const int64_t sides[2] = {q[0] * parts[0] + kv[0], q[1] + kv[1] * parts[1]};
    return (KernelLists){.ints = forward > backward ? forward : backward,
                         .sides = sides[0] > sides[1] ? sides[0] : sides[1]};
}
