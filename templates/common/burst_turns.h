/* burst_turns.h: ranks that have a chunk together and split its layers, on either target. Each takes its
 * turn in their order: so many of the chunk's tokens are its own outside of attention and feed-forward,
 * and it exchanges with ranks of the same turn.
 */
#ifndef BURST_TURNS_H
#define BURST_TURNS_H

/* Once the chunk's tokens are known. */
static inline void plan_own_tokens(const BurstCtx *c, PlanState *s)
{
    s->n = s->chunk[s->me].tokens;
#ifdef PLAN_LIBRARY
    (void)c; /* of which each has its own */
    s->own = s->each = s->n;
#else
    const BurstOwn own = burst_own_tokens(&burst_plan, burst_rank(c), s->n);
    s->own = own.tokens;
    s->each = own.each;
    s->turn = burst_rank(c) - plan_rank_of(s->group, s->me);
#endif
}

/* The rank of another chunk that this one exchanges with. */
static inline int plan_peer(const PlanState *s, int chunk)
{
    return plan_rank_of(s->group, chunk) + s->turn;
}

#endif
