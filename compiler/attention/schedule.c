/* schedule.c: the statements of one direction of a .sched file as nodes with streams, and their trace.
 *
 * Each tensor of a pass becomes a node with a channel (stream, communicator) of its own. Transfers of copies
 * move before computing that they can overlap: they change nothing that computing reads. The trace unrolls
 * the nodes in relative coordinates (attention/attention.h), so that it is the trace of every rank. */
#include "attention/attention.h"
#include "ir/expr.h"

#include <string.h>


/* ---- statements to nodes ---- */

typedef struct Maker { Arena *arena; Diags *diags; Schedule *schedule; } Maker;

static Node *new_node(Maker *m, NodeKind kind, const Stmt *s)
{
    Node *n = NEW(m->arena, Node);
    *n = (Node){.kind = kind, .stmt = s, .pool = -1, .channel = -1};
    return n;
}

/* If one rank has all heads, its row of chunks is its own chunk. */
static ChunkRef ref_of(const Maker *m, const ChunkRef *ref)
{
    ChunkRef r = *ref;
    r.heads = r.heads && choice_by_heads(m->schedule->choice, m->schedule->backward);
    return r;
}

static Node *make_nodes(Maker *m, const Stmt *s);

/* Adds `pass X, Y to ...;` as one node per tensor, each on a stream of its own. */
static Node **add_transfers(Maker *m, Node **end, NodeKind kind, const Stmt *s)
{
    for (int i = 0; i < s->nrefs; i++) {
        Node *n = new_node(m, kind, s);
        n->ref[0] = ref_of(m, &s->refs[i]);
        n->channel = m->schedule->channels++;
        *end = n;
        end = &n->next;
    }
    return end;
}

static Node **add_node(Maker *m, Node **end, const Stmt *s)
{
    static const NodeKind transfer[] = {[S_PASS] = N_PASS, [S_RETURN] = N_RETURN, [S_EXCHANGE] = N_EXCHANGE};
    Node *n;
    switch (s->kind) {
    case S_EXCHANGE:
        if (!choice_by_heads(m->schedule->choice, m->schedule->backward))
            return end;
        return add_transfers(m, end, transfer[s->kind], s);
    case S_PASS:
    case S_RETURN:
        return add_transfers(m, end, transfer[s->kind], s);
    case S_ATTEND:
    case S_GRAD:
        n = new_node(m, N_COMPUTE, s);
        n->ref[0] = ref_of(m, &s->refs[0]);
        n->ref[1] = ref_of(m, &s->refs[1]);
        break;
    default:
        n = new_node(m, s->kind == S_FOR ? N_LOOP : N_IF, s);
        n->body = make_nodes(m, s->body);
        if (n->body)
            n->body->alone = !n->body->next;
    }
    *end = n;
    return &n->next;
}

/* Whether the node is a loop over the pieces of a chunk, written as one statement. */
static bool is_each_piece(const Node *n)
{
    return n->kind == N_LOOP && n->stmt->each_piece;
}

static bool computes(const Node *n)
{
    return n->kind == N_COMPUTE || (is_each_piece(n) && n->body->kind == N_COMPUTE);
}

/* Whether a node only passes copies, so that it may move before computing. */
static bool passes_copies(const Node *n)
{
    if (n->kind == N_PASS)
        return !tensor_accumulates(n->ref[0].tensor);
    if (n->kind != N_IF && !is_each_piece(n))
        return false;
    for (const Node *b = n->body; b; b = b->next)
        if (!passes_copies(b))
            return false;
    return true;
}

/* Moves passes of copies up, stably: [compute, pass, compute, pass'] becomes [pass, pass', compute,
 * compute]. */
static Node *hoist(Node *list)
{
    for (Node **at = &list; *at; ) {
        Node *first = *at;
        Node *second = first->next;
        if (!computes(first) || !second || !passes_copies(second)) {
            at = &first->next;
            continue;
        }
        first->next = second->next;
        second->next = first;
        *at = second;
        at = &list; /* it may move further up */
    }
    return list;
}

static Node *make_nodes(Maker *m, const Stmt *s)
{
    Node *list = NULL, **end = &list;
    for (; s; s = s->next)
        end = add_node(m, end, s);
    return hoist(list);
}

