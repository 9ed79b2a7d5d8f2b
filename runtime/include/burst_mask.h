/* burst_mask.h: interval arithmetic for masks, used by the compiler's mask pass and by every emitted
 * plan_mask<i>_tile.
 *
 * A tile is a box of positions, given by its two sides. The value of an arithmetic expression on a box is a
 * form a*q + b*k + [lo, hi]: affine parts stay symbolic, so that `q - k < w` is decided exactly, and
 * everything else is an interval. A boolean is BURST_EMPTY (false everywhere), BURST_FULL (true everywhere)
 * or BURST_PARTIAL (no claim). Callers rely on two properties. Soundness: EMPTY and FULL are proofs.
 * Isotony: a box inside a decided box has the same result, so that a range of tiles can be decided by its
 * hull.
 *
 * Sums wrap around instead of overflowing: partial results may leave int64, but the value itself cannot
 * (masks are checked to stay within +-2^62). */
#ifndef BURST_MASK_H
#define BURST_MASK_H

#include "burst_int.h"
#include "burst_attend.h"

#ifdef __CUDACC__
#define BURST_MASK_DATA static __device__ const
#else
#define BURST_MASK_DATA static const
#endif
#define BURST_MAYBE_UNUSED __attribute__((unused))

/* ---- exact arithmetic in addition to burst_int.h, also for plan_mask<i>_row ---- */
BURST_FN int64_t burst_bitand(int64_t a, int64_t b) { return a & b; }
BURST_FN int64_t burst_bitor(int64_t a, int64_t b) { return a | b; }
BURST_FN int64_t burst_bitxor(int64_t a, int64_t b) { return a ^ b; }

/* The same in 32 bits, for plan_mask<i>_keep. */
BURST_FN int32_t burst_floor_div32(int32_t a, int32_t b) { return a / b - (a % b < 0); }
BURST_FN int32_t burst_min32(int32_t a, int32_t b) { return a < b ? a : b; }
BURST_FN int32_t burst_max32(int32_t a, int32_t b) { return a > b ? a : b; }
BURST_FN int32_t burst_abs32(int32_t a) { return a < 0 ? -a : a; }
BURST_FN int32_t burst_bitand32(int32_t a, int32_t b) { return a & b; }
BURST_FN int32_t burst_bitor32(int32_t a, int32_t b) { return a | b; }
BURST_FN int32_t burst_bitxor32(int32_t a, int32_t b) { return a ^ b; }
BURST_FN int32_t burst_hash32(int32_t a, int32_t b) { return (int32_t)burst_hash(a, b); }
BURST_FN int32_t burst_floor_mod32(int32_t a, int32_t b)
{
    const int32_t rest = a % b;
    return rest < 0 ? rest + b : rest;
}

/* Cell (row, col) of a pattern of rows * cols cells, each 0/1 or '0'/'1'; outside is 0. */
BURST_FN int burst_pattern(const uint8_t *cell, int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    if (row < 0 || row >= rows || col < 0 || col >= cols)
        return 0;
    return cell[row * cols + col] & 1;
}

/* ---- three-valued logic: EMPTY < PARTIAL < FULL ---- */
BURST_FN int burst_and(int x, int y) { return x < y ? x : y; }
BURST_FN int burst_or(int x, int y) { return x > y ? x : y; }
BURST_FN int burst_not(int x) { return BURST_FULL - x; }

/* ---- forms ---- */
typedef struct BurstForm { int64_t a, b, lo, hi; } BurstForm; /* a*q + b*k + [lo, hi] */

BURST_FN int64_t burst_plus(int64_t x, int64_t y) { return (int64_t)((uint64_t)x + (uint64_t)y); }
BURST_FN int64_t burst_minus(int64_t x, int64_t y) { return (int64_t)((uint64_t)x - (uint64_t)y); }
BURST_FN int64_t burst_times(int64_t x, int64_t y) { return (int64_t)((uint64_t)x * (uint64_t)y); }

