/* sched/expr.c: expressions of schedules: indices, destinations, bounds of loops and conditions. */
#include "sched/check_sched.h"

#include <string.h>

/* coef: coefficient of each coordinate in the value. tangled: it depends on them other than linearly. */
typedef struct Typed { Type type; const Expr *e; Range r; int64_t coef[MAX_COORDS]; bool tangled; } Typed;

static Typed broken(Scheduler *s, Span at, const char *text)
{
    fault(s, at, text);
    return (Typed){0};
}

static bool reads_coordinate(const Typed *t)
{
    bool reads = t->tangled;
    for (int i = 0; i < MAX_COORDS; i++)
        reads = reads || t->coef[i] != 0;
    return reads;
}

static Typed variable(Scheduler *s, int var, Span at)
{
    Expr *e = NEW(s->c->arena, Expr);
    *e = (Expr){.op = E_VAR, .value = var, .span = at};
    Typed t = {.type = NUMBER, .e = e, .r = s->range[var]};
    if (var < MAX_COORDS)
        t.coef[var] = 1;
    return t;
}

static Typed name_value(Scheduler *s, const Ast *a)
{
    const char *names[MAX_SCHED_VARS];
    int n = 0;
    for (int i = 0; i < s->text->vars; i++) {
        bool there = s->text->var_name[i] && (i < FIRST_LOOP || s->in_scope[i]);
        if (there && strcmp(s->text->var_name[i], a->text) == 0)
            return variable(s, i, a->span);
        if (there)
            names[n++] = s->text->var_name[i];
    }
    unknown_word(s->c, a->span, a->text, names, n, "name");
    s->failed = true;
    return (Typed){0};
}

static Typed number_value(Scheduler *s, const Ast *a)
{
    if (number_is_huge(&a->number, MAX_RANKS))
        return broken(s, a->span, "number is too large; schedules count ranks, up to 1Mi");
    if (!a->number.is_whole || a->number.unit != UNIT_NONE)
        return broken(s, a->span, "expected a whole number without a unit: schedules count ranks");
    Expr *e = NEW(s->c->arena, Expr);
    *e = (Expr){.op = E_CONST, .value = a->number.whole, .span = a->span};
    return (Typed){.type = NUMBER, .e = e, .r = {a->number.whole, a->number.whole}};
}

/* Coordinates may be added, subtracted and multiplied by constants; any other use is tangled. */
static void combine_coordinates(Typed *t, ExprOp op, const Typed *a, const Typed *b)
{
    bool reads = reads_coordinate(a) || (b && reads_coordinate(b));
    bool sum = op == E_ADD || op == E_SUB;
    bool scaled = op == E_MUL && (a->e->op == E_CONST || b->e->op == E_CONST);
    t->tangled = a->tangled || (b && b->tangled) || (reads && !sum && !scaled);
    for (int i = 0; !t->tangled && b && i < MAX_COORDS; i++) {
        if (sum)
            t->coef[i] = op == E_ADD ? a->coef[i] + b->coef[i] : a->coef[i] - b->coef[i];
        else if (scaled)
            t->tangled |= __builtin_mul_overflow(a->e->op == E_CONST ? a->e->value : b->e->value,
                                                 a->e->op == E_CONST ? b->coef[i] : a->coef[i], &t->coef[i]);
    }
}

static Typed apply(Scheduler *s, ExprOp op, Typed a, Typed b, Span at)
{
    Typed t = {.type = op >= E_LT ? TRUTH : NUMBER};
    Expr *e = NEW(s->c->arena, Expr);
    *e = (Expr){.op = op, .a = a.e, .b = b.e, .span = at};
    t.e = e;
    t.r = range_of(op, a.r, b.r);
    if (t.r.lo < -RANGE_BOUND || t.r.hi > RANGE_BOUND)
        return broken(s, at, "this value can overflow on a large cluster");
    combine_coordinates(&t, op, &a, b.e ? &b : NULL);
    return t;
}

static Typed value(Scheduler *s, const Ast *a);

static Typed operand(Scheduler *s, const Ast *a, Type wanted)
{
    Typed t = value(s, a);
    if (t.type != BROKEN && t.type != wanted)
        return broken(s, a->span,
                      wanted == NUMBER ? "expected a number, but this is a condition"
                                       : "expected a condition, but this is a number");
    return t;
}

/* A size is at least 1 and the same for all ranks, so it may be a divisor. */
static bool good_divisor(Scheduler *s, const Typed *d, Span at)
{
    bool constant = d->e->op == E_CONST && d->e->value > 0;
    bool size = d->e->op == E_VAR && d->e->value >= MAX_COORDS && d->e->value < FIRST_LOOP;
    if (!constant && !size)
        fault(s, at, "a divisor must be a positive constant or a size");
    return constant || size;
}

static const char reads[] =
    "this reads a coordinate, but ranks run in lockstep: use loop variables and sizes";

