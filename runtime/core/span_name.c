/* span_name.c: the name of a part of a step, as a trace shows it. */
#include "core/spans.h"

#include <stdio.h>

static const char *const part_name[BURST_P_COUNT] = {
#define X(id, row, name) [BURST_P_##id] = name,
    BURST_PARTS(X)
#undef X
};

void span_name(const BurstSpan *s, char *text, size_t size)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, size, part_name[s->part], s->a, s->b); /* names of the table have at most two %d */
#pragma GCC diagnostic pop
}