BURST_FN BurstForm burst_form(int64_t a, int64_t b, int64_t lo, int64_t hi)
{
    BurstForm f;
    f.a = a, f.b = b, f.lo = lo, f.hi = hi;
    return f;
}

BURST_FN BurstForm burst_affine(int64_t a, int64_t b, int64_t c) { return burst_form(a, b, c, c); }
BURST_FN BurstForm burst_interval(int64_t lo, int64_t hi) { return burst_form(0, 0, lo, hi); }
BURST_FN BurstForm burst_table(const BurstSide *side, int table)
{
    return burst_interval(side->table_lo[table], side->table_hi[table]);
}

/* The interval of values on the box: a = b = 0. */
BURST_FN BurstForm burst_range(BurstForm x, const BurstSide *q, const BurstSide *k)
{
    const int64_t q_low = x.a < 0 ? q->hi : q->lo, q_high = x.a < 0 ? q->lo : q->hi;
    const int64_t k_low = x.b < 0 ? k->hi : k->lo, k_high = x.b < 0 ? k->lo : k->hi;
    const int64_t low = burst_plus(burst_times(x.a, q_low), burst_times(x.b, k_low));
    const int64_t high = burst_plus(burst_times(x.a, q_high), burst_times(x.b, k_high));
    return burst_interval(burst_plus(x.lo, low), burst_plus(x.hi, high));
}

BURST_FN BurstForm burst_form_add(BurstForm x, BurstForm y)
{
    return burst_form(burst_plus(x.a, y.a), burst_plus(x.b, y.b), burst_plus(x.lo, y.lo),
                      burst_plus(x.hi, y.hi));
}

BURST_FN BurstForm burst_form_sub(BurstForm x, BurstForm y)
{
    return burst_form(burst_minus(x.a, y.a), burst_minus(x.b, y.b), burst_minus(x.lo, y.hi),
                      burst_minus(x.hi, y.lo));
}

BURST_FN BurstForm burst_form_scale(BurstForm x, int64_t s)
{
    const int64_t lo = burst_times(s < 0 ? x.hi : x.lo, s), hi = burst_times(s < 0 ? x.lo : x.hi, s);
    return burst_form(burst_times(x.a, s), burst_times(x.b, s), lo, hi);
}

BURST_FN BurstForm burst_form_mul(BurstForm x, BurstForm y, const BurstSide *q, const BurstSide *k)
{
    const BurstForm u = burst_range(x, q, k), v = burst_range(y, q, k);
    if (v.lo == v.hi)
        return burst_form_scale(x, v.lo);
    if (u.lo == u.hi)
        return burst_form_scale(y, u.lo);
    const int64_t ll = burst_times(u.lo, v.lo), lh = burst_times(u.lo, v.hi);
    const int64_t hl = burst_times(u.hi, v.lo), hh = burst_times(u.hi, v.hi);
    return burst_interval(burst_min(burst_min(ll, lh), burst_min(hl, hh)),
                          burst_max(burst_max(ll, lh), burst_max(hl, hh)));
}

BURST_FN BurstForm burst_form_div(BurstForm x, int64_t d, const BurstSide *q, const BurstSide *k)
{
    const BurstForm u = burst_range(x, q, k);
    return d == 1 ? x : burst_interval(burst_floor_div(u.lo, d), burst_floor_div(u.hi, d));
}

/* Within one period the result is affine; otherwise it is anything in [0, d - 1]. */
BURST_FN BurstForm burst_form_mod(BurstForm x, int64_t d, const BurstSide *q, const BurstSide *k)
{
    const BurstForm u = burst_range(x, q, k);
    const int64_t period = burst_floor_div(u.lo, d);
    if (period != burst_floor_div(u.hi, d))
        return burst_interval(0, d - 1);
    return burst_form_sub(x, burst_affine(0, 0, period * d));
}

