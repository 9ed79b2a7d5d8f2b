/* burst_turns.h: tensor ranks, which have a chunk together and split its layers, on either target. Each owns
 * some of the chunk's tokens outside of attention and feed-forward, and exchanges with the ranks of the same
 * index. */
#ifndef BURST_TURNS_H
#define BURST_TURNS_H

/* Called once the chunk's tokens are known. */
static inline void plan_own_tokens(const BurstCtx *c, PlanState *s)
{
    s->n = s->chunk[s->me].tokens;
#ifdef PLAN_LIBRARY
    (void)c; /* each rank has all of them */
    s->own = s->each = s->n;
#else
    const BurstOwn own = burst_own_tokens(&burst_plan, burst_rank(c), s->n);
    s->own = own.tokens;
    s->each = own.each;
    s->turn = burst_rank(c) - plan_rank_of(s->group, s->me);
#endif
}

/* The rank of another chunk that this rank exchanges with. */
static inline int plan_peer(const PlanState *s, int chunk)
{
    return plan_rank_of(s->group, chunk) + s->turn;
}

#endif
