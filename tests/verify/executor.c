/* executor.c: the meaning of a schedule, written from attention.h and the language's documentation, for
 * absolute ranks.
 *
 * Every operation becomes tasks: computing (one stream a rank, in order) and transfers (each starts when
 * both its ends have passed their waits, and ends whenever it likes: only a wait orders what follows).
 * What must come before a task is a set of tasks. A task that reads a buffer sees the last write before
 * it; where another write is ordered neither before nor after, some timing shows the reader something
 * else, and the value is UNSURE from then on. Copies carry the chunk they are of, sums count the (query
 * chunk, key chunk) pairs in them, for each share of the heads.
 *
 * A tensor is laid out by tokens (the owner has its chunk, with all heads) or by heads (a rank has the
 * chunks of all ranks along the exchanged coordinate, its row, with its share of the heads). Keys have
 * pieces: rank r owns those that are r modulo the ranks. An exchange changes the layout, after everything
 * before it and before everything after it at all ranks. Where transfers carry ranges of tiles, one tile
 * of every chunk of queries is looked at, or of keys, and all in turn: a pair reads it and adds to it or
 * not, and a transfer carries it or not. By heads what is passed on and computed are rows, and a rank's
 * own is its row.
 */
#include "executor.h"

#include <string.h>

enum { NONE = -1 };
/* chunk: of one rank; row: of all in that rank's row, its share of the heads. Either is NONE. */
typedef struct Value {
    bool written, unsure;
    int chunk, row;
    uint8_t *count; /* [share][q][key chunk] of a sum; NULL: none */
} Value;
typedef struct Write { int task; bool fresh; Value value; } Write; /* not fresh: adds to what was there */
typedef struct Place {
    Vec(Write) writes;
    Vec(int) reads;
    int arriving;
    bool started;
    int pending, chunk;
    TensorId tensor;
} Place;
typedef enum TaskKind { COMPUTE, MERGE, TRANSFER, EXCHANGE } TaskKind;
typedef struct Task {
    TaskKind kind;
    uint64_t *before;
    int in[2], out[2], rank;
    bool masked; /* COMPUTE: nothing of the tile */
    TensorId tensor; /* EXCHANGE */
} Task;
typedef uint64_t *Tasks; /* set */

typedef struct Rank {
    int *held[2][TENSOR_COUNT]; /* by tokens, by heads: [chunk] place, or NONE */
    int *uses;               /* [pool] */
    int last_compute;
    Tasks gate;              /* what the next computing waits for */
} Rank;

typedef struct World {
    Arena *arena;
    const Schedule *s;
    const Live *live;
    const uint8_t *pair;
    const BurstPairTiles *tiles; /* [query chunk][key chunk] that a pair has work for; NULL: all */
    int side, tile;          /* that is looked at */
    int ranks, keys, slots;  /* keys: their chunks; slots of all pools */
    int axis;                /* the exchanged coordinate; the first where there is none */
    /* of heads that are told apart: 1, or one a place of the axis where the direction has an exchange */
    int shares;
    bool heads[TENSOR_COUNT]; /* laid out by heads */
    int *first_slot;         /* [pool] */
    size_t words;
    Vec(Task) tasks;
    Place *place;            /* [rank][home tensors, slots] */
    Rank *rank;
    const char *why;
} World;

static void wrong(World *w, const char *why)
{
    if (!w->why)
        w->why = why;
}

/* ---- chunks and places ---- */

/* The rank or chunk that is x away from the rank `from`: coordinate by coordinate, each a ring, and the
 * piece as it is. */
static int away(const World *w, int from, int x)
{
    const Choice *c = w->s->choice;
    int to = x / w->ranks * w->ranks;
    for (int i = 0; i < c->coords; i++) {
        int n = c->size[i], unit = c->stride[i], sum = (from / unit) % n + (x / unit) % n;
        to += (sum >= n ? sum - n : sum) * unit;
    }
    return to;
}

static int place_on_axis(const World *w, int rank)
{
    const Choice *c = w->s->choice;
    return rank / c->stride[w->axis] % c->size[w->axis];
}

/* The rank of the row at that place of the axis. */
static int in_row(const World *w, int rank, int place)
{
    return rank + (place - place_on_axis(w, rank)) * w->s->choice->stride[w->axis];
}