BURST_FN BurstForm burst_form_min(BurstForm x, BurstForm y, const BurstSide *q, const BurstSide *k)
{
    const BurstForm u = burst_range(x, q, k), v = burst_range(y, q, k),
                    d = burst_range(burst_form_sub(x, y), q, k);
    if (d.hi <= 0)
        return x;
    return d.lo >= 0 ? y : burst_interval(burst_min(u.lo, v.lo), burst_min(u.hi, v.hi));
}

BURST_FN BurstForm burst_form_max(BurstForm x, BurstForm y, const BurstSide *q, const BurstSide *k)
{
    return burst_form_scale(burst_form_min(burst_form_scale(x, -1), burst_form_scale(y, -1), q, k), -1);
}

BURST_FN BurstForm burst_form_abs(BurstForm x, const BurstSide *q, const BurstSide *k) /* |x| */
{
    const BurstForm u = burst_range(x, q, k);
    if (u.lo >= 0)
        return x;
    return u.hi <= 0 ? burst_form_scale(x, -1) : burst_interval(0, burst_max(burst_minus(0, u.lo), u.hi));
}

/* The highest set bit and all bits below it. */
BURST_FN uint64_t burst_bits_below(uint64_t bits)
{
    for (int by = 1; by < 64; by *= 2)
        bits |= bits >> by;
    return bits;
}

/* The bits that differ between lo and hi and all bits below them; the others are equal in all values. */
BURST_FN uint64_t burst_changing_bits(BurstForm u)
{
    return burst_bits_below((uint64_t)u.lo ^ (uint64_t)u.hi);
}

/* Bitwise and in two's complement: at most any operand that is not negative, and at least the smaller bound
 * of both together. */
BURST_FN BurstForm burst_form_bitand(BurstForm x, BurstForm y, const BurstSide *q, const BurstSide *k)
{
    const BurstForm u = burst_range(x, q, k), v = burst_range(y, q, k);
    const uint64_t x_changes = burst_changing_bits(u), y_changes = burst_changing_bits(v);
    const int signs = u.lo < 0 && v.lo < 0;
    int64_t lo = signs ? burst_plus(u.lo, v.lo) : 0, hi = burst_max(u.hi, v.hi);
    if (u.lo >= 0)
        hi = v.lo >= 0 ? burst_min(u.hi, v.hi) : u.hi;
    else if (v.lo >= 0)
        hi = v.hi;
    /* both signs are known: bits that all values have, or that any has */
    if ((x_changes | y_changes) <= INT64_MAX) {
        const uint64_t least = (uint64_t)u.lo & ~x_changes & (uint64_t)v.lo & ~y_changes;
        const uint64_t most = ((uint64_t)u.lo | x_changes) & ((uint64_t)v.lo | y_changes);
        lo = burst_max(lo, (int64_t)least);
        hi = burst_min(hi, (int64_t)most);
    }
    return burst_interval(lo, hi);
}

/* Bitwise or in two's complement: x | y is ~(~x & ~y), and ~x is -1 - x. */
BURST_FN BurstForm burst_form_bitor(BurstForm x, BurstForm y, const BurstSide *q, const BurstSide *k)
{
    const BurstForm ones = burst_affine(0, 0, -1);
    return burst_form_sub(
        ones, burst_form_bitand(burst_form_sub(ones, x), burst_form_sub(ones, y), q, k));
}

/* For negative x the bits of -1 - x. An x that needs n bits lies in [-2^n, 2^n - 1]. */
BURST_FN uint64_t burst_magnitude(int64_t x) { return (uint64_t)(x < 0 ? ~x : x); }

/* Bitwise exclusive or in two's complement: bits that change in neither operand are equal in all values. If
 * a sign changes, the result has at most as many bits as the widest operand. */
BURST_FN BurstForm burst_form_bitxor(BurstForm x, BurstForm y, const BurstSide *q, const BurstSide *k)
{
    const BurstForm u = burst_range(x, q, k), v = burst_range(y, q, k);
    const uint64_t changes = burst_changing_bits(u) | burst_changing_bits(v);
    if (changes <= INT64_MAX) {
        const uint64_t same = ((uint64_t)u.lo ^ (uint64_t)v.lo) & ~changes;
        return burst_interval((int64_t)same, (int64_t)(same | changes));
    }
    const int64_t most = (int64_t)burst_bits_below(burst_magnitude(u.lo) | burst_magnitude(u.hi) |
                                                   burst_magnitude(v.lo) | burst_magnitude(v.hi));
    return burst_interval(-1 - most, most);
}

