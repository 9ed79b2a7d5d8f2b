/* host/ops/experts/loads.c: how many of the counted tokens chose each expert, and the loss that balances
 * experts. */
#include "burst_step.h"
#include "burst_train.h"

#include <math.h>

static bool counts(const int32_t *label, const float *weight, int64_t token)
{
    return label[token] >= 0 && weight[token] > 0;
}

static bool all_finite(const float *x, int n)
{
    bool finite = true;
    for (int i = 0; i < n; i++)
        finite &= isfinite(x[i]) != 0;
    return finite;
}

int burst_op_count(BurstExec *e, int64_t n, const BurstExperts *m, int layer, const int32_t *choice,
                   const float *logits, const int32_t *label, const float *weight, const BurstLoads *l)
{
    double *of = l->choices + (int64_t)layer * m->experts;
    (void)e;
    for (int64_t t = 0; t < n; t++) {
        of[0] += all_finite(logits + t * m->experts, m->experts) ? 0 : NAN;
        for (int k = 0; k < m->top && counts(label, weight, t); k++)
            of[choice[t * m->top + k]]++;
    }
    return BURST_OK;
}

static void softmax(int n, const float *logit, double *p)
{
    double most = logit[0], sum = 0;
    for (int i = 1; i < n; i++)
        most = fmax(most, (double)logit[i]);
    for (int i = 0; i < n; i++)
        sum += p[i] = exp((double)logit[i] - most);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

/* Whether fewer than `top` logits come before this one: larger ones, and equal ones of lower numbers. */
static bool is_among_top(const BurstExperts *m, const float *logit, int expert)
{
    int before = 0;
    for (int i = 0; i < m->experts; i++)
        before += logit[i] > logit[expert] || (i < expert && logit[i] >= logit[expert]);
    return before < m->top;
}

int burst_op_balance(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits,
                     const int32_t *label, const float *weight, const BurstLoads *l)
{
    double p[BURST_MOST_EXPERTS];
    (void)e;
    for (int64_t t = 0; t < n; t++, logits += m->experts) {
        if (!counts(label, weight, t))
            continue;
        softmax(m->experts, logits, p);
        for (int i = 0; i < m->experts; i++) {
            l->chosen[i] += is_among_top(m, logits, i);
            l->softmax[i] += p[i];
        }
        l->rows[0]++;
    }
    return BURST_OK;
}

/* Only P has a gradient: dz = p (g - sum(g p)), g the factor of P. */
int burst_op_balance_back(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits,
                          const int32_t *label, const float *weight, const BurstLoads *l, float *d_logits)
{
    const double rows = l->rows[0], factor = rows > 0 ? l->scale * m->experts / rows / rows : 0;
    double p[BURST_MOST_EXPERTS];
    (void)e;
    for (int64_t t = 0; t < n; t++, logits += m->experts, d_logits += m->experts) {
        double mean = 0;
        if (!counts(label, weight, t))
            continue;
        softmax(m->experts, logits, p);
        for (int i = 0; i < m->experts; i++)
            mean += factor * l->chosen[i] * p[i];
        for (int i = 0; i < m->experts; i++)
            d_logits[i] += (float)(p[i] * (factor * l->chosen[i] - mean));
    }
    return BURST_OK;
}

/* ---- over all ranks ---- */

int burst_sum_counts(BurstCtx *c, double *count, int64_t n)
{
    const int64_t most = BURST_MOST_VALUES;
    for (int64_t at = 0; at < n; at += most)
        BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, burst_world(c)}, count + at,
                                  (int)(n - at < most ? n - at : most)));
    return BURST_OK;
}

int burst_check_choices(BurstCtx *c, int layers, int experts, const double *choices)
{
    for (int64_t i = 0; i < (int64_t)layers * experts; i++)
        if (isnan(choices[i]))
            return burst_fail(c, BURST_E_NUMERIC,
                              "logits of the router in layer %lld are not finite; layers count from 0",
                              (long long)(i / experts));
    return BURST_OK;
}

void burst_largest_loads(int layers, int experts, const double *choices, double *largest)
{
    for (int l = 0; l < layers; l++, choices += experts) {
        double most = 0, sum = 0;
        for (int i = 0; i < experts; i++) {
            most = choices[i] > most ? choices[i] : most;
            sum += choices[i];
        }
        largest[l] = sum > 0 ? most * experts / sum : 0;
    }
}
