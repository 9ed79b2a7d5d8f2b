/* data.c: token files, windows of the sequence's length in a seeded order, and this rank's tokens of one
 * window. Sequence (step, index) is a function of the seed and the file. The file is read and not mapped:
 * one that is cut short during the run is an error then, and no signal. */
#include "data/balance.h"
#include "data/data_format.h"
#include "core/internal.h"
#include "burst_tables.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 24, VERSION = 1, ROUNDS = 4, BLOCK = 1 << 16, BYTE_TOKENS = 256 };

typedef struct Data {
    int fd;          /* -1: random tokens */
    off_t file_bytes, tokens_at;
    unsigned char *block; /* [BLOCK] of the file, from block_at on */
    off_t block_at, block_bytes;
    int width;       /* bytes a token */
    int64_t count;   /* tokens of the file */
    int64_t windows; /* an epoch */
    int64_t n;       /* tokens of this rank */
    int64_t first;   /* of all chunks' tokens, chunk by chunk, this rank's first */
    int64_t *position;
    Balance *balance;   /* NULL: chunks have the same tokens in every batch */
    int64_t *positions; /* [sequence] of all chunks' tokens, where there is one */
    int32_t *token, *label;
    float *weight;
    int32_t *table[BURST_MAX_TABLES]; /* [sequence] each, that masks read */
} Data;

static uint64_t little_endian(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

/* ---- opening ---- */
static int open_tokens(BurstCtx *c, Data *d, const char *path)
{
    d->fd = open_regular(c, path, &d->file_bytes);
    if (d->fd < 0)
        return BURST_E_IO;
    d->block = malloc(BLOCK);
    if (!d->block)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the data");
    return d->file_bytes ? BURST_OK : burst_fail(c, BURST_E_IO, "'%s' is empty", path);
}

static inline bool in_block(const Data *d, off_t at, int bytes)
{
    return at >= d->block_at && at + bytes <= d->block_at + d->block_bytes;
}

/* Whether the file has these bytes, which lie in one block. */
static bool read_block(Data *d, off_t at, int bytes)
{
    ssize_t n;
    d->block_at = at / BLOCK * BLOCK;
    d->block_bytes = 0;
    while ((n = pread(d->fd, d->block + d->block_bytes, (size_t)(BLOCK - d->block_bytes),
                      d->block_at + d->block_bytes)) != 0) {
        if (n < 0 && errno != EINTR)
            return false;
        d->block_bytes += n > 0 ? n : 0;
    }
    errno = 0;
    return in_block(d, at, bytes);
}

/* Any file is tokens of one byte where the vocabulary has no others, or where the plan or the user says
 * so. */
static int take_bytes(BurstCtx *c, const BurstPlan *p, Data *d, const char *path, int bytes)
{
    char head[HEAD_MOST + 1] = "";
    d->width = 1;
    d->count = d->file_bytes;
    if (c->train->bytes || p->vocab <= BYTE_TOKENS)
        return BURST_OK;
    memcpy(head, d->block, (size_t)bytes);
    const DataFormat f = data_format(path, head, (size_t)bytes, d->file_bytes);
    return burst_fail(c, BURST_E_IO,
                      "'%s' is not a token file; it looks like %s: %s. (To read any file as one token per "
                      "byte, use `--bytes`, or `data \"FILE\" bytes;` in the train block.)",
                      path, f.name, f.advice);
}

static int read_header(BurstCtx *c, const BurstPlan *p, Data *d, const char *path)
{
    const unsigned char *header = d->block;
    const int bytes = d->file_bytes < HEAD_MOST ? (int)d->file_bytes : HEAD_MOST;
    if (!read_block(d, 0, bytes))
        return burst_fail(c, BURST_E_IO, "cannot read '%s': %s", path,
                          errno ? strerror(errno) : "the file is truncated");
    if (bytes < 8 || memcmp(header, "BURSTTOK", 8) != 0)
        return take_bytes(c, p, d, path, bytes);
    if (c->train->bytes)
        return burst_fail(c, BURST_E_IO,
                          "'%s' is a token file, but is to be read as bytes; remove `--bytes`, or `bytes` "
                          "after its name in the train block",
                          path);
    uint64_t version = bytes >= HEADER ? little_endian(header + 8, 4) : 0;
    uint64_t width = bytes >= HEADER ? little_endian(header + 12, 4) : 0;
    if (version != VERSION || (width != 2 && width != 4))
        return burst_fail(c, BURST_E_IO,
                          "%s: unsupported token file of version %llu with %llu bytes per token; expected "
                          "version %d with 2 or 4 bytes",
                          path, (unsigned long long)version, (unsigned long long)width, VERSION);
    uint64_t count = little_endian(header + 16, 8), room = (uint64_t)(d->file_bytes - HEADER) / width;
    if (count > room)
        return burst_fail(c, BURST_E_IO, "'%s' is truncated: its header gives %llu tokens, found %llu", path,
                          (unsigned long long)count, (unsigned long long)room);
    d->tokens_at = HEADER;
    d->width = (int)width;
    d->count = (int64_t)count;
    return BURST_OK;
}

static int64_t ahead_of(const BurstCtx *c)
{
    return c->train->predict > 0 ? c->train->predict : 1;
}

static int open_file(BurstCtx *c, const BurstPlan *p, Data *d, const char *path)
{
    BURST_TRY(open_tokens(c, d, path));
    BURST_TRY(read_header(c, p, d, path));
    d->windows = d->count < ahead_of(c) ? 0 : (d->count - ahead_of(c)) / p->sequence;
    if (d->windows < 1)
        return burst_fail(
            c, BURST_E_IO,
            "'%s' has %lld tokens, expected at least %lld + %lld (sequence + tokens to predict)", path,
            (long long)d->count, (long long)p->sequence, (long long)ahead_of(c));
    return BURST_OK;
}

#define NAMED(id, name, value) " " name
static int make_buffers(BurstCtx *c, const BurstPlan *p, Data *d)
{
    int chunk = p->chunk_of ? p->chunk_of(c->rank) : c->rank % p->group;
    const BurstOwn own = burst_own_tokens(p, c->rank, p->tokens_of(chunk));
    size_t n = (size_t)(d->n = own.tokens) + 1; /* of which there may be none */
    d->position = calloc(n, sizeof *d->position);
    d->token = calloc(n, sizeof *d->token);
    d->label = calloc(n, sizeof *d->label);
    d->weight = calloc(n, sizeof *d->weight);
    bool made = d->position && d->token && d->label && d->weight;
    for (int t = 0; t < p->table_count; t++)
        made &= (d->table[t] = calloc((size_t)p->sequence, sizeof *d->table[t])) != NULL;
    if (!made)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a sequence of %lld tokens",
                          (long long)p->sequence);
    if (p->balanced && (!(d->balance = balance_open(p)) ||
                        !(d->positions = calloc((size_t)p->sequence, sizeof *d->positions))))
        return burst_fail(c, BURST_E_MEMORY, "out of memory for balancing a sequence of %lld tokens",
                          (long long)p->sequence);
    d->first = chunk * p->max_tokens + own.first; /* of balanced chunks, which are equal */
    for (int64_t i = 0; i < d->n; i++) {
        d->position[i] = p->position(chunk, own.first + i);
        if (d->position[i] < 0 || d->position[i] >= p->sequence)
            return burst_fail(c, BURST_E_PLAN,
                              "token %lld of shard %d has position %lld in a sequence of %lld", (long long)i,
                              chunk, (long long)d->position[i], (long long)p->sequence);
    }
    for (int t = 0; t < p->table_count; t++)
        if (burst_table_kind(p->tables[t]) == BURST_TABLE_GIVEN)
            return burst_fail(c, BURST_E_PLAN,
                              "a mask reads the table '%s', which the data does not have; made from tokens "
                              "are only" BURST_DOCUMENT_TABLES(NAMED),
                              p->tables[t]);
    return BURST_OK;
}

