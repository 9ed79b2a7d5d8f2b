/* mask/emit.c: a mask as C. plan_mask<i>_tile judges a tile by its intervals; plan_mask<i>_row evaluates one
 * query against keys exactly. Both number the comparisons c0, c1, ... alike and combine them in one last
 * line. */
#include "mask/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Emit {
    Arena *scratch;
    const Program *program;
    int mask;
    Text *out;
    /* interval form; else exact: a row of keys, or one key if the spelling says so */
    bool tile;
    const MaskSpelling *spelling;
    int leaves;
    Vec(const Pattern *) patterns;
    bool uses_q, uses_k, uses_table; /* set while plan_mask<i>_row is written */
} Emit;

static void put_pattern_cells(Emit *m, int at);
static void put_function(Emit *m, const Expr *e);
static void find_names(Emit *m, const Expr *e);

static const MaskSpelling row_spelling = {.key = "k[j]",
                                          .table_q = "(int64_t)t->table[%d][q]",
                                          .table_k = "(int64_t)t->table[%d][k[j]]",
                                          .selected = "t->table[BURST_SELECT_TABLE][k[j] - t->chosen_from]",
                                          .suffix = ""};

void mask_emit_c(const Program *p, int mask, Text *out)
{
    mask_emit_tile(p, mask, "static", out);
    text_printf(out,
                "static void plan_mask%d_row(int64_t q, const int64_t *k, int n, const BurstTables *t, "
                "uint8_t *keep)\n{\n",
                mask);
    mask_emit_exact(p, mask, &row_spelling, out);
    text_printf(out, "static BURST_MAYBE_UNUSED const BurstMask plan_mask%d = {\n    .text = ", mask);
    mask_quote(p->masks[mask].text, out);
    text_printf(out, ",\n    .tile = plan_mask%d_tile,\n    .row = plan_mask%d_row,\n", mask, mask);
    if (p->masks[mask].selection)
        text_printf(out, "    .selection = &plan_selection%d,\n", p->masks[mask].selection - 1);
    else if (p->target && p->target->device_memory)
        text_add(out, "    .selection = NULL,\n"); /* C++ warns */
    text_add(out, "};\n\n");
}

void mask_emit_tile(const Program *p, int mask, const char *qualifiers, Text *out)
{
    const Mask *k = &p->masks[mask];
    Emit m = {.scratch = arena_new(), .program = p, .mask = mask, .out = out, .tile = true};
    find_names(&m, k->expr);
    text_add(out, "/* mask ");
    mask_comment(k->text, out);
    text_add(out, ":\n *   ");
    Text written = {0};
    mask_text(k->expr, p->tables, &written);
    mask_comment(written.at, out);
    text_free(&written);
    text_add(out, " */\n");
    for (int i = 0; i < m.patterns.n; i++)
        put_pattern_cells(&m, i);
    text_printf(out, "%s int plan_mask%d_tile(const BurstSide *q, const BurstSide *k)\n{\n", qualifiers,
                mask);
    put_function(&m, k->expr);
    arena_free(m.scratch);
}

void mask_emit_exact(const Program *p, int mask, const MaskSpelling *spelling, Text *out)
{
    Emit m = {.scratch = arena_new(), .program = p, .mask = mask, .out = out, .spelling = spelling};
    find_names(&m, p->masks[mask].expr); /* numbers the patterns as mask_emit_tile does */
    put_function(&m, p->masks[mask].expr);
    arena_free(m.scratch);
}

static int pattern_number(Emit *m, const Pattern *p)
{
    for (int i = 0; i < m->patterns.n; i++)
        if (m->patterns.at[i] == p)
            return i;
    *(const Pattern **)vec_push(m->scratch, &m->patterns) = p;
    return m->patterns.n - 1;
}

