/* step/passes/waits.c: adds computing's waits for other streams as operations of the list. This is the last
 * pass: the program does what it decides. Lifetimes, the verifier, the predicted time and the printed text
 * read these operations, and nothing else derives a wait.
 *
 * Earlier passes have added waits that memory needs: for a copy or a reduction to end before the next one
 * begins. This pass adds those that values need. It walks the unrolled step; if an operation reads, or adds
 * to, what a stream computed and computing has not waited for that, a wait comes before it. The wait comes
 * before the operation's loop if the awaited operation began before that loop: a rank without tokens does not
 * enter a loop over its tokens, but waits like all others. A gather has its own wait, even if later work of
 * its stream was awaited: a host copies what it gathers when it waits. */
#include "step/step.h"

#include <stdlib.h>
#include <string.h>

/* before the block's operation at `at`; depth: how many scopes the wait is in */
typedef struct Need {
    int block, at, depth;
    Op wait;
} Need;

typedef struct Waiter {
    Arena *arena;
    Step *step;
    /* operations given to streams since the first sequence; times are counts of these */
    Vec(StepOp) given;
    bool *streamed;         /* [values]: written by another stream */
    bool *idle[STEP_BLOCKS]; /* [operations]: uses no such value, and is no loop's first */
    bool *needed[STEP_BLOCKS]; /* [operations]: has a wait before it */
    int **written;          /* [values][index]: time of the stream's operation that writes it; 0: none */
    int done[STREAMS];      /* everything given to the stream before this time is done */
    int event[STEP_EVENTS]; /* time of its last operation; 0: never */
    int waited[STEP_EVENTS]; /* time until which computing has waited for its operations */
    int sequence, sequences;
    Vec(Need) needs;
} Waiter;

static const StepOp *op_at(const Waiter *w, int time)
{
    return &w->given.at[time - 1];
}

static void wait_done(Waiter *w, const StepOp *wait)
{
    const OpKind k = wait->op->awaits;
    const int event = step_event(w->step, wait), until = w->event[event];
    w->waited[event] = until;
    int *done = &w->done[op_stream(k)], *weights = &w->done[STREAM_WEIGHTS];
    *done = until > *done ? until : *done;
    if (op_follows_weights(k))
        *weights = until > *weights ? until : *weights;
}

static bool is_done(const Waiter *w, int time)
{
    const StepOp *o = op_at(w, time);
    return time <= (o->op->kind == OP_GATHER ? w->waited[step_event(w->step, o)]
                                             : w->done[op_stream(o->op->kind)]);
}

/* Where a copy that comes a turn ahead belongs: the loop that reads it. */
static int scope_of(const Step *s, const Op *o)
{
    for (int i = 1; i < s->scopes.n; i++)
        if (s->scopes.at[i].kind == SCOPE_AHEAD && scope_inside(s, o->scope, s->scopes.at[i].early))
            return s->scopes.at[i].around;
    return o->scope;
}

/* The innermost scope that both are in, this time. */
static int common_scope(const Step *s, const StepOp *reads, const StepOp *writes)
{
    int scope = reads->op->scope;
    if (reads->block != writes->block || reads->visit != writes->visit || reads->unit != writes->unit)
        return 0;
    while (!scope_inside(s, scope_of(s, writes->op), scope))
        scope = s->scopes.at[scope].around;
    return scope;
}

/* What `reads` waits for, in the scopes that both are in. */
static Need need_of(const Waiter *w, const StepOp *reads, const StepOp *writes, Operand x)
{
    const Step *s = w->step;
    const Block *b = &s->block[reads->block];
    const Op *o = reads->op;
    const int scope = common_scope(s, reads, writes), at = (int)(o - b->ops.at);
    Need n = {.block = reads->block, .wait = op_wait(writes->op->kind)};
    n.at = scope == o->scope ? at : scope_start(s, b, at, scope_below(s, o->scope, scope));
    n.wait.scope = scope;
    for (int around = scope; around; around = s->scopes.at[around].around)
        n.depth++;
    n.wait.when = o->when == WHEN_ALWAYS ? writes->op->when : o->when;
    n.wait.embedding = o->embedding;
    n.wait.group = o->group;
    n.wait.read[0] = x;
    return n;
}

