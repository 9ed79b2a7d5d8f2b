/* units.c: converts numbers as people write them (32Ki, 141 GB, 200 Gb/s, 2 us) to base units. */
#include "ast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const unit_what[UNIT_KIND_COUNT] = {
#define X(id, what, examples) what,
    UNIT_KINDS(X)
#undef X
};
const char *const unit_examples[UNIT_KIND_COUNT] = {
#define X(id, what, examples) examples,
    UNIT_KINDS(X)
#undef X
};

/* Decimal prefixes are powers of 1000, binary ones of 1024; bits count as an eighth of a byte. */
typedef struct Measure { const char *name; UnitKind kind; int64_t factor; int divisor; } Measure;
#define KILO INT64_C(1000)
#define KIBI INT64_C(1024)
static const Measure suffixes[] = {
    {"K", UNIT_NONE, KILO, 1},       {"M", UNIT_NONE, KILO *KILO, 1},
    {"G", UNIT_NONE, KILO *KILO *KILO, 1}, {"T", UNIT_NONE, KILO *KILO *KILO *KILO, 1},
    {"Ki", UNIT_NONE, KIBI, 1},      {"Mi", UNIT_NONE, KIBI *KIBI, 1},
    {"Gi", UNIT_NONE, KIBI *KIBI *KIBI, 1}, {"Ti", UNIT_NONE, KIBI *KIBI *KIBI *KIBI, 1},
};
static const Measure units[] = {
    {"B", UNIT_BYTES, 1, 1},
    {"KB", UNIT_BYTES, KILO, 1},     {"KiB", UNIT_BYTES, KIBI, 1},
    {"kB", UNIT_BYTES, KILO, 1},
    {"MB", UNIT_BYTES, KILO *KILO, 1}, {"MiB", UNIT_BYTES, KIBI *KIBI, 1},
    {"GB", UNIT_BYTES, KILO *KILO *KILO, 1}, {"GiB", UNIT_BYTES, KIBI *KIBI *KIBI, 1},
    {"TB", UNIT_BYTES, KILO *KILO *KILO *KILO, 1}, {"TiB", UNIT_BYTES, KIBI *KIBI *KIBI *KIBI, 1},
    {"B/s", UNIT_RATE, 1, 1},        {"KB/s", UNIT_RATE, KILO, 1},
    {"MB/s", UNIT_RATE, KILO *KILO, 1}, {"MiB/s", UNIT_RATE, KIBI *KIBI, 1},
    {"GB/s", UNIT_RATE, KILO *KILO *KILO, 1}, {"GiB/s", UNIT_RATE, KIBI *KIBI *KIBI, 1},
    {"TB/s", UNIT_RATE, KILO *KILO *KILO *KILO, 1}, {"TiB/s", UNIT_RATE, KIBI *KIBI *KIBI *KIBI, 1},
    {"Mb/s", UNIT_RATE, KILO *KILO, 8}, {"Gb/s", UNIT_RATE, KILO *KILO *KILO, 8},
    {"Tb/s", UNIT_RATE, KILO *KILO *KILO *KILO, 8},
    {"GFLOP/s", UNIT_FLOPS, KILO *KILO *KILO, 1}, {"TFLOP/s", UNIT_FLOPS, KILO *KILO *KILO *KILO, 1},
    {"PFLOP/s", UNIT_FLOPS, KILO *KILO *KILO *KILO *KILO, 1},
    {"ns", UNIT_TIME, 1, 1},         {"us", UNIT_TIME, KILO, 1},
    {"ms", UNIT_TIME, KILO *KILO, 1}, {"s", UNIT_TIME, KILO *KILO *KILO, 1},
};

static const Measure *find(const Measure *table, int n, const char *name, size_t len)
{
    for (int i = 0; i < n; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    return NULL;
}
#define FIND(table, name, len) find(table, countof(table), name, len)

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static size_t digits(const char *s, size_t n, size_t i)
{
    while (i < n && is_digit(s[i]))
        i++;
    return i;
}

/* "12", "1.5", "3e-4". A dot counts only with digits after it, so that "0..3" is a range. */
static size_t mantissa(const char *s, size_t n, bool *plain)
{
    size_t i = digits(s, n, 0);
    *plain = true;
    if (i + 1 < n && s[i] == '.' && is_digit(s[i + 1])) {
        i = digits(s, n, i + 1);
        *plain = false;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        size_t j = i + 1;
        j += j < n && (s[j] == '+' || s[j] == '-');
        if (j < n && is_digit(s[j])) {
            i = digits(s, n, j);
            *plain = false;
        }
    }
    return i;
}

/* Reads digits exactly, and anything else as a double, which counts as whole below 2^53. */
static void read_mantissa(const char *s, size_t len, bool plain, Number *out)
{
    char *copy = xmalloc(len + 1);
    memcpy(copy, s, len);
    copy[len] = 0;
    out->value = strtod(copy, NULL);
    free(copy);
    out->is_whole = plain;
    for (size_t i = 0; plain && i < len && out->is_whole; i++)
        out->is_whole = !__builtin_mul_overflow(out->whole, 10, &out->whole) &&
                        !__builtin_add_overflow(out->whole, s[i] - '0', &out->whole);
}

static void apply(Number *out, const Measure *u)
{
    out->unit = u->kind;
    out->value = out->value * (double)u->factor / u->divisor;
    if (out->is_whole)
        out->is_whole = !__builtin_mul_overflow(out->whole, u->factor, &out->whole) &&
                        out->whole % u->divisor == 0;
    if (out->is_whole)
        out->whole /= u->divisor;
}

static void finish(Number *out)
{
    if (out->is_whole || fabs(out->value) >= 0x1p53 || out->value != floor(out->value))
        return;
    out->is_whole = true;
    out->whole = (int64_t)out->value;
}

/* The unit at s, with "/s" if that makes a unit; the longest match wins. */
static const Measure *unit_at(const char *s, size_t n, bool touching, size_t *len)
{
    size_t letters = 0;
    while (letters < n && is_letter(s[letters]))
        letters++;
    const Measure *u = NULL;
    if (letters && letters + 1 < n && s[letters] == '/' && s[letters + 1] == 's') {
        *len = letters + 2;
        u = FIND(units, s, *len);
    }
    if (!u && letters) {
        *len = letters;
        u = FIND(units, s, letters);
        if (!u && touching)
            u = FIND(suffixes, s, letters);
    }
    return u;
}

size_t number_read(const char *text, size_t n, Number *out, bool *known)
{
    bool plain;
    size_t i = mantissa(text, n, &plain), len;
    *out = (Number){0};
    *known = true;
    read_mantissa(text, i, plain, out);
    size_t gap = i;
    while (gap < n && (text[gap] == ' ' || text[gap] == '\t'))
        gap++;
    const Measure *u = unit_at(text + gap, n - gap, gap == i, &len);
    if (u) {
        apply(out, u);
        i = gap + len;
    } else if (i < n && (is_letter(text[i]) || text[i] == '_')) {
        *known = false;
        while (i < n && (is_letter(text[i]) || is_digit(text[i]) || text[i] == '_'))
            i++;
    }
    finish(out);
    return i;
}

/* From 2^53 on every double is whole. */
bool number_is_huge(const Number *n, int64_t limit)
{
    return n->unit == UNIT_NONE && (n->is_whole ? n->whole > limit : n->value >= 0x1p53);
}
