/* cost_forecast.c: the simulated step in the form that runtime/forecast.c lays out: one attention of each mask and direction as
 * the simulation has it, and around it the rest as rates.
 */
#include "cost.h"

#include "burst_rt.h"

#include <math.h>

_Static_assert((int)T_Q == BURST_T_Q && (int)T_KV == BURST_T_KV && (int)T_O == BURST_T_O && (int)T_DQ == BURST_T_DQ &&
               (int)T_DKV == BURST_T_DKV, "parts of transfers are numbered by the runtime's tensors");

typedef struct Forecaster { Arena *arena; const Draft *draft; const StepParts *parts; int me; /* in the group */ } Forecaster;

/* What the rank does in one busy interval, with the chunks' own numbers. Transfers stand at the receiver. */
static BurstSpan span_of(const Forecaster *f, const Schedule *s, const Busy *b)
{
    const Instance *i = &s->trace.at[b->at];
    const Choice *c = s->choice;
    BurstSpan span = {.begin = b->begin, .end = b->end, .lane = BURST_LANE_COMPUTE};
    if (b->channel >= 0)
        span.lane = (int16_t)(BURST_LANE_CHANNEL + b->channel);
    if (i->node->kind == N_EXCHANGE) {
        span.part = BURST_P_EXCHANGE;
    } else if (i->node->kind == N_COMPUTE && i->node->ref[0].whole) {
        span.part = s->backward ? BURST_P_ATTENTION_BACK : BURST_P_ATTENTION;
    } else if (i->node->kind == N_COMPUTE) {
        span.part = s->backward ? BURST_P_GRAD : BURST_P_ATTEND;
        span.a = rel_add(c, f->me, i->chunk[0]);
        span.b = rel_add(c, f->me, i->chunk[1]);
    } else {
        span.part = (int16_t)(BURST_P_RECEIVE_Q + i->node->ref[0].tensor);
        span.b = rel_sub(c, f->me, i->hop);
        span.a = rel_add(c, span.b, i->chunk[0]);
    }
    return span;
}

static BurstAttentionForecast attention_of(const Forecaster *f, const Schedule *s, const AttentionTime *t, int most_spans)
{
    BurstSpan *span = NEW_ARRAY(f->arena, BurstSpan, t->intervals + 1);
    int n = 0;
    for (int i = 0; i < t->intervals; i++)
        if (t->interval[i].rank == f->parts->busiest)
            span[n++] = span_of(f, s, &t->interval[i]);
    if (n > most_spans) {
        span[0] = (BurstSpan){.end = t->seconds, .part = s->backward ? BURST_P_ATTENTION_BACK : BURST_P_ATTENTION};
        n = 1;
    }
    return (BurstAttentionForecast){t->seconds, n, span};
}

/* What of the weights shows beside the embedding's: spread over layers and head. */
static double exposed(const StepParts *p, int layers)
{
    return fmax(0, p->weights - p->first_gather - p->last_reduce) / (2 * layers + 1);
}

const BurstForecast *cost_forecast(Arena *a, const Draft *d, int most_spans)
{
    StepParts p = step_parts(a, d);
    Forecaster f = {a, d, &p, p.rank ? p.rank[p.busiest] : 0};
    BurstAttentionForecast(*attention)[2] = arena_alloc(a, sizeof *attention * (size_t)(p.kinds + 1));
    if (!isfinite(p.step))
        return NULL; /* the simulation came to no end */
    for (int k = 0; k < p.kinds; k++) {
        if (!p.kind[k].layers)
            continue;
        attention[k][0] = attention_of(&f, d->forward, &p.kind[k].forward, most_spans);
        attention[k][1] = attention_of(&f, d->backward, &p.kind[k].backward, most_spans);
    }
    BurstForecast *out = NEW(a, BurstForecast);
    *out = (BurstForecast){.rank = f.me, .sequences = (int)p.sequences, .layers = d->program->model.layers,
                           .layer_mask = d->program->layer_mask, .attends_again = p.attention_again > 0,
                           .rest = p.rest, .again = p.rest_again, .embedding = p.embedding, .loss = p.loss,
                           .optimizer = p.optimizer, .gather = p.gather,
                           .reduce = p.reduce, .first_gather = p.first_gather, .last_reduce = p.last_reduce,
                           .exposed = exposed(&p, d->program->model.layers), .attention = attention};
    return out;
}
