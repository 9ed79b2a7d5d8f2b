/* ---- rings, on either backend ---- */

/* A chunk's number from its coordinates, which wrap around. */
static int plan_chunk(int64_t c0, int64_t c1)
{
    c0 = (c0 % PLAN_SIZE0 + PLAN_SIZE0) % PLAN_SIZE0;
    c1 = (c1 % PLAN_SIZE1 + PLAN_SIZE1) % PLAN_SIZE1;
    return (int)(c0 * PLAN_SIZE1 + c1);
}

/* The next use of a pool, in rotation. */
static PlanSlot *plan_next(PlanPool *p)
{
    return &p->slot[p->uses++ % p->slots];
}

/* One hop, in the order of the schedule's text: `chunk` goes to rank `to`; what comes in return, from rank `from`, is chunk
 * `next`. Both ends know from the mask whether anybody further along needs it. */
typedef struct PlanHop { int tensor, channel, pool, chunk, to, from, next; } PlanHop;
