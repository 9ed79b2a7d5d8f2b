/* burst_parts.h: names of what a rank does in a step, for --trace, for profilers and for the prediction
 * printed next to the measurement. */
#ifndef BURST_PARTS_H
#define BURST_PARTS_H

#include <stdint.h>

/* Rows of the table of parts. Rows of computing, of its waits and of the rest add up to the step; other rows
 * overlap computing on their own streams. */
#define BURST_ROWS(X) /* id, text, computing */ \
    X(NONE, "", 0) \
    X(ATTENTION_FORWARD, "attention forward", 1) \
    X(ATTENTION_BACKWARD, "attention backward", 1) \
    X(PROJECTIONS, "projections q, k, v, o", 1) \
    X(FFN, "feed-forward", 1) \
    X(NORMS, "norms, rotation, residuals", 1) \
    X(LOSS, "head and loss", 1) \
    X(EMBEDDING, "embedding", 1) \
    X(OPTIMIZER, "optimizer", 1) \
    X(MERGE, "partial sums added, zeroed", 1) \
    X(WAIT, "waits for transfers", 1) \
    X(PASS, "transfers of attention", 0) \
    X(GATHER, "gathers of weights", 0) \
    X(REDUCE, "reductions of gradients", 0)
enum {
#define X(id, text, computing) BURST_ROW_##id,
    BURST_ROWS(X)
#undef X
    BURST_ROW_COUNT
};

/* PASS and RECEIVE: one for each tensor, in the order of BURST_T_*. */
#define BURST_PARTS(X) /* id, row, name with up to two numbers */ \
    X(IDLE, NONE, "") \
    X(ATTEND, ATTENTION_FORWARD, "attend Q[%d] KV[%d]") \
    X(GRAD, ATTENTION_BACKWARD, "grad Q[%d] KV[%d]") \
    X(GRAD_BEGIN, ATTENTION_BACKWARD, "delta, zeroed gradients") \
    X(GRAD_END, ATTENTION_BACKWARD, "dQ in order") \
    /* of forms other than pairs, and of predictions as a whole */ \
    X(ATTENTION, ATTENTION_FORWARD, "attention forward") \
    X(ATTENTION_BACK, ATTENTION_BACKWARD, "attention backward") \
    X(PROJECT, PROJECTIONS, "projections") \
    X(FFN, FFN, "feed-forward") \
    X(NORM, NORMS, "norm") \
    X(ROPE, NORMS, "rotation") \
    X(LOSS, LOSS, "head and loss") \
    X(EMBED, EMBEDDING, "embedding") \
    X(OPTIMIZER, OPTIMIZER, "optimizer") \
    X(MERGE, MERGE, "add partial sums") \
    X(ZERO, MERGE, "zero gradients") \
    X(WAIT, WAIT, "wait for channel %d") \
    X(WAIT_WEIGHTS, WAIT, "wait for weights") \
    X(WAIT_RANK, WAIT, "wait for rank %d") \
    X(PASS_Q, PASS, "pass Q[%d] to rank %d") \
    X(PASS_KV, PASS, "pass KV[%d] to rank %d") \
    X(PASS_O, PASS, "pass O[%d] to rank %d") \
    X(PASS_DQ, PASS, "pass dQ[%d] to rank %d") \
    X(PASS_DKV, PASS, "pass dKV[%d] to rank %d") \
    X(RECEIVE_Q, PASS, "receive Q[%d] from rank %d") \
    X(RECEIVE_KV, PASS, "receive KV[%d] from rank %d") \
    X(RECEIVE_O, PASS, "receive O[%d] from rank %d") \
    X(RECEIVE_DQ, PASS, "receive dQ[%d] from rank %d") \
    X(RECEIVE_DKV, PASS, "receive dKV[%d] from rank %d") \
    X(EXCHANGE, PASS, "exchange of heads and tokens") \
    X(PIECES, PASS, "exchange between pieces of recurrent layers") \
    X(GATHER, GATHER, "gather of unit %d") \
    X(REDUCE, REDUCE, "reduction of unit %d") \
    X(TENSOR, WAIT, "tokens and sums of tensor ranks") \
    X(WAIT_COPY, WAIT, "wait for copies to or from the host")
