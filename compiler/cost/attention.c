/* cost/attention.c: simulates one direction of one layer's attention as tasks.
 *
 * The trace gives the dependencies once for all ranks (Links), as in slots.c: computing waits for its
 * chunks, a pass for its chunk and, if that is a sum, for what adds to it, an arrival for its slot. Devices
 * overlap transfers with computing. A cpu rank copies when it waits: there an arrival takes the rank's own
 * time, just before the first operation that reads it, and a chunk can be received only once its sender's
 * program has reached the pass. */
#include "cost/cost.h"

#include "base/parallel.h"
#include "burst_int.h"

#include <math.h>

typedef struct Read { int arrival, reader, next_of_arrival, next_of_reader; } Read;
/* Dependencies between instances of the trace; -1: none. */
typedef struct Links {
    Vec(Read) reads;
    int *of_arrival, *of_reader; /* [n] heads of lists of reads */
    int *computed;               /* pass of a sum: the last computing that adds to it */
    int (*previous)[2];          /* computing: the previous one with the same Q, KV chunk */
    int *slot_before;            /* arrival: the one that had its slot before */
    int (*partial_before)[2];    /* computing that starts a partial dQ, dKV: the pass that frees its slot */
} Links;

/* State of the replay of the trace. */
typedef struct Replay {
    Arena *arena;
    const Schedule *s;
    Links links;
    /* [relative chunk] copies: the arrival that brought it; at its owner: the exchange */
    int *held[TENSOR_COUNT];
    int *pending[TENSOR_COUNT]; /* sums: the last arrival not yet passed on; earlier ones by pending_next */
    int *pending_next;          /* [n] */
    int *last[2];               /* [relative chunk] last computing with it as Q, KV */
    int *open[TENSOR_COUNT];    /* [relative chunk] index of the partial sum held here */
    Vec(int) *uses;             /* [pools] arrivals */
    Vec(int) closed[TENSOR_COUNT]; /* for each partial sum: the pass that sends it on */
} Replay;

static bool transfers(const Instance *i)
{
    return i->node->kind == N_PASS || i->node->kind == N_RETURN;
}

static int *filled(Arena *a, int n)
{
    int *p = NEW_ARRAY(a, int, n ? n : 1);
    for (int i = 0; i < n; i++)
        p[i] = -1;
    return p;
}

static void add_read(Replay *r, int arrival, int reader)
{
    Links *l = &r->links;
    if (arrival < 0)
        return;
    *vec_push(r->arena, &l->reads) = (Read){arrival, reader, l->of_arrival[arrival], l->of_reader[reader]};
    l->of_arrival[arrival] = l->of_reader[reader] = l->reads.n - 1;
}

static void replay_arrival(Replay *r, int at)
{
    const Instance *i = &r->s->trace.at[at];
    TensorId t = i->node->ref[0].tensor;
    int there = rel_sub(r->s->choice, i->chunk[0], i->hop), pool = i->node->pool;
    if (pool >= 0 && pool < r->s->pools) {
        int k = r->uses[pool].n, before = k - r->s->pool[pool].slots;
        *vec_push(r->arena, &r->uses[pool]) = at;
        r->links.slot_before[at] = before >= 0 ? r->uses[pool].at[before] : -1;
    }
    if (tensor_accumulates(t)) {
        r->pending_next[at] = r->pending[t][there];
        r->pending[t][there] = at;
    } else if (!chunk_is_own(r->s->choice, there)) {
        r->held[t][there] = at;
    }
}

/* Adds the sums that arrived for the chunk. */
static void read_pending(Replay *r, TensorId t, int chunk, int at)
{
    for (int p = r->pending[t][chunk]; p >= 0; p = r->pending_next[p])
        add_read(r, p, at);
    r->pending[t][chunk] = -1;
}

