/* families/rope.c: the numbers of each kind of RoPE scaling, in one table for models and for config.json. */
#include "families/families.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIELD(json, name, member, lo, hi, absent) {json, name, offsetof(BurstRope, member), lo, hi, absent}
#define OPTION(json, name, member, negated) \
    {json, name, offsetof(BurstRope, member), 0, 1e6, 0, true, negated}
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
                          FIELD("attention_factor", "attention", attention, 1e-6, 1e6, -1),
                          OPTION("llama_4_scaling_beta", "query_beta", query_beta, false),
                          OPTION("truncate", "truncate", untruncated, true)}},
    [BURST_ROPE_DYNAMIC] = {"dynamic", {FACTOR, ORIGINAL}},
    [BURST_ROPE_LONGROPE] = {"longrope",
                             {ORIGINAL, FIELD("attention_factor", "attention", attention, 1e-6, 1e6, 0)}},
};

double *rope_number(BurstRope *r, const RopeField *f) { return (double *)(void *)((char *)r + f->at); }

double rope_value(const BurstRope *r, const RopeField *f)
{
    double value;
    memcpy(&value, (const char *)r + f->at, sizeof value);
    return value;
}

double rope_yarn_attention(double factor) { return factor > 1 ? 0.1 * log(factor) + 1 : 1; }

double rope_long_attention(double factor, double original)
{
    return factor > 1 && original > 1 ? sqrt(1 + log(factor) / log(original)) : 1;
}

/* A text that is cut to its size. */
typedef struct Cut {
    char *text;
    size_t size, used;
} Cut;

__attribute__((format(printf, 2, 3))) static void add(Cut *c, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (c->used < c->size)
        c->used += (size_t)vsnprintf(c->text + c->used, c->size - c->used, format, ap);
    va_end(ap);
}

static void add_factors(Cut *c, const char *name, const double *factor, int count)
{
    add(c, " %s", name);
    for (int i = 0; i < count; i++)
        add(c, " %.15g", factor[i]);
    add(c, ";");
}

void rope_text(const BurstRope *r, char *text, size_t size)
{
    const RopeKind *k = &rope_kinds[r->kind];
    Cut c = {text, size, 0};
    if (r->theta > 0)
        add(&c, "%.15g", r->theta);
    else
        add(&c, "none");
    if (r->kind == BURST_ROPE_DEFAULT)
        return;
    add(&c, " %s {", k->name);
    for (const RopeField *f = k->field; f->name; f++) {
        if (f->negated && rope_value(r, f) > 0)
            add(&c, " %s no;", f->name);
        else if (!f->option || rope_value(r, f) > 0)
            add(&c, " %s %.15g;", f->name, rope_value(r, f));
    }
    if (r->factors) {
        add_factors(&c, "short", r->factors->short_factor, r->factors->count);
        add_factors(&c, "long", r->factors->long_factor, r->factors->count);
    }
    add(&c, " }");
}

static bool same(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(a); }

static bool same_factors(const BurstRopeFactors *a, const BurstRopeFactors *b)
{
    bool equal = (a == NULL) == (b == NULL) && (!a || a->count == b->count);
    for (int i = 0; equal && a && i < a->count; i++)
        equal = same(a->short_factor[i], b->short_factor[i]) && same(a->long_factor[i], b->long_factor[i]);
    return equal;
}

bool rope_same(const BurstRope *a, const BurstRope *b)
{
    if (a->theta == 0 || b->theta == 0)
        return a->theta == b->theta;
    bool equal = a->kind == b->kind && same(a->theta, b->theta) && a->rotary == b->rotary &&
                 a->interleaved == b->interleaved;
    for (const RopeField *f = rope_kinds[a->kind].field; equal && f->name; f++)
        equal = same(rope_value(a, f), rope_value(b, f));
    return equal && same_factors(a->factors, b->factors);
}

const char *rope_wrong(const BurstRope *r, int d)
{
    if (r->kind == BURST_ROPE_LLAMA3 && r->low >= r->high)
        return "'low' must be below 'high'";
    if (r->kind == BURST_ROPE_YARN && r->low > r->high)
        return "'slow' must not be above 'fast'";
    if (r->kind == BURST_ROPE_YARN && r->theta <= 1)
        return "yarn needs a base above 1";
    if (r->query_beta > 0 && r->rotary)
        return "'query_beta' scales whole heads; remove 'rotary' or 'query_beta'";
    if (r->kind == BURST_ROPE_DYNAMIC && d <= 2)
        return "dynamic scaling needs heads of more than 2 elements";
    if (r->kind == BURST_ROPE_LONGROPE && (!r->factors || r->factors->count != d / 2))
        return "'short' and 'long' must have a factor for each pair of elements that turns";
    return NULL;
}
