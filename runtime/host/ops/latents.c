/* host/ops/latents.c: keys and values of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) from
 * received latents, and the gradients back; one BLAS product per head. */
#include "burst_rt.h"

#include <cblas.h>

/* x [n][columns], with rows `pitch` apart, = latent w^T. */
static void expand(const BurstLatentSizes *s, int64_t n, int columns, int pitch, const float *w,
                   const float *latent, float *x)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)n, columns, s->latent, 1, latent, s->latent,
                w, s->latent, 0, x, pitch);
}

void burst_latents_expand(const BurstLatentSizes *s, int64_t n, const float *w, const float *latent,
                          const float *every, float *k, float *v)
{
    const int width = s->own + s->shared;
    const float *const of_values = w + (int64_t)s->heads * s->own * s->latent;
    for (int head = 0; head < s->heads && n > 0; head++) {
        float *to = k + head * n * width;
        expand(s, n, s->own, width, w + (int64_t)head * s->own * s->latent, latent, to);
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < s->shared; j++)
                to[i * width + s->own + j] = every[i * s->shared + j];
        expand(s, n, s->value, s->value, of_values + (int64_t)head * s->value * s->latent, latent,
               v + head * n * s->value);
    }
}

/* d_latent += dx w, dw += dx^T latent. */
static void contract(const BurstLatentSizes *s, int64_t n, int columns, int pitch, const float *w,
                     const float *latent, const float *dx, float *d_latent, float *dw)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)n, s->latent, columns, 1, dx, pitch, w,
                s->latent, 1, d_latent, s->latent);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, columns, s->latent, (blasint)n, 1, dx, pitch, latent,
                s->latent, 1, dw, s->latent);
}

/* d_every += the last elements of a head's keys. */
static void add_every(const BurstLatentSizes *s, int64_t n, const float *dk, float *d_every)
{
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < s->shared; j++)
            d_every[i * s->shared + j] += dk[i * (s->own + s->shared) + s->own + j];
}

void burst_latents_contract(const BurstLatentSizes *s, int64_t n, const float *w, const float *latent,
                            const float *dk, const float *dv, float *d_latent, float *d_every, float *dw)
{
    const int width = s->own + s->shared;
    const int64_t values = (int64_t)s->heads * s->own * s->latent;
    for (int head = 0; head < s->heads && n > 0; head++) {
        const float *from = dk + head * n * width;
        const int64_t key = (int64_t)head * s->own * s->latent,
                      value = values + (int64_t)head * s->value * s->latent;
        contract(s, n, s->own, width, w + key, latent, from, d_latent, dw + key);
        contract(s, n, s->value, s->value, w + value, latent, dv + head * n * s->value, d_latent, dw + value);
        add_every(s, n, from, d_every);
    }
}
