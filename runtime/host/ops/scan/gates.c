/* host/ops/scan/gates.c: what a recurrent layer's tokens write by and forget by, a gate that multiplies a
 * branch, and RMSNorm with a gate. Few numbers a token: in double. */
#include "burst_step.h"

#include <math.h>

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

static double bounded(const BurstScan *s, double step)
{
    if (step < s->step_least)
        return s->step_least;
    return step > s->step_most ? s->step_most : step;
}

int burst_op_scan_gates(BurstExec *e, int64_t n, const BurstScan *s, const BurstAct *raw,
                        const BurstAct *a_log, const BurstAct *dt_bias, float *beta, float *decay)
{
    const int width = s->read ? 2 * s->heads : s->heads;
    const double scale = burst_scale_or_one(s->step_scale);
    (void)e;
    for (int64_t i = 0; i < n * s->heads; i++) {
        const int64_t head = i % s->heads, at = i / s->heads * width + head;
        const double to_step = scale * (double)raw[at + width - s->heads] + (double)dt_bias[head];
        const double step = s->read ? softplus(to_step) : bounded(s, softplus(to_step));
        beta[i] = (float)(s->read ? s->beta_most * sigmoid((double)raw[at]) : step);
        decay[i] = (float)(-exp((double)a_log[head]) * step);
    }
    return BURST_OK;
}

int burst_op_scan_gates_back(BurstExec *e, int64_t n, const BurstScan *s, const BurstAct *raw,
                             const BurstAct *a_log, const BurstAct *dt_bias, const float *d_beta,
                             const float *d_decay, BurstAct *d_raw, float *d_a_log, float *d_dt_bias,
                             void *scratch)
{
    const int width = s->read ? 2 * s->heads : s->heads;
    const double scale = burst_scale_or_one(s->step_scale);
    (void)e, (void)scratch;
    for (int head = 0; head < s->heads; head++) {
        const double rate = -exp((double)a_log[head]);
        double sum_rate = 0, sum_bias = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = i * width + head, alpha = at + width - s->heads, to = i * s->heads + head;
            const double x = scale * (double)raw[alpha] + (double)dt_bias[head], step = softplus(x);
            const bool free = s->read || (step > s->step_least && step < s->step_most);
            const double d_step = (double)d_decay[to] * rate + (s->read ? 0 : (double)d_beta[to]);
            const double d_x = free ? d_step * sigmoid(x) : 0, b = sigmoid((double)raw[at]);
            sum_rate += (double)d_decay[to] * rate * (s->read ? step : bounded(s, step));
            sum_bias += d_x;
            if (s->read)
                d_raw[at] = (float)((double)d_beta[to] * s->beta_most * b * (1 - b));
            d_raw[alpha] = (float)(scale * d_x);
        }
        d_a_log[head] += (float)sum_rate;
        d_dt_bias[head] += (float)sum_bias;
    }
    return BURST_OK;
}
