/* host/ops/scan/gated_norm.c: RMSNorm of groups of a row with a gate before or after it, and its gradients.
 */
#include "host/ops/scan/gate.h"
#include "burst_step.h"

static const float *weight_of(const BurstGatedNorm *m, const float *w, int64_t group)
{
    return m->shared ? w : w + group % m->groups * m->width;
}

static double gate(const BurstGatedNorm *m, float z)
{
    return gate_value(m->gate, burst_scale_or_one(m->scale) * (double)z);
}

static double slope(const BurstGatedNorm *m, float z)
{
    const double scale = burst_scale_or_one(m->scale);
    return gate_slope(m->gate, scale * (double)z) * scale;
}

/* What the norm is of. */
static double input(const BurstGatedNorm *m, float x, float z)
{
    return m->before ? (double)x * gate(m, z) : (double)x;
}

int burst_op_gated_norm(BurstExec *e, int64_t n, const BurstGatedNorm *m, const BurstAct *x,
                        const BurstAct *z, const BurstAct *w, BurstAct *y, float *rstd)
{
    (void)e;
    for (int64_t i = 0; i < n * m->groups; i++, x += m->width, z += m->width, y += m->width) {
        const float *by = weight_of(m, w, i);
        double square = 0;
        for (int j = 0; j < m->width; j++)
            square += input(m, x[j], z[j]) * input(m, x[j], z[j]);
        rstd[i] = (float)(1 / sqrt(square / m->width + m->eps));
        for (int j = 0; j < m->width; j++)
            y[j] = (float)(input(m, x[j], z[j]) * (double)rstd[i] * (double)by[j] *
                           (m->before ? 1 : gate(m, z[j])));
    }
    return BURST_OK;
}

/* Of one group. With g = dy w (times the gate where it comes after): d_input = r (g - input r^2 mean(g
 * input)). */
static void group_back(const BurstGatedNorm *m, const float *x, const float *z, const float *w, double r,
                       const float *dy, float *dx, float *dz)
{
    double along = 0;
    for (int j = 0; j < m->width; j++)
        along += (double)dy[j] * (double)w[j] * (m->before ? 1 : gate(m, z[j])) * input(m, x[j], z[j]);
    along *= r * r / m->width;
    for (int j = 0; j < m->width; j++) {
        const double value = gate(m, z[j]), in = input(m, x[j], z[j]), g = (double)dy[j] * (double)w[j];
        const double d_in = r * ((m->before ? g : g * value) - in * along);
        const double of_gate = m->before ? d_in * (double)x[j] : g * in * r;
        dx[j] = (float)(m->before ? d_in * value : d_in);
        dz[j] = (float)(of_gate * slope(m, z[j]));
    }
}

/* One element of w. */
static void weight_back(const BurstGatedNorm *m, int64_t n, int64_t at, const float *x, const float *z,
                        const float *rstd, const float *dy, float *dw)
{
    double sum = 0;
    for (int64_t i = m->shared ? 0 : at / m->width; i < n * m->groups; i += m->shared ? 1 : m->groups) {
        const int64_t j = i * m->width + at % m->width;
        sum += (double)dy[j] * input(m, x[j], z[j]) * (double)rstd[i] * (m->before ? 1 : gate(m, z[j]));
    }
    dw[at] += (float)sum;
}

int burst_op_gated_norm_back(BurstExec *e, int64_t n, const BurstGatedNorm *m, const BurstAct *x,
                             const BurstAct *z, const BurstAct *w, const float *rstd, const BurstAct *dy,
                             BurstAct *dx, BurstAct *dz, float *dw, void *scratch)
{
    (void)e, (void)scratch;
    for (int64_t at = 0; at < (m->shared ? 1 : m->groups) * (int64_t)m->width; at++)
        weight_back(m, n, at, x, z, rstd, dy, dw);
    for (int64_t i = 0; i < n * m->groups; i++)
        group_back(m, x + i * m->width, z + i * m->width, weight_of(m, w, i), (double)rstd[i],
                   dy + i * m->width, dx + i * m->width, dz + i * m->width);
    return BURST_OK;
}
