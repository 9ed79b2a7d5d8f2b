/* cover.c: three-valued evaluation of a mask's expression on a rectangle of positions, with the functions
 * that emitted programs use (burst_mask.h): what nodes (mask/lower.c) and emitted masks are compared with.
 */
#include "cover.h"

static BurstForm form_of(const Expr *e, const BurstSide *q, const BurstSide *k)
{
#define FORM(x) form_of((x), q, k)
    switch (e->op) {
    case E_CONST: return burst_affine(0, 0, e->value);
    case E_Q: return burst_affine(1, 0, 0);
    case E_K: return burst_affine(0, 1, 0);
    case E_TABLE_Q: return burst_table(q, (int)e->value);
    case E_TABLE_K: return burst_table(k, (int)e->value);
    case E_ADD: return burst_form_add(FORM(e->a), FORM(e->b));
    case E_SUB: return burst_form_sub(FORM(e->a), FORM(e->b));
    case E_MUL: return burst_form_mul(FORM(e->a), FORM(e->b), q, k);
    case E_DIV: return burst_form_div(FORM(e->a), e->b->value, q, k);
    case E_MOD:
        if (e->a->op == E_HASH)
            return burst_form_hash(FORM(e->a->a), FORM(e->a->b), e->b->value, q, k);
        return burst_form_mod(FORM(e->a), e->b->value, q, k);
#define X(id, name) \
    case E_##id: return burst_form_##name(FORM(e->a), FORM(e->b), q, k);
        EXPR_FUNCTIONS(X)
#undef X
    case E_ABS: return burst_form_abs(FORM(e->a), q, k);
    case E_HASH: return burst_form_hash(FORM(e->a), FORM(e->b), 0, q, k);
    default: return burst_interval(0, 1); /* a boolean; checked not to occur */
    }
}

/* Every comparison is one form against zero. */
static int compare(const Expr *e, const BurstSide *q, const BurstSide *k)
{
    const BurstForm d = burst_form_sub(FORM(e->a), FORM(e->b)), one = burst_affine(0, 0, 1);
    switch (e->op) {
    case E_LT: return burst_negative(d, q, k);
    case E_LE: return burst_negative(burst_form_sub(d, one), q, k);
    case E_GT: return burst_negative(burst_form_scale(d, -1), q, k);
    case E_GE: return burst_negative(burst_form_sub(burst_form_scale(d, -1), one), q, k);
    case E_EQ: return burst_zero(d, q, k);
    default: return burst_not(burst_zero(d, q, k));
    }
}

static int cover_of(const Expr *e, const BurstSide *q, const BurstSide *k)
{
    const Pattern *p = e->pattern;
    switch (e->op) {
    case E_TRUE: return BURST_FULL;
    case E_FALSE: return BURST_EMPTY;
    case E_NOT: return burst_not(cover_of(e->a, q, k));
    case E_AND: return burst_and(cover_of(e->a, q, k), cover_of(e->b, q, k));
    case E_OR: return burst_or(cover_of(e->a, q, k), cover_of(e->b, q, k));
    case E_PATTERN: return burst_pattern_cover(p->bits, p->rows, p->cols, FORM(e->a), FORM(e->b), q, k);
    default: return expr_compares(e->op) ? compare(e, q, k) : BURST_PARTIAL;
    }
}

Cover mask_cover(const Expr *e, int64_t q_lo, int64_t q_last, int64_t k_lo, int64_t k_last)
{
    const BurstSide q = mask_side(q_lo, q_last), k = mask_side(k_lo, k_last);
    return (Cover)cover_of(e, &q, &k);
}
