/* source_megatron.c: data sets of Megatron-LM: NAME.bin has the tokens, NAME.idx their type, the sequences
 * that follow each other there, and of which sequences documents are made (IndexedDataset). */
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "MMIDIDX\0"
enum { HEADER = 34 }; /* magic and a zero byte, version (8), type (1), sequences (8), documents (8) */

static bool replace_end(const char *path, const char *end, char out[PATH_MAX])
{
    const size_t n = strlen(path);
    if (n < 4 || n >= PATH_MAX)
        return false;
    memcpy(out, path, n - 4);
    memcpy(out + n - 4, end, 5);
    return true;
}

/* Whether a regular file begins as an index. */
static bool is_index(const char *path)
{
    char magic[sizeof MAGIC - 1];
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const bool is = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                    read_at(fd, magic, sizeof magic, 0) && memcmp(magic, MAGIC, sizeof magic) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

bool source_pair(const char *path, char bin[PATH_MAX], char idx[PATH_MAX])
{
    const size_t n = strlen(path);
    const char *end = n > 4 ? path + n - 4 : "";
    return (strcmp(end, ".bin") == 0 || strcmp(end, ".idx") == 0) && replace_end(path, ".bin", bin) &&
           replace_end(path, ".idx", idx) && is_index(idx);
}

/* ---- the index ---- */

typedef struct Index {
    int fd;
    off_t bytes;
    uint64_t sequences, documents; /* documents: with the end of the last */
    int width;
} Index;

static int refuse(BurstCtx *c, const Source *s, const char *what)
{
    return burst_fail(c, BURST_E_IO, "'%s' %s", s->idx, what);
}

static int read_header(BurstCtx *c, const Source *s, Index *x)
{
    static const int widths[] = {0, 1, 1, 2, 4, 8, 0, 0, 2}; /* by Megatron-LM's number of a type */
    unsigned char head[HEADER];
    if (!read_at(x->fd, head, sizeof head, 0))
        return refuse(c, s, "is truncated");
    const uint64_t version = source_number(head + 9, 8);
    if (version != 1)
        return refuse(c, s, "is an index of another version than 1");
    x->width = head[17] < sizeof widths / sizeof *widths ? widths[head[17]] : 0;
    x->sequences = source_number(head + 18, 8);
    x->documents = source_number(head + 26, 8);
    if (!x->width)
        return refuse(c, s, "gives a type that is no whole number");
    const uint64_t room = (uint64_t)(x->bytes - HEADER);
    if (x->sequences > room / 12 || x->documents > room / 8 || 12 * x->sequences + 8 * x->documents > room)
        return refuse(c, s, "is truncated");
    return BURST_OK;
}

/* The token that each sequence begins with, and their number: [sequences + 1]. */
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

/* Documents without a token are none. */
static int read_documents(BurstCtx *c, Source *s, const Index *x, const int64_t *begin)
{
    const size_t n = x->documents;
    unsigned char *first = malloc(8 * n + 1);
    s->document = malloc((n + 1) * sizeof *s->document);
    if (!first || !s->document) {
        free(first);
        return burst_fail(c, BURST_E_MEMORY, "out of memory for '%s'", s->idx);
    }
    bool known = read_at(x->fd, first, 8 * n, HEADER + (off_t)(12 * x->sequences));
    for (size_t i = 0; known && i < n; i++) {
        const uint64_t sequence = source_number(first + 8 * i, 8);
        known = sequence <= x->sequences;
        const int64_t at = known ? begin[sequence] : 0;
        if (known && at < s->count && (!s->documents || at != s->document[s->documents - 1]))
            s->document[s->documents++] = at;
    }
    free(first);
    if (known && s->documents == 0) {
        free(s->document);
        s->document = NULL;
        return BURST_OK;
    }
    return known ? source_check_documents(c, s) : refuse(c, s, "names a sequence that it does not have");
}

static int read_index(BurstCtx *c, Source *s, Index *x)
{
    BURST_TRY(read_header(c, s, x));
    int64_t *begin = malloc((x->sequences + 1) * sizeof *begin);
    if (!begin)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for '%s'", s->idx);
    int status = read_sequences(c, s, x, begin);
    s->token.width = x->width;
    s->count = begin[x->sequences];
    if (status == BURST_OK && s->count > s->bytes / x->width)
        status = burst_fail(c, BURST_E_IO, "'%s' is truncated: its index gives %lld tokens, found %lld",
                            s->bin, (long long)s->count, (long long)(s->bytes / x->width));
    if (status == BURST_OK)
        status = read_documents(c, s, x, begin);
    free(begin);
    return status;
}

/* Either name stands for both. */
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