static bool same_row(const World *w, int x, int y)
{
    return in_row(w, x, 0) == in_row(w, y, 0);
}

static int pieces_of(const World *w, TensorId t)
{
    return t == T_KV || t == T_DKV ? w->keys / w->ranks : 1;
}

/* Places of a rank: its own chunk of each tensor, a piece after the other, its share of each tensor's
 * heads, slots. */
static int home_piece(const World *w, int rank, TensorId t, int piece)
{
    return rank * (TENSOR_COUNT * (w->keys / w->ranks + 1) + w->slots) + TENSOR_COUNT * piece + (int)t;
}

static int home_of(const World *w, int rank, TensorId t)
{
    return home_piece(w, rank, t, 0);
}

static int share_place(const World *w, int rank, TensorId t)
{
    return home_piece(w, rank, t, w->keys / w->ranks);
}

static int slots_of(const World *w, int rank)
{
    return share_place(w, rank, 0) + TENSOR_COUNT;
}

static int next_slot(World *w, int rank, int pool, TensorId t)
{
    const Pool *p = &w->s->pool[pool];
    if (p->tensor != t)
        wrong(w, "a slot is of another tensor's size");
    if (p->slots == 0) {
        wrong(w, "a pool has no slot");
        return home_of(w, rank, t);
    }
    int k = w->rank[rank].uses[pool]++ % p->slots;
    return slots_of(w, rank) + w->first_slot[pool] + k;
}

/* ---- tasks ---- */

static Tasks no_tasks(const World *w)
{
    return NEW_ARRAY(w->arena, uint64_t, w->words);
}

static bool contains(const uint64_t *set, int task)
{
    return set[task / 64] >> (task % 64) & 1;
}

static void unite(const World *w, Tasks a, const uint64_t *b)
{
    for (size_t i = 0; i < w->words; i++)
        a[i] |= b[i];
}

static void after(const World *w, Tasks set, int task)
{
    if (task == NONE)
        return;
    unite(w, set, w->tasks.at[task].before);
    set[task / 64] |= (uint64_t)1 << (task % 64);
}

/* FREE: whatever read or sent the slot's old content is done. */
static void after_readers(const World *w, Tasks set, int place)
{
    for (int i = 0; i < w->place[place].reads.n; i++)
        after(w, set, w->place[place].reads.at[i]);
}

static void reads(World *w, int task, int which, int place)
{
    w->tasks.at[task].in[which] = place;
    *vec_push(w->arena, &w->place[place].reads) = task;
}

static void writes(World *w, int task, int which, int place, bool fresh)
{
    w->tasks.at[task].out[which] = place;
    *vec_push(w->arena, &w->place[place].writes) = (Write){.task = task, .fresh = fresh};
    if (!fresh)
        *vec_push(w->arena, &w->place[place].reads) = task;
}

static int add_task(World *w, TaskKind kind, Tasks before)
{
    *vec_push(w->arena,
              &w->tasks) = (Task){.kind = kind, .before = before, .in = {NONE, NONE}, .out = {NONE, NONE}};
    return w->tasks.n - 1;
}

static int add_computing(World *w, int rank, TaskKind kind, Tasks before)
{
    Rank *r = &w->rank[rank];
    after(w, before, r->last_compute);
    unite(w, before, r->gate);
    return r->last_compute = add_task(w, kind, before);
}

/* ---- operations ---- */

static bool in_range(const World *w, BurstTileRanges r)
{
    bool in = !w->tiles;
    for (int i = 0; i < BURST_RANGES; i++)
        in |= w->tile >= r.at[i].lo && w->tile < r.at[i].hi;
    return in;
}

static bool reads_tile(const World *w, int q, int k)
{
    return !w->tiles || in_range(w, w->tiles[q * w->keys + k].side[w->side]);
}

