/* host/ops/experts/experts.c: a layer's experts: which a token chooses, with which weights, the order of
 * their rows; products of experts' matrices with the rows of the tokens that chose them, by a BLAS call an
 * expert. */
#include "burst_step.h"
#include "burst_sizes.h"

#include <math.h>

/* ---- the choice ---- */

/* Scores of a token. Sums of a softmax are doubles, however many experts there are. */
static void scores_of(const BurstExperts *m, const float *logit, float *score)
{
    float most = logit[0];
    double sum = 0;
    for (int i = 1; i < m->experts; i++)
        most = logit[i] > most ? logit[i] : most;
    for (int i = 0; i < m->experts; i++) {
        score[i] = m->score == BURST_SCORE_SIGMOID ? 1 / (1 + expf(-logit[i])) : expf(logit[i] - most);
        sum += (double)score[i];
    }
    for (int i = 0; i < m->experts && m->score == BURST_SCORE_SOFTMAX; i++)
        score[i] = (float)((double)score[i] / sum);
}

static bool is_chosen(const int32_t *choice, int chosen, int expert)
{
    for (int i = 0; i < chosen; i++)
        if (choice[i] == expert)
            return true;
    return false;
}

/* The largest score that is left. Choices are distinct, also where scores are NaN. */
static int32_t next_choice(const BurstExperts *m, const float *score, const int32_t *choice, int chosen)
{
    int32_t best = -1;
    for (int32_t i = 0; i < m->experts; i++)
        if (!is_chosen(choice, chosen, i) && (best < 0 || score[i] > score[best]))
            best = i;
    return best;
}

/* Of a group's scores the largest, or the sum of the two largest. */
static float group_score(const BurstExperts *m, const float *score)
{
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < m->experts / m->groups; i++) {
        const float lower = score[i] > first ? first : score[i];
        second = lower > second ? lower : second;
        first = score[i] > first ? score[i] : first;
    }
    return m->group_score == BURST_GROUP_TWO ? first + second : first;
}

/* Scores outside the best groups become -inf. */
static void keep_groups(const BurstExperts *m, float *score)
{
    const int each = m->experts / m->groups;
    float of_group[BURST_MOST_EXPERTS];
    int32_t kept[BURST_MOST_EXPERTS];
    const BurstExperts groups = {.experts = m->groups};
    for (int i = 0; i < m->groups; i++)
        of_group[i] = group_score(m, score + i * each);
    for (int k = 0; k < m->top_groups; k++)
        kept[k] = next_choice(&groups, of_group, kept, k);
    for (int i = 0; i < m->experts; i++)
        if (!is_chosen(kept, m->top_groups, i / each))
            score[i] = -INFINITY;
}

static double sum_of(const BurstExperts *m, const float *score, const int32_t *choice)
{
    double sum = m->eps;
    for (int k = 0; k < m->top; k++)
        sum += (double)score[choice[k]];
    return sum;
}

/* What a score of the chosen is multiplied by to become the weight of its expert. */
static double factor_of(const BurstExperts *m, const float *score, const int32_t *choice)
{
    const double sum = sum_of(m, score, choice), by = sum > m->least ? sum : m->least;
    return m->normalize ? m->scale / by : m->scale;
}

/* What experts are chosen by. */
static void set_order(const BurstExperts *m, const float *score, const float *correction, float *order)
{
    for (int i = 0; i < m->experts; i++)
        order[i] = score[i] + (correction ? correction[i] : 0);
    if (m->groups)
        keep_groups(m, order);
}

int burst_op_choose(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits, int32_t *choice,
                    float *route)
{
    return burst_op_choose_corrected(e, n, m, logits, NULL, choice, route);
}

