/* host/ops/heads.c: converts between token-major [n][heads*d] and head-major [heads][n][d], with and without
 * RoPE. */
#include "burst_attend.h"
#include "burst_step.h"
#include "families/frequency.h"
#include "host/ops/vec.h"

int burst_op_to_heads_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d, const BurstAct *x,
                           BurstAct *y)
{
    (void)e;
    for (int h = 0; h < heads; h++)
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (h * all + i) * d, x + (i * heads + h) * d, (size_t)d * sizeof *y);
    return BURST_OK;
}

int burst_op_to_heads(BurstExec *e, int64_t n, int heads, int d, const BurstAct *x, BurstAct *y)
{
    return burst_op_to_heads_rows(e, n, n, heads, d, x, y);
}

int burst_op_to_tokens_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d, const float *x,
                            BurstAct *y)
{
    (void)e;
    for (int64_t i = 0; i < n; i++)
        for (int h = 0; h < heads; h++)
            memcpy(y + (i * heads + h) * d, x + (h * all + i) * d, (size_t)d * sizeof *y);
    return BURST_OK;
}

int burst_op_to_tokens(BurstExec *e, int64_t n, int heads, int d, const float *x, BurstAct *y)
{
    return burst_op_to_tokens_rows(e, n, n, heads, d, x, y);
}

/* A run of a head's pairs from pair `first` on. Frequencies after count are 0. */
enum { PAIRS = 64 };
typedef struct Angles {
    int first, count;
    double frequency[PAIRS];
    float cosine[PAIRS], sine[PAIRS];
} Angles;

static void angles_begin(Angles *a, int d, const BurstRope *r, int first)
{
    a->first = first;
    a->count = d / 2 - first < PAIRS ? d / 2 - first : PAIRS;
    for (int j = 0; j < PAIRS; j++)
        a->frequency[j] = j < a->count ? burst_rope_frequency(r, d, first + j) : 0;
    for (int j = 0; r->kind == BURST_ROPE_LONGROPE && j < a->count; j++)
        a->frequency[j] /= burst_rope_factor(r, first + j);
}

/* Computed in double: at position 4M an fp32 angle would be off by a quarter. */
static void angles_at(Angles *a, int64_t position)
{
    for (int j = 0; j < a->count; j += VEC_DOUBLES) {
        VecDouble angle;
        memcpy(&angle, a->frequency + j, sizeof angle);
        angle *= (double)position;
        vec_sincos(&angle, a->sine + j, a->cosine + j);
    }
}

/* direction 1 rotates, -1 rotates back; cosines and sines are multiplied by the amplitude. A pair's elements
 * are at step * j and step * j + apart. */
VEC_INLINE void rotate_pairs(const Angles *a, int step, int apart, float direction, float amplitude,
                             const float *x, float *y)
{
    const float *x0 = x + step * a->first, *x1 = x0 + apart;
    float *y0 = y + step * a->first, *y1 = y0 + apart;
    for (int j = 0; j < a->count; j++) {
        float c = amplitude * a->cosine[j], s = direction * amplitude * a->sine[j];
        const float first = x0[step * j], second = x1[step * j];
        y0[step * j] = first * c - second * s;
        y1[step * j] = second * c + first * s;
    }
}

static void rotate(const Angles *a, const BurstRope *r, int half, float direction, float amplitude,
                   const float *x, float *y)
{
    if (r->interleaved)
        rotate_pairs(a, 2, 1, direction, amplitude, x, y);
    else
        rotate_pairs(a, 1, half, direction, amplitude, x, y);
}

/* Rows by tokens, which stay so. */
static void turn_tokens(float direction, int64_t n, int heads, int d, const BurstRope *r,
                        const int64_t *position, const float *x, float *y)
{
    const int rotary = burst_rope_rotary(r, d), begin = burst_rope_begin(r, d);
    Angles a;
    memcpy(y, x, (size_t)(n * heads * d) * sizeof *y);
    for (int first = 0; first < rotary / 2; first += PAIRS) {
        angles_begin(&a, rotary, r, first);
        for (int64_t i = 0; i < n; i++) {
            const float amplitude = (float)burst_rope_amplitude(r, (double)position[i]);
            angles_at(&a, position[i]);
            for (int64_t at = i * heads * d + begin; at < (i + 1) * heads * d; at += d)
                rotate(&a, r, rotary / 2, direction, amplitude, x + at, y + at);
        }
    }
}

