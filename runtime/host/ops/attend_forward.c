/* attend_forward.c: folds one (query chunk, key chunk) pair into the running output and lse
 * (FlashAttention-2). */
#include "host/ops/attend_kernel.h"

/* Bits of the slot's queries. */
static uint64_t present(const AttendSlot *slot)
{
    return UINT64_MAX >> (LANES - slot->queries);
}

/* A row's normalised output with its lse is a state of sum 2^(lse - m) at any m; at m = -inf the first fold
 * drops it. The maximum is rounded to an integer, so that sums under an older one are scaled exactly. */
static void load_state(const BurstAttend *a, AttendSlot *slot)
{
    const int d = a->head_dim;
    attend_pack(a->q + slot->row * d, slot->queries, d, slot->qt);
    memset(slot->part, 0, (size_t)slot->queries * (size_t)attend_values(a) * sizeof(float));
    slot->seen = slot->several = ~present(slot);
    for (int i = 0; i < LANES; i++) {
        bool seen = i < slot->queries && a->lse[slot->row + i] != -INFINITY;
        double lse = seen ? ((double)a->lse[slot->row + i] + a->lse_rest[slot->row + i]) / LN2 : -INFINITY,
               whole = rint(lse);
        slot->max[i] = (float)whole;
        slot->sum[i] = slot->shrink[i] = seen ? (float)exp2(lse - whole) : 1;
        slot->rest[i] = 0;
        slot->several |= (uint64_t)seen << i;
    }
}

/* Records which queries see keys of a tile; keep NULL: all see all. */
static void note_keys(AttendSlot *slot, AttendKeys keys, const uint64_t *keep)
{
    for (int k = 0; k < keys.count && (slot->seen & slot->several) != UINT64_MAX; k++) {
        const uint64_t sees = keep ? keep[k] : UINT64_MAX;
        for (uint64_t fresh = sees & ~slot->seen; fresh; fresh &= fresh - 1)
            slot->key[__builtin_ctzll(fresh)] = keys.first + k;
        slot->several |= sees & slot->seen;
        slot->seen |= sees;
    }
}

/* A row that saw no key in this walk does not change by a bit. */
static void flush(const BurstAttend *a, AttendSlot *slot)
{
    const int e = attend_values(a);
    for (int i = 0; i < slot->queries; i++) {
        if (!(slot->seen >> i & 1))
            continue;
        attend_flush(e, slot->shrink[i], a->o + (slot->row + i) * e, slot->part + i * e);
        slot->shrink[i] = 1;
    }
}

/* A row's output. With one key it is exactly that key's value, which a rounded weight would change: see
 * exact_products in attend_backward.c. */
static void store_output(const BurstAttend *a, const AttendSlot *slot, int i, double sum)
{
    const int e = attend_values(a);
    float *o = a->o + (slot->row + i) * e;
    if (sum > 0 && !(slot->several >> i & 1)) {
        memcpy(o, a->v + (slot->kv * a->kc->tokens + slot->key[i]) * e, (size_t)e * sizeof *o);
        return;
    }
    for (int c = 0; c < e; c++)
        o[c] = (float)(o[c] / sum);
}

/* If all scores are -inf, as after overflows of products, the sum is 0 and the row is NaN. */
static void store_state(const BurstAttend *a, AttendSlot *slot)
{
    for (int i = 0; i < slot->queries; i++) {
        if (!(slot->seen >> i & 1))
            continue;
        double sum = (double)slot->sum[i] + slot->rest[i];
        if (sum == 0)
            sum = NAN;
        store_output(a, slot, i, sum);
        double lse = (slot->max[i] + log2(sum)) * LN2;
        a->lse[slot->row + i] = (float)lse;
        a->lse_rest[slot->row + i] = (float)(lse - (float)lse);
    }
}

/* Converts S to P = 2^(S - max) in place for one vector of queries; factor: rescales the sums so far. A tile
 * is summed from zero, and the rounding error of the running sum is kept, so that small terms are not
 * lost. */