int burst_op_choose_corrected(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits,
                              const float *correction, int32_t *choice, float *route)
{
    float score[BURST_MOST_EXPERTS], order[BURST_MOST_EXPERTS];
    (void)e;
    for (int64_t t = 0; t < n; t++, logits += m->experts, choice += m->top, route += m->top) {
        scores_of(m, logits, score);
        set_order(m, score, correction, order);
        for (int k = 0; k < m->top; k++)
            choice[k] = next_choice(m, order, choice, k);
        const double factor = factor_of(m, score, choice);
        for (int k = 0; k < m->top; k++)
            route[k] = (float)((double)score[choice[k]] * factor);
    }
    return BURST_OK;
}

/* Of one token. With weights w = scale p / S, S the sum of the chosen p plus eps, and their gradients g:
 * dp = (scale / S) (g - sum(g p) / S), the second term only where S is not the constant `least`. */
static void choose_back(const BurstExperts *m, const float *score, const int32_t *choice, const float *g,
                        float *d_logit)
{
    const double factor = factor_of(m, score, choice);
    double mean = 0, all = 0, d_score[BURST_MOST_EXPERTS];
    const bool follows = m->normalize && sum_of(m, score, choice) > m->least;
    for (int k = 0; k < m->top && follows; k++)
        mean += (double)g[k] * (double)score[choice[k]] * factor / m->scale;
    for (int k = 0; k < m->top; k++) {
        d_score[k] = factor * ((double)g[k] - mean);
        all += d_score[k] * (double)score[choice[k]];
    }
    const bool softmax = m->score == BURST_SCORE_SOFTMAX;
    for (int i = 0; i < m->experts; i++)
        d_logit[i] = softmax ? (float)(-(double)score[i] * all) : 0;
    for (int k = 0; k < m->top; k++) {
        const double p = (double)score[choice[k]];
        d_logit[choice[k]] += (float)(d_score[k] * p * (softmax ? 1 : 1 - p));
    }
}

int burst_op_choose_back(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits,
                         const int32_t *choice, const float *d_route, float *d_logits)
{
    float score[BURST_MOST_EXPERTS];
    (void)e;
    for (int64_t t = 0; t < n; t++) {
        scores_of(m, logits + t * m->experts, score);
        choose_back(m, score, choice + t * m->top, d_route + t * m->top, d_logits + t * m->experts);
    }
    return BURST_OK;
}

/* Whether the operation's group has the expert. */
static bool has_expert(const BurstExperts *m, int32_t expert)
{
    return expert >= m->first && expert < m->first + m->experts;
}

int burst_op_arrange(BurstExec *e, int64_t n, const BurstExperts *m, const int32_t *choice, int32_t *slot,
                     int32_t *row, int32_t *first, void *scratch)
{
    const int64_t choices = n * m->top;
    (void)e, (void)scratch;
    memset(first, 0, (size_t)(m->experts + 1) * sizeof *first);
    for (int64_t i = 0; i < choices; i++)
        if (has_expert(m, choice[i]))
            first[choice[i] - m->first + 1]++;
    for (int i = 0; i < m->experts; i++)
        first[i + 1] += first[i];
    for (int64_t i = first[m->experts]; i < burst_expert_rows(m, n); i++)
        row[i] = -1;
    for (int64_t i = 0; i < choices; i++) { /* first[e] runs up to first[e + 1] ... */
        slot[i] = has_expert(m, choice[i]) ? first[choice[i] - m->first]++ : -1;
        if (slot[i] >= 0)
            row[slot[i]] = (int32_t)i;
    }
    memmove(first + 1, first, (size_t)m->experts * sizeof *first); /* ... and goes back */
    first[0] = 0;
    return BURST_OK;
}

/* ---- the router ---- */

int burst_op_logits(BurstExec *e, int64_t n, int hidden, int experts, const BurstAct *x, const BurstAct *w,
                    float *logits)
{
    return burst_op_linear(e, n, hidden, experts, 1, x, w, NULL, logits);
}

int burst_op_logits_dw(BurstExec *e, int64_t n, int hidden, int experts, const float *d_logits,
                       const BurstAct *x, float *dw, void *scratch)
{
    (void)scratch;
    return burst_op_linear_dw(e, n, hidden, experts, 1, d_logits, x, dw);
}