static uint8_t bits_of(const World *w, int op, int rank)
{
    const Instance *i = &w->s->trace.at[op];
    const TensorId t = i->node->ref[0].tensor;
    if (!w->live)
        return BURST_LIVE_COMPUTE | BURST_LIVE_SEND | BURST_LIVE_RECV;
    const size_t row = (size_t)op * (size_t)w->ranks;
    uint8_t bits = w->live->op[row + (size_t)rank];
    if (i->node->kind == N_COMPUTE || (t == T_KV || t == T_DKV) != (w->side == BURST_OF_KEYS))
        return bits;
    if (!in_range(w, w->live->tiles[row + (size_t)away(w, rank, i->hop)]))
        bits &= (uint8_t)~BURST_LIVE_SEND;
    return in_range(w, w->live->tiles[row + (size_t)rank]) ? bits : bits & (uint8_t)~BURST_LIVE_RECV;
}

/* This rank's own sum of the chunk; a new one takes a slot, which later computing may not touch before it
 * is free. */
static int own_sum(World *w, int rank, const Node *n, TensorId t, int chunk, bool heads)
{
    int *held = &w->rank[rank].held[heads][t][chunk], pool = w->s->partial_pool[t];
    if (*held != NONE)
        return *held;
    if (pool < 0) {
        wrong(w, "there is no slot for a partial sum");
        return home_of(w, rank, t);
    }
    *held = next_slot(w, rank, pool, t);
    if (n->waits & WAIT_FREE)
        after_readers(w, w->rank[rank].gate, *held);
    w->place[*held].started = false;
    return *held;
}

static void add_to(World *w, int task, int which, int place)
{
    writes(w, task, which, place, !w->place[place].started);
    w->place[place].started = true;
}

static int copy_at(World *w, int rank, TensorId t, int chunk, bool heads)
{
    int held = w->rank[rank].held[heads][t][chunk];
    if (heads != w->heads[t])
        wrong(w, "a chunk of another layout");
    if (held == NONE)
        wrong(w, "a chunk is not where it is read");
    return held == NONE ? home_of(w, rank, t) : held;
}

static void compute(World *w, int op, int rank)
{
    const Instance *i = &w->s->trace.at[op];
    static const TensorId copy[2] = {T_Q, T_KV}, sum[2][2] = {{T_O}, {T_DQ, T_DKV}};
    static const unsigned wait[2] = {WAIT_ARRIVED_Q, WAIT_ARRIVED_KV};
    const bool heads = i->node->ref[0].heads;
    int chunk[2], to[2] = {NONE, NONE};
    for (int side = 0; side < 2; side++) {
        chunk[side] = away(w, rank, i->chunk[side]);
        if (w->s->backward || side == 0) /* forward adds to O alone */
            to[side] = own_sum(w, rank, i->node, sum[w->s->backward][side], chunk[side], heads);
    }
    w->heads[T_O] |= heads && !w->s->backward;
    w->heads[T_DQ] |= heads && w->s->backward;
    w->heads[T_DKV] |= heads && w->s->backward;
    if (!(bits_of(w, op, rank) & BURST_LIVE_COMPUTE))
        return;
    Tasks before = no_tasks(w);
    int from[2];
    for (int side = 0; side < 2; side++) {
        from[side] = copy_at(w, rank, copy[side], chunk[side], heads);
        if (i->node->waits & wait[side])
            after(w, before, w->place[from[side]].arriving);
    }
    int task = add_computing(w, rank, COMPUTE, before);
    w->tasks.at[task].rank = rank;
    w->tasks.at[task].masked = !reads_tile(w, chunk[0], chunk[1]);
    for (int side = 0; side < 2; side++) {
        reads(w, task, side, from[side]);
        if (to[side] != NONE)
            add_to(w, task, side, to[side]);
    }
}

/* By heads the rank has what its row has; what a task of an exchange reads at the others of the row,
 * values find. */
static void exchange_at(World *w, int rank, TensorId t, bool to_heads, Tasks before)
{
    int task = add_task(w, EXCHANGE, before), share = share_place(w, rank, t);
    w->tasks.at[task].rank = rank;
    w->tasks.at[task].tensor = t;
    if (to_heads)
        writes(w, task, 0, share, true);
    else if (tensor_accumulates(t))
        add_to(w, task, 0, home_of(w, rank, t));
    if (to_heads)
        w->place[share].arriving = task;
    for (int c = 0; c < w->ranks && !tensor_accumulates(t); c++) {
        w->rank[rank].held[0][t][c] = !to_heads && c == rank ? home_of(w, rank, t) : NONE;
        w->rank[rank].held[1][t][c] = to_heads && c == rank ? share : NONE;
    }
}

