/* attend_backward.c: gradients of one (query chunk, key chunk) pair from the final lse (FlashAttention-2). */
#include "attend_kernel.h"

/* A query tile of one head into scratch. lse = +inf makes every P of a row that saw no key exactly 0. */
static void load_queries(const BurstAttend *a, const AttendTile *t, int h, AttendHead *head)
{
    int d = a->head_dim;
    int64_t row = h * a->qc->tokens + t->q0;
    attend_pack(a->q + row * d, t->nq, d, a->scale * LOG2E, head->qt);
    attend_pack(a->d_o + row * d, t->nq, d, 1, head->dot);
    for (int i = 0; i < LANES; i++) {
        bool seen = i < t->nq && a->lse[row + i] != -INFINITY;
        head->max[i] = seen ? a->lse[row + i] * LOG2E : INFINITY;
        head->sum[i] = seen ? a->delta[row + i] : 0;
    }
    head->loaded = true;
}

/* S and dP of one tile to P (in s) and dS = P (dP - delta) scale (in ds). */
static void probabilities(int nk, float scale, const AttendHead *head, float *s, float *ds)
{
    for (int v = 0; v < LANES; v += VEC) {
        Vec lse = vec_load(head->max + v), delta = vec_load(head->sum + v);
        for (int k = 0; k < nk; k++) {
            int at = k * LANES + v;
            Vec p = vec_exp2(vec_load(s + at) - lse);
            vec_store(s + at, p);
            vec_store(ds + at, p * scale * (vec_load(ds + at) - delta));
        }
    }
}

VEC_INLINE void fold(const BurstAttend *a, int d, const AttendTile *t, int h, const AttendHead *head, AttendScratch *s)
{
    int64_t key = (head->kv * a->kc->tokens + t->k0) * d, query = (h * a->qc->tokens + t->q0) * d;
    scores(t->nk, d, a->k + key, head->qt, s->s);
    if (t->partial)
        mask_scores(t->nk, s->keep, s->s);
    scores(t->nk, d, a->v + key, head->dot, s->ds);
    probabilities(t->nk, a->scale, head, s->s, s->ds);
    product(t->nk, d, t->nq, (Operand){s->s, LANES, 1}, a->d_o + query, d, a->dv + key, d, true, NULL);
    product(t->nk, d, t->nq, (Operand){s->ds, LANES, 1}, a->q + query, d, a->dk + key, d, true, NULL);
    product(t->nq, d, t->nk, (Operand){s->ds, 1, LANES}, a->k + key, d, a->dq + query, d, true, NULL);
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
                load_queries(a, &t, h0 + h, &s->head[h]);
            fold(a, d, &t, h0 + h, &s->head[h], s);
        }
    }
}

VEC_INLINE void backward(const BurstAttend *a, int d)
{
    AttendScratch s;
    attend_carve(a, true, &s);
    for (int h0 = 0; h0 < a->q_heads; h0 += ATTEND_HEADS) {
        int heads = a->q_heads - h0 < ATTEND_HEADS ? a->q_heads - h0 : ATTEND_HEADS;
        for (int h = 0; h < heads; h++)
            s.head[h].kv = (a->q_head0 + h0 + h) / a->group - a->kv_head0;
        for (int qt = 0; qt < a->qc->tiles; qt++)
            query_tile(a, d, qt, h0, heads, &s);
    }
}

static void backward_any(const BurstAttend *a) { backward(a, a->head_dim); }
static void backward_32(const BurstAttend *a) { backward(a, 32); }
static void backward_64(const BurstAttend *a) { backward(a, 64); }
static void backward_128(const BurstAttend *a) { backward(a, 128); }

void burst_attend_backward(const BurstAttend *a)
{
    switch (a->head_dim) {
    case 32: backward_32(a); break;
    case 64: backward_64(a); break;
    case 128: backward_128(a); break;
    default: backward_any(a);
    }
}
