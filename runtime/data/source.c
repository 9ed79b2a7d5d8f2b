/* source.c: see source.h. Token files, files without a header, and code for all formats. */
#include "data/source.h"

#include "core/context.h"
#include "files/files.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 16, BYTE_TOKENS = 256 };

/* ---- numbers of a file ---- */

static inline bool in_block(const Column *n, off_t at)
{
    return at >= n->block_at && at + n->width <= n->block_at + n->block_bytes;
}

/* Blocks begin at numbers, so that none straddles two. Returns false with errno 0 if the file ends
 * before. */
static bool read_block(Column *n, off_t at)
{
    ssize_t got;
    const off_t block = BLOCK / n->width * n->width;
    n->block_at = n->at + (at - n->at) / block * block;
    n->block_bytes = 0;
    while ((got = pread(n->fd, n->block + n->block_bytes, (size_t)(block - n->block_bytes),
                        n->block_at + n->block_bytes)) != 0) {
        if (got < 0 && errno != EINTR)
            return false;
        n->block_bytes += got > 0 ? got : 0;
    }
    errno = 0;
    return in_block(n, at);
}

static inline const unsigned char *number_at(Column *n, int64_t i)
{
    const off_t at = n->at + i * n->width;
    return in_block(n, at) || read_block(n, at) ? n->block + (at - n->block_at) : NULL;
}

static int cannot_read(BurstCtx *c, const Source *s, int64_t at)
{
    if (errno)
        return burst_fail(c, BURST_E_IO, "cannot read '%s': %s", s->path, strerror(errno));
    return burst_fail(c, BURST_E_IO, "'%s' was truncated during the run: cannot read token %lld of %lld",
                      s->path, (long long)at, (long long)s->count);
}

/* The sign bit of its numbers; 0: unsigned. */
static inline uint64_t sign_of(const Column *n)
{
    return n->is_signed ? UINT64_C(1) << (8 * n->width - 1) : 0;
}

static int no_such_token(BurstCtx *c, const Source *s, int64_t at, uint64_t value, uint64_t sign)
{
    const uint64_t magnitude = value & sign ? 2 * sign - value : value;
    return burst_fail(c, BURST_E_IO, "%s: token %lld is %s%llu, but the vocabulary has %d tokens", s->path,
                      (long long)at, value & sign ? "-" : "", (unsigned long long)magnitude, s->vocab);
}

int source_token(BurstCtx *c, Source *s, int64_t at, uint32_t *token)
{
    const unsigned char *number = number_at(&s->token, at);
    if (!number)
        return cannot_read(c, s, at);
    const uint64_t value = source_number(number, s->token.width), sign = sign_of(&s->token);
    if (value & sign || value >= (uint64_t)s->vocab)
        return no_such_token(c, s, at, value, sign);
    *token = (uint32_t)value;
    return BURST_OK;
}

static float weight_of(const unsigned char *number, int width)
{
    float value;
    const uint32_t bits = (uint32_t)source_number(number, width);
    if (width == 1)
        return (float)bits;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int source_weight(BurstCtx *c, Source *s, int64_t at, float *weight)
{
    *weight = 1;
    if (!s->weight.width)
        return BURST_OK;
    const unsigned char *number = number_at(&s->weight, at);
    if (!number)
        return cannot_read(c, s, at);
    *weight = weight_of(number, s->weight.width);
    if (isfinite(*weight) && *weight >= 0 && (s->weight.width > 1 || *weight <= 1))
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "%s: the loss weight of token %lld is %g, expected %s", s->path,
                      (long long)at, *weight, s->weight.width > 1 ? "a number of at least 0" : "0 or 1");
}

/* ---- tables ---- */

int source_find_table(const Source *s, const char *name)
{
    for (int t = 0; t < s->tables; t++)
        if (strcmp(s->table[t].name, name) == 0)
            return t;
    return -1;
}

int source_table(BurstCtx *c, Source *s, int table, int64_t at, int32_t *value)
{
    const unsigned char *number = number_at(&s->table[table].value, at);
    if (!number)
        return cannot_read(c, s, at);
    *value = (int32_t)(uint32_t)source_number(number, 4);
    return BURST_OK;
}

