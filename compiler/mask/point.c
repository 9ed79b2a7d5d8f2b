/* mask/point.c: evaluates a mask at one query and one key by plain arithmetic. The verdict is the interval
 * evaluation's for a box of one pair, ten times as fast; sampling and pair-by-pair counting use it. */
#include "mask/internal.h"

static int64_t value_at(const MaskNode *n, int64_t q, int64_t k)
{
#define AT(x) value_at((x), q, k)
    switch (n->op) {
    case MN_AFFINE:
        return burst_plus(n->affine.lo, burst_plus(burst_times(n->affine.a, q), burst_times(n->affine.b, k)));
    case MN_TABLE_Q: return mask_documents_at(n->documents, q);
    case MN_TABLE_K: return mask_documents_at(n->documents, k);
    case MN_ADD: return burst_plus(AT(n->x), AT(n->y));
    case MN_SUB: return burst_minus(AT(n->x), AT(n->y));
    case MN_SCALE: return burst_times(AT(n->x), n->value);
    case MN_MUL: return burst_times(AT(n->x), AT(n->y));
    case MN_DIV: return burst_floor_div(AT(n->x), n->value);
    case MN_MOD: return burst_floor_mod(AT(n->x), n->value);
    case MN_MIN: return burst_min(AT(n->x), AT(n->y));
    case MN_ABS: return burst_abs(AT(n->x));
    case MN_FUNCTION: return n->function->value(AT(n->x), AT(n->y));
    default: return n->value ? burst_hash(AT(n->x), AT(n->y)) % n->value : burst_hash(AT(n->x), AT(n->y));
    }
}

bool mask_node_at(const MaskNode *n, int64_t q, int64_t k)
{
    switch (n->op) {
    case MN_CONSTANT: return n->value == BURST_FULL;
    case MN_NEGATIVE: return AT(n->x) < 0;
    case MN_ZERO: return AT(n->x) == 0;
    case MN_PATTERN:
        return burst_pattern(n->pattern->bits, n->pattern->rows, n->pattern->cols, AT(n->x), AT(n->y));
    case MN_AND: return mask_node_at(n->x, q, k) && mask_node_at(n->y, q, k);
    case MN_OR: return mask_node_at(n->x, q, k) || mask_node_at(n->y, q, k);
    default: return !mask_node_at(n->x, q, k);
    }
#undef AT
}
