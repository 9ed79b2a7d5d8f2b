/* burst_kernels.h: the forms of the CUDA attention kernels and their tiles, for the compiler (compiler/kernels.c) and for the
 * kernels themselves (templates/cuda_attention.cuh).
 *
 * A form is named by the oldest architecture that runs it: 80 (mma.sync), 90 (wgmma and TMA: sm_90a alone).
 */
#ifndef BURST_KERNELS_H
#define BURST_KERNELS_H

/* form, head_dim; tokens of a tile: forward's queries, its keys, its keys where a mask leaves long lists of tiles; backward's
 * queries and keys. At head_dim 128 backward's query tile is small: dK and dV already take 128 registers a thread. */
#define BURST_KERNELS(X)                 \
    X(80, 64, 128, 128, 128, 128, 128)   \
    X(80, 128, 128, 64, 64, 64, 128)     \
    X(90, 64, 192, 128, 128, 128, 128)   \
    X(90, 128, 128, 128, 176, 64, 128)

/* A list is long from so many keys a query on, on average over the sequence. */
enum { BURST_LONG_KEYS = 3072 };

#endif