/* Whether two waits are one call: a value's index, not the value, determines what is awaited. */
static bool same_need(const Step *s, const Need *a, const Need *b)
{
    const Operand x = a->wait.read[0], y = b->wait.read[0];
    return a->block == b->block && a->at == b->at && a->wait.awaits == b->wait.awaits && x.next == y.next &&
           a->wait.group == b->wait.group && s->values.at[x.value].index == s->values.at[y.value].index;
}

static void add_need(Waiter *w, Need n)
{
    for (int i = 0; i < w->needs.n; i++)
        if (same_need(w->step, &w->needs.at[i], &n)) {
            Need *same = &w->needs.at[i];
            same->wait.when = same->wait.when == n.wait.when ? n.wait.when : WHEN_ALWAYS;
            return;
        }
    *vec_push(w->arena, &w->needs) = n;
    w->needed[n.block][n.at] = true;
}

/* What an operation reads, then what it adds to. */
enum { OP_INPUTS = OP_READS + OP_WRITES };

/* value -1: none */
static Operand input_of(const Op *o, int i)
{
    if (i < OP_READS)
        return o->read[i];
    return o->adds[i - OP_READS] ? o->write[i - OP_READS] : (Operand){-1, 0};
}

/* The time of the stream's operation that writes the input; 0: none. */
static int written_at(const Waiter *w, const StepOp *at, Operand x)
{
    return x.value >= 0 && w->streamed[x.value] ? w->written[x.value][operand_index(w->step, at, x)] : 0;
}

/* The last input that the stream was given and that is not done; value -1: none. */
static Operand last_input(const Waiter *w, const StepOp *at, Stream stream, int *last)
{
    Operand of = {-1, 0};
    *last = 0;
    for (int i = 0; i < OP_INPUTS; i++) {
        const Operand x = input_of(at->op, i);
        const int time = written_at(w, at, x);
        if (time > *last && op_stream(op_at(w, time)->op->kind) == stream && !is_done(w, time))
            *last = time, of = x;
    }
    return of;
}

static bool all_done(const Waiter *w, const StepOp *at)
{
    for (int i = 0; i < OP_INPUTS; i++) {
        const int time = written_at(w, at, input_of(at->op, i));
        if (time > 0 && !is_done(w, time))
            return false;
    }
    return true;
}

/* Usually everything is done with the last one. */
static void wait_for(Waiter *w, const StepOp *at, Stream stream)
{
    int last;
    for (Operand of = last_input(w, at, stream, &last); of.value >= 0;
         of = last_input(w, at, stream, &last)) {
        const Need n = need_of(w, at, op_at(w, last), of);
        StepOp wait = *at;
        add_need(w, n);
        wait.op = &n.wait;
        wait_done(w, &wait);
    }
}

/* Whether the loops between the operation and a wait before it have come to their first turn. */
static bool begins(const Step *s, const StepOp *at, int wait)
{
    int ahead = 0;
    for (int scope = at->op->scope; scope != wait; scope = s->scopes.at[scope].around) {
        const Scope *n = &s->scopes.at[scope];
        if (n->kind == SCOPE_LOOP && at->turn[n->dim] > ahead)
            return false;
        ahead = n->kind == SCOPE_AHEAD ? n->turns : 0;
    }
    return true;
}

/* Adds waits that equal operations were found to need. */
static void do_needed(Waiter *w, const StepOp *at)
{
    for (int i = 0; i < w->needs.n; i++) {
        const Need *n = &w->needs.at[i];
        if (n->block != at->block || n->at != at->op - w->step->block[at->block].ops.at)
            continue;
        StepOp wait = *at;
        wait.op = &n->wait;
        if (begins(w->step, at, n->wait.scope) && op_runs(&n->wait, w->sequence, w->sequences))
            wait_done(w, &wait);
    }
}

