/* forecast.c: lays the predicted step out in time: layers in turn, with what computing waits for before each, and the next
 * unit's weights beside. The seconds are those of the compiler's simulation; nothing is decided here. */
#include "forecast.h"

#include <stdbool.h>

typedef struct Layout {
    const BurstForecast *f;
    void (*add)(void *arg, const BurstSpan *s);
    void *arg;
    double now, weights; /* where computing is, and where the weights' stream is free again */
} Layout;

static void add_span(const Layout *l, int lane, int part, int a, double begin, double end)
{
    const BurstSpan s = {.begin = begin, .end = end, .a = a, .part = (int16_t)part, .lane = (int16_t)lane};
    if (end > begin)
        l->add(l->arg, &s);
}

static void compute(Layout *l, int part, double seconds)
{
    add_span(l, BURST_LANE_COMPUTE, part, 0, l->now, l->now + seconds);
    l->now += seconds;
}

static void beside(Layout *l, int part, int unit, double seconds)
{
    double begin = l->now > l->weights ? l->now : l->weights;
    add_span(l, BURST_LANE_WEIGHTS, part, unit, begin, begin + seconds);
    l->weights = begin + seconds;
}

static void attention(Layout *l, int layer, bool backward)
{
    const BurstAttentionForecast *a = &l->f->attention[l->f->layer_mask[layer]][backward];
    for (int i = 0; i < a->spans; i++) {
        BurstSpan s = a->span[i];
        s.begin += l->now;
        s.end += l->now;
        l->add(l->arg, &s);
    }
    l->now += a->seconds;
}

/* Half of the norms and projections stand before attention: near enough for a picture. */
static void forward(Layout *l, int layer, const BurstRestForecast *rest, bool attends)
{
    compute(l, BURST_P_NORM, rest->norms / 2);
    compute(l, BURST_P_PROJECT, rest->projections / 2);
    if (attends)
        attention(l, layer, false);
    compute(l, BURST_P_PROJECT, rest->projections / 2);
    compute(l, BURST_P_NORM, rest->norms / 2);
    compute(l, BURST_P_FFN, rest->ffn);
}

static void backward(Layout *l, int layer)
{
    const BurstRestForecast *rest = &l->f->rest;
    forward(l, layer, &l->f->again, l->f->attends_again);
    compute(l, BURST_P_FFN, 2 * rest->ffn);
    compute(l, BURST_P_NORM, rest->norms);
    compute(l, BURST_P_PROJECT, rest->projections);
    attention(l, layer, true);
    compute(l, BURST_P_PROJECT, rest->projections);
    compute(l, BURST_P_NORM, rest->norms);
}

static void sequence(Layout *l)
{
    const BurstForecast *f = l->f;
    beside(l, BURST_P_GATHER, 0, f->first_gather);
    compute(l, BURST_P_WAIT_WEIGHTS, f->first_gather);
    compute(l, BURST_P_EMBED, f->embedding);
    for (int layer = 0; layer < f->layers; layer++) {
        beside(l, BURST_P_GATHER, layer + 1, f->gather);
        compute(l, BURST_P_WAIT_WEIGHTS, f->exposed);
        forward(l, layer, &f->rest, true);
    }
    compute(l, BURST_P_WAIT_WEIGHTS, f->exposed);
    compute(l, BURST_P_LOSS, f->loss);
    for (int layer = f->layers - 1; layer >= 0; layer--) {
        beside(l, BURST_P_GATHER, layer + 1, f->gather);
        compute(l, BURST_P_WAIT_WEIGHTS, f->exposed);
        backward(l, layer);
        beside(l, BURST_P_REDUCE, layer + 1, f->reduce);
    }
    beside(l, BURST_P_REDUCE, 0, f->last_reduce);
    compute(l, BURST_P_WAIT_WEIGHTS, f->last_reduce);
}

double forecast_step(const BurstForecast *f, void (*add)(void *arg, const BurstSpan *s), void *arg)
{
    Layout l = {f, add, arg, 0, 0};
    for (int i = 0; i < f->sequences; i++)
        sequence(&l);
    compute(&l, BURST_P_OPTIMIZER, f->optimizer);
    return l.now;
}
