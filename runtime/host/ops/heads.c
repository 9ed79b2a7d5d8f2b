/* host/ops/heads.c: between token-major [n][heads*d] and head-major [heads][n][d], with and without RoPE. */
#include "burst_rt.h"
#include "families/frequency.h"
#include "host/ops/vec.h"

void burst_tokens_to_heads(int64_t n, int64_t all, int heads, int d, const float *x, float *y)
{
    for (int h = 0; h < heads; h++)
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (h * all + i) * d, x + (i * heads + h) * d, (size_t)d * sizeof *y);
}

void burst_heads_to_tokens(int64_t n, int64_t all, int heads, int d, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        for (int h = 0; h < heads; h++)
            memcpy(y + (i * heads + h) * d, x + (h * all + i) * d, (size_t)d * sizeof *y);
}

/* A run of a head's pairs: element first + j belongs with element first + j + d/2. Frequencies behind
 * count are 0. */
enum { PAIRS = 64 };
typedef struct Angles { int first, count; double frequency[PAIRS]; float cosine[PAIRS], sine[PAIRS]; } Angles;

static void angles_begin(Angles *a, int d, const BurstRope *r, int first)
{
    a->first = first;
    a->count = d / 2 - first < PAIRS ? d / 2 - first : PAIRS;
    for (int j = 0; j < PAIRS; j++)
        a->frequency[j] = j < a->count ? burst_rope_frequency(r, d, first + j) : 0;
}

/* In double: at position 4M an fp32 angle would be off by a quarter. */
static void angles_at(Angles *a, int64_t position)
{
    for (int j = 0; j < a->count; j += VEC_DOUBLES) {
        VecDouble angle;
        memcpy(&angle, a->frequency + j, sizeof angle);
        angle *= (double)position;
        vec_sincos(&angle, a->sine + j, a->cosine + j);
    }
}

/* direction 1 rotates, -1 rotates back; cosines and sines are multiplied by the amplitude. */
static void rotate(const Angles *a, int half, float direction, float amplitude, const float *x, float *y)
{
    const float *x0 = x + a->first, *x1 = x0 + half;
    float *y0 = y + a->first, *y1 = y0 + half;
    for (int j = 0; j < a->count; j++) {
        float c = amplitude * a->cosine[j], s = direction * amplitude * a->sine[j];
        y0[j] = x0[j] * c - x1[j] * s;
        y1[j] = x1[j] * c + x0[j] * s;
    }
}

/* Rows by tokens to rows by heads, or `back`. */
static void rotate_rows(bool back, int64_t n, int64_t all, int heads, int d, const BurstRope *r,
                        const int64_t *position, const float *x, float *y)
{
    const float amplitude = (float)burst_rope_amplitude(r);
    Angles a;
    for (int first = 0; first < d / 2; first += PAIRS) {
        angles_begin(&a, d, r, first);
        for (int64_t i = 0; i < n; i++) {
            angles_at(&a, position[i]);
            for (int h = 0; h < heads; h++) {
                const int64_t by_tokens = (i * heads + h) * d, by_heads = (h * all + i) * d;
                rotate(&a, d / 2, back ? -1 : 1, amplitude, x + (back ? by_heads : by_tokens),
                       y + (back ? by_tokens : by_heads));
            }
        }
    }
}

void burst_rope_to_heads(int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                         const int64_t *position, const float *x, float *y)
{
    if (!rope || d % 2)
        /* with odd d the last element of a head has no partner */
        burst_tokens_to_heads(n, all, heads, d, x, y);
    if (rope)
        rotate_rows(false, n, all, heads, d, rope, position, x, y);
}

void burst_rope_back(int64_t n, int64_t all, int heads, int d, const BurstRope *rope, const int64_t *position,
                     const float *dy, float *dx)
{
    if (!rope || d % 2)
        burst_heads_to_tokens(n, all, heads, d, dy, dx);
    if (rope)
        rotate_rows(true, n, all, heads, d, rope, position, dy, dx);
}
