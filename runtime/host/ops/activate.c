/* host/ops/activate.c: activations other than SwiGLU, with a gate and without, those of experts, a token's
 * gate, and their gradients. */
#include "burst_step.h"
#include "host/ops/scan/gate.h"

#include <math.h>

static const float ROOT = 0.7978845608028654f, CUBE = 0.044715f; /* of gelu's approximation: sqrt(2 / pi) */

static float gelu_tanh_inner(float x) { return tanhf(ROOT * (x + CUBE * x * x * x)); }

static float value_of(int kind, float x)
{
    switch (kind) {
    case BURST_ACTIVATION_GEGLU:
    case BURST_ACTIVATION_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case BURST_ACTIVATION_GEGLU_TANH:
    case BURST_ACTIVATION_GELU_TANH: return 0.5f * x * (1 + gelu_tanh_inner(x));
    case BURST_ACTIVATION_RELU2: return x <= 0 ? 0 : x * x; /* NaN propagates */
    default: return x / (1 + expf(-x));
    }
}

static float slope_of(int kind, float x)
{
    const float t = gelu_tanh_inner(x), s = 1 / (1 + expf(-x));
    switch (kind) {
    case BURST_ACTIVATION_GEGLU:
    case BURST_ACTIVATION_GELU:
        return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
    case BURST_ACTIVATION_GEGLU_TANH:
    case BURST_ACTIVATION_GELU_TANH:
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * ROOT * (1 + 3 * CUBE * x * x);
    case BURST_ACTIVATION_RELU2: return x <= 0 ? 0 : 2 * x;
    default: return s * (1 + x * (1 - s));
    }
}

static bool has_gate(int kind) { return kind <= BURST_ACTIVATION_GEGLU_TANH; }

int burst_op_activate(BurstExec *e, int kind, double scale, int64_t n, int ffn, const BurstAct *x,
                      BurstAct *y)
{
    const int64_t count = n * ffn;
    const float *up = has_gate(kind) ? x + count : NULL;
    (void)e;
    for (int64_t i = 0; i < count; i++)
        y[i] = value_of(kind, (float)scale * x[i]) * (up ? up[i] : 1);
    return BURST_OK;
}

int burst_op_activate_back(BurstExec *e, int kind, double scale, int64_t n, int ffn, const BurstAct *x,
                           const BurstAct *dy, BurstAct *dx)
{
    const int64_t count = n * ffn;
    const float *up = has_gate(kind) ? x + count : NULL;
    float *d_up = dx + count;
    (void)e;
    for (int64_t i = 0; i < count; i++) {
        const float gate = (float)scale * x[i], by = up ? up[i] : 1;
        if (up)
            d_up[i] = dy[i] * value_of(kind, gate);
        dx[i] = dy[i] * by * slope_of(kind, gate) * (float)scale;
    }
    return BURST_OK;
}

int burst_op_gate_elements(BurstExec *e, int gate, double scale, int64_t n, int width, const BurstAct *x,
                           const BurstAct *z, BurstAct *y)
{
    (void)e;
    for (int64_t i = 0; i < n * width; i++)
        y[i] = (float)((double)x[i] * gate_value(gate, scale * (double)z[i]));
    return BURST_OK;
}

int burst_op_gate_elements_back(BurstExec *e, int gate, double scale, int64_t n, int width, const BurstAct *x,
                                const BurstAct *z, const BurstAct *dy, BurstAct *dx, BurstAct *dz)
{
    (void)e;
    for (int64_t i = 0; i < n * width; i++) {
        const double d = (double)dy[i], by = scale * (double)z[i], value = gate_value(gate, by);
        dz[i] = (float)(d * (double)x[i] * gate_slope(gate, by) * scale);
        dx[i] = (float)(d * value);
    }
    return BURST_OK;
}

int burst_op_gate(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *gate, BurstAct *y)
{
    (void)e;
    for (int64_t t = 0; t < n; t++) {
        const float by = 1 / (1 + expf(-gate[t]));
        for (int64_t i = t * width; i < (t + 1) * width; i++)
            y[i] = by * x[i];
    }
    return BURST_OK;
}

