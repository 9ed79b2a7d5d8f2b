/* burst_tokens_draw.c: writes drawn documents as a token file of version 2, which lists where they begin, or
 * as a table of lengths. Lengths are drawn anew for each pass, so that none are stored, however many there
 * are. */
#include "data/burst_tokens_draw.h"

#include <inttypes.h>

static void put(FILE *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)(value >> (8 * i) & 0xff), out);
}

static uint64_t tokens_of(const Drawing *d)
{
    uint64_t state = d->seed, tokens = 0;
    for (int64_t i = 0; i < d->documents; i++)
        tokens += (uint64_t)lengths_draw(d->lengths, &state);
    return tokens;
}

static void list_lengths(const Drawing *d, FILE *out)
{
    uint64_t state = d->seed;
    for (int64_t i = 0; i < d->documents; i++)
        fprintf(out, "%" PRId64 "\n", lengths_draw(d->lengths, &state));
}

static void put_begins(const Drawing *d, FILE *out)
{
    uint64_t state = d->seed, begin = 0;
    for (int64_t i = 0; i < d->documents; i++) {
        put(out, begin, 8);
        begin += (uint64_t)lengths_draw(d->lengths, &state);
    }
}

void drawing_write(const Drawing *d, FILE *out)
{
    if (d->listing) {
        list_lengths(d, out);
        return;
    }
    const uint64_t tokens = tokens_of(d), bytes = tokens * (uint64_t)d->width;
    uint64_t state = ~d->seed; /* a stream of its own */
    fwrite("BURSTTOK", 1, 8, out);
    put(out, 2, 4), put(out, (uint64_t)d->width, 4), put(out, tokens, 8);
    put(out, 0, 4), put(out, 0, 4), put(out, (uint64_t)d->documents, 8);
    for (uint64_t i = 0; i < tokens && !ferror(out); i++)
        put(out, lengths_random(&state) % (uint64_t)d->vocabulary, d->width);
    put(out, 0, (int)(-bytes & 7));
    put_begins(d, out);
}
