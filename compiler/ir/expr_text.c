/* expr_text.c: expressions as text: what each operator is called and how it binds is in EXPR_OPS. */
#include "ir/ir.h"

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
