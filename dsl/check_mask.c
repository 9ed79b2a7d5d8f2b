/* check_mask.c: masks. A mask that a layer uses is inlined into one expression over q and k: parameters and
 * calls of other masks are replaced, constants are folded, and every sub-value is proved to stay within
 * +-2^62 on the sequence. Masks that no layer uses are checked too, with open parameters. */
#include "check.h"

#include <inttypes.h>
#include <string.h>

/* Limits of expansion, since calls multiply: size of one mask and of all masks, and depth of recursion. */
enum {
    MAX_NODES = 1 << 14,
    MAX_ALL_NODES = 1 << 21,
    MAX_DEPTH = 1000,
    MAX_NESTING = 200 /* of brackets: clang refuses 256 in emitted text */
};

typedef enum Type { BROKEN, NUMBER, TRUTH } Type;
/* lo, hi: range of the value for q, k in [0, N). open: depends on an open parameter. nodes: size as a
 * tree. */
typedef struct Typed {
    Type type;
    const Expr *e;
    int64_t lo, hi;
    bool open;
    int nodes, depth, nesting;
} Typed;

/* One mask being inlined: its parameters' values, and where it is called. */
typedef struct Frame {
    const MaskDecl *decl;
    const Typed *values;
    Span call;
    const struct Frame *caller;
    bool open;  /* parameters are unknown: the check of an unused mask */
    bool *told; /* in a stock mask: whether the user's call was already reported */
} Frame;

static Typed inline_expr(Checker *c, const Ast *a, const Frame *frame);

static const Typed broken = {.type = BROKEN};

static Typed leaf(Checker *c, ExprOp op, int64_t value, Span span, Type type, int64_t lo, int64_t hi)
{
    Expr *e = NEW(c->arena, Expr);
    *e = (Expr){.op = op, .value = value, .span = span};
    return (Typed){.type = type, .e = e, .lo = lo, .hi = hi, .nodes = 1, .depth = 1};
}

static Typed constant(Checker *c, int64_t value, Span span)
{
    return leaf(c, E_CONST, value, span, NUMBER, value, value);
}

static Typed truth(Checker *c, bool value, Span span)
{
    return leaf(c, value ? E_TRUE : E_FALSE, 0, span, TRUTH, 0, 1);
}

static bool is_constant(Typed t) { return t.e->op == E_CONST; }

/* Notes the calls that lead to the text at fault. */
static void note_calls(Checker *c, const Frame *frame)
{
    for (; frame && frame->call.src; frame = frame->caller)
        diag_note(c->diags, frame->call, "in mask '%s' called here", frame->decl->name);
}

/* A fault in a stock mask is caused by its parameters: reports it once, at the user's line. */
static void wrong_parameters(Checker *c, const Frame *frame, Span at, const char *text)
{
    const Frame *call = frame;
    while (call->caller && call->caller->told == frame->told)
        call = call->caller;
    if (!*frame->told) {
        diag_error(c->diags, call->call, "mask '%s' does not work with these parameters: %s",
                   call->decl->name, text);
        diag_note(c->diags, at, "computed here");
        note_calls(c, call->caller);
    }
    *frame->told = true;
}

static Typed wrong(Checker *c, const Frame *frame, Span at, const char *text)
{
    if (frame && frame->told) {
        wrong_parameters(c, frame, at, text);
        return broken;
    }
    diag_error(c->diags, at, "%s", text);
    note_calls(c, frame);
    return broken;
}

static Typed bound(Checker *c, const Frame *frame, Typed t, Range r)
{
    if (t.open)
        return t;
    if (r.lo < -RANGE_BOUND || r.hi > RANGE_BOUND) {
        __int128 worst = r.hi > -r.lo ? r.hi : r.lo;
        return wrong(c, frame, t.e->span,
                     arena_printf(c->arena,
                                  "this value can reach %.3g on a sequence of %lld tokens; the limit is 2^62",
                                  (double)worst, (long long)c->program->sequence));
    }
    t.lo = (int64_t)r.lo;
    t.hi = (int64_t)r.hi;
    return t;
}

