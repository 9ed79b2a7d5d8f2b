/* burst_heads.h: head parallelism on either target: the ranks that share heads, and each one's heads.
 *
 * The PLAN_SHARES ranks along the exchanged coordinate divide the query heads. Each attends with its share
 * of them for the chunks of all: chunk c then means the chunks of rank c and of all ranks that share heads
 * with it. */
#ifndef BURST_HEADS_H
#define BURST_HEADS_H

#ifdef PLAN_KEY_CHUNKS
enum { PLAN_KEY_ROW_TOKENS = PLAN_SHARES * PLAN_KEY_TOKENS };
#else
enum { PLAN_KEY_ROW_TOKENS = PLAN_ROW_TOKENS };
#endif

/* The rank's index among the ranks that share heads, and the i-th of those. */
static inline int plan_lane(int rank)
{
    return rank / PLAN_SHARE_STRIDE % PLAN_SHARES;
}

static inline int plan_member(int rank, int i)
{
    return rank + (i - plan_lane(rank)) * PLAN_SHARE_STRIDE;
}

/* Rank r attends with the query heads [plan_head0(s, lane), plan_head0(s, lane + 1)): at least one, divided
 * as evenly as possible. */
static inline int plan_head0(const PlanState *s, int lane)
{
    return (int)((int64_t)lane * s->heads.queries / PLAN_SHARES);
}

/* It reads their key heads [plan_kv0(s, lane), plan_kv_end(s, lane)). The first may be the last of the
 * previous lane. */
static inline int plan_kv0(const PlanState *s, int lane)
{
    return plan_head0(s, lane) / PLAN_KV_SHARE;
}

static inline int plan_kv_end(const PlanState *s, int lane)
{
    return (plan_head0(s, lane + 1) + PLAN_KV_SHARE - 1) / PLAN_KV_SHARE;
}

/* rows[q][k]: whether any chunk in row q has a live pair with any in row k; false for different lanes. */
static inline const uint8_t *plan_rows_live(const uint8_t *pair, uint8_t *rows)
{
    memset(rows, 0, (size_t)PLAN_GROUP * PLAN_GROUP);
    for (int q = 0; q < PLAN_GROUP; q++)
        for (int k = 0; k < PLAN_GROUP; k++)
            for (int lane = 0; lane < PLAN_SHARES && pair[q * PLAN_GROUP + k]; lane++)
                rows[plan_member(q, lane) * PLAN_GROUP + plan_member(k, lane)] = 1;
    return rows;
}

#endif
