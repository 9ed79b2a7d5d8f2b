/* positions.h: the positions of a set one by one, and the hull of some of them. */
#ifndef TEST_POSITIONS_H
#define TEST_POSITIONS_H

#include "tools/tools.h"

static inline int64_t piece_tokens(const Piece *p)
{
    return p->run * p->count;
}

static inline int64_t piece_at(const Piece *p, int64_t i)
{
    return p->count == 1 ? p->start + i : p->start + i / p->run * p->stride + i % p->run;
}

static inline int64_t pos_at(const PosSet *s, int64_t i)
{
    const Piece *p = s->pieces;
    for (; i >= piece_tokens(p); p++)
        i -= piece_tokens(p);
    return piece_at(p, i);
}

/* Within a piece positions rise with the local index (run <= stride), so its ends are its extremes. */
static inline void pos_hull(const PosSet *s, int64_t first, int64_t count, int64_t *lo, int64_t *hi_last)
{
    int64_t begin = 0;
    *lo = INT64_MAX, *hi_last = INT64_MIN;
    for (const Piece *p = s->pieces; p < s->pieces + s->npieces && begin < first + count; p++) {
        const int64_t n = piece_tokens(p), from = first > begin ? first - begin : 0;
        const int64_t to = first + count - begin < n ? first + count - begin : n;
        begin += n;
        if (from >= to)
            continue;
        const int64_t least = piece_at(p, from), most = piece_at(p, to - 1);
        *lo = least < *lo ? least : *lo;
        *hi_last = most > *hi_last ? most : *hi_last;
    }
}

#endif