static Typed fold(Checker *c, Typed t)
{
    int64_t value = expr_eval(t.e, 0, 0, NULL, NULL);
    Typed folded = t.type == TRUTH ? truth(c, value != 0, t.e->span) : constant(c, value, t.e->span);
    folded.open = t.open;
    return folded;
}

static int either(bool holds, bool fails)
{
    if (holds)
        return 1;
    return fails ? 0 : -1;
}

/* The result of a comparison, if the ranges of both sides decide it: 1 or 0; else -1. */
static int decided(ExprOp op, Typed a, Typed b)
{
    switch (op) {
    case E_LT: return either(a.hi < b.lo, a.lo >= b.hi);
    case E_LE: return either(a.hi <= b.lo, a.lo > b.hi);
    case E_GT: return decided(E_LT, b, a);
    case E_GE: return decided(E_LE, b, a);
    case E_EQ: return a.hi < b.lo || a.lo > b.hi ? 0 : -1;
    case E_NE: return a.hi < b.lo || a.lo > b.hi ? 1 : -1;
    default: return -1;
    }
}

/* Simplifies `a and true` to a, `a or false` to a, and so on. With decided(), window_sink(w, 0) costs as
 * much as window(w). */
static bool absorbs(ExprOp op, Typed a, Typed b, Typed *out)
{
    ExprOp zero = op == E_AND ? E_FALSE : E_TRUE, unit = op == E_AND ? E_TRUE : E_FALSE;
    if (op != E_AND && op != E_OR)
        return false;
    if (a.e->op == unit || b.e->op == zero)
        *out = b;
    else if (b.e->op == unit || a.e->op == zero)
        *out = a;
    else
        return false;
    return true;
}

static Typed too_large(Checker *c)
{
    if (!c->mask_too_large && c->all_mask_work > MAX_ALL_NODES)
        diag_error(c->diags, c->mask_at,
                   "the masks up to this one are too large after the masks they call are expanded: more than "
                   "%d operations",
                   MAX_ALL_NODES);
    else if (!c->mask_too_large)
        diag_error(c->diags, c->mask_at,
                   "mask is too large after the masks it calls are expanded: more than %d operations, %d "
                   "levels or %d nested brackets",
                   MAX_NODES, MAX_DEPTH, MAX_NESTING);
    c->mask_too_large = true;
    return broken;
}

/* Nesting of brackets around x as an operand of op: a chain of `and`, or of `or`, needs none. */
static int brackets(ExprOp op, Typed x)
{
    const bool chain = (op == E_AND || op == E_OR) && x.e && x.e->op == op;
    return x.nesting + !chain;
}

/* Applies op to a (and b, if b.e is set), which have the right types. */
static Typed combine(Checker *c, const Frame *frame, ExprOp op, Typed a, Typed b, Span span)
{
    Typed t = {.type = op >= E_LT ? TRUTH : NUMBER, .open = a.open || b.open, .nodes = a.nodes + b.nodes + 1,
               .depth = (a.depth > b.depth ? a.depth : b.depth) + 1};
    t.nesting = brackets(op, a) > brackets(op, b) ? brackets(op, a) : brackets(op, b);
    if (absorbs(op, a, b, &t))
        return t;
    if (t.nodes > MAX_NODES || t.depth > MAX_DEPTH || t.nesting > MAX_NESTING)
        return too_large(c);
    Expr *e = NEW(c->arena, Expr);
    *e = (Expr){.op = op, .a = a.e, .b = b.e, .span = span};
    t.e = e;
    t = bound(c, frame, t, range_of(op, (Range){a.lo, a.hi}, (Range){b.lo, b.hi}));
    int result = t.type == TRUTH && !t.open && b.e ? decided(op, a, b) : -1;
    if (result >= 0)
        return truth(c, result, span);
    bool known = a.e->op == E_CONST || a.e->op == E_TRUE || a.e->op == E_FALSE;
    bool known_b = !b.e || b.e->op == E_CONST || b.e->op == E_TRUE || b.e->op == E_FALSE;
    return t.type != BROKEN && !t.open && known && known_b && op != E_HASH ? fold(c, t) : t;
}