/* ---- documents ---- */

/* The document of a token: the last one looked up, the next one, or by bisection. */
static int64_t document_of(Source *s, int64_t at)
{
    int64_t lo = 0, hi = s->documents;
    for (int64_t i = s->found; i < s->documents && i < s->found + 2; i++)
        if (s->document[i] <= at && at < s->document[i + 1])
            return s->found = i;
    while (hi - lo > 1) {
        const int64_t middle = lo + (hi - lo) / 2;
        if (s->document[middle] <= at)
            lo = middle;
        else
            hi = middle;
    }
    return s->found = lo;
}

bool source_ends(Source *s, int64_t at, uint32_t token)
{
    if (s->document)
        return at + 1 == s->document[document_of(s, at) + 1];
    return s->separator >= 0 && token == s->separator;
}

static int out_of_memory(BurstCtx *c, const Source *s, int64_t documents)
{
    return burst_fail(c, BURST_E_MEMORY, "out of memory for the %lld documents of '%s'", (long long)documents,
                      s->path);
}

int source_documents(BurstCtx *c, Source *s, int64_t **first, int64_t *documents)
{
    int64_t n = 0, room = s->document ? s->documents + 1 : 1024;
    *first = malloc((size_t)room * sizeof **first);
    for (int64_t at = 0; !s->document && *first && at < s->count; at++) {
        uint32_t token;
        if (at == 0)
            (*first)[n++] = 0;
        BURST_TRY(source_token(c, s, at, &token));
        if (!source_ends(s, at, token) || at + 1 == s->count)
            continue;
        if (n + 1 == room) {
            int64_t *more = realloc(*first, (size_t)(room *= 2) * sizeof **first);
            if (!more)
                return out_of_memory(c, s, n);
            *first = more;
        }
        (*first)[n++] = at + 1;
    }
    if (!*first)
        return out_of_memory(c, s, s->documents);
    if (s->document)
        memcpy(*first, s->document, (size_t)(n = s->documents) * sizeof **first);
    (*first)[n] = s->count;
    *documents = n;
    return BURST_OK;
}

int source_check_documents(BurstCtx *c, Source *s)
{
    s->document[s->documents] = s->count;
    for (int64_t i = 0; i < s->documents; i++) {
        const int64_t least = i ? s->document[i - 1] + 1 : 0;
        if ((i == 0 && s->document[0] != 0) || s->document[i] < least || s->document[i] >= s->count)
            return burst_fail(c, BURST_E_IO,
                              "%s: document %lld begins at token %lld of %lld; documents must begin at token "
                              "0 and follow each other",
                              s->path, (long long)i, (long long)s->document[i], (long long)s->count);
    }
    return BURST_OK;
}

int source_check_end(BurstCtx *c, const char *path, off_t end, off_t bytes)
{
    if (bytes <= end)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "'%s' has %lld bytes, but its header or index describes only %lld", path,
                      (long long)bytes, (long long)end);
}

/* ---- token files ---- */

static int truncated(BurstCtx *c, const Source *s, const char *what, uint64_t promised, uint64_t found)
{
    return burst_fail(c, BURST_E_IO, "'%s' is truncated: its header gives %llu %s, found %llu", s->path,
                      (unsigned long long)promised, what, (unsigned long long)found);
}

/* The offset after `count` numbers at `at`, rounded up to a multiple of 8 bytes. */
static off_t after(off_t at, uint64_t count, int width) { return (at + (off_t)count * width + 7) / 8 * 8; }

static int read_documents(BurstCtx *c, Source *s, off_t at, uint64_t documents)
{
    const uint64_t room = at < s->bytes ? (uint64_t)(s->bytes - at) / 8 : 0;
    if (documents > room)
        return truncated(c, s, "documents", documents, room);
    s->documents = (int64_t)documents;
    s->document = malloc(((size_t)documents + 1) * sizeof *s->document);
    if (!s->document)
        return out_of_memory(c, s, s->documents);
    if (!read_at(s->fd, s->document, (size_t)documents * 8, at))
        return burst_fail(c, BURST_E_IO, "cannot read '%s': %s", s->path,
                          errno ? strerror(errno) : "the file is truncated");
    for (uint64_t i = 0; i < documents; i++)
        s->document[i] = (int64_t)source_number((const unsigned char *)(s->document + i), 8);
    return source_check_documents(c, s);
}