static void find_names(Emit *m, const Expr *e)
{
    if (!e)
        return;
    const bool by_position = m->tile || !m->spelling->one; /* read tables; else their values are given */
    m->uses_q |= e->op == E_Q || (e->op == E_TABLE_Q && by_position);
    m->uses_k |= e->op == E_K || (e->op == E_TABLE_K && by_position);
    m->uses_table |= e->op == E_TABLE_Q || e->op == E_TABLE_K;
    if (e->op == E_PATTERN)
        pattern_number(m, e->pattern);
    m->uses_k |= e->op == E_SELECTED && by_position;
    m->uses_table |= e->op == E_SELECTED;
    if (e->op == E_SELECTED)
        return;
    find_names(m, e->a);
    find_names(m, e->b);
}

static void put_pattern_cells(Emit *m, int at)
{
    const Pattern *p = m->patterns.at[at];
    text_add(m->out, "/* ");
    mask_comment(p->path, m->out);
    text_printf(m->out, " */\nBURST_MASK_DATA uint8_t plan_mask%d_pattern%d[%" PRId64 " * %" PRId64 " + 1] =",
                m->mask, at, p->rows, p->cols);
    for (int64_t r = 0; r < p->rows; r++) {
        text_add(m->out, "\n    \"");
        for (int64_t c = 0; c < p->cols; c++)
            text_add_n(m->out, p->bits[r * p->cols + c] ? "1" : "0", 1);
        text_add(m->out, "\"");
    }
    text_add(m->out, p->rows ? ";\n" : " \"\";\n");
}

static void put_number(int64_t v, Text *out)
{
    if (v == INT64_MIN)
        text_add(out, "INT64_MIN");
    else
        text_printf(out, v > INT32_MAX || v < -INT32_MAX ? "INT64_C(%" PRId64 ")" : "%" PRId64, v);
}

/* ---- arithmetic in plan_mask<i>_row ---- */
static void put_negatable(int64_t v, Text *out)
{
    text_add(out, v < 0 ? "(" : "");
    put_number(v, out);
    text_add(out, v < 0 ? ")" : "");
}

/* Prints `how` with the table's number for its %d. */
static void put_table(const char *how, int table, Text *out)
{
    const char *at = strstr(how, "%d");
    text_add_n(out, how, (size_t)(at - how));
    text_printf(out, "%d%s", table, at + 2);
}

static void put_own(const ExprWriter *w, const Expr *e)
{
    const MaskSpelling *spelling = w->with;
    switch (e->op) {
    case E_CONST: put_negatable(e->value, w->out); break;
    case E_Q: text_add(w->out, "q"); break;
    case E_K: text_add(w->out, spelling->key); break;
    case E_TABLE_Q: put_table(spelling->table_q, (int)e->value, w->out); break;
    default: put_table(spelling->table_k, (int)e->value, w->out); break;
    }
}

static void put_value(Emit *m, const Expr *e)
{
    expr_write(&(ExprWriter){.c = true,
                             .brackets = BRACKETS_ALL,
                             .suffix = m->spelling->suffix,
                             .own = put_own,
                             .with = m->spelling,
                             .out = m->out},
               e);
}

/* ---- forms in plan_mask<i>_tile ---- */
static void put_form(Emit *m, const Expr *e);

static void put_affine(BurstForm f, Text *out)
{
    text_add(out, "burst_affine(");
    put_number(f.a, out);
    text_add(out, ", ");
    put_number(f.b, out);
    text_add(out, ", ");
    put_number(f.lo, out);
    text_add(out, ")");
}

static void put_form_call(Emit *m, const char *name, const Expr *a, const Expr *b, const char *last)
{
    text_printf(m->out, "burst_form_%s(", name);
    put_form(m, a);
    if (b) {
        text_add(m->out, ", ");
        put_form(m, b);
    }
    text_printf(m->out, "%s)", last);
}

