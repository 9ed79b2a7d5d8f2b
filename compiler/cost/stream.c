/* cost/stream.c: the step's operations on a rank's streams: computing in order; collectives of weights and
 * gradients, one after the other, concurrently with it; copies to and from host memory and tensor ranks'
 * communication likewise; attention as its own simulation.
 *
 * Ranks meet where attention begins and ends, and where a collective is queued or awaited: between two
 * meetings the slowest counts. Collectives in flight during attention share links and NICs with it
 * (cost/links.c); such an attention is simulated once for each state of the wire at its begin, so equal
 * layers cost nothing more. Copies have the bus to the host to themselves; copies to the host, on a stream
 * of their own, overlap the others and share the host's memory bandwidth with them. On a target that copies
 * when it waits, collectives and copies take the rank's own time. */
#include "cost/cost.h"

#include <math.h>
#include <string.h>

typedef struct Queued {
    const TimedOp *op;
    Collective left;
    double from; /* begin of the time not yet recorded */
} Queued;
/* Computing since the last meeting: all, its recomputed part, and what collectives took of it. */
typedef struct Pending { double all, again, taken; } Pending;
typedef struct Copying { const TimedOp *op; double left; /* seconds, alone */ } Copying;
enum { COPY_STREAMS = 2 };
typedef struct Streams {
    Arena *arena;
    StepParts *parts;
    const StepModel *model;
    Pending *pending; /* [rank kinds] */
    Vec(Queued) queue;   /* unfinished collectives; the first is on the wire */
    /* unfinished copies in order; [1]: those of STREAM_DOWNLOADS */
    Vec(Copying) copies[COPY_STREAMS];
    double both;         /* slowdown of copies while both streams copy */
    int tensors;         /* tensor ranks' operations not yet waited for */
    double tensor_left;  /* their seconds */
    double now, times;   /* seconds since the sequence began; number of sequences that this one stands for */
    const TimedOp *at;
    bool shared;         /* collectives and attention slow each other down */
    Recorder *record;
} Streams;

static const int row_of[BURST_P_COUNT] = {
#define X(id, row, name) [BURST_P_##id] = BURST_ROW_##row,
    BURST_PARTS(X)
#undef X
};

/* a, b: for collectives, whether the embedding's, and the visit whose unit they are. */
static void add_span(Streams *s, int lane, int part, int a, int b, double begin, double end)
{
    if (end <= begin)
        return;
    s->parts->rows[row_of[part]] += s->times * (end - begin);
    if (s->record)
        record_span(s->record, (BurstSpan){.begin = begin,
                                           .end = end,
                                           .a = a,
                                           .b = b,
                                           .part = (int16_t)part,
                                           .lane = (int16_t)lane});
}

/* ---- collectives ---- */

static void add_collective(Streams *s, const Queued *q, double end)
{
    const StepOp *at = q->op->op;
    const Op *o = at->op;
    add_span(s, BURST_LANE_WEIGHTS, q->op->part, o->embedding,
             op_visit(s->model->step, at) + (o->kind == OP_GATHER ? o->write[0].next : 0), q->from, end);
}

static void drop_done(Streams *s)
{
    int left = 0;
    for (int i = 0; i < s->queue.n; i++)
        if (s->queue.at[i].left.seconds > 0)
            s->queue.at[left++] = s->queue.at[i];
    s->queue.n = left;
}

/* Seconds of the first n copies of a stream if alone, up to `most`. */
static double copies_left(const Streams *s, int stream, int n, double most)
{
    double seconds = 0;
    for (int i = 0; i < n && seconds < most; i++)
        seconds += s->copies[stream].at[i].left;
    return fmin(seconds, most);
}

/* The part of these that overlaps copies of the other stream. */
static double copies_overlap(const Streams *s, int stream, int n, double most)
{
    const double here = copies_left(s, stream, n, most);
    return copies_left(s, !stream, s->copies[!stream].n, here);
}