static int merge(World *w, int rank, const Node *n, TensorId t, int chunk, bool heads);

static void exchange(World *w, const Node *n)
{
    TensorId t = n->ref[0].tensor;
    bool to_heads = n->stmt->tokens_to_heads;
    if (w->heads[t] == to_heads)
        wrong(w, "an exchange of a tensor that is laid out so already");
    if (to_heads && tensor_accumulates(t))
        wrong(w, "a result is laid out by heads before it is computed");
    Tasks before = no_tasks(w);
    for (int r = 0; r < w->ranks && n->waits & WAIT_MERGED; r++)
        merge(w, r, n, t, r, true);
    for (int r = 0; r < w->ranks; r++)
        after(w, before, w->rank[r].last_compute);
    int first = w->tasks.n;
    for (int r = 0; r < w->ranks; r++) {
        Tasks own = no_tasks(w);
        unite(w, own, before);
        exchange_at(w, r, t, to_heads, own);
    }
    for (int r = 0; r < w->ranks && !to_heads; r++)
        w->rank[r].last_compute = first + r;
    w->heads[t] = to_heads;
}

/* Adds the sums that arrived for the chunk to this rank's own; returns the last addition, or NONE. */
static int merge(World *w, int rank, const Node *n, TensorId t, int chunk, bool heads)
{
    int last = NONE, first = slots_of(w, rank);
    for (int p = first; p < first + w->slots; p++) {
        Place *in = &w->place[p];
        if (in->pending == NONE || in->chunk != chunk || in->tensor != t)
            continue;
        Tasks before = no_tasks(w);
        after(w, before, in->pending);
        int sum = n ? own_sum(w, rank, n, t, chunk, heads) : home_piece(w, rank, t, chunk / w->ranks);
        last = add_computing(w, rank, MERGE, before);
        reads(w, last, 0, p);
        add_to(w, last, 0, sum);
        w->place[p].pending = NONE;
    }
    return last;
}

typedef struct Hop { int from, to, chunk, source, slot; bool sends; Tasks waits; } Hop;

/* What a rank does before it posts a transfer: waits, the slot for what comes, and the chunk that goes. */
static void post(World *w, int op, int rank, Hop *h)
{
    const Instance *i = &w->s->trace.at[op];
    const Node *n = i->node;
    TensorId t = n->ref[0].tensor;
    bool sum = tensor_accumulates(t);
    const bool heads = w->heads[t];
    if (!sum && heads != n->ref[0].heads)
        wrong(w, "a chunk of another layout");
    *h = (Hop){.from = rank,
               .to = away(w, rank, i->hop),
               .chunk = away(w, rank, i->chunk[0]),
               .waits = no_tasks(w)};
    h->sends = bits_of(w, op, rank) & BURST_LIVE_SEND;
    for (int p = 0; p < pieces_of(w, t) && sum && n->waits & WAIT_HOME; p++)
        merge(w, rank, n, t, rank + p * w->ranks, heads);
    if (sum && n->waits & WAIT_MERGED)
        after(w, h->waits, merge(w, rank, n, t, h->chunk, heads));
    h->source = w->rank[rank].held[heads][t][h->chunk];
    if (h->source == NONE && h->sends)
        wrong(w, "a chunk is not where it is sent");
    if (h->source != NONE && !sum && n->waits & WAIT_ARRIVED)
        after(w, h->waits, w->place[h->source].arriving);
    if (sum && n->waits & WAIT_COMPUTED)
        after(w, h->waits, w->rank[rank].last_compute);
    h->slot = next_slot(w, rank, n->pool, t);
    if (n->waits & WAIT_FREE)
        after_readers(w, h->waits, h->slot);
    if (sum)
        w->rank[rank].held[heads][t][h->chunk] = NONE;
}

