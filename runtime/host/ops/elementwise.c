/* host/ops/elementwise.c: SwiGLU, scaling, addition, sums of squares. */
#include "burst_rt.h"
#include "host/ops/vec.h"

VEC_INLINE Vec sigmoid(Vec g)
{
    return 1.0f / (1.0f + vec_exp2(g * -1.44269504088896340736f));
}

VEC_INLINE Vec swiglu(Vec g, Vec u)
{
    return g * sigmoid(g) * u;
}

void burst_swiglu(int64_t count, const float *g, const float *u, float *a)
{
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC)
        vec_store(a + i, swiglu(vec_load(g + i), vec_load(u + i)));
    int rest = (int)(count - i);
    if (rest)
        vec_store_part(a + i, swiglu(vec_load_part(g + i, rest), vec_load_part(u + i, rest)), rest);
}

/* silu'(g) = s + g s (1 - s), s = sigmoid(g). */
VEC_INLINE void swiglu_back(Vec g, Vec u, Vec da, Vec *dg, Vec *du)
{
    Vec s = sigmoid(g);
    *du = da * g * s;
    *dg = da * u * s * (1.0f + g * (1.0f - s));
}

void burst_swiglu_back(int64_t count, const float *g, const float *u, const float *da, float *dg, float *du)
{
    Vec to_g, to_u;
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) {
        swiglu_back(vec_load(g + i), vec_load(u + i), vec_load(da + i), &to_g, &to_u);
        vec_store(dg + i, to_g);
        vec_store(du + i, to_u);
    }
    int rest = (int)(count - i);
    if (!rest)
        return;
    swiglu_back(vec_load_part(g + i, rest), vec_load_part(u + i, rest), vec_load_part(da + i, rest), &to_g,
                &to_u);
    vec_store_part(dg + i, to_g, rest);
    vec_store_part(du + i, to_u, rest);
}

void burst_scale(int64_t count, double scale, const float *x, const float *add, float *y)
{
    const float by = (float)scale;
    for (int64_t i = 0; i < count; i++)
        y[i] = by * x[i] + (add ? add[i] : 0);
}

void burst_add(int64_t count, const float *x, float *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += x[i];
}

double burst_sum_squares(int64_t count, const float *x)
{
    return vec_dot(count, x, x);
}
