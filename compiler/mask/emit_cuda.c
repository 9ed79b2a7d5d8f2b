/* mask/emit_cuda.c: a mask as CUDA: plan_mask<i>_tile, plan_mask<i>_keep for one pair, and PlanMask<i>, the
 * attention kernels' template argument. The predicate computes in 32 bits if every value on the sequence
 * fits. */
#include "mask/internal.h"

#include "burst_kernels.h"

#include <inttypes.h>

/* The interval of an arithmetic sub-expression on positions 0 .. last. */
typedef struct Range { int64_t lo, hi; bool narrow; } Range;

static Range range_of(const Expr *e, int64_t last);

static Range range_make(int64_t lo, int64_t hi, bool narrow)
{
    Range r = {lo, hi, narrow && lo >= INT32_MIN && hi <= INT32_MAX};
    return r;
}

static Range range_multiply(Range a, Range b)
{
    const int64_t corner[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    int64_t lo = corner[0], hi = corner[0];
    for (int i = 1; i < 4; i++)
        lo = burst_min(lo, corner[i]), hi = burst_max(hi, corner[i]);
    return range_make(lo, hi, true);
}

/* Both operands fit in 32 bits, so nothing overflows here. */
static Range range_of_two(ExprOp op, Range a, Range b)
{
    switch (op) {
    case E_ADD: return range_make(a.lo + b.lo, a.hi + b.hi, true);
    case E_SUB: return range_make(a.lo - b.hi, a.hi - b.lo, true);
    case E_MUL: return range_multiply(a, b);
    case E_DIV: return range_make(burst_floor_div(a.lo, b.lo), burst_floor_div(a.hi, b.lo), true);
    case E_MOD: return range_make(0, b.lo - 1, true);
    case E_HASH: return range_make(0, BURST_HASH_LAST, true);
    default: break;
    }
    const BurstSide any = {0}; /* an interval's bounds need no sides */
    const BurstForm f =
        expr_function(op)->form(burst_interval(a.lo, a.hi), burst_interval(b.lo, b.hi), &any, &any);
    return range_make(f.lo, f.hi, true);
}

static Range range_of(const Expr *e, int64_t last)
{
    switch (e->op) {
    case E_CONST: return range_make(e->value, e->value, true);
    case E_Q: case E_K: return range_make(0, last, true);
    case E_TABLE_Q: case E_TABLE_K: return range_make(INT32_MIN, INT32_MAX, true);
    default: break;
    }
    const Range a = range_of(e->a, last);
    if (e->op == E_ABS)
        return range_make(0, burst_max(burst_abs(a.lo), burst_abs(a.hi)), a.narrow);
    const Range b = range_of(e->b, last);
    return a.narrow && b.narrow ? range_of_two(e->op, a, b) : range_make(0, 0, false);
}

/* Whether all values of the mask fit in 32 bits. */
static bool is_narrow(const Expr *e, int64_t last)
{
    if (e->op == E_TRUE || e->op == E_FALSE || e->op == E_SELECTED)
        return true;
    if (e->op == E_NOT)
        return is_narrow(e->a, last);
    if (e->op == E_AND || e->op == E_OR)
        return is_narrow(e->a, last) && is_narrow(e->b, last);
    return range_of(e->a, last).narrow && range_of(e->b, last).narrow;
}

/* Sizes by which kernels find the lists of a tile of queries, and a key's block. */
static void emit_selection_sizes(const Selection *s, Text *out)
{
    text_printf(out, "    enum { CHOSEN_QUERIES = %" PRId64 ", CHOSEN_KEYS = %" PRId64 " };\n", s->queries,
                s->block);
}

void mask_emit_cuda(const Program *p, int mask, Text *out)
{
    const Expr *e = p->masks[mask].expr;
    const bool narrow = is_narrow(e, p->sequence - 1);
    const char *integer = narrow ? "int32_t" : "int64_t";
    const MaskSpelling spelling = {.key = "k",
                                   .table_q = narrow ? "tq[%d]" : "(int64_t)tq[%d]",
                                   .table_k = narrow ? "tk[%d]" : "(int64_t)tk[%d]",
                                   .selected = "tk[BURST_SELECT_TABLE]",
                                   .suffix = narrow ? "32" : "",
                                   .one = true};
    mask_emit_tile(p, mask, "static __device__ BURST_MAYBE_UNUSED", out);
    text_printf(out,
                "/* tq[t], tk[t]: the value of table t at q, at k. */\n"
                "static __device__ BURST_MAYBE_UNUSED int plan_mask%d_keep(%s q, %s k, const int32_t *tq, "
                "const int32_t *tk)\n"
                "{\n    (void)tq, (void)tk;\n",
                mask, integer, integer);
    mask_emit_exact(p, mask, &spelling, out);
    text_printf(out,
                "struct PlanMask%d {\n"
                "    enum { TABLES = 0x%x, ALL = %d, KEYS = %d, KEYS_BACKWARD = %d }; /* "
                "templates/kernels/cuda_attention.cuh */\n",
                mask, mask_tables(e), e->op == E_TRUE, narrow ? mask_keys(p, mask, false) : BURST_KEYS_USUAL,
                narrow ? mask_keys(p, mask, true) : BURST_KEYS_USUAL);
    if (p->masks[mask].selection)
        emit_selection_sizes(&p->selections[p->masks[mask].selection - 1], out);
    text_printf(out,
                "    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return "
                "plan_mask%d_tile(q, k); }\n"
                "    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)\n"
                "    {\n        return plan_mask%d_keep(q, k, tq, tk);\n    }\n};\n\n",
                mask, mask);
}
