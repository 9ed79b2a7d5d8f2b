/* words/indexer.c: `indexer NAME { heads 4; dim 128; norm rmsnorm; rotary 64; train frozen; }`: queries and
 * keys by which selections score blocks. */
#include "check.h"

#include "families/frequency.h"

#include <stddef.h>
#include <string.h>

enum { MOST_HEADS = 1024, MOST_DIM = 1024, NOT_GIVEN = -1 };

/* Words of which one is supported. */
static void take_only(Checker *c, const Ast *s, const char *only, const char *why)
{
    Cursor u = cursor_of(c, s);
    const Ast *word = cursor_name(&u, only);
    if (word && strcmp(word->text, only) != 0)
        diag_error(c->diags, word->span, "'%s' is not supported: %s; write %s %s", word->text, why, s->text,
                   only);
    else if (word)
        cursor_end(&u);
}

static void take_from(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f, (void)to;
    take_only(c, s, "hidden", "an indexer reads the input of its layer's attention");
}

static void take_train(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f, (void)to;
    take_only(c, s, "frozen", "an indexer has no loss of its own, and its weights stay as they are");
}

static void take_norm(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const words[] = {"none", "rmsnorm"};
    (void)f;
    take_word(c, s, words, countof(words), &((BurstIndexer *)to)->norm);
}

#define AT(member) offsetof(BurstIndexer, member)
static const Field fields[] = {
    {"heads", take_int, AT(heads), FIELD_REQUIRED, UNIT_NONE, 1, MOST_HEADS},
    {"kv_heads", take_int, AT(kv_heads), 0, UNIT_NONE, 1, MOST_HEADS},
    {"dim", take_int, AT(dim), FIELD_REQUIRED, UNIT_NONE, 2, MOST_DIM},
    {"from", take_from, 0, 0},
    {"norm", take_norm, 0, 0},
    {"rotary", take_int, AT(rotary), 0, UNIT_NONE, 0, MOST_DIM},
    {"train", take_train, 0, FIELD_REQUIRED},
};
#undef AT

/* What its rope needs: that of the model's layers, of so many elements. */
static void check_rope_of(Checker *c, const Model *m, const BurstIndexer *x, Span at)
{
    const int turns = burst_rope_rotary(&m->rope, m->head_dim);
    const struct {
        bool wrong;
        const char *text;
    } row[] = {
        {x->rotary % 2 || x->rotary > x->dim, "must be even, and at most 'dim'"},
        {x->rotary && m->ropes, "requires the same 'rope' in all layers; write rotary 0"},
        {x->rotary && m->rope.kind == BURST_ROPE_LONGROPE && x->rotary != turns,
         "must be as many elements as the model's heads turn: longrope has a factor for each pair"},
    };
    for (int i = 0; i < countof(row); i++)
        if (row[i].wrong)
            diag_error(c->diags, at, "'rotary' %d of an indexer %s", x->rotary, row[i].text);
}

void finish_indexer(Checker *c, Model *m)
{
    BurstIndexer x = {.rotary = NOT_GIVEN};
    const int before = diags_errors(c->diags);
    if (!c->indexer)
        return;
    const char *name = block_name(c, c->indexer);
    if (name && strcmp(name, "dot") == 0)
        diag_error(c->diags, c->indexer->span,
                   "`dot` scores with the layer's own queries and keys; give the "
                   "indexer another name");
    take_fields(c, c->indexer->body, fields, countof(fields), &x, "'indexer'", c->indexer->span);
    if (diags_errors(c->diags) > before || !m->head_dim)
        return;
    const int turns = m->rope.theta > 0 ? burst_rope_rotary(&m->rope, m->head_dim) : 0,
              most = turns < x.dim ? turns : x.dim / 2 * 2;
    x.kv_heads = x.kv_heads ? x.kv_heads : 1;
    x.rotary = x.rotary == NOT_GIVEN ? most : x.rotary;
    check_rope_of(c, m, &x, c->indexer->span);
    if (x.heads % x.kv_heads)
        diag_error(c->diags, c->indexer->span,
                   "%d heads of an indexer cannot be divided evenly among %d kv_heads", x.heads, x.kv_heads);
    m->indexer = x;
    m->layer.indexer = 1;
    m->indexer_span = c->indexer->span;
}

void check_indexer(Checker *c)
{
    const Program *p = c->program;
    const BurstIndexer *x = &p->model.indexer;
    const int step = p->model.rope.interleaved ? 8 : 16;
    if (x->heads && p->train.optimizer == BURST_OPTIMIZER_MUON)
        diag_error(
            c->diags, p->train.optimizer_span,
            "`optimizer muon` is not supported with an indexer, whose matrices stay as they are; use adamw");
    if (!x->heads || !p->target || !p->target->device_memory)
        return;
    if (x->dim % 8 || (x->rotary && x->rotary % step))
        diag_error(
            c->diags, p->model.indexer_span,
            "an indexer with dim %d and rotary %d is not supported: %s programs require multiples of 8 and "
            "of %d, C programs even numbers",
            x->dim, x->rotary, p->target->language, step);
}

void settle_indexer(Checker *c)
{
    const Program *p = c->program;
    Model *m = &c->program->model;
    int *kind = NEW_ARRAY(c->arena, int, m->layers + 1);
    Model with = *m;
    with.kinds = 0;
    for (int l = 0; l < m->layers && m->indexer.heads; l++) {
        const int mask = p->layer_mask[l], selection = mask < 0 ? 0 : p->masks[mask].selection;
        KindParts x = {.experts = m->experts.experts > 0};
        if (model_kinds(m) > 1)
            x = m->kind[model_kind(m, l)];
        x.indexer = selection > 0 && p->selections[selection - 1].indexer && !x.scan && !x.no_mixer;
        check_kind(c, &with, &x, &kind[l]);
    }
    bool used = false;
    for (int k = 0; k < with.kinds; k++)
        used |= with.kind[k].indexer;
    if (m->indexer.heads && !used && !c->in->every_mask)
        diag_error(
            c->diags, m->indexer_span,
            "no layer uses the indexer; write its name in place of dot in a selection that layers use");
    if (!used) {
        m->indexer = (BurstIndexer){0};
        return;
    }
    with.layer_kind = with.kinds > 1 ? kind : NULL;
    *m = with;
}
