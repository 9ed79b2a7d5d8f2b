/* sched/check.c: schedules. Ranks run in lockstep: each runs the same statements and differs only in its
 * coordinates, so every index is the rank's own coordinate plus a value that all ranks agree on. */
#include "sched/check_sched.h"

#include <string.h>

void fault(Scheduler *s, Span at, const char *text)
{
    diag_error(s->c->diags, at, "%s", text);
    s->failed = true;
}

/* ---- chunks ---- */
static const char *const tensor_names[TENSOR_COUNT] = {
#define X(id, name, acc) name,
    TENSORS(X)
#undef X
};

static int tensor_of(Scheduler *s, const Ast *a)
{
    static const bool allowed[2][TENSOR_COUNT] = {
        {[T_Q] = true, [T_KV] = true, [T_O] = true},
        {[T_Q] = true, [T_KV] = true, [T_DQ] = true, [T_DKV] = true},
    };
    for (int i = 0; i < TENSOR_COUNT; i++) {
        if (strcmp(tensor_names[i], a->text) != 0)
            continue;
        if (!allowed[s->backward][i])
            fault(s, a->span,
                  arena_printf(s->c->arena, "%s is not available in %s, which has %s", a->text,
                               s->backward ? "backward" : "forward",
                               s->backward ? "Q, KV, dQ and dKV" : "Q, KV and O"));
        return allowed[s->backward][i] ? i : -1;
    }
    unknown_of(s->c, a->name_span, a->text, tensor_names, TENSOR_COUNT, "tensor");
    s->failed = true;
    return -1;
}

/* In a direction that exchanges over a coordinate, chunks are those of all ranks along it together, and only
 * there. */
static void star(Scheduler *s, ChunkRef *ref, const Ast *a, int coord)
{
    const bool wanted = coord == s->exchanged;
    const char *tensor = tensor_names[ref->tensor],
               *name = coord < s->text->coords ? s->text->coord_name[coord] : "";
    ref->heads |= a->kind == A_STAR;
    if (a->kind == A_STAR && !wanted)
        fault(s, a->span,
              arena_printf(
                  s->c->arena,
                  "'*' stands for the coordinate that a direction exchanges over, but this direction does "
                  "not exchange over %s",
                  name));
    else if (a->kind != A_STAR && wanted)
        fault(
            s, a->span,
            arena_printf(s->c->arena,
                         "this direction exchanges over %s, so a rank holds %s of all ranks along it; write "
                         "'*' here",
                         name, tensor));
}

/* `T[c].p`: only keys have pieces. The index must be the same at all ranks and valid for all values of its
 * variables. */
static const Expr *piece(Scheduler *s, TensorId t, const Ast *a)
{
    const int pieces = s->text->pieces;
    Range at = {0};
    const Expr *e = common_value(s, a, NUMBER, &at);
    if (t != T_KV && t != T_DKV)
        fault(s, a->span,
              arena_printf(s->c->arena, "%s has no pieces; only KV and dKV can be passed in pieces",
                           tensor_names[t]));
    else if (pieces == 1)
        fault(s, a->span, "this schedule has no pieces; write `pieces 2` after its coordinates");
    else if (e && (at.lo < 0 || at.hi >= pieces))
        fault(s, a->span,
              arena_printf(s->c->arena, "pieces are numbered from 0 to %d, but this can be %lld", pieces - 1,
                           (long long)(at.lo < 0 ? at.lo : at.hi)));
    return e;
}

ChunkRef chunk(Scheduler *s, const Ast *a)
{
    ChunkRef ref = {.span = a->span, .all = a->kind == A_NAME};
    int tensor = tensor_of(s, a), i = 0;
    ref.tensor = tensor < 0 ? T_Q : (TensorId)tensor;
    if (!ref.all)
        places(s, a->args, ref.index, a->span);
    for (const Ast *x = a->args.first; x; x = x->next, i++)
        star(s, &ref, x, i);
    if (a->kind == A_INDEX && a->more.n)
        ref.piece = piece(s, ref.tensor, a->more.first);
    return ref;
}

