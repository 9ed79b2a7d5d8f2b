/* emit/schedule.c: prints one direction of a schedule as C. Loops are printed as loops; ranks are arithmetic
 * on the rank's coordinates.
 *
 * The same walk prints two functions: the rank's operations, and the trace from which every rank finds what
 * the mask leaves (runtime/core/prune.c). Both have one operation per leaf, in the same order. */
#include "emit/internal.h"
#include "ir/expr.h"

#include <inttypes.h>
#include <string.h>

typedef struct Walk { Emit *emit; const Schedule *s; bool trace; } Walk;

/* "plan_forward"; if layers have several attentions, "plan_forward_as_near_keys", which no function of the
 * headers is named. */
static const char *named(Emit *e, const char *what, const Schedule *s)
{
    return s->name ? arena_printf(e->arena, "%s_as_%s", what, s->name) : what;
}

static const char *size_name(Emit *e, const Schedule *s, int coord)
{
    return arena_printf(e->arena, s->name ? "PLAN_SIZE%d_%s" : "PLAN_SIZE%d", coord, s->name);
}

static const char *const tensor_constant[TENSOR_COUNT] = {
#define X(id, name, acc) "BURST_T_" #id,
    TENSORS(X)
#undef X
};

/* ---- expressions ---- */

typedef struct Writer { const Schedule *s; const SchedText *text; Text *out; } Writer;

static void add_variable(const Writer *w, int64_t v)
{
    if (v < MAX_COORDS)
        text_printf(w->out, "my_%s", w->text->coord_name[v]);
    else if (v < 2 * MAX_COORDS)
        text_printf(w->out, w->s->name ? "PLAN_SIZE%d_%s" : "PLAN_SIZE%d", (int)v - MAX_COORDS, w->s->name);
    else
        text_printf(w->out, "i_%s", w->text->var_name[v]);
}

/* Whether C computes it in int: constants and sizes. */
static bool is_int(const Expr *e)
{
    if (e->op == E_POW)
        return false;
    if (e->op == E_CONST || e->op == E_VAR)
        return e->op == E_CONST || (e->value >= MAX_COORDS && e->value < 2 * MAX_COORDS);
    return expr_ops[e->op].c.shape != SHAPE_CALL && e->a && is_int(e->a) && (!e->b || is_int(e->b));
}

/* Casts a factor, as a product may be too large for an int. */
static const char *widened(const Expr *e)
{
    return e->op == E_MUL && e->a->op != E_MUL && is_int(e) ? "INT64_C(1) * " : "";
}

static void add_own(const ExprWriter *x, const Expr *e)
{
    if (e->op == E_CONST) {
        text_printf(x->out, "%" PRId64, e->value);
    } else if (e->op == E_VAR) {
        add_variable(x->with, e->value);
    } else { /* E_POW, to base 2 */
        text_add(x->out, "(INT64_C(1) << ");
        expr_write_operand(x, e->b);
        text_add(x->out, ")");
    }
}

static void add_expr(const Writer *w, const Expr *e, bool nested)
{
    const ExprWriter x = {.c = true,
                          .brackets = BRACKETS_OPERANDS,
                          .before = widened,
                          .own = add_own,
                          .with = w,
                          .out = w->out};
    (nested ? expr_write_operand : expr_write)(&x, e);
}

/* Splits coordinate + e: returns true, with e (NULL: zero) and its sign. */
static bool split_hop(const Expr *to, int coord, const Expr **e, int *sign)
{
    *e = NULL;
    *sign = 1;
    if (to->op == E_VAR)
        return to->value == coord;
    if ((to->op != E_ADD && to->op != E_SUB) || to->a->op != E_VAR || to->a->value != coord)
        return false;
    *e = to->b;
    *sign = to->op == E_SUB ? -1 : 1;
    return true;
}

/* base minus the hop in this coordinate: the source of a transfer, and the chunk that it brings. */
static void add_minus_hop(const Writer *w, const Expr *base, const Expr *to, int coord)
{
    const Expr *e;
    int sign;
    Expr self = {.op = E_VAR, .value = coord};
    add_expr(w, base ? base : &self, false);
    if (!split_hop(to, coord, &e, &sign)) {
        text_add(w->out, " - (");
        add_expr(w, to, true);
        text_printf(w->out, " - my_%s)", w->text->coord_name[coord]);
    } else if (e) {
        text_add(w->out, sign > 0 ? " - " : " + ");
        add_expr(w, e, true);
    }
}