/* ---- operands ---- */
static const char *const type_name[] = {"", "a number", "a condition"};

static Typed operand(Checker *c, const Ast *a, const Frame *frame, Type wanted, const char *of)
{
    Typed t = inline_expr(c, a, frame);
    if (t.type == BROKEN || t.type == wanted)
        return t;
    return wrong(c, frame, a->span,
                 arena_printf(c->arena, "%s requires %s, but this is %s", of, type_name[wanted],
                              type_name[t.type]));
}

static bool good_divisor(Checker *c, const Frame *frame, Typed d, const Ast *at, ExprOp op)
{
    if (d.open)
        return true;
    const char *name = expr_ops[op].burst.text;
    if (!is_constant(d))
        wrong(c, frame, at->span, arena_printf(c->arena, "the divisor of '%s' must be a constant", name));
    else if (d.e->value <= 0)
        wrong(c, frame, at->span,
              arena_printf(c->arena, "the divisor of '%s' is %lld; it must be positive", name,
                           (long long)d.e->value));
    return is_constant(d) && d.e->value > 0;
}

static Typed inline_binary(Checker *c, const Ast *a, const Frame *frame)
{
    Type wanted = a->op == E_AND || a->op == E_OR ? TRUTH : NUMBER;
    const char *of = arena_printf(c->arena, "'%s'", expr_ops[a->op].burst.text);
    Typed x = operand(c, a->args.first, frame, wanted, of),
          y = operand(c, a->args.first->next, frame, wanted, of);
    if (x.type == BROKEN || y.type == BROKEN)
        return broken;
    if (a->op == E_POW) {
        wrong(c, frame, a->span,
              "'^' is not available in masks, only in schedules; use '*', or bitxor(a, b) for bits");
        return broken;
    }
    bool divides = a->op == E_DIV || a->op == E_MOD;
    if (divides && !good_divisor(c, frame, y, a->args.first->next, a->op))
        return broken;
    if (divides && y.open)
        y.lo = y.hi = 1; /* stands for any divisor, since open values have no bounds */
    return combine(c, frame, a->op, x, y, a->span);
}

static Typed inline_not(Checker *c, const Ast *a, const Frame *frame)
{
    Typed x = operand(c, a->args.first, frame, TRUTH, "'not'");
    return x.type == BROKEN ? x : combine(c, frame, E_NOT, x, (Typed){0}, a->span);
}

static Typed inline_negate(Checker *c, const Ast *a, const Frame *frame)
{
    Typed x = operand(c, a->args.first, frame, NUMBER, "'-'");
    return x.type == BROKEN ? x : combine(c, frame, E_SUB, constant(c, 0, a->span), x, a->span);
}

static Typed inline_number(Checker *c, const Ast *a, const Frame *frame)
{
    const Number *n = &a->number;
    if (number_is_huge(n, RANGE_BOUND))
        return wrong(c, frame, a->span, "number is too large; the limit is 2^62");
    if (n->unit != UNIT_NONE || !n->is_whole)
        return wrong(c, frame, a->span, "expected a whole number without a unit: masks count tokens");
    return constant(c, n->whole, a->span);
}

/* ---- names, tables, pattern files ---- */
static MaskDecl *called_mask(const Checker *c, const Ast *a, const Frame *frame)
{
    return find_mask(c, a->text, frame && frame->decl->stock);
}

