/* mutate.c: wrong copies of a planned schedule. */
#include "mutate.h"

#include <string.h>

const char *const mutation_names[MUTATION_COUNT] = {
#define X(id, name, exact) name,
    MUTATIONS(X)
#undef X
};
const bool mutation_exact[MUTATION_COUNT] = {
#define X(id, name, exact) exact,
    MUTATIONS(X)
#undef X
};

typedef struct Maker {
    Arena *arena; /* of one mutant */
    const Schedule *from;
    MutantFn fn;
    void *arg;
} Maker;

/* ---- copies ---- */

typedef struct Copied { const Node *from; Node *to; } Copied;
typedef Vec(Copied) Copies;

static Node *copy_nodes(Arena *a, const Node *n, Copies *all)
{
    Node *list = NULL, **end = &list;
    for (; n; n = n->next) {
        *end = NEW(a, Node);
        **end = *n;
        (*end)->next = NULL;
        (*end)->body = copy_nodes(a, n->body, all);
        *vec_push(a, all) = (Copied){n, *end};
        end = &(*end)->next;
    }
    return list;
}

static Node *copy_of(const Copies *all, const Node *n)
{
    for (int i = 0; i < all->n; i++)
        if (all->at[i].from == n)
            return all->at[i].to;
    return NULL;
}

enum { ROOM = 5 };
/* A copy whose trace has room for some operations more. */
static Schedule *copy_schedule(Maker *m, Copies *nodes)
{
    Arena *a = m->arena = arena_new();
    Schedule *s = NEW(a, Schedule);
    *s = *m->from;
    *nodes = (Copies){0};
    s->body = copy_nodes(a, s->body, nodes);
    s->pool = NEW_ARRAY(a, Pool, s->pools + 1);
    for (int p = 0; p < s->pools; p++)
        s->pool[p] = m->from->pool[p];
    Instance *at = NEW_ARRAY(a, Instance, s->trace.n + ROOM);
    for (int i = 0; i < s->trace.n; i++) {
        at[i] = m->from->trace.at[i];
        const Node *copy = copy_of(nodes, at[i].node);
        at[i].node = copy ? copy : at[i].node; /* of a mutant: what was put in stands in no body */
    }
    s->trace.at = at;
    return s;
}

static void hand_out(Maker *m, Mutation kind, const Schedule *s, const Node *n, const char *detail)
{
    Mutant x = {.kind = kind, .schedule = s, .at = n ? n->stmt : NULL, .text = detail};
    m->fn(&x, m->arg);
    arena_free(m->arena);
}

/* ---- operations ---- */

static Instance *trace_of(Schedule *s)
{
    return (Instance *)s->trace.at;
}

static void change_trace(Maker *m, Mutation kind, int at)
{
    Copies nodes;
    Schedule *s = copy_schedule(m, &nodes);
    Instance *t = trace_of(s), saved = t[at];
    const char *text = instance_text(m->arena, s, &t[at]);
    size_t rest = (size_t)(s->trace.n - at - 1) * sizeof *t;
    if (kind == MUTATE_DROP) {
        memmove(t + at, t + at + 1, rest);
        s->trace.n--;
    } else if (kind == MUTATE_DUPLICATE) {
        memmove(t + at + 2, t + at + 1, rest);
        t[at + 1] = t[at];
        s->trace.n++;
    } else {
        t[at] = t[at + 1];
        t[at + 1] = saved;
    }
    hand_out(m, kind, s, saved.node, text);
}

/* The pass of a gradient moves before the last computing that adds to it. */
static void pass_early(Maker *m, int at)
{
    const Trace *from = &m->from->trace;
    const Instance *x = &from->at[at];
    TensorId t = x->node->ref[0].tensor;
    int to = at - 1;
    while (to >= 0 &&
           !(from->at[to].node->kind == N_COMPUTE && from->at[to].chunk[t == T_DKV] == x->chunk[0]))
        to--;
    if (to < 0)
        return;
    Copies nodes;
    Schedule *s = copy_schedule(m, &nodes);
    Instance *trace = trace_of(s), moved = trace[at];
    const char *text = instance_text(m->arena, s, &moved);
    memmove(trace + to + 1, trace + to, (size_t)(at - to) * sizeof *trace);
    trace[to] = moved;
    hand_out(m, MUTATE_EARLY, s, moved.node, text);
}

