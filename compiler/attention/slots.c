/* slots.c: buffers for travelling chunks, from liveness, and the waits of each operation.
 *
 * Every pass has a pool of slots for its arrivals; every accumulator that leaves its owner has a pool of
 * partial sums that this rank computes. A pool is used in rotation (use k takes slot k mod slots), so that
 * emitted loops need one counter a pool. The number of slots is the least with which no slot is reused while
 * its content is live: double buffering (two slots for a ring) and the three to four buffers of the
 * topology-aware ring follow from that.
 *
 * A slot that was sent stays live until the same pass runs the next time: only there its send is waited for,
 * so that the transfer overlaps a whole step. Uses count even if the mask removes their operation: the slots
 * of an emitted program do not depend on the mask. */
#include "attention/attention.h"

#include "burst_kernels.h"

#include <string.h>

typedef struct Use { int birth, death; } Use; /* instances: [birth, death) */
typedef Vec(Use) Uses;

/* The location of a chunk: use number `use` of pool `pool`; pool < 0: at its owner. */
typedef struct Place { bool here; int pool, use; } Place;

typedef struct Slots {
    Arena *arena;
    Schedule *s;
    Place *place[TENSOR_COUNT];   /* [chunks] copies, and partial sums computed here */
    Uses *uses;                   /* [pools] */
    Vec(Place) *pending[TENSOR_COUNT]; /* [chunks] partial sums that arrived and are not yet added */
    Vec(Pool) pools;
} Slots;

/* ---- pools ---- */

/* The route of a transfer: along a ring, along some coordinates, or to the owner ("home"). */
static const char *way_of(const Slots *z, const Node *pass)
{
    const Choice *c = z->s->choice;
    const char *way = NULL;
    if (pass->kind == N_RETURN)
        return "home";
    for (int i = 0; i < c->coords && c->coords > 1; i++)
        if (pass_moves(pass, i))
            way = way ? arena_printf(z->arena, "%s_%s", way, c->schedule->way_name[i])
                      : c->schedule->way_name[i];
    return way ? way : "ring";
}

static bool name_taken(const Slots *z, const char *name)
{
    for (int i = 0; i < z->pools.n; i++)
        if (strcmp(z->pools.at[i].name, name) == 0)
            return true;
    return false;
}

/* A name that is unique in the program: kv_lane in forward, back_kv_lane in backward, back_kv_lane2 for a
 * second pass along that route. */
static const char *pool_name(Slots *z, const Node *pass, TensorId t)
{
    static const char *const lower[TENSOR_COUNT] = {"q", "kv", "o", "dq", "dkv"};
    const char *own = z->s->name ? arena_printf(z->arena, "%s_", z->s->name) : "";
    const char *first = arena_printf(z->arena, "%s%s%s_%s", own, z->s->backward ? "back_" : "", lower[t],
                                     pass ? way_of(z, pass) : "partial"), *name = first;
    for (int n = 2; name_taken(z, name); n++)
        name = arena_printf(z->arena, "%s%d", first, n);
    return name;
}

/* pass: the node that fills it; NULL: partial sums do. */
static int add_pool(Slots *z, const Node *pass, TensorId t)
{
    const Pool p = {.tensor = t, .slots = 1, .name = pool_name(z, pass, t)};
    *vec_push(z->arena, &z->pools) = p;
    return z->pools.n - 1;
}

static void add_arrival_pools(Slots *z, Node *n)
{
    for (; n; n = n->next) {
        if (n->kind == N_PASS || n->kind == N_RETURN)
            n->pool = add_pool(z, n, n->ref[0].tensor);
        add_arrival_pools(z, n->body);
    }
}

/* ---- replay ---- */

/* The instance at which the operation runs next: there its previous transfer is waited for. */
static int next_round(const Slots *z, int at)
{
    const Trace *t = &z->s->trace;
    for (int i = at + 1; i < t->n; i++)
        if (t->at[i].node == t->at[at].node)
            return i;
    return t->n;
}

static void live_until(Slots *z, Place p, int death)
{
    if (!p.here || p.pool < 0) /* a wrong schedule may name a chunk that is not here: verify reports it */
        return;
    Use *u = &z->uses[p.pool].at[p.use];
    if (u->death < death)
        u->death = death;
}

static Place new_use(Slots *z, int pool, int birth)
{
    *vec_push(z->arena, &z->uses[pool]) = (Use){birth, birth + 1};
    return (Place){true, pool, z->uses[pool].n - 1};
}