static void replay_transfer(Replay *r, int at)
{
    const Instance *i = &r->s->trace.at[at];
    TensorId t = i->node->ref[0].tensor;
    int chunk = i->chunk[0];
    if (tensor_accumulates(t)) {
        read_pending(r, t, chunk, at);
        for (int home = 0; home < choice_chunks(r->s->choice) && i->node->waits & WAIT_HOME;
             home += r->s->choice->ranks)
            read_pending(r, t, home, at);
        r->links.computed[at] = r->last[t == T_DKV][chunk];
        if (r->open[t][chunk] >= 0)
            r->closed[t].at[r->open[t][chunk]] = at;
        r->open[t][chunk] = -1;
    } else {
        add_read(r, r->held[t][chunk], at);
    }
    replay_arrival(r, at);
}

static void open_partial(Replay *r, int at, int side, TensorId t, int chunk)
{
    int pool = r->s->partial_pool[t];
    if (chunk_is_own(r->s->choice, chunk) || r->open[t][chunk] >= 0 || pool < 0 || pool >= r->s->pools)
        return;
    int before = r->closed[t].n - r->s->pool[pool].slots;
    r->links.partial_before[at][side] = before >= 0 ? r->closed[t].at[before] : -1;
    r->open[t][chunk] = r->closed[t].n;
    *vec_push(r->arena, &r->closed[t]) = -1;
}

static void replay_compute(Replay *r, int at)
{
    static const TensorId copy[2] = {T_Q, T_KV};
    const Instance *i = &r->s->trace.at[at];
    for (int side = 0; side < 2; side++) {
        int chunk = i->chunk[side];
        add_read(r, r->held[copy[side]][chunk], at);
        r->links.previous[at][side] = r->last[side][chunk];
        r->last[side][chunk] = at;
        if (result_tensor(r->s->backward, side) >= 0)
            open_partial(r, at, side, (TensorId)result_tensor(r->s->backward, side), chunk);
    }
}

/* An exchange brings the rank's own Q and KV, and takes the sums that arrived for it. */
static void replay_exchange(Replay *r, int at)
{
    const TensorId t = r->s->trace.at[at].node->ref[0].tensor;
    if (tensor_accumulates(t))
        read_pending(r, t, 0, at);
    else
        r->held[t][0] = at;
}

static void start_replay(Replay *r)
{
    int n = r->s->trace.n, chunks = choice_chunks(r->s->choice);
    Links *l = &r->links;
    l->of_arrival = filled(r->arena, n);
    l->of_reader = filled(r->arena, n);
    l->computed = filled(r->arena, n);
    l->slot_before = filled(r->arena, n);
    l->previous = (int(*)[2])filled(r->arena, 2 * n);
    l->partial_before = (int(*)[2])filled(r->arena, 2 * n);
    r->pending_next = filled(r->arena, n);
    for (int side = 0; side < 2; side++)
        r->last[side] = filled(r->arena, chunks);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        r->held[t] = filled(r->arena, chunks);
        r->pending[t] = filled(r->arena, chunks);
        r->open[t] = filled(r->arena, chunks);
    }
    r->uses = arena_alloc(r->arena, sizeof *r->uses * (size_t)(r->s->pools + 1));
}

static Links links_make(Arena *a, const Schedule *s)
{
    Replay r = {.arena = a, .s = s};
    start_replay(&r);
    for (int at = 0; at < s->trace.n; at++) {
        const Instance *i = &s->trace.at[at];
        if (i->node->kind == N_COMPUTE)
            replay_compute(&r, at);
        else if (transfers(i))
            replay_transfer(&r, at);
        else
            replay_exchange(&r, at);
    }
    return r.links;
}

/* ---- tasks ---- */

/* [ranks] The simulated rank a hop away, and the rank from which one comes. */
typedef struct Hop { int *to, *from; } Hop;