/* ---- coordinates ---- */

/* "PLAN_SIZE1 * PLAN_SIZE2": ranks inside one value of the coordinate; NULL: it is innermost. */
static const char *inner_sizes(Emit *e, const Schedule *s, int coord)
{
    const Choice *c = s->choice;
    const char *text = NULL;
    for (int i = coord_inside(c, coord); i >= 0; i = coord_inside(c, i))
        text = text ? arena_printf(e->arena, "%s * %s", text, size_name(e, s, i)) : size_name(e, s, i);
    return text;
}

static void emit_coords(const Walk *k, const char *me)
{
    const Choice *c = k->s->choice;
    for (int i = 0; i < c->coords; i++) {
        Arena *a = k->emit->arena;
        const char *inner = inner_sizes(k->emit, k->s, i), *name = c->schedule->coord_name[i];
        const char *value = !inner ? me
                                   : arena_printf(a, strchr(inner, '*') ? "%s / (%s)" : "%s / %s", me, inner);
        if (i != coord_inside(c, -1))
            value = arena_printf(a, "%s %% %s", value, size_name(k->emit, k->s, i));
        emit_line(k->emit, "BURST_MAYBE_UNUSED const int64_t my_%s = %s;", name, value);
    }
}

void emit_coordinates(Emit *e)
{
    for (int k = 0; k < e->draft->attention.n; k++) {
        const Schedule *s = e->draft->attention.at[k].way[0];
        for (int i = 0; i < s->choice->coords; i++)
            text_printf(e->out, "#define %s %d /* coordinate %s */\n", size_name(e, s, i), s->choice->size[i],
                        s->choice->schedule->coord_name[i]);
    }
}

static void emit_chunk(Emit *e, const Schedule *s)
{
    const Choice *c = s->choice;
    const char *parameters = "", *sum = NULL;
    for (int i = 0; i < c->coords; i++)
        parameters = arena_printf(e->arena, "%s%sint64_t c%d", parameters, i ? ", " : "", i);
    emit_line(e, "static int %s(%s)", named(e, "plan_chunk", s), parameters);
    emit_line(e, "{");
    for (int i = 0; i < c->coords; i++)
        emit_line(e, "c%d = (c%d %% %s + %s) %% %s;", i, i, size_name(e, s, i), size_name(e, s, i),
                  size_name(e, s, i));
    for (int i = coord_inside(c, -1); i >= 0; i = coord_inside(c, i))
        sum = sum ? arena_printf(e->arena, strchr(sum, '+') ? "(%s) * %s + c%d" : "%s * %s + c%d", sum,
                                 size_name(e, s, i), i)
                  : arena_printf(e->arena, "c%d", i);
    emit_line(e, c->coords > 1 ? "return (int)(%s);" : "return (int)%s;", sum);
    emit_line(e, "}");
}

/* "plan_chunk(my_n - i_o, my_l)"; with `to`: minus the hop. */
static const char *chunk_text(const Walk *k, const Expr *const index[MAX_COORDS],
                              const Expr *const to[MAX_COORDS])
{
    Text t = {0};
    Writer w = {k->s, k->s->choice->schedule, &t};
    text_printf(&t, "%s(", named(k->emit, "plan_chunk", k->s));
    Expr self = {.op = E_VAR};
    for (int i = 0; i < w.text->coords; i++) {
        self.value = i; /* for chunks by heads: the rank's own coordinate */
        text_add(&t, i ? ", " : "");
        if (to)
            add_minus_hop(&w, index ? index[i] : NULL, to[i], i);
        else
            add_expr(&w, index[i] ? index[i] : &self, false);
    }
    text_add(&t, ")");
    return text_keep(k->emit->arena, &t);
}

static const char *expr_text(const Walk *k, const Expr *e)
{
    Text t = {0};
    Writer w = {k->s, k->s->choice->schedule, &t};
    add_expr(&w, e, false);
    return text_keep(k->emit->arena, &t);
}

/* " + PLAN_GROUP"; "" for the first piece and for chunks without pieces. */
static const char *piece_text(const Walk *k, const Expr *piece)
{
    if (!piece || (piece->op == E_CONST && piece->value == 0))
        return "";
    if (piece->op == E_CONST && piece->value == 1)
        return " + PLAN_GROUP";
    return arena_printf(k->emit->arena,
                        piece->op == E_CONST ? " + %s * PLAN_GROUP" : " + (int)(%s) * PLAN_GROUP",
                        expr_text(k, piece));
}