int burst_op_gate_back(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *gate,
                       const BurstAct *dy, BurstAct *dx, BurstAct *d_gate)
{
    (void)e;
    for (int64_t t = 0; t < n; t++) {
        const float by = 1 / (1 + expf(-gate[t]));
        double sum = 0;
        for (int64_t i = t * width; i < (t + 1) * width; i++) {
            sum += (double)dy[i] * (double)x[i];
            dx[i] = by * dy[i];
        }
        d_gate[t] = (float)sum * by * (1 - by);
    }
    return BURST_OK;
}

/* An expert's activation, and its slopes by gate and up. */
typedef struct Activated {
    float value, by_gate, by_up;
} Activated;

/* silu(alpha g) / alpha * (u + offset), of clamped g and u: slopes beyond a clamp are 0. */
static Activated clamped_swiglu(const BurstExperts *m, float gate, float up)
{
    const float limit = (float)m->limit, alpha = (float)m->alpha;
    const bool below = m->limit > 0 && up < -limit, above = m->limit > 0 && up > limit,
               high = m->limit > 0 && gate > limit;
    const float g = high ? limit : gate, low = below ? -limit : up,
                u = (above ? limit : low) + (float)m->offset, s = 1 / (1 + expf(-alpha * g));
    return (Activated){g * s * u, high ? 0 : u * s * (1 + alpha * g * (1 - s)), below || above ? 0 : g * s};
}

static Activated activated(const BurstExperts *m, float gate, float up)
{
    if (m->activation == BURST_ACTIVATION_SWIGLU)
        return clamped_swiglu(m, gate, up);
    const float value = value_of(m->activation, gate);
    if (!has_gate(m->activation))
        return (Activated){value, slope_of(m->activation, gate), 0};
    return (Activated){value * up, up * slope_of(m->activation, gate), value};
}

int burst_op_clamped_swiglu(BurstExec *e, int64_t n, const BurstExperts *m, int ffn, const BurstAct *gate_up,
                            BurstAct *y)
{
    const int64_t count = n * ffn;
    (void)e;
    for (int64_t i = 0; i < count; i++)
        y[i] = clamped_swiglu(m, gate_up[i], gate_up[count + i]).value;
    return BURST_OK;
}

int burst_op_clamped_swiglu_back(BurstExec *e, int64_t n, const BurstExperts *m, int ffn,
                                 const BurstAct *gate_up, const BurstAct *dy, BurstAct *d_gate_up)
{
    const int64_t count = n * ffn;
    (void)e;
    for (int64_t i = 0; i < count; i++) {
        const Activated a = clamped_swiglu(m, gate_up[i], gate_up[count + i]);
        d_gate_up[i] = dy[i] * a.by_gate;
        d_gate_up[count + i] = dy[i] * a.by_up;
    }
    return BURST_OK;
}

/* Rows of an expert have gate and up side by side, or up alone: then what is no gate is it. */
int burst_op_experts_act(BurstExec *e, int64_t n, const BurstExperts *m, const BurstAct *gate_up,
                         const float *route, const int32_t *row, BurstAct *y)
{
    const int64_t width = m->width, wide = burst_experts_columns(m);
    (void)e;
    for (int64_t r = 0; r < burst_expert_rows(m, n) && row[r] >= 0; r++) {
        const float *gate = gate_up + r * wide, *up = gate + wide - width, by = route[row[r]];
        for (int64_t i = 0; i < width; i++)
            y[r * width + i] = by * activated(m, gate[i], up[i]).value;
    }
    return BURST_OK;
}

int burst_op_experts_act_back(BurstExec *e, int64_t n, const BurstExperts *m, const BurstAct *gate_up,
                              const float *route, const int32_t *row, const BurstAct *dy, BurstAct *d_gate_up,
                              float *d_route)
{
    const int64_t width = m->width, wide = burst_experts_columns(m);
    (void)e;
    for (int64_t r = 0; r < burst_expert_rows(m, n) && row[r] >= 0; r++) {
        const float *gate = gate_up + r * wide, *up = gate + wide - width, by = route[row[r]];
        float *d_gate = d_gate_up + r * wide, *d_up = d_gate + wide - width;
        double sum = 0;
        for (int64_t i = 0; i < width; i++) {
            const Activated a = activated(m, gate[i], up[i]);
            const float d = dy[r * width + i];
            sum += (double)d * (double)a.value;
            d_up[i] = by * d * a.by_up;
            d_gate[i] = by * d * a.by_gate; /* the same place without a gate */
        }
        d_route[row[r]] = (float)sum;
    }
    return BURST_OK;
}
