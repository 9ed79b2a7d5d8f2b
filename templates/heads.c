/* ---- head parallelism, on either backend: which heads a rank has ---- */

enum { PLAN_KV_SHARE = PLAN_HEADS / PLAN_KV_HEADS };

/* Rank r attends for the query heads [plan_head0(r), plan_head0(r + 1)): one at least, as many as ranks allow evenly. */
static int plan_head0(int rank)
{
    return (int)((int64_t)rank * PLAN_HEADS / PLAN_GROUP);
}

/* It reads the key heads [plan_kv0(r), plan_kv_end(r)) that those use. The first may be the last of the rank before. */
static int plan_kv0(int rank)
{
    return plan_head0(rank) / PLAN_KV_SHARE;
}

static int plan_kv_end(int rank)
{
    return (plan_head0(rank + 1) + PLAN_KV_SHARE - 1) / PLAN_KV_SHARE;
}

