/* attend_kernel.h: shared by forward and backward attention: the register-blocked product, packing, and tile
 * masks.
 *
 * A tile of scores is transposed, S[key][query], so that a vector's lanes are queries: maxima and sums over
 * keys need no horizontal step, keys and values are read in place, and only the query side is packed, once
 * per query tile.
 *
 * Sums over thousands of tokens must not lose small terms. A tile's product is summed from zero in
 * registers. Products of FOLDS key tiles of a query tile add up in its slot and are then flushed: added to
 * the caller's o or dq, while the rounding error stays in the slot, so a row's error does not grow with its
 * keys. dK and dV of a key tile first add up over the query tiles of a walk: their error grows with the
 * square root of the number of walks. */
#ifndef BURST_HOST_ATTEND_KERNEL_H
#define BURST_HOST_ATTEND_KERNEL_H

#include "burst_rt.h"
#include "burst_sizes.h"
#include "host/ops/vec.h"

enum {
    LANES = BURST_TILE,    /* queries of a tile; a short tile is padded with zeros */
    LANE_VECS = LANES / VEC,
    ATTEND_SLOTS = BURST_ATTEND_HEADS, /* query tiles of one walk over the keys */
    FOLDS = 16,            /* key tiles between two flushes of a slot */
    /* rows x columns of vectors of a register block: 24 of 32, or 12 (8) of 16 registers */
    BLOCK_ROWS = VEC == 4 ? 4 : 6,
    BLOCK_COLS = VEC == 16 ? 4 : 2
};
#define LOG2E 1.44269504088896340736f
#define LN2 0.69314718055994530942

/* A query tile of one head, packed, with its statistics. */
typedef struct AttendSlot {
    float *qt;    /* [d][LANES]: queries */
    float *dot;   /* [e][LANES]: backward, dO */
    float
        /* [LANES][e or d]: part of o (forward, not normalised) or dQ (backward) that is not yet flushed */
        *part;
    /* [LANES]: forward, approximate maximum in log2, an integer; backward, lse in log2, +inf if there is no
     * key */
    float *max;
    float *sum;   /* [LANES]: forward, running sum; backward, delta */
    float *rest;  /* [LANES]: rounding errors: forward, of sum; backward, of max */
    /* [LANES]: forward, pending factor of the flushed o, since the maximum has changed */
    float *shrink;
    int64_t row;  /* row of q, o, lse, ...: head * tokens + first query */
    int queries, kv; /* kv: key head in these buffers */
    int folds;    /* key tiles folded so far; 0: not loaded */
    /* forward, bit i: query i has seen a key in this walk; has ever seen more than one */
    uint64_t seen, several;
    int64_t key[LANES];     /* forward: the first key that a query has seen in this walk */
    bool finite;            /* backward: whether queries, dO, lse and delta are finite */
} AttendSlot;
/* The scratch of a call, laid out in BurstAttend.scratch. */
typedef struct AttendScratch {
    AttendSlot slot[ATTEND_SLOTS];
    float *dk, *dv; /* [BURST_TILE keys][d], [e]: sums over the slots of this walk; zeros between key tiles */
    float *s, *ds;  /* [BURST_TILE keys][LANES] */
    float *factor;  /* [LANES] */
    uint64_t keep[BURST_TILE]; /* [key]: bit q set if (q, key) is unmasked */
    bool finite;               /* whether this tile's keys and values are; set only for partial tiles */
} AttendScratch;
void attend_carve(const BurstAttend *a, AttendScratch *s);
static inline int attend_values(const BurstAttend *a) { return a->value_dim ? a->value_dim : a->head_dim; }

/* Keys of one tile. */
typedef struct AttendKeys { int64_t first; int count; } AttendKeys;

/* x [n][d] transposed to [d][LANES], padded with zeros after n. */
void attend_pack(const float *x, int n, int d, float *out);
/* sum = sum * shrink + part, and part becomes the rounding error. */
void attend_flush(int n, float shrink, float *sum, float *part);
/* Whether heads of one key head may see different keys. */
static inline bool attend_by_head(const BurstAttend *a)
{
    return a->mask->selection && a->mask->selection->heads == BURST_SELECT_OF_HEAD;
}
/* The verdict on a pair of tiles for head h, and keep if it is PARTIAL. */
int attend_cover(const BurstAttend *a, int h, int q_tile, int k_tile, uint64_t *keep);

/* A [rows][depth] with any two strides. */
typedef struct Operand { const float *at; int64_t row, depth; } Operand;

/* C[rows][cols vectors] = (add ? C : 0) * (factor ? factor[row] : 1) + A * B, where the product is summed
 * from zero and then added; B [depth][...] and C have leading dimensions. rows, cols, tail, add and the
 * strides are constants after inlining. tail: lanes of a short vector; cols is then 1. */
VEC_INLINE void block(int rows, int cols, int tail, int depth, Operand a, const float *b, int64_t ldb,
                      float *c, int64_t ldc, bool add, const float *factor)
{
    Vec sum[BLOCK_ROWS][BLOCK_COLS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < cols; j++)
            sum[i][j] = (Vec){0};
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
            float *at = c + i * ldc + j * VEC;
            Vec now = sum[i][j];
            if (add) {
                Vec old = tail ? vec_load_part(at, tail) : vec_load(at);
                now = factor ? old * factor[i] + now : old + now;
            }
            if (tail)
                vec_store_part(at, now, tail);
            else
                vec_store(at, now);
        }
}