static void do_op(Waiter *w, const StepOp *at)
{
    const Op *o = at->op;
    if (o->kind == OP_WAIT) {
        wait_done(w, at);
        return;
    }
    if (op_follows_compute(o->kind) && !all_done(w, at))
        for (int s = STREAM_COMPUTE + 1; s < STREAMS; s++)
            wait_for(w, at, (Stream)s);
    const bool given = op_stream(o->kind) != STREAM_COMPUTE;
    if (given) {
        *vec_push(w->arena, &w->given) = *at;
        w->event[step_event(w->step, at)] = w->given.n;
    }
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        if (w->streamed[o->write[i].value])
            w->written[o->write[i].value][operand_index(w->step, at, o->write[i])] = given ? w->given.n : 0;
}

static void see(void *to, const StepOp *at)
{
    Waiter *w = to;
    const ptrdiff_t op = at->op - w->step->block[at->block].ops.at;
    if (w->needed[at->block][op])
        do_needed(w, at);
    if (op_runs(at->op, w->sequence, w->sequences) && op_follows(w->step, at))
        do_op(w, at);
}

/* Most operations read only results of computing, and need no check; a loop's first may get a wait. */
static bool is_idle(const Waiter *w, const Block *b, int op)
{
    const Op *o = &b->ops.at[op];
    const bool first = o->scope && (op == 0 || o[-1].scope != o->scope);
    bool idle = !first && o->kind != OP_WAIT && op_stream(o->kind) == STREAM_COMPUTE;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        idle &= !w->streamed[o->read[i].value];
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        idle &= !w->streamed[o->write[i].value];
    return idle;
}

static void find_streamed(Waiter *w)
{
    const Step *s = w->step;
    w->streamed = NEW_ARRAY(w->arena, bool, s->values.n);
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (const Op *o = s->block[b].ops.at, *end = o + s->block[b].ops.n; o < end; o++)
            for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
                w->streamed[o->write[i].value] |= op_stream(o->kind) != STREAM_COMPUTE;
}

static void begin(Waiter *w)
{
    const Step *s = w->step;
    find_streamed(w);
    w->written = NEW_ARRAY(w->arena, int *, s->values.n);
    for (int i = 0; i < s->values.n; i++)
        if (w->streamed[i])
            w->written[i] = NEW_ARRAY(w->arena, int, value_indices(s, &s->values.at[i]));
    for (int b = 0; b < STEP_BLOCKS; b++) {
        w->idle[b] = NEW_ARRAY(w->arena, bool, s->block[b].ops.n);
        w->needed[b] = NEW_ARRAY(w->arena, bool, s->block[b].ops.n);
        for (int i = 0; i < s->block[b].ops.n; i++)
            w->idle[b][i] = is_idle(w, &s->block[b], i);
    }
}

/* Later places first, so that those before them stay; several at one place, outer scopes' first, in their
 * streams' order. */
static int by_place(const void *x, const void *y)
{
    const Need *a = x, *b = y;
    if (a->block != b->block)
        return a->block - b->block;
    if (a->at != b->at)
        return b->at - a->at;
    if (a->depth != b->depth)
        return b->depth - a->depth;
    return (int)op_stream(b->wait.awaits) - (int)op_stream(a->wait.awaits);
}

void step_waits(Step *s)
{
    Waiter w = {.arena = arena_new(), .step = s, .sequences = step_sequences(s) > 1 ? 2 : 1};
    begin(&w);
    for (; w.sequence < w.sequences; w.sequence++)
        step_walk(s, w.idle, see, &w);
    if (w.needs.n)
        qsort(w.needs.at, (size_t)w.needs.n, sizeof *w.needs.at, by_place);
    for (int i = 0; i < w.needs.n; i++)
        op_insert(s, &s->block[w.needs.at[i].block], w.needs.at[i].at, w.needs.at[i].wait);
    arena_free(w.arena);
}