typedef struct Build {
    Arena *arena, *result; /* of the simulation; of its results */
    const AttentionInput *in;
    Links links;
    Sim *sim;
    Hop *hop; /* [relative chunks] made on first use */
    /* [trace.n][ranks], -1: none */
    int *task;   /* computing, the transfer that arrives, or the begin of the rank's part of an exchange */
    int *usable; /* arrival: the task after which it can be read; exchange: the end of the rank's part */
    int *posted; /* cpu: the rank's last task before its program reaches this instance */
    /* [trace.n][ranks] EXCHANGE: task at which all ranks that share heads have everything; in the cell of
     * the first such rank */
    int *join;
    /* cpu: arrivals copied just before this instance; row trace.n: at the end */
    int *anchored, *anchored_next;
    int *next_wait; /* [trace.n] the next instance that waits for the slot of a partial sum */
    int *tail;   /* [ranks] last task in the rank's own order */
    RankLaunch *launch; /* [ranks] of the last pair with others' keys */
    int *launch_task; /* [ranks] its first task, which waits for all that its pairs read */
} Build;

static size_t cell(const Build *b, int at, int rank)
{
    return (size_t)at * (size_t)b->in->ranks + (size_t)rank;
}

/* A hop along one coordinate, of which fewer values may be simulated: a hop that would come back to its
 * origin goes half-way round instead. */
static int grid_hop(const AttentionInput *in, int hop, int i)
{
    const int real = rel_hop(in->schedule->choice, hop, i),
              simulated = (int)burst_floor_mod(real, in->size[i]);
    return real && !simulated ? in->size[i] / 2 : simulated;
}

int grid_add(const AttentionInput *in, int rank, int hop)
{
    const Choice *c = in->schedule->choice;
    int to = 0;
    for (int i = 0; i < c->coords; i++) {
        int64_t here = rank / in->stride[i] % in->size[i];
        to += (int)burst_floor_mod(here + grid_hop(in, hop, i), in->size[i]) * in->stride[i];
    }
    return to;
}

static const Hop *hop_of(const Build *b, int hop)
{
    const int ranks = b->in->ranks;
    Hop *h = &b->hop[hop];
    if (h->to)
        return h;
    *h = (Hop){NEW_ARRAY(b->arena, int, ranks), NEW_ARRAY(b->arena, int, ranks)};
    for (int r = 0; r < ranks; r++) {
        h->to[r] = grid_add(b->in, r, hop);
        h->from[h->to[r]] = r;
    }
    return h;
}

/* Seconds of so many passes over the bytes in device memory. */
static double passes_seconds(const AttentionInput *in, int rank, int passes, double bytes)
{
    const NodeGroup *g = links_group(in, rank);
    return g->device->hbm > 0 ? passes * bytes / (g->device->hbm * cost_rate_share(in->cluster, g)) : 0;
}

static void make_arrivals(Build *b, int at)
{
    const Instance *i = &b->in->schedule->trace.at[at];
    const Hop *hop = hop_of(b, i->hop);
    for (int from = 0; from < b->in->ranks; from++) {
        int to = hop->to[from];
        double bytes = b->in->bytes[cell(b, at, to)];
        if (bytes <= 0 || from == to)
            continue;
        int task = sim_task(b->sim, links_hop(b->in, from, to, bytes)), last = task;
        if (tensor_accumulates(i->node->ref[0].tensor)) { /* reads two operands, writes one */
            last = sim_task(b->sim, (Task){.class = COST_MERGE,
                                           .seconds = passes_seconds(b->in, to, 3, bytes)});
            sim_after(b->sim, last, task);
        }
        b->task[cell(b, at, to)] = task;
        b->usable[cell(b, at, to)] = last;
    }
}

/* ---- all-to-all ---- */

/* Cell of the join of the exchange among the ranks that share heads with this one. */
static size_t join_cell(const Build *b, int at, int rank)
{
    const int x = b->in->schedule->choice->schedule->exchanged;
    return cell(b, at, rank - rank / b->in->stride[x] % b->in->size[x] * b->in->stride[x]);
}