VEC_INLINE void softmax_lanes(int nk, float scale, float *s, const AttendSlot *slot, int v, float *factor)
{
    Vec old = vec_load(slot->max + v), top = vec_load(s), tile[8] = {{0}};
    for (int k = 1; k < nk; k++)
        top = vec_max(top, vec_load(s + k * LANES));
    top = vec_max(old, vec_round(top * scale));
    /* rows that have seen no key yet: -inf - 0 instead of -inf - -inf */
    Vec base = vec_select(top == -INFINITY, (Vec){0}, top);
    /* Beyond 2^22 a score's product must be rounded like the maximum's: the exact one may differ by more
     * than 2^x can represent. */
    if (vec_sum(vec_select((base > 0x1p22f) | (base < -0x1p22f), vec_set(1), (Vec){0})) != 0) {
        for (int k = 0; k < nk; k++)
            vec_store(s + k * LANES, vec_load(s + k * LANES) * scale);
        scale = 1;
    }
#pragma GCC unroll 8
    for (int k = 0; k < nk; k++) {
        Vec p = vec_exp2(vec_load(s + k * LANES) * scale - base);
        vec_store(s + k * LANES, p);
        tile[k % 8] += p;
    }
    Vec total = ((tile[0] + tile[1]) + (tile[2] + tile[3])) + ((tile[4] + tile[5]) + (tile[6] + tile[7]));
    Vec shrink = vec_exp2(old - base), sum = vec_load(slot->sum + v) * shrink;
    Vec more = vec_load(slot->rest + v) * shrink + total, now = sum + more, added = now - sum;
    vec_store(slot->max + v, top);
    vec_store(slot->sum + v, now);
    vec_store(slot->rest + v, (sum - (now - added)) + (more - added));
    vec_store(slot->shrink + v, vec_load(slot->shrink + v) * shrink);
    vec_store(factor, shrink);
}

/* product() of P V if the tile has masked pairs and values that are not finite. */
static void add_values(int e, const AttendSlot *slot, AttendKeys keys, const float *v, const AttendScratch *s)
{
    for (int i = 0; i < slot->queries; i++)
        for (int c = 0; c < e; c++)
            slot->part[i * e + c] *= s->factor[i];
    attend_add_pairs(keys.count, s->keep, s->s, false, e, v, slot->part);
}

VEC_INLINE void fold(const BurstAttend *a, int d, int e, AttendSlot *slot, AttendKeys keys, bool partial,
                     AttendScratch *s)
{
    const int64_t key = slot->kv * a->kc->tokens + keys.first;
    scores(keys.count, d, a->k + key * d, slot->qt, s->s);
    if (a->softcap > 0)
        cap_scores(keys.count, a->scale, a->softcap, s->s);
    if (partial)
        mask_scores(keys.count, s->keep, s->s);
    for (int v = 0; v < LANES; v += VEC)
        softmax_lanes(keys.count, a->scale * LOG2E, s->s + v, slot, v, s->factor + v);
    note_keys(slot, keys, partial ? s->keep : NULL);
    if (partial && !s->finite)
        add_values(e, slot, keys, a->v + key * e, s);
    else
        product(slot->queries, e, keys.count, (Operand){s->s, 1, LANES}, a->v + key * e, e, slot->part, e,
                true, s->factor);
}

static const Direction forward = {load_state, fold, flush, store_state, NULL};
static void forward_any(const BurstAttend *a) { walk(a, a->head_dim, attend_values(a), forward); }
static void forward_32(const BurstAttend *a) { walk(a, 32, 32, forward); }
static void forward_64(const BurstAttend *a) { walk(a, 64, 64, forward); }
static void forward_128(const BurstAttend *a) { walk(a, 128, 128, forward); }

void burst_attend_forward(const BurstAttend *a)
{
    switch (attend_values(a) == a->head_dim ? a->head_dim : 0) {
    case 32: forward_32(a); break;
    case 64: forward_64(a); break;
    case 128: forward_128(a); break;
    default: forward_any(a);
    }
}