/* 2 ^ k, for k from 0 to the number of bits of a rank. */
static bool good_power(Scheduler *s, const Typed *base, const Typed *by, const Ast *a)
{
    enum { MOST = 20 };
    if (base->e->op != E_CONST || base->e->value != 2)
        fault(s, a->args.first->span, "only powers of 2 are supported: write 2 ^ k");
    else if (reads_coordinate(by))
        fault(s, a->args.first->next->span, reads);
    else if (by->r.lo < 0 || by->r.hi > MOST)
        fault(s, a->args.first->next->span,
              arena_printf(s->c->arena,
                           "the exponent must be from 0 to %d, but this can be from %lld to %lld", MOST,
                           (long long)by->r.lo, (long long)by->r.hi));
    else
        return true;
    return false;
}

static Typed binary_value(Scheduler *s, const Ast *a)
{
    Type wanted = a->op == E_AND || a->op == E_OR ? TRUTH : NUMBER;
    Typed x = operand(s, a->args.first, wanted), y = operand(s, a->args.first->next, wanted);
    if (x.type == BROKEN || y.type == BROKEN)
        return (Typed){0};
    if ((a->op == E_DIV || a->op == E_MOD) && !good_divisor(s, &y, a->args.first->next->span))
        return (Typed){0};
    if (a->op == E_POW && !good_power(s, &x, &y, a))
        return (Typed){0};
    return apply(s, a->op, x, y, a->span);
}

static Typed unary_value(Scheduler *s, const Ast *a)
{
    Typed x = operand(s, a->args.first, a->kind == A_NOT ? TRUTH : NUMBER);
    if (x.type == BROKEN)
        return x;
    if (a->kind == A_NOT)
        return apply(s, E_NOT, x, (Typed){0}, a->span);
    Expr *zero = NEW(s->c->arena, Expr);
    *zero = (Expr){.op = E_CONST, .span = a->span};
    return apply(s, E_SUB, (Typed){.type = NUMBER, .e = zero}, x, a->span);
}

static Typed call_value(Scheduler *s, const Ast *a)
{
    static const struct { const char *name; ExprOp op; int n; } functions[] = {
        {"min", E_MIN, 2}, {"max", E_MAX, 2}, {"abs", E_ABS, 1}};
    for (int i = 0; i < countof(functions); i++) {
        if (strcmp(functions[i].name, a->text) != 0)
            continue;
        if (a->args.n != functions[i].n)
            return broken(s, a->span,
                          functions[i].n == 1 ? "one value is needed here" : "two values are needed here");
        Typed x = operand(s, a->args.first, NUMBER);
        Typed y = functions[i].n == 2 ? operand(s, a->args.first->next, NUMBER) : (Typed){.type = NUMBER};
        return x.type == BROKEN || y.type == BROKEN ? (Typed){0} : apply(s, functions[i].op, x, y, a->span);
    }
    return broken(s, a->span, "unknown function; schedules have min, max and abs only");
}

static Typed value(Scheduler *s, const Ast *a)
{
    switch (a->kind) {
    case A_NUMBER: return number_value(s, a);
    case A_NAME: return name_value(s, a);
    case A_BINARY: return binary_value(s, a);
    case A_NOT:
    case A_NEGATE: return unary_value(s, a);
    case A_CALL: return call_value(s, a);
    default: return broken(s, a->span, "expected an expression over coordinates, sizes and loop variables");
    }
}

const Expr *common_value(Scheduler *s, const Ast *a, Type wanted, Range *range)
{
    Typed t = operand(s, a, wanted);
    if (t.type == BROKEN)
        return NULL;
    if (reads_coordinate(&t)) {
        fault(s, a->span, reads);
        return NULL;
    }
    if (range)
        *range = t.r;
    return t.e;
}

/* Component i of an index or destination: the own coordinate plus a common value. */
static const Expr *place(Scheduler *s, const Ast *a, int i)
{
    Typed t = operand(s, a, NUMBER);
    if (t.type == BROKEN)
        return NULL;
    bool good = !t.tangled && t.coef[i] == 1;
    for (int j = 0; j < MAX_COORDS; j++)
        good = good && (j == i || t.coef[j] == 0);
    if (!good) {
        const char *own = s->text->coord_name[i];
        fault(s, a->span,
              arena_printf(s->c->arena,
                           "this must be '%s' plus or minus loop variables, sizes and constants, such as %s "
                           "- 1: all ranks do the same relative to their own coordinates",
                           own, own));
        return NULL;
    }
    return t.e;
}

/* Reported once: if the head is wrong, all indices are. */
static void wrong_count(Scheduler *s, Span at, int n)
{
    const SchedText *t = s->text;
    s->failed = true;
    if (s->counted)
        return;
    s->counted = true;
    diag_error(s->c->diags, at, "%d coordinate%s required here, not %d", t->coords,
               t->coords == 1 ? " is" : "s are", n);
    diag_note(s->c->diags, t->span, "the schedule's coordinates");
}

void places(Scheduler *s, AstList from, const Expr **to, Span at)
{
    if (from.n != s->text->coords) {
        wrong_count(s, at, from.n);
        return;
    }
    int i = 0;
    for (const Ast *a = from.first; a; a = a->next, i++)
        to[i] = a->kind == A_STAR ? NULL : place(s, a, i);
}
