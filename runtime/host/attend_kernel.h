/* attend_kernel.h: what forward and backward attention share: the register-blocked product, packing, and tile masks.
 *
 * A tile of scores is kept transposed, S[key][query], so that a vector's lanes are queries: maxima and sums over keys need
 * no horizontal step, keys and values are read where they lie, and only the query side is packed, once per query tile.
 */
#ifndef BURST_HOST_ATTEND_KERNEL_H
#define BURST_HOST_ATTEND_KERNEL_H

#include "burst_rt.h"
#include "burst_sizes.h"
#include "vec.h"

enum {
    LANES = BURST_TILE,    /* queries of a tile, padded with zeros where the tile is short */
    LANE_VECS = LANES / VEC,
    ATTEND_HEADS = BURST_ATTEND_HEADS, /* heads that share one walk: a tile's mask is evaluated once for all */
    BLOCK_ROWS = VEC == 4 ? 4 : 6, /* rows x columns of vectors of a register block: 24 of 32 or 12 (8) of 16 registers */
    BLOCK_COLS = VEC == 16 ? 4 : 2
};
#define LOG2E 1.44269504088896340736f
#define LN2 0.69314718055994530942

/* The scratch of a call, carved from BurstAttend.scratch. */
typedef struct AttendHead {
    float *qt;    /* [d][LANES]: queries times scale * log2(e) */
    float *dot;   /* [d][LANES]: backward, dO */
    float *o;     /* [LANES][d]: forward, not normalised */
    float *max;   /* [LANES]: forward, running maximum in log2; backward, lse in log2, +inf where no key was seen */
    float *sum;   /* [LANES]: forward, running sum; backward, delta */
    int kv;       /* key head in these buffers */
    bool loaded;
} AttendHead;
typedef struct AttendScratch {
    AttendHead head[ATTEND_HEADS];
    float *s, *ds;  /* [BURST_TILE keys][LANES] */
    float *factor;  /* [LANES] */
    uint64_t keep[BURST_TILE]; /* [key]: bit q set where (q, key) is unmasked */
} AttendScratch;
void attend_carve(const BurstAttend *a, bool backward, AttendScratch *s);

/* One tile of the walk. */
typedef struct AttendTile { int64_t q0, k0; int nq, nk; bool partial; } AttendTile;

/* x [n][d] times factor, transposed to [d][LANES], zeros behind n. */
void attend_pack(const float *x, int n, int d, float factor, float *out);
/* s->keep for the pair of tiles. */
void attend_keep(const BurstAttend *a, const AttendTile *t, AttendScratch *s);
/* The tile's kind; fills t for tiles qt, kt of the two chunks (keep only where partial). */
int attend_tile(const BurstAttend *a, int qt, int kt, AttendTile *t);

/* A [rows][depth] with any two strides. */
typedef struct Operand { const float *at; int64_t row, depth; } Operand;

/* C[rows][cols vectors] = (add ? C : 0) * (factor ? factor[row] : 1) + A * B; B [depth][...] and C with leading dimensions.
 * rows, cols, tail, add and the strides are constants after inlining; tail: lanes of a short vector, then cols is 1. */
VEC_INLINE void block(int rows, int cols, int tail, int depth, Operand a, const float *b, int64_t ldb, float *c, int64_t ldc,
                      bool add, const float *factor)
{
    Vec sum[BLOCK_ROWS][BLOCK_COLS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < cols; j++) {
            const float *at = c + i * ldc + j * VEC;
            sum[i][j] = !add ? (Vec){0} : tail ? vec_load_part(at, tail) : vec_load(at);
            if (factor)
                sum[i][j] *= factor[i];
        }
#pragma GCC unroll 2
    for (int t = 0; t < depth; t++) {
        Vec right[BLOCK_COLS];
#pragma GCC unroll 8
        for (int j = 0; j < cols; j++)
            right[j] = tail ? vec_load_part(b + t * ldb, tail) : vec_load(b + t * ldb + j * VEC);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            Vec left = vec_set(a.at[i * a.row + t * a.depth]);
#pragma GCC unroll 8
            for (int j = 0; j < cols; j++)
                sum[i][j] += left * right[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < cols; j++) {
            if (tail)
                vec_store_part(c + i * ldc, sum[i][j], tail);
            else
                vec_store(c + i * ldc + j * VEC, sum[i][j]);
        }
}

/* One column of blocks, all rows. */
VEC_INLINE void panel(int m, int cols, int tail, int depth, Operand a, const float *b, int64_t ldb, float *c, int64_t ldc,
                      bool add, const float *factor)
{
    int i = 0;
#define ROWS(count)                                                                                              \
    for (; i + (count) <= m; i += (count))                                                                       \
        block(count, cols, tail, depth, (Operand){a.at + i * a.row, a.row, a.depth}, b, ldb, c + i * ldc, ldc, add, \
              factor ? factor + i : NULL)
    ROWS(BLOCK_ROWS);
    ROWS(2);
    ROWS(1);
#undef ROWS
}

/* C[m][n] = (add ? C * factor by rows : 0) + A[m][depth] B[depth][n], for any sizes. */
VEC_INLINE void product(int m, int n, int depth, Operand a, const float *b, int64_t ldb, float *c, int64_t ldc, bool add,
                        const float *factor)
{
    int j = 0;
    for (; j + BLOCK_COLS * VEC <= n; j += BLOCK_COLS * VEC)
        panel(m, BLOCK_COLS, 0, depth, a, b + j, ldb, c + j, ldc, add, factor);
    if (BLOCK_COLS > 2)
        for (; j + 2 * VEC <= n; j += 2 * VEC)
            panel(m, 2, 0, depth, a, b + j, ldb, c + j, ldc, add, factor);
    for (; j + VEC <= n; j += VEC)
        panel(m, 1, 0, depth, a, b + j, ldb, c + j, ldc, add, factor);
    if (j < n)
        panel(m, 1, n - j, depth, a, b + j, ldb, c + j, ldc, add, factor);
}

/* S[key][LANES] = X[key][d] packed^T. */
VEC_INLINE void scores(int nk, int d, const float *x, const float *packed, float *s)
{
    product(nk, LANES, d, (Operand){x, d, 1}, packed, LANES, s, LANES, false, NULL);
}

/* Masked pairs of S to -inf. */
static inline void mask_scores(int nk, const uint64_t *keep, float *s)
{
    const Vec out = vec_set(-INFINITY);
    for (int k = 0; k < nk; k++)
        for (int v = 0; v < LANE_VECS; v++) {
            float *at = s + k * LANES + v * VEC;
            vec_store(at, vec_pick((uint32_t)(keep[k] >> (v * VEC)) & ((1u << VEC) - 1), vec_load(at), out));
        }
}

#endif