/* Bytes that the rank keeps and copies: of an exchange in pieces those of all pieces, with the first one to
 * heads and the last one to tokens. */
static double kept_bytes(const Build *b, int at, int rank)
{
    const Trace *t = &b->in->schedule->trace;
    const Node *n = t->at[at].node;
    const int shares = b->in->size[b->in->schedule->choice->schedule->exchanged];
    int pieces = 0, before = 0;
    for (int i = 0; i < t->n; i++)
        if (t->at[i].node == n) {
            pieces++;
            before += i < at;
        }
    const bool copied = before == (n->stmt->tokens_to_heads ? 0 : pieces - 1);
    return copied ? pieces * b->in->bytes[cell(b, at, rank)] / (shares - 1) : 0;
}

/* What a rank keeps is copied row by row. Rate on a device, of its memory's: measured on H200s
 * (benchmarks/log/2026-11-29-predicted-steps.md). */
static double kept_seconds(const Build *b, int at, int rank)
{
    static const double rows = 0.36;
    return passes_seconds(b->in, rank, 2, kept_bytes(b, at, rank)) /
           (b->in->cluster->target->device_memory ? rows : 1);
}

/* Each rank's part begins and ends with a task of zero length, `task` and `usable`; the exchange ends with
 * the last part. Data that stays on the rank is copied after its sends. */
static void make_exchange(Build *b, int at)
{
    for (int r = 0; r < b->in->ranks; r++) {
        int *join = &b->join[join_cell(b, at, r)];
        *join = *join < 0 ? sim_task(b->sim, (Task){.class = COST_LINK}) : *join;
        int start = sim_task(b->sim, (Task){.class = COST_LINK}),
            sends = sim_task(b->sim, (Task){.class = COST_LINK}),
            end = sim_task(b->sim, (Task){.class = COST_LINK});
        double sent = b->in->bytes[cell(b, at, r)], received = b->in->received[cell(b, at, r)],
               share[DISTANCES];
        links_shares(b->in, r, share);
        for (int far = 0; far < 2 + b->in->cluster->levels; far++)
            links_exchange(b->sim, b->in, r, sent * share[far], received * share[far], far, start, sends,
                           end);
        const int own = sim_task(b->sim, (Task){.class = COST_LINK, .seconds = kept_seconds(b, at, r)});
        sim_after(b->sim, sends, start);
        sim_after(b->sim, own, sends);
        sim_after(b->sim, end, own);
        sim_after(b->sim, *join, end);
        b->task[cell(b, at, r)] = start;
        b->usable[cell(b, at, r)] = end;
    }
}

static void make_tasks(Build *b)
{
    for (int at = 0; at < b->in->schedule->trace.n; at++) {
        const Instance *i = &b->in->schedule->trace.at[at];
        if (i->node->kind == N_EXCHANGE && b->in->size[b->in->schedule->choice->schedule->exchanged] > 1)
            make_exchange(b, at);
        if (transfers(i))
            make_arrivals(b, at);
        for (int r = 0; i->node->kind == N_COMPUTE && r < b->in->ranks; r++)
            if (b->in->seconds[cell(b, at, r)] > 0)
                b->task[cell(b, at, r)] = sim_task(b->sim, (Task){.class = COST_COMPUTE,
                                                                  .seconds = b->in->seconds[cell(b, at, r)]});
    }
}

/* ---- a rank's own order: computing, and on cpu the copies between ---- */

/* The task in which a rank reads an arrival: its computing, or its pass (a task of the rank it goes to). */
static int reader_task(const Build *b, int reader, int rank)
{
    const Instance *i = &b->in->schedule->trace.at[reader];
    return b->task[cell(b, reader, transfers(i) ? hop_of(b, i->hop)->to[rank] : rank)];
}

/* Finds the instances that wait for the slot of a partial sum. There a cpu rank copies whatever has arrived,
 * so each is the latest point at which an earlier unread arrival is copied. */