static void receive(World *w, int op, const Hop *from, const Hop *at)
{
    TensorId t = w->s->trace.at[op].node->ref[0].tensor;
    bool comes = bits_of(w, op, at->from) & BURST_LIVE_RECV;
    Place *slot = &w->place[at->slot];
    if (from->sends != comes)
        wrong(w, "a send has no receive, or a receive no send");
    int task = NONE;
    if (from->sends && comes && from->source != NONE) {
        Tasks before = no_tasks(w);
        unite(w, before, from->waits);
        unite(w, before, at->waits);
        task = add_task(w, TRANSFER, before);
        reads(w, task, 0, from->source);
        writes(w, task, 0, at->slot, true);
    }
    slot->arriving = task;
    slot->chunk = from->chunk;
    slot->tensor = t;
    if (slot->pending != NONE)
        wrong(w, "a sum that arrived is overwritten before it is added");
    if (tensor_accumulates(t))
        slot->pending = task;
    else
        w->rank[at->from].held[w->heads[t]][t][from->chunk] = at->slot;
}

static void transfer(World *w, int op)
{
    Hop *hop = NEW_ARRAY(w->arena, Hop, w->ranks);
    for (int r = 0; r < w->ranks; r++)
        post(w, op, r, &hop[r]);
    for (int r = 0; r < w->ranks; r++)
        receive(w, op, &hop[r], &hop[hop[r].to]);
}

/* ---- values ---- */

static bool is_before(const World *w, int x, int y)
{
    return contains(w->tasks.at[y].before, x);
}

/* What the task sees in the place: the last write before it, if all others are surely earlier or surely
 * later. */
static Value seen_by(const World *w, int place, int task)
{
    const Place *p = &w->place[place];
    const Write *last = NULL;
    bool unsure = false;
    for (int i = 0; i < p->writes.n; i++) {
        const Write *x = &p->writes.at[i];
        if (x->task == task || (x->task != NONE && is_before(w, task, x->task)))
            continue;
        bool earlier = x->task == NONE || is_before(w, x->task, task);
        bool follows = earlier && (!last || last->task == NONE || is_before(w, last->task, x->task));
        unsure |= !follows;
        if (earlier)
            last = x;
    }
    Value v = last ? last->value : (Value){.chunk = NONE, .row = NONE};
    v.unsure |= unsure || !v.written;
    return v;
}

static Write *write_of(World *w, int place, int task)
{
    for (int i = 0; i < w->place[place].writes.n; i++)
        if (w->place[place].writes.at[i].task == task)
            return &w->place[place].writes.at[i];
    return NULL;
}

static void add_counts(const World *w, Value *to, const Value *more)
{
    to->unsure |= more->unsure;
    for (int i = 0; more->count && i < w->shares * w->ranks * w->keys; i++)
        to->count[i] = (uint8_t)(to->count[i] + more->count[i]);
}

static uint8_t *new_counts(const World *w)
{
    return NEW_ARRAY(w->arena, uint8_t, w->shares * w->ranks * w->keys);
}

static uint8_t *count_of(const World *w, const Value *v, int share, int q, int k)
{
    return &v->count[(share * w->ranks + q) * w->keys + k];
}

static bool wanted(const World *w, int q, int k)
{
    return (!w->pair || w->pair[q * w->keys + k]) && reads_tile(w, q, k);
}

/* What computing adds: its pair for all heads, or all pairs of two rows for this rank's share of them. */
static Value computed(const World *w, const Task *t, const Value *q, const Value *kv)
{
    Value v = {.unsure = q->unsure || kv->unsure, .chunk = NONE, .row = NONE, .count = new_counts(w)};
    for (int share = 0; share < w->shares && q->chunk >= 0 && q->chunk < w->ranks && kv->chunk >= 0; share++)
        *count_of(w, &v, share, q->chunk, kv->chunk) = 1;
    const bool rows = q->row >= 0 && kv->row >= 0 && place_on_axis(w, q->row) == place_on_axis(w, t->rank) &&
                      place_on_axis(w, kv->row) == place_on_axis(w, t->rank);
    for (int i = 0; i < w->ranks * w->ranks && rows; i++)
        if (same_row(w, i / w->ranks, q->row) && same_row(w, i % w->ranks, kv->row))
            *count_of(w, &v, place_on_axis(w, t->rank), i / w->ranks, i % w->ranks) = wanted(w, i / w->ranks,
                                                                                             i % w->ranks);
    return v;
}

