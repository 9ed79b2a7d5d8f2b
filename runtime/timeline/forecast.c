/* forecast.c: lays out the predicted step in time: the compiler's stretches one after the other, without
 * further decisions. */
#include "timeline/forecast.h"

typedef struct Layout {
    const BurstForecast *f;
    void (*add)(void *arg, const BurstSpan *s);
    void *arg;
    double now;
} Layout;

static int unit_at(const BurstForecast *f, int visit)
{
    return burst_unit_at(f->layers, f->group, f->apart, visit);
}

static void stretch(Layout *l, const BurstStretch *t, int visit)
{
    for (int i = 0; i < t->spans; i++) {
        BurstSpan s = t->span[i];
        s.begin += l->now;
        s.end += l->now;
        if (s.lane == BURST_LANE_WEIGHTS) {
            s.a = s.a ? 0 : unit_at(l->f, visit + s.b);
            s.b = 0;
        }
        l->add(l->arg, &s);
    }
    l->now += t->seconds;
}

/* A layer's visit is laid out with those of its experts. */
static int visits_with(const BurstForecast *f, int visit)
{
    const int unit = unit_at(f, visit);
    return unit > 0 && unit <= f->layers ? 1 + f->apart : 1;
}

static void sequence(Layout *l, const BurstSequenceForecast *s)
{
    for (int r = 0, visit = 0; r < s->runs; r++)
        for (int v = 0; v < s->run[r].times; v++, visit += visits_with(l->f, visit)) {
            const BurstVisit *kind = &l->f->visit[s->run[r].visit];
            for (int i = 0; i < kind->stretches; i++)
                stretch(l, &l->f->stretch[kind->stretch[i]], visit);
        }
}

double forecast_step(const BurstForecast *f, void (*add)(void *arg, const BurstSpan *s), void *arg)
{
    Layout l = {f, add, arg, 0};
    for (int i = 0; i < f->sequences; i++)
        for (int t = 0; t < f->sequence[i].times; t++)
            sequence(&l, &f->sequence[i]);
    return l.now;
}