static void find_waits(Build *b)
{
    int next = b->in->schedule->trace.n;
    for (int at = next - 1; at >= 0; at--) {
        b->next_wait[at] = next;
        if (b->links.partial_before[at][0] >= 0 || b->links.partial_before[at][1] >= 0)
            next = at;
    }
}

static void anchor_arrivals(Build *b, int rank)
{
    int n = b->in->schedule->trace.n;
    for (int at = n - 1; at >= 0; at--) {
        if (!transfers(&b->in->schedule->trace.at[at]) || b->task[cell(b, at, rank)] < 0)
            continue;
        int first = b->next_wait[at];
        const Instance *i = &b->in->schedule->trace.at[at];
        /* added at its owner, whether or not the next pass is sent */
        bool home = chunk_is_own(b->in->schedule->choice,
                                  rel_sub(b->in->schedule->choice, i->chunk[0], i->hop));
        for (int e = b->links.of_arrival[at]; e >= 0; e = b->links.reads.at[e].next_of_arrival)
            if (b->links.reads.at[e].reader < first &&
                (home || reader_task(b, b->links.reads.at[e].reader, rank) >= 0))
                first = b->links.reads.at[e].reader;
        b->anchored_next[cell(b, at, rank)] = b->anchored[cell(b, first, rank)];
        b->anchored[cell(b, first, rank)] = at;
    }
}

static void order_arrivals(Build *b, int at, int rank)
{
    for (int j = b->anchored[cell(b, at, rank)]; j >= 0; j = b->anchored_next[cell(b, j, rank)]) {
        sim_after(b->sim, b->task[cell(b, j, rank)], b->tail[rank]);
        b->tail[rank] = b->usable[cell(b, j, rank)];
    }
}

static void order_exchange(Build *b, int at, int rank)
{
    const bool early = b->in->pieces && b->in->schedule->trace.at[at].node->stmt->tokens_to_heads;
    sim_after(b->sim, b->task[cell(b, at, rank)], early ? -1 : b->tail[rank]);
    if (b->in->cluster->target->copies_at_wait)
        b->tail[rank] = b->join[join_cell(b, at, rank)];
}

static void order_compute(Build *b, int at, int rank)
{
    int task = b->task[cell(b, at, rank)];
    if (task < 0)
        return;
    sim_after(b->sim, task, b->tail[rank]);
    b->tail[rank] = task;
}

/* A device adds the sums that a pass waits for on its compute stream: what it computes after waits too. */
static void order_merges(Build *b, int at, int rank)
{
    const Instance *i = &b->in->schedule->trace.at[at];
    const int task = b->task[cell(b, at, hop_of(b, i->hop)->to[rank])];
    if (!tensor_accumulates(i->node->ref[0].tensor) || b->links.of_reader[at] < 0 || task < 0)
        return;
    const int merged = sim_task(b->sim, (Task){.class = COST_COMPUTE});
    sim_after(b->sim, merged, b->tail[rank]);
    for (int e = b->links.of_reader[at]; e >= 0; e = b->links.reads.at[e].next_of_reader)
        sim_after(b->sim, merged, b->usable[cell(b, b->links.reads.at[e].arrival, rank)]);
    b->tail[rank] = merged;
}

static void order_rank(Build *b, int rank)
{
    int n = b->in->schedule->trace.n;
    b->tail[rank] = -1;
    if (b->in->cluster->target->copies_at_wait)
        anchor_arrivals(b, rank);
    for (int at = 0; at < n; at++) {
        order_arrivals(b, at, rank);
        b->posted[cell(b, at, rank)] = b->tail[rank];
        if (b->in->schedule->trace.at[at].node->kind == N_EXCHANGE && b->task[cell(b, at, rank)] >= 0)
            order_exchange(b, at, rank);
        else if (b->in->schedule->trace.at[at].node->kind == N_COMPUTE)
            order_compute(b, at, rank);
        else if (transfers(&b->in->schedule->trace.at[at]) && !b->in->cluster->target->copies_at_wait)
            order_merges(b, at, rank);
    }
    order_arrivals(b, n, rank);
}

