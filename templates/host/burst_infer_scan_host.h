/* burst_infer_scan_host.h: what recurrent layers keep of a prompt, on the host. */
#ifndef BURST_INFER_SCAN_HOST_H
#define BURST_INFER_SCAN_HOST_H

#include "burst_infer_scan.h"

static inline int plan_share_rows(BurstCtx *c, PlanState *s, const float *x, float *rows)
{
    enum { WIDTH = PLAN_SCAN_COLUMNS, ROWS = PLAN_SCAN_KERNEL };
    const BurstGroup ranks = {s->turn, burst_world(c) / PLAN_GROUP, PLAN_GROUP};
    memset(rows, 0, (size_t)ROWS * WIDTH * sizeof *rows);
    for (int j = 0; j < ROWS; j++) {
        const int64_t position = s->infer.prompt - ROWS + j;
        int64_t row = 0;
        if (position >= 0 && plan_row_of(s, position, &row) == s->me)
            memcpy(rows + j * WIDTH, x + row * WIDTH, WIDTH * sizeof *x);
    }
    return PLAN_GROUP > 1 ? burst_sum_over(c, ranks, rows, ROWS * WIDTH) : BURST_OK;
}

static inline int plan_shift_rows(BurstCtx *c, PlanState *s, const float *x, float *rows)
{
    enum { WIDTH = PLAN_SCAN_COLUMNS, ROWS = PLAN_SCAN_KERNEL };
    (void)c, (void)s;
    memmove(rows, rows + WIDTH, (size_t)(ROWS - 1) * WIDTH * sizeof *rows);
    memcpy(rows + (ROWS - 1) * WIDTH, x, WIDTH * sizeof *x);
    return BURST_OK;
}

#ifdef PLAN_SCAN_HEADS
static inline int plan_end_gates(BurstCtx *c, PlanState *s, float *beta, float *decay)
{
    (void)c;
    for (int64_t i = 0; i < s->n * PLAN_SCAN_HEADS; i++)
        if (s->position[i / PLAN_SCAN_HEADS] >= s->infer.prompt)
            beta[i] = decay[i] = 0;
    return BURST_OK;
}
#endif

#endif
