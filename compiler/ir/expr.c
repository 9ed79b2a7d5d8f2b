/* expr.c: the value of an expression at one point: the reference that tests compare other evaluations
 * with. */
#include "ir/expr.h"

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
    case E_DIV: return burst_floor_div(VALUE(e->a), VALUE(e->b));
    case E_MOD: return burst_floor_mod(VALUE(e->a), VALUE(e->b));
    case E_POW: return (int64_t)1 << VALUE(e->b);
#define X(id, name) case E_##id: return burst_##name(VALUE(e->a), VALUE(e->b));
    EXPR_FUNCTIONS(X)
#undef X
    case E_ABS: return burst_abs(VALUE(e->a));
    case E_HASH: return burst_hash(VALUE(e->a), VALUE(e->b));
    case E_PATTERN:
        return burst_pattern(e->pattern->bits, e->pattern->rows, e->pattern->cols, VALUE(e->a), VALUE(e->b));
    case E_SELECTED: return VALUE(e->a);
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

/* ---- expressions as text: what each operator is called and how it binds is in EXPR_OPS ---- */

static const ExprOpText *text_of(const ExprWriter *w, ExprOp op)
{
    return w->c ? &expr_ops[op].c : &expr_ops[op].burst;
}

static bool is_associative(ExprOp op)
{
    return op == E_AND || op == E_OR || op == E_ADD || op == E_MUL;
}

/* Equal strength on the right needs brackets, except where the operator is associative (products of .burst
 * keep theirs); comparisons need them on both sides. */
static int least_strength(const Expr *parent, bool second)
{
    const int own = expr_ops[parent->op].strength;
    if (parent->op == E_NOT)
        return own;
    const bool chain = is_associative(parent->op) && parent->op != E_MUL;
    return expr_compares(parent->op) || (second && !chain) ? own + 1 : own;
}

/* Whether e needs brackets as an operand of an infix or a prefix operator. */
static bool is_bracketed(const ExprWriter *w, const Expr *parent, const Expr *e, bool second)
{
    switch (w->brackets) {
    case BRACKETS_FEWEST: return expr_ops[e->op].strength < least_strength(parent, second);
    case BRACKETS_OPERANDS:
        return text_of(w, e->op)->shape == SHAPE_INFIX &&
               (second || e->op != parent->op || !is_associative(e->op));
    case BRACKETS_ALL: break; /* they have theirs everywhere */
    }
    return false;
}

static void write_bracketed(const ExprWriter *w, const Expr *e, bool brackets)
{
    text_add(w->out, brackets ? "(" : "");
    expr_write(w, e);
    text_add(w->out, brackets ? ")" : "");
}

static void write_infix(const ExprWriter *w, const Expr *e)
{
    const bool all = w->brackets == BRACKETS_ALL;
    text_add(w->out, all ? "(" : "");
    text_add(w->out, w->before ? w->before(e) : "");
    write_bracketed(w, e->a, is_bracketed(w, e, e->a, false));
    text_printf(w->out, " %s ", text_of(w, e->op)->text);
    write_bracketed(w, e->b, is_bracketed(w, e, e->b, true));
    text_add(w->out, all ? ")" : "");
}

static void write_call(const ExprWriter *w, const Expr *e)
{
    text_printf(w->out, "%s%s(", text_of(w, e->op)->text, w->suffix ? w->suffix : "");
    expr_write(w, e->a);
    if (e->b) {
        text_add(w->out, ", ");
        expr_write(w, e->b);
    }
    text_add(w->out, ")");
}

void expr_write(const ExprWriter *w, const Expr *e)
{
    const ExprOpText *t = text_of(w, e->op);
    switch (t->shape) {
    case SHAPE_OWN: w->own(w, e); break;
    case SHAPE_WORD: text_add(w->out, t->text); break;
    case SHAPE_INFIX: write_infix(w, e); break;
    case SHAPE_PREFIX:
        text_printf(w->out, w->c ? "%s" : "%s ", t->text);
        write_bracketed(w, e->a, is_bracketed(w, e, e->a, false));
        break;
    case SHAPE_CALL: write_call(w, e); break;
    }
}

void expr_write_operand(const ExprWriter *w, const Expr *e)
{
    write_bracketed(w, e, w->brackets != BRACKETS_ALL && text_of(w, e->op)->shape == SHAPE_INFIX);
}