/* ---- other dependencies ---- */

static void wait_for_reads(Build *b, int task, int reader, int rank)
{
    for (int e = b->links.of_reader[reader]; e >= 0; e = b->links.reads.at[e].next_of_reader) {
        const int at = b->links.reads.at[e].arrival;
        const bool exchange = b->in->schedule->trace.at[at].node->kind == N_EXCHANGE;
        sim_after(b->sim, task, exchange ? b->join[join_cell(b, at, rank)] : b->usable[cell(b, at, rank)]);
    }
}

static void wait_for_sum(Build *b, int task, int at, int rank)
{
    int side = b->in->schedule->trace.at[at].node->ref[0].tensor == T_DKV;
    int k = b->links.computed[at];
    while (k >= 0 && b->task[cell(b, k, rank)] < 0) /* empty pairs add nothing */
        k = b->links.previous[k][side];
    if (k >= 0)
        sim_after(b->sim, task, b->task[cell(b, k, rank)]);
}

static void wait_for_slot(Build *b, int task, int at, int rank)
{
    int before = b->links.slot_before[at];
    if (before < 0)
        return;
    sim_after(b->sim, task, b->usable[cell(b, before, rank)]);
    if (tensor_accumulates(b->in->schedule->trace.at[at].node->ref[0].tensor))
        return; /* the slot is free once merged */
    for (int e = b->links.of_arrival[before]; e >= 0; e = b->links.reads.at[e].next_of_arrival)
        sim_after(b->sim, task, reader_task(b, b->links.reads.at[e].reader, rank));
}

static void link_arrivals(Build *b, int at, int *channel_last)
{
    const Instance *i = &b->in->schedule->trace.at[at];
    const Hop *hop = hop_of(b, i->hop);
    for (int from = 0; from < b->in->ranks; from++) {
        int to = hop->to[from], task = b->task[cell(b, at, to)];
        if (task < 0)
            continue;
        wait_for_reads(b, task, at, from);
        wait_for_sum(b, task, at, from);
        wait_for_slot(b, task, at, to);
        if (b->in->cluster->target->copies_at_wait) {
            sim_after(b->sim, task, b->posted[cell(b, at, from)]);
        } else {
            int *last = &channel_last[cell(b, i->node->channel, from)];
            sim_after(b->sim, task, *last);
            *last = task;
        }
    }
}

/* The task that waits for what the pair reads: the first of its launch. */
static int launch_task(Build *b, int at, int rank)
{
    const Schedule *s = b->in->schedule;
    const int task = b->task[cell(b, at, rank)];
    if (chunk_is_own(s->choice, s->trace.at[at].chunk[1]))
        return task;
    if (schedule_begins_launch(s, at, &b->launch[rank]))
        b->launch_task[rank] = task;
    return b->launch_task[rank];
}

static void link_compute(Build *b, int at)
{
    for (int r = 0; r < b->in->ranks; r++) {
        int task = b->task[cell(b, at, r)];
        if (task < 0)
            continue;
        wait_for_reads(b, launch_task(b, at, r), at, r);
        for (int side = 0; side < 2; side++)
            if (b->links.partial_before[at][side] >= 0)
                sim_after(b->sim, task, reader_task(b, b->links.partial_before[at][side], r));
    }
}

/* The exchange waits for the sums that arrived for the chunks that it sends, and for the piece before it. */
static void link_exchange(Build *b, int at, int *channel_last)
{
    for (int r = 0; r < b->in->ranks; r++) {
        const int task = b->task[cell(b, at, r)];
        int *last = &channel_last[cell(b, b->in->schedule->trace.at[at].node->channel, r)];
        if (task < 0)
            continue;
        wait_for_reads(b, task, at, r);
        sim_after(b->sim, task, b->in->pieces ? *last : -1);
        *last = b->usable[cell(b, at, r)];
    }
}