static Typed unknown_name(Checker *c, const Ast *a, const Frame *frame)
{
    Vec(const char *) names = {0};
    for (int op = 0; op < EXPR_OP_COUNT; op++)
        if (expr_ops[op].burst.shape == SHAPE_WORD || expr_ops[op].burst.shape == SHAPE_CALL)
            *vec_push(c->arena, &names) = expr_ops[op].burst.text;
    for (const Ast *p = frame ? frame->decl->ast->args.first : NULL; p; p = p->next)
        *vec_push(c->arena, &names) = p->text;
    for (int i = 0; i < c->masks.n && diags_errors(c->diags) < DIAG_MAX_ERRORS; i++) /* no more are printed */
        *vec_push(c->arena, &names) = c->masks.at[i]->name;
    for (int i = 0; i < c->tables.n; i++)
        *vec_push(c->arena, &names) = c->tables.at[i]->table.name;
    const char *kind = a->kind == A_CALL ? "mask" : "name", *stock = foreign_mask(a->text);
    if (stock)
        diag_error(c->diags, a->name_span, "unknown %s '%s'; the stock mask is '%s'", kind, a->text, stock);
    else
        unknown_word(c, a->name_span, a->text, names.at, names.n, kind);
    return broken;
}

static Typed inline_call(Checker *c, const Ast *a, const Frame *frame);

static Typed inline_name(Checker *c, const Ast *a, const Frame *frame)
{
    int64_t last = c->program->sequence > 0 ? c->program->sequence - 1 : 0;
    int i = frame ? parameter_index(frame->decl, a->text) : -1;
    if (i >= 0)
        return frame->values[i];
    if (strcmp(a->text, "q") == 0)
        return leaf(c, E_Q, 0, a->span, NUMBER, 0, last);
    if (strcmp(a->text, "k") == 0)
        return leaf(c, E_K, 0, a->span, NUMBER, 0, last);
    if (strcmp(a->text, "true") == 0 || strcmp(a->text, "false") == 0)
        return truth(c, a->text[0] == 't', a->span);
    if (called_mask(c, a, frame))
        return inline_call(c, a, frame);
    if (find_table(c, a->text))
        return wrong(c, frame, a->span,
                     arena_printf(c->arena, "'%s' is a table; write %s[q] or %s[k]", a->text, a->text,
                                  a->text));
    return unknown_name(c, a, frame);
}

/* Tables of documents share the lengths of `doc`. -1: too many tables. */
static int use_table(Checker *c, TableDecl *t, Span span)
{
    if (t->number >= 0)
        return t->number;
    if (c->used_tables.n == BURST_MAX_TABLES) {
        diag_error(c->diags, span, "the masks of a model read at most %d tables; '%s' is one more",
                   BURST_MAX_TABLES, t->table.name);
        return -1;
    }
    const TableDecl *documents = find_table(c, "doc");
    t->number = c->used_tables.n;
    if (t->table.kind != BURST_TABLE_GIVEN && documents)
        t->table.len_min = documents->table.len_min, t->table.len_max = documents->table.len_max,
        t->table.lengths = documents->table.lengths;
    *vec_push(c->arena, &c->used_tables) = t->table;
    return t->number;
}

static Typed unknown_table(Checker *c, const Ast *a)
{
    const char **names = NEW_ARRAY(c->arena, const char *, c->tables.n);
    for (int i = 0; i < c->tables.n; i++)
        names[i] = c->tables.at[i]->table.name;
    unknown_of(c, a->name_span, a->text, names, c->tables.n, "table");
    return broken;
}

int use_table_named(Checker *c, const Ast *name)
{
    TableDecl *t = find_table(c, name->text);
    Ast use = *name;
    use.name_span = name->span;
    if (!t)
        unknown_table(c, &use);
    return t ? use_table(c, t, name->span) : -1;
}

bool of_prompt(const Checker *c, BurstTableKind kind)
{
    return c->infer && (kind == BURST_TABLE_DOC || kind == BURST_TABLE_FIRST || kind == BURST_TABLE_POSITION);
}

