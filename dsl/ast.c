/* ast.c: nodes of the syntax tree, and --emit=ast. */
#include "ast.h"

#include <stdlib.h>
#include <string.h>

void parser_mends(Parser *p, Span at, const char *fix, const char *fmt, ...)
{
    int before = diags_errors(p->diags);
    va_list ap;
    va_start(ap, fmt);
    Text t = {0};
    text_vprintf(&t, fmt, ap);
    va_end(ap);
    diag_error(p->diags, at, "%s", t.at);
    if (fix)
        diag_fixit(p->diags, at, fix);
    p->mended += diags_errors(p->diags) - before;
    text_free(&t);
}

Ast *ast_new(Parser *p, AstKind kind, Span at)
{
    Ast *n = NEW(p->arena, Ast);
    n->kind = kind;
    n->span = n->name_span = at;
    n->text = "";
    return n;
}

Ast *ast_word(Parser *p, AstKind kind, Span at)
{
    Ast *n = ast_new(p, kind, at);
    n->len = at.end - at.begin;
    n->text = arena_copy(p->arena, p->source->text + at.begin, n->len);
    return n;
}

/* Reports a tree that is too deep for the checker's recursion once, and cuts it off here. */
void ast_bound(Parser *p, Ast *n)
{
    for (const Ast *a = n->args.first; a; a = a->next)
        if (a->depth >= n->depth)
            n->depth = a->depth + 1;
    if (n->depth <= AST_MAX_DEPTH)
        return;
    diag_error(p->diags, n->span, "expression is nested too deeply (more than %d levels)", AST_MAX_DEPTH);
    n->kind = A_NUMBER;
    n->number = (Number){0};
    n->args = ast_list(NULL);
    n->depth = 0;
}

Ast *ast_op(Parser *p, AstKind kind, ExprOp op, Ast *a, Ast *b, Span at)
{
    Ast *n = ast_new(p, kind, at);
    n->op = op;
    n->args = ast_list(a);
    if (b)
        n->args = ast_add(n->args, b);
    ast_bound(p, n);
    return n;
}

AstList ast_list(Ast *first)
{
    return (AstList){first, first, first != NULL};
}

AstList ast_add(AstList list, Ast *more)
{
    if (!list.last)
        return ast_list(more);
    list.last->next = more;
    list.last = more;
    list.n++;
    return list;
}

AstList ast_concat(AstList a, AstList b)
{
    if (!a.n || !b.n)
        return a.n ? a : b;
    a.last->next = b.first;
    return (AstList){a.first, b.last, a.n + b.n};
}

Ast *ast_at(AstList list, int i)
{
    Ast *n = list.first;
    while (n && i-- > 0)
        n = n->next;
    return n;
}

/* ---- --emit=ast ---- */
static void print_bytes(const char *s, size_t len, Text *out)
{
    text_add(out, "\"");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            text_printf(out, "\\x%02x", c);
        else
            text_add_n(out, s + i, 1);
    }
    text_add(out, "\"");
}

/* The fewest digits that read back as the same number. */
static int digits_of(double value)
{
    char text[40];
    int digits = 6;
    do
        snprintf(text, sizeof text, "%.*g", digits, value);
    while (strtod(text, NULL) != value && digits++ < 17);
    return digits;
}

static void print_number(const Number *n, Text *out)
{
    static const char *const base[UNIT_KIND_COUNT] = {"", " B", " B/s", " FLOP/s", " ns"};
    if (n->is_whole)
        text_printf(out, "%lld%s", (long long)n->whole, base[n->unit]);
    else
        text_printf(out, "%.*g%s", digits_of(n->value), n->value, base[n->unit]);
}

static void print_operator(const Ast *n, Text *out)
{
    static const char *const kind_name[] = {
#define X(id, name) name,
        AST_KINDS(X)
#undef X
    };
    if (n->kind == A_BINARY)
        text_add(out, expr_ops[n->op].burst.text);
    else
        text_add(out, kind_name[n->kind]);
}

/* Operands and values: (call mine 32768 4), (index doc q), (and a b). */
static void print_value(const Ast *n, Text *out)
{
    if (n->kind == A_NUMBER)
        print_number(&n->number, out);
    else if (n->kind == A_STRING)
        print_bytes(n->text, n->len, out);
    else if (n->kind == A_NAME || n->kind == A_PUNCT || n->kind == A_STAR)
        text_add(out, n->text);
    else {
        text_add(out, "(");
        print_operator(n, out);
        if (n->kind == A_FILE) {
            text_add(out, " ");
            print_bytes(n->text, n->len, out);
        } else if (n->len) {
            text_printf(out, " %s", n->text);
        }
        for (const Ast *a = n->args.first; a; a = a->next) {
            text_add(out, " ");
            print_value(a, out);
        }
        text_add(out, ")");
        if (n->kind == A_INDEX && n->more.n) {
            text_add(out, ".");
            print_value(n->more.first, out);
        }
    }
}

static void print_values(AstList list, const char *before, Text *out)
{
    for (const Ast *a = list.first; a; a = a->next) {
        text_add(out, before);
        print_value(a, out);
    }
}

static const char *word_before_more(AstKind kind)
{
    switch (kind) {
    case A_MASK:
    case A_SELECT: return " =";
    case A_SCHEDULE: return " pieces";
    case A_COLLECTIVE: return " over";
    case A_USE: return " with";
    default: return " ->";
    }
}

static void print_node(const Ast *n, int indent, Text *out)
{
    text_printf(out, "%*s", indent * 2, "");
    print_operator(n, out);
    bool keyword = n->kind == A_SETTING || n->kind == A_MASK || n->kind == A_SELECT ||
                   n->kind == A_SCHEDULE || n->kind == A_FOR || n->kind == A_COLLECTIVE || n->kind == A_USE ||
                   n->kind == A_LATER;
    if (keyword)
        text_printf(out, " %s", n->text);
    print_values(n->args, " ", out);
    if (n->more.n)
        text_add(out, word_before_more(n->kind));
    print_values(n->more, " ", out);
    text_add(out, n->has_body ? " {\n" : "\n");
    for (const Ast *b = n->body.first; b; b = b->next)
        print_node(b, indent + 1, out);
    if (n->has_body)
        text_printf(out, "%*s}\n", indent * 2, "");
}

void ast_print(const Source *s, AstList items, Text *out)
{
    text_add(out, "file ");
    print_bytes(s->name, strlen(s->name), out);
    text_add(out, " {\n");
    for (const Ast *n = items.first; n; n = n->next)
        print_node(n, 1, out);
    text_add(out, "}\n");
}
