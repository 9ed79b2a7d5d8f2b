/* burst_latents_host.h: keys and values that travel as latents, on the host. */
#ifndef BURST_LATENTS_HOST_H
#define BURST_LATENTS_HOST_H

static const BurstLatentSizes plan_latent_sizes = {.heads = PLAN_KV_HEADS,
                                                   .own = PLAN_OWN,
                                                   .shared = PLAN_SHARED,
                                                   .value = PLAN_VALUE_DIM,
                                                   .latent = PLAN_LATENT};

/* Offset of a token's shared part in the first head's key. */
static inline int64_t plan_shared_at(int64_t token) { return token * PLAN_HEAD_DIM + PLAN_OWN; }

static inline int plan_home_latents(PlanState *s, const float *k, const float *v)
{
    s->latents.k = k;
    s->latents.v = v;
    for (int64_t i = 0; i < s->n; i++)
        memcpy(s->buffer.own_shared + i * PLAN_SHARED, k + plan_shared_at(i), PLAN_SHARED * sizeof *k);
    return plan_home(s, BURST_T_KV, s->latents.latent, s->buffer.own_shared, NULL, NULL);
}

/* Sums that arrive start from zero. */
static inline int plan_home_sums(PlanState *s, float *dk, float *dv)
{
    s->latents.dk = dk;
    s->latents.dv = dv;
    memset(s->latents.d_latent, 0, (size_t)(s->n * PLAN_LATENT) * sizeof(float));
    memset(s->buffer.own_d_shared, 0, (size_t)(s->n * PLAN_SHARED) * sizeof(float));
    return plan_home(s, BURST_T_DKV, s->latents.d_latent, s->buffer.own_d_shared, NULL, NULL);
}

static inline void plan_latents_end(PlanState *s)
{
    for (int64_t i = 0; i < s->n; i++)
        burst_add(PLAN_SHARED, s->buffer.own_d_shared + i * PLAN_SHARED, s->latents.dk + plan_shared_at(i));
}

/* Keys and values of a chunk: the owner's, or rebuilt from its latents. */
static inline void plan_pair_keys(PlanState *s, int kv, BurstAttend *a)
{
    const PlanSlot *slot = s->held[BURST_T_KV][kv];
    a->k = kv == s->me ? s->latents.k : s->buffer.latent_k;
    a->v = kv == s->me ? s->latents.v : s->buffer.latent_v;
    if (kv != s->me)
        burst_latents_expand(&plan_latent_sizes, s->key[kv].tokens, s->latents.weight, slot->part[0],
                             slot->part[1], s->buffer.latent_k, s->buffer.latent_v);
}

/* For another rank's keys and values, gradients of one pair only. */
static inline void plan_pair_sums(PlanState *s, int kv, BurstAttend *a)
{
    const size_t rows = (size_t)(PLAN_KV_HEADS * s->key[kv].tokens) * sizeof(float);
    a->dk = kv == s->me ? s->latents.dk : s->buffer.latent_dk;
    a->dv = kv == s->me ? s->latents.dv : s->buffer.latent_dv;
    if (kv != s->me) {
        memset(a->dk, 0, rows * PLAN_HEAD_DIM);
        memset(a->dv, 0, rows * PLAN_VALUE_DIM);
    }
}

static inline void plan_pair_end(PlanState *s, int kv)
{
    const PlanSlot *slot = s->held[BURST_T_KV][kv], *sum = s->held[BURST_T_DKV][kv];
    if (kv != s->me)
        burst_latents_contract(&plan_latent_sizes, s->key[kv].tokens, s->latents.weight, slot->part[0],
                               s->buffer.latent_dk, s->buffer.latent_dv, sum->part[0], sum->part[1],
                               s->latents.gradient);
}

#endif
