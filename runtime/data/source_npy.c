/* source_npy.c: NumPy's .npy files (NEP 1): whole numbers, little-endian, in C order. Arrays of several
 * dimensions are read row by row. */
#include "data/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 10 }; /* magic, version, length of the text */

static int refuse(BurstCtx *c, const Source *s, const char *what)
{
    return burst_fail(c, BURST_E_IO,
                      "'%s' is a NumPy array %s; token ids are whole numbers of 1, 2, 4 or 8 bytes, "
                      "little-endian, in C order: save it as numpy.save(FILE, "
                      "numpy.ascontiguousarray(ids, dtype='<u4'))",
                      s->path, what);
}

/* The text after a key of the header's dictionary; NULL: not found. */
static const char *value_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? at + strlen(key) + strspn(at + strlen(key), "': ") : NULL;
}

/* "<u4": bytes per number and signedness. Returns false for other types. */
static bool read_type(const char *descr, Column *token)
{
    static const char *const types[] = {"|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"};
    for (size_t i = 0; descr && i < sizeof types / sizeof *types; i++)
        if (strncmp(descr, types[i], 3) == 0 && (descr[3] == '\'' || descr[3] == '"')) {
            token->width = types[i][2] - '0';
            token->is_signed = types[i][1] == 'i';
            return true;
        }
    return false;
}

/* The product of "(3, 4)"; -1: malformed, or too large. */
static int64_t count_of(const char *shape)
{
    int64_t count = 1;
    if (!shape || *shape++ != '(')
        return -1;
    while (*shape && *shape != ')') {
        char *end;
        errno = 0;
        const int64_t n = strtoll(shape, &end, 10);
        if (end == shape || errno || n < 0 || __builtin_mul_overflow(count, n, &count))
            return -1;
        shape = end + strspn(end, ", ");
    }
    return *shape == ')' ? count : -1;
}

int source_npy(BurstCtx *c, Source *s, const unsigned char *head, size_t n, bool *is)
{
    static const char magic[] = "\x93NUMPY";
    *is = n >= PREFIX && memcmp(head, magic, sizeof magic - 1) == 0;
    if (!*is)
        return BURST_OK;
    const int bytes = head[6] == 1 ? 2 : 4;
    const uint64_t begin = 8 + (uint64_t)bytes, length = source_number(head + 8, bytes);
    if (head[6] < 1 || head[6] > 3 || begin + length > n)
        return refuse(c, s, "whose header cannot be read");
    char text[HEAD_MOST + 1];
    memcpy(text, head + begin, length);
    text[length] = 0;
    const char *order = value_of(text, "fortran_order");
    const int64_t count = count_of(value_of(text, "shape"));
    s->token.at = (off_t)(begin + length);
    if (!read_type(value_of(text, "descr"), &s->token))
        return refuse(c, s, "of another type");
    if (!order || strncmp(order, "False", 5) != 0)
        return refuse(c, s, "in Fortran's order");
    const int64_t room = (s->bytes - s->token.at) / s->token.width;
    if (count < 0 || count > room)
        return burst_fail(c, BURST_E_IO, "'%s' is truncated: its header gives %lld tokens, found %lld",
                          s->path, (long long)count, (long long)room);
    s->count = count;
    return source_check_end(c, s->path, s->token.at + (off_t)count * s->token.width, s->bytes);
}
