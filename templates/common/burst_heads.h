/* burst_heads.h: head parallelism on either target: who shares the heads, and which of them a rank has.
 *
 * The PLAN_SHARES ranks along the exchanged coordinate share the query heads among them. Each attends its
 * share of them for the chunks of all: chunk c then stands for the chunks of rank c and of those that
 * share heads with it.
 */
#ifndef BURST_HEADS_H
#define BURST_HEADS_H

#ifdef PLAN_KEY_CHUNKS
enum { PLAN_KEY_ROW_TOKENS = PLAN_SHARES * PLAN_KEY_TOKENS };
#else
enum { PLAN_KEY_ROW_TOKENS = PLAN_ROW_TOKENS };
#endif

/* Which of the ranks that share heads it is, and the i-th of them. */
static inline int plan_lane(int rank)
{
    return rank / PLAN_SHARE_STRIDE % PLAN_SHARES;
}

static inline int plan_member(int rank, int i)
{
    return rank + (i - plan_lane(rank)) * PLAN_SHARE_STRIDE;
}

/* Rank r attends for the query heads [plan_head0(s, lane), plan_head0(s, lane + 1)): one at least, as many
 * as shares allow evenly. */
static inline int plan_head0(const PlanState *s, int lane)
{
    return (int)((int64_t)lane * s->heads.queries / PLAN_SHARES);
}

/* It reads the key heads [plan_kv0(s, lane), plan_kv_end(s, lane)) that those use. The first may be the
 * last of the lane before. */
static inline int plan_kv0(const PlanState *s, int lane)
{
    return plan_head0(s, lane) / PLAN_KV_SHARE;
}

static inline int plan_kv_end(const PlanState *s, int lane)
{
    return (plan_head0(s, lane + 1) + PLAN_KV_SHARE - 1) / PLAN_KV_SHARE;
}

/* rows[q][k]: whether any chunk that q stands for has a pair with any that k does; of different lanes: no. */
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