static void link_tasks(Build *b)
{
    const Schedule *s = b->in->schedule;
    int *channel_last = filled(b->arena, (s->channels + 1) * b->in->ranks);
    find_waits(b);
    for (int r = 0; r < b->in->ranks; r++)
        order_rank(b, r);
    for (int at = 0; at < s->trace.n; at++) {
        if (transfers(&s->trace.at[at]))
            link_arrivals(b, at, channel_last);
        else if (s->trace.at[at].node->kind == N_COMPUTE)
            link_compute(b, at);
        else
            link_exchange(b, at, channel_last);
    }
}

/* ---- result ---- */

static void add_interval(AttentionTime *t, Busy *out, int rank, int channel, int at, double begin, double end)
{
    out[t->intervals++] = (Busy){rank, channel, at, begin, end};
    t->end[rank] = fmax(t->end[rank], end);
    *(channel < 0 ? &t->busy[rank] : &t->passing[rank]) += end - begin;
}

static void count_bytes(AttentionTime *t, const Task *task, int from, int to)
{
    t->sent[from] += task->bytes;
    t->received[to] += task->bytes;
    links_count(t, links_distance(task->class), task->bytes);
}

static void collect_exchange(Build *b, AttentionTime *t, int at, int rank)
{
    double sent = b->in->bytes[cell(b, at, rank)], share[DISTANCES];
    links_shares(b->in, rank, share);
    t->sent[rank] += sent;
    t->received[rank] += b->in->received[cell(b, at, rank)];
    for (int far = 0; far < 2 + b->in->cluster->levels; far++)
        links_count(t, far, sent * share[far]);
    t->end[rank] = fmax(t->end[rank], sim_at(b->sim, b->join[join_cell(b, at, rank)])->end);
}

static void collect(Build *b, AttentionTime *t, Busy *out, int at, int rank)
{
    const Instance *i = &b->in->schedule->trace.at[at];
    int task = b->task[cell(b, at, rank)], other = b->usable[cell(b, at, rank)];
    if (task < 0)
        return;
    bool exchange = i->node->kind == N_EXCHANGE;
    add_interval(t, out, rank, i->node->kind == N_COMPUTE ? -1 : i->node->channel, at,
                 sim_at(b->sim, task)->begin, sim_at(b->sim, exchange ? other : task)->end);
    if (transfers(i)) {
        count_bytes(t, sim_at(b->sim, task), hop_of(b, i->hop)->from[rank], rank);
        t->end[rank] = fmax(t->end[rank], sim_at(b->sim, other)->end); /* merged */
    } else if (exchange) {
        collect_exchange(b, t, at, rank);
    }
}

/* Walks back from the task that ends last. Each task began when its cause ended, so the parts add up to the
 * whole. */
static void critical_path(const Build *b, int last, AttentionTime *t)
{
    for (; last >= 0; last = sim_at(b->sim, last)->cause)
        t->path[sim_at(b->sim, last)->class] += sim_at(b->sim, last)->end - sim_at(b->sim, last)->begin;
}

/* When and with how much left each concurrent collective ends. After attention they run alone, one after the
 * other. */
static void collect_overlapped(const Build *b, const int *overlapped, AttentionTime *t)
{
    double before = t->seconds;
    t->overlapped = NEW_ARRAY(b->result, Overlapped, b->in->overlaps);
    for (int i = 0; i < b->in->overlaps; i++) {
        const double end = sim_at(b->sim, overlapped[i])->end;
        t->overlapped[i] = (Overlapped){.end = fmin(end, t->seconds), .left = fmax(0, end - before)};
        before = fmax(before, end);
    }
}

