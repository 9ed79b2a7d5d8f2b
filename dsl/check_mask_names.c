/* check_mask_names.c: names in masks: declarations of masks, their parameters and tables, and lookup. */
#include "check.h"

#include "data/lengths.h"

#include <errno.h>
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
        diag_error(c->diags, mask->name_span, "'%s' is reserved in masks; choose another name", mask->text);
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

/* Copies the list to the arena, and finds its shortest and longest length. */
static void keep_lengths(Checker *c, const Lengths *read, Table *t)
{
    const size_t bytes = (size_t)read->listed * sizeof *read->length;
    Lengths *kept = NEW(c->arena, Lengths);
    *kept = (Lengths){.listed = read->listed,
                      .length = NEW_ARRAY(c->arena, int64_t, read->listed),
                      .until = NEW_ARRAY(c->arena, int64_t, read->listed)};
    memcpy(kept->length, read->length, bytes);
    memcpy(kept->until, read->until, bytes);
    t->lengths = kept;
    t->len_min = t->len_max = kept->length[0];
    for (int64_t i = 1; i < kept->listed; i++) {
        t->len_min = kept->length[i] < t->len_min ? kept->length[i] : t->len_min;
        t->len_max = kept->length[i] > t->len_max ? kept->length[i] : t->len_max;
    }
}

static bool load_lengths(Checker *c, const Ast *file, Table *t)
{
    const char *path = path_beside(c->arena, file->span, file->text), *text = NULL;
    size_t len;
    errno = EINVAL;
    if (is_plain_file(path))
        text = read_file(c->arena, path, &len);
    if (!text) {
        diag_error(c->diags, file->span, "cannot read '%s': %s", path, strerror(errno));
        return false;
    }
    add_input(c, path);
    Lengths read;
    int64_t line;
    char why[LENGTHS_WHY];
    if (lengths_read(&read, text, len, &line, why)) {
        diag_error(c->diags, file->span, "'%s' is not a table of lengths: line %lld: %s", path,
                   (long long)line, why);
        return false;
    }
    keep_lengths(c, &read, t);
    lengths_free(&read);
    return true;
}

/* lengths 512 .. 32Ki;  lengths "lengths.txt"; */
static bool check_lengths(Checker *c, Cursor *u, Table *t)
{
    if (u->at && u->at->kind == A_STRING) {
        const Ast *file = cursor_string(u, "a file of lengths");
        return file && load_lengths(c, file, t);
    }
    cursor_whole(u, 1, INT64_C(1) << 40, &t->len_min);
    cursor_word(u, "..");
    return cursor_whole(u, t->len_min, INT64_C(1) << 40, &t->len_max);
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
    if (cursor_try(&u, "lengths") && !check_lengths(c, &u, &t))
        return;
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
                   t.lengths ? "'lengths' are those of documents; write 'table doc per token lengths \"...\"'"
                             : "'lengths' are those of documents; write 'table doc per token lengths %lld .. "
                               "%lld'",
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

/* ---- lookup ---- */
int parameter_index(const MaskDecl *decl, const char *name)
{
    int i = 0;
    for (const Ast *p = decl->ast->args.first; p; p = p->next, i++)
        if (strcmp(p->text, name) == 0)
            return i;
    return -1;
}

/* The user's declaration hides a stock one, but not from other stock masks: the stock window stays causal
 * even if the user declares another causal. */
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