/* Division, mod and hash, whose second argument is a plain number. */
static void put_form_by(Emit *m, const char *name, const Expr *a, const Expr *b, int64_t n)
{
    Text number = {0};
    text_add(&number, ", ");
    put_number(n, &number);
    text_add(&number, ", q, k");
    put_form_call(m, name, a, b, number.at);
    text_free(&number);
}

static void put_form(Emit *m, const Expr *e)
{
    BurstForm f = {0};
    if (mask_affine(e, 1, &f)) {
        put_affine(f, m->out);
        return;
    }
    switch (e->op) {
    case E_TABLE_Q: text_printf(m->out, "burst_table(q, %d)", (int)e->value); break;
    case E_TABLE_K: text_printf(m->out, "burst_table(k, %d)", (int)e->value); break;
    case E_ADD: put_form_call(m, "add", e->a, e->b, ""); break;
    case E_SUB: put_form_call(m, "sub", e->a, e->b, ""); break;
    case E_MUL: put_form_call(m, "mul", e->a, e->b, ", q, k"); break;
    case E_DIV: put_form_by(m, "div", e->a, NULL, e->b->value); break;
    case E_MOD:
        if (e->a->op == E_HASH)
            put_form_by(m, "hash", e->a->a, e->a->b, e->b->value);
        else
            put_form_by(m, "mod", e->a, NULL, e->b->value);
        break;
    case E_ABS: put_form_call(m, "abs", e->a, NULL, ", q, k"); break;
    case E_HASH: put_form_by(m, "hash", e->a, e->b, 0); break;
    default: put_form_call(m, expr_ops[e->op].burst.text, e->a, e->b, ", q, k"); /* EXPR_FUNCTIONS */
    }
}

/* Prints left - right + shift as one form. */
static void put_difference(Emit *m, const Expr *left, const Expr *right, int64_t shift)
{
    BurstForm f = burst_affine(0, 0, shift);
    if (mask_affine(left, 1, &f) && mask_affine(right, -1, &f)) {
        put_affine(f, m->out);
        return;
    }
    text_add(m->out, shift ? "burst_form_add(" : "");
    put_form_call(m, "sub", left, right, "");
    if (shift) {
        text_add(m->out, ", ");
        put_affine(burst_affine(0, 0, shift), m->out);
        text_add(m->out, ")");
    }
}

/* ---- comparisons and patterns: one line each ---- */
static void put_tile_leaf(Emit *m, const Expr *e)
{
    m->uses_k = true;
    if (e->op == E_SELECTED) {
        text_add(m->out, "burst_selected(k)");
        return;
    }
    m->uses_q = true;
    if (e->op == E_PATTERN) {
        const Pattern *p = e->pattern;
        text_printf(m->out, "burst_pattern_cover(plan_mask%d_pattern%d, %" PRId64 ", %" PRId64 ", ", m->mask,
                    pattern_number(m, p), p->rows, p->cols);
        put_form(m, e->a);
        text_add(m->out, ", ");
        put_form(m, e->b);
        text_add(m->out, ", q, k)");
        return;
    }
    const bool swap = e->op == E_GT || e->op == E_GE, equal = e->op == E_EQ || e->op == E_NE;
    text_add(m->out, e->op == E_NE ? "burst_not(" : "");
    text_add(m->out, equal ? "burst_zero(" : "burst_negative(");
    put_difference(m, swap ? e->b : e->a, swap ? e->a : e->b, e->op == E_LE || e->op == E_GE ? -1 : 0);
    text_add(m->out, e->op == E_NE ? ", q, k))" : ", q, k)");
}

/* Decides a comparison of equal texts here, since compilers warn about x == x. */
static void put_row_comparison(Emit *m, const Expr *e)
{
    Text left = {0}, right = {0}, *out = m->out;
    m->out = &left;
    put_value(m, e->a);
    m->out = &right;
    put_value(m, e->b);
    m->out = out;
    if (strcmp(left.at, right.at) == 0)
        text_add(out, e->op == E_LE || e->op == E_GE || e->op == E_EQ ? "1" : "0");
    else {
        text_printf(out, "%s %s %s", left.at, expr_ops[e->op].c.text, right.at);
        find_names(m, e);
    }
    text_free(&left);
    text_free(&right);
}

