/* layout_heads.c: the row `head chunks` of layout.c: 1, 2, ... of whole key heads and their queries. */
#include "burst.h"

bool head_chunks_open(const Program *p)
{
    return p->layout.head_chunks.is_auto;
}

/* The n-th divisor of kv_heads; 0: there are not so many. */
static int head_chunks_at(const Program *p, int n)
{
    for (int chunks = 1; chunks <= p->model.kv_heads; chunks++)
        if (p->model.kv_heads % chunks == 0 && n-- == 0)
            return chunks;
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
    c->head_chunks = head_chunks_open(p) ? head_chunks_at(p, n) : p->layout.head_chunks.is_auto ? 1 : (int)p->layout.head_chunks.value;
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
    return c->head_chunks * choice_heads(c) <= p->model.heads ? NULL
           : arena_printf(a, "%d ranks share the %d heads of each of %d chunks; use at most %d chunks of heads", choice_heads(c),
                          p->model.heads / c->head_chunks, c->head_chunks, p->model.heads / choice_heads(c));
}

const char *head_chunks_text(Arena *a, const Choice *c)
{
    return c->head_chunks > 1 ? arena_printf(a, "%d", c->head_chunks) : NULL;
}

const char *head_chunks_frees(const Choice *c)
{
    return c->head_chunks > 1 ? NULL : "`head chunks auto` computes attention for some of the heads at a time";
}