/* ---- trace ---- */

/* Limits against runaway loops: a rank computes as many pairs as there are ranks, so a schedule with far
 * more operations or iterations is a mistake that would exhaust time and memory. */
enum { MOST_TURNS = 1 << 24, OPERATIONS = 1 << 16, OPERATIONS_PER_PAIR = 64 };

typedef struct Tracer {
    Arena *arena;
    const Choice *choice;
    int64_t var[MAX_SCHED_VARS];
    unsigned inside; /* running loops: bit i, loop i */
    int64_t turns;
    const Node *endless; /* the loop that exceeds the limits */
    Vec(Instance) out;
} Tracer;

static int place_index(const Tracer *t, const Expr *const index[MAX_COORDS])
{
    const Choice *c = t->choice;
    int at = 0;
    for (int i = 0; i < c->coords; i++) { /* no index: all ranks along it, the same at each of them */
        const int64_t x = index[i] ? expr_eval(index[i], 0, 0, t->var, NULL) : 0;
        at += (int)burst_floor_mod(x, c->size[i]) * c->stride[i];
    }
    return at;
}

static int ref_index(const Tracer *t, const ChunkRef *ref)
{
    const int64_t piece = ref->piece ? expr_eval(ref->piece, 0, 0, t->var, NULL) : 0;
    return place_index(t, ref->index) + (int)piece * t->choice->ranks;
}

static Instance *add_instance(Tracer *t, const Node *n)
{
    Instance *i = vec_push(t->arena, &t->out);
    *i = (Instance){.node = n, .inside = t->inside};
    memcpy(i->loop, t->var + FIRST_LOOP, sizeof i->loop);
    return i;
}

static void trace_leaf(Tracer *t, const Node *n)
{
    if (n->kind == N_RETURN) {
        for (int j = 0; j < n->returns; j++) {
            Instance *i = add_instance(t, n);
            i->chunk[0] = n->return_offset[j]; /* the chunk me + x goes to rank me + x */
            i->hop = i->chunk[0] % t->choice->ranks;
        }
        return;
    }
    if (n->kind == N_PASS && tensor_accumulates(n->ref[0].tensor) &&
        chunk_is_own(t->choice, ref_index(t, &n->ref[0]))) {
        ((Node *)n)->at_owner = true; /* a sum at its owner needs no hop */
        return;
    }
    Instance *i = add_instance(t, n);
    if (n->kind == N_EXCHANGE)
        return;
    i->chunk[0] = ref_index(t, &n->ref[0]);
    if (n->kind == N_COMPUTE)
        i->chunk[1] = ref_index(t, &n->ref[1]);
    else
        i->hop = place_index(t, n->stmt->to);
}

static void trace_nodes(Tracer *t, const Node *n);

static void trace_loop(Tracer *t, const Node *n)
{
    int64_t last = expr_eval(n->stmt->hi, 0, 0, t->var, NULL);
    int64_t first = expr_eval(n->stmt->lo, 0, 0, t->var, NULL);
    const unsigned around = t->inside;
    t->inside |= 1u << (n->stmt->var - FIRST_LOOP);
    for (int64_t i = first; i <= last && !t->endless; i++) {
        t->var[n->stmt->var] = i;
        trace_nodes(t, n->body);
        bool much = ++t->turns > MOST_TURNS ||
                    t->out.n > OPERATIONS + OPERATIONS_PER_PAIR * (int64_t)choice_chunks(t->choice);
        if (much && !t->endless)
            t->endless = n;
    }
    t->inside = around;
}

static void trace_nodes(Tracer *t, const Node *n)
{
    for (; n && !t->endless; n = n->next) {
        if (n->kind == N_LOOP) {
            trace_loop(t, n);
        } else if (n->kind == N_IF) {
            if (expr_eval(n->stmt->cond, 0, 0, t->var, NULL))
                trace_nodes(t, n->body);
        } else {
            trace_leaf(t, n);
        }
    }
}