static void put_row_leaf(Emit *m, const Expr *e)
{
    if (e->op == E_SELECTED) {
        find_names(m, e);
        text_add(m->out, m->spelling->selected);
        return;
    }
    if (e->op != E_PATTERN) {
        put_row_comparison(m, e);
        return;
    }
    find_names(m, e);
    text_printf(m->out, "burst_pattern(plan_mask%d_pattern%d, %" PRId64 ", %" PRId64 ", ", m->mask,
                pattern_number(m, e->pattern), e->pattern->rows, e->pattern->cols);
    put_value(m, e->a);
    text_add(m->out, ", ");
    put_value(m, e->b);
    text_add(m->out, ")");
}

static void put_leaves(Emit *m, const Expr *e)
{
    if (e->op == E_AND || e->op == E_OR || e->op == E_NOT) {
        put_leaves(m, e->a);
        if (e->b)
            put_leaves(m, e->b);
    } else if (e->op == E_PATTERN || e->op == E_SELECTED || expr_compares(e->op)) {
        text_printf(m->out, "%sconst int c%d = ", m->tile || m->spelling->one ? "    " : "        ",
                    m->leaves++);
        (m->tile ? put_tile_leaf : put_row_leaf)(m, e);
        text_add(m->out, "; /* ");
        Text written = {0};
        mask_text(e, m->program->tables, &written);
        mask_comment(written.at, m->out);
        text_free(&written);
        text_add(m->out, " */\n");
    }
}

static void put_verdict(Emit *m, const Expr *e);

/* Collects the operands of a chain of `and` or `or` in order and returns their number. at may be NULL. */
static int chain_operands(const Expr *e, ExprOp op, const Expr **at)
{
    if (e->op != op) {
        if (at)
            *at = e;
        return 1;
    }
    const int n = chain_operands(e->a, op, at);
    return n + chain_operands(e->b, op, at ? at + n : NULL);
}

/* Joins by halves, so that brackets nest only logarithmically: compilers refuse deep nesting. */
static void put_chain(Emit *m, ExprOp op, const Expr *const *x, int n)
{
    static const struct { const char *begin, *between; } spelled[2][2] = {
        {{"(", " | "}, {"(", " & "}}, {{"burst_or(", ", "}, {"burst_and(", ", "}}}; /* [tile][and] */
    if (n == 1) {
        put_verdict(m, x[0]);
        return;
    }
    text_add(m->out, spelled[m->tile][op == E_AND].begin);
    put_chain(m, op, x, n - n / 2);
    text_add(m->out, spelled[m->tile][op == E_AND].between);
    put_chain(m, op, x + n - n / 2, n / 2);
    text_add(m->out, ")");
}

static void put_verdict(Emit *m, const Expr *e)
{
    static const char *const constant[2][2] = {{"0", "1"}, {"BURST_EMPTY", "BURST_FULL"}};
    switch (e->op) {
    case E_TRUE: case E_FALSE:
        text_add(m->out, constant[m->tile][e->op == E_TRUE]);
        break;
    case E_NOT:
        text_add(m->out, m->tile ? "burst_not(" : "(1 - ");
        put_verdict(m, e->a);
        text_add(m->out, ")");
        break;
    case E_AND: case E_OR: {
        const Expr **x = xmalloc(sizeof *x * (size_t)chain_operands(e, e->op, NULL));
        put_chain(m, e->op, x, chain_operands(e, e->op, x));
        free(x);
        break;
    }
    default:
        text_printf(m->out, "c%d", m->leaves++);
    }
}

static void put_unused(Emit *m, bool unused, const char *name)
{
    if (unused)
        text_printf(m->out, "    (void)%s;\n", name);
}

