/* burst_shares.h: a rank's part of a chunk, on either target, if ranks share heads: its owner's tokens with
 * all heads, or, by heads, the tokens of all ranks that share heads with the owner. */
#ifndef BURST_SHARES_H
#define BURST_SHARES_H

/* Tokens of a rank's keys, or of its queries in the running attention. */
static inline int64_t plan_tokens_in(const PlanState *s, int rank, bool keys)
{
    return (keys ? s->key : s->chunk)[rank].tokens;
}

/* Tokens of the first `chunks` ranks that share heads with the rank; PLAN_SHARES: of the whole row. */
static inline int64_t plan_row_tokens(const PlanState *s, int rank, int chunks, bool keys)
{
    int64_t tokens = 0;
    for (int i = 0; i < chunks; i++)
        tokens += plan_tokens_in(s, plan_member(rank, i), keys);
    return tokens;
}

/* Size of this rank's part of a chunk in PlanWords. */
static inline int64_t plan_part_words(const PlanState *s, int tensor, int part, int chunk)
{
    const bool keys = plan_of_keys(tensor);
    const int lane = plan_lane(s->me);
    if (!s->by_heads)
        return plan_part_width[tensor][part] * plan_heads_of(s, tensor) * plan_tokens_in(s, chunk, keys);
    const int heads = keys ? plan_kv_end(s, lane) - plan_kv0(s, lane)
                           : plan_head0(s, lane + 1) - plan_head0(s, lane);
    return plan_part_width[tensor][part] * heads * plan_row_tokens(s, chunk, PLAN_SHARES, keys);
}

/* The size for the largest chunk of any rank. */
static inline int64_t plan_slot_words(int pool, int tensor, int part)
{
    const bool keys = plan_of_keys(tensor),
               by_heads = pool < PLAN_FORWARD_POOLS ? PLAN_FORWARD_BY_HEADS : PLAN_BACKWARD_BY_HEADS;
    if (!by_heads)
        return plan_part_width[tensor][part] * plan_most_heads(tensor) * plan_most_tokens(tensor);
    return plan_part_width[tensor][part] *
           (keys ? PLAN_SHARE_KV_HEADS * PLAN_KEY_ROW_TOKENS : PLAN_SHARE_HEADS * PLAN_ROW_TOKENS);
}

/* The rank's own chunk. */
static inline PlanSlot *plan_own(PlanState *s, int tensor)
{
    return s->by_heads ? &s->share[tensor] : &s->home[tensor];
}

/* Sets the rank's arrays for attention by heads. */
static inline void plan_share(PlanState *s, int tensor, void *a, void *b, void *d, void *e)
{
    PlanSlot *share = &s->share[tensor];
    void *part[PLAN_PARTS] = {a, b, d, e};
    for (int i = 0; i < PLAN_PARTS; i++)
        share->part[i] = (PlanWord *)part[i];
    share->chunk = s->me;
    share->started = true;
    s->held[tensor][s->me] = share;
}

#endif