/* A prompt and what continues it are one document, the first, from position 0 on. */
static Typed inline_of_prompt(Checker *c, const Ast *a, BurstTableKind kind, bool q)
{
    const int64_t last = kind == BURST_TABLE_POSITION && c->program->sequence > 0 ? c->program->sequence - 1
                                                                                  : 0;
    const ExprOp own = q ? E_Q : E_K;
    return leaf(c, kind == BURST_TABLE_POSITION ? own : E_CONST, 0, a->span, NUMBER, 0, last);
}

static Typed inline_index(Checker *c, const Ast *a, const Frame *frame)
{
    TableDecl *t = find_table(c, a->text);
    const Ast *index = a->args.first;
    if (!t)
        return unknown_table(c, a);
    bool q = index->kind == A_NAME && strcmp(index->text, "q") == 0,
         k = index->kind == A_NAME && strcmp(index->text, "k") == 0;
    if (index->next || (!q && !k))
        return wrong(c, frame, a->span,
                     arena_printf(c->arena,
                                  "a table can be indexed by q or k only: write %s[q] "
                                  "or %s[k]",
                                  a->text, a->text));
    if (of_prompt(c, t->table.kind))
        return inline_of_prompt(c, a, t->table.kind, q);
    const int number = frame && frame->open ? 0 : use_table(c, t, a->span);
    if (number < 0)
        return broken;
    return leaf(c, q ? E_TABLE_Q : E_TABLE_K, number, a->span, NUMBER, INT32_MIN, INT32_MAX);
}

static Typed inline_file(Checker *c, const Ast *a, const Frame *frame)
{
    if (a->args.n != 2)
        return wrong(c, frame, a->span,
                     "a pattern requires a row and a column, such as file \"...\" at (q / 64, k / 64)");
    Typed row = operand(c, a->args.first, frame, NUMBER, "a row");
    Typed column = operand(c, a->args.first->next, frame, NUMBER, "a column");
    const Pattern *pattern = load_pattern(c, a);
    if (row.type == BROKEN || column.type == BROKEN || !pattern)
        return broken;
    Expr *e = NEW(c->arena, Expr);
    *e = (Expr){.op = E_PATTERN, .a = row.e, .b = column.e, .pattern = pattern, .span = a->span};
    return (Typed){.type = TRUTH,
                   .e = e,
                   .hi = 1,
                   .open = row.open || column.open,
                   .nodes = row.nodes + column.nodes + 1,
                   .depth = (row.depth > column.depth ? row.depth : column.depth) + 1,
                   .nesting = (row.nesting > column.nesting ? row.nesting : column.nesting) + 1};
}

/* ---- calls ---- */
static Typed inline_function(Checker *c, const Ast *a, const Frame *frame, ExprOp op, int least, int most)
{
    const char *several = most == 2 ? "two values" : "two values or more";
    if (a->args.n < least || a->args.n > most)
        return wrong(c, frame, a->span,
                     arena_printf(c->arena, "'%s' takes %s, not %d", a->text,
                                  least == 1 ? "one value" : several, a->args.n));
    const char *of = arena_printf(c->arena, "'%s'", a->text);
    Typed t = operand(c, a->args.first, frame, NUMBER, of);
    if (least == 1)
        return t.type == BROKEN ? t : combine(c, frame, op, t, (Typed){0}, a->span);
    for (const Ast *b = a->args.first->next; b; b = b->next) {
        Typed next = operand(c, b, frame, NUMBER, of);
        t = t.type == BROKEN || next.type == BROKEN ? broken : combine(c, frame, op, t, next, a->span);
    }
    return t;
}

/* A call with open parameters depends only on what is known of the arguments, so results are cached by
 * that. */
static const char *open_call_name(Checker *c, const MaskDecl *decl, Typed *values)
{
    Text t = {0};
    text_printf(&t, "%p", (const void *)decl);
    for (int i = 0; i < decl->ast->args.n; i++) {
        values[i].nodes = values[i].depth = values[i].nesting = 1;
        if (values[i].open)
            text_add(&t, " open");
        else
            text_printf(&t, " %" PRId64 "%s%" PRId64, values[i].lo, is_constant(values[i]) ? "=" : "..",
                        values[i].hi);
    }
    return text_keep(c->arena, &t);
}