static int data_open(BurstCtx *c, const BurstPlan *p)
{
    Data *d = c->data = calloc(1, sizeof *d);
    if (!d)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the data");
    d->fd = -1;
    if (c->train->data)
        BURST_TRY(open_file(c, p, d, c->train->data));
    return make_buffers(c, p, d);
}

int data_ready(BurstCtx *c, const BurstPlan *p)
{
    return c->data ? BURST_OK : data_open(c, p);
}

void data_close(BurstCtx *c)
{
    Data *d = c->data;
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    free(d->block);
    free(d->position);
    free(d->token);
    free(d->label);
    free(d->weight);
    for (int t = 0; t < BURST_MAX_TABLES; t++)
        free(d->table[t]);
    free(d->positions);
    balance_close(d->balance);
    free(d);
    c->data = NULL;
}

/* ---- order ---- */
/* A permutation of [0, count) that needs no memory: a Feistel network on the next even number of bits,
 * applied until the result is in range. */
static uint64_t permuted(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t i)
{
    int half = 1;
    while (half < 31 && (uint64_t)1 << (2 * half) < count)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (hash3(seed ^ round << 56, epoch, right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= count);
    return i;
}

/* The number of the file's window that is the n-th to be read. */
static int64_t window_of(const Data *d, int64_t seed, int64_t n)
{
    return (int64_t)permuted((uint64_t)seed, (uint64_t)(n / d->windows), (uint64_t)d->windows,
                             (uint64_t)(n % d->windows));
}

/* ---- one window ---- */
typedef struct Window {
    Data *d;
    int64_t begin; /* first token in the file */
    uint64_t seed, number; /* of random tokens */
    int vocab;
} Window;

static int no_token(BurstCtx *c, const Window *w, int64_t position)
{
    if (errno)
        return burst_fail(c, BURST_E_IO, "cannot read '%s': %s", c->train->data, strerror(errno));
    return burst_fail(c, BURST_E_IO, "'%s' was truncated during the run: cannot read token %lld of %lld",
                      c->train->data, (long long)(w->begin + position), (long long)w->d->count);
}

static inline int token_at(BurstCtx *c, const Window *w, int64_t position, uint32_t *token)
{
    Data *d = w->d;
    if (d->fd < 0) {
        *token = (uint32_t)(hash3(~w->seed, w->number, (uint64_t)position) % (uint64_t)w->vocab);
        return BURST_OK;
    }
    const off_t at = d->tokens_at + (w->begin + position) * d->width;
    if (!in_block(d, at, d->width) && !read_block(d, at, d->width))
        return no_token(c, w, position);
    *token = (uint32_t)little_endian(d->block + (at - d->block_at), d->width);
    return BURST_OK;
}

static int bad_token(BurstCtx *c, const Window *w, int64_t position, uint32_t token)
{
    return burst_fail(c, BURST_E_IO, "%s: token %lld is %u, but the vocabulary has %d tokens", c->train->data,
                      (long long)(w->begin + position), token, w->vocab);
}

static int known_token_at(BurstCtx *c, const Window *w, int64_t position, uint32_t *token)
{
    BURST_TRY(token_at(c, w, position, token));
    return *token < (uint32_t)w->vocab ? BURST_OK : bad_token(c, w, position, *token);
}

/* A label may lie on another rank or behind the sequence's end; none where its document ends before it. */
static int read_tokens(BurstCtx *c, const Window *w)
{
    Data *d = c->data;
    const int64_t separator = c->train->separator;
    for (int64_t i = 0; i < d->n; i++) {
        uint32_t token = 0;
        bool ends = false;
        BURST_TRY(known_token_at(c, w, d->position[i], &token));
        d->token[i] = (int32_t)token;
        for (int64_t ahead = 1; ahead <= ahead_of(c); ahead++) {
            ends |= separator >= 0 && token == separator; /* the next token opens another document */
            BURST_TRY(known_token_at(c, w, d->position[i] + ahead, &token));
        }
        d->label[i] = ends ? -1 : (int32_t)token;
        d->weight[i] = ends ? 0 : 1;
    }
    return BURST_OK;
}

/* The tables of documents. The separator belongs to the document that it ends. */
static int find_documents(BurstCtx *c, const BurstPlan *p, const Window *w)
{
    Data *d = c->data;
    const int64_t separator = c->train->separator;
    BurstDocument document = {0};
    for (int64_t i = 0; i < p->sequence && p->table_count; i++) {
        uint32_t token = 0;
        if (separator >= 0)
            BURST_TRY(token_at(c, w, i, &token));
        if (i + 1 < p->sequence && (separator < 0 || token != separator))
            continue;
        document.end = i + 1;
        for (int t = 0; t < p->table_count; t++)
            burst_document_fill(burst_table_kind(p->tables[t]), &document, d->table[t]);
        document = (BurstDocument){.number = document.number + 1, .begin = i + 1};
    }
    return BURST_OK;
}

/* Which tokens of this window each chunk has, and so this rank. */
static int balance(BurstCtx *c, const BurstPlan *p, BurstTables *t)
{
    Data *d = c->data;
    balance_count(d->balance, p, t);
    balance_assign(d->balance);
    if (!balance_positions(d->balance, d->positions))
        return burst_fail(c, BURST_E_PLAN, "balancing gave the chunks unequal numbers of tokens");
    memcpy(d->position, d->positions + d->first, sizeof *d->position * (size_t)d->n);
    t->position = d->positions;
    return BURST_OK;
}

int burst_batch_read(BurstCtx *c, const BurstPlan *p, int64_t step, int64_t index, BurstBatch *out)
{
    BURST_TRY(data_ready(c, p));
    Data *d = c->data;
    const BurstTrain *t = c->train;
    int64_t number = step * t->batch + index;
    Window w = {.d = d, .seed = (uint64_t)t->seed, .number = (uint64_t)number, .vocab = p->vocab,
                .begin = d->fd >= 0 ? window_of(d, t->seed, number) * p->sequence : 0};
    *out = (BurstBatch){.token = d->token, .label = d->label, .weight = d->weight};
    BURST_TRY(find_documents(c, p, &w));
    memcpy(out->tables.table, d->table, sizeof d->table);
    if (d->balance)
        BURST_TRY(balance(c, p, &out->tables));
    return read_tokens(c, &w);
}
