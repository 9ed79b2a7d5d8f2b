/* mask/affine.c: expressions that are affine in q and k. */
#include "mask/internal.h"

static bool affine_product(const Expr *e, int64_t s, BurstForm *f)
{
    BurstForm x = {0}, y = {0};
    if (!mask_affine(e->a, 1, &x) || !mask_affine(e->b, 1, &y))
        return false;
    if (y.a || y.b) {
        const BurstForm other = x;
        x = y, y = other;
    }
    if (y.a || y.b)
        return false;
    *f = burst_form_add(*f, burst_form_scale(x, burst_times(s, y.lo)));
    return true;
}

bool mask_affine(const Expr *e, int64_t s, BurstForm *f)
{
    switch (e->op) {
    case E_CONST: *f = burst_form_add(*f, burst_affine(0, 0, burst_times(s, e->value))); return true;
    case E_Q: *f = burst_form_add(*f, burst_affine(s, 0, 0)); return true;
    case E_K: *f = burst_form_add(*f, burst_affine(0, s, 0)); return true;
    case E_ADD: return mask_affine(e->a, s, f) && mask_affine(e->b, s, f);
    case E_SUB: return mask_affine(e->a, s, f) && mask_affine(e->b, burst_minus(0, s), f);
    case E_MUL: return affine_product(e, s, f);
    default: return false;
    }
}