static void replay_copy(Slots *z, int at)
{
    const Instance *i = &z->s->trace.at[at];
    Node *n = (Node *)i->node;
    Place *p = z->place[n->ref[0].tensor];
    Place from = p[i->chunk[0]];
    if (from.here && (from.pool >= 0 || n->ref[0].heads))
        n->waits |= WAIT_ARRIVED;
    live_until(z, from, next_round(z, at));
    p[rel_sub(z->s->choice, i->chunk[0], i->hop)] = new_use(z, n->pool, at);
}

/* Adds arrived partial sums before the chunk moves on. */
static void merge_pending(Slots *z, Node *n, TensorId t, int chunk, int at)
{
    for (int j = 0; j < z->pending[t][chunk].n; j++)
        live_until(z, z->pending[t][chunk].at[j], at);
    if (z->pending[t][chunk].n)
        n->waits |= WAIT_MERGED;
    z->pending[t][chunk].n = 0;
}

/* Adds sums that arrived at their owner when the pass that brought one runs the next time. With launches
 * over all pairs they are added at the end, since computing would wait for them. */
static void merge_home(Slots *z, Node *n, TensorId t, int at)
{
    const int chunks = choice_chunks(z->s->choice), next = z->s->choice->ranks; /* of pieces */
    bool round = false;
    for (int home = 0; home < chunks && n->kind == N_PASS && !z->s->at_once; home += next)
        for (int j = 0; j < z->pending[t][home].n; j++)
            round |= z->pending[t][home].at[j].pool == n->pool;
    for (int home = 0; home < chunks && round; home += next) {
        for (int j = 0; j < z->pending[t][home].n; j++)
            live_until(z, z->pending[t][home].at[j], at);
        z->pending[t][home].n = 0;
    }
    n->waits |= round ? WAIT_HOME : 0;
}

static void touch_partial(Slots *z, TensorId t, int chunk, int at)
{
    Place *p = &z->place[t][chunk];
    if (!p->here && z->s->partial_pool[t] >= 0)
        *p = new_use(z, z->s->partial_pool[t], at);
    live_until(z, *p, at + 1);
}

static void replay_sum(Slots *z, int at)
{
    const Instance *i = &z->s->trace.at[at];
    Node *n = (Node *)i->node;
    TensorId t = n->ref[0].tensor;
    Place *own = &z->place[t][i->chunk[0]];
    n->waits |= WAIT_COMPUTED;
    merge_home(z, n, t, at);
    if (z->pending[t][i->chunk[0]].n)
        touch_partial(z, t, i->chunk[0], at);
    merge_pending(z, n, t, i->chunk[0], at);
    live_until(z, *own, next_round(z, at));
    own->here = false;
    int there = rel_sub(z->s->choice, i->chunk[0], i->hop);
    *vec_push(z->arena, &z->pending[t][there]) = new_use(z, n->pool, at);
}

static void replay_compute(Slots *z, int at)
{
    static const unsigned wait[2] = {WAIT_ARRIVED_Q, WAIT_ARRIVED_KV};
    static const TensorId copy[2] = {T_Q, T_KV};
    const Instance *i = &z->s->trace.at[at];
    Node *n = (Node *)i->node;
    for (int side = 0; side < 2; side++) {
        Place from = z->place[copy[side]][i->chunk[side]];
        /* by heads, an exchange brings even the rank's own chunk */
        if (from.here && (from.pool >= 0 || n->ref[side].heads))
            n->waits |= wait[side];
        live_until(z, from, z->s->run && !z->s->backward ? z->s->trace.n : at + 1);
        int sum = result_tensor(z->s->backward, side);
        if (sum >= 0)
            touch_partial(z, (TensorId)sum, i->chunk[side], at);
    }
}

static void replay(Slots *z)
{
    for (int at = 0; at < z->s->trace.n; at++) {
        const Node *n = z->s->trace.at[at].node;
        if (n->kind == N_COMPUTE)
            replay_compute(z, at);
        else if (n->kind == N_EXCHANGE)
            merge_pending(z, (Node *)n, n->ref[0].tensor, 0, at);
        else if (n->kind == N_PASS && !tensor_accumulates(n->ref[0].tensor))
            replay_copy(z, at);
        else if (n->kind == N_PASS || n->kind == N_RETURN)
            replay_sum(z, at);
    }
    for (int t = 0; t < TENSOR_COUNT; t++) /* the last arrivals are added at the end */
        for (int c = 0; c < choice_chunks(z->s->choice); c++)
            for (int j = 0; j < z->pending[t][c].n; j++)
                live_until(z, z->pending[t][c].at[j], z->s->trace.n);
}

/* ---- slots ---- */

