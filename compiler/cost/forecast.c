/* cost/forecast.c: the timeline of the simulated step, in the form that runtime/timeline/forecast.c lays
 * out: the spans of each visit of a unit's weights, stored once for all equal visits, so that it does not
 * grow with the number of layers. */
#include "cost/cost.h"


#include <math.h>
#include <string.h>

_Static_assert((int)T_Q == BURST_T_Q && (int)T_KV == BURST_T_KV && (int)T_O == BURST_T_O &&
                   (int)T_DQ == BURST_T_DQ && (int)T_DKV == BURST_T_DKV,
               "parts of transfers are numbered by the runtime's tensors");

typedef struct Sequence {
    int times;
    Vec(BurstVisitRun) runs;
} Sequence;
struct Recorder {
    Arena *arena;
    const StepParts *parts;
    int most_spans;     /* per attention; ALL_SPANS: every operation has its own */
    bool open;          /* a visit is being recorded */
    int at;             /* its number */
    double begin;       /* of the current stretch */
    int together;       /* first span since the rank last waited */
    Vec(BurstSpan) spans; /* of the current stretch */
    BurstVisit visit;
    Vec(BurstStretch) stretches;
    Vec(BurstVisit) visits;
    Vec(Sequence) sequences;
};

/* ---- equal stretches and visits ---- */

static bool near(double x, double y, double all)
{
    return fabs(x - y) <= 1e-4 * all;
}

static bool spans_alike(const BurstSpan *x, const BurstSpan *y, double all)
{
    return x->part == y->part && x->lane == y->lane && x->a == y->a && x->b == y->b &&
           near(x->begin, y->begin, all) && near(x->end, y->end, all);
}

static int find_stretch(const Recorder *r, double seconds)
{
    for (int k = 0; k < r->stretches.n; k++) {
        const BurstStretch *t = &r->stretches.at[k];
        bool alike = t->spans == r->spans.n && near(t->seconds, seconds, seconds);
        for (int i = 0; alike && i < t->spans; i++)
            alike = spans_alike(&t->span[i], &r->spans.at[i], seconds);
        if (alike)
            return k;
    }
    return r->stretches.n;
}

static void end_stretch(Recorder *r, double now)
{
    const double seconds = now - r->begin;
    r->begin = now;
    r->together = 0;
    if (!r->spans.n && seconds <= 0)
        return;
    const int k = find_stretch(r, seconds);
    if (k == r->stretches.n)
        *vec_push(r->arena, &r->stretches) = (BurstStretch){seconds, r->spans.n, r->spans.at};
    r->visit.stretch[r->visit.stretches++] = k;
    memset(&r->spans, 0, sizeof r->spans);
}

/* A visit with many attentions, as with chunks of heads, ends with a stretch that has several of them. */
void record_stretch(Recorder *r, double now)
{
    if (r->visit.stretches < BURST_VISIT_STRETCHES - 1)
        end_stretch(r, now);
    r->together = r->spans.n;
}

static void close_visit(Recorder *r, double now)
{
    Sequence *s = &r->sequences.at[r->sequences.n - 1];
    end_stretch(r, now);
    int k = 0;
    while (k < r->visits.n && memcmp(&r->visits.at[k], &r->visit, sizeof r->visit) != 0)
        k++;
    if (k == r->visits.n)
        *vec_push(r->arena, &r->visits) = r->visit;
    if (s->runs.n && s->runs.at[s->runs.n - 1].visit == k)
        s->runs.at[s->runs.n - 1].times++;
    else
        *vec_push(r->arena, &s->runs) = (BurstVisitRun){k, 1};
    r->visit = (BurstVisit){0};
}

/* ---- events of cost/stream.c ---- */

void record_sequences(Recorder *r, int times)
{
    *vec_push(r->arena, &r->sequences) = (Sequence){.times = times};
}

void record_visit(Recorder *r, double now, bool begins, int visit)
{
    if (r->open)
        close_visit(r, now);
    r->open = begins;
    r->at = visit;
    r->begin = now;
}

static void add_span(Recorder *r, BurstSpan s)
{
    s.begin -= r->begin;
    s.end -= r->begin;
    *vec_push(r->arena, &r->spans) = s;
}

/* Extends the last span if s continues it. */
static bool prolong(Recorder *r, const BurstSpan *s)
{
    for (int i = r->spans.n - 1; i >= 0; i--) {
        BurstSpan *last = &r->spans.at[i];
        if (last->lane != s->lane)
            continue;
        if (last->part != s->part || last->a != s->a || last->b != s->b ||
            fabs(last->end + r->begin - s->begin) > 1e-12)
            return false;
        last->end = s->end - r->begin;
        return true;
    }
    return false;
}