/* What an exchange brings to its rank: every chunk of its row, or of every share the sums of its own
 * chunk. */
static Value exchanged(const World *w, int task)
{
    const Task *t = &w->tasks.at[task];
    bool sum = tensor_accumulates(t->tensor);
    Value v = {.chunk = NONE, .row = sum ? NONE : t->rank, .count = new_counts(w)};
    for (int share = 0; share < w->shares; share++) {
        const int from = in_row(w, t->rank, share);
        Value part = seen_by(w, sum ? share_place(w, from, t->tensor) : home_of(w, from, t->tensor), task);
        v.unsure |= part.unsure;
        if (!sum && part.chunk != from)
            v.row = NONE;
        for (int i = 0; sum && part.count && i < w->ranks; i++) {
            int q = t->tensor == T_DKV ? i : t->rank, k = t->tensor == T_DKV ? t->rank : i;
            *count_of(w, &v, share, q, k) = *count_of(w, &part, share, q, k);
        }
    }
    return v;
}

/* The result of a task at one of its outputs: what was there, if it adds, and what it brings. */
static void run_output(World *w, int task, int which, Value brought)
{
    int place = w->tasks.at[task].out[which];
    Write *out = write_of(w, place, task);
    Value v = {.written = true, .chunk = brought.chunk, .row = brought.row, .count = new_counts(w)};
    if (!out->fresh) {
        Value old = seen_by(w, place, task);
        add_counts(w, &v, &old);
    }
    add_counts(w, &v, &brought);
    write_of(w, place, task)->value = v;
}

static void run_task(World *w, int task)
{
    const Task *t = &w->tasks.at[task];
    const Value none = {.written = true, .chunk = NONE, .row = NONE};
    Value in;
    if (t->kind == EXCHANGE) {
        in = exchanged(w, task);
    } else {
        in = t->masked && w->side == BURST_OF_QUERIES ? none : seen_by(w, t->in[0], task);
        if (t->kind == COMPUTE) {
            Value keys = t->masked && w->side == BURST_OF_KEYS ? none : seen_by(w, t->in[1], task);
            in = computed(w, t, &in, &keys);
        }
    }
    for (int which = 0; which < 2; which++)
        if (t->out[which] != NONE)
            run_output(w, task, which, in);
}

/* A result at home counts each wanted pair of its own row (or column) once, and nothing else. */
static void check_result(World *w, int rank, TensorId t, int piece)
{
    const Place *home = &w->place[home_piece(w, rank, t, piece)];
    Value v = home->writes.at[home->writes.n - 1].value;
    for (int i = 0; i < w->shares * w->ranks * w->keys; i++) {
        int q = i / w->keys % w->ranks, k = i % w->keys;
        bool mine = t == T_DKV ? k == rank + piece * w->ranks : q == rank;
        int count = v.count ? v.count[i] : 0;
        if (count != (mine && wanted(w, q, k)))
            wrong(w, count ? "a result has a pair twice, or one of another chunk" : "a result lacks a pair");
    }
    if (v.unsure)
        wrong(w, "a result depends on timing");
    if (w->heads[t])
        wrong(w, "a result is laid out by heads at the end");
}

/* ---- set-up ---- */

static void set_piece(World *w, int rank, TensorId t, int piece)
{
    const int at = home_piece(w, rank, t, piece), chunk = rank + piece * w->ranks;
    Value v = {.written = true, .chunk = chunk, .row = NONE};
    *vec_push(w->arena, &w->place[at].writes) = (Write){.task = NONE, .fresh = true, .value = v};
    w->place[at].started = true;
    w->rank[rank].held[0][t][chunk] = at;
}

static void set_home(World *w, int rank)
{
    for (int t = 0; t < TENSOR_COUNT; t++) {
        Value v = {.written = true, .chunk = rank, .row = NONE};
        if (tensor_accumulates((TensorId)t)) { /* sums begin at zero in either layout */
            *vec_push(w->arena, &w->place[share_place(w, rank, (TensorId)t)].writes) =
                (Write){.task = NONE, .fresh = true, .value = v};
            w->place[share_place(w, rank, (TensorId)t)].started = true;
        }
        const bool sum = tensor_accumulates((TensorId)t);
        for (int heads = 0; heads < 2; heads++)
            w->rank[rank].held[heads][t] = NEW_ARRAY(w->arena, int, w->keys);
        for (int c = 0; c < w->keys; c++) {
            w->rank[rank].held[0][t][c] = NONE;
            w->rank[rank].held[1][t][c] = c == rank && sum ? share_place(w, rank, (TensorId)t) : NONE;
        }
        for (int p = 0; p < pieces_of(w, (TensorId)t); p++)
            set_piece(w, rank, (TensorId)t, p);
    }
}