void chunks(Scheduler *s, Stmt *stmt, const Ast *first, const Ast *end)
{
    for (const Ast *a = first; a != end; a = a->next) {
        ChunkRef ref = chunk(s, a);
        if (stmt->nrefs == countof(stmt->refs)) {
            fault(s, a->span, "too many chunks in one statement");
            return;
        }
        stmt->refs[stmt->nrefs++] = ref;
    }
}

/* Outputs by heads must not travel: their parts are merged only at the rank itself. */
void outputs_stay(Scheduler *s, const Stmt *stmt)
{
    for (int i = 0; i < stmt->nrefs && s->exchanged >= 0; i++)
        if (stmt->refs[i].tensor == T_O) {
            not_planned(s->c, stmt->by.src ? stmt->by : stmt->refs[i].span,
                        "an output that travels in a direction that exchanges", "keys that travel");
            s->failed = true;
        }
}

void once_each(Scheduler *s, const Stmt *stmt)
{
    for (int i = 0; i < stmt->nrefs; i++)
        for (int j = 0; j < i; j++)
            /* each has a stream */
            if (stmt->refs[i].tensor == stmt->refs[j].tensor && !(stmt->refs[i].piece && stmt->refs[j].piece))
                fault(s, stmt->refs[i].span,
                      arena_printf(s->c->arena, "%s is named twice", tensor_names[stmt->refs[i].tensor]));
}

static void needs_index(Scheduler *s, const ChunkRef *ref)
{
    if (ref->all)
        fault(s, ref->span,
              arena_printf(s->c->arena, "which chunk of %s? Write %s[...]", tensor_names[ref->tensor],
                           tensor_names[ref->tensor]));
}

/* ---- statements ---- */
static Stmt *statements(Scheduler *s, AstList list);

int new_loop_variable(Scheduler *s, const Ast *a)
{
    SchedText *t = s->text;
    int free = -1;
    for (int i = 0; i < t->vars; i++) {
        if (!t->var_name[i] || strcmp(t->var_name[i], a->text) != 0)
            continue;
        if (i < FIRST_LOOP || s->in_scope[i]) {
            fault(s, a->name_span,
                  arena_printf(s->c->arena,
                               "'%s' is already declared; choose another name for the loop "
                               "variable",
                               a->text));
            diag_note(s->c->diags, i < FIRST_LOOP ? t->span : s->loop_at[i], "declared here");
            return -1;
        }
        free = i; /* loops that are not nested share a variable */
    }
    if (free < 0 && t->vars == MAX_SCHED_VARS) {
        fault(s, a->name_span,
              arena_printf(s->c->arena, "more than %d loop variables in one schedule", MAX_LOOPS));
        return -1;
    }
    if (free < 0)
        free = t->vars++;
    t->var_name[free] = a->text;
    return free;
}

static void for_statement(Scheduler *s, const Ast *a, Stmt *out)
{
    if (a->args.n == 1) {
        not_planned(s->c, a->span, arena_printf(s->c->arena, "for %s in %s", a->text, a->args.first->text),
                    "for i in 0 .. n - 1");
        s->failed = true;
        return;
    }
    Range lo = {0}, hi = {0};
    out->lo = common_value(s, a->args.first, NUMBER, &lo);
    out->hi = common_value(s, a->args.first->next, NUMBER, &hi);
    out->var_name = a->text;
    out->var = new_loop_variable(s, a);
    if (out->var < 0)
        return;
    s->range[out->var] = (Range){lo.lo, hi.hi > lo.lo ? hi.hi : lo.lo};
    s->in_scope[out->var] = true;
    s->loop_at[out->var] = a->span;
    s->nesting++;
    out->body = statements(s, a->body);
    s->nesting--;
    s->in_scope[out->var] = false;
}

static void if_statement(Scheduler *s, const Ast *a, Stmt *out)
{
    out->cond = common_value(s, a->args.first, TRUTH, NULL);
    s->nesting++;
    out->body = statements(s, a->body);
    s->nesting--;
}

