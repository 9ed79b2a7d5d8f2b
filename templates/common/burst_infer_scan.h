/* burst_infer_scan.h: what recurrent layers keep of a prompt for the tokens that continue it: the rows before
 * the next token's convolution, and the state after the last token. All ranks have both, and compute later
 * tokens alike. The filling of a prompt leaves the state as it is: its gates are 0. */
#ifndef BURST_INFER_SCAN_H
#define BURST_INFER_SCAN_H

/* Of the target. Copies row j of `rows`, PLAN_SCAN_KERNEL of them, from the prompt's token that is so far
 * before its end, whichever rank has it; 0: there is none. */
static inline int plan_share_rows(BurstCtx *c, PlanState *s, const BurstAct *x, BurstAct *rows);
static inline int plan_shift_rows(BurstCtx *c, PlanState *s, const BurstAct *x, BurstAct *rows);
#ifdef PLAN_SCAN_HEADS
static inline int plan_end_gates(BurstCtx *c, PlanState *s, float *beta, float *decay);
#endif

/* Which chunk has a position, and its row there. */
static inline int plan_row_of(const PlanState *s, int64_t position, int64_t *row)
{
#ifdef PLAN_SCAN_PIECES
    const BurstSequencePiece *p = s->scan.piece;
    while (position >= p->position + p->rows)
        p++;
    *row = p->row + position - p->position;
    return p->chunk;
#else
    *row = position;
    return s->me;
#endif
}

/* rows: the token's own is the last. */
static inline int plan_cache_conv(BurstCtx *c, PlanState *s, const BurstAct *x, BurstAct *rows)
{
    s->infer.conv = rows;
    return s->infer.decodes ? plan_shift_rows(c, s, x, rows) : plan_share_rows(c, s, x, rows);
}

/* What the convolution of the running sequence begins with; other: a prompt's. */
static inline const BurstAct *plan_rows_before(const PlanState *s, const BurstAct *other)
{
    return s->infer.decodes ? s->infer.conv : other;
}

#ifdef PLAN_SCAN_HEADS
static inline int plan_cache_scan(BurstCtx *c, PlanState *s, float *beta, float *decay, float *state)
{
    s->infer.state = state;
    if (s->infer.decodes || s->infer.prompt == plan_lengths[plan_length])
        return BURST_OK;
    return plan_end_gates(c, s, beta, decay);
}

/* What the scan begins with. */
static inline const float *plan_state_before(const PlanState *s, const float *other)
{
    return s->infer.decodes ? s->infer.state : other;
}

/* Where the scan leaves its state; NULL: it has several pieces, whose maps give the state after all. */
static inline float *plan_state_after(const PlanState *s)
{
    return s->infer.decodes || PLAN_GROUP == 1 ? s->infer.state : NULL;
}

#endif

#endif
