/* burst_sizes.h: sizes of scratch memory that both the compiler (which sizes the arena) and the host kernels (which use
 * it) need to know. */
#ifndef BURST_SIZES_H
#define BURST_SIZES_H

#include <stdint.h>

enum {
    BURST_SIZES_TILE = 64,     /* queries and keys of a host attention tile */
    BURST_ATTEND_HEADS = 4     /* heads that share one walk over the tiles */
};

/* Floats: per head two packed tiles and two rows of statistics; shared scores, a row of factors, alignment. */
static inline int64_t burst_attend_floats(int head_dim)
{
    const int64_t lanes = BURST_SIZES_TILE, head = 2 * lanes * head_dim + 2 * lanes;
    return BURST_ATTEND_HEADS * head + 2 * lanes * lanes + lanes + 64 / (int64_t)sizeof(float);
}

/* Tokens of a tile of the fused loss: enough for an efficient product, few enough that tile x vocab stays at some tens of
 * megabytes. */
static inline int64_t burst_loss_tile(int vocab)
{
    const int64_t least = 64, most = 256, tokens = (8 << 20) / vocab;
    return tokens < least ? least : tokens > most ? most : tokens;
}

static inline int64_t burst_loss_floats(int vocab)
{
    return burst_loss_tile(vocab) * vocab;
}

/* CUDA: partial sums of a norm's weight gradient, floats. */
enum { BURST_GPU_NORM_BLOCKS = 264 };
static inline int64_t burst_gpu_norm_floats(int hidden)
{
    return (int64_t)BURST_GPU_NORM_BLOCKS * hidden;
}

/* CUDA: a tile of the fused loss: logits in bf16, and per token statistics in fp32. Bytes. */
enum { BURST_GPU_LOSS_TILE = 2048 };
static inline int64_t burst_gpu_loss_bytes(int vocab, int hidden)
{
    (void)hidden;
    return (int64_t)BURST_GPU_LOSS_TILE * ((int64_t)vocab * 2 + 64);
}

#endif
