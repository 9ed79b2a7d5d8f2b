/* burst_chunks.h: a rank's part of a chunk, on either target: all of its owner's tokens, with all heads. */
#ifndef BURST_CHUNKS_H
#define BURST_CHUNKS_H

/* size in PlanWords */
static inline int64_t plan_part_words(const PlanState *s, int tensor, int part, int chunk)
{
    return plan_part_width[tensor][part] * plan_heads_of(s, tensor) * plan_chunk_in(s, tensor, chunk)->tokens;
}

/* The size for the largest chunk of any rank. */
static inline int64_t plan_slot_words(int pool, int tensor, int part)
{
    (void)pool;
    return plan_part_width[tensor][part] * plan_most_heads(tensor) * plan_most_tokens(tensor);
}

/* The rank's own chunk. */
static inline PlanSlot *plan_own(PlanState *s, int tensor)
{
    return &s->home[tensor];
}

#endif