/* seconds: of copying alone. */
static void pass_stream(Streams *s, int stream, double seconds)
{
    int done = 0;
    for (int n = s->copies[stream].n; done < n; done++) {
        Copying *c = &s->copies[stream].at[done];
        const double moved = fmin(c->left, seconds);
        c->left -= moved;
        seconds -= moved;
        if (c->left > 0)
            break;
    }
    if (done == 0)
        return;
    s->copies[stream].n -= done;
    memmove(s->copies[stream].at, s->copies[stream].at + done,
            (size_t)s->copies[stream].n * sizeof *s->copies[stream].at);
}

static void pass_copies(Streams *s, double seconds)
{
    if (!s->copies[0].n && !s->copies[1].n)
        return;
    const double overlapped = copies_overlap(s, 0, s->copies[0].n, seconds / s->both);
    for (int i = 0; i < COPY_STREAMS; i++)
        pass_stream(s, i, seconds - overlapped * (s->both - 1));
}

/* Sets the seconds that the collective has left beside computing. */
static void set_left(Collective *c, double seconds)
{
    c->alone *= c->seconds > 0 ? seconds / c->seconds : 0;
    c->seconds = seconds;
}

/* Whether the rank computes meanwhile, which slows collectives that add. */
typedef enum Meanwhile { COMPUTING, WAITING } Meanwhile;

/* Passes time in which attention does not use the wire. */
static void pass_time(Streams *s, Meanwhile meanwhile, double seconds)
{
    double at = s->now;
    pass_copies(s, seconds);
    s->tensor_left = fmax(0, s->tensor_left - seconds);
    for (int i = 0; i < s->queue.n && seconds > 0; i++) {
        Queued *q = &s->queue.at[i];
        const double all = meanwhile == WAITING ? q->left.alone : q->left.seconds;
        const bool ends = all <= seconds;
        const double moved = ends ? all : seconds;
        q->from = at;
        add_collective(s, q, at + moved);
        set_left(&q->left, ends ? 0 : q->left.seconds - moved * (q->left.seconds / all));
        at += moved;
        seconds -= moved;
    }
    s->now = at + seconds;
    drop_done(s);
}

/* Computing waits for so many seconds. of: the step's total of such waits. */
static void wait_for(Streams *s, int part, double *of, double seconds)
{
    add_span(s, BURST_LANE_COMPUTE, part, 0, 0, s->now, s->now + seconds);
    *of += s->times * seconds;
    pass_time(s, WAITING, seconds);
}

/* ---- computing ---- */

static void meet(Streams *s)
{
    const StepModel *m = s->model;
    int slowest = 0;
    for (int k = 1; k < m->rank_kinds; k++)
        slowest = s->pending[k].all > s->pending[slowest].all ? k : slowest;
    const Pending most = s->pending[slowest];
    const double all = most.all, own = s->pending[m->own].all;
    BlockTime *b = &s->parts->block[s->at->op->block];
    b->seconds += s->times * (all - most.again);
    b->again += s->times * most.again;
    s->parts->taken += s->times * most.taken;
    add_span(s, BURST_LANE_COMPUTE, BURST_P_WAIT_RANK, s->parts->rank ? s->parts->rank[s->parts->busiest] : 0,
             0, s->now + own, s->now + all);
    memset(s->pending, 0, sizeof *s->pending * (size_t)m->rank_kinds);
    pass_time(s, COMPUTING, all);
}

/* How much longer this computing takes beside the queued collectives. from: seconds since the last
 * meeting. */
static double taken(const Streams *s, double from, double seconds)
{
    double end = 0, longer = 0;
    for (int i = 0; i < s->queue.n && seconds > 0; i++) {
        const double rate = 1 - s->queue.at[i].left.taking;
        end += s->queue.at[i].left.seconds;
        const double beside = fmin(fmax(0, end - from), seconds / rate);
        longer += beside * (1 - rate);
        seconds -= beside * rate;
        from += beside;
    }
    return longer;
}

