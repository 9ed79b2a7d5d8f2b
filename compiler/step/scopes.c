/* step/scopes.c: loops and conditions of a step's list, as scopes that its operations are in. */
#include "step/step.h"

int scope_add(Step *s, Scope n)
{
    *vec_push(s->arena, &s->scopes) = n;
    return s->scopes.n - 1;
}

const Scope *op_scope(const Step *s, const Op *o) { return &s->scopes.at[o->scope]; }

bool scope_inside(const Step *s, int scope, int around)
{
    while (scope != around && scope)
        scope = s->scopes.at[scope].around;
    return scope == around;
}

int scope_below(const Step *s, int scope, int around)
{
    while (scope != around && s->scopes.at[scope].around != around)
        scope = s->scopes.at[scope].around;
    return scope;
}

int op_loop(const Step *s, const Op *o, LoopDim d)
{
    int scope = o->scope;
    while (scope && (s->scopes.at[scope].kind != SCOPE_LOOP || s->scopes.at[scope].dim != d))
        scope = s->scopes.at[scope].around;
    return scope;
}

bool op_in_loop(const Step *s, const Op *o, LoopDim d) { return op_loop(s, o, d) > 0; }

bool op_is_ahead(const Step *s, const Op *o, LoopDim d)
{
    for (int scope = o->scope, loop = op_loop(s, o, d); scope != loop; scope = s->scopes.at[scope].around)
        if (s->scopes.at[scope].kind == SCOPE_AHEAD && s->scopes.at[scope].dim == d)
            return true;
    return false;
}

bool op_if_begun(const Step *s, const Op *o) { return o->scope && op_scope(s, o)->kind == SCOPE_BEGUN; }

LoopDim op_dim(const Step *s, const Op *o)
{
    if (op_in_loop(s, o, LOOP_HEADS))
        return LOOP_HEADS;
    return op_in_loop(s, o, LOOP_TOKENS) ? LOOP_TOKENS : LOOP_DIMS;
}

int op_chunks(const Step *s, const Op *o)
{
    switch (op_dim(s, o)) {
    case LOOP_HEADS: return s->shape.head_chunks;
    case LOOP_TOKENS: return s->chunks;
    default: return 1;
    }
}

int scope_begin(const Step *s, const Block *b, int at, int scope)
{
    while (at > 0 && scope && scope_inside(s, b->ops.at[at - 1].scope, scope))
        at--;
    return at;
}

int scope_end(const Step *s, const Block *b, int at, int scope)
{
    while (at + 1 < b->ops.n && scope && scope_inside(s, b->ops.at[at + 1].scope, scope))
        at++;
    return at + 1;
}

static int outermost(const Step *s, const Op *o) { return scope_below(s, o->scope, 0); }

bool op_same_loop(const Step *s, const Op *a, const Op *b)
{
    return a->scope && outermost(s, a) == outermost(s, b);
}

int scope_start(const Step *s, const Block *b, int at, int scope)
{
    const int begin = scope_begin(s, b, at, scope);
    for (int i = 1; i < s->scopes.n && begin > 0; i++)
        if (s->scopes.at[i].kind == SCOPE_AHEAD && s->scopes.at[i].around == scope &&
            scope_inside(s, b->ops.at[begin - 1].scope, s->scopes.at[i].early))
            return scope_begin(s, b, begin - 1, s->scopes.at[i].early);
    return begin;
}

int loop_begin(const Step *s, const Block *b, int at)
{
    return scope_start(s, b, at, outermost(s, &b->ops.at[at]));
}
int loop_end(const Step *s, const Block *b, int at)
{
    return scope_end(s, b, at, outermost(s, &b->ops.at[at]));
}