static World world_make(Arena *a, const Schedule *s, const Live *live, const uint8_t *pair,
                        const BurstPairTiles *tiles, int side, int tile)
{
    const Choice *c = s->choice;
    World w = {.arena = a,
               .s = s,
               .live = live,
               .pair = pair,
               .tiles = tiles,
               .side = side,
               .tile = tile,
               .ranks = c->ranks,
               .keys = c->ranks * c->schedule->pieces};
    w.shares = 1;
    w.axis = c->schedule->exchanged < 0 ? 0 : c->schedule->exchanged;
    for (int i = 0; i < s->trace.n; i++)
        if (s->trace.at[i].node->kind == N_EXCHANGE)
            w.shares = c->size[w.axis];
    w.first_slot = NEW_ARRAY(a, int, s->pools + 1);
    for (int p = 0; p < s->pools; p++) {
        w.first_slot[p] = w.slots;
        w.slots += s->pool[p].slots;
    }
    /* at most one task an operation, a merge a slot and operation, and merges at the end */
    size_t tasks = (size_t)w.ranks * (size_t)(s->trace.n + 1) * 4;
    w.words = tasks / 64 + 1;
    w.place = NEW_ARRAY(a, Place, home_of(&w, w.ranks, 0));
    for (int p = 0; p < home_of(&w, w.ranks, 0); p++)
        w.place[p].arriving = w.place[p].pending = NONE;
    w.rank = NEW_ARRAY(a, Rank, w.ranks);
    for (int r = 0; r < w.ranks; r++) {
        w.rank[r].uses = NEW_ARRAY(a, int, s->pools + 1);
        w.rank[r].last_compute = NONE;
        w.rank[r].gate = no_tasks(&w);
        set_home(&w, r);
    }
    return w;
}

static void operation(World *w, int op)
{
    const Node *n = w->s->trace.at[op].node;
    if (n->kind == N_EXCHANGE) {
        exchange(w, n);
    } else if (n->kind != N_COMPUTE) {
        transfer(w, op);
    } else {
        for (int r = 0; r < w->ranks; r++)
            compute(w, op, r);
    }
}

static Outcome execute_tile(Arena *a, const Schedule *s, const Live *live, const uint8_t *pair,
                            const BurstPairTiles *tiles, int side, int tile)
{
    World w = world_make(a, s, live, pair, tiles, side, tile);
    for (int op = 0; op < s->trace.n; op++)
        operation(&w, op);
    for (int r = 0; r < w.ranks; r++)
        for (int t = 0; t < TENSOR_COUNT; t++)
            for (int p = 0; p < pieces_of(&w, (TensorId)t); p++)
                merge(&w, r, NULL, (TensorId)t, r + p * w.ranks, false);
    for (int task = 0; task < w.tasks.n; task++)
        run_task(&w, task);
    for (int r = 0; r < w.ranks; r++) {
        check_result(&w, r, s->backward ? T_DQ : T_O, 0);
        for (int p = 0; p < pieces_of(&w, T_DKV) && s->backward; p++)
            check_result(&w, r, T_DKV, p);
    }
    return (Outcome){!w.why, w.why ? w.why : ""};
}

Outcome execute(Arena *a, const Schedule *s, const Live *live, const uint8_t *pair)
{
    return execute_tile(a, s, live, pair, NULL, 0, 0);
}

Outcome execute_ranges(Arena *a, const Schedule *s, const Live *live, const uint8_t *pair,
                       const BurstPairTiles *tiles, int most)
{
    Outcome o = {true, ""};
    for (int i = 0; i < BURST_SIDES * most && o.right; i++)
        o = execute_tile(a, s, live, pair, tiles, i / most, i % most);
    return o;
}