static Tracer trace_make(Arena *a, const Choice *c, const Node *body)
{
    Tracer t = {.arena = a, .choice = c};
    for (int i = 0; i < c->coords; i++)
        t.var[MAX_COORDS + i] = c->size[i];
    trace_nodes(&t, body);
    return t;
}

static bool set_trace(Maker *m)
{
    const Tracer t = trace_make(m->arena, m->schedule->choice, m->schedule->body);
    m->schedule->trace = (Trace){.n = t.out.n, .at = t.out.at};
    if (t.endless)
        diag_error(m->diags, stmt_place(t.endless->stmt),
                   "this loop and the loops around it have too many iterations: each of %d rank%s has %d "
                   "pair%s to compute",
                   m->schedule->choice->ranks, plural(m->schedule->choice->ranks),
                   choice_chunks(m->schedule->choice), plural(choice_chunks(m->schedule->choice)));
    return !t.endless;
}

/* ---- chunks that `return` sends ---- */

/* Marks the relative chunks of the accumulator with a partial sum here after the trace. */
static void partials_left(const Schedule *s, TensorId tensor, bool *here)
{
    const Choice *c = s->choice;
    int which = tensor == T_DKV ? 1 : 0;
    for (int i = 0; i < s->trace.n; i++) {
        const Instance *x = &s->trace.at[i];
        if (x->node->kind == N_COMPUTE) {
            here[x->chunk[which]] = true;
        } else if (x->node->kind == N_PASS && x->node->ref[0].tensor == tensor) {
            here[x->chunk[0]] = false;
            here[rel_sub(c, x->chunk[0], x->hop)] = true;
        }
    }
}

static Node *find_return(Node *n, TensorId tensor)
{
    for (; n; n = n->next) {
        if (n->kind == N_RETURN && n->ref[0].tensor == tensor)
            return n;
        Node *inside = find_return(n->body, tensor);
        if (inside)
            return inside;
    }
    return NULL;
}

static bool plan_returns(Maker *m)
{
    Arena *a = m->arena;
    Schedule *s = m->schedule;
    bool found = false;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        Node *n = find_return(s->body, (TensorId)t);
        if (!n)
            continue;
        bool *here = NEW_ARRAY(a, bool, choice_chunks(s->choice));
        partials_left(s, (TensorId)t, here);
        n->return_offset = NEW_ARRAY(a, int, choice_chunks(s->choice));
        for (int x = 1; x < choice_chunks(s->choice); x++)
            if (here[x] && !chunk_is_own(s->choice, x))
                n->return_offset[n->returns++] = x;
        found = true;
    }
    return !found || set_trace(m);
}

/* ---- checks that need sizes ---- */

bool pass_moves(const Node *pass, int coord)
{
    const Expr *to = pass->stmt->to[coord];
    return to && !(to->op == E_VAR && to->value == coord);
}

static bool along_a_ring_of_one(const Schedule *s, const Node *pass)
{
    for (int i = 0; i < s->choice->coords; i++)
        if (pass_moves(pass, i) && s->choice->size[i] == 1)
            return true;
    return false;
}

static bool hops_leave(Maker *m)
{
    const Schedule *s = m->schedule;
    for (int i = 0; i < s->trace.n; i++) {
        const Instance *x = &s->trace.at[i];
        if (x->node->kind != N_PASS || x->hop != 0)
            continue;
        diag_error(m->diags, stmt_place(x->node->stmt),
                   "this pass sends a chunk to the rank that holds it: %s", instance_text(m->arena, s, x));
        if (along_a_ring_of_one(s, x->node))
            diag_note(m->diags, x->node->stmt->span,
                      "guard it with `if`, so that a ring of one rank passes nothing");
        return false;
    }
    return true;
}

enum { PLAN_CHANNELS = 12 }; /* the runtime reserves the rest of its 16 for collectives */

static const Node *node_of_channel(const Node *n, int channel)
{
    const Node *found = NULL;
    for (; n && !found; n = n->next)
        found = n->channel == channel ? n : node_of_channel(n->body, channel);
    return found;
}

