/* layout/heads.c: the row `head chunks` of layout/table.c: 1, 2, ... of whole key heads and their queries,
 * of which some may have one less. */
#include "layout/layout.h"

bool head_chunks_open(const Program *p)
{
    return p->layout.head_chunks.is_auto;
}

/* The n-th number of chunks whose largest is smaller than with fewer chunks, which need no more memory: of
 * several numbers with the same largest one that divides kv_heads is the least. 0: there are not so many. */
static int head_chunks_at(const Program *p, int n)
{
    const int kv_heads = p->model.kv_heads;
    for (int chunks = 1, last = kv_heads + 1; chunks <= kv_heads; chunks++) {
        const int most = (kv_heads + chunks - 1) / chunks;
        if (most < last && n-- == 0)
            return chunks;
        last = most;
    }
    return 0;
}

int head_chunks_count(const Program *p)
{
    int n = 1;
    while (head_chunks_open(p) && head_chunks_at(p, n))
        n++;
    return n;
}

bool head_chunks_take(const Program *p, Choice *c, int n)
{
    c->head_chunks = head_chunks_open(p)             ? head_chunks_at(p, n)
                     : p->layout.head_chunks.is_auto ? 1
                                                     : (int)p->layout.head_chunks.value;
    return true;
}

bool head_chunks_other(const Program *p, Choice *c, int n)
{
    c->head_chunks = head_chunks_at(p, n);
    return c->head_chunks > 0;
}

const char *head_chunks_why_not(Arena *a, const Program *p, const Choice *c)
{
    if (c->head_chunks < 2)
        return NULL;
    if (saving_why_no_chunks(c, true))
        return saving_why_no_chunks(c, true);
    const int ranks = choice_heads(c), queries = p->model.heads / p->model.kv_heads,
              least = p->model.kv_heads / c->head_chunks * queries;
    const int most = p->model.kv_heads / ((ranks + queries - 1) / queries);
    return ranks <= least
               ? NULL
               : arena_printf(
                     a,
                     "%d ranks cannot share the %d head%s of %s of %d head chunks; use at most %d head "
                     "chunk%s",
                     ranks, least, plural(least),
                     p->model.kv_heads % c->head_chunks ? "the smallest" : "each", c->head_chunks, most,
                     plural(most));
}

const char *head_chunks_text(Arena *a, const Choice *c)
{
    return c->head_chunks > 1 ? arena_printf(a, "%d", c->head_chunks) : NULL;
}