int burst_op_rotate(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                    const BurstPosition *position, const BurstAct *x, BurstAct *y)
{
    (void)e;
    turn_tokens(1, n, heads, d, rope, position, x, y);
    return BURST_OK;
}

int burst_op_rotate_back(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                         const BurstPosition *position, const BurstAct *dy, BurstAct *dx)
{
    (void)e;
    turn_tokens(-1, n, heads, d, rope, position, dy, dx);
    return BURST_OK;
}

/* Converts rows by tokens to rows by heads, or with `back` the reverse. */
static void rotate_rows(bool back, int64_t n, int64_t all, int heads, int d, const BurstRope *r,
                        const int64_t *position, const float *x, float *y)
{
    const int rotary = burst_rope_rotary(r, d), begin = burst_rope_begin(r, d);
    Angles a;
    for (int first = 0; first < rotary / 2; first += PAIRS) {
        angles_begin(&a, rotary, r, first);
        for (int64_t i = 0; i < n; i++) {
            const float amplitude = (float)burst_rope_amplitude(r, (double)position[i]);
            angles_at(&a, position[i]);
            for (int h = 0; h < heads; h++) {
                const int64_t by_tokens = (i * heads + h) * d + begin, by_heads = (h * all + i) * d + begin;
                rotate(&a, r, rotary / 2, back ? -1 : 1, amplitude, x + (back ? by_heads : by_tokens),
                       y + (back ? by_tokens : by_heads));
            }
        }
    }
}

/* Elements that are not rotated, with odd d also the last one, are copied. */
static bool has_fixed(const BurstRope *rope, int d) { return burst_rope_rotary(rope, d) / 2 * 2 < d; }

int burst_op_rope_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                       const BurstPosition *position, const BurstAct *x, BurstAct *y)
{
    if (has_fixed(rope, d))
        BURST_TRY(burst_op_to_heads_rows(e, n, all, heads, d, x, y));
    rotate_rows(false, n, all, heads, d, rope, position, x, y);
    return BURST_OK;
}

int burst_op_rope(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                  const BurstPosition *position, const BurstAct *x, BurstAct *y)
{
    return burst_op_rope_rows(e, n, n, heads, d, rope, position, x, y);
}

int burst_op_rope_back_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                            const BurstPosition *position, const float *dy, BurstAct *dx)
{
    if (has_fixed(rope, d))
        BURST_TRY(burst_op_to_tokens_rows(e, n, all, heads, d, dy, dx));
    rotate_rows(true, n, all, heads, d, rope, position, dy, dx);
    return BURST_OK;
}

int burst_op_rope_back(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                       const BurstPosition *position, const float *dy, BurstAct *dx)
{
    return burst_op_rope_back_rows(e, n, n, heads, d, rope, position, dy, dx);
}

int burst_op_join(BurstExec *e, int64_t n, int heads, int own, int shared, const BurstAct *x,
                  const BurstAct *every, BurstAct *y)
{
    (void)e;
    for (int64_t i = 0; i < n; i++)
        for (int h = 0; h < heads; h++) {
            float *to = y + (i * heads + h) * (own + shared);
            memcpy(to, x + (i * heads + h) * own, (size_t)own * sizeof *y);
            memcpy(to + own, every + i * shared, (size_t)shared * sizeof *y);
        }
    return BURST_OK;
}

int burst_op_join_back(BurstExec *e, int64_t n, int heads, int own, int shared, const BurstAct *dy,
                       BurstAct *dx, BurstAct *d_every, bool add)
{
    (void)e;
    for (int64_t i = 0; i < n; i++) {
        float *sum = d_every + i * shared;
        for (int h = 0; h < heads; h++) {
            const float *from = dy + (i * heads + h) * (own + shared);
            memcpy(dx + (i * heads + h) * own, from, (size_t)own * sizeof *dx);
            if (h == 0 && !add)
                memcpy(sum, from + own, (size_t)shared * sizeof *sum);
            else
                burst_add(shared, from + own, sum);
        }
    }
    return BURST_OK;
}
