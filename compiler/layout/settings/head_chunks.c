/* settings/head_chunks.c: `head chunks`: attention over 1, 2, ... chunks of whole key heads and their
 * queries. Some chunks may have one key head less. */
#include "layout/layout.h"

static bool is_open(const Program *p)
{
    return p->layout.head_chunks.is_auto;
}

/* The n-th number of chunks whose largest chunk is smaller than with fewer chunks. Other numbers need as
 * much memory as a smaller one. 0: there are fewer. */
static int chunks_at(const Program *p, int n)
{
    const int kv_heads = program_shape(p).rank.kv_heads;
    for (int chunks = 1, last = kv_heads + 1; chunks <= kv_heads; chunks++) {
        const int most = (kv_heads + chunks - 1) / chunks;
        if (most < last && n-- == 0)
            return chunks;
        last = most;
    }
    return 0;
}

static int count(const Program *p)
{
    int n = 1;
    while (is_open(p) && chunks_at(p, n))
        n++;
    return n;
}

static bool take(const Program *p, Choice *c, int n)
{
    c->head_chunks = is_open(p) ? chunks_at(p, n) : (int)p->layout.head_chunks.value;
    return true;
}

static bool other(const Program *p, Choice *c, int n)
{
    c->head_chunks = chunks_at(p, n);
    return c->head_chunks > 0;
}

/* Why chunks of heads cannot choose by themselves; NULL: they can. */
static const char *why_not_chosen(Arena *a, const Program *p)
{
    for (int i = 0; i < p->selection_count; i++) {
        const Selection *s = &p->selections[i];
        if (s->for_each < 0)
            return arena_printf(
                a,
                "`head chunks` cannot be combined with selection '%s', whose scores are sums over "
                "all heads; use `for kv_head` or `head chunks 1`",
                s->text);
        if (s->indexer && p->model.indexer.kv_heads > 1)
            return arena_printf(
                a,
                "`head chunks` requires that the queries of indexer '%s' read one key head; use "
                "`kv_heads 1` in it, or `head chunks 1`",
                s->score);
    }
    return NULL;
}

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    if (c->head_chunks < 2)
        return NULL;
    if (why_not_chosen(a, p))
        return why_not_chosen(a, p);
    if (p->model.layer.qk_norm_all)
        return "`qk_norm all` reads all heads of a token at once; remove `head chunks`";
    if (saving_why_no_chunks(c, true))
        return saving_why_no_chunks(c, true);
    const Heads all = shape_of(p, c).rank;
    const int ranks = choice_heads(c), queries = all.heads / all.kv_heads,
              least = all.kv_heads / c->head_chunks * queries;
    const int most = all.kv_heads / ((ranks + queries - 1) / queries);
    return ranks <= least
               ? NULL
               : arena_printf(
                     a,
                     "%d ranks cannot share the %d head%s of %s of %d head chunks; use at most %d head "
                     "chunk%s",
                     ranks, least, plural(least), all.kv_heads % c->head_chunks ? "the smallest" : "each",
                     c->head_chunks, most, plural(most));
}

static const char *text(Arena *a, const Choice *c)
{
    return c->head_chunks > 1 ? arena_printf(a, "%d", c->head_chunks) : NULL;
}

const SettingRecord setting_head_chunks = {
    .form = &form_head_chunks,
    .column = 11,
    .if_several = true,
    .escalates = true,
    .spares = true,
    .count = count,
    .take = take,
    .trains = true,
    .other = other,
    .why_not = why_not,
    .text = text,
};