/* The name and arguments of the running call. */
static const char *frame_text(Checker *c, const Frame *frame)
{
    const char *text = frame->decl->name;
    const int n = frame->decl->ast->args.n;
    for (int i = 0; i < n; i++)
        text = arena_printf(c->arena, "%s%s%lld%s", text, i ? ", " : "(", (long long)frame->values[i].lo,
                            i == n - 1 ? ")" : "");
    return text;
}

/* Of `k / b`. Returns false after an error. */
static bool block_size(Checker *c, const Frame *frame, const Ast *a, int64_t *block)
{
    const Typed t = operand(c, a, frame, NUMBER, "the unit of a selection");
    if (t.type == BROKEN || t.open)
        return t.type != BROKEN;
    if (t.e->op == E_DIV && t.e->a->op == E_K && t.e->b->op == E_CONST) {
        *block = t.e->b->value;
        return true;
    }
    wrong(c, frame, a->span, "a selection keeps whole blocks of keys; write them as k / 64");
    return false;
}

static Typed plain(Checker *c, ExprOp op, Typed a, Typed b, Span at)
{
    return a.type == BROKEN || b.type == BROKEN ? broken : combine(c, NULL, op, a, b, at);
}

/* A condition that keeps about as many blocks as the selection, for figures and pictures: block j for tile i
 * if hash(i, j) * candidates < top * 2^31. */
static Typed drawn(Checker *c, const Selection *s, Span at)
{
    const int64_t last = c->program->sequence > 0 ? c->program->sequence - 1 : 0;
    const Typed q = leaf(c, E_Q, 0, at, NUMBER, 0, last), k = leaf(c, E_K, 0, at, NUMBER, 0, last),
                per = constant(c, s->queries, at), block = constant(c, s->block, at),
                tile = plain(c, E_DIV, q, per, at);
    Typed candidates = constant(c, selection_candidates(c->program, s), at);
    if (!s->noncausal) {
        const Typed begin = plain(c, E_MUL, tile, per, at);
        candidates = plain(c, E_MIN, plain(c, E_DIV, begin, block, at), candidates, at);
    }
    const Typed hash = plain(c, E_HASH, tile, plain(c, E_DIV, k, block, at), at);
    return plain(c, E_LT, plain(c, E_MUL, hash, candidates, at),
                 constant(c, s->top * (BURST_HASH_LAST + 1), at), at);
}

/* The selection that the mask's frame calls, once for equal arguments. */
static const Selection *used_selection(Checker *c, const Frame *frame, const Selection *made)
{
    for (int i = 0; i < c->used_selections.n; i++)
        if (strcmp(c->used_selections.at[i]->text, made->text) == 0)
            return c->used_selections.at[i];
    Selection *kept = NEW(c->arena, Selection);
    *kept = *made;
    *vec_push(c->arena, &c->used_selections) = kept;
    (void)frame;
    return kept;
}

/* where and (always or selected) */
static Typed write_out_selection(Checker *c, const Frame *frame)
{
    const Ast *ast = frame->decl->ast, *unit = ast->more.first->next, *where = unit->next,
              *always = where->next;
    const Span at = ast->span;
    const Typed top = operand(c, ast->more.first, frame, NUMBER, "'top'"),
                from = operand(c, where, frame, TRUTH, "'where'"),
                in = always->kind == A_COORD ? truth(c, false, at)
                                             : operand(c, always, frame, TRUTH, "'always'");
    Selection s = {.text = frame_text(c, frame), .span = at, .where = from.e, .always = in.e};
    if (!selection_words(c, ast, &s) || !block_size(c, frame, unit, &s.block) || top.type == BROKEN ||
        from.type == BROKEN || in.type == BROKEN || !selection_is_static(c, from.e, where->span, "where") ||
        !selection_is_static(c, in.e, always->span, "always"))
        return broken;
    Typed chosen = leaf(c, E_SELECTED, 0, at, TRUTH, 0, 1), hash = truth(c, true, at);
    chosen.open = frame->open;
    if (!frame->open) {
        s.top = is_constant(top) ? top.e->value : 0;
        s.open = plain(c, E_AND, from, combine(c, NULL, E_NOT, in, (Typed){0}, at), at).e;
        if (!selection_sizes(c, ast, &s))
            return broken;
        hash = drawn(c, &s, at);
        ((Expr *)(uintptr_t)chosen.e)->selection = used_selection(c, frame, &s);
    }
    ((Expr *)(uintptr_t)chosen.e)->a = hash.e;
    chosen.nodes += hash.nodes;
    chosen.depth += hash.depth;
    return plain(c, E_AND, from, plain(c, E_OR, in, chosen, at), at);
}

