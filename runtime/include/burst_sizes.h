/* burst_sizes.h: sizes of scratch memory, for the compiler, which sizes the arena, and for the kernels,
 * which use it. */
#ifndef BURST_SIZES_H
#define BURST_SIZES_H

#include "burst_kernels.h"
#include "burst_model.h"

#include <stdint.h>

enum {
    BURST_SIZES_TILE = 64,     /* queries and keys of a host attention tile */
    BURST_ATTEND_HEADS = 4     /* heads that share one pass over the tiles */
};

/* Floats. Per head: three packed tiles and four rows of statistics. Shared: two tiles of key gradients,
 * scores, a row of factors, alignment. */
static inline int64_t burst_attend_floats(int head_dim)
{
    const int64_t lanes = BURST_SIZES_TILE, packed = lanes * head_dim, head = 3 * packed + 4 * lanes;
    return BURST_ATTEND_HEADS * head + 2 * packed + 2 * lanes * lanes + lanes + 64 / (int64_t)sizeof(float);
}

static inline int64_t burst_between(int64_t least, int64_t n, int64_t most)
{
    if (n < least)
        return least;
    return n > most ? most : n;
}

/* Default tile of the fused loss, in tokens: large enough for an efficient product, small enough to keep
 * tile x vocab at some tens of megabytes. */
static inline int64_t burst_loss_tile(int vocab)
{
    const int64_t least = 64, most = 256, tokens = (8 << 20) / vocab;
    return burst_between(least, tokens, most);
}

/* Whether the sequence has so many tiles that the head's gradient is first summed separately, because each
 * addition to it rounds. */
static inline int burst_loss_beside(int64_t tokens, int64_t tile)
{
    const int64_t most = 512;
    return tokens > most * tile;
}

/* A tile's logits and, with that many tiles, sums with as many floats as the head. */
static inline int64_t burst_loss_floats(int64_t tokens, int64_t tile, int hidden, int vocab)
{
    return (tile + (burst_loss_beside(tokens, tile) ? hidden : 0)) * vocab;
}

/* Integers for the embedding's gradients: indices of the tokens sorted by row, and scratch to sort them. On
 * a device they lie in the workspace of matrix products. */
static inline int64_t burst_embed_ints(int64_t tokens)
{
    return 2 * tokens;
}

/* Rows of one expert's tokens that are gathered at a time for a product. */
enum { BURST_EXPERT_ROWS = 256 };
static inline int64_t burst_experts_floats(int hidden) { return (int64_t)BURST_EXPERT_ROWS * hidden; }

/* Floats of a piece's state, [heads][key_dim][value_dim]; and of its map: E as a state, then M, which is
 * [heads][key_dim][key_dim] where states are read and else its diagonal, [heads][key_dim]. */
static inline int64_t burst_scan_state(const BurstScan *s)
{
    return (int64_t)s->heads * s->key_dim * s->value_dim;
}

static inline int64_t burst_scan_map(const BurstScan *s)
{
    return burst_scan_state(s) + (int64_t)s->heads * s->key_dim * (s->read ? s->key_dim : 1);
}

/* Tokens of a chunk, whose products are dense. */
enum { BURST_SCAN_CHUNK = 64 };

/* Floats of scratch on the host: of a chunk's arrays, and for the gradients the state before each chunk of
 * one head. n: tokens of this rank. */
static inline int64_t burst_scan_floats(const BurstScan *s, int64_t n)
{
    const int64_t rows = BURST_SCAN_CHUNK, wide = s->value_dim + s->key_dim;
    const int64_t states = (n / rows + BURST_MOST_PIECES) * s->key_dim * s->value_dim;
    return states + 2 * s->key_dim * wide + 5 * rows * rows + rows * (9 * s->key_dim + 4 * wide + 8);
}

/* The same to find the states before a rank's pieces: maps of all ranks' pieces besides. */
static inline int64_t burst_states_floats(const BurstScan *s, int64_t n, int ranks, int pieces)
{
    return (int64_t)ranks * pieces * burst_scan_map(s) + burst_scan_floats(s, n);
}

/* CUDA: chunks of each piece that are worked on together, so that what is kept of chunks has a constant size.
 */