static void check_pair(Scheduler *s, const Stmt *out)
{
    const ChunkRef *q = &out->refs[0], *kv = &out->refs[1];
    if (q->tensor != T_Q || kv->tensor != T_KV)
        fault(s, out->span, "attend and grad take Q and KV, in this order: Q[...] with KV[...]");
    else if (q->all != kv->all)
        fault(s, out->span, "Q and KV must both have an index or both have none");
    else if (q->all && s->text->coords > 1)
        needs_index(s, q);
}

static void compute_statement(Scheduler *s, const Ast *a, Stmt *out)
{
    chunks(s, out, a->args.first, NULL);
    if ((a->kind == A_GRAD) != s->backward)
        fault(s, a->span,
              s->backward ? "'attend' is not available in backward; use 'grad'"
                          : "'grad' is not available in forward; use 'attend'");
    check_pair(s, out);
    if (!s->failed && out->refs[0].all && s->exchanged < 0 && s->text->coords == 1)
        fault(s, a->span,
              arena_printf(s->c->arena,
                           "without an index, this computes on exchanged tensors, but this direction has no "
                           "exchange; write Q[...] with KV[...]"));
    for (int i = 0; i < 2; i++) /* with one coordinate, Q is short for Q[*] */
        out->refs[i].heads |= out->refs[i].all;
}

static void pass_statement(Scheduler *s, const Ast *a, Stmt *out)
{
    chunks(s, out, a->args.first, NULL);
    once_each(s, out);
    for (int i = 0; i < out->nrefs; i++)
        needs_index(s, &out->refs[i]);
    outputs_stay(s, out);
    places(s, a->more, out->to, a->span);
    bool own = a->more.n == s->text->coords;
    int i = 0;
    for (const Ast *to = a->more.first; to; to = to->next, i++)
        own = own && to->kind == A_NAME && strcmp(to->text, s->text->coord_name[i]) == 0;
    if (own)
        fault(s, a->span, "this passes a chunk to the rank that sends it");
    const Ast *along = s->exchanged < 0 ? NULL : ast_at(a->more, s->exchanged);
    if (along && (along->kind != A_NAME || strcmp(along->text, s->text->coord_name[s->exchanged]) != 0))
        fault(s, along->span,
              arena_printf(s->c->arena,
                           "tensors exchanged over %s can only be passed between ranks with the same %s; "
                           "write %s here",
                           s->text->coord_name[s->exchanged], s->text->coord_name[s->exchanged],
                           s->text->coord_name[s->exchanged]));
}

static void returned_late(Scheduler *s, const ChunkRef *ref)
{
    const char *name = tensor_names[ref->tensor];
    fault(s, ref->span,
          arena_printf(s->c->arena,
                       "%s is already at its owner after the exchange; write `return %s;` before "
                       "the exchange",
                       name, name));
    diag_note(s->c->diags, s->home[ref->tensor], "the exchange");
}

static void return_statement(Scheduler *s, const Ast *a, Stmt *out)
{
    chunks(s, out, a->args.first, NULL);
    once_each(s, out);
    outputs_stay(s, out);
    for (int i = 0; i < out->nrefs; i++) {
        const ChunkRef *ref = &out->refs[i];
        if (ref->tensor == T_Q || ref->tensor == T_KV)
            fault(s, ref->span,
                  s->backward ? "only sums can be returned: return dQ; or return dKV;"
                              : "only sums can be returned: return O;");
        else if (!ref->all)
            fault(s, ref->span, "return sends all chunks to their owners and takes no index");
        else if (s->home[ref->tensor].src)
            returned_late(s, ref);
    }
    if (s->nesting)
        fault(s, a->span, "return must be at the end of a direction, not inside a loop or a condition");
    else if (a->next && a->next->kind != A_RETURN && a->next->kind != A_EXCHANGE)
        fault(s, a->next->span, "only another return or an exchange may follow a return");
}

