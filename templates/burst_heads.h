/* burst_heads.h: head parallelism on either target: which heads a rank has. */
#ifndef BURST_HEADS_H
#define BURST_HEADS_H

enum { PLAN_KV_SHARE = PLAN_HEADS / PLAN_KV_HEADS };

/* Rank r attends for the query heads [plan_head0(r), plan_head0(r + 1)): one at least, as many as ranks allow evenly. */
static inline int plan_head0(int rank)
{
    return (int)((int64_t)rank * PLAN_HEADS / PLAN_GROUP);
}

/* It reads the key heads [plan_kv0(r), plan_kv_end(r)) that those use. The first may be the last of the rank before. */
static inline int plan_kv0(int rank)
{
    return plan_head0(rank) / PLAN_KV_SHARE;
}

static inline int plan_kv_end(int rank)
{
    return (plan_head0(rank + 1) + PLAN_KV_SHARE - 1) / PLAN_KV_SHARE;
}

/* An exchange moves every chunk, whatever a mask leaves. */
static int plan_live_fill(BurstCtx *c, PlanState *s, int mask)
{
    (void)c, (void)s, (void)mask;
    return BURST_OK;
}

#endif