/* 0 for a pool that no operation uses, such as for passes of a ring of one rank. */
static int least_slots(const Uses *uses)
{
    int slots = uses->n > 0;
    for (int j = 0, i = 0; j < uses->n; j++) {
        /* i: the earliest use still live; births only grow, so dead uses stay dead */
        while (i < j && uses->at[i].death <= uses->at[j].birth)
            i++;
        if (slots < j - i + 1)
            slots = j - i + 1;
    }
    return slots;
}

/* Whoever fills a reused slot waits until it is free. */
static void mark_free_waits(Slots *z)
{
    const Trace *t = &z->s->trace;
    for (int p = 0; p < z->pools.n; p++)
        for (int u = z->pools.at[p].slots; u < z->uses[p].n; u++)
            ((Node *)t->at[z->uses[p].at[u].birth].node)->waits |= WAIT_FREE;
}

static void start_state(Slots *z)
{
    const int chunks = choice_chunks(z->s->choice);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        z->place[t] = NEW_ARRAY(z->arena, Place, chunks);
        for (int home = 0; home < chunks; home += z->s->choice->ranks)
            z->place[t][home] = (Place){.here = true, .pool = -1};
        z->pending[t] = arena_alloc(z->arena, sizeof(*z->pending[t]) * (size_t)chunks);
    }
    add_arrival_pools(z, z->s->body);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        bool leaves = false;
        for (int p = 0; p < z->pools.n; p++)
            leaves |= z->pools.at[p].tensor == (TensorId)t && tensor_accumulates((TensorId)t);
        z->s->partial_pool[t] = leaves ? add_pool(z, NULL, (TensorId)t) : -1;
    }
    z->uses = arena_alloc(z->arena, sizeof(Uses) * (size_t)(z->pools.n ? z->pools.n : 1));
}

void schedule_slots(Arena *a, Schedule *s)
{
    Slots z = {.arena = a, .s = s};
    start_state(&z);
    replay(&z);
    for (int p = 0; p < z.pools.n; p++)
        z.pools.at[p].slots = least_slots(&z.uses[p]);
    mark_free_waits(&z);
    s->pools = z.pools.n;
    s->pool = z.pools.at;
}

/* ---- --emit=schedule ---- */

static const char *wait_names(Arena *a, unsigned waits)
{
    static const char *const name[] = {
#define X(id, text, what) text,
        WAITS(X)
#undef X
    };
    Text t = {0};
    text_add(&t, "");
    for (int i = 0; i < countof(name); i++)
        if (waits & 1u << i)
            text_printf(&t, "%s%s", t.n ? " " : "", name[i]);
    return text_keep(a, &t);
}

static void print_nodes(Arena *a, const Schedule *s, const Node *n, int depth, Text *out)
{
    static const char *const kind[] = {
#define X(id) #id,
        NODES(X)
#undef X
    };
    for (; n; n = n->next) {
        int line, column;
        span_line(stmt_place(n->stmt), &line, &column);
        text_printf(out, "%*s%s line %d", 2 * depth, "", kind[n->kind], line);
        if (n->kind != N_LOOP && n->kind != N_IF)
            text_printf(out, " %s", tensor_name(n->ref[0].tensor));
        if (n->channel >= 0)
            text_printf(out, " channel %d", n->channel);
        if (n->pool >= 0)
            text_printf(out, " into %s", s->pool[n->pool].name);
        if (n->waits)
            text_printf(out, " waits(%s)", wait_names(a, n->waits));
        text_add(out, "\n");
        print_nodes(a, s, n->body, depth + 1, out);
    }
}

void print_schedule(const Schedule *s, Text *out)
{
    Arena *a = arena_new();
    text_printf(out, "burst-schedule 1\n%s %s", s->choice->schedule->name,
                s->backward ? "backward" : "forward");
    if (s->backward)
        text_printf(out, " %s", choice_travel_name(s->choice));
    for (int i = 0; i < s->choice->coords; i++)
        text_printf(out, i ? " x %d" : " over %d", s->choice->size[i]);
    text_printf(out, " rank%s, %d operation%s a rank%s", plural(s->choice->ranks), s->trace.n,
                plural(s->trace.n), s->at_once ? ", computing at once when all keys are there" : "");
    if (s->in_groups)
        text_printf(out, ", computing %d chunks at once", BURST_MOST_CHUNKS);
    if (s->choice->head_pieces > 1)
        text_printf(out, ", query heads in %d pieces", s->choice->head_pieces);
    text_add(out, "\n");
    for (int p = 0; p < s->pools; p++)
        text_printf(out, "pool %s: %s, %d slot%s\n", s->pool[p].name, tensor_name(s->pool[p].tensor),
                    s->pool[p].slots, plural(s->pool[p].slots));
    print_nodes(a, s, s->body, 0, out);
    arena_free(a);
}