/* The word before the arrow; NULL if there is no arrow: then the first tensor determines the direction. */
static const Ast *exchange_direction(Scheduler *s, const Ast *a, bool *tokens_to_heads)
{
    const Ast *from = a->args.last, *to = a->more.first, *first = a->args.first;
    *tokens_to_heads = strcmp(first->text, "Q") == 0 || strcmp(first->text, "KV") == 0;
    if (to->kind == A_COORD)
        return NULL;
    *tokens_to_heads = strcmp(from->text, "tokens") == 0 && strcmp(to->text, "heads") == 0;
    if (*tokens_to_heads || (strcmp(from->text, "heads") == 0 && strcmp(to->text, "tokens") == 0))
        return from;
    fault(s, span_join(from->span, to->span), "an exchange must be tokens -> heads or heads -> tokens");
    return NULL;
}

/* Inputs must be spread over heads, results must return to their tokens. */
static void check_exchanged(Scheduler *s, const Stmt *out)
{
    for (int i = 0; i < out->nrefs; i++) {
        const ChunkRef *ref = &out->refs[i];
        bool input = ref->tensor == T_Q || ref->tensor == T_KV;
        if (!ref->all) {
            not_planned(s->c, ref->span, "exchange of a piece", "the tensor without an index");
            s->failed = true;
        } else if (input != out->tokens_to_heads) {
            fault(s, ref->span,
                  input ? "Q and KV must be exchanged tokens "
                          "-> heads"
                        : "results must be exchanged heads -> tokens");
        }
    }
}

static void exchange_statement(Scheduler *s, const Ast *a, Stmt *out)
{
    const bool failed = s->failed;
    const Ast *from = exchange_direction(s, a, &out->tokens_to_heads);
    if (s->failed && !failed)
        return;
    chunks(s, out, a->args.first, from);
    once_each(s, out);
    if (!out->nrefs)
        fault(s, a->span, "'exchange' requires tensors; write exchange Q, KV tokens -> heads");
    check_exchanged(s, out);
    for (int i = 0; i < out->nrefs; i++)
        if (!out->tokens_to_heads)
            s->home[out->refs[i].tensor] = out->span;
    if (s->nesting)
        fault(s, a->span, "exchange must be outside loops and conditions");
}

/* Refuses a statement that a later version will support, and says what works today. */
static void refuse(Scheduler *s, const Ast *a)
{
    static const struct { const char *word, *use; } later[] = {
        {"stage", "chunks in device memory"},       {"fetch", "chunks in device memory"},
        {"exchange", "one `exchange ... ->` for each direction"},
    };
    for (int i = 0; i < countof(later); i++)
        if (strcmp(later[i].word, a->text) == 0)
            not_planned(s->c, a->span, strcmp(a->text, "exchange") == 0 ? "<->" : a->text, later[i].use);
    s->failed = true;
}

static Stmt *statement(Scheduler *s, const Ast *a)
{
    static const struct {
        AstKind kind;
        StmtKind stmt;
        void (*check)(Scheduler *, const Ast *, Stmt *);
    } kinds[] = {
        {A_FOR, S_FOR, for_statement},
        {A_IF, S_IF, if_statement},
        {A_ATTEND, S_ATTEND, compute_statement},
        {A_GRAD, S_GRAD, compute_statement},
        {A_PASS, S_PASS, pass_statement},
        {A_RETURN, S_RETURN, return_statement},
        {A_EXCHANGE, S_EXCHANGE, exchange_statement},
        {A_COLLECTIVE, S_FOR, collective_statement},
    };
    if (a->kind == A_USE)
        return use_statement(s, a);
    for (int i = 0; i < countof(kinds); i++) {
        if (kinds[i].kind != a->kind)
            continue;
        Stmt *out = NEW(s->c->arena, Stmt);
        *out = (Stmt){.kind = kinds[i].stmt, .span = a->span};
        kinds[i].check(s, a, out);
        return out->nrefs ? each_piece(s, out) : out;
    }
    refuse(s, a);
    return NULL;
}