enum {
#define X(id, row, name) BURST_P_##id,
    BURST_PARTS(X)
#undef X
    BURST_P_COUNT
};

/* One interval of a part. lane: BURST_LANE_*, channels from BURST_LANE_CHANNEL on. Spans of one lane do not
 * overlap. */
enum { BURST_LANE_COMPUTE, BURST_LANE_WEIGHTS, BURST_LANE_CHANNEL };
typedef struct BurstSpan {
    double begin, end; /* seconds */
    /* of a transfer: the larger of what is sent and received; 0: unknown, or no transfer */
    int64_t bytes;
    int32_t a, b;      /* the numbers in the part's name */
    int16_t part, lane;
} BurstSpan;

/* A step visits its units of weights in this order: embedding (unit 0), layers (1 to `layers`), head, layers
 * in reverse, embedding. If layers are in groups of which only the first saves its input, backward of a
 * group first visits all its layers but the last, upwards, to recompute the others' inputs; the last group
 * may be shorter and does the same. group 1: each layer saves.
 *
 * If a layer's experts are in `apart` units of their own, these are numbered after the head: first the first
 * of each layer, then the second. A layer's visit is followed by theirs, in backward by the last one's first.
 * apart 0: they are in the layer's. */
static inline int burst_visits(int layers, int group, int apart)
{
    return (1 + apart) * (2 * layers + (layers - 1) / group * (group - 1)) + 3;
}

/* The same without units of experts. down: whether layers come in reverse. */
static inline int burst_turn_at(int layers, int group, int visit, int *down)
{
    const int head = layers + 1, top = (layers - 1) % group + 1, back = visit - head - 1;
    *down = visit > head;
    if (visit <= head)
        return visit;
    if (back < top)
        return layers - back;
    const int each = 2 * group - 1, at = (back - top) % each;
    const int end = layers - top - (back - top) / each * group;
    if (end <= 0)
        return end == 0 && at == 0 ? 0 : -1; /* after the last visit there is none */
    *down = at >= group - 1;
    return at < group - 1 ? end - group + 1 + at : end - (at - (group - 1));
}

static inline int burst_unit_at(int layers, int group, int apart, int visit)
{
    const int each = 1 + apart, head = each * layers + 1;
    int within = 0, turn = 0, down;
    if (visit > head)
        within = visit - head - 1, turn = layers + 2;
    else if (visit == head)
        turn = layers + 1;
    else if (visit > 0)
        within = visit - 1, turn = 1;
    const int unit = burst_turn_at(layers, group, turn + within / each, &down), nth = within % each;
    if (nth == 0)
        return unit;
    const int of = down ? apart - nth : nth - 1; /* the group, from 0 */
    return unit <= 0 ? -1 : layers + 1 + of * layers + unit;
}

/* The predicted step of one rank (runtime/timeline/forecast.c). It is a sequence of visits, each of one
 * unit's weights (embedding, layers, head, layers in reverse, embedding, finally the optimizer); a visit
 * consists of stretches. Equal stretches are stored once. */
typedef struct BurstStretch {
    double seconds;
    int spans;
    /* times from the stretch's begin. Collectives: a: unit 0 whatever b is; b: the unit this many visits
     * later */
    const BurstSpan *span;
} BurstStretch;
enum { BURST_VISIT_STRETCHES = 5 };
typedef struct BurstVisit { int stretches, stretch[BURST_VISIT_STRETCHES]; } BurstVisit;
typedef struct BurstVisitRun { int visit, times; } BurstVisitRun;
typedef struct BurstSequenceForecast {
    int times, runs;       /* times: number of sequences, one after the other */
    const BurstVisitRun *run;
} BurstSequenceForecast;
typedef struct BurstForecast {
    int rank;              /* the rank, the one that computes most */
    int layers, group, apart, sequences, visits, stretches; /* layers, group, apart: burst_unit_at */
    const BurstSequenceForecast *sequence;
    const BurstVisit *visit;
    const BurstStretch *stretch;
} BurstForecast;

#endif
