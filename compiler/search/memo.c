/* search/memo.c: numbers choices by some of their fields, so that what such choices share is found without
 * comparing with each. */
#include "search/internal.h"

#include <string.h>

enum { FIRST_PLACES = 64 };

/* The place of the choice's number, or the free place for it. */
static int *place_of(const Memo *m, const Choice *c, unsigned keys)
{
    for (uint64_t i = choice_hash(c, keys);; i++) {
        int *place = &m->place[i & (uint64_t)(m->places - 1)];
        if (!*place || choice_same(&m->choice.at[*place - 1], c, keys))
            return place;
    }
}

int memo_find(const Memo *m, const Choice *c, unsigned keys)
{
    return m->places ? *place_of(m, c, keys) - 1 : -1;
}

static void grow(Arena *a, Memo *m, unsigned keys)
{
    m->places = m->places ? 4 * m->places : FIRST_PLACES;
    m->place = NEW_ARRAY(a, int, m->places);
    for (int i = 0; i < m->choice.n; i++)
        *place_of(m, &m->choice.at[i], keys) = i + 1;
}

void memo_add(Arena *a, Memo *m, const Choice *c, unsigned keys)
{
    if (2 * (m->choice.n + 1) > m->places)
        grow(a, m, keys);
    *vec_push(a, &m->choice) = *c;
    *place_of(m, c, keys) = m->choice.n;
}