static AttentionTime collect_all(Build *b, int tasks)
{
    int n = b->in->schedule->trace.n, ranks = b->in->ranks, last = -1;
    for (int i = 0; i < tasks; i++)
        if (last < 0 || sim_at(b->sim, i)->end > sim_at(b->sim, last)->end)
            last = i;
    AttentionTime t = {.seconds = last >= 0 ? sim_at(b->sim, last)->end : 0};
    t.busy = NEW_ARRAY(b->result, double, ranks);
    t.passing = NEW_ARRAY(b->result, double, ranks);
    t.end = NEW_ARRAY(b->result, double, ranks);
    t.sent = NEW_ARRAY(b->result, double, ranks);
    t.received = NEW_ARRAY(b->result, double, ranks);
    Busy *out = NEW_ARRAY(b->result, Busy, n * ranks + 1);
    for (int at = 0; at < n; at++)
        for (int r = 0; r < ranks; r++)
            collect(b, &t, out, at, r);
    t.interval = out;
    critical_path(b, last, &t);
    return t;
}

/* With all tasks, but nothing that they wait for. in: with NICs. */
static Build build_tasks(Arena *a, const AttentionInput *in)
{
    const int cells = (in->schedule->trace.n + 1) * in->ranks;
    Build b = {.arena = a, .in = in, .sim = links_sim(a, in)};
    b.hop = NEW_ARRAY(a, Hop, choice_chunks(in->schedule->choice));
    b.task = filled(a, cells);
    b.usable = filled(a, cells);
    b.join = filled(a, cells);
    make_tasks(&b);
    return b;
}

double attention_moving(const AttentionInput *in)
{
    Arena *a = arena_new();
    const AttentionInput with_nics = links_with_nics(a, in);
    const Build b = build_tasks(a, &with_nics);
    const double seconds = sim_moving(b.sim);
    arena_free(a);
    return seconds;
}

AttentionTime attention_simulate(Arena *result, const AttentionInput *of)
{
    Arena *a = arena_new();
    const AttentionInput with_nics = links_with_nics(a, of), *in = &with_nics;
    int n = in->schedule->trace.n, cells = (n + 1) * in->ranks;
    Build b = build_tasks(a, in);
    b.result = result;
    b.links = links_make(a, in->schedule);
    b.posted = filled(a, cells);
    b.anchored = filled(a, cells);
    b.anchored_next = filled(a, cells);
    b.tail = filled(a, in->ranks);
    b.launch = NEW_ARRAY(a, RankLaunch, in->ranks);
    for (int r = 0; r < in->ranks; r++)
        b.launch[r] = NO_LAUNCH;
    b.launch_task = filled(a, in->ranks);
    b.next_wait = filled(a, n);
    link_tasks(&b);
    const int tasks = sim_tasks(b.sim);
    const double moving = sim_moving(b.sim);
    int *overlapped = NEW_ARRAY(a, int, in->overlaps);
    for (int i = 0; i < in->overlaps; i++)
        overlapped[i] = links_collective(b.sim, in, in->overlapped[i], i ? overlapped[i - 1] : -1);
    const bool ends = isfinite(sim_run(b.sim));
    AttentionTime t = collect_all(&b, tasks);
    collect_overlapped(&b, overlapped, &t);
    t.seconds = ends ? t.seconds : INFINITY;
    t.moving = moving;
    arena_free(a);
    return t;
}

/* ---- several attentions ---- */

typedef struct Simulation {
    Arena *arena;
    const AttentionInput *in;
    AttentionTime time;
} Simulation;

static void simulate_own(void *simulations, int i)
{
    Simulation *s = (Simulation *)simulations + i;
    s->arena = arena_new();
    s->time = attention_simulate(s->arena, s->in);
}

void attention_simulate_all(Arena *result, int n, const AttentionInput *const in[], AttentionTime out[])
{
    Simulation *all = NEW_ARRAY(result, Simulation, n);
    for (int i = 0; i < n; i++)
        all[i].in = in[i];
    parallel(n, simulate_own, all);
    for (int i = 0; i < n; i++) {
        out[i] = all[i].time;
        arena_join(result, all[i].arena);
    }
}
