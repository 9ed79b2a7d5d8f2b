/* host/ops/sink.c: operations on attention's outputs, for any schedule: delta, and learned sinks. */
#include "burst_attend.h"
#include "burst_step.h"
#include "host/ops/vec.h"

int burst_op_delta(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o, const BurstAct *d_o,
                   float *delta)
{
    (void)e;
    burst_attend_delta(heads * n, d, o, d_o, delta);
    return BURST_OK;
}

int burst_op_delta_lse(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o, const BurstAct *d_o,
                       const float *d_lse, float *delta)
{
    BURST_TRY(burst_op_delta(e, n, heads, d, o, d_o, delta));
    for (int64_t i = 0; i < heads * n; i++)
        delta[i] -= d_lse[i];
    return BURST_OK;
}

static float keep_of(float lse, float sink) { return (float)(1 / (1 + exp((double)sink - lse))); }

int burst_op_sink(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o, const float *lse,
                  const BurstAct *sink, BurstAct *out)
{
    (void)e;
    for (int64_t row = 0; row < heads * n; row++) {
        const float keep = keep_of(lse[row], sink[row / n]);
        for (int64_t i = row * d; i < (row + 1) * d; i++)
            out[i] = o[i] * keep;
    }
    return BURST_OK;
}

int burst_op_sink_back(BurstExec *e, int64_t n, int heads, int d, const BurstAct *d_out, const BurstAct *o,
                       const float *lse, const BurstAct *sink, BurstAct *d_o, float *d_lse, float *d_sink)
{
    (void)e;
    for (int h = 0; h < heads; h++) {
        double sum = 0;
        for (int64_t row = h * n; row < (h + 1) * n; row++) {
            const double keep = 1 / (1 + exp((double)sink[h] - lse[row])),
                         along = vec_dot(d, d_out + row * d, o + row * d);
            sum += keep * (1 - keep) * along;
            d_lse[row] = (float)(keep * (1 - keep) * along);
            for (int64_t i = row * d; i < (row + 1) * d; i++)
                d_o[i] = d_out[i] * (float)keep;
        }
        d_sink[h] -= (float)sum;
    }
    return BURST_OK;
}
