/* attend_backward.c: gradients of one (query chunk, key chunk) pair from the final lse (FlashAttention-2). */
#include "host/ops/attend_kernel.h"

/* lse = +inf makes P exactly 0 for a row that saw no key. */
static void load_queries(const BurstAttend *a, AttendSlot *slot)
{
    const int d = a->head_dim, e = attend_values(a);
    attend_pack(a->q + slot->row * d, slot->queries, d, slot->qt);
    attend_pack(a->d_o + slot->row * e, slot->queries, e, slot->dot);
    memset(slot->part, 0, (size_t)slot->queries * (size_t)d * sizeof(float));
    for (int i = 0; i < LANES; i++) {
        bool seen = i < slot->queries && a->lse[slot->row + i] != -INFINITY;
        double lse = seen ? a->lse[slot->row + i] / LN2 : INFINITY;
        slot->max[i] = (float)lse;
        slot->rest[i] = seen ? (float)(lse - slot->max[i]) : 0;
        slot->sum[i] = seen ? a->delta[slot->row + i] : 0;
    }
    slot->finite = attend_finite(slot->qt, (int64_t)d * LANES) &&
                   attend_finite(slot->dot, (int64_t)e * LANES) && attend_finite(slot->rest, LANES) &&
                   attend_finite(slot->sum, LANES);
}

/* Converts S and dP of one tile to P (in s) and dS = P (dP - delta) scale (in ds). tanh: factor by which a
 * score becomes the tanh of its cap, whose slope is 1 - tanh^2; 0: no cap. */
VEC_INLINE void probabilities(int nk, float scale, float tanh, const AttendSlot *slot, float *s, float *ds)
{
    for (int v = 0; v < LANES; v += VEC) {
        Vec lse = vec_load(slot->max + v), rest = vec_load(slot->rest + v), delta = vec_load(slot->sum + v);
        for (int k = 0; k < nk; k++) {
            int at = k * LANES + v;
            Vec score = vec_load(s + at), p = vec_exp2(score * (scale * LOG2E) - lse - rest);
            Vec most = vec_max(vec_set(-1), score * tanh); /* a masked score is -inf */
            Vec slope = tanh > 0 ? scale * (1.0f - most * most) : vec_set(scale);
            vec_store(s + at, p);
            vec_store(ds + at, p * slope * (vec_load(ds + at) - delta));
        }
    }
}

/* dP of queries that see one key of this tile, computed like delta. If it is their only key, o is its value,
 * and dP - delta, dQ and dK are exactly 0. Rounding noise would be the whole gradient of some weights, and a
 * normalising optimizer would make a full update of it. keep NULL: all queries see all keys. */
static void exact_products(int nk, int e, const uint64_t *keep, const float *v, const float *d_o, int queries,
                           float *ds)
{
    uint64_t once = 0, twice = nk > 1 && !keep ? UINT64_MAX : 0;
    for (int k = 0; k < nk && ~twice; k++) {
        const uint64_t sees = keep ? keep[k] : UINT64_MAX >> (LANES - queries);
        twice |= once & sees;
        once |= sees;
    }
    for (int k = 0; k < nk && (once & ~twice); k++)
        for (uint64_t sees = (keep ? keep[k] : once) & ~twice; sees; sees &= sees - 1) {
            const int q = __builtin_ctzll(sees);
            ds[k * LANES + q] = (float)vec_dot(e, d_o + q * e, v + k * e);
        }
}

/* The three products if the tile has masked pairs and values that are not finite. */
static void add_gradients(const BurstAttend *a, int d, int e, const AttendSlot *slot, AttendKeys keys,
                          AttendScratch *s)
{
    const int64_t key = slot->kv * a->kc->tokens + keys.first;
    attend_add_pairs(keys.count, s->keep, s->s, true, e, a->d_o + slot->row * e, s->dv);
    attend_add_pairs(keys.count, s->keep, s->ds, true, d, a->q + slot->row * d, s->dk);
    attend_add_pairs(keys.count, s->keep, s->ds, false, d, a->k + key * d, slot->part);
}

VEC_INLINE void fold(const BurstAttend *a, int d, int e, AttendSlot *slot, AttendKeys keys, bool partial,
                     AttendScratch *s)
{
    const int64_t key = slot->kv * a->kc->tokens + keys.first;
    int nq = slot->queries, nk = keys.count;
    scores(nk, d, a->k + key * d, slot->qt, s->s);
    if (a->softcap > 0)
        cap_scores(nk, a->scale, a->softcap, s->s);
    if (partial)
        mask_scores(nk, s->keep, s->s);
    scores(nk, e, a->v + key * e, slot->dot, s->ds);
    exact_products(nk, e, partial ? s->keep : NULL, a->v + key * e, a->d_o + slot->row * e, nq, s->ds);
    if (a->softcap > 0)
        probabilities(nk, a->scale, a->scale / a->softcap, slot, s->s, s->ds);
    else
        probabilities(nk, a->scale, 0, slot, s->s, s->ds);
    if (partial && !(s->finite && slot->finite)) {
        add_gradients(a, d, e, slot, keys, s);
        return;
    }
    product(nk, e, nq, (Operand){s->s, LANES, 1}, a->d_o + slot->row * e, e, s->dv, e, true, NULL);
    product(nk, d, nq, (Operand){s->ds, LANES, 1}, a->q + slot->row * d, d, s->dk, d, true, NULL);
    product(nq, d, nk, (Operand){s->ds, 1, LANES}, a->k + key * d, d, slot->part, d, true, NULL);
}

static void flush(const BurstAttend *a, AttendSlot *slot)
{
    attend_flush(slot->queries * a->head_dim, 1, a->dq + slot->row * a->head_dim, slot->part);
}

static void add_keys(const BurstAttend *a, int kv, AttendKeys keys, AttendScratch *s)
{
    const int d = a->head_dim, e = attend_values(a);
    const int64_t at = kv * a->kc->tokens + keys.first, n = keys.count;
    burst_add(n * d, s->dk, a->dk + at * d);
    burst_add(n * e, s->dv, a->dv + at * e);
    memset(s->dk, 0, (size_t)(n * d) * sizeof(float));
    memset(s->dv, 0, (size_t)(n * e) * sizeof(float));
}

static const Direction backward = {load_queries, fold, flush, NULL, add_keys};
static void backward_any(const BurstAttend *a) { walk(a, a->head_dim, attend_values(a), backward); }
static void backward_32(const BurstAttend *a) { walk(a, 32, 32, backward); }
static void backward_64(const BurstAttend *a) { walk(a, 64, 64, backward); }
static void backward_128(const BurstAttend *a) { walk(a, 128, 128, backward); }

void burst_attend_backward(const BurstAttend *a)
{
    switch (attend_values(a) == a->head_dim ? a->head_dim : 0) {
    case 32: backward_32(a); break;
    case 64: backward_64(a); break;
    case 128: backward_128(a); break;
    default: backward_any(a);
    }
}