static Typed write_out(Checker *c, const Frame *frame)
{
    if (frame->decl->ast->kind == A_SELECT)
        return write_out_selection(c, frame);
    Typed t = operand(c, frame->decl->ast->more.first, frame, TRUTH, "a mask");
    return ++t.depth > MAX_DEPTH ? too_large(c) : t;
}

static Typed write_out_open(Checker *c, const Frame *frame, Typed *values)
{
    const char *name = open_call_name(c, frame->decl, values);
    const Typed *known = name_find(&c->open_calls, name);
    if (known)
        return *known;
    Typed *t = NEW(c->arena, Typed);
    *t = write_out(c, frame);
    if (t->type != BROKEN) /* errors are reported at each call */
        name_add(c->arena, &c->open_calls, name, t);
    return *t;
}

static Typed call_mask(Checker *c, const Ast *a, MaskDecl *decl, const Frame *frame)
{
    AstList arguments = a->kind == A_CALL ? a->args : (AstList){0};
    if (arguments.n != decl->ast->args.n) {
        diag_error(c->diags, a->span, "mask '%s' takes %d parameter%s, not %d", decl->name, decl->ast->args.n,
                   decl->ast->args.n == 1 ? "" : "s", arguments.n);
        diag_note(c->diags, decl->ast->span, "declared here");
        return broken;
    }
    Typed *values = NEW_ARRAY(c->arena, Typed, arguments.n);
    bool good = !decl->broken;
    int i = 0;
    for (const Ast *b = arguments.first; b; b = b->next, i++) {
        values[i] = operand(c, b, frame, NUMBER,
                            arena_printf(c->arena, "parameter %d of '%s'", i + 1, decl->name));
        good = good && values[i].type != BROKEN;
    }
    bool told = false;
    bool *own = frame ? frame->told : NULL;
    if (!own && decl->stock)
        own = &told;
    Frame inner = {.decl = decl,
                   .values = values,
                   .call = a->span,
                   .caller = frame,
                   .open = frame && frame->open,
                   .told = own};
    if (!good)
        return broken;
    return inner.open ? write_out_open(c, &inner, values) : write_out(c, &inner);
}

static Typed inline_call(Checker *c, const Ast *a, const Frame *frame)
{
    static const struct { const char *name; ExprOp op; int least, most; } functions[] = {
#define X(id, name) {#name, E_##id, 2, 1 << 20},
        EXPR_FUNCTIONS(X)
#undef X
        {"abs", E_ABS, 1, 1},
        {"hash", E_HASH, 2, 2},
    };
    for (int i = 0; i < countof(functions); i++)
        if (strcmp(functions[i].name, a->text) == 0)
            return inline_function(c, a, frame, functions[i].op, functions[i].least, functions[i].most);
    MaskDecl *decl = called_mask(c, a, frame);
    return decl ? call_mask(c, a, decl, frame) : unknown_name(c, a, frame);
}

