/* sched/derive.c: derived statements. `gather`, `scatter` and chunks of several pieces become loops; `use`
 * copies the statements of another schedule, and a mirroring direction those of another direction.
 *
 * `use` replaces the other schedule's coordinates, sizes and loop variables by this schedule's. A mirroring
 * direction keeps them and exchanges the tensors: queries do what keys did. The result is an ordinary
 * schedule. */
#include "sched/check_sched.h"
#include "ir/choice.h"

#include <string.h>

/* ---- gather and scatter: each rank of a ring with every other ---- */

static const Expr *variable_plus(Scheduler *s, const Expr *x, int var, Span at)
{
    Expr *v = NEW(s->c->arena, Expr), *sum = NEW(s->c->arena, Expr);
    *v = (Expr){.op = E_VAR, .value = var, .span = at};
    *sum = (Expr){.op = E_ADD, .a = x, .b = v, .span = at};
    return x ? sum : v;
}

static bool of_all_pieces(const Scheduler *s, const ChunkRef *ref)
{
    return s->text->pieces > 1 && (ref->tensor == T_KV || ref->tensor == T_DKV) && !ref->piece;
}

Stmt *each_piece(Scheduler *s, Stmt *stmt)
{
    Stmt *loop = NEW(s->c->arena, Stmt);
    Expr *zero = NEW(s->c->arena, Expr), *last = NEW(s->c->arena, Expr);
    const Ast word = {.text = "pieces", .name_span = stmt->span};
    int all = 0;
    for (int i = 0; i < stmt->nrefs; i++)
        all += of_all_pieces(s, &stmt->refs[i]);
    const int first = stmt->kind == S_PASS ? 0 : 1; /* Q[..] with KV[..] */
    if (stmt->kind == S_RETURN || !all || s->failed)
        return stmt;
    if (all != stmt->nrefs - first)
        fault(s, stmt_place(stmt),
              "this passes all pieces of one tensor but one piece or the whole of another; use a separate "
              "statement for each");
    *zero = (Expr){.op = E_CONST, .span = stmt->span};
    *last = (Expr){.op = E_CONST, .value = s->text->pieces - 1, .span = stmt->span};
    *loop = (Stmt){.kind = S_FOR,
                   .span = stmt->span,
                   .by = stmt->by,
                   .mirrored = stmt->mirrored,
                   .var = new_loop_variable(s, &word),
                   .var_name = word.text,
                   .each_piece = true,
                   .lo = zero,
                   .hi = last,
                   .body = stmt};
    for (int i = 0; i < stmt->nrefs && loop->var >= 0; i++)
        if (of_all_pieces(s, &stmt->refs[i]))
            stmt->refs[i].piece = variable_plus(s, NULL, loop->var, stmt->span);
    return loop;
}

static int coordinate_named(Scheduler *s, const Ast *name)
{
    const SchedText *t = s->text;
    for (int i = 0; i < t->coords; i++)
        if (strcmp(t->coord_name[i], name->text) == 0)
            return i;
    unknown_word(s->c, name->span, name->text, t->coord_name, t->coords, "coordinate");
    s->failed = true;
    return 0;
}

static int coordinate_over(Scheduler *s, const Ast *a)
{
    const SchedText *t = s->text;
    if (a->more.first)
        return coordinate_named(s, a->more.first);
    if (t->coords > 1)
        fault(s, a->span,
              arena_printf(s->c->arena,
                           "this statement requires a coordinate in this schedule; write %s ... "
                           "over %s;",
                           a->text, t->coord_name[t->coords - 1]));
    return 0;
}

static void check_collected(Scheduler *s, const ChunkRef *ref, bool gathers)
{
    const bool copy = ref->tensor == T_Q || ref->tensor == T_KV;
    if (copy != gathers)
        fault(s, ref->span,
              arena_printf(s->c->arena,
                           gathers ? "%s is a sum and cannot be gathered; `scatter %s;` sends the parts of a "
                                     "sum to their owners"
                                   : "%s is not a sum and cannot be scattered; `gather %s;` copies it to all "
                                     "ranks",
                           tensor_name(ref->tensor), tensor_name(ref->tensor)));
}

