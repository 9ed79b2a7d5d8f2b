/* step/passes/waits.c: where computing waits for the streams beside it, as operations of the list. The last
 * pass: what is decided here is what the program does. Lifetimes, the verifier, the predicted time and the
 * printed text read these operations, and nothing else derives a wait.
 *
 * Passes before this one have added waits that memory needs: for a copy or a reduction to be done before
 * the next one begins. Here come those that values need. The unrolled step is gone through in its order;
 * where an operation reads what a stream made and computing has not waited for, a wait comes before it.
 * It comes before the loop that the operation is in, where what it waits for was begun before that loop: a
 * rank without tokens does not enter a loop over its tokens, and waits as all others do. A gather has a wait
 * of its own, whatever its stream was given after it: a host copies what it gathers when it waits for that.
 */
#include "step/step.h"

#include <stdlib.h>
#include <string.h>

typedef struct Need { int block, at; Op wait; } Need; /* before the block's operation at `at` */

typedef struct Waiter {
    Arena *arena; /* of the unrolled operations */
    Step *step;
    const StepOp *op;
    int ops;
    int **written;          /* [values][index]: when a stream began to write it; 0: none did */
    int done[STREAMS];      /* all that the stream was given until then is done */
    int event[STEP_EVENTS]; /* when its last operation was begun; 0: never */
    int waited[STEP_EVENTS]; /* until when computing has waited for its operations */
    Vec(Need) needs;
} Waiter;

/* Times count from 1, over sequences. */
static const StepOp *op_at(const Waiter *w, int time)
{
    return &w->op[(time - 1) % w->ops];
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

static bool same_loop(const StepOp *a, const StepOp *b)
{
    return op_same_loop(a->op, b->op) && a->block == b->block && a->visit == b->visit && a->unit == b->unit;
}

/* The first operation of its loop over chunks of keys. */
static int keys_begin(const Block *b, int at)
{
    while (at > 0 && op_same_keys(&b->ops.at[at], &b->ops.at[at - 1]))
        at--;
    return at;
}

/* What `reads` waits for, in the loops that both are in. */
static Need need_of(const Waiter *w, const StepOp *reads, const StepOp *writes, Operand x)
{
    const Block *b = &w->step->block[reads->block];
    const Op *o = reads->op;
    Need n = {reads->block, (int)(o - b->ops.at), op_wait(writes->op->kind)};
    const bool inside = same_loop(reads, writes), keys = inside && o->keys && writes->op->keys;
    if (inside) {
        n.wait.chunked = true;
        n.wait.by_heads = o->by_heads;
        n.wait.loop = o->loop;
        n.wait.keys = keys;
        n.at = o->keys && !keys ? keys_begin(b, n.at) : n.at;
    } else {
        n.at = loop_begin(b, n.at);
    }
    n.wait.when = o->when == WHEN_ALWAYS ? writes->op->when : o->when;
    n.wait.embedding = o->embedding;
    n.wait.read[0] = x;
    return n;
}

/* Whether they are one call: which index a value has, and not which value it is, says what is waited for. */
static bool same_need(const Step *s, const Need *a, const Need *b)
{
    const Operand x = a->wait.read[0], y = b->wait.read[0];
    return a->block == b->block && a->at == b->at && a->wait.awaits == b->wait.awaits && x.next == y.next &&
           s->values.at[x.value].index == s->values.at[y.value].index;
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
}

/* Of what it reads, the last that the stream was given and that is not done; value -1: nothing. */
static Operand last_read(const Waiter *w, const StepOp *at, Stream stream, int *last)
{
    Operand of = {-1, 0};
    *last = 0;
    for (int i = 0; i < OP_READS && at->op->read[i].value >= 0; i++) {
        const Operand x = at->op->read[i];
        const int time = w->written[x.value][operand_index(w->step, at, x)];
        if (time > *last && op_stream(op_at(w, time)->op->kind) == stream && !is_done(w, time))
            *last = time, of = x;
    }
    return of;
}

/* With the last most often all is done. */
static void wait_for(Waiter *w, const StepOp *at, Stream stream)
{
    int last;
    for (Operand of = last_read(w, at, stream, &last); of.value >= 0;
         of = last_read(w, at, stream, &last)) {
        const Need n = need_of(w, at, op_at(w, last), of);
        StepOp wait = *at;
        add_need(w, n);
        wait.op = &n.wait;
        wait_done(w, &wait);
    }
}

/* Waits that operations like this one were found to need. */
static void do_needed(Waiter *w, const StepOp *at, int sequence, int sequences)
{
    for (int i = 0; i < w->needs.n; i++) {
        const Need *n = &w->needs.at[i];
        StepOp wait = *at;
        wait.op = &n->wait;
        if (n->block == at->block && n->at == at->op - w->step->block[at->block].ops.at &&
            (n->wait.chunked || at->chunk == 0) && op_runs(&n->wait, sequence, sequences))
            wait_done(w, &wait);
    }
}

static void see(Waiter *w, int time)
{
    const StepOp *at = op_at(w, time);
    const Op *o = at->op;
    if (o->kind == OP_WAIT) {
        wait_done(w, at);
        return;
    }
    for (int s = STREAM_COMPUTE + 1; s < STREAMS && op_follows_compute(o->kind); s++)
        wait_for(w, at, (Stream)s);
    const bool beside = op_stream(o->kind) != STREAM_COMPUTE;
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        w->written[o->write[i].value][operand_index(w->step, at, o->write[i])] = beside ? time : 0;
    if (beside)
        w->event[step_event(w->step, at)] = time;
}

/* Later places first, so that those before them stay; where several are at one place, in their streams'
 * order. */
static int by_place(const void *x, const void *y)
{
    const Need *a = x, *b = y;
    if (a->block != b->block)
        return a->block - b->block;
    if (a->at != b->at)
        return b->at - a->at;
    return (int)op_stream(b->wait.awaits) - (int)op_stream(a->wait.awaits);
}

void step_waits(Step *s)
{
    Waiter w = {.arena = arena_new(), .step = s};
    const int sequences = step_sequences(s) > 1 ? 2 : 1;
    w.ops = step_unroll(w.arena, s, &w.op);
    w.written = NEW_ARRAY(w.arena, int *, s->values.n);
    for (int i = 0; i < s->values.n; i++)
        w.written[i] = NEW_ARRAY(w.arena, int, value_indices(s, &s->values.at[i]));
    for (int time = 1; time <= sequences * w.ops; time++) {
        const StepOp *at = op_at(&w, time);
        const int sequence = (time - 1) / w.ops;
        do_needed(&w, at, sequence, sequences);
        if (op_runs(at->op, sequence, sequences) && op_follows(s, at))
            see(&w, time);
    }
    if (w.needs.n)
        qsort(w.needs.at, (size_t)w.needs.n, sizeof *w.needs.at, by_place);
    for (int i = 0; i < w.needs.n; i++)
        op_insert(s, &s->block[w.needs.at[i].block], w.needs.at[i].at, w.needs.at[i].wait);
    arena_free(w.arena);
}