static Stmt *statements(Scheduler *s, AstList list)
{
    Stmt *first = NULL, **end = &first;
    for (const Ast *a = list.first; a; a = a->next) {
        *end = statement(s, a);
        while (*end) /* `use` has several statements */
            end = &(*end)->next;
    }
    return first;
}

/* ---- the schedule ---- */
/* The coordinate of an exchange; with a single coordinate its name may be omitted. */
static int exchanged_over(Scheduler *s, const Ast *a)
{
    const SchedText *t = s->text;
    const Ast *over = a->more.last->kind == A_COORD ? a->more.last : ast_at(a->more, 1);
    const char *names = "";
    for (int i = 0; i < t->coords; i++) {
        if (over && strcmp(over->text, t->coord_name[i]) == 0)
            return i;
        names = arena_printf(s->c->arena, "%s%s'%s'", names, list_separator(i, t->coords, " and "),
                             t->coord_name[i]);
    }
    if (over)
        fault(s, over->span,
              arena_printf(s->c->arena, "'%s' is not a coordinate of this schedule; it has %s", over->text,
                           names));
    else if (t->coords > 1)
        fault(s, a->span,
              arena_printf(s->c->arena, "'exchange' requires a coordinate in this schedule; write over %s",
                           t->coord_name[0]));
    return 0;
}

/* All exchanges of a schedule must be over one coordinate. exchange_statement refuses them in loops. */
static int find_exchanged(Scheduler *s, const Ast *phase)
{
    int exchanged = -1;
    for (const Ast *a = phase->body.first; a; a = a->next) {
        if (a->kind != A_EXCHANGE)
            continue;
        if (s->text->pieces > 1 && s->text->exchanged < 0) { /* reported once */
            not_planned(s->c, a->span, "an exchange in a schedule with pieces", "a schedule without pieces");
            s->failed = true;
        }
        exchanged = exchanged_over(s, a);
        if (s->text->exchanged >= 0 && s->text->exchanged != exchanged)
            fault(s, a->span,
                  arena_printf(
                      s->c->arena,
                      "all exchanges of a schedule must be over the same coordinate, but another one is over "
                      "'%s'",
                      s->text->coord_name[s->text->exchanged]));
        s->text->exchanged = exchanged;
    }
    return exchanged;
}

static const Phase *direction(Scheduler *s, const Ast *phase, Travel travel)
{
    Phase *out = NEW(s->c->arena, Phase);
    s->backward = phase->kind == A_BACKWARD;
    s->travel = travel;
    s->exchanged = find_exchanged(s, phase);
    memset(s->home, 0, sizeof s->home);
    *out = (Phase){.span = phase->span, .body = statements(s, phase->body), .exchanges = s->exchanged >= 0};
    if (!out->body && !s->failed)
        fault(s, phase->span, "this direction computes nothing");
    return out;
}

/* Sets a direction of the schedule; a second text for it is an error. */
static void set_phase(Scheduler *s, const Phase **slot, const Phase *phase)
{
    if (*slot) {
        fault(s, phase->span, "this direction is defined twice");
        diag_note(s->c->diags, (*slot)->span, "first here");
        return;
    }
    *slot = phase;
}

static int travel_of(Scheduler *s, const Ast *word)
{
    for (int i = 0; i < TRAVELS; i++)
        if (strcmp(travel_names[i], word->text) == 0)
            return i;
    fault(s, word->span,
          arena_printf(s->c->arena, "backward can pass 'keys' or 'queries', not '%s'", word->text));
    return -1;
}

static void require(Scheduler *s, const Ast *a)
{
    if (strcmp(a->text, "require") != 0) {
        fault(s, a->name_span, "expected forward { }, backward { } or require CONDITION;");
        return;
    }
    Require *r = NEW(s->c->arena, Require);
    *r = (Require){common_value(s, a->args.first, TRUTH, NULL), a->args.first->span,
                   (Require *)s->text->requires};
    s->text->requires = r;
}