/* `gather KV over b;` is `for s in 1 .. B - 1 { pass KV[a, b] to (a, b + s); }`, and `scatter dKV over b;`
 * is `for s in 1 .. B - 1 { pass dKV[a, b + s] to (a, b + s); }`: directly to each rank of the ring in
 * turn. */
void collective_statement(Scheduler *s, const Ast *a, Stmt *out)
{
    const bool gathers = strcmp(a->text, "gather") == 0;
    const int over = coordinate_over(s, a);
    Stmt *pass = NEW(s->c->arena, Stmt);
    Expr *one = NEW(s->c->arena, Expr), *last = NEW(s->c->arena, Expr);
    *pass = (Stmt){.kind = S_PASS, .span = a->span};
    chunks(s, pass, a->args.first, NULL);
    once_each(s, pass);
    if (over == s->exchanged)
        fault(s, a->span,
              arena_printf(s->c->arena,
                           "this direction already exchanges over %s; %s over "
                           "another coordinate",
                           s->text->coord_name[over], a->text));
    /* a keyword as its name, so that it differs from the user's variables */
    out->var = new_loop_variable(s, a);
    if (out->var < 0)
        return;
    s->in_scope[out->var] = true;
    s->loop_at[out->var] = a->span;
    *one = (Expr){.op = E_CONST, .value = 1, .span = a->span};
    *last = (Expr){.op = E_SUB,
                   .a = variable_plus(s, NULL, MAX_COORDS + over, a->span),
                   .b = one,
                   .span = a->span};
    out->var_name = a->text;
    out->lo = one;
    out->hi = last;
    for (int i = 0; i < s->text->coords; i++) {
        const Expr *own = variable_plus(s, NULL, i, a->span),
                   *away = variable_plus(s, own, out->var, a->span);
        pass->to[i] = i == over ? away : own;
        for (int j = 0; j < pass->nrefs; j++) {
            const Expr *at = i == s->exchanged ? NULL : own;
            if (!pass->refs[j].all)
                at = pass->refs[j].index[i];
            pass->refs[j].index[i] = i == over && !gathers ? variable_plus(s, at, out->var, a->span) : at;
        }
    }
    for (int j = 0; j < pass->nrefs; j++) {
        check_collected(s, &pass->refs[j], gathers);
        pass->refs[j].heads |= pass->refs[j].all && s->exchanged >= 0;
        pass->refs[j].all = false;
    }
    out->body = each_piece(s, pass);
    s->in_scope[out->var] = false;
}

/* ---- copies of statements ---- */

enum { DROPPED = -1, MOST_COPIED = 4096 };
static const int same[TENSOR_COUNT] = {T_Q, T_KV, T_O, T_DQ, T_DKV};

typedef struct Copier {
    Scheduler *s;
    Span by;            /* the statement that copies them */
    const int *tensor;  /* [TENSOR_COUNT] the replacement of each; DROPPED: its statements are dropped */
    const SchedText *from; /* for `use`; NULL: this schedule, whose expressions do not change */
    int coord[MAX_COORDS]; /* this schedule's coordinate for each of `from` */
    ChunkRef base[2];      /* chunks of queries and keys that it is applied to */
    int var[MAX_LOOPS];    /* this schedule's loop variables */
} Copier;

/* An expression with its range, to prove that it does not overflow. */
typedef struct Ranged { const Expr *e; Range r; } Ranged;

static Range unbounded_range(const Copier *c, const Expr *e, Range a, Range b)
{
    if (e->op == E_CONST)
        return (Range){e->value, e->value};
    return e->op == E_VAR ? c->s->range[e->value] : range_of(e->op, a, b);
}

static Range range_over(const Copier *c, const Expr *e, Range a, Range b)
{
    const Range r = unbounded_range(c, e, a, b);
    if (r.lo < -RANGE_BOUND || r.hi > RANGE_BOUND)
        fault(c->s, c->by, "values of the schedule used here can overflow on a large cluster");
    return c->s->failed ? (Range){0, 0} : r;
}