enum { BURST_HASH_CASES = 16 }; /* up to this many argument pairs are tried one by one */

/* hash(x, y) mod n; n = 0: the hash itself. */
BURST_FN BurstForm burst_form_hash(BurstForm x, BurstForm y, int64_t n, const BurstSide *q,
                                   const BurstSide *k)
{
    const BurstForm u = burst_range(x, q, k), v = burst_range(y, q, k);
    const int64_t last = n ? burst_min(n - 1, BURST_HASH_LAST) : BURST_HASH_LAST;
    /* one less than the number of values */
    const uint64_t rows = (uint64_t)u.hi - (uint64_t)u.lo, cols = (uint64_t)v.hi - (uint64_t)v.lo;
    if (rows >= BURST_HASH_CASES || cols >= BURST_HASH_CASES || (rows + 1) * (cols + 1) > BURST_HASH_CASES)
        return burst_interval(0, last);
    int64_t lo = last, hi = 0;
    for (int64_t i = u.lo; i <= u.hi; i++)
        for (int64_t j = v.lo; j <= v.hi; j++) {
            const int64_t h = n ? burst_hash(i, j) % n : burst_hash(i, j);
            lo = burst_min(lo, h), hi = burst_max(hi, h);
        }
    return burst_interval(lo, hi);
}

/* ---- verdicts ---- */
BURST_FN int burst_negative(BurstForm x, const BurstSide *q, const BurstSide *k) /* x < 0 */
{
    const BurstForm u = burst_range(x, q, k);
    if (u.hi < 0)
        return BURST_FULL;
    return u.lo >= 0 ? BURST_EMPTY : BURST_PARTIAL;
}

BURST_FN int burst_zero(BurstForm x, const BurstSide *q, const BurstSide *k) /* x == 0 */
{
    const BurstForm u = burst_range(x, q, k);
    if (u.lo > 0 || u.hi < 0)
        return BURST_EMPTY;
    return u.lo == u.hi ? BURST_FULL : BURST_PARTIAL;
}

/* Whether the keys are chosen, of a tile whose side has that. */
BURST_FN int burst_selected(const BurstSide *k)
{
    const int32_t lo = k->table_lo[BURST_SELECT_TABLE], hi = k->table_hi[BURST_SELECT_TABLE];
    if (lo > 0 && hi == lo)
        return BURST_FULL;
    return lo == 0 && hi == 0 ? BURST_EMPTY : BURST_PARTIAL;
}

/* Pattern cells at (row, col). Stops at the first cell that differs. */
BURST_FN int burst_pattern_cover(const uint8_t *cell, int64_t rows, int64_t cols, BurstForm row,
                                 BurstForm col, const BurstSide *q, const BurstSide *k)
{
    const BurstForm u = burst_range(row, q, k), v = burst_range(col, q, k);
    const int64_t r0 = burst_max(u.lo, 0), r1 = burst_min(u.hi, rows - 1);
    const int64_t c0 = burst_max(v.lo, 0), c1 = burst_min(v.hi, cols - 1);
    if (r0 > r1 || c0 > c1)
        return BURST_EMPTY;
    const int outside = r0 != u.lo || r1 != u.hi || c0 != v.lo || c1 != v.hi;
    const int first = outside ? 0 : burst_pattern(cell, rows, cols, r0, c0);
    for (int64_t r = r0; r <= r1; r++)
        for (int64_t c = c0; c <= c1; c++)
            if (burst_pattern(cell, rows, cols, r, c) != first)
                return BURST_PARTIAL;
    return first ? BURST_FULL : BURST_EMPTY;
}

#endif
