/* attend_forward.c: folds one (query chunk, key chunk) pair into the running output and lse (FlashAttention-2). */
#include "attend_kernel.h"

/* A row's normalised output with its lse is a state of sum 1 at maximum lse; at -inf the first fold drops that 1. */
static void load_state(const BurstAttend *a, AttendSlot *slot)
{
    int d = a->head_dim;
    attend_pack(a->q + slot->row * d, slot->queries, d, a->scale * LOG2E, slot->qt);
    memcpy(slot->o, a->o + slot->row * d, (size_t)slot->queries * d * sizeof(float));
    for (int i = 0; i < LANES; i++) {
        slot->max[i] = i < slot->queries ? a->lse[slot->row + i] * LOG2E : -INFINITY;
        slot->sum[i] = 1;
    }
}

static void store_state(const BurstAttend *a, AttendSlot *slot)
{
    int d = a->head_dim;
    for (int i = 0; i < slot->queries; i++) {
        if (slot->sum[i] == 0)
            continue; /* still no key: o = 0, lse = -inf as they were */
        float inverse = 1 / slot->sum[i], *o = a->o + (slot->row + i) * d;
        for (int c = 0; c < d; c++)
            o[c] = slot->o[i * d + c] * inverse;
        a->lse[slot->row + i] = (float)((slot->max[i] + log2((double)slot->sum[i])) * LN2); /* one rounding */
    }
}

/* S to P = 2^(S - max) in place for one vector of queries; factor: what the sums so far are multiplied with. */
VEC_INLINE void softmax_lanes(int nk, float *s, float *max, float *sum, float *factor)
{
    Vec old = vec_load(max), top = old;
    for (int k = 0; k < nk; k++)
        top = vec_max(top, vec_load(s + k * LANES));
    /* Rows that have seen no key yet: -inf - 0 instead of -inf - -inf. */
    Vec base = vec_select(top == -INFINITY, (Vec){0}, top);
    Vec scale = vec_exp2(old - base), total = vec_load(sum) * scale;
    for (int k = 0; k < nk; k++) {
        Vec p = vec_exp2(vec_load(s + k * LANES) - base);
        vec_store(s + k * LANES, p);
        total += p;
    }
    vec_store(max, top);
    vec_store(sum, total);
    vec_store(factor, scale);
}

VEC_INLINE void fold(const BurstAttend *a, int d, const AttendSlot *slot, AttendKeys keys, bool partial, AttendScratch *s)
{
    int64_t key = (slot->kv * a->kc->tokens + keys.first) * d;
    scores(keys.count, d, a->k + key, slot->qt, s->s);
    if (partial)
        mask_scores(keys.count, s->keep, s->s);
    for (int v = 0; v < LANES; v += VEC)
        softmax_lanes(keys.count, s->s + v, slot->max + v, slot->sum + v, s->factor + v);
    product(slot->queries, d, keys.count, (Operand){s->s, 1, LANES}, a->v + key, d, slot->o, d, true, s->factor);
}

static void forward_any(const BurstAttend *a) { walk(a, a->head_dim, load_state, fold, store_state); }
static void forward_32(const BurstAttend *a) { walk(a, 32, load_state, fold, store_state); }
static void forward_64(const BurstAttend *a) { walk(a, 64, load_state, fold, store_state); }
static void forward_128(const BurstAttend *a) { walk(a, 128, load_state, fold, store_state); }

void burst_attend_forward(const BurstAttend *a)
{
    switch (a->head_dim) {
    case 32: forward_32(a); break;
    case 64: forward_64(a); break;
    case 128: forward_128(a); break;
    default: forward_any(a);
    }
}