/* One column of blocks, all rows. */
VEC_INLINE void panel(int m, int cols, int tail, int depth, Operand a, const float *b, int64_t ldb, float *c,
                      int64_t ldc, bool add, const float *factor)
{
    int i = 0;
#define ROWS(count) \
    for (; i + (count) <= m; i += (count)) \
        block(count, cols, tail, depth, (Operand){a.at + i * a.row, a.row, a.depth}, b, ldb, c + i * ldc, \
              ldc, add, factor ? factor + i : NULL)
    ROWS(BLOCK_ROWS);
    ROWS(2);
    ROWS(1);
#undef ROWS
}

/* C[m][n] = (add ? C * factor by rows : 0) + A[m][depth] B[depth][n], for any sizes. */
VEC_INLINE void product(int m, int n, int depth, Operand a, const float *b, int64_t ldb, float *c,
                        int64_t ldc, bool add, const float *factor)
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

/* Sets masked pairs of S to -inf. */
static inline void mask_scores(int nk, const uint64_t *keep, float *s)
{
    const Vec out = vec_set(-INFINITY);
    for (int k = 0; k < nk; k++)
        for (int v = 0; v < LANE_VECS; v++) {
            float *at = s + k * LANES + v * VEC;
            vec_store(at, vec_pick((uint32_t)(keep[k] >> (v * VEC)) & ((1u << VEC) - 1), vec_load(at), out));
        }
}

/* Converts raw scores so that their product with the scale is capped. */
VEC_INLINE void cap_scores(int nk, float scale, float softcap, float *s)
{
    for (int64_t i = 0; i < (int64_t)nk * LANES; i += VEC)
        vec_store(s + i, vec_tanh(vec_load(s + i) * (scale / softcap)) * (softcap / scale));
}

bool attend_finite(const float *x, int64_t n);
bool attend_finite_keys(const BurstAttend *a, int kv, AttendKeys keys);
/* Adds what product() adds, but only for unmasked pairs: a masked pair's weight is 0, and 0 times NaN is
 * NaN. to [query][width] += weight [key][LANES] * from [key][width]; to_keys: queries and keys exchanged. */
void attend_add_pairs(int nk, const uint64_t *keep, const float *weight, bool to_keys, int width,
                      const float *from, float *to);

/* A direction's functions of a slot: load it at its first key tile, fold a tile of keys, flush what was
 * folded, store the results; and of a tile of keys, once it was folded into a key head's slots. */
typedef void (*SlotStep)(const BurstAttend *a, AttendSlot *slot);
typedef void (*SlotFold)(const BurstAttend *a, int d, int e, AttendSlot *slot, AttendKeys keys, bool partial,
                         AttendScratch *s);
typedef void (*KeysStep)(const BurstAttend *a, int kv, AttendKeys keys, AttendScratch *s);
typedef struct Direction { SlotStep load; SlotFold fold; SlotStep flush, store; KeysStep keys; } Direction;

/* Walks query tiles q0 .. q0 + tiles - 1 of `heads` heads that read one key head over all key tiles: a tile
 * of keys stays in cache for all of them, and its mask is evaluated once for all heads, unless these choose
 * by themselves. */
VEC_INLINE void walk_slots(const BurstAttend *a, int d, int e, int q0, int tiles, int h0, int heads,
                           AttendScratch *s, Direction dir)
{
    for (int kt = 0; kt < a->kc->tiles; kt++) {
        int64_t first = (int64_t)kt * BURST_TILE, left = a->kc->tokens - first;
        AttendKeys keys = {first, (int)(left < BURST_TILE ? left : BURST_TILE)};
        bool any = false, checked = false;
        for (int i = 0; i < tiles; i++) {
            int kind = BURST_EMPTY;
            for (int h = 0; h < heads; h++) {
                AttendSlot *slot = &s->slot[i * heads + h];
                if (h == 0 || attend_by_head(a))
                    kind = attend_cover(a, h0 + h, q0 + i, kt, s->keep);
                if (kind == BURST_EMPTY)
                    continue;
                any = true;
                if (kind == BURST_PARTIAL && !checked)
                    s->finite = attend_finite_keys(a, s->slot[0].kv, keys), checked = true;
                if (slot->folds++ == 0)
                    dir.load(a, slot);
                dir.fold(a, d, e, slot, keys, kind == BURST_PARTIAL, s);
                if (slot->folds % FOLDS == 0)
                    dir.flush(a, slot);
            }
        }
        if (any && dir.keys)
            dir.keys(a, s->slot[0].kv, keys, s);
    }
}

/* Assigns heads and tiles to the slots of a walk. Returns the number of tiles, at most ATTEND_SLOTS /
 * heads. */
int attend_slots(const BurstAttend *a, int h0, int heads, int q0, AttendScratch *s);
/* The number of heads from h0 on that read the same key head, at most ATTEND_SLOTS. */
int attend_heads(const BurstAttend *a, int h0);

/* Walks the whole pair. d, e: elements of a key, of a value. store and keys may be NULL. */
VEC_INLINE void walk(const BurstAttend *a, int d, int e, Direction dir)
{
    AttendScratch s;
    attend_carve(a, &s);
    for (int h0 = 0, heads; h0 < a->q_heads; h0 += heads) {
        heads = attend_heads(a, h0);
        for (int q0 = 0, tiles; q0 < a->qc->tiles; q0 += tiles) {
            tiles = attend_slots(a, h0, heads, q0, &s);
            walk_slots(a, d, e, q0, tiles, h0, heads, &s, dir);
            for (int i = 0; i < tiles * heads; i++)
                if (s.slot[i].folds) {
                    dir.flush(a, &s.slot[i]);
                    if (dir.store)
                        dir.store(a, &s.slot[i]);
                }
        }
    }
}

#endif
