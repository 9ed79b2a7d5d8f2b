/* spans.c: parts of a traced step: recording, and what they are called. Nothing is allocated after start-up. */
#include "spans.h"

#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const part_name[BURST_P_COUNT] = {
#define X(id, row, name) [BURST_P_##id] = name,
    BURST_PARTS(X)
#undef X
};

int spans_make(BurstCtx *c, Spans **out)
{
    Spans *s = *out = calloc(1, sizeof *s);
    if (s && (s->at = calloc(SPANS_MOST, sizeof *s->at)))
        return BURST_OK;
    spans_free(s);
    *out = NULL;
    return burst_fail(c, BURST_E_MEMORY, "no memory for the trace");
}

void spans_free(Spans *s)
{
    if (s)
        free(s->at);
    free(s);
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

__attribute__((format(printf, 3, 0))) static void write_name(char *text, size_t size, const char *name, int a, int b)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, size, name, a, b); /* names of the table have at most two %d */
#pragma GCC diagnostic pop
}

void span_name(const BurstSpan *s, char *text, size_t size)
{
    write_name(text, size, part_name[s->part], s->a, s->b);
}

/* ---- the host's own parts ---- */

void burst_part(BurstCtx *c, int part, int a, int b)
{
    if (c->watching)
        spans_switch(c->watching, BURST_LANE_COMPUTE, burst_seconds(), part, a, b);
}
