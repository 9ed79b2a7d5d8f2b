/* families/frequency.h: frequencies of rotary position embedding, as transformers has them
 * (modeling_rope_utils.py), in double. Compiled for both targets.
 */
#ifndef BURST_FREQUENCY_H
#define BURST_FREQUENCY_H

#include "burst_model.h"

#include <math.h>

#ifdef __CUDACC__
#define BURST_ROPE_CALL static inline __host__ __device__
#else
#define BURST_ROPE_CALL static inline
#endif

BURST_ROPE_CALL double burst_rope_share(double x)
{
    if (x > 0)
        return x < 1 ? x : 1;
    return 0;
}

/* Of the scale's rise from pairs that turn often to those that hardly turn: 0 keeps the frequency, 1 divides
 * it by the factor. */
BURST_ROPE_CALL double burst_rope_yarn(const BurstRope *r, int d, int pair)
{
    const double turn = 2 * 3.14159265358979323846, base = 2 * log(r->theta);
    double from = d * log(r->original / (r->high * turn)) / base,
           to = d * log(r->original / (r->low * turn)) / base;
    from = r->untruncated > 0 ? from : floor(from);
    to = r->untruncated > 0 ? to : ceil(to);
    from = from > 0 ? from : 0;
    to = to < d - 1 ? to : d - 1;
    to = from == to ? to + 0.001 : to;
    const double rise = (pair - from) / (to - from);
    return burst_rope_share(rise);
}

/* The same of Llama 3.1: by how many waves `original` has. */
BURST_ROPE_CALL double burst_rope_llama3(const BurstRope *r, double frequency)
{
    const double waves = r->original * frequency / (2 * 3.14159265358979323846);
    const double rise = (r->high - waves) / (r->high - r->low);
    return burst_rope_share(rise);
}

/* How many elements of a head of d turn. */
BURST_ROPE_CALL int burst_rope_rotary(const BurstRope *r, int d)
{
    if (r->rotary < 0)
        return -r->rotary;
    return r->rotary ? r->rotary : d;
}

/* The first of them. */
BURST_ROPE_CALL int burst_rope_begin(const BurstRope *r, int d) { return r->rotary < 0 ? d + r->rotary : 0; }

/* longrope: what the pair's frequency is divided by. On the host alone, which has the factors. */
static inline double burst_rope_factor(const BurstRope *r, int pair)
{
    return r->length > r->original ? r->factors->long_factor[pair] : r->factors->short_factor[pair];
}

/* Radians a token of the pair, of d elements that turn; of longrope, before the factor. */
BURST_ROPE_CALL double burst_rope_frequency(const BurstRope *r, int d, int pair)
{
    double theta = r->theta, scaled = 0;
    if (theta == 0)
        return 0;
    if (r->kind == BURST_ROPE_DYNAMIC && r->length > r->original)
        theta *= pow(r->factor * r->length / r->original - (r->factor - 1), d / (d - 2.0));
    const double frequency = pow(theta, -2.0 * pair / d);
    if (r->kind == BURST_ROPE_LINEAR)
        scaled = 1;
    else if (r->kind == BURST_ROPE_LLAMA3)
        scaled = burst_rope_llama3(r, frequency);
    else if (r->kind == BURST_ROPE_YARN)
        scaled = burst_rope_yarn(r, d, pair);
    return scaled > 0 ? frequency * (1 - scaled) + frequency / r->factor * scaled : frequency;
}

/* What cosines and sines at a position are multiplied by. */
BURST_ROPE_CALL double burst_rope_amplitude(const BurstRope *r, double position)
{
    const double amplitude = r->attention > 0 ? r->attention : 1;
    return r->query_beta > 0 ? amplitude * (1 + r->query_beta * log(1 + floor(position / r->original)))
                             : amplitude;
}
#endif
