/* search/warn.c: warnings about layouts that leave kernels with less than a tile. */
#include "search/internal.h"

#include "burst_int.h"

/* The rank with the fewest tokens of a sequence. */
static int least_rank(const Partition *p)
{
    int least = 0;
    for (int r = 1; r < p->ranks; r++)
        least = p->of[r].tokens < p->of[least].tokens ? r : least;
    return least;
}

static void note_equal(Diags *d, const Program *p, const Choice *c)
{
    const int64_t most = p->sequence / BURST_TILE;
    int ranks = (int)burst_max(1, burst_min(most, c->ranks));
    const int world = p->cluster.world / program_tensor(p);
    while (world % ranks)
        ranks--;
    if (p->infer.lengths)
        diag_note(d, (Span){0}, "use fewer ranks, or a longest of `lengths` of at least %lld tokens",
                  (long long)BURST_TILE * c->ranks);
    else
        diag_note(d, (Span){0},
                  "use `data %d`, which gives each sequence %d rank%s, or a sequence of at least %lld tokens",
                  world / ranks, ranks, plural(ranks), (long long)BURST_TILE * c->ranks);
}

static void note_shared(Diags *d, const Choice *c, int rank)
{
    int64_t all = 0;
    for (int r = 0; r < c->ranks; r++)
        all += c->share[r];
    diag_note(d, (Span){0}, "its share is %d of %lld; increase it or use a sequence of at least %lld tokens",
              c->share[rank], (long long)all,
              (long long)((BURST_TILE * all + c->share[rank] - 1) / c->share[rank]));
}

/* Where the layout gives the number of ranks that share a sequence. */
static Span ranks_span(const Program *p)
{
    const Setting *given[] = {&p->layout.context, &p->layout.heads, &p->layout.data};
    for (int i = 0; i < countof(given); i++)
        if (given[i]->given)
            return given[i]->span;
    return p->sequence_span;
}

/* A chunk smaller than a tile is computed as a full tile. */
void search_warn(Diags *d, const Program *p, const Choice *c)
{
    const Layout *l = &p->layout;
    Arena *a = arena_new();
    layout_warn_idle(d, p, c);
    const Partition *part = partition_shared(a, c->partition, c->block, p->sequence, c->ranks, c->share);
    const int rank = least_rank(part);
    const int64_t tokens = part->of[rank].tokens;
    const Span equal = ranks_span(p);
    if (c->ranks > 1 && tokens < BURST_TILE) {
        diag_warn(d, WARN_FEW_TOKENS, c->share && l->shares.given ? l->shares.span : equal,
                  "a rank has %lld token%s of a sequence, but kernels compute whole tiles of %d tokens",
                  (long long)tokens, plural(tokens), BURST_TILE);
        if (c->share)
            note_shared(d, c, rank);
        else
            note_equal(d, p, c);
    }
    arena_free(a);
}
