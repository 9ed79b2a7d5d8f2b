/* host/ops/sink.c: learned sinks, where a row's keys are all known: after attention, whatever its schedule
 * was. */
#include "burst_rt.h"
#include "host/ops/vec.h"

static float keep_of(float lse, float sink)
{
    return (float)(1 / (1 + exp((double)sink - lse)));
}

void burst_sink(int64_t n, int heads, int d, const float *o, const float *lse, const float *sink, float *out)
{
    for (int64_t row = 0; row < heads * n; row++) {
        const float keep = keep_of(lse[row], sink[row / n]);
        for (int64_t i = row * d; i < (row + 1) * d; i++)
            out[i] = o[i] * keep;
    }
}

void burst_sink_back(int64_t n, int heads, int d, const float *d_out, const float *o, const float *lse,
                     const float *sink, float *d_o, float *d_lse, float *d_sink)
{
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
}
