/* host/experts/route.c: which experts a token chooses, with which weights, and the order of their rows. */
#include "burst_step.h"

#include <math.h>

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

/* What a score of the chosen is multiplied by to become the weight of its expert. */
static double factor_of(const BurstExperts *m, const float *score, const int32_t *choice)
{
    double sum = m->eps;
    for (int k = 0; k < m->top; k++)
        sum += (double)score[choice[k]];
    return m->normalize ? m->scale / sum : m->scale;
}

int burst_op_choose(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits, int32_t *choice,
                    float *route)
{
    float score[BURST_MOST_EXPERTS];
    (void)e;
    for (int64_t t = 0; t < n; t++, logits += m->experts, choice += m->top, route += m->top) {
        scores_of(m, logits, score);
        for (int k = 0; k < m->top; k++)
            choice[k] = next_choice(m, score, choice, k);
        const double factor = factor_of(m, score, choice);
        for (int k = 0; k < m->top; k++)
            route[k] = (float)((double)score[choice[k]] * factor);
    }
    return BURST_OK;
}

/* Of one token. With weights w = scale p / S, S the sum of the chosen p plus eps, and their gradients g:
 * dp = (scale / S) (g - sum(g p) / S). */
static void choose_back(const BurstExperts *m, const float *score, const int32_t *choice, const float *g,
                        float *d_logit)
{
    const double factor = factor_of(m, score, choice);
    double mean = 0, all = 0, d_score[BURST_MOST_EXPERTS];
    for (int k = 0; k < m->top && m->normalize; k++)
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

int burst_op_arrange(BurstExec *e, int64_t n, const BurstExperts *m, const int32_t *choice, int32_t *slot,
                     int32_t *row, int32_t *first)
{
    const int64_t choices = n * m->top;
    (void)e;
    memset(first, 0, (size_t)(m->experts + 1) * sizeof *first);
    for (int64_t i = 0; i < choices; i++)
        first[choice[i] + 1]++;
    for (int i = 0; i < m->experts; i++)
        first[i + 1] += first[i];
    for (int64_t i = 0; i < choices; i++) { /* first[e] runs up to first[e + 1] ... */
        slot[i] = first[choice[i]]++;
        row[slot[i]] = (int32_t)i;
    }
    memmove(first + 1, first, (size_t)m->experts * sizeof *first); /* ... and goes back */
    first[0] = 0;
    return BURST_OK;
}