/* A chunk with its piece; with `to`: minus the hop. */
static const char *ref_text(const Walk *k, const ChunkRef *ref, const Expr *const to[MAX_COORDS])
{
    return arena_printf(k->emit->arena, "%s%s", chunk_text(k, ref->index, to), piece_text(k, ref->piece));
}

/* ---- comments ---- */

static const Instance *first_instance(const Schedule *s, const Node *n)
{
    for (int i = 0; i < s->trace.n; i++)
        if (s->trace.at[i].node == n)
            return &s->trace.at[i];
    return NULL;
}

/* Prints a comment. Texts and file names are input, so they are escaped by mask_comment. */
static void comment(Emit *e, const char *text)
{
    Text t = {0};
    mask_comment(text, &t);
    emit_line(e, "/* %s */", t.at);
    text_free(&t);
}

/* "KV[3]", with pieces "KV[3].1": the first time at rank 0. */
static const char *first_chunk(const Walk *k, TensorId t, int chunk)
{
    const Choice *c = k->s->choice;
    const char *piece = tensor_pieces(c, t) > 1 ? arena_printf(k->emit->arena, ".%d", chunk_piece(c, chunk))
                                                : "";
    return arena_printf(k->emit->arena, "%s[%d]%s", tensor_name(t), chunk % c->ranks, piece);
}

static void add_line(Span at, Text *out)
{
    int line, column;
    span_line(at, &line, &column);
    if (at.src)
        text_printf(out, "%s%s:%d: %.*s", out->n ? " " : "", base_name(at.src->name), line,
                    (int)(at.end - at.begin), at.src->text + at.begin);
}

/* Prints the statement with its location, and its first chunks at rank 0. */
static void comment_statement(const Walk *k, const Node *n)
{
    Text t = {0};
    add_line(n->stmt->mirrored, &t);
    add_line(n->stmt->by, &t);
    add_line(n->stmt->span, &t);
    const Instance *i = first_instance(k->s, n);
    if (i && n->kind == N_COMPUTE)
        text_printf(&t, "  (rank 0 first: Q[%d], %s)", i->chunk[0], first_chunk(k, T_KV, i->chunk[1]));
    else if (i && n->kind == N_PASS)
        text_printf(&t, "  (rank 0 first: %s to rank %d)", first_chunk(k, n->ref[0].tensor, i->chunk[0]),
                    i->hop);
    comment(k->emit, t.at);
    text_free(&t);
}

/* ---- leaves ---- */

static void trace_leaf(const Walk *k, const Node *n)
{
    Emit *e = k->emit;
    if (n->kind == N_COMPUTE) {
        emit_line(e, "burst_trace_compute(t, %s, %s);", ref_text(k, &n->ref[0], NULL),
                  ref_text(k, &n->ref[1], NULL));
    } else if (n->kind == N_PASS) {
        if (n->at_owner)
            emit_line(e, "if (%s != me)", chunk_text(k, n->ref[0].index, NULL));
        emit_line(e, "%sburst_trace_pass(t, %s, %s, %s);", n->at_owner ? "    " : "",
                  tensor_constant[n->ref[0].tensor], ref_text(k, &n->ref[0], NULL),
                  chunk_text(k, n->stmt->to, NULL));
    }
}

static void emit_waits(const Walk *k, const Node *n, TensorId t, const char *chunk, unsigned wait)
{
    if (n->waits & wait)
        emit_line(k->emit, "BURST_TRY(plan_wait_arrived(c, s, PLAN_COMPUTE, %s, %s));", tensor_constant[t],
                  chunk);
}

/* tensor -1: none. */
static void emit_partial(const Walk *k, const Node *n, int t, const char *chunk)
{
    int pool = t < 0 ? -1 : k->s->partial_pool[t];
    if (pool >= 0)
        emit_line(k->emit, "BURST_TRY(plan_partial(c, s, %s, PLAN_POOL_%s, %s, %s));", tensor_constant[t],
                  k->s->pool[pool].name, chunk, n->waits & WAIT_FREE ? "true" : "false");
}

