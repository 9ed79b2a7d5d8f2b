/* source.h: a file of tokens, in any of the formats that are read: its tokens, how much each counts in the
 * loss, and where documents begin. The file is read and not mapped: one that is cut short during the run is
 * an error then, and no signal. */
#ifndef BURST_SOURCE_H
#define BURST_SOURCE_H

#include "core/internal.h"
#include "data/data_format.h"
#include "data/listed.h"

#include <limits.h>

/* Numbers of one width, one after the other. */
typedef struct Column {
    int fd;
    off_t at;             /* the first one's place in the file */
    int width;            /* bytes; 0: there are none */
    bool is_signed;       /* two's complement */
    unsigned char *block; /* of the file, from block_at on */
    off_t block_at, block_bytes;
} Column;

/* Values of a per-token table: int32, by token. */
enum { TABLE_NAME = 32 };
typedef struct NamedColumn {
    char name[TABLE_NAME];
    Column value;
} NamedColumn;

typedef struct Source {
    const char *path;                  /* as the user has it */
    char bin[PATH_MAX], idx[PATH_MAX]; /* Megatron-LM's two files; empty: it is no such pair */
    int fd;
    off_t bytes;
    int vocab;
    int64_t separator; /* -1: none */
    int64_t count;     /* tokens */
    Column token;
    Column weight;     /* bytes of 0 or 1, or fp32, by token; width 0: all tokens count alike */
    NamedColumn table[BURST_MAX_TABLES];
    int tables;
    int64_t *document; /* [documents + 1]: the first token of each, and count; NULL: separators end them */
    int64_t documents;
    int64_t found; /* the document that was looked up last */
} Source;

/* Opens and checks a file. After an error it is closed as well by source_close. s is zeroed memory. */
int source_open(BurstCtx *c, const BurstPlan *p, const BurstDataFile *f, Source *s);
void source_close(Source *s);
/* A token of the vocabulary; at: from 0 to count - 1. */
int source_token(BurstCtx *c, Source *s, int64_t at, uint32_t *token);
/* How much predicting this token counts: 0 or more. */
int source_weight(BurstCtx *c, Source *s, int64_t at, float *weight);
/* The table of that name; -1: the file has none. */
int source_find_table(const Source *s, const char *name);
/* The value of a token in it. */
int source_table(BurstCtx *c, Source *s, int table, int64_t at, int32_t *value);
/* Whether this token, which is `token`, is the last of its document. */
bool source_ends(Source *s, int64_t at, uint32_t token);
/* The first token of each document and count, as `document`, for the caller to free. Reads the file where
 * separators end them. */
int source_documents(BurstCtx *c, Source *s, int64_t **first, int64_t *documents);

/* ---- formats ---- */
/* Versions of a token file: 1 has tokens alone; 2 may have loss weights, documents and tables. */
#define TOKENS_MAGIC "BURSTTOK"
enum { TOKENS_HEADER_1 = 24, TOKENS_HEADER_2 = 40 }; /* bytes */
static inline uint64_t source_number(const unsigned char *at, int bytes) /* little-endian */
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}
/* Each fills in what it finds where the file is of its format; *is: whether it is. head: the file's first n
 * bytes. */
int source_npy(BurstCtx *c, Source *s, const unsigned char *head, size_t n, bool *is);
int source_megatron(BurstCtx *c, Source *s, bool *is);
/* Fails where the first tokens in s->document do not ascend from 0 to count; sets the last one's end. */
int source_check_documents(BurstCtx *c, Source *s);
/* Fails where the file at `path` has more than the `end` bytes that its header describes. */
int source_check_end(BurstCtx *c, const char *path, off_t end, off_t bytes);
#endif
