/* check_range.c: interval arithmetic, which proves that no value of a mask or of a schedule's index
 * overflows. */
#include "burst_int.h"
#include "check.h"

static Range hull(__int128 a, __int128 b, __int128 x, __int128 y)
{
    __int128 lo = a < b ? a : b, hi = a < b ? b : a;
    __int128 lo2 = x < y ? x : y, hi2 = x < y ? y : x;
    return (Range){lo < lo2 ? lo : lo2, hi > hi2 ? hi : hi2};
}

static Range magnitude(Range a)
{
    if (a.lo >= 0)
        return a;
    if (a.hi <= 0)
        return (Range){-a.hi, -a.lo};
    return (Range){0, -a.lo > a.hi ? -a.lo : a.hi};
}

/* A quotient lies between the quotients by the two extreme divisors. */
static Range quotient(Range a, Range b)
{
    return hull(burst_floor_div((int64_t)a.lo, (int64_t)b.lo), burst_floor_div((int64_t)a.hi, (int64_t)b.lo),
                burst_floor_div((int64_t)a.lo, (int64_t)b.hi), burst_floor_div((int64_t)a.hi, (int64_t)b.hi));
}

static Range of_function(const ExprFunction *f, Range a, Range b)
{
    const BurstSide any = {0}; /* an interval's bounds need no sides */
    const BurstForm r = f->form(burst_interval((int64_t)a.lo, (int64_t)a.hi),
                                burst_interval((int64_t)b.lo, (int64_t)b.hi), &any, &any);
    return (Range){r.lo, r.hi};
}

Range range_of(ExprOp op, Range a, Range b)
{
    switch (op) {
    case E_ADD: return (Range){a.lo + b.lo, a.hi + b.hi};
    case E_SUB: return (Range){a.lo - b.hi, a.hi - b.lo};
    case E_MUL: return hull(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi);
    case E_DIV: return quotient(a, b);
    case E_MOD: return (Range){0, b.hi - 1};
    case E_POW: return (Range){(__int128)1 << b.lo, (__int128)1 << b.hi};
    case E_ABS: return magnitude(a);
    case E_HASH: return (Range){0, BURST_HASH_LAST};
    default: break;
    }
    const ExprFunction *f = expr_function(op);
    return f ? of_function(f, a, b) : (Range){0, 1}; /* conditions */
}