static Ranged own_range(const Copier *c, const Expr *e)
{
    if (!e)
        return (Ranged){0};
    return (Ranged){e, range_over(c, e, own_range(c, e->a).r, own_range(c, e->b).r)};
}

/* own: replacement of the coordinate that the expression reads; NULL: it reads none. */
static Ranged expression(const Copier *c, const Expr *e, const Expr *own)
{
    if (!e || !c->from)
        return (Ranged){e, {0, 0}};
    if (e->op == E_VAR && e->value < MAX_COORDS)
        return own_range(c, own);
    Expr *copy = NEW(c->s->c->arena, Expr);
    *copy = *e;
    if (e->op == E_VAR)
        copy->value = e->value < FIRST_LOOP ? MAX_COORDS + c->coord[e->value - MAX_COORDS]
                                            : c->var[e->value - FIRST_LOOP];
    const Ranged a = expression(c, e->a, own), b = expression(c, e->b, own);
    copy->a = a.e;
    copy->b = b.e;
    return (Ranged){copy, range_over(c, copy, a.r, b.r)};
}

static const Expr *coordinate_of(const Copier *c, int i)
{
    Expr *own = NEW(c->s->c->arena, Expr);
    *own = (Expr){.op = E_VAR, .value = i, .span = c->by};
    return own;
}

static bool is_of_keys(TensorId t)
{
    return t == T_KV || t == T_DKV;
}

static ChunkRef reference(const Copier *c, const ChunkRef *ref)
{
    ChunkRef to = *ref;
    to.tensor = (TensorId)c->tensor[ref->tensor];
    if (!c->from || ref->all)
        return to;
    const ChunkRef *base = &c->base[is_of_keys(to.tensor)];
    memcpy(to.index, base->index, sizeof to.index);
    for (int i = 0; i < c->from->coords; i++)
        to.index[c->coord[i]] = expression(c, ref->index[i], base->index[c->coord[i]]).e;
    to.heads = base->heads;
    to.piece = expression(c, ref->piece, NULL).e;
    return to;
}

/* Queries come before keys: if their roles are exchanged, so are their positions. */
static void references(const Copier *c, const Stmt *of, Stmt *to)
{
    const bool swaps = c->tensor[T_Q] == T_KV && (of->kind == S_ATTEND || of->kind == S_GRAD);
    to->nrefs = 0;
    for (int i = 0; i < of->nrefs; i++) {
        const ChunkRef *ref = &of->refs[swaps ? 1 - i : i];
        if (c->tensor[ref->tensor] != DROPPED)
            to->refs[to->nrefs++] = reference(c, ref);
    }
}

static bool is_name_taken(const Scheduler *s, const char *name)
{
    for (int i = 0; i < s->text->vars; i++)
        if (s->text->var_name[i] && (i < FIRST_LOOP || s->in_scope[i]) &&
            strcmp(s->text->var_name[i], name) == 0)
            return true;
    return false;
}

static Stmt *copies(Copier *c, const Stmt *list);

/* The loop's variable keeps its name if it is free; otherwise it becomes x2, x3, ... */
static void loop(Copier *c, const Stmt *of, Stmt *to)
{
    Scheduler *s = c->s;
    const Ranged lo = expression(c, of->lo, NULL), hi = expression(c, of->hi, NULL);
    Ast word = {.text = of->var_name, .span = c->by, .name_span = c->by};
    for (int n = 2; is_name_taken(s, word.text); n++)
        word.text = arena_printf(s->c->arena, "%s%d", of->var_name, n);
    to->lo = lo.e;
    to->hi = hi.e;
    to->var_name = word.text;
    to->var = new_loop_variable(s, &word);
    if (to->var < 0)
        return;
    c->var[of->var - FIRST_LOOP] = to->var;
    s->range[to->var] = (Range){lo.r.lo, hi.r.hi > lo.r.lo ? hi.r.hi : lo.r.lo};
    s->in_scope[to->var] = true;
    s->loop_at[to->var] = c->by;
    to->body = copies(c, of->body);
    s->in_scope[to->var] = false;
}