static void emit_compute(const Walk *k, const Node *n)
{
    Emit *e = k->emit;
    emit_line(e, "{");
    emit_line(e, "const int q = %s, kv = %s;", ref_text(k, &n->ref[0], NULL), ref_text(k, &n->ref[1], NULL));
    emit_partial(k, n, result_tensor(k->s->backward, 0), "q");
    emit_partial(k, n, result_tensor(k->s->backward, 1), "kv");
    emit_line(e, "if (live->compute[op++]) {");
    emit_waits(k, n, T_Q, "q", WAIT_ARRIVED_Q);
    emit_waits(k, n, T_KV, "kv", WAIT_ARRIVED_KV);
    emit_line(e, "BURST_TRY(%s(c, s, q, kv));", k->s->backward ? "plan_grad" : "plan_attend");
    emit_line(e, "}");
    emit_line(e, "}");
}

/* Adds sums that arrived at their owner, for each piece. */
static void emit_merge_home(const Walk *k, TensorId t)
{
    for (int p = 0; p < tensor_pieces(k->s->choice, t); p++) {
        const Expr piece = {.op = E_CONST, .value = p};
        emit_line(k->emit, "BURST_TRY(plan_merge(c, s, %s, s->me%s));", tensor_constant[t],
                  piece_text(k, &piece));
    }
}

/* Prints the waits before a transfer of `chunk`, then the transfer. */
static void emit_transfer(const Walk *k, const Node *n)
{
    Emit *e = k->emit;
    TensorId t = n->ref[0].tensor;
    bool sum = tensor_accumulates(t);
    if (!sum && n->waits & WAIT_ARRIVED) {
        emit_line(e, "if (live->send[op])");
        emit_line(e, "    BURST_TRY(plan_wait_arrived(c, s, hop.channel, %s, hop.chunk));",
                  tensor_constant[t]);
    }
    if (n->waits & WAIT_HOME)
        emit_merge_home(k, t);
    if (n->waits & WAIT_MERGED) {
        emit_partial(k, n, t, "hop.chunk");
        emit_line(e, "BURST_TRY(plan_merge(c, s, %s, hop.chunk));", tensor_constant[t]);
    }
    if (n->waits & WAIT_COMPUTED)
        emit_line(e, "BURST_TRY(plan_wait_computed(c, s, hop.channel, %s, hop.chunk));", tensor_constant[t]);
    if (n->waits & WAIT_FREE)
        emit_line(e, "BURST_TRY(plan_wait_free(c, s, hop.channel, hop.pool));");
    emit_line(e, "BURST_TRY(%s(c, s, live, op++, hop));", sum ? "plan_pass_sum" : "plan_pass");
}

static void emit_hop(const Walk *k, const Node *n, const char *chunk, const char *to, const char *from,
                     const char *next)
{
    Emit *e = k->emit;
    emit_line(e, "const PlanHop hop = {%s, /* stream */ %d, PLAN_POOL_%s,", tensor_constant[n->ref[0].tensor],
              n->channel, k->s->pool[n->pool].name);
    emit_line(e, "                     /* chunk */ %s, /* to */ %s,", chunk, to);
    emit_line(e, "                     /* from */ %s, /* next */ %s};", from, next);
}

static void emit_pass(const Walk *k, const Node *n)
{
    Emit *e = k->emit;
    const Stmt *p = n->stmt;
    bool block = n->at_owner || !n->alone;
    if (n->at_owner) /* a sum at its owner is not sent */
        emit_line(e, "if (%s != s->me) {", chunk_text(k, n->ref[0].index, NULL));
    else if (block)
        emit_line(e, "{");
    emit_hop(k, n, ref_text(k, &n->ref[0], NULL), chunk_text(k, p->to, NULL), chunk_text(k, NULL, p->to),
             ref_text(k, &n->ref[0], p->to));
    emit_transfer(k, n);
    if (block)
        emit_line(e, "}");
}

/* "plan_chunk(my_n + 1, my_l - 1)": an offset from this rank; sign -1: the opposite. */
static const char *offset_text(const Walk *k, int offset, int sign)
{
    const Choice *c = k->s->choice;
    Arena *a = k->emit->arena;
    const char *text = "";
    for (int i = 0; i < c->coords; i++) {
        int x = sign * rel_hop(c, offset, i);
        text = arena_printf(a, "%s%smy_%s", text, i ? ", " : "", c->schedule->coord_name[i]);
        if (x)
            text = arena_printf(a, "%s %c %d", text, x < 0 ? '-' : '+', x < 0 ? -x : x);
    }
    return arena_printf(a, "%s(%s)", named(k->emit, "plan_chunk", k->s), text);
}

