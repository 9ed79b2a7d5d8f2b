/* burst_rings.h: rings on either target: slots in rotation, and the transfers that a mask leaves. */
#ifndef BURST_RINGS_H
#define BURST_RINGS_H

/* The operations of rank `me`, forward and backward, defined at the program's end. */
/* attentions of the program's layers: a row of its table has an attention's functions and operations */
#ifdef PLAN_ATTENTIONS
typedef struct PlanAttention {
    int (*run[2])(BurstCtx *c, PlanState *s);
    burst_trace_fn trace[2];
} PlanAttention;
static const PlanAttention *plan_attends(int mask); /* attention of layers with that mask */
static inline burst_trace_fn plan_trace(int mask, int backward)
{
    return plan_attends(mask)->trace[backward];
}
static inline int plan_forward(BurstCtx *c, PlanState *s) { return plan_attends(s->mask)->run[0](c, s); }
static inline int plan_backward(BurstCtx *c, PlanState *s) { return plan_attends(s->mask)->run[1](c, s); }
#else
static void plan_trace_forward(BurstTrace *t, int me);
static void plan_trace_backward(BurstTrace *t, int me);
static inline burst_trace_fn plan_trace(int mask, int backward)
{
    (void)mask;
    return backward ? plan_trace_backward : plan_trace_forward;
}
#endif

static int plan_live_fill(BurstCtx *c, PlanState *s, int mask)
{
    const uint8_t *pair = s->buffer.pair_live[mask], *forward = pair, *backward = pair;
    const BurstPairTiles *tiles = NULL;
#ifdef PLAN_RANGES
    tiles = s->buffer.pair_tiles[mask];
#endif
#ifdef PLAN_SHARES
    const uint8_t *rows = plan_rows_live(pair, s->buffer.row_live);
    forward = PLAN_FORWARD_BY_HEADS ? rows : pair;
    backward = PLAN_BACKWARD_BY_HEADS ? rows : pair;
#endif
    BURST_TRY(burst_live_fill(c, plan_trace(mask, 0), PLAN_GROUP, PLAN_KEYS, s->me, false, forward, tiles,
                              &s->live[mask][0]));
    return burst_live_fill(c, plan_trace(mask, 1), PLAN_GROUP, PLAN_KEYS, s->me, true, backward, tiles,
                           &s->live[mask][1]);
}

/* The part of its chunk that an operation moves. */
static inline BurstTileRanges plan_sent(const BurstLive *live, int op)
{
    return live->sent ? live->sent[op] : burst_all_tiles();
}

static inline BurstTileRanges plan_received(const BurstLive *live, int op)
{
    return live->received ? live->received[op] : burst_all_tiles();
}

static inline int plan_home_ready(PlanState *s, PlanSlot *home); /* of a slot at its owner */

/* Sets the rank's own data for this attention, pieces one after the other; copies are only read. */
static inline int plan_home(PlanState *s, int tensor, const void *a, const void *b, const void *d,
                            const void *e)
{
    const void *part[PLAN_PARTS] = {a, b, d, e};
    memset(s->held[tensor], 0, sizeof s->held[tensor]);
    for (int p = 0; p < plan_pieces_of(tensor); p++) {
        PlanSlot *home = plan_home_slot(s, tensor, p);
        const int64_t begin = plan_piece_begin(s->n, p);
        for (int i = 0; i < PLAN_PARTS; i++) {
            home->part[i] = (PlanWord *)(uintptr_t)part[i];
            if (p && part[i])
                home->part[i] += begin * plan_heads_of(s, tensor) * plan_part_width[tensor][i];
        }
        home->chunk = s->me + p * PLAN_GROUP;
        home->started = true;
        s->held[tensor][home->chunk] = home;
        BURST_TRY(plan_home_ready(s, home));
    }
    return BURST_OK;
}

#ifndef PLAN_LATENTS
/* Sets the sums of the rank's own key and value gradients: zero, or sums of earlier queries. */
static inline int plan_home_sums(PlanState *s, float *dk, float *dv)
{
    return plan_home(s, BURST_T_DKV, dk, dv, NULL, NULL);
}
#endif

/* Lays out the slots of a pool, each with so many parts of the largest chunk. */
static inline void plan_pool_make(PlanState *s, int pool, int tensor, int parts, int slots, char *memory)
{
    PlanPool *p = &s->pool[pool];
    int64_t words = 0;
    p->tensor = tensor;
    p->slots = slots;
    for (int i = 0; i < parts; i++)
        words += plan_slot_words(pool, tensor, i);
    const size_t bytes = ((size_t)words * sizeof(PlanWord) + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    for (int k = 0; k < slots; k++) {
        PlanWord *at = (PlanWord *)(void *)(memory + (size_t)k * bytes);
        for (int i = 0; i < parts; at += plan_slot_words(pool, tensor, i), i++)
            p->slot[k].part[i] = at;
    }
}

/* The next slot of a pool, in rotation. */
static inline PlanSlot *plan_next(PlanPool *p)
{
    return &p->slot[p->uses++ % p->slots];
}

/* One hop, in the order of the schedule's text: `chunk` goes to rank `to`, and chunk `next` arrives from
 * rank `from`. Both ends know from the mask whether any rank further along needs it. */
typedef struct PlanHop { int tensor, channel, pool, chunk, to, from, next; } PlanHop;

enum { PLAN_COMPUTE = -1 }; /* the compute stream in waits; other values are channels */
static inline int plan_wait_free(BurstCtx *c, PlanState *s, int stream, int pool);

/* Takes a slot for this rank's partial sum of the chunk if there is none. */
static inline int plan_partial(BurstCtx *c, PlanState *s, int tensor, int pool, int chunk, bool wait_free)
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

#endif