int burst_op_logits_dx(BurstExec *e, int64_t n, int hidden, int experts, const float *d_logits,
                       const BurstAct *w, BurstAct *dx, bool add, void *scratch)
{
    (void)scratch;
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
                if (slot[t * m->top + k] >= 0)
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
    const int64_t wide = burst_experts_columns(m);
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
    const int64_t wide = burst_experts_columns(m);
    (void)n;
    for (Tile t = {0}; next_tile(m, first, &t);)
        BURST_TRY(burst_op_linear_dw(e, t.end - t.at, hidden, (int)wide, 1, d_gate_up + t.at * wide,
                                     gather(m, &t, hidden, x, row, scratch), dw + t.expert * wide * hidden));
    return BURST_OK;
}

int burst_op_experts_up_dx(BurstExec *e, int64_t n, const BurstExperts *m, int hidden,
                           const BurstAct *d_gate_up, const int32_t *first, const BurstAct *w, BurstAct *rows)
{
    const int64_t wide = burst_experts_columns(m);
    (void)n;
    for (Tile t = {0}; next_tile(m, first, &t);)
        BURST_TRY(burst_op_linear_dx(e, t.end - t.at, hidden, (int)wide, 1, d_gate_up + t.at * wide,
                                     w + t.expert * wide * hidden, rows + t.at * hidden, false));
    return BURST_OK;
}

int burst_op_experts_bias(BurstExec *e, int64_t n, const BurstExperts *m, const BurstAct *x,
                          const int32_t *first, const BurstAct *b, BurstAct *gate_up)
{
    const int wide = burst_experts_columns(m);
    (void)n;
    for (int i = 0; i < m->experts; i++) {
        const int64_t at = first[i] * (int64_t)wide;
        BURST_TRY(
            burst_op_bias(e, first[i + 1] - first[i], wide, x + at, b + (int64_t)i * wide, gate_up + at));
    }
    return BURST_OK;
}

int burst_op_experts_bias_back(BurstExec *e, int64_t n, const BurstExperts *m, const BurstAct *d_gate_up,
                               const int32_t *first, float *db)
{
    const int wide = burst_experts_columns(m);
    (void)n;
    for (int i = 0; i < m->experts; i++)
        BURST_TRY(burst_op_bias_back(e, first[i + 1] - first[i], wide, d_gate_up + first[i] * (int64_t)wide,
                                     db + (int64_t)i * wide));
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

int burst_op_experts_out_bias(BurstExec *e, int64_t n, const BurstExperts *m, int hidden,
                              const int32_t *choice, const float *route, const BurstAct *add,
                              const BurstAct *b, BurstAct *y)
{
    (void)e;
    for (int64_t t = 0; t < n; t++)
        for (int j = 0; j < hidden; j++) {
            float sum = 0;
            for (int64_t c = t * m->top; c < (t + 1) * m->top; c++)
                if (has_expert(m, choice[c]))
                    sum += route[c] * b[(choice[c] - m->first) * (int64_t)hidden + j];
            y[t * hidden + j] = (add ? add[t * hidden + j] : 0) + sum;
        }
    return BURST_OK;
}

int burst_op_experts_out_bias_back(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, bool adds,
                                   const BurstAct *dy, const int32_t *choice, const float *route,
                                   const BurstAct *b, float *d_route, float *db)
{
    (void)e;
    for (int64_t c = 0; c < n * m->top; c++) {
        const float *d = dy + c / m->top * hidden;
        const int64_t expert = (choice[c] - m->first) * (int64_t)hidden;
        double sum = 0;
        if (!has_expert(m, choice[c]))
            continue;
        for (int j = 0; j < hidden; j++) {
            sum += (double)d[j] * (double)b[expert + j];
            db[expert + j] += route[c] * d[j];
        }
        d_route[c] = (adds ? d_route[c] : 0) + (float)sum;
    }
    return BURST_OK;
}
