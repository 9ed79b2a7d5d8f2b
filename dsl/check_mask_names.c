/* check_mask_names.c: the names that masks are made of: declarations of masks, of their parameters and of
 * tables, and finding them. */
#include "check.h"

#include <string.h>

/* ---- declaring ---- */
static bool reserved(const char *name)
{
    static const char *const words[] = {"q", "k", "min", "max", "abs", "hash", "true", "false"};
    for (int i = 0; i < countof(words); i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return false;
}

static void check_parameters(Checker *c, const Ast *mask)
{
    for (const Ast *p = mask->args.first; p; p = p->next) {
        if (reserved(p->text))
            diag_error(c->diags, p->span, "'%s' is reserved in masks; choose another name", p->text);
        for (const Ast *o = mask->args.first; o != p; o = o->next)
            if (strcmp(o->text, p->text) == 0)
                duplicate(c, p, o->span, arena_printf(c->arena, "parameter '%s'", p->text));
    }
}

void declare_mask(Checker *c, const Ast *mask)
{
    if (reserved(mask->text))
        diag_error(c->diags, mask->name_span, "'%s' is reserved in masks; choose another name",
                   mask->text);
    check_parameters(c, mask);
    const MaskDecl *first = name_find(&c->mask_names[c->stock], mask->text);
    if (first) {
        duplicate(c, mask, first->ast->name_span, arena_printf(c->arena, "mask '%s'", mask->text));
        return;
    }
    MaskDecl *decl = *vec_push(c->arena, &c->masks) = NEW(c->arena, MaskDecl);
    *decl = (MaskDecl){.name = mask->text, .ast = mask, .stock = c->stock};
    name_add(c->arena, &c->mask_names[c->stock], mask->text, decl);
}

/* table subtree per token;  table doc per token lengths 512 .. 32Ki; */
void declare_table(Checker *c, const Ast *s)
{
    Cursor u = cursor_of(c, s);
    const Ast *name = cursor_name(&u, "a name");
    Table t = {.span = s->span};
    cursor_word(&u, "per");
    cursor_word(&u, "token");
    const Ast *lengths = u.at;
    if (cursor_try(&u, "lengths")) {
        cursor_whole(&u, 1, INT64_C(1) << 40, &t.len_min);
        cursor_word(&u, "..");
        cursor_whole(&u, t.len_min, INT64_C(1) << 40, &t.len_max);
    }
    if (!cursor_end(&u))
        return;
    t.name = name->text;
    t.kind = burst_table_kind(t.name);
    if (reserved(t.name)) {
        diag_error(c->diags, name->span, "'%s' is reserved in masks; choose another name", t.name);
        return;
    }
    if (t.len_max && t.kind != BURST_TABLE_DOC) {
        diag_error(c->diags, lengths->span,
                   "'lengths' are those of documents; write 'table doc per token lengths %lld .. %lld'",
                   (long long)t.len_min, (long long)t.len_max);
        return;
    }
    for (int i = 0; i < c->tables.n; i++)
        if (c->tables.at[i]->stock == c->stock && strcmp(c->tables.at[i]->table.name, t.name) == 0) {
            duplicate(c, name, c->tables.at[i]->table.span, arena_printf(c->arena, "table '%s'", t.name));
            return;
        }
    TableDecl *decl = *vec_push(c->arena, &c->tables) = NEW(c->arena, TableDecl);
    *decl = (TableDecl){.table = t, .stock = c->stock, .number = -1};
}

/* ---- finding ---- */
int parameter_index(const MaskDecl *decl, const char *name)
{
    int i = 0;
    for (const Ast *p = decl->ast->args.first; p; p = p->next, i++)
        if (strcmp(p->text, name) == 0)
            return i;
    return -1;
}

/* The user's own declaration hides a stock one, but not from other stock masks: window stays causal
 * whatever the user calls causal. */
MaskDecl *find_mask(const Checker *c, const char *name, bool from_stock)
{
    MaskDecl *own = from_stock ? NULL : name_find(&c->mask_names[false], name);
    return own ? own : name_find(&c->mask_names[true], name);
}

TableDecl *find_table(const Checker *c, const char *name)
{
    TableDecl *found = NULL;
    for (int i = 0; i < c->tables.n; i++)
        if (strcmp(c->tables.at[i]->table.name, name) == 0 && (!found || found->stock))
            found = c->tables.at[i];
    return found;
}
