/* mask/text.c: expressions printed as .burst text, and texts made safe for C. */
#include "mask/internal.h"

/* Binding strength, weakest first, as in the language: or, and, not, comparisons, sums, products, the
 * rest. */
static int strength(ExprOp op)
{
    if (mask_is_comparison(op))
        return 4;
    switch (op) {
    case E_OR: return 1;
    case E_AND: return 2;
    case E_NOT: return 3;
    case E_ADD: case E_SUB: return 5;
    case E_MUL: case E_DIV: case E_MOD: return 6;
    default: return 7;
    }
}

static const char *const op_text[] = {
#define X(id, text) text,
    EXPR_OPS(X)
#undef X
};

static void put(const Expr *e, int least, const Table *tables, Text *out);

static void put_call(const Expr *e, const Table *tables, Text *out)
{
    text_printf(out, "%s(", op_text[e->op]);
    put(e->a, 0, tables, out);
    if (e->b) {
        text_add(out, ", ");
        put(e->b, 0, tables, out);
    }
    text_add(out, ")");
}

static void put_table(const Expr *e, const Table *tables, Text *out)
{
    if (tables)
        text_add(out, tables[e->value].name);
    else
        text_printf(out, "t%d", (int)e->value);
    text_add(out, e->op == E_TABLE_Q ? "[q]" : "[k]");
}

static void put_pattern(const Expr *e, const Table *tables, Text *out)
{
    text_printf(out, "file \"%s\" at (", e->pattern->path);
    put(e->a, 0, tables, out);
    text_add(out, ", ");
    put(e->b, 0, tables, out);
    text_add(out, ")");
}

/* Equal strength on the right needs parentheses, except where the operator is associative; comparisons on
 * both sides. */
static void put_binary(const Expr *e, const Table *tables, Text *out)
{
    const int own = strength(e->op);
    const bool associative = e->op == E_AND || e->op == E_OR || e->op == E_ADD;
    put(e->a, mask_is_comparison(e->op) ? own + 1 : own, tables, out);
    text_printf(out, " %s ", op_text[e->op]);
    put(e->b, associative ? own : own + 1, tables, out);
}

static void put_bare(const Expr *e, const Table *tables, Text *out)
{
    switch (e->op) {
    case E_CONST:
        text_printf(out, e->value < 0 ? "(%lld)" : "%lld", (long long)e->value);
        break;
    case E_VAR:
        text_printf(out, "v%d", (int)e->value);
        break;
    case E_TABLE_Q: case E_TABLE_K:
        put_table(e, tables, out);
        break;
    case E_MIN: case E_MAX: case E_ABS: case E_HASH:
        put_call(e, tables, out);
        break;
    case E_PATTERN:
        put_pattern(e, tables, out);
        break;
    case E_NOT:
        text_add(out, "not ");
        put(e->a, strength(E_NOT), tables, out);
        break;
    case E_Q: case E_K: case E_TRUE: case E_FALSE:
        text_add(out, op_text[e->op]);
        break;
    default:
        put_binary(e, tables, out);
    }
}

static void put(const Expr *e, int least, const Table *tables, Text *out)
{
    const bool bracket = strength(e->op) < least;
    if (bracket)
        text_add(out, "(");
    put_bare(e, tables, out);
    if (bracket)
        text_add(out, ")");
}

void mask_text(const Expr *e, const Table *tables, Text *out)
{
    put(e, 0, tables, out);
}

/* No line feed: with a backslash before it, what was parted would be joined again. No general punctuation
 * of Unicode (E2 80 .., E2 81 ..): it may turn the direction of what a reader sees. */
void mask_comment(const char *text, Text *out)
{
    for (const char *s = text; *s; s++) {
        bool control = (unsigned char)*s < ' ' || *s == 0x7f;
        bool turns = s[0] == '\xe2' && (s[1] == '\x80' || s[1] == '\x81') && s[2];
        text_add_n(out, control || turns ? " " : s, 1);
        if ((s[0] == '*' && s[1] == '/') || (s[0] == '/' && s[1] == '*'))
            text_add(out, " ");
        s += turns ? 2 : 0;
    }
}

/* Three octal digits end an escape; a question mark may begin a trigraph. */
void mask_quote(const char *text, Text *out)
{
    text_add(out, "\"");
    for (const char *s = text; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < ' ' || c >= 0x7f)
            text_printf(out, "\\%03o", c);
        else
            text_printf(out, c == '"' || c == '\\' || c == '?' ? "\\%c" : "%c", c);
    }
    text_add(out, "\"");
}