enum { BURST_GPU_SCAN_SLAB = 64 };
static inline int64_t burst_gpu_scan_chunks(int pieces)
{
    return burst_between(1, BURST_GPU_SCAN_SLAB / pieces, BURST_GPU_SCAN_SLAB);
}

/* CUDA: bytes of scratch of a recurrent layer and its gradients: of each chunk and head of a slab four
 * factors, numbers of rows, two states and what is written to them, in bf16; of each piece and slab a state.
 * longest: rows of the longest piece. */
static inline int64_t burst_gpu_scan_bytes(const BurstScan *s, int pieces, int64_t longest)
{
    const int64_t chunk = BURST_SCAN_CHUNK, chunks = burst_gpu_scan_chunks(pieces), wide = s->key_dim + chunk;
    const int64_t slots = pieces * chunks * s->heads, slabs = longest / chunk / chunks + 4;
    const int64_t slot = 4 * 2 * chunk * chunk + 32 * chunk + 4 * wide * s->value_dim + 4;
    return slots * slot + slabs * pieces * 4 * burst_scan_state(s) + 16 * 256;
}

/* The same for any number of pieces up to `pieces`, of n tokens. */
static inline int64_t burst_gpu_scan_most_bytes(const BurstScan *s, int pieces, int64_t n)
{
    int64_t most = 0;
    for (int i = 1; i <= pieces; i++) {
        const int64_t bytes = burst_gpu_scan_bytes(s, i, n);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* To find the states before a rank's pieces: maps of all ranks' pieces besides. */
static inline int64_t burst_gpu_states_bytes(const BurstScan *s, int64_t n, int ranks, int pieces)
{
    return (int64_t)ranks * pieces * burst_scan_map(s) * 4 + burst_gpu_scan_most_bytes(s, pieces, n);
}

/* CUDA: pieces of a sequence whose maps are folded, at most. */
enum { BURST_GPU_FOLDED_PIECES = 512 };

/* CUDA: doubles for partial sums of the gradients of a convolution's weights, and of a_log and dt_bias. */
enum { BURST_GPU_CONV_BLOCKS = 64, BURST_GPU_SCAN_GATE_BLOCKS = 128 };
static inline int64_t burst_gpu_conv_doubles(const BurstConv *c)
{
    return (int64_t)BURST_GPU_CONV_BLOCKS * c->channels * (BURST_MOST_KERNEL + 1);
}

static inline int64_t burst_gpu_scan_gates_doubles(int heads)
{
    return (int64_t)BURST_GPU_SCAN_GATE_BLOCKS * heads * 2;
}

/* CUDA: rows of a tile of products of experts' matrices. */
enum { BURST_GPU_EXPERTS_TILE = 128 };
/* CUDA: tokens whose gradients of logits are rounded to bf16 at a time; pieces of the choices, each of which
 * is counted by itself. Bytes for the larger of the two: of bf16 gradients, or of an integer a piece and
 * expert and one an expert. */
enum { BURST_GPU_ROUTER_TOKENS = 8192, BURST_GPU_PIECES = 2048 };
static inline int64_t burst_gpu_experts_bytes(int experts)
{
    const int64_t rounded = 2 * (int64_t)BURST_GPU_ROUTER_TOKENS,
                  counts = 4 * ((int64_t)BURST_GPU_PIECES + 1);
    return experts * (rounded > counts ? rounded : counts);
}

/* CUDA: doubles for partial sums of a norm's weight gradient, one row per block: three blocks on each of 108
 * multiprocessors. */
enum { BURST_GPU_NORM_BLOCKS = 324 };
static inline int64_t burst_gpu_norm_doubles(int hidden)
{
    return (int64_t)BURST_GPU_NORM_BLOCKS * hidden;
}

/* CUDA: elements of a gated norm's weights whose gradients a block sums in shared memory, at most. */
enum { BURST_GPU_GATED_NORM_ELEMENTS = 40 << 10 };

/* CUDA: floats from one row of the fused loss's logits to the next; rows are aligned to 32 bytes. */
static inline int64_t burst_gpu_loss_row(int vocab)
{
    return ((int64_t)vocab + 7) / 8 * 8;
}

/* CUDA: bytes of the logits of one token. */
static inline int64_t burst_gpu_next_bytes(int vocab) { return 4 * burst_gpu_loss_row(vocab); }

/* Bytes of a token's parts: on a device of all splits, and, of several ranks, the rank's own and all. */
static inline int64_t burst_decode_bytes(int heads, int kv_heads, int value_dim, int ranks, int on_device)
{
    const int64_t part = 4 * heads * burst_decode_row(value_dim, on_device);
    if (!on_device)
        return ranks * part;
    return part * (burst_decode_splits(heads, kv_heads) + (ranks > 1 ? 1 + ranks : 0));
}

/* CUDA: the same with a cache of latents; then the heads' queries and their output of latents in bf16. */
static inline int64_t burst_decode_latent_bytes(int heads, int latent, int shared, int ranks)
{
    const int64_t part = 4 * heads * burst_decode_row(latent, 1);
    return part * (burst_latent_splits(heads) + (ranks > 1 ? 1 + ranks : 0)) +
           (int64_t)2 * heads * (2 * latent + shared);
}

/* CUDA: default tile of the fused loss, in tokens: large enough that dw, which each tile reads and writes
 * whole, costs a quarter of the product, within two gigabytes. */
static inline int64_t burst_gpu_loss_tile(int vocab)
{
    const int64_t least = 128, most = 4096, bytes = (int64_t)2 << 30;
    const int64_t tokens = bytes / (4 * burst_gpu_loss_row(vocab)) / least * least;
    return burst_between(least, tokens, most);
}

/* CUDA: a tile's logits in fp32, then a double for each token. */
static inline int64_t burst_gpu_loss_bytes(int64_t tile, int vocab)
{
    return tile * (burst_gpu_loss_row(vocab) * 4 + 8);
}

/* CUDA: device memory of a rank besides the plan's buffers. The runtime's own part is exact. The others are
 * what drivers and libraries took on H200s (benchmarks/log), NCCL's connections included; programs print
 * what they measure. Inside a node channels use copy engines and have no communicator. */
enum {
    BURST_GPU_OWN_BYTES = 64 << 20, /* workspace of matrix products, sums */
    /* the CUDA context, with the kernels of the program and of cublasLt */
    BURST_GPU_CONTEXT_BYTES = 540 << 20,
    BURST_GPU_WEIGHTS_BYTES = 864 << 20, /* NCCL and the communicator of the weights */
    /* of these: connections by which ranks sum gradients, and what NCCL takes for its first collective */
    BURST_GPU_SUMS_BYTES = 305 << 20,
    BURST_GPU_FIRST_BYTES = 170 << 20,
    BURST_GPU_CHANNEL_BYTES = 500 << 20 /* the communicator of a channel or of a second group of ranks */
};
/* communicators: of groups of ranks. */
static inline int64_t burst_gpu_beside_bytes(int nodes, int communicators, int channels)
{
    return (int64_t)BURST_GPU_OWN_BYTES + BURST_GPU_CONTEXT_BYTES +
           (communicators > 0 ? BURST_GPU_WEIGHTS_BYTES : 0) +
           ((communicators > 1 ? communicators - 1 : 0) + (nodes > 1 ? channels : 0)) *
               (int64_t)BURST_GPU_CHANNEL_BYTES;
}

/* CUDA: what of these a rank does not take if it computes forward alone. Inside a node copy engines gather
 * weights, and of NCCL's collectives tensor ranks alone need some. */
static inline int64_t burst_gpu_unconnected_bytes(int nodes, int communicators, int tensor)
{
    if (nodes > 1 || communicators == 0)
        return 0;
    return (int64_t)BURST_GPU_SUMS_BYTES + (tensor > 1 ? 0 : BURST_GPU_FIRST_BYTES);
}

/* CUDA: packing bytes of one piece of an exchange; contiguous pieces need none. */
static inline int64_t burst_gpu_packing(int64_t width, int64_t rows, int64_t pitch)
{
    return rows <= 1 || pitch == width ? 0 : (width * rows + 255) / 256 * 256;
}

#endif
