/* ---- rings, on either backend ---- */

/* A chunk's number from its coordinates, which wrap around. */
// @insert chunk

/* The next use of a pool, in rotation. */
static PlanSlot *plan_next(PlanPool *p)
{
    return &p->slot[p->uses++ % p->slots];
}

/* One hop, in the order of the schedule's text: `chunk` goes to rank `to`; what comes in return, from rank `from`, is chunk
 * `next`. Both ends know from the mask whether anybody further along needs it. */
typedef struct PlanHop { int tensor, channel, pool, chunk, to, from, next; } PlanHop;

enum { PLAN_COMPUTE = -1 }; /* where a wait names its stream: that of computing, else a channel */
static int plan_wait_free(BurstCtx *c, PlanState *s, int stream, int pool);

/* A slot for this rank's partial sum of the chunk, where it has none. */
static BURST_MAYBE_UNUSED int plan_partial(BurstCtx *c, PlanState *s, int tensor, int pool, int chunk, bool wait_free)
{
    if (s->held[tensor][chunk])
        return BURST_OK;
    if (wait_free)
        BURST_TRY(plan_wait_free(c, s, PLAN_COMPUTE, pool));
    PlanSlot *slot = plan_next(&s->pool[pool]);
    slot->chunk = chunk;
    slot->started = false;
    s->held[tensor][chunk] = slot;
    return BURST_OK;
}