static void compute(Streams *s)
{
    const StepModel *m = s->model;
    const double *seconds = s->at->seconds;
    const bool again = s->at->op->op->again;
    const double begin = s->now + s->pending[m->own].all;
    for (int k = 0; k < m->rank_kinds; k++) {
        Pending *p = &s->pending[k];
        const double alone = seconds[k], longer = taken(s, p->all, alone);
        p->all += alone + longer;
        p->again += again ? alone + longer : 0;
        p->taken += longer;
    }
    add_span(s, BURST_LANE_COMPUTE, s->at->part, 0, 0, begin, s->now + s->pending[m->own].all);
}

/* The last queued collective that the operation waits for; -1: none. */
static int last_awaited(const Streams *s)
{
    int last = s->queue.n - 1;
    while (last >= 0 && s->queue.at[last].op->event != s->at->event)
        last--;
    return last;
}

/* ---- copies ---- */

/* The number of a stream's copies up to the last that the operation waits for. */
static int copies_awaited(const Streams *s, int stream)
{
    int n = s->copies[stream].n;
    while (n > 0 && s->copies[stream].at[n - 1].op->event != s->at->event)
        n--;
    return n;
}

static void wait_for_copies(Streams *s)
{
    const int stream = op_stream(s->at->op->op->awaits) == STREAM_DOWNLOADS;
    if (copies_awaited(s, stream) == 0)
        return;
    meet(s); /* some may have ended by then */
    const int n = copies_awaited(s, stream);
    wait_for(s, BURST_P_WAIT_COPY, &s->parts->copies,
             copies_left(s, stream, n, INFINITY) + copies_overlap(s, stream, n, INFINITY) * (s->both - 1));
}

static void start_copy(Streams *s)
{
    const OpKind kind = s->at->op->op->kind;
    double seconds = *s->at->seconds;
    for (int i = 0; i < s->queue.n && op_follows_weights(kind); i++)
        seconds += s->queue.at[i].left.seconds;
    meet(s);
    *vec_push(s->arena, &s->copies[op_stream(kind) == STREAM_DOWNLOADS]) = (Copying){s->at, seconds};
    if (s->model->cluster->target->copies_at_wait)
        wait_for(s, BURST_P_WAIT_COPY, &s->parts->copies, seconds);
}

/* ---- waits for collectives ---- */

static void wait_through(Streams *s, int last)
{
    double seconds = 0;
    for (int i = 0; i <= last; i++)
        seconds += s->queue.at[i].left.alone;
    wait_for(s, BURST_P_WAIT_WEIGHTS, &s->parts->weights, seconds);
}

static void wait_for_collectives(Streams *s)
{
    if (last_awaited(s) < 0)
        return;
    meet(s); /* some may have ended by then */
    wait_through(s, last_awaited(s));
}

static void count_bytes(Streams *s, const Collective *c)
{
    const Cluster *k = s->model->cluster;
    s->parts->weight_bytes += s->times * c->bytes;
    s->parts->weight_nic_bytes += s->times * c->nic * k->nodes / k->world;
    for (int l = 0; l < k->levels; l++)
        s->parts->weight_uplink_bytes[l] += s->times * c->uplink[l] * cluster_units(k, l) / k->world;
}

/* Waits for all of the tensor ranks' queued communication. */
static void wait_for_tensor_ranks(Streams *s)
{
    if (!s->tensors)
        return;
    meet(s);
    wait_for(s, BURST_P_TENSOR, &s->parts->tensor, s->tensor_left);
    s->tensors = 0;
}

/* Executes a listed wait. */
static void wait_as_listed(Streams *s)
{
    switch (op_stream(s->at->op->op->awaits)) {
    case STREAM_WEIGHTS: wait_for_collectives(s); return;
    case STREAM_TENSOR: wait_for_tensor_ranks(s); return;
    default: wait_for_copies(s);
    }
}

/* Starts tensor ranks' communication: the ranks meet where it begins. */
static void start_tensor(Streams *s)
{
    count_bytes(s, s->at->sends);
    meet(s);
    s->tensor_left += s->at->sends->seconds;
    if (s->model->cluster->target->copies_at_wait)
        wait_for(s, BURST_P_TENSOR, &s->parts->tensor, s->tensor_left);
    else
        s->tensors++;
}