static void emit_return(const Walk *k, const Node *n)
{
    for (int j = 0; j < n->returns; j++) {
        const char *home = offset_text(k, n->return_offset[j], 1),
                   *from = offset_text(k, n->return_offset[j], -1);
        const Expr which = {.op = E_CONST, .value = chunk_piece(k->s->choice, n->return_offset[j])};
        const char *piece = piece_text(k, &which), *chunk = arena_printf(k->emit->arena, "%s%s", home, piece);
        if (k->trace) {
            emit_line(k->emit, "burst_trace_pass(t, %s, %s, %s);", tensor_constant[n->ref[0].tensor], chunk,
                      home);
            continue;
        }
        emit_line(k->emit, "{");
        emit_hop(k, n, chunk, home, from, arena_printf(k->emit->arena, "s->me%s", piece));
        emit_transfer(k, n);
        emit_line(k->emit, "}");
    }
}

static void emit_exchange(const Walk *k, const Node *n)
{
    const char *tensor = tensor_constant[n->ref[0].tensor];
    if (n->waits & WAIT_MERGED)
        emit_line(k->emit, "BURST_TRY(plan_merge(c, s, %s, s->me));", tensor);
    emit_line(k->emit, "BURST_TRY(%s(c, s, %d, %s));",
              n->stmt->tokens_to_heads ? "plan_to_heads" : "plan_to_tokens", n->channel, tensor);
}

static void emit_leaf(const Walk *k, const Node *n)
{
    if (n->kind == N_RETURN) {
        if (!k->trace)
            comment_statement(k, n);
        emit_return(k, n);
    } else if (k->trace) {
        trace_leaf(k, n);
    } else {
        comment_statement(k, n);
        if (n->kind == N_COMPUTE)
            emit_compute(k, n);
        else if (n->kind == N_PASS)
            emit_pass(k, n);
        else
            emit_exchange(k, n);
    }
}

/* ---- conditions that C compilers warn about ---- */

static bool same_expr(const Expr *x, const Expr *y)
{
    if (!x || !y)
        return x == y;
    return x->op == y->op && x->value == y->value && same_expr(x->a, y->a) && same_expr(x->b, y->b);
}

/* The variable that is compared with a constant; -1: another comparison. */
static int64_t bounded_variable(const Expr *e)
{
    if (expr_compares(e->op) && e->a->op == E_VAR && e->b->op == E_CONST)
        return e->a->value;
    return expr_compares(e->op) && e->a->op == E_CONST && e->b->op == E_VAR ? e->b->value : -1;
}

/* A comparison of equal operands, or two comparisons of one variable with constants, which may always be
 * true or false. */
static bool is_odd(const Expr *e)
{
    if (expr_compares(e->op))
        return same_expr(e->a, e->b);
    if (e->op == E_AND || e->op == E_OR)
        return is_odd(e->a) || is_odd(e->b) ||
               (bounded_variable(e->a) >= 0 && bounded_variable(e->a) == bounded_variable(e->b));
    return e->op == E_NOT && is_odd(e->a);
}

static bool has_odd_conditions(const Node *n)
{
    for (; n; n = n->next)
        if ((n->kind == N_IF && is_odd(n->stmt->cond)) || has_odd_conditions(n->body))
            return true;
    return false;
}

/* ---- nodes ---- */

static void emit_nodes(const Walk *k, const Node *n)
{
    Emit *e = k->emit;
    for (; n; n = n->next) {
        if (n->kind == N_LOOP) {
            const char *v = k->s->choice->schedule->var_name[n->stmt->var];
            emit_line(e, "for (int64_t i_%s = %s; i_%s <= %s; i_%s++) {", v, expr_text(k, n->stmt->lo), v,
                      expr_text(k, n->stmt->hi), v);
            emit_nodes(k, n->body);
            emit_line(e, "}");
        } else if (n->kind == N_IF) {
            emit_line(e, "if (%s) {", expr_text(k, n->stmt->cond));
            emit_nodes(k, n->body);
            emit_line(e, "}");
        } else {
            emit_leaf(k, n);
        }
    }
}

