/* host/ops/adamw.c: one AdamW update with decoupled weight decay; parameters rounded for a device. */
#include "burst_rt.h"
#include "host/ops/vec.h"

/* The step's constants in the inner loop's form. */
typedef struct Update { float scale, keep1, take1, keep2, take2, rate, root, eps, decay; } Update;

/* p = p decay - rate m / (sqrt(v) root + eps); rate and root include the bias corrections. */
static Update update_of(const BurstAdamW *o, bool decays)
{
    return (Update){
        .scale = (float)o->grad_scale,
        .keep1 = (float)o->beta1,
        .take1 = (float)(1 - o->beta1),
        .keep2 = (float)o->beta2,
        .take2 = (float)(1 - o->beta2),
        .rate = (float)(o->lr / (1 - pow(o->beta1, (double)o->step))),
        .root = (float)(1 / sqrt(1 - pow(o->beta2, (double)o->step))),
        .eps = (float)o->eps,
        .decay = (float)(decays ? 1 - o->lr * o->decay : 1),
    };
}

VEC_INLINE void update(const Update *u, Vec *p, Vec g, Vec *m, Vec *v)
{
    g *= u->scale;
    *m = *m * u->keep1 + g * u->take1;
    *v = *v * u->keep2 + g * g * u->take2;
    *p = *p * u->decay - u->rate * *m / (vec_sqrt(*v) * u->root + u->eps);
}

void burst_adamw(const BurstAdamW *o, int64_t count, bool decays, float *param, const float *grad, float *m,
                 float *v)
{
    const Update u = update_of(o, decays);
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) {
        Vec p = vec_load(param + i), first = vec_load(m + i), second = vec_load(v + i);
        update(&u, &p, vec_load(grad + i), &first, &second);
        vec_store(param + i, p);
        vec_store(m + i, first);
        vec_store(v + i, second);
    }
    int rest = (int)(count - i);
    if (!rest)
        return;
    Vec p = vec_load_part(param + i, rest), first = vec_load_part(m + i, rest),
        second = vec_load_part(v + i, rest);
    update(&u, &p, vec_load_part(grad + i, rest), &first, &second);
    vec_store_part(param + i, p, rest);
    vec_store_part(m + i, first, rest);
    vec_store_part(v + i, second, rest);
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    /* NaN propagates */
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

void burst_round_bf16(int64_t count, const float *x, uint16_t *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = bf16_of(x[i]);
}

void burst_keep_bf16(int64_t count, float *x)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)bf16_of(x[i]) << 16;
        memcpy(x + i, &bits, sizeof bits);
    }
}