static void start_collective(Streams *s)
{
    count_bytes(s, s->at->sends);
    meet(s);
    *vec_push(s->arena, &s->queue) = (Queued){s->at, *s->at->sends, s->now};
    if (s->model->cluster->target->copies_at_wait)
        wait_through(s, s->queue.n - 1);
}

/* Muon's exchange of matrices: computing continues when each rank has what it needs. */
static void exchange(Streams *s)
{
    count_bytes(s, s->at->sends);
    meet(s);
    wait_for(s, BURST_P_WAIT_WEIGHTS, &s->parts->weights, s->at->sends->seconds);
}

/* ---- attention ---- */

static bool alike(const Streams *s, const Contended *c, double seconds)
{
    bool same = c->overlaps == s->queue.n;
    for (int i = 0; same && i < c->overlaps; i++) {
        const Collective *x = &c->overlapped[i], *left = &s->queue.at[i].left;
        same = x->link == left->link && x->nic == left->nic &&
               fabs(x->seconds - left->seconds) <= 1e-6 * seconds;
    }
    return same;
}

/* Attention is slowed by at most the time that the queue still moves: below half a per cent that is not
 * simulated. */
static bool shares_wire(const Streams *s, const AttentionTime *alone)
{
    double moving = 0;
    for (int i = 0; i < s->queue.n && s->shared; i++)
        moving += fmin(s->queue.at[i].left.seconds,
                       collective_moving(s->model->cluster, s->queue.at[i].left));
    return s->shared && moving > 5e-3 * alone->seconds && alone->link_bytes + alone->nic_bytes > 0;
}

/* The time of attention that begins while collectives are queued. */
static const AttentionTime *contended(Streams *s, LayerKind *l, Attend which)
{
    const double alone = l->time[which].seconds;
    for (const Contended *c = l->contended[which]; c; c = c->next)
        if (alike(s, c, alone))
            return &c->time;
    Contended *c = NEW(s->arena, Contended);
    Collective *overlapped = NEW_ARRAY(s->arena, Collective, s->queue.n);
    for (int i = 0; i < s->queue.n; i++)
        overlapped[i] = s->queue.at[i].left;
    AttentionInput in = l->input[which];
    in.overlaps = s->queue.n, in.overlapped = overlapped;
    *c = (Contended){.next = l->contended[which],
                     .overlaps = s->queue.n,
                     .overlapped = overlapped,
                     .time = attention_simulate(s->arena, &in)};
    l->contended[which] = c;
    return &c->time;
}

/* Passes the time of an attention that shared the wire. */
static void share_time(Streams *s, const AttentionTime *t)
{
    for (int i = 0; i < s->queue.n; i++) {
        Queued *q = &s->queue.at[i];
        q->from = i ? s->now + t->overlapped[i - 1].end : s->now;
        add_collective(s, q, s->now + t->overlapped[i].end);
        set_left(&q->left, t->overlapped[i].left);
    }
    s->now += t->seconds;
    pass_copies(s, t->seconds);
    s->tensor_left = fmax(0, s->tensor_left - t->seconds);
    drop_done(s);
}

static void attend(Streams *s, LayerKind *l, Attend which)
{
    meet(s);
    const bool backward = which == ATTEND_BACKWARD;
    const AttentionTime *alone = &l->time[which];
    const bool shares = shares_wire(s, alone);
    const AttentionTime *t = shares ? contended(s, l, which) : alone;
    const double busy = t->busy[s->parts->busiest];
    s->parts->rows[backward ? BURST_ROW_ATTENTION_BACKWARD : BURST_ROW_ATTENTION_FORWARD] += s->times * busy;
    s->parts->rows[BURST_ROW_WAIT] += s->times * (t->seconds - busy);
    if (t->passing)
        s->parts->rows[BURST_ROW_PASS] += s->times * t->passing[s->parts->busiest];
    l->times[which] += s->times;
    if (s->record) {
        record_stretch(s->record, s->now);
        record_attention(s->record, l->input[which].schedule, t, s->now);
    }
    if (shares)
        share_time(s, t);
    else
        pass_time(s, COMPUTING, t->seconds);
    s->parts->weights += s->times * (t->seconds - alone->seconds);
    if (s->record)
        record_stretch(s->record, s->now);
}

