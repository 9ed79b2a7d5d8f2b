/* lengths.c: draws lengths of documents.
 *
 * Sets A (production), B (ProLong) and C (Wikipedia) are given by their quantiles 0.5, 0.9, 0.99, 0.999 and
 * their longest document, in WLB-LLM (arXiv 2503.17924) and later papers; the other knots are fitted to the
 * mean and to the published shares of tokens and pairs in documents over 32Ki. D is the histogram of
 * MagiAttention's benchmarks. `tail` uses only C's quantiles: log-uniform up to its longest document, it has
 * one of hundreds of Ki tokens in most batches, more than any of the tables. */
#include "data/lengths.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const LengthKnot knots_a[] = {{0, 16},       {.5, 3227},    {.9, 5784},     {.97, 12900}, {.99, 26070},
                                     {.993, 26880}, {.994, 92150}, {.999, 119836}, {1, 124913}};
static const LengthKnot knots_b[] = {{0, 64},       {.5, 1914},      {.9, 6051},
                                     {.97, 15720},  {.99, 16273},    {.997, 16630},
                                     {.999, 47500}, {.9999, 234100}, {1, 340149}};
static const LengthKnot knots_c[] = {{0, 16},          {.5, 347},    {.75, 1476},   {.9, 2112},
                                     {.97, 2183},      {.99, 10921}, {.999, 37367}, {.9999, 40380},
                                     {.99999, 145300}, {1, 1.8e6}};
static const LengthKnot knots_d[] = {{0, 32},        {.186, 200},    {.468, 500},    {.714, 1024},
                                     {.871, 2048},   {.944, 4096},   {.9745, 8192},  {.9874, 16384},
                                     {.9959, 32768}, {.9973, 65536}, {.999, 131072}, {1, 196608}};
static const LengthKnot knots_tail[] = {{0, 32},      {.5, 347},     {.9, 2112},
                                        {.99, 10921}, {.999, 37367}, {1, 1.8e6}};

#define SET(name, of) {name, sizeof of / sizeof *of, of, 0, NULL, NULL}
const Lengths lengths_sets[LENGTHS_SET_COUNT] = {SET("A", knots_a), SET("B", knots_b), SET("C", knots_c),
                                                 SET("D", knots_d), SET("tail", knots_tail)};

const Lengths *lengths_named(const char *name)
{
    for (int i = 0; i < LENGTHS_SET_COUNT; i++)
        if (strcmp(name, lengths_sets[i].name) == 0)
            return &lengths_sets[i];
    return NULL;
}

/* ---- reading ---- */

static const char *wrong(char why[LENGTHS_WHY], const char *what)
{
    snprintf(why, LENGTHS_WHY, "%s", what);
    return why;
}

/* Reads a whole number from 1 to most. Returns false for anything else. */
static bool read_number(const char **at, const char *end, int64_t most, int64_t *to)
{
    int64_t n = 0;
    const char *c = *at;
    for (; c < end && *c >= '0' && *c <= '9' && n <= most; c++)
        n = 10 * n + (*c - '0');
    const bool found = c > *at && n >= 1 && n <= most;
    *at = c;
    *to = n;
    return found && (c == end || *c == ' ' || *c == '\t' || *c == '\r' || *c == '#');
}

static void skip_blanks(const char **at, const char *end)
{
    while (*at < end && (**at == ' ' || **at == '\t' || **at == '\r'))
        ++*at;
    if (*at < end && **at == '#')
        *at = end;
}

enum { LISTED_MOST = 1 << 26 };
#define DOCUMENTS_MOST (INT64_C(1) << 40)

static const char *add_length(Lengths *l, int64_t *room, int64_t length, int64_t documents,
                              char why[LENGTHS_WHY])
{
    if (l->listed == *room) {
        const int64_t more = *room ? 2 * *room : 1024;
        int64_t *lengths = realloc(l->length, (size_t)more * sizeof *lengths);
        l->length = lengths ? lengths : l->length;
        int64_t *until = realloc(l->until, (size_t)more * sizeof *until);
        l->until = until ? until : l->until;
        if (!lengths || !until)
            return wrong(why, "out of memory");
        *room = more;
    }
    const int64_t before = l->listed ? l->until[l->listed - 1] : 0;
    if (l->listed == LISTED_MOST || before > DOCUMENTS_MOST - documents)
        return wrong(why, "too many lengths; give each once, followed by its number of documents");
    l->length[l->listed] = length;
    l->until[l->listed++] = before + documents;
    return NULL;
}

static const char *read_line(Lengths *l, int64_t *room, const char *at, const char *end,
                             char why[LENGTHS_WHY])
{
    int64_t length, documents = 1;
    skip_blanks(&at, end);
    if (at == end)
        return NULL;
    if (!read_number(&at, end, LENGTHS_MOST, &length))
        return wrong(why, "expected the length of a document, a whole number from 1 to 2147483648");
    skip_blanks(&at, end);
    if (at < end && !read_number(&at, end, DOCUMENTS_MOST, &documents))
        return wrong(why, "expected a number of documents after their length, from 1 to 2^40");
    skip_blanks(&at, end);
    if (at < end)
        return wrong(why, "expected one length a line, followed by its number of documents at most");
    return add_length(l, room, length, documents, why);
}

const char *lengths_read(Lengths *to, const char *text, size_t bytes, int64_t *line, char why[LENGTHS_WHY])
{
    int64_t room = 0;
    *to = (Lengths){0};
    *line = 0;
    const char *const last = text + bytes;
    for (const char *at = text; at < last;) {
        const char *newline = memchr(at, '\n', (size_t)(last - at)), *end = newline ? newline : last;
        ++*line;
        if (read_line(to, &room, at, end, why)) {
            lengths_free(to);
            return why;
        }
        at = newline ? newline + 1 : last;
    }
    *line = 1;
    return to->listed ? NULL : wrong(why, "it has no length of a document");
}

void lengths_free(Lengths *l)
{
    free(l->length);
    free(l->until);
    *l = (Lengths){0};
}

/* ---- drawing ---- */

/* splitmix64 (Steele, Lea and Flood 2014) */
uint64_t lengths_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int64_t draw_listed(const Lengths *l, uint64_t random)
{
    const int64_t document = (int64_t)(random % (uint64_t)l->until[l->listed - 1]);
    int64_t lo = 0, hi = l->listed - 1; /* the first length that covers the drawn number of documents */
    while (lo < hi) {
        const int64_t middle = lo + (hi - lo) / 2;
        if (l->until[middle] > document)
            hi = middle;
        else
            lo = middle + 1;
    }
    return l->length[lo];
}

int64_t lengths_draw(const Lengths *l, uint64_t *state)
{
    const uint64_t random = lengths_random(state);
    if (!l->knots)
        return draw_listed(l, random);
    const double u = (double)(random >> 11) * 0x1p-53;
    int k = 1;
    while (k < l->knots - 1 && u > l->knot[k].share)
        k++;
    const LengthKnot *a = &l->knot[k - 1], *b = &l->knot[k];
    return (int64_t)(a->tokens * pow(b->tokens / a->tokens, (u - a->share) / (b->share - a->share)));
}
