/* check_attention.c: attention { default mine(32Ki, 4); layers 7, 15 .. 23: causal; softcap 50; }: each
 * layer's mask, and operations on scores. */
#include "check.h"

#include <string.h>

typedef struct Assignment {
    int *mask;
    Span *by;
    int layers, fallback;
    Span fallback_span;
    double softcap;
    bool sinks;
    const Ast *positions; /* a table's name; NULL: not given */
} Assignment;

static const Ast *mask_value(Checker *c, Cursor *u)
{
    if (u->failed || !u->at || (u->at->kind != A_NAME && u->at->kind != A_CALL)) {
        if (!u->failed)
            diag_error(c->diags, u->at ? u->at->span : u->setting->name_span,
                       "'%s' requires a mask, such as causal or window(4Ki)", u->setting->text);
        return NULL;
    }
    const Ast *mask = cursor_next(u);
    cursor_end(u);
    return mask;
}

static void take_default(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Assignment *a = to;
    Cursor u = cursor_of(c, s);
    const Ast *mask = mask_value(c, &u);
    a->fallback_span = s->span;
    if (mask)
        a->fallback = use_mask(c, mask);
}

static void assign(Checker *c, const Ast *s, Assignment *a, int64_t layer, int mask, Span span)
{
    if (layer >= a->layers) {
        if (a->layers)
            diag_error(c->diags, span, "layer %lld does not exist: the model has %d, numbered from 0",
                       (long long)layer, a->layers);
    } else if (a->by[layer].src) {
        diag_error(c->diags, span, "layer %lld is set twice", (long long)layer);
        diag_note(c->diags, a->by[layer], "first here");
    } else {
        a->by[layer] = s->span;
        a->mask[layer] = mask;
    }
}

bool cursor_layers(Cursor *u, int64_t *first, int64_t *last, Span *span)
{
    *span = u->at ? u->at->span : u->setting->name_span;
    if (!cursor_whole(u, 0, 1 << 30, first))
        return false;
    *last = *first;
    if (!cursor_try(u, ".."))
        return true;
    *span = span_join(*span, u->at ? u->at->span : *span);
    return cursor_whole(u, *first, 1 << 30, last);
}

static void take_layers(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Assignment *a = to;
    const Ast *colon = s->args.first;
    while (colon && (colon->kind != A_PUNCT || strcmp(colon->text, ":") != 0))
        colon = colon->next;
    const Ast *value = colon ? colon->next : NULL;
    int mask = value && (value->kind == A_NAME || value->kind == A_CALL) ? use_mask(c, value) : -1;
    Cursor u = cursor_of(c, s);
    do {
        int64_t first, last;
        Span span;
        if (!cursor_layers(&u, &first, &last, &span))
            return;
        if (last >= a->layers)
            first = last; /* one message per range */
        for (int64_t layer = first; layer <= last; layer++)
            assign(c, s, a, layer, mask, span);
    } while (cursor_try(&u, ","));
    cursor_word(&u, ":");
    mask_value(c, &u);
}

/* `sinks learned;` */
static void take_sinks(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Cursor u = cursor_of(c, s);
    ((Assignment *)to)->sinks = cursor_word(&u, "learned") && cursor_end(&u);
}

/* `positions NAME;`: NAME is a table that this or another file declares. */
static void take_positions(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Cursor u = cursor_of(c, s);
    const Ast *name = cursor_name(&u, "a table");
    if (name && cursor_end(&u))
        ((Assignment *)to)->positions = name;
}

static const Field attention_fields[] = {
    {"default", take_default, 0, 0},
    {"layers", take_layers, 0, FIELD_REPEATS},
    {"positions", take_positions, 0, 0},
    {"sinks", take_sinks, 0, 0},
    {"softcap", take_double, offsetof(Assignment, softcap), 0, UNIT_NONE, 0.01, 1000},
};

/* The stock causal mask, the default. */
static int causal_mask(Checker *c)
{
    Ast *name = NEW(c->arena, Ast);
    *name = (Ast){.kind = A_NAME, .text = "causal", .span = c->model ? c->model->span : (Span){0}};
    name->name_span = name->span;
    return use_mask(c, name);
}

static const Selection *used_selections(Checker *c)
{
    Selection *all = NEW_ARRAY(c->arena, Selection, c->used_selections.n);
    for (int i = 0; i < c->used_selections.n; i++)
        all[i] = *c->used_selections.at[i];
    return all;
}

/* Adds the user's masks that no layer uses, after the others. */
static void add_every_mask(Checker *c)
{
    Program *p = c->program;
    for (int i = 0; c->in->every_mask && i < c->masks.n; i++) {
        const MaskDecl *m = c->masks.at[i];
        const int parameters = m->ast->args.n;
        Ast *name = NEW(c->arena, Ast);
        *name =
            (Ast){.kind = A_NAME, .text = m->name, .span = m->ast->name_span, .name_span = m->ast->name_span};
        if (!m->stock && parameters && !m->used)
            p->open_masks = arena_printf(c->arena, p->open_masks ? "%s, %s" : "%s%s",
                                         p->open_masks ? p->open_masks : "", m->name);
        else if (!m->stock && !parameters)
            use_mask(c, name);
    }
    p->masks = c->used_masks.at;
    p->tables = c->used_tables.at;
    p->selections = used_selections(c);
    p->selection_count = c->used_selections.n;
    for (int l = 0; l < p->model.layers; l++)
        p->model.selects |= p->layer_mask[l] >= 0 && p->masks[p->layer_mask[l]].selection > 0;
    p->all_masks = c->used_masks.n;
    p->all_tables = c->used_tables.n;
}

/* Adds the positions' table after the masks' tables. */
static void settle_positions(Checker *c, const Ast *name)
{
    if (!name)
        return;
    if (c->program->library)
        diag_error(c->diags, name->span,
                   "'positions' is what RoPE turns by, and a library has attention alone; its caller turns "
                   "queries and keys");
    else if (!of_prompt(c, burst_table_kind(name->text)))
        c->program->model.rope_table = 1 + use_table_named(c, name);
}

/* Scans restart where a document begins; a prompt is one. */
static void settle_places(Checker *c)
{
    Model *m = &c->program->model;
    Ast *name = NEW(c->arena, Ast);
    *name = (Ast){.kind = A_NAME, .text = "position", .span = m->scan_span};
    name->name_span = name->span;
    if (m->scan.columns && !c->program->library && !c->infer)
        m->place_table = 1 + use_table_named(c, name);
}

void finish_attention(Checker *c)
{
    Program *p = c->program;
    int layers = p->model.layers;
    Assignment a = {.mask = NEW_ARRAY(c->arena, int, layers),
                    .by = NEW_ARRAY(c->arena, Span, layers),
                    .layers = layers,
                    .fallback = -1};
    if (c->attention) {
        Cursor u = cursor_of(c, c->attention);
        cursor_end(&u);
        take_fields(c, c->attention->body, attention_fields, countof(attention_fields), &a, "attention",
                    c->attention->span);
    }
    for (int i = 0; i < layers; i++) {
        if (!a.by[i].src && !a.fallback_span.src) {
            a.fallback = causal_mask(c);
            a.fallback_span = c->model->span;
        }
        if (!a.by[i].src)
            a.mask[i] = a.fallback;
    }
    settle_positions(c, a.positions);
    settle_places(c);
    p->mask_count = c->used_masks.n;
    p->layer_mask = a.mask;
    p->model.softcap = a.softcap;
    p->model.sinks = a.sinks;
    p->table_count = c->used_tables.n;
    finish_layers(c);
    add_every_mask(c);
    settle_indexer(c);
}
