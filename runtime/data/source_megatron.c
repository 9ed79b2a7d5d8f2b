/* source_megatron.c: data sets of Megatron-LM: NAME.bin has the tokens, NAME.idx their type, the lengths of
 * consecutive sequences, and the sequences of each document (IndexedDataset). */
#include "data/source.h"
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 34 }; /* magic and a zero byte, version (8), type (1), sequences (8), documents (8) */

/* ---- the index ---- */

typedef struct Index {
    int fd;
    off_t bytes;
    uint64_t sequences, documents; /* documents: including the end of the last */
    int width;
    bool is_signed;
} Index;

static int refuse(BurstCtx *c, const Source *s, const char *what)
{
    return burst_fail(c, BURST_E_IO, "'%s' %s", s->idx, what);
}

static int read_header(BurstCtx *c, const Source *s, Index *x)
{
    static const struct {
        int width;
        bool is_signed;
    } types[] = {{0}, {1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {0}, {0}, {2, false}};
    unsigned char head[HEADER];
    if (!read_at(x->fd, head, sizeof head, 0))
        return refuse(c, s, "is truncated");
    const uint64_t version = source_number(head + 9, 8);
    if (version != 1)
        return refuse(c, s, "is an index of another version than 1");
    const size_t type = head[17] < sizeof types / sizeof *types ? head[17] : 0; /* Megatron-LM's number */
    x->width = types[type].width;
    x->is_signed = types[type].is_signed;
    x->sequences = source_number(head + 18, 8);
    x->documents = source_number(head + 26, 8);
    if (!x->width)
        return refuse(c, s, "gives a type that is no whole number");
    const uint64_t room = (uint64_t)(x->bytes - HEADER);
    if (x->sequences > room / 12 || x->documents > room / 8 || 12 * x->sequences + 8 * x->documents > room)
        return refuse(c, s, "is truncated");
    return source_check_end(c, s->idx, HEADER + (off_t)(12 * x->sequences + 8 * x->documents), x->bytes);
}

/* The first token of each sequence, then the number of tokens: [sequences + 1]. */
static int read_sequences(BurstCtx *c, const Source *s, const Index *x, int64_t *begin)
{
    const size_t n = x->sequences;
    unsigned char *length = malloc(12 * n + 1), *pointer = length ? length + 4 * n : NULL;
    if (!length)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for '%s'", s->idx);
    bool follow = read_at(x->fd, length, 12 * n, HEADER);
    begin[0] = 0;
    for (size_t i = 0; follow && i < n; i++) {
        begin[i + 1] = begin[i] + (int64_t)source_number(length + 4 * i, 4);
        follow = source_number(pointer + 8 * i, 8) == (uint64_t)begin[i] * (uint64_t)x->width;
    }
    free(length);
    return follow ? BURST_OK
                  : refuse(c, s,
                           "does not list the sequences of its .bin in their order; write both with "
                           "Megatron-LM's preprocess_data.py or merge_datasets.py");
}

static int wrong_document(BurstCtx *c, const Source *s, const Index *x, size_t i, uint64_t sequence,
                          const char *expected, uint64_t number)
{
    return burst_fail(c, BURST_E_IO,
                      "'%s': entry %zu of its documents is sequence %llu of %llu, expected %s %llu", s->idx,
                      i, (unsigned long long)sequence, (unsigned long long)x->sequences, expected,
                      (unsigned long long)number);
}

/* The entries are the first sequence of each document and the end of the last. Documents without a token are
 * skipped. */
static int take_documents(BurstCtx *c, Source *s, const Index *x, const int64_t *begin,
                          const unsigned char *entry)
{
    uint64_t before = 0;
    for (size_t i = 0; i < x->documents; i++) {
        const uint64_t sequence = source_number(entry + 8 * i, 8);
        if (i == 0 && sequence != 0)
            return wrong_document(c, s, x, i, sequence, "sequence", 0);
        if (sequence < before)
            return wrong_document(c, s, x, i, sequence, "at least", before);
        if (sequence > x->sequences)
            return wrong_document(c, s, x, i, sequence, "at most", x->sequences);
        before = sequence;
        const int64_t at = begin[sequence];
        if (at < s->count && (!s->documents || at != s->document[s->documents - 1]))
            s->document[s->documents++] = at;
    }
    if (before != x->sequences)
        return wrong_document(c, s, x, x->documents - 1, before, "the end after sequence", x->sequences - 1);
    return source_check_documents(c, s);
}

/* Without entries, separators end documents. */
static int read_documents(BurstCtx *c, Source *s, const Index *x, const int64_t *begin)
{
    const size_t n = x->documents;
    if (!n || !s->count)
        return BURST_OK;
    unsigned char *entry = malloc(8 * n);
    s->document = malloc((n + 1) * sizeof *s->document);
    int status = BURST_OK;
    if (!entry || !s->document)
        status = burst_fail(c, BURST_E_MEMORY, "out of memory for '%s'", s->idx);
    else if (!read_at(x->fd, entry, 8 * n, HEADER + (off_t)(12 * x->sequences)))
        status = refuse(c, s, "cannot be read");
    if (status == BURST_OK)
        status = take_documents(c, s, x, begin, entry);
    free(entry);
    return status;
}

static int read_index(BurstCtx *c, Source *s, Index *x)
{
    BURST_TRY(read_header(c, s, x));
    int64_t *begin = malloc((x->sequences + 1) * sizeof *begin);
    if (!begin)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for '%s'", s->idx);
    int status = read_sequences(c, s, x, begin);
    s->token.width = x->width;
    s->token.is_signed = x->is_signed;
    s->count = begin[x->sequences];
    if (status == BURST_OK && s->count > s->bytes / x->width)
        status = burst_fail(c, BURST_E_IO, "'%s' is truncated: its index gives %lld tokens, found %lld",
                            s->bin, (long long)s->count, (long long)(s->bytes / x->width));
    if (status == BURST_OK)
        status = source_check_end(c, s->bin, (off_t)s->count * x->width, s->bytes);
    if (status == BURST_OK)
        status = read_documents(c, s, x, begin);
    free(begin);
    return status;
}

/* Either name refers to both files. */
static int open_bin(BurstCtx *c, Source *s)
{
    close(s->fd);
    s->fd = s->token.fd = open_regular(c, s->bin, &s->bytes);
    return s->fd < 0 ? BURST_E_IO : BURST_OK;
}

int source_megatron(BurstCtx *c, Source *s, bool *is)
{
    *is = source_pair(s->path, s->bin, s->idx);
    if (!*is)
        return BURST_OK;
    BURST_TRY(open_bin(c, s));
    Index x = {.fd = open_regular(c, s->idx, &x.bytes)};
    if (x.fd < 0)
        return BURST_E_IO;
    const int status = read_index(c, s, &x);
    close(x.fd);
    return status;
}
