/* expr.c: the value of an expression at one point; the definition that every other reading of a mask is
 * tested against. */
#include "ir/ir.h"

const ExprOpRow expr_ops[EXPR_OP_COUNT] = {
#define EXPR_OP(id, text, shape, strength, c, c_shape) \
    [E_##id] = {strength, {text, SHAPE_##shape}, {c, SHAPE_##c_shape}},
    EXPR_OPS
#undef EXPR_OP
};

const ExprFunction *expr_function(ExprOp op)
{
    static const ExprFunction functions[EXPR_OP_COUNT] = {
#define X(id, name) [E_##id] = {burst_##name, burst_form_##name},
        EXPR_FUNCTIONS(X)
#undef X
    };
    return functions[op].value ? &functions[op] : NULL;
}

bool expr_compares(ExprOp op)
{
    return expr_ops[op].strength == expr_ops[E_LT].strength;
}

static int64_t table_value(const Expr *e, int64_t position, const int32_t *const *table)
{
    return table && table[e->value] ? table[e->value][position] : 0;
}

int64_t expr_eval(const Expr *e, int64_t q, int64_t k, const int64_t *var, const int32_t *const *table)
{
#define VALUE(x) expr_eval((x), q, k, var, table)
    switch (e->op) {
    case E_CONST: return e->value;
    case E_Q: return q;
    case E_K: return k;
    case E_VAR: return var[e->value];
    case E_TABLE_Q: return table_value(e, q, table);
    case E_TABLE_K: return table_value(e, k, table);
    case E_ADD: return VALUE(e->a) + VALUE(e->b);
    case E_SUB: return VALUE(e->a) - VALUE(e->b);
    case E_MUL: return VALUE(e->a) * VALUE(e->b);
    case E_DIV: return floor_div(VALUE(e->a), VALUE(e->b));
    case E_MOD: return floor_mod(VALUE(e->a), VALUE(e->b));
    case E_POW: return (int64_t)1 << VALUE(e->b);
#define X(id, name) case E_##id: return burst_##name(VALUE(e->a), VALUE(e->b));
    EXPR_FUNCTIONS(X)
#undef X
    case E_ABS: return burst_abs(VALUE(e->a));
    case E_HASH: return burst_hash(VALUE(e->a), VALUE(e->b));
    case E_PATTERN:
        return burst_pattern(e->pattern->bits, e->pattern->rows, e->pattern->cols, VALUE(e->a), VALUE(e->b));
    case E_LT: return VALUE(e->a) < VALUE(e->b);
    case E_LE: return VALUE(e->a) <= VALUE(e->b);
    case E_GT: return VALUE(e->a) > VALUE(e->b);
    case E_GE: return VALUE(e->a) >= VALUE(e->b);
    case E_EQ: return VALUE(e->a) == VALUE(e->b);
    case E_NE: return VALUE(e->a) != VALUE(e->b);
    case E_AND: return VALUE(e->a) && VALUE(e->b);
    case E_OR: return VALUE(e->a) || VALUE(e->b);
    case E_NOT: return !VALUE(e->a);
    case E_TRUE: return 1;
    case E_FALSE: case EXPR_OP_COUNT: return 0;
    }
    return 0;
#undef VALUE
}

int64_t floor_div(int64_t a, int64_t b)
{
    return burst_floor_div(a, b);
}

int64_t floor_mod(int64_t a, int64_t b)
{
    return burst_floor_mod(a, b);
}