static void pass_to(const Copier *c, const Stmt *of, Stmt *to)
{
    for (int i = 0; i < c->s->text->coords; i++)
        to->to[i] = coordinate_of(c, i);
    for (int i = 0; i < c->from->coords; i++)
        to->to[c->coord[i]] = expression(c, of->to[i], to->to[c->coord[i]]).e;
}

/* Returns NULL if nothing is left of it. */
static Stmt *copy(Copier *c, const Stmt *of)
{
    Stmt *to = NEW(c->s->c->arena, Stmt);
    *to = *of;
    *(c->from ? &to->by : &to->mirrored) = c->by;
    to->next = NULL;
    if (of->kind == S_FOR && c->from) {
        loop(c, of, to);
    } else if (of->kind == S_FOR || of->kind == S_IF) {
        to->cond = expression(c, of->cond, NULL).e;
        to->body = copies(c, of->body);
    }
    if (of->kind == S_FOR || of->kind == S_IF)
        return to->body ? to : NULL;
    to->kind = of->kind == S_GRAD && !c->s->backward ? S_ATTEND : of->kind;
    references(c, of, to);
    if (of->kind == S_PASS && c->from)
        pass_to(c, of, to);
    outputs_stay(c->s, to);
    return !to->nrefs || (of->kind == S_RETURN && c->from) ? NULL : each_piece(c->s, to);
}

static Stmt *copies(Copier *c, const Stmt *list)
{
    Stmt *first = NULL, **end = &first;
    for (; list && !c->s->failed; list = list->next) {
        /* files that each use the previous one twice would double it every time */
        if (++c->s->copied > MOST_COPIED)
            fault(c->s, c->by,
                  arena_printf(c->s->c->arena,
                               "the schedules used here expand this schedule to more than %d statements",
                               MOST_COPIED));
        *end = copy(c, list);
        end = *end ? &(*end)->next : end;
    }
    return first;
}

/* ---- use NAME over (l) with KV[n - o, l]; ---- */

static const SchedText *used_schedule(Scheduler *s, const Ast *a)
{
    const Checker *c = s->c;
    const char **names = NEW_ARRAY(c->arena, const char *, c->schedules.n + 1);
    for (int i = 0; i < c->schedules.n; i++) {
        names[i] = c->schedules.at[i]->name;
        if (strcmp(names[i], a->text) == 0)
            return c->schedules.at[i];
    }
    unknown_of(s->c, a->name_span, a->text, names, c->schedules.n, "schedule");
    diag_note(c->diags, a->name_span,
              "a schedule can be used only by files given after it: --schedule inner.sched --schedule "
              "outer.sched");
    s->failed = true;
    return NULL;
}

/* The direction to use; a `backward { }` for both travels requires that both are equal. */
static const Phase *used_phase(Scheduler *s, const Ast *a, const SchedText *t)
{
    const Phase *keys = t->backward[TRAVEL_KEYS], *queries = t->backward[TRAVEL_QUERIES];
    const Phase *backward = s->travel == TRAVELS ? keys : t->backward[s->travel];
    const Phase *phase = s->backward ? backward : t->forward;
    if (s->backward && s->travel == TRAVELS && keys != queries)
        fault(s, a->span,
              arena_printf(s->c->arena,
                           "schedule '%s' has two backward directions; write `backward keys {` or `backward "
                           "queries {` here",
                           t->name));
    else if (!phase)
        fault(s, a->span,
              arena_printf(s->c->arena, "schedule '%s' has no `backward %s`", t->name,
                           travel_names[s->travel]));
    else if (phase->exchanges)
        fault(s, a->span,
              arena_printf(s->c->arena,
                           "schedule '%s' has exchanges and cannot be used in another schedule; write "
                           "`exchange` here and use a ring between",
                           t->name));
    else if (t->pieces > 1 && t->pieces != s->text->pieces)
        fault(s, a->span,
              arena_printf(s->c->arena,
                           "schedule '%s' has pieces %d; write `pieces %d` after the coordinates of this "
                           "schedule",
                           t->name, t->pieces, t->pieces));
    return s->failed ? NULL : phase;
}

