/* check_rope.c: `rope 500000;` and `rope 500000 llama3 { factor 8; ... }`: the rotary embedding and the
 * scaling of its frequencies, by the table of families/rope.c. */
#include "check.h"

#include "families/families.h"

/* The settings of a scaling block. */
typedef struct Scaling {
    BurstRope rope;
    BurstRopeFactors factors;
    int short_factors, long_factors; /* how many are given */
} Scaling;

/* `short 1 1.05 1.1;`: one factor per pair. */
static void take_factors(Checker *c, const Ast *s, const Field *f, void *to)
{
    Scaling *x = to;
    const bool is_long = f->name[0] == 'l';
    double *factor = is_long ? x->factors.long_factor : x->factors.short_factor;
    int n = 0;
    Cursor u = cursor_of(c, s);
    do {
        if (n == BURST_ROPE_PAIRS) {
            diag_error(c->diags, s->span, "'%s' has more than %d factors", f->name, BURST_ROPE_PAIRS);
            return;
        }
        if (!cursor_number(&u, UNIT_NONE, f->lo, f->hi, &factor[n]))
            return;
        n++;
    } while (u.at);
    *(is_long ? &x->long_factors : &x->short_factors) = n;
}

static const Field factor_fields[] = {
    {"short", take_factors, 0, FIELD_REQUIRED, UNIT_NONE, 1e-6, 1e6},
    {"long", take_factors, 0, FIELD_REQUIRED, UNIT_NONE, 1e-6, 1e6},
};
enum { SCALING_FIELDS = ROPE_FIELDS + countof(factor_fields) };

static void take_negated(Checker *c, const Ast *s, const Field *f, void *to)
{
    bool yes = true;
    take_yes_no(c, s, f, &yes);
    *(double *)to = !yes;
}

/* The fields of that kind of scaling, with bounds and defaults; returns their number. */
static int scaling_fields(int kind, Field field[SCALING_FIELDS])
{
    const RopeKind *k = &rope_kinds[kind];
    int n = 0;
    for (const RopeField *f = k->field; f->name; f++)
        field[n++] = (Field){f->name,   f->negated ? take_negated : take_double,
                             f->at,     f->absent != 0 || f->option ? 0 : FIELD_REQUIRED,
                             UNIT_NONE, f->lo,
                             f->hi};
    for (int i = 0; kind == BURST_ROPE_LONGROPE && i < countof(factor_fields); i++)
        field[n++] = factor_fields[i];
    return n;
}

static void take_scaling(Checker *c, const Ast *s, BurstRope *r)
{
    Scaling *x = NEW(c->arena, Scaling);
    Field field[SCALING_FIELDS];
    const int n = scaling_fields(r->kind, field);
    x->rope = *r;
    for (const RopeField *f = rope_kinds[r->kind].field; f->name; f++)
        *rope_number(&x->rope, f) = f->absent;
    take_fields(c, s->body, field, n, x, "the scaling", s->span);
    *r = x->rope;
    if (x->short_factors != x->long_factors)
        diag_error(c->diags, s->span, "'short' has %d factors, and 'long' has %d", x->short_factors,
                   x->long_factors);
    x->factors.count = x->short_factors;
    r->factors = r->kind == BURST_ROPE_LONGROPE ? &x->factors : NULL;
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
    if (s->has_body) /* scaled; else no block is expected */
        r.kind = 1 + cursor_choice(u, kinds + 1, countof(kinds) - 1);
    for (int i = 1; !s->has_body && i < countof(kinds); i++)
        r.kind = cursor_try(u, kinds[i]) ? i : r.kind;
    if (!cursor_end(u))
        return false;
    if (r.kind != BURST_ROPE_DEFAULT && !s->has_body)
        diag_error(c->diags, s->span,
                   "'%s' requires a block, such as rope 10000 yarn { factor 4; original 32Ki; }",
                   rope_kinds[r.kind].name);
    else if (r.kind != BURST_ROPE_DEFAULT)
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
