/* mask/text.c: prints expressions as .burst text, and escapes texts for C. */
#include "mask/internal.h"

static void put_table(const Expr *e, const Table *tables, Text *out)
{
    if (tables)
        text_add(out, tables[e->value].name);
    else
        text_printf(out, "t%d", (int)e->value);
    text_add(out, e->op == E_TABLE_Q ? "[q]" : "[k]");
}

static void put_pattern(const ExprWriter *w, const Expr *e)
{
    text_printf(w->out, "file \"%s\" at (", e->pattern->path);
    expr_write(w, e->a);
    text_add(w->out, ", ");
    expr_write(w, e->b);
    text_add(w->out, ")");
}

static void put_own(const ExprWriter *w, const Expr *e)
{
    switch (e->op) {
    case E_CONST: text_printf(w->out, e->value < 0 ? "(%lld)" : "%lld", (long long)e->value); break;
    case E_VAR: text_printf(w->out, "v%d", (int)e->value); break;
    case E_PATTERN: put_pattern(w, e); break;
    case E_SELECTED: text_printf(w->out, "top(%s)", e->selection ? e->selection->text : ""); break;
    default: put_table(e, w->with, w->out);
    }
}

void mask_text(const Expr *e, const Table *tables, Text *out)
{
    expr_write(&(ExprWriter){.own = put_own, .with = tables, .out = out}, e);
}

/* Leaves out line feeds, since a backslash before one would join lines, and Unicode's general punctuation
 * (E2 80 .., E2 81 ..), which may reverse the direction of text. */
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

/* Octal escapes have three digits, so that a digit may follow; a question mark could begin a trigraph. */
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