static void retarget(Maker *m, Mutation kind, int at)
{
    const bool keys = kind == MUTATE_KEYS ||
                      (kind == MUTATE_CHUNK &&
                       tensor_pieces(m->from->choice, m->from->trace.at[at].node->ref[0].tensor) > 1);
    const int chunks = keys ? choice_chunks(m->from->choice) : m->from->choice->ranks;
    for (int x = 1; x < chunks; x++) {
        Copies nodes;
        Schedule *s = copy_schedule(m, &nodes);
        Instance *i = trace_of(s) + at;
        int *field = kind == MUTATE_HOP ? &i->hop : &i->chunk[kind == MUTATE_KEYS];
        *field = (*field + x) % chunks;
        hand_out(m, kind, s, i->node, instance_text(m->arena, s, i));
    }
}

/* ---- exchanges ---- */

/* An operation of its own node and statement, which stands where that of the operation at `at` does. */
static Instance new_operation(Maker *m, NodeKind kind, TensorId t, int at)
{
    const Trace *from = &m->from->trace;
    Stmt *stmt = NEW(m->arena, Stmt);
    Node *n = NEW(m->arena, Node);
    *stmt = *from->at[at < from->n ? at : from->n - 1].node->stmt;
    *n = (Node){.kind = kind,
                .stmt = stmt,
                .channel = -1,
                .pool = -1,
                .ref = {{.tensor = t, .heads = true}, {.tensor = T_KV, .heads = true}}};
    stmt->tokens_to_heads = t == T_Q || t == T_KV;
    return (Instance){.node = n};
}

static void put_in(Maker *m, Mutation kind, Schedule *s, int at, const Instance *op, int n)
{
    Instance *t = trace_of(s);
    memmove(t + at + n, t + at, (size_t)(s->trace.n - at) * sizeof *t);
    memcpy(t + at, op, (size_t)n * sizeof *t);
    s->trace.n += n;
    hand_out(m, kind, s, op->node, instance_text(m->arena, s, op));
}

static void put_exchange(Maker *m, int at, TensorId t, bool turned)
{
    Copies nodes;
    Schedule *s = copy_schedule(m, &nodes);
    Instance x = new_operation(m, N_EXCHANGE, t, at);
    ((Stmt *)x.node->stmt)->tokens_to_heads ^= turned;
    put_in(m, MUTATE_EXCHANGE, s, at, &x, 1);
}

static void put_pair(Maker *m, int at, int kv)
{
    Copies nodes;
    Schedule *s = copy_schedule(m, &nodes);
    Instance x = new_operation(m, N_COMPUTE, T_Q, at);
    ((Node *)x.node)->ref[0].heads = ((Node *)x.node)->ref[1].heads = kv < 0;
    x.chunk[1] = kv < 0 ? 0 : kv;
    put_in(m, kv < 0 ? MUTATE_WHOLE : MUTATE_PAIR, s, at, &x, 1);
}

static void put_all(Maker *m, int at)
{
    Copies nodes;
    Schedule *s = copy_schedule(m, &nodes);
    Instance x[ROOM] = {new_operation(m, N_EXCHANGE, T_Q, at), new_operation(m, N_EXCHANGE, T_KV, at),
                        new_operation(m, N_COMPUTE, T_Q, at),
                        new_operation(m, N_EXCHANGE, s->backward ? T_DQ : T_O, at),
                        new_operation(m, N_EXCHANGE, T_DKV, at)};
    put_in(m, MUTATE_BESIDES, s, at, x, s->backward ? 5 : 4);
}

static void put_exchanges(Maker *m, int at)
{
    for (int t = 0; t < TENSOR_COUNT; t++)
        for (int turned = 0; turned < 2 && (t < T_O || (t == T_O) != m->from->backward); turned++)
            put_exchange(m, at, (TensorId)t, turned);
    for (int kv = -1; kv < choice_chunks(m->from->choice); kv++)
        put_pair(m, at, kv);
    put_all(m, at);
}

/* The operation at `at` with a node and a statement of its own: an exchange goes the other way, a pair
 * changes its form. */
