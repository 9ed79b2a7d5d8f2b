/* host/experts/products.c: products of experts' matrices with the rows of the tokens that chose them, by a
 * BLAS call an expert, and sums of a token's rows. */
#include "burst_step.h"
#include "burst_sizes.h"

#include <cblas.h>

/* ---- the router ---- */

int burst_op_logits(BurstExec *e, int64_t n, int hidden, int experts, const BurstAct *x, const BurstAct *w,
                    float *logits)
{
    return burst_op_linear(e, n, hidden, experts, 1, x, w, NULL, logits);
}

int burst_op_logits_dw(BurstExec *e, int64_t n, int hidden, int experts, const float *d_logits,
                       const BurstAct *x, float *dw)
{
    return burst_op_linear_dw(e, n, hidden, experts, 1, d_logits, x, dw);
}

int burst_op_logits_dx(BurstExec *e, int64_t n, int hidden, int experts, const float *d_logits,
                       const BurstAct *w, BurstAct *dx, bool add)
{
    return burst_op_linear_dx(e, n, hidden, experts, 1, d_logits, w, dx, add);
}

/* ---- rows of tokens ---- */

/* Rows `at` up to `end`, all of one expert, of which the caller has at most BURST_EXPERT_ROWS at a time. */
typedef struct Tile {
    int expert;
    int64_t at, end;
} Tile;

/* The next tile; begins with {0}; false: there are no more. */
static bool next_tile(const BurstExperts *m, const int32_t *first, Tile *t)
{
    t->at = t->end;
    while (t->expert < m->experts && t->at == first[t->expert + 1])
        t->expert++;
    if (t->expert == m->experts)
        return false;
    const int64_t left = first[t->expert + 1] - t->at;
    t->end = t->at + (left < BURST_EXPERT_ROWS ? left : BURST_EXPERT_ROWS);
    return true;
}

/* The tokens' rows of x, one after the other. */
static const float *gather(const BurstExperts *m, const Tile *t, int hidden, const float *x,
                           const int32_t *row, float *scratch)
{
    for (int64_t r = t->at; r < t->end; r++)
        memcpy(scratch + (r - t->at) * hidden, x + row[r] / m->top * (int64_t)hidden,
               (size_t)hidden * sizeof *x);
    return scratch;
}

int burst_op_experts_sum(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *rows,
                         const int32_t *slot, const BurstAct *add, BurstAct *y)
{
    (void)e;
    for (int64_t t = 0; t < n; t++)
        for (int64_t i = t * hidden, j = 0; j < hidden; i++, j++) {
            float sum = 0;
            for (int k = 0; k < m->top; k++)
                sum += rows[slot[t * m->top + k] * (int64_t)hidden + j];
            y[i] = (add ? add[i] : 0) + sum;
        }
    return BURST_OK;
}

/* ---- products ---- */

int burst_op_experts_up(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *x,
                        const int32_t *row, const int32_t *first, const BurstAct *w, BurstAct *gate_up,
                        void *scratch)
{
    const int64_t wide = 2 * m->width;
    (void)n;
    for (Tile t = {0}; next_tile(m, first, &t);)
        BURST_TRY(burst_op_linear(e, t.end - t.at, hidden, (int)wide, 1,
                                  gather(m, &t, hidden, x, row, scratch), w + t.expert * wide * hidden, NULL,
                                  gate_up + t.at * wide));
    return BURST_OK;
}

int burst_op_experts_up_dw(BurstExec *e, int64_t n, const BurstExperts *m, int hidden,
                           const BurstAct *d_gate_up, const BurstAct *x, const int32_t *row,
                           const int32_t *first, float *dw, void *scratch)
{
    const int64_t wide = 2 * m->width;
    (void)n;
    for (Tile t = {0}; next_tile(m, first, &t);)
        BURST_TRY(burst_op_linear_dw(e, t.end - t.at, hidden, (int)wide, 1, d_gate_up + t.at * wide,
                                     gather(m, &t, hidden, x, row, scratch), dw + t.expert * wide * hidden));
    return BURST_OK;
}

int burst_op_experts_up_dx(BurstExec *e, int64_t n, const BurstExperts *m, int hidden,
                           const BurstAct *d_gate_up, const int32_t *first, const BurstAct *w, BurstAct *rows)
{
    const int64_t wide = 2 * m->width;
    (void)n;
    for (Tile t = {0}; next_tile(m, first, &t);)
        BURST_TRY(burst_op_linear_dx(e, t.end - t.at, hidden, (int)wide, 1, d_gate_up + t.at * wide,
                                     w + t.expert * wide * hidden, rows + t.at * hidden, false));
    return BURST_OK;
}

int burst_op_experts_down(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *x,
                          const int32_t *first, const BurstAct *w, BurstAct *rows)
{
    const int64_t width = m->width;
    (void)n;
    for (Tile t = {0}; next_tile(m, first, &t);)
        BURST_TRY(burst_op_linear(e, t.end - t.at, (int)width, hidden, 1, x + t.at * width,
                                  w + t.expert * width * hidden, NULL, rows + t.at * hidden));
    return BURST_OK;
}

int burst_op_experts_down_dw(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *dy,
                             const BurstAct *x, const int32_t *row, const int32_t *first, float *dw,
                             void *scratch)
{
    const int64_t width = m->width;
    (void)n;
    for (Tile t = {0}; next_tile(m, first, &t);)
        BURST_TRY(burst_op_linear_dw(e, t.end - t.at, (int)width, hidden, 1,
                                     gather(m, &t, hidden, dy, row, scratch), x + t.at * width,
                                     dw + t.expert * width * hidden));
    return BURST_OK;
}

int burst_op_experts_down_dx(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *dy,
                             const int32_t *row, const int32_t *first, const BurstAct *w, BurstAct *dx,
                             void *scratch)
{
    const int64_t width = m->width;
    (void)n;
    for (Tile t = {0}; next_tile(m, first, &t);)
        BURST_TRY(burst_op_linear_dx(e, t.end - t.at, (int)width, hidden, 1,
                                     gather(m, &t, hidden, dy, row, scratch), w + t.expert * width * hidden,
                                     dx + t.at * width, false));
    return BURST_OK;
}