static Typed inline_kind(Checker *c, const Ast *a, const Frame *frame)
{
    switch (a->kind) {
    case A_NUMBER: return inline_number(c, a, frame);
    case A_NAME: return inline_name(c, a, frame);
    case A_CALL: return inline_call(c, a, frame);
    case A_INDEX: return inline_index(c, a, frame);
    case A_FILE: return inline_file(c, a, frame);
    case A_BINARY: return inline_binary(c, a, frame);
    case A_NOT: return inline_not(c, a, frame);
    case A_NEGATE: return inline_negate(c, a, frame);
    default: return wrong(c, frame, a->span, "expected an expression");
    }
}

static Typed inline_expr(Checker *c, const Ast *a, const Frame *frame)
{
    if (++c->mask_work > MAX_NODES || ++c->all_mask_work > MAX_ALL_NODES || c->mask_depth >= MAX_DEPTH)
        return too_large(c);
    c->mask_depth++;
    Typed t = inline_kind(c, a, frame);
    c->mask_depth--;
    return t;
}

/* ---- masks with their parameters left open ---- */
static void start_mask(Checker *c, Span at)
{
    c->mask_at = at;
    c->mask_work = c->mask_depth = 0;
    c->mask_too_large = c->all_mask_work > MAX_ALL_NODES; /* reported once */
}

static void check_open(Checker *c, MaskDecl *decl)
{
    Typed *values = NEW_ARRAY(c->arena, Typed, decl->ast->args.n);
    for (int i = 0; i < decl->ast->args.n; i++) {
        values[i] = leaf(c, E_VAR, i, decl->ast->span, NUMBER, 0, 0);
        values[i].open = true;
    }
    Frame frame = {.decl = decl, .values = values, .open = true};
    start_mask(c, decl->ast->name_span);
    decl->broken = decl->broken || write_out_open(c, &frame, values).type == BROKEN;
}

void check_mask_declarations(Checker *c)
{
    MaskDecl *const *decl = masks_by_calls(c);
    for (int i = 0; i < c->masks.n; i++)
        check_open(c, decl[i]);
}

/* ---- masks that layers use ---- */
static const char *call_text(Checker *c, const Ast *call)
{
    const char *text = call->text;
    if (call->kind != A_CALL)
        return text;
    int i = 0;
    for (const Ast *a = call->args.first; a; a = a->next, i++) {
        Typed t = inline_expr(c, a, NULL);
        if (t.type == BROKEN)
            return NULL;
        if (!is_constant(t)) {
            diag_error(c->diags, a->span, "parameters of a layer's mask must be constants");
            return NULL;
        }
        text = arena_printf(c->arena, "%s%s%lld", text, i ? ", " : "(", (long long)t.e->value);
    }
    return arena_printf(c->arena, "%s)", text);
}

int use_mask(Checker *c, const Ast *call)
{
    MaskDecl *decl = find_mask(c, call->text, false);
    if (!decl) {
        unknown_name(c, call, NULL);
        return -1;
    }
    decl->used = true;
    start_mask(c, call->span);
    const char *text = call_text(c, call);
    if (!text)
        return -1;
    const int *known = name_find(&c->used_mask_names, text);
    if (known)
        return *known;
    Typed t = call_mask(c, call, decl, NULL);
    if (t.type == BROKEN)
        return -1;
    const int selection = selection_of(c, t.e, call->span);
    if (selection < 0)
        return -1;
    int *index = NEW(c->arena, int);
    *index = c->used_masks.n;
    name_add(c->arena, &c->used_mask_names, text, index);
    int *keys = NEW_ARRAY(c->arena, int, 2);
    int64_t *reach = NEW(c->arena, int64_t);
    keys[0] = keys[1] = -1;
    double *block_time = NEW_ARRAY(c->arena, double, 2);
    block_time[0] = block_time[1] = -1;
    *reach = -1;
    *vec_push(c->arena, &c->used_masks) = (Mask){.text = text,
                                                 .expr = t.e,
                                                 .span = call->span,
                                                 .selection = selection,
                                                 .keys = keys,
                                                 .block_time = block_time,
                                                 .reach = reach};
    return *index;
}