static void written(Scheduler *s, const Ast *phase)
{
    SchedText *t = s->text;
    const bool backward = phase->kind == A_BACKWARD;
    const int only = phase->args.n && backward ? travel_of(s, phase->args.first) : TRAVELS;
    const Phase *out = direction(s, phase, only < 0 ? TRAVELS : (Travel)only);
    if (phase->args.n > 1)
        fault(s, phase->args.last->span, "give only one of 'keys' and 'queries' here");
    if (!backward)
        set_phase(s, &t->forward, out);
    for (int travel = 0; backward && travel < TRAVELS; travel++)
        if (only == travel || only == TRAVELS)
            set_phase(s, &t->backward[travel], out);
}

/* `backward queries mirrors keys;`, `forward mirrors keys;` */
static void mirrored(Scheduler *s, const Ast *phase)
{
    const bool backward = phase->kind == A_BACKWARD;
    const Ast *word = ast_at(phase->args, backward);
    if (phase->args.n != 2 + backward || strcmp(word->text, "mirrors") != 0) {
        fault(s, phase->span,
              backward ? "expected `backward queries { ... }` or `backward queries mirrors keys;`"
                       : "expected `forward { ... }` or `forward mirrors keys;`");
        return;
    }
    const int to = backward ? travel_of(s, phase->args.first) : TRAVELS, of = travel_of(s, word->next);
    const Phase *source = of < 0 ? NULL : s->text->backward[of];
    s->backward = backward;
    if (to >= 0 && of >= 0 && (!source || to == of))
        fault(s, word->next->span,
              arena_printf(s->c->arena, "this schedule has no `backward %s { ... }` to mirror",
                           travel_names[of]));
    else if (to >= 0 && of >= 0)
        set_phase(s, backward ? &s->text->backward[to] : &s->text->forward, mirror(s, source, phase->span));
}

static void check_phases(Scheduler *s, const Ast *a)
{
    /* a forward may mirror a backward that mirrors another */
    static const AstKind mirrors[] = {A_BACKWARD, A_FORWARD};
    SchedText *t = s->text;
    for (const Ast *phase = a->body.first; phase; phase = phase->next) {
        if (phase->kind == A_REQUIRE)
            require(s, phase);
        else if (phase->has_body)
            written(s, phase);
    }
    for (int i = 0; i < countof(mirrors) && !s->failed; i++)
        for (const Ast *phase = a->body.first; phase; phase = phase->next)
            if (phase->kind == mirrors[i] && !phase->has_body)
                mirrored(s, phase);
    if (s->failed)
        return;
    if (!t->forward)
        fault(s, a->name_span, "the schedule has no forward { }");
    if (!t->backward[TRAVEL_KEYS] && !t->backward[TRAVEL_QUERIES])
        fault(s, a->name_span, "the schedule has no backward { }");
}

/* Location of the first item that is not the file's only schedule. */
static Span stray_span(const Source *source, const Ast *a)
{
    if (!a)
        return (Span){source, 0, 0};
    return a->kind != A_SCHEDULE ? a->name_span : a->next->name_span;
}

const SchedText *check_schedule(Checker *c, const Source *source, AstList items)
{
    const Ast *a = items.first;
    if (!a || a->kind != A_SCHEDULE || a->next) {
        diag_error(c->diags, stray_span(source, a),
                   "a .sched file must define exactly one schedule, such as schedule ring over (r of G) { "
                   "... }");
        return NULL;
    }
    SchedText *text = NEW(c->arena, SchedText);
    *text = (SchedText){.name = a->text, .source = source, .span = a->span, .exchanged = -1, .pieces = 1};
    Scheduler *s = NEW(c->arena, Scheduler);
    *s = (Scheduler){.c = c, .text = text};
    if (schedule_head(s, a))
        check_phases(s, a);
    text->rings = text->coords - (text->coords > 1 && text->exchanged >= 0);
    return s->failed ? NULL : text;
}