static bool channels_fit(Maker *m, const SchedText *t)
{
    if (m->schedule->channels <= PLAN_CHANNELS)
        return true;
    /* forward fitted, or this is forward */
    Span at = stmt_place(node_of_channel(m->schedule->body, PLAN_CHANNELS)->stmt);
    diag_error(m->diags, at,
               "schedule '%s' requires %d streams for its transfers, but the runtime has %d; none is left "
               "here",
               t->name, m->schedule->channels, PLAN_CHANNELS);
    diag_note(m->diags, at,
              "each tensor of a statement uses one stream, however many times a loop "
              "repeats it");
    return false;
}

Schedule *schedule_make(Arena *a, Diags *d, const Choice *c, bool backward, int first_channel)
{
    const SchedText *t = c->schedule;
    const Phase *phase = phase_of(c, backward);
    if (!phase) {
        diag_error(d, t->span, "schedule '%s' has no `backward %s`", t->name, travel_names[c->travel]);
        return NULL;
    }
    Schedule *s = NEW(a, Schedule);
    *s = (Schedule){.choice = c, .backward = backward, .channels = first_channel};
    Maker m = {a, d, s};
    s->body = make_nodes(&m, phase->body);
    return set_trace(&m) && plan_returns(&m) && channels_fit(&m, t) && hops_leave(&m) ? s : NULL;
}

/* ---- text ---- */

static void add_loops(const Schedule *s, const Instance *i, Text *out)
{
    const SchedText *t = s->choice->schedule;
    const char *before = ", at ";
    for (int v = FIRST_LOOP; v < t->vars; v++) {
        if (!(i->inside >> (v - FIRST_LOOP) & 1))
            continue;
        text_printf(out, "%s%s = %lld", before, t->var_name[v], (long long)i->loop[v - FIRST_LOOP]);
        before = ", ";
    }
}

/* Prints an offset to the acting rank with the coordinates' names: "r", "r + 2", "n - 1, l"; for chunks by
 * heads "*, r - 1". */
static void add_offset(const Choice *c, int offset, bool heads, Text *out)
{
    for (int i = 0; i < c->coords; i++) {
        int x = rel_hop(c, offset, i);
        text_printf(out, "%s%s", i ? ", " : "",
                    heads && i == c->schedule->exchanged ? "*" : c->schedule->coord_name[i]);
        if (x)
            text_printf(out, " %c %d", x < 0 ? '-' : '+', x < 0 ? -x : x);
    }
}

static void add_chunk(const Choice *c, TensorId t, int offset, bool heads, Text *out)
{
    text_printf(out, "%s[", tensor_name(t));
    add_offset(c, offset, heads, out);
    text_add(out, "]");
    if (tensor_pieces(c, t) > 1)
        text_printf(out, ".%d", chunk_piece(c, offset));
}

const char *chunk_name(Arena *a, const Schedule *s, TensorId t, int chunk)
{
    Text text = {0};
    add_chunk(s->choice, t, chunk, choice_by_heads(s->choice, s->backward), &text);
    return text_keep(a, &text);
}

static void instance_print(const Schedule *s, const Instance *i, Text *out)
{
    const Choice *c = s->choice;
    const Node *n = i->node;
    if (n->kind == N_EXCHANGE) {
        text_printf(out, "exchange %s", tensor_name(n->ref[0].tensor));
        return;
    }
    static const char *const verb[] = {[N_COMPUTE] = "attend", [N_PASS] = "pass", [N_RETURN] = "return"};
    text_printf(out, "%s ", n->kind == N_COMPUTE && s->backward ? "grad" : verb[n->kind]);
    const bool heads = choice_by_heads(c, s->backward);
    add_chunk(c, n->ref[0].tensor, i->chunk[0], heads, out);
    if (n->kind == N_COMPUTE) {
        text_add(out, " with ");
        add_chunk(c, T_KV, i->chunk[1], heads, out);
    } else {
        text_add(out, " to ");
        add_offset(c, i->hop, false, out);
    }
}

const char *instance_text(Arena *a, const Schedule *s, const Instance *i)
{
    Text t = {0};
    instance_print(s, i, &t);
    if (i->node->kind == N_COMPUTE || i->node->kind == N_PASS)
        add_loops(s, i, &t);
    return text_keep(a, &t);
}
