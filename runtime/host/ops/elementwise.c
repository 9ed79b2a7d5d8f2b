/* host/ops/elementwise.c: SwiGLU, scaling, biases, addition, sums of squares. */
#include "burst_attend.h"
#include "burst_step.h"
#include "host/ops/vec.h"

VEC_INLINE Vec sigmoid(Vec g) { return 1.0f / (1.0f + vec_exp2(g * -1.44269504088896340736f)); }

VEC_INLINE Vec swiglu(Vec g, Vec u) { return g * sigmoid(g) * u; }

int burst_op_swiglu(BurstExec *e, int64_t n, int ffn, const BurstAct *gate_up, BurstAct *y)
{
    const int64_t count = n * ffn;
    const float *g = gate_up, *u = gate_up + count;
    int64_t i = 0;
    (void)e;
    for (; i + VEC <= count; i += VEC)
        vec_store(y + i, swiglu(vec_load(g + i), vec_load(u + i)));
    int rest = (int)(count - i);
    if (rest)
        vec_store_part(y + i, swiglu(vec_load_part(g + i, rest), vec_load_part(u + i, rest)), rest);
    return BURST_OK;
}

/* silu'(g) = s + g s (1 - s), s = sigmoid(g). */
VEC_INLINE void swiglu_back(Vec g, Vec u, Vec da, Vec *dg, Vec *du)
{
    Vec s = sigmoid(g);
    *du = da * g * s;
    *dg = da * u * s * (1.0f + g * (1.0f - s));
}

int burst_op_swiglu_back(BurstExec *e, int64_t n, int ffn, const BurstAct *gate_up, const BurstAct *dy,
                         BurstAct *d_gate_up)
{
    const int64_t count = n * ffn;
    const float *g = gate_up, *u = gate_up + count;
    float *dg = d_gate_up, *du = d_gate_up + count;
    Vec to_g, to_u;
    int64_t i = 0;
    (void)e;
    for (; i + VEC <= count; i += VEC) {
        swiglu_back(vec_load(g + i), vec_load(u + i), vec_load(dy + i), &to_g, &to_u);
        vec_store(dg + i, to_g);
        vec_store(du + i, to_u);
    }
    int rest = (int)(count - i);
    if (!rest)
        return BURST_OK;
    swiglu_back(vec_load_part(g + i, rest), vec_load_part(u + i, rest), vec_load_part(dy + i, rest), &to_g,
                &to_u);
    vec_store_part(dg + i, to_g, rest);
    vec_store_part(du + i, to_u, rest);
    return BURST_OK;
}

int burst_op_scale(BurstExec *e, int64_t n, int width, double scale, const BurstAct *x, const BurstAct *add,
                   BurstAct *y)
{
    const float by = (float)scale;
    (void)e;
    for (int64_t i = 0; i < n * width; i++)
        y[i] = by * x[i] + (add ? add[i] : 0);
    return BURST_OK;
}

int burst_op_scale_back(BurstExec *e, int64_t n, int width, double scale, const BurstAct *dy, BurstAct *dx,
                        bool add)
{
    return burst_op_scale(e, n, width, scale, dy, add ? dx : NULL, dx);
}

int burst_op_bias(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *b, BurstAct *y)
{
    (void)e;
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < width; j++)
            y[i * width + j] = x[i * width + j] + b[j];
    return BURST_OK;
}

/* One strip of columns at a time, so that sums over tokens are doubles without a buffer of `width` of
 * them. */
int burst_op_bias_back(BurstExec *e, int64_t n, int width, const BurstAct *dy, float *db)
{
    enum { STRIP = 64 };
    (void)e;
    for (int first = 0; first < width; first += STRIP) {
        const int columns = width - first < STRIP ? width - first : STRIP;
        double sum[STRIP] = {0};
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < columns; j++)
                sum[j] += (double)dy[i * width + first + j];
        for (int j = 0; j < columns; j++)
            db[first + j] += (float)sum[j];
    }
    return BURST_OK;
}

int burst_op_bias_pair(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *b, BurstAct *y)
{
    BURST_TRY(burst_op_bias(e, n, width, x, b, y));
    return burst_op_bias(e, n, width, x + n * width, b + width, y + n * width);
}

int burst_op_bias_pair_back(BurstExec *e, int64_t n, int width, const BurstAct *dy, float *db)
{
    BURST_TRY(burst_op_bias_back(e, n, width, dy, db));
    return burst_op_bias_back(e, n, width, dy + n * width, db + width);
}

int burst_op_zero(BurstExec *e, float *x, int64_t count)
{
    (void)e;
    memset(x, 0, (size_t)count * sizeof *x);
    return BURST_OK;
}

void burst_add(int64_t count, const float *x, float *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += x[i];
}

double burst_sum_squares(int64_t count, const float *x) { return vec_dot(count, x, x); }
