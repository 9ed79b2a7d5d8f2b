/* select.h: positions and documents of a selection, for the files of this folder. */
#ifndef BURST_HOST_SELECT_H
#define BURST_HOST_SELECT_H

#include "burst_attend.h"

static inline int64_t select_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Whether two positions are in one document, as far as `where` tells documents apart. */
static inline bool select_together(const BurstSelect *s, int64_t a, int64_t b)
{
    const BurstSelection *how = s->how;
    if (!how->documents || !s->tables)
        return true;
    const int32_t *t = s->tables->table[how->documents - 1];
    return how->by_position ? t[b] - t[a] == b - a : t[a] == t[b];
}

#endif
