/* spans.c: records the parts of a traced step. Nothing is allocated after start-up. */
#include "core/spans.h"

#include "core/context.h"

#include <stdlib.h>

int spans_make(BurstCtx *c, Spans **out)
{
    Spans *s = *out = calloc(1, sizeof *s);
    if (s && (s->at = calloc(SPANS_MOST, sizeof *s->at)))
        return BURST_OK;
    spans_free(s);
    *out = NULL;
    return burst_fail(c, BURST_E_MEMORY, "out of memory for the trace");
}

void spans_free(Spans *s)
{
    if (s)
        free(s->at);
    free(s);
}

bool spans_goes_on(const Spans *s, int lane, int part, int a, int b)
{
    const BurstSpan *open = &s->open[lane];
    return open->part == part && (part == BURST_P_IDLE || (open->a == a && open->b == b));
}

void spans_switch(Spans *s, int lane, double when, int part, int a, int b)
{
    BurstSpan *open = &s->open[lane];
    if (open->part != BURST_P_IDLE && s->n == SPANS_MOST) {
        s->left_out++;
    } else if (open->part != BURST_P_IDLE) {
        open->end = when;
        s->at[s->n++] = *open;
    }
    *open = (BurstSpan){.begin = when, .part = (int16_t)part, .lane = (int16_t)lane, .a = a, .b = b};
}

/* ---- the host's own parts ---- */

void burst_part(BurstCtx *c, int part, int a, int b)
{
    if (c->watching && !spans_goes_on(c->watching, BURST_LANE_COMPUTE, part, a, b))
        spans_switch(c->watching, BURST_LANE_COMPUTE, burst_seconds(), part, a, b);
}