/* A column of s->count numbers at *at, which is advanced past it. */
static int read_column(BurstCtx *c, Source *s, const char *what, int width, off_t *at, Column *column)
{
    const uint64_t room = *at < s->bytes ? (uint64_t)(s->bytes - *at) / (uint64_t)width : 0;
    if ((uint64_t)s->count > room)
        return truncated(c, s, what, (uint64_t)s->count, room);
    *column = (Column){.fd = s->fd, .at = *at, .width = width};
    *at = after(*at, (uint64_t)s->count, width);
    return BURST_OK;
}

/* Reads its name, padded with zero bytes to TABLE_NAME, and its values. */
static int read_table(BurstCtx *c, Source *s, off_t *at)
{
    NamedColumn *table = &s->table[s->tables];
    if (!read_at(s->fd, table->name, TABLE_NAME, *at))
        return burst_fail(c, BURST_E_IO, "cannot read '%s': %s", s->path,
                          errno ? strerror(errno) : "the file is truncated");
    const size_t letters = strspn(table->name,
                                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (table->name[TABLE_NAME - 1] || !letters || table->name[letters])
        return burst_fail(
            c, BURST_E_IO,
            "%s: the name of table %d of %d characters at most is not one of letters, digits and _", s->path,
            s->tables, TABLE_NAME - 1);
    if (source_find_table(s, table->name) >= 0)
        return burst_fail(c, BURST_E_IO, "%s: two tables are named '%s'", s->path, table->name);
    *at += TABLE_NAME;
    s->tables++;
    return read_column(c, s, "values of a table", 4, at, &table->value);
}

/* Reads the columns of version 2: weights after the tokens, then documents, then tables. */
static int read_columns(BurstCtx *c, Source *s, const unsigned char *head)
{
    const uint64_t width = source_number(head + 24, 4), tables = source_number(head + 28, 4),
                   documents = source_number(head + 32, 8);
    off_t at = after(s->token.at, (uint64_t)s->count, s->token.width);
    if (width != 0 && width != 1 && width != 4)
        return burst_fail(c, BURST_E_IO, "%s: unsupported token file with %llu bytes per loss weight",
                          s->path, (unsigned long long)width);
    if (tables > BURST_MAX_TABLES)
        return burst_fail(c, BURST_E_IO, "%s: a token file of %llu tables, expected at most %d", s->path,
                          (unsigned long long)tables, BURST_MAX_TABLES);
    if (width)
        BURST_TRY(read_column(c, s, "loss weights", (int)width, &at, &s->weight));
    if (documents)
        BURST_TRY(read_documents(c, s, at, documents));
    for (at += (off_t)documents * 8; (uint64_t)s->tables < tables;)
        BURST_TRY(read_table(c, s, &at));
    return source_check_end(c, s->path, at, s->bytes);
}

static int read_own(BurstCtx *c, Source *s, const unsigned char *head, size_t n)
{
    const uint64_t version = n >= TOKENS_HEADER_1 ? source_number(head + 8, 4) : 0;
    const uint64_t width = n >= TOKENS_HEADER_1 ? source_number(head + 12, 4) : 0;
    const off_t header = version == 2 ? TOKENS_HEADER_2 : TOKENS_HEADER_1;
    if (version < 1 || version > 2 || (width != 2 && width != 4) || (off_t)n < header)
        return burst_fail(c, BURST_E_IO,
                          "%s: unsupported token file of version %llu with %llu bytes per token; expected "
                          "version 1 or 2 with 2 or 4 bytes",
                          s->path, (unsigned long long)version, (unsigned long long)width);
    const uint64_t count = source_number(head + 16, 8), room = (uint64_t)(s->bytes - header) / width;
    if (count > room)
        return truncated(c, s, "tokens", count, room);
    s->token.at = header;
    s->token.width = (int)width;
    s->count = (int64_t)count;
    return version == 2 ? read_columns(c, s, head)
                        : source_check_end(c, s->path, header + (off_t)(count * width), s->bytes);
}

/* ---- files without a header ---- */

/* A format that describes itself must not be read as something else. */
static int says_itself(BurstCtx *c, const Source *s, int raw)
{
    const char *option = raw == 1 ? "`--bytes`, or `bytes`" : "`--raw`, or `raw`";
    return burst_fail(c, BURST_E_IO,
                      "'%s' is a token file, but is to be read as %s; remove %s after its name in the "
                      "train block",
                      s->path, raw == 1 ? "bytes" : "numbers without a header", option);
}

static int read_raw(BurstCtx *c, Source *s, int width)
{
    s->token.width = width;
    s->count = s->bytes / width;
    if (s->bytes % width)
        return burst_fail(c, BURST_E_IO,
                          "'%s' has %lld bytes, which is not a multiple of the %d bytes of a token", s->path,
                          (long long)s->bytes, width);
    return BURST_OK;
}

/* Any file can be tokens of one byte if the vocabulary has only such. */
static int read_foreign(BurstCtx *c, Source *s, const unsigned char *head, size_t n)
{
    if (s->vocab <= BYTE_TOKENS)
        return read_raw(c, s, 1);
    const DataFormat f = data_format((const char *)head, n, s->bytes);
    return burst_fail(c, BURST_E_IO,
                      "'%s' is not a token file; it looks like %s: %s. (To read any file as one token per "
                      "byte, use `--bytes`, or `data \"FILE\" bytes;` in the train block.)",
                      s->path, f.name, f.advice);
}

/* ---- opening ---- */

static int read_format(BurstCtx *c, Source *s, int raw)
{
    unsigned char head[HEAD_MOST + 1] = {0};
    const size_t n = s->bytes < HEAD_MOST ? (size_t)s->bytes : HEAD_MOST;
    bool is = false;
    if (!read_at(s->fd, head, n, 0))
        return burst_fail(c, BURST_E_IO, "cannot read '%s': %s", s->path,
                          errno ? strerror(errno) : "the file is truncated");
    if (n >= 8 && memcmp(head, TOKENS_MAGIC, 8) == 0)
        return raw ? says_itself(c, s, raw) : read_own(c, s, head, n);
    if (raw)
        return read_raw(c, s, raw);
    BURST_TRY(source_npy(c, s, head, n, &is));
    if (!is)
        BURST_TRY(source_megatron(c, s, &is));
    return is ? BURST_OK : read_foreign(c, s, head, n);
}

static int take_block(BurstCtx *c, Column *n)
{
    n->block = n->width ? malloc(BLOCK) : NULL;
    return n->width && !n->block ? burst_fail(c, BURST_E_MEMORY, "out of memory for the data") : BURST_OK;
}

int source_open(BurstCtx *c, const BurstPlan *p, const BurstDataFile *f, Source *s)
{
    *s = (Source){.path = f->path, .vocab = p->vocab, .separator = c->train->separator};
    s->fd = open_regular(c, f->path, &s->bytes);
    if (s->fd < 0)
        return BURST_E_IO;
    if (!s->bytes)
        return burst_fail(c, BURST_E_IO, "'%s' is empty", f->path);
    s->token.fd = s->fd;
    BURST_TRY(read_format(c, s, f->raw));
    for (int t = 0; t < s->tables; t++)
        BURST_TRY(take_block(c, &s->table[t].value));
    BURST_TRY(take_block(c, &s->token));
    return take_block(c, &s->weight);
}

void source_close(Source *s)
{
    if (s->path && s->fd >= 0)
        close(s->fd);
    free(s->token.block);
    free(s->weight.block);
    for (int t = 0; t < s->tables; t++)
        free(s->table[t].value.block);
    free(s->document);
    *s = (Source){0};
}
