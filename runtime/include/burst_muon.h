/* burst_muon.h: what the compiler and programs share about Muon: which rank orthogonalises which matrix,
 * where it stores it, and the cost.
 *
 * Muon (Jordan et al., 2024; Moonlight, arXiv 2502.16982) replaces a matrix's momentum by a matrix whose
 * singular values are near 1, by Newton-Schulz iterations X = a X + (b A + c A A) X with A = X X^T. That
 * needs the whole matrix, and shards hold parts of it. Each matrix therefore has an owner among the ranks
 * that share the weights: they send it their parts of the update, and it sends them the result. A rank sends
 * and receives no more than its shards, and the owners' work is balanced. */
#ifndef BURST_MUON_H
#define BURST_MUON_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { BURST_MUON_ITERATIONS = 5, BURST_MUON_ALIGN = 32 /* elements: 64 bytes of the smallest type */ };
#define BURST_MUON_A 3.4445
#define BURST_MUON_B (-4.7750)
#define BURST_MUON_C 2.0315
#define BURST_MUON_EPS 1e-7 /* added to the norm of an update */
/* an update is scaled by this times sqrt(max(rows, cols)), which gives it AdamW's root mean square */
#define BURST_MUON_SCALE 0.2
enum { BURST_MUON_MATRICES = 32 + 3 * 1024 }; /* of a layer: experts have three each */

typedef struct BurstMatrix {
    int64_t rows, cols;
} BurstMatrix;

/* Kernels of convolutions, [channels][kernel], are none: AdamW updates them. */
static inline bool burst_muon_takes(int64_t cols) { return cols > 4; }

static inline int64_t burst_muon_room(int64_t elements)
{
    return (elements + BURST_MUON_ALIGN - 1) / BURST_MUON_ALIGN * BURST_MUON_ALIGN;
}

static inline double burst_muon_scale(BurstMatrix x)
{
    return BURST_MUON_SCALE * sqrt((double)(x.rows > x.cols ? x.rows : x.cols));
}

/* The shorter side, the size of A. */
static inline int64_t burst_muon_side(BurstMatrix x) { return x.rows < x.cols ? x.rows : x.cols; }

/* A and (b A + c A A) X: 2 side^2 times the longer side each. A A: 2 side^3. */
static inline int64_t burst_muon_flops(BurstMatrix x)
{
    const int64_t side = burst_muon_side(x);
    return BURST_MUON_ITERATIONS * (4 * side * x.rows * x.cols + 2 * side * side * side);
}

/* Elements of scratch: two X and two A. */
static inline int64_t burst_muon_scratch(BurstMatrix x)
{
    const int64_t side = burst_muon_side(x);
    return 2 * (burst_muon_room(x.rows * x.cols) + burst_muon_room(side * side));
}

/* A unit's matrices: of a layer, or of a group of its experts. Units of one kind may share them. */
typedef struct BurstMatrices {
    const BurstMatrix *matrix;
    int n;
} BurstMatrices;

/* The most operations of a matrix that has fewer than `below`; 0: there is none. */
static inline int64_t burst_muon_next(const BurstMatrices *of, int units, int64_t below)
{
    int64_t most = 0;
    for (int unit = 0; unit < units; unit++)
        for (int i = 0; i < of[unit].n; i++) {
            const int64_t flops = burst_muon_flops(of[unit].matrix[i]);
            most = flops < below && flops > most ? flops : most;
        }
    return most;
}

/* Assigns the matrices of all units, of [units], longest first, each to the rank with the least load (LPT:
 * Graham, 1969). owner and at: for the matrices of the first unit, then of the second, and so on, the owner,
 * and the offset at the owner in elements. load [ranks]: operations. elements [ranks]: elements in all. */
static inline void burst_muon_share(const BurstMatrices *of, int units, int ranks, int *owner, int64_t *at,
                                    int64_t *load, int64_t *elements)
{
    for (int r = 0; r < ranks; r++)
        load[r] = elements[r] = 0;
    for (int64_t flops = burst_muon_next(of, units, INT64_MAX); flops;
         flops = burst_muon_next(of, units, flops)) {
        int n = 0;
        for (int unit = 0; unit < units; unit++)
            for (int i = 0; i < of[unit].n; i++, n++) {
                const BurstMatrix x = of[unit].matrix[i];
                int least = 0;
                if (burst_muon_flops(x) != flops)
                    continue;
                for (int r = 1; r < ranks; r++)
                    least = load[r] < load[least] ? r : least;
                owner[n] = least;
                at[n] = elements[least];
                load[least] += flops;
                elements[least] += burst_muon_room(x.rows * x.cols);
            }
    }
}

#endif