static void change_form(Maker *m, int at)
{
    Copies nodes;
    Schedule *s = copy_schedule(m, &nodes);
    Instance *x = trace_of(s) + at;
    bool exchange = x->node->kind == N_EXCHANGE;
    Node *n = NEW(m->arena, Node);
    Stmt *stmt = NEW(m->arena, Stmt);
    *n = *x->node;
    *stmt = *n->stmt;
    n->stmt = stmt;
    x->node = n;
    stmt->tokens_to_heads ^= exchange;
    n->ref[0].heads ^= !exchange;
    n->ref[1].heads ^= !exchange;
    hand_out(m, exchange ? MUTATE_TURN : MUTATE_FORM, s, n, instance_text(m->arena, s, x));
}

static void change_operation(Maker *m, int at)
{
    const Instance *i = &m->from->trace.at[at];
    const Node *n = i->node;
    bool exchange = n->kind == N_EXCHANGE, compute = n->kind == N_COMPUTE;
    change_trace(m, MUTATE_DROP, at);
    change_trace(m, MUTATE_DUPLICATE, at);
    if (at + 1 < m->from->trace.n)
        change_trace(m, MUTATE_SWAP, at);
    put_exchanges(m, at);
    if (exchange || compute)
        change_form(m, at);
    if (exchange)
        return;
    retarget(m, MUTATE_CHUNK, at);
    retarget(m, compute ? MUTATE_KEYS : MUTATE_HOP, at);
    if (!compute && tensor_accumulates(n->ref[0].tensor))
        pass_early(m, at);
}

/* ---- nodes ---- */

static void change_waits(Maker *m, const Node *n)
{
    static const char *const name[] = {
#define X(id, text, what) text,
        WAITS(X)
#undef X
    };
    for (int bit = 0; bit < countof(name); bit++) {
        Copies nodes;
        Schedule *s = copy_schedule(m, &nodes);
        Node *copy = copy_of(&nodes, n);
        copy->waits ^= 1u << bit;
        hand_out(m, n->waits & 1u << bit ? MUTATE_WAIT : MUTATE_EXTRA_WAIT, s, copy, name[bit]);
    }
}

static void change_streams(Maker *m, const Node *n)
{
    for (int channel = 0; channel < m->from->channels && n->channel >= 0; channel++) {
        if (channel == n->channel)
            continue;
        Copies nodes;
        Schedule *s = copy_schedule(m, &nodes);
        Node *copy = copy_of(&nodes, n);
        copy->channel = channel;
        hand_out(m, MUTATE_CHANNEL, s, copy, "");
    }
    for (int pool = 0; pool < m->from->pools && n->pool >= 0; pool++) {
        if (pool == n->pool)
            continue;
        Copies nodes;
        Schedule *s = copy_schedule(m, &nodes);
        Node *copy = copy_of(&nodes, n);
        copy->pool = pool;
        hand_out(m, MUTATE_POOL, s, copy, s->pool[pool].name);
    }
}

static void change_nodes(Maker *m, const Node *n)
{
    for (; n; n = n->next) {
        if (n->kind != N_LOOP && n->kind != N_IF) {
            change_waits(m, n);
            change_streams(m, n);
        }
        change_nodes(m, n->body);
    }
}

static void change_slots(Maker *m, int pool)
{
    for (int more = -1; more <= 1; more += 2) {
        if (m->from->pool[pool].slots + more < 1)
            continue;
        Copies nodes;
        Schedule *s = copy_schedule(m, &nodes);
        s->pool[pool].slots += more;
        hand_out(m, more < 0 ? MUTATE_FEWER : MUTATE_MORE, s, NULL, s->pool[pool].name);
    }
}

/* Sums that leave home have no slots. */
static void drop_partial_pools(Maker *m)
{
    for (int t = 0; t < TENSOR_COUNT; t++) {
        if (m->from->partial_pool[t] < 0)
            continue;
        Copies nodes;
        Schedule *s = copy_schedule(m, &nodes);
        s->partial_pool[t] = -1;
        hand_out(m, MUTATE_NO_POOL, s, NULL, tensor_name((TensorId)t));
    }
}

void each_mutant(const Schedule *s, MutantFn fn, void *arg)
{
    Maker m = {.from = s, .fn = fn, .arg = arg};
    for (int i = 0; i < s->trace.n; i++)
        change_operation(&m, i);
    if (s->trace.n)
        put_exchanges(&m, s->trace.n);
    change_nodes(&m, s->body);
    for (int p = 0; p < s->pools; p++)
        change_slots(&m, p);
    drop_partial_pools(&m);
}