/* Prints the function's body after "{", and its end. */
static void put_function(Emit *m, const Expr *e)
{
    Text *out = m->out, body = {0};
    const bool loop = !m->tile && !m->spelling->one;
    m->out = &body;
    m->leaves = 0;
    m->uses_q = m->uses_k = m->uses_table = false;
    text_add(&body, "");
    put_leaves(m, e);
    m->out = out;
    put_unused(m, !m->uses_q, "q");
    put_unused(m, !m->uses_k, "k");
    put_unused(m, loop && !m->uses_table, "t");
    text_add(out, loop ? "    for (int j = 0; j < n; j++) {\n" : "");
    text_add(out, body.at);
    text_free(&body);
    m->leaves = 0;
    text_add(out, loop ? "        keep[j] = (uint8_t)(" : "    return ");
    put_verdict(m, e);
    text_add(out, loop ? ");\n    }\n}\n\n" : ";\n}\n\n");
}

/* ---- selections ---- */

Program mask_with_open(Arena *a, const Program *p, int selection)
{
    const Selection *s = &p->selections[selection];
    Mask *masks = NEW_ARRAY(a, Mask, p->mask_count + selection + 1);
    int *keys = NEW_ARRAY(a, int, 2); /* kernels do not attend with it */
    masks[p->mask_count + selection] =
        (Mask){.text = arena_printf(a, "open to %s", s->text), .expr = s->open, .keys = keys};
    Program with = *p;
    with.masks = masks;
    return with;
}

/* ---- the time of plan_mask<i>_row ---- */

/* Nanoseconds a pair on an x86-64 core, compiled by `cc -O2`: a row of the mask stored, packed and applied,
 * and its operations (measured: tests/cost/test_probe.c). Divisors are constants. Only ratios count. */
static const double ROW = 0.6, OPERATION = 0.1, TABLE = 0.2, REMAINDER = 0.55, POWER_OF_TWO = 0.2,
                    DIVISION = 0.75, HASH = 1, PROBED = 1.2;
enum { SHARED = 64 }; /* operations that are compared with others */
typedef struct RowTime {
    const Expr *seen[SHARED];
    int n;
} RowTime;

static bool reads_key(const Expr *e)
{
    return e && (e->op == E_K || e->op == E_TABLE_K || e->op == E_SELECTED || reads_key(e->a) ||
                 reads_key(e->b));
}

static bool same(const Expr *x, const Expr *y)
{
    if (!x || !y)
        return x == y;
    return x->op == y->op && x->value == y->value && x->pattern == y->pattern && same(x->a, y->a) &&
           same(x->b, y->b);
}

/* The compiler computes equal operations once. */
static bool is_known(RowTime *t, const Expr *e)
{
    for (int i = 0; i < t->n; i++)
        if (same(t->seen[i], e))
            return true;
    if (t->n < SHARED)
        t->seen[t->n++] = e;
    return false;
}

static double own_time(const Expr *e)
{
    switch (e->op) {
    case E_CONST:
    case E_K:
    case E_TRUE:
    case E_FALSE: return 0;
    case E_TABLE_K:
    case E_SELECTED:
    case E_PATTERN: return TABLE;
    case E_DIV: return DIVISION;
    case E_MOD: return e->b->op == E_CONST && (e->b->value & (e->b->value - 1)) ? REMAINDER : POWER_OF_TWO;
    case E_HASH: return HASH;
    default: return OPERATION;
    }
}

/* What reads no key is computed once a row. */
static double operations_time(RowTime *t, const Expr *e)
{
    if (!e || !reads_key(e) || (own_time(e) > OPERATION && is_known(t, e)))
        return 0;
    const bool whole = e->op == E_SELECTED;
    return own_time(e) + (whole ? 0 : operations_time(t, e->a) + operations_time(t, e->b));
}

double mask_row_time(const Expr *e)
{
    RowTime t = {.n = 0};
    return (ROW + operations_time(&t, e)) / PROBED;
}