static const char *way_name(Emit *e, const Schedule *s)
{
    return named(e, s->backward ? "plan_backward" : "plan_forward", s);
}
static const char *trace_name(Emit *e, const Schedule *s)
{
    return named(e, s->backward ? "plan_trace_backward" : "plan_trace_forward", s);
}

static void emit_trace(Emit *e, const Schedule *s)
{
    Walk k = {e, s, true};
    emit_line(e, "/* The operations of rank `me`, in the order of %s. */", way_name(e, s));
    emit_line(e, "static void %s(BurstTrace *t, int me)", trace_name(e, s));
    emit_line(e, "{");
    emit_coords(&k, "me");
    emit_nodes(&k, s->body);
    emit_line(e, "}");
    emit_line(e, "%s", "");
}

/* At the end: adds the last sums at their owner, and waits for all transfers. */
static void emit_end(const Walk *k)
{
    for (int t = 0; t < TENSOR_COUNT; t++)
        /* otherwise before its exchange */
        if (k->s->partial_pool[t] >= 0 && !choice_by_heads(k->s->choice, k->s->backward))
            emit_merge_home(k, (TensorId)t);
    emit_line(k->emit, "return plan_settle(c, s);");
}

static void emit_schedule(Emit *e, const Schedule *s)
{
    bool exchanges = choice_by_heads(s->choice, s->backward);
    Walk k = {e, s, false};
    if (has_odd_conditions(s->body))
        emit_line(e, "#pragma GCC diagnostic ignored \"-Wtautological-compare\" /* conditions as the "
                     "schedule has them */");
    const bool travels = s->backward && s->pools;
    const char *travel = travels ? arena_printf(e->arena, ", %s travel", choice_travel_name(s->choice)) : "";
    comment(e, arena_printf(e->arena,
                            "%s, %s%s. Comments quote the lines of %s; live: what the mask leaves of them.",
                            s->choice->schedule->name, s->backward ? "backward" : "forward", travel,
                            base_name(s->choice->schedule->source->name)));
    emit_line(e, "static int %s(BurstCtx *c, PlanState *s)", way_name(e, s));
    emit_line(e, "{");
    emit_coords(&k, "s->me");
    emit_line(e, "const BurstLive *live = &s->live[s->mask][%d];", s->backward);
    emit_line(e, "int op = 0;");
    if (exchanges)
        emit_line(e, "BURST_TRY(%s(s));", s->backward ? "plan_backward_by_heads" : "plan_forward_by_heads");
    else if (choice_exchanges(s->choice))
        emit_line(e, "s->by_heads = false;");
    emit_nodes(&k, s->body);
    emit_end(&k);
    emit_line(e, "}");
    emit_line(e, "%s", "");
}

/* The table of attentions by mask: their functions, and the traces that pruning uses. */
static void emit_table(Emit *e)
{
    const Draft *d = e->draft;
    for (int i = 0; i < 2 * d->attention.n; i++)
        text_printf(e->out, "static void %s(BurstTrace *t, int me);\n",
                    trace_name(e, d->attention.at[i / 2].way[i % 2]));
    text_add(e->out, "/* The attention of each mask's layers. */\nstatic const PlanAttention "
                     "plan_attention_of[PLAN_MASKS] = {\n");
    for (int m = 0; m < d->program->mask_count; m++) {
        const Schedule *f = attentions_schedule(&d->attention, m, false),
                       *b = attentions_schedule(&d->attention, m, true);
        text_printf(e->out, "    {{%s, %s},\n     {%s, %s}},\n", way_name(e, f), way_name(e, b),
                    trace_name(e, f), trace_name(e, b));
    }
    text_add(
        e->out,
        "};\nstatic const PlanAttention *plan_attends(int mask) { return &plan_attention_of[mask]; }\n\n");
}

void emit_attentions(Emit *e)
{
    const Draft *d = e->draft;
    emit_line(e, "/* A chunk's number from its coordinates, which wrap around. */");
    for (int i = 0; i < d->attention.n; i++)
        emit_chunk(e, d->attention.at[i].way[0]);
    text_add(e->out, "\n");
    for (int i = 0; i < 2 * d->attention.n; i++)
        emit_schedule(e, d->attention.at[i / 2].way[i % 2]);
    if (d->attention.n > 1)
        emit_table(e);
}

void emit_traces(Emit *e)
{
    for (int i = 0; i < 2 * e->draft->attention.n; i++)
        emit_trace(e, e->draft->attention.at[i / 2].way[i % 2]);
}