/* ---- a sequence ---- */

static Attend attend_of(OpKind k)
{
    if (k == OP_ATTENTION_BACK)
        return ATTEND_BACKWARD;
    return k == OP_ATTENTION_REST ? ATTEND_REST : ATTEND_FORWARD;
}

/* Recurrent layers, and choices of blocks, compute and exchange in one operation, whose time has both. */
static void exchange_or_compute(Streams *s)
{
    if (s->at->sends)
        count_bytes(s, s->at->sends);
    compute(s);
}

static LayerKind *attending(const Streams *s)
{
    const StepModel *m = s->model;
    const StepOp *at = s->at->op;
    const int few = op_is_short(m->step, at) * m->program->mask_count;
    return &s->parts->kind[m->program->layer_mask[at->layer] + few];
}

static void run(Streams *s)
{
    const OpKind kind = s->at->op->op->kind;
    if (s->at->skipped)
        return; /* a row's */
    if (kind == OP_WAIT) {
        wait_as_listed(s);
        return;
    }
    switch (s->at->work) {
    case WORK_COPY: start_copy(s); return;
    case WORK_COLLECTIVE: start_collective(s); return;
    case WORK_ATTENTION: attend(s, attending(s), attend_of(kind)); return;
    case WORK_TENSOR: start_tensor(s); return;
    case WORK_EXCHANGE: exchange(s); return;
    default: exchange_or_compute(s);
    }
}

/* A sequence ends with all that is in flight, before the optimizer. */
static void begin_visit(Streams *s, const StepOp *next)
{
    const StepOp *at = s->at ? s->at->op : NULL;
    const bool ends = next->block >= BLOCK_MOMENTUM, within = ends && at && at->block >= BLOCK_MOMENTUM;
    if (within && at->block != next->block && next->block <= BLOCK_OPTIMIZER)
        meet(s); /* what was computed so far belongs to that block */
    if (within || (at && next->visit == at->visit))
        return;
    if (at)
        meet(s);
    if (ends)
        wait_through(s, s->queue.n - 1);
    if (s->record)
        record_visit(s->record, s->now, true, next->visit);
}

static void run_sequence(Streams *s, int64_t sequence, int64_t sequences)
{
    const StepModel *m = s->model;
    s->now = 0;
    s->at = NULL;
    for (int t = 0; t < m->timed_ops; t++) {
        const StepOp *next = m->timed[t].op;
        if (!op_runs(next->op, sequence, sequences))
            continue;
        begin_visit(s, next);
        s->parts->block[next->block].times += s->at && s->at->op->visit == next->visit ? 0 : s->times;
        s->at = &m->timed[t];
        run(s);
    }
    meet(s);
    wait_through(s, s->queue.n - 1);
    if (s->record)
        record_visit(s->record, s->now, false, 0);
    s->parts->step += s->times * s->now;
}

/* Simulates the first sequence, the equal ones between, and the last. */
void stream_run(Arena *a, StepParts *p, const StepModel *m, bool shared, Recorder *record)
{
    const int64_t sequences = m->sequences;
    const int64_t first[] = {0, 1, sequences - 1}, times[] = {1, sequences - 2, 1};
    Streams s = {.arena = a,
                 .parts = p,
                 .model = m,
                 .pending = arena_alloc(a, sizeof *s.pending * (size_t)m->rank_kinds),
                 .shared = shared,
                 .record = record,
                 .both = cluster_both_ways(m->cluster)};
    for (int i = 0; i < 3; i++) {
        if (times[i] <= 0 || (i == 2 && sequences == 1))
            continue;
        s.times = (double)times[i];
        if (record)
            record_sequences(record, (int)times[i]);
        run_sequence(&s, first[i], sequences);
    }
}