/* Maps each coordinate of the schedule to one here. */
static void used_coordinates(Copier *c, const Ast *a)
{
    Scheduler *s = c->s;
    const SchedText *t = s->text;
    int i = 0, at;
    if (a->args.n != c->from->coords)
        fault(s, a->span,
              arena_printf(s->c->arena, "schedule '%s' is over %d coordinate%s, but %d %s named here",
                           c->from->name, c->from->coords, c->from->coords == 1 ? "" : "s", a->args.n,
                           a->args.n == 1 ? "is" : "are"));
    for (const Ast *x = a->args.first; x && !s->failed; x = x->next, i++) {
        at = coordinate_named(s, x);
        if (s->failed)
            return;
        for (int j = 0; j < i; j++)
            if (c->coord[j] == at)
                fault(s, x->span, arena_printf(s->c->arena, "'%s' is named twice", x->text));
        if (x->args.n && strcmp(x->args.first->text, t->size_name[at]) != 0)
            fault(s, x->args.first->span,
                  arena_printf(s->c->arena, "the size of %s is %s", x->text, t->size_name[at]));
        if (at == s->exchanged)
            fault(s, x->span,
                  arena_printf(s->c->arena,
                               "this direction already exchanges over %s; use '%s' over "
                               "another coordinate",
                               x->text, c->from->name));
        c->coord[i] = at;
    }
}

/* The rank's own chunks if none are named. */
static void used_bases(Copier *c, const Ast *a)
{
    Scheduler *s = c->s;
    bool named[2] = {false, false};
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < s->text->coords; i++)
            c->base[side].index[i] = i == s->exchanged ? NULL : coordinate_of(c, i);
    for (const Ast *x = a->more.first; x && !s->failed; x = x->next) {
        const ChunkRef ref = chunk(s, x);
        const int side = is_of_keys(ref.tensor);
        if ((ref.tensor != T_Q && ref.tensor != T_KV) || ref.all || ref.piece)
            fault(s, x->span, "a schedule is used with Q[...] and KV[...]; their sums are passed with them");
        else if (named[side])
            fault(s, x->span, "the chunk is named twice");
        c->base[side] = ref;
        named[side] = true;
    }
    c->base[0].heads = c->base[1].heads = s->exchanged >= 0;
}

/* Applies the schedule's requirements on sizes to this schedule's sizes. */
static void used_requires(const Copier *c)
{
    for (const Require *r = c->from->requires; r; r = r->next) {
        Require *here = NEW(c->s->c->arena, Require);
        *here = (Require){expression(c, r->cond, NULL).e, r->span, (Require *)c->s->text->requires};
        c->s->text->requires = here;
    }
}

Stmt *use_statement(Scheduler *s, const Ast *a)
{
    const bool failed = s->failed;
    s->failed = false; /* earlier errors were reported */
    const SchedText *from = used_schedule(s, a);
    const Phase *phase = from ? used_phase(s, a, from) : NULL;
    Copier c = {.s = s, .by = a->span, .tensor = same, .from = from};
    if (phase)
        used_coordinates(&c, a);
    if (!s->failed)
        used_bases(&c, a);
    if (!s->failed)
        used_requires(&c);
    Stmt *list = s->failed ? NULL : copies(&c, phase->body);
    s->failed |= failed;
    return list;
}

/* ---- backward queries mirrors keys; forward mirrors keys; ---- */

const Phase *mirror(Scheduler *s, const Phase *of, Span by)
{
    static const int queries[TENSOR_COUNT] = {T_KV, T_Q, DROPPED, T_DKV, T_DQ},
                     outputs[TENSOR_COUNT] = {T_Q, T_KV, DROPPED, T_O, DROPPED};
    Copier c = {.s = s, .by = by, .tensor = s->backward ? queries : outputs};
    Phase *out = NEW(s->c->arena, Phase);
    s->exchanged = of->exchanges ? s->text->exchanged : -1;
    if (s->backward && s->text->pieces > 1)
        fault(s, by,
              "queries have no pieces, but the mirrored direction passes keys in pieces; write the "
              "statements of this direction");
    *out = (Phase){.span = by, .of = of->span, .body = copies(&c, of->body), .exchanges = of->exchanges};
    return out;
}
