/* families/rope.c: the numbers of each kind of RoPE scaling, in one table for models and for config.json. */
#include "families/families.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIELD(json, name, member, lo, hi, absent) {json, name, offsetof(BurstRope, member), lo, hi, absent}
#define FACTOR FIELD("factor", "factor", factor, 1, 1e6, 0)
#define ORIGINAL FIELD("original_max_position_embeddings", "original", original, 1, 0x1p40, 0)

const RopeKind rope_kinds[BURST_ROPE_KINDS] = {
    [BURST_ROPE_DEFAULT] = {"default", {{0}}},
    [BURST_ROPE_LINEAR] = {"linear", {FACTOR}},
    [BURST_ROPE_LLAMA3] = {"llama3",
                           {FACTOR, ORIGINAL, FIELD("low_freq_factor", "low", low, 1e-6, 1e6, 0),
                            FIELD("high_freq_factor", "high", high, 1e-6, 1e6, 0)}},
    [BURST_ROPE_YARN] = {"yarn",
                         {FACTOR, ORIGINAL, FIELD("beta_slow", "slow", low, 1e-6, 1e6, 1),
                          FIELD("beta_fast", "fast", high, 1e-6, 1e6, 32),
                          FIELD("attention_factor", "attention", attention, 1e-6, 1e6, -1)}},
    [BURST_ROPE_DYNAMIC] = {"dynamic", {FACTOR, ORIGINAL}},
};

double *rope_number(BurstRope *r, const RopeField *f) { return (double *)(void *)((char *)r + f->at); }

double rope_value(const BurstRope *r, const RopeField *f)
{
    double value;
    memcpy(&value, (const char *)r + f->at, sizeof value);
    return value;
}

double rope_yarn_attention(double factor) { return factor > 1 ? 0.1 * log(factor) + 1 : 1; }

void rope_text(const BurstRope *r, char *text, size_t size)
{
    const RopeKind *k = &rope_kinds[r->kind];
    size_t n = (size_t)(r->theta > 0 ? snprintf(text, size, "%.15g", r->theta)
                                     : snprintf(text, size, "none"));
    if (r->kind == BURST_ROPE_DEFAULT || n >= size)
        return;
    n += (size_t)snprintf(text + n, size - n, " %s {", k->name);
    for (int i = 0; i < ROPE_FIELDS && k->field[i].name && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, " %s %.15g;", k->field[i].name,
                              rope_value(r, &k->field[i]));
    if (n < size)
        snprintf(text + n, size - n, " }");
}

static bool same(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(a); }

bool rope_same(const BurstRope *a, const BurstRope *b)
{
    if (a->theta == 0 || b->theta == 0)
        return a->theta == b->theta;
    bool equal = a->kind == b->kind && same(a->theta, b->theta) && a->rotary == b->rotary &&
                 a->interleaved == b->interleaved;
    for (const RopeField *f = rope_kinds[a->kind].field; equal && f->name; f++)
        equal = same(rope_value(a, f), rope_value(b, f));
    return equal;
}

const char *rope_wrong(const BurstRope *r, int d)
{
    if (r->kind == BURST_ROPE_LLAMA3 && r->low >= r->high)
        return "'low' must be below 'high'";
    if (r->kind == BURST_ROPE_YARN && r->low >= r->high)
        return "'slow' must be below 'fast'";
    if (r->kind == BURST_ROPE_YARN && r->theta <= 1)
        return "yarn needs a base above 1";
    if (r->kind == BURST_ROPE_DYNAMIC && d <= 2)
        return "dynamic scaling needs heads of more than 2 elements";
    return NULL;
}
