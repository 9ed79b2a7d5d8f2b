/* test_masks.c: every line of stock_masks.h and random_masks.h as a function. */
#include "test_masks.h"

#include "random_masks.h"
#include "stock_masks.h"

#include <stdio.h>
#include <string.h>

static inline int64_t floor_quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static inline int64_t floor_rest(int64_t a, int64_t b)
{
    return a % b + (a % b < 0 ? b : 0);
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t magnitude(int64_t a)
{
    return a < 0 ? -a : a;
}

/* The number of the answer that a token belongs to; -1 in the question of n tokens. */
static inline int64_t answer(int64_t position, int64_t n, int64_t length)
{
    return floor_quotient(position - n, length);
}

static int differing_bits(int64_t a, int64_t b)
{
    int n = 0;
    for (; a != b; a /= 2, b /= 2)
        n += a % 2 != b % 2;
    return n;
}

static uint32_t finalise(uint32_t h)
{
    h ^= h >> 16;
    h *= 2246822507u;
    h ^= h >> 13;
    h *= 3266489909u;
    return h ^ (h >> 16);
}

/* The language's hash(a, b): MurmurHash3's finaliser of a, then of both, without its lowest bit. */
static int64_t murmur(int64_t a, int64_t b)
{
    uint32_t low_a = (uint32_t)(uint64_t)a, high_a = (uint32_t)((uint64_t)a >> 32);
    uint32_t low_b = (uint32_t)(uint64_t)b, high_b = (uint32_t)((uint64_t)b >> 32);
    uint32_t first = finalise((low_a ^ high_a) + 2654435769u);
    return finalise(first ^ (low_b ^ high_b) * 2654435761u) / 2;
}

/* Of the pattern file, which run_matrix.py writes by the same formula. */
enum { PATTERN_SIDE = 12 };

#define ALL_MASKS(X) STOCK_MASKS(X) RANDOM_MASKS(X)
#define X(id, text, documents, predicate)                                  \
    static bool keep_##id(int64_t q, int64_t k, const int32_t *doc)        \
    {                                                                      \
        (void)q, (void)k, (void)doc;                                       \
        return predicate;                                                  \
    }
ALL_MASKS(X)
#undef X
#define X(id, text, documents, predicate) {text, documents, keep_##id},
const TestMask test_masks[] = {ALL_MASKS(X)};
#undef X
const int test_mask_count = sizeof test_masks / sizeof *test_masks;

/* ---- selections, of training/run_selections.py ---- */
static bool keep_true(int64_t q, int64_t k, const int32_t *doc) { return (void)q, (void)k, (void)doc, true; }
static bool always_own(int64_t q, int64_t k) { return q / 128 == k / 128; }
static bool always_near(int64_t q, int64_t k) { return (q - k >= 0 && q - k < 192) || k < 4; }
static bool always_none(int64_t q, int64_t k) { return (void)q, (void)k, false; }
static const TestMask selections[] = {
    {"first", false, keep_causal,
     &(const Select64){2, SELECT64_FIRST_QUERY, SELECT64_MEAN_KEY, SELECT64_OF_HEAD, 32,
                       .always = always_own}},
    {"limits", false, keep_causal,
     &(const Select64){1, SELECT64_FIRST_QUERY, SELECT64_LIMITS, SELECT64_OF_KV, 64, .always = always_own}},
    {"previous", false, keep_causal,
     &(const Select64){3, SELECT64_PREVIOUS_MEAN, SELECT64_FIRST_KEY, SELECT64_OF_ALL, 48,
                       .always = always_near}},
    {"documents", true, keep_document,
     &(const Select64){2, SELECT64_PREVIOUS_MEAN, SELECT64_MEAN_KEY, SELECT64_OF_HEAD, 32, .documents = true,
                       .always = always_own}},
    {"greatest", true, keep_document,
     &(const Select64){2, SELECT64_FIRST_QUERY, SELECT64_MAX_KEY, SELECT64_OF_HEAD, 48, .documents = true,
                       .always = always_own}},
    {"msa", false, keep_causal,
     &(const Select64){2, SELECT64_FIRST_QUERY, SELECT64_MAX_KEY, SELECT64_OF_KV, 64, .indexer = true,
                       .always = always_own}},
    {"indexed", false, keep_causal,
     &(const Select64){3, SELECT64_PREVIOUS_MEAN, SELECT64_MEAN_KEY, SELECT64_OF_ALL, 32, .indexer = true,
                       .always = always_near}},
    {"both", false, keep_true,
     &(const Select64){5, SELECT64_OWN_MEAN, SELECT64_MEAN_KEY, SELECT64_OF_KV, 64, .noncausal = true,
                       .always = always_none}},
};

bool mask_view_keep(int64_t q, int64_t k, const void *view)
{
    const MaskView *v = view;
    return v->mask->keep(q, k, v->doc);
}

const TestMask *test_mask_named(const char *text)
{
    for (int i = 0; i < test_mask_count; i++)
        if (strcmp(test_masks[i].text, text) == 0)
            return &test_masks[i];
    for (size_t i = 0; i < sizeof selections / sizeof *selections; i++)
        if (strcmp(selections[i].text, text) == 0)
            return &selections[i];
    fprintf(stderr, "no test mask is written '%s'\n", text);
    return NULL;
}
