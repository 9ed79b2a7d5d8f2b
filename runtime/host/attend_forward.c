/* attend_forward.c: folds one (query chunk, key chunk) pair into the running output and lse (FlashAttention-2). */
#include "attend_kernel.h"

/* A query tile of one head into scratch. A row's normalised output with its lse is a state of sum 1 at maximum lse. */
static void load_state(const BurstAttend *a, const AttendTile *t, int h, AttendHead *head)
{
    int d = a->head_dim;
    int64_t row = h * a->qc->tokens + t->q0;
    attend_pack(a->q + row * d, t->nq, d, a->scale * LOG2E, head->qt);
    memcpy(head->o, a->o + row * d, (size_t)(t->nq * d) * sizeof(float));
    for (int i = 0; i < LANES; i++) {
        head->max[i] = i < t->nq ? a->lse[row + i] * LOG2E : -INFINITY;
        head->sum[i] = head->max[i] == -INFINITY ? 0 : 1;
    }
    head->loaded = true;
}

static void store_state(const BurstAttend *a, const AttendTile *t, int h, const AttendHead *head)
{
    int d = a->head_dim;
    int64_t row = h * a->qc->tokens + t->q0;
    for (int i = 0; i < t->nq; i++) {
        if (head->sum[i] == 0)
            continue; /* still no key: o = 0, lse = -inf as they were */
        float inverse = 1 / head->sum[i];
        for (int c = 0; c < d; c++)
            a->o[(row + i) * d + c] = head->o[i * d + c] * inverse;
        a->lse[row + i] = (float)((head->max[i] + log2((double)head->sum[i])) * LN2); /* one rounding */
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

VEC_INLINE void fold(const BurstAttend *a, int d, const AttendTile *t, const AttendHead *head, AttendScratch *s)
{
    int64_t key = (head->kv * a->kc->tokens + t->k0) * d;
    scores(t->nk, d, a->k + key, head->qt, s->s);
    if (t->partial)
        mask_scores(t->nk, s->keep, s->s);
    for (int v = 0; v < LANES; v += VEC)
        softmax_lanes(t->nk, s->s + v, head->max + v, head->sum + v, s->factor + v);
    product(t->nq, d, t->nk, (Operand){s->s, 1, LANES}, a->v + key, d, head->o, d, true, s->factor);
}

/* One query tile of up to ATTEND_HEADS heads against every key tile. */
VEC_INLINE void query_tile(const BurstAttend *a, int d, int qt, int h0, int heads, AttendScratch *s)
{
    AttendTile t;
    for (int h = 0; h < heads; h++)
        s->head[h].loaded = false;
    for (int kt = 0; kt < a->kc->tiles; kt++) {
        if (attend_tile(a, qt, kt, &t) == BURST_EMPTY)
            continue;
        if (t.partial)
            attend_keep(a, &t, s);
        for (int h = 0; h < heads; h++) {
            if (!s->head[h].loaded)
                load_state(a, &t, h0 + h, &s->head[h]);
            fold(a, d, &t, &s->head[h], s);
        }
    }
    for (int h = 0; h < heads; h++)
        if (s->head[h].loaded)
            store_state(a, &t, h0 + h, &s->head[h]);
}

VEC_INLINE void forward(const BurstAttend *a, int d)
{
    AttendScratch s;
    attend_carve(a, false, &s);
    for (int h0 = 0; h0 < a->q_heads; h0 += ATTEND_HEADS) {
        int heads = a->q_heads - h0 < ATTEND_HEADS ? a->q_heads - h0 : ATTEND_HEADS;
        for (int h = 0; h < heads; h++)
            s.head[h].kv = (a->q_head0 + h0 + h) / a->group - a->kv_head0;
        for (int qt = 0; qt < a->qc->tiles; qt++)
            query_tile(a, d, qt, h0, heads, &s);
    }
}

static void forward_any(const BurstAttend *a) { forward(a, a->head_dim); }
static void forward_32(const BurstAttend *a) { forward(a, 32); }
static void forward_64(const BurstAttend *a) { forward(a, 64); }
static void forward_128(const BurstAttend *a) { forward(a, 128); }

void burst_attend_forward(const BurstAttend *a)
{
    switch (a->head_dim) {
    case 32: forward_32(a); break;
    case 64: forward_64(a); break;
    case 128: forward_128(a); break;
    default: forward_any(a);
    }
}
