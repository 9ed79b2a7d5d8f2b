/* source.h: a file of tokens in any supported format: its tokens, their weights in the loss, and where
 * documents begin. The file is read, not mapped: if it is truncated during the run, that is an error instead
 * of a signal. */
#ifndef BURST_SOURCE_H
#define BURST_SOURCE_H

#include "data/data_format.h"
#include "data/listed.h"
#include "burst_plan.h"

#include <limits.h>

/* Consecutive numbers of one width. */
typedef struct Column {
    int fd;
    off_t at;             /* offset of the first in the file */
    int width;            /* bytes; 0: no numbers */
    bool is_signed;       /* two's complement */
    unsigned char *block; /* of the file, from block_at on */
    off_t block_at, block_bytes;
} Column;

/* Values of a per-token table: int32 per token. */
enum { TABLE_NAME = 32 };
typedef struct NamedColumn {
    char name[TABLE_NAME];
    Column value;
} NamedColumn;

typedef struct Source {
    const char *path;                  /* as the user wrote it */
    char bin[PATH_MAX], idx[PATH_MAX]; /* Megatron-LM's two files; empty: it is no such pair */
    int fd;
    off_t bytes;
    int vocab;
    int64_t separator; /* -1: none */
    int64_t count;     /* tokens */
    Column token;
    Column weight;     /* bytes of 0 or 1, or fp32, per token; width 0: all tokens count equally */
    NamedColumn table[BURST_MAX_TABLES];
    int tables;
    int64_t *document; /* [documents + 1]: the first token of each, then count; NULL: separators end them */
    int64_t documents;
    int64_t found; /* the document that was looked up last */
} Source;

/* Opens and checks a file. source_close is required also after an error. s: zeroed memory. */
int source_open(BurstCtx *c, const BurstPlan *p, const BurstDataFile *f, Source *s);
void source_close(Source *s);
/* Reads a token of the vocabulary; at: from 0 to count - 1. */
int source_token(BurstCtx *c, Source *s, int64_t at, uint32_t *token);
/* Reads the weight of predicting this token: 0 or more. */
int source_weight(BurstCtx *c, Source *s, int64_t at, float *weight);
/* Index of the table with that name; -1: none. */
int source_find_table(const Source *s, const char *name);
/* Reads a token's value in a table. */
int source_table(BurstCtx *c, Source *s, int table, int64_t at, int32_t *value);
/* Whether this token, with id `token`, is the last of its document. */
bool source_ends(Source *s, int64_t at, uint32_t token);
/* The first token of each document, and count, like `document`; the caller frees it. Reads the file if
 * separators end documents. */
int source_documents(BurstCtx *c, Source *s, int64_t **first, int64_t *documents);

/* ---- formats ---- */
/* Versions of a token file: 1 has only tokens; 2 may have loss weights, documents and tables. */
#define TOKENS_MAGIC "BURSTTOK"
enum { TOKENS_HEADER_1 = 24, TOKENS_HEADER_2 = 40 }; /* bytes */
static inline uint64_t source_number(const unsigned char *at, int bytes) /* little-endian */
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}
/* Each fills s if the file is of its format; *is: whether it is. head: the file's first n bytes. */
int source_npy(BurstCtx *c, Source *s, const unsigned char *head, size_t n, bool *is);
int source_megatron(BurstCtx *c, Source *s, bool *is);
/* Fails unless the first tokens in s->document ascend from 0 to count; sets the last one's end. */
int source_check_documents(BurstCtx *c, Source *s);
/* Fails if the file at `path` has more than the `end` bytes that its header describes. */
int source_check_end(BurstCtx *c, const char *path, off_t end, off_t bytes);
#endif