/* In a picture, computing between waits has one span for each part, in the order of their first spans. */
static bool gather_part(Recorder *r, const BurstSpan *s)
{
    const double seconds = s->end - s->begin;
    int i = r->together;
    while (i < r->spans.n && (r->spans.at[i].lane != s->lane || r->spans.at[i].part != s->part))
        i++;
    if (r->most_spans == ALL_SPANS || i == r->spans.n)
        return false;
    for (int j = i; j < r->spans.n; j++)
        if (r->spans.at[j].lane == s->lane) {
            r->spans.at[j].begin += j > i ? seconds : 0;
            r->spans.at[j].end += seconds;
        }
    return true;
}

void record_span(Recorder *r, BurstSpan s)
{
    const bool waits = s.part == BURST_P_WAIT_WEIGHTS || s.part == BURST_P_WAIT_RANK;
    if (s.lane == BURST_LANE_WEIGHTS)
        s.b = s.a ? 0 : s.b - r->at;
    if (!prolong(r, &s) && (s.lane != BURST_LANE_COMPUTE || waits || !gather_part(r, &s)))
        add_span(r, s);
    r->together = waits ? r->spans.n : r->together;
}

/* The span of one busy interval, with absolute chunk numbers. Transfers are shown at the receiver. */
static BurstSpan span_of(const Recorder *r, const Schedule *s, const Busy *b)
{
    const Instance *i = &s->trace.at[b->at];
    const Choice *c = s->choice;
    const int me = r->parts->rank[r->parts->busiest];
    BurstSpan span = {.begin = b->begin, .end = b->end, .lane = BURST_LANE_COMPUTE};
    if (b->channel >= 0)
        span.lane = (int16_t)(BURST_LANE_CHANNEL + b->channel);
    if (i->node->kind == N_EXCHANGE) {
        span.part = BURST_P_EXCHANGE;
    } else if (i->node->kind == N_COMPUTE) {
        span.part = s->backward ? BURST_P_GRAD : BURST_P_ATTEND;
        span.a = rel_add(c, me, i->chunk[0]);
        span.b = rel_add(c, me, i->chunk[1]);
    } else {
        span.part = (int16_t)(BURST_P_RECEIVE_Q + i->node->ref[0].tensor);
        span.b = rel_sub(c, me, i->hop);
        span.a = rel_add(c, span.b, i->chunk[0]);
    }
    return span;
}

void record_attention(Recorder *r, const Schedule *s, const AttentionTime *t, double now)
{
    int n = 0;
    for (int i = 0; i < t->intervals; i++)
        n += t->interval[i].rank == r->parts->busiest;
    if (n > r->most_spans)
        add_span(r, (BurstSpan){.begin = now,
                                .end = now + t->seconds,
                                .part = s->backward ? BURST_P_ATTENTION_BACK : BURST_P_ATTENTION});
    for (int i = 0; i < t->intervals && n <= r->most_spans; i++) {
        if (t->interval[i].rank != r->parts->busiest)
            continue;
        BurstSpan span = span_of(r, s, &t->interval[i]);
        span.begin += now, span.end += now;
        add_span(r, span);
    }
}

/* ---- the result ---- */

static bool sequences_alike(const Sequence *x, const Sequence *y)
{
    return x->runs.n == y->runs.n &&
           memcmp(x->runs.at, y->runs.at, sizeof *x->runs.at * (size_t)x->runs.n) == 0;
}

static void add_sequence(BurstForecast *f, BurstSequenceForecast *to, const Recorder *r, int i)
{
    const Sequence *s = &r->sequences.at[i];
    if (i > 0 && sequences_alike(s, &r->sequences.at[i - 1]))
        to[f->sequences - 1].times += s->times;
    else
        to[f->sequences++] = (BurstSequenceForecast){s->times, s->runs.n, s->runs.at};
}

const BurstForecast *cost_forecast(Arena *a, const Draft *d, int most_spans)
{
    StepParts p = {0};
    Recorder r = {.arena = a, .most_spans = most_spans, .parts = &p};
    step_record(a, d, INFINITY, &p, &r);
    if (!isfinite(p.step))
        return NULL; /* the simulation met a cycle */
    BurstSequenceForecast *sequence = arena_alloc(a, sizeof *sequence * (size_t)r.sequences.n);
    BurstForecast *f = NEW(a, BurstForecast);
    *f = (BurstForecast){.rank = p.rank[p.busiest],
                         .layers = d->program->model.layers,
                         .group = saving_group(saving_of(&d->choice)),
                         .apart = d->units.groups,
                         .visits = r.visits.n,
                         .stretches = r.stretches.n,
                         .sequence = sequence,
                         .visit = r.visits.at,
                         .stretch = r.stretches.at};
    for (int i = 0; i < r.sequences.n; i++)
        add_sequence(f, sequence, &r, i);
    return f;
}
