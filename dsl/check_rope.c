/* check_rope.c: `rope 500000;` and `rope 500000 llama3 { factor 8; ... }`: the rotary embedding and what
 * scales its frequencies, by the table of families/rope.c. */
#include "check.h"

#include "families/families.h"

/* Of the kind, with bounds and defaults; how many. */
static int scaling_fields(const RopeKind *k, Field field[ROPE_FIELDS])
{
    int n = 0;
    for (const RopeField *f = k->field; f->name; f++)
        field[n++] = (Field){f->name,   take_double, f->at, f->absent != 0 ? 0 : FIELD_REQUIRED,
                             UNIT_NONE, f->lo,       f->hi};
    return n;
}

static void take_scaling(Checker *c, const Ast *s, BurstRope *r)
{
    const RopeKind *k = &rope_kinds[r->kind];
    Field field[ROPE_FIELDS];
    const int n = scaling_fields(k, field);
    for (const RopeField *f = k->field; f->name; f++)
        *rope_number(r, f) = f->absent;
    take_fields(c, s->body, field, n, r, "the scaling", s->span);
    if (r->kind == BURST_ROPE_YARN && r->attention < 0)
        r->attention = rope_yarn_attention(r->factor);
}

bool cursor_rope(Cursor *u, const Ast *s, const Field *f, BurstRope *to)
{
    Checker *c = u->c;
    static const char *const kinds[] = {
#define X(id, name) name,
        BURST_ROPE_ROWS(X)
#undef X
    };
    BurstRope r = {0};
    const int before = diags_errors(c->diags);
    if (!cursor_number(u, UNIT_NONE, f->lo, f->hi, &r.theta))
        return false;
    if (s->has_body) /* scaled, or nothing is said */
        r.kind = 1 + cursor_choice(u, kinds + 1, countof(kinds) - 1);
    for (int i = 1; !s->has_body && i < countof(kinds); i++)
        r.kind = cursor_try(u, kinds[i]) ? i : r.kind;
    if (!cursor_end(u))
        return false;
    if (r.kind != BURST_ROPE_DEFAULT)
        take_scaling(c, s, &r);
    if (diags_errors(c->diags) == before)
        *to = r;
    return diags_errors(c->diags) == before;
}

void check_rope(Checker *c, const BurstRope *r, int rotary, Span at)
{
    const char *wrong = rope_wrong(r, rotary);
    if (wrong)
        diag_error(c->diags, at, "'rope' %s: %s", rope_kinds[r->kind].name, wrong);
}
