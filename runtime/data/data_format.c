/* data_format.c: recognizes formats by their first bytes. A row's advice says how to read the format, or how
 * to convert it to a token file. */
#include "data/data_format.h"

#include "base/escape.h"
#include "data/listed.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct Head { const char *at; size_t n; off_t bytes; } Head;

#define RAW \
    "if it has ids of 2 or 4 bytes, read it with `--raw 2` or `--raw 4`, or `data \"FILE\" raw 2;` in the " \
    "train block"
#define IDS "convert it with burst-tokens IN OUT"
#define TOKENISE "tokenize its text, write the ids in decimal, and convert them with burst-tokens IN OUT"
#define BY_PYTHON \
    "tokenize its text with `burst tokens FILE --tokenizer FOLDER -o OUT` of the Python package"
#define UNPACK "unpack it first"

static bool begins(const Head *h, const char *magic, size_t n)
{
    return h->n >= n && memcmp(h->at, magic, n) == 0;
}

static uint64_t little_endian(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | (unsigned char)at[i];
    return value;
}

/* ---- formats that need more than a few bytes ---- */

/* llm.c: 256 words of 4 bytes, the first of which is a date, then ids. */
static bool is_llmc(const Head *h)
{
    return h->n >= 1024 && (little_endian(h->at, 4) == 20240520 || little_endian(h->at, 4) == 20240801);
}

static bool is_safetensors(const Head *h)
{
    return h->n > 8 && h->at[8] == '{' && h->bytes >= 8 && little_endian(h->at, 8) <= (uint64_t)h->bytes - 8;
}

static bool is_text(const Head *h)
{
    int n;
    for (size_t i = 0; i < h->n; i += (size_t)n) {
        const unsigned char *at = (const unsigned char *)h->at + i;
        n = *at < 0x80 ? isprint(*at) || isspace(*at) : utf8_length(at, h->n - i);
        if (n == 0)
            /* the end of the head may cut a character */
            return h->n == HEAD_MOST && h->n - i < 4 && h->at[i];
    }
    return h->n > 0;
}

static bool is_json(const Head *h)
{
    const char *first = h->at + strspn(h->at, " \t\r\n");
    return (*first == '{' || *first == '[') && is_text(h);
}

static bool is_ids(const Head *h)
{
    return strspn(h->at, "-0123456789 \t\r\n") == h->n && strpbrk(h->at, "0123456789");
}

static bool is_pairs(const Head *h)
{
    return h->bytes % 2 == 0;
}

/* ---- the table: the first matching row counts ---- */
#define X(magic) magic, sizeof magic - 1, NULL
#define F(function) NULL, 0, function
static const struct Row {
    const char *name, *magic;
    size_t n;
    bool (*is)(const Head *h);
    const char *advice;
} rows[] = {
    {"a Parquet file", X("PAR1"), BY_PYTHON},
    {"an Arrow file", X("ARROW1"), TOKENISE},
    {"an Arrow stream", X("\xff\xff\xff\xff"), TOKENISE},
    {"the index of a Megatron-LM data set (.idx)", X(MEGATRON_MAGIC),
     "name it NAME.idx, and its tokens NAME.bin beside it"},
    {"a gzip file", X("\x1f\x8b"), UNPACK},
    {"a zstd file", X("\x28\xb5\x2f\xfd"), UNPACK},
    {"an xz file", X("\xfd\x37zXZ"), UNPACK},
    {"a bzip2 file", X("BZh"), UNPACK},
    {"a zip archive (.zip, .npz, .pt)", X("PK\x03\x04"), UNPACK},
    {"an HDF5 file", X("\x89HDF"), TOKENISE},
    {"model weights (GGUF)", X("GGUF"), "give a token file"},
    {"llm.c token ids", F(is_llmc),
     "skip its first 1024 bytes and convert the rest with burst-tokens --raw 2 (or 4, the bytes per id) - "
     "OUT"},
    {"model weights (safetensors)", F(is_safetensors),
     "give a token file; the weights directory belongs to --weights"},
    {"token ids as text", F(is_ids), IDS},
    {"JSON", F(is_json), BY_PYTHON},
    {"plain text", F(is_text), BY_PYTHON},
    {"binary data, such as ids of 2 or 4 bytes", F(is_pairs), RAW},
    {"binary data", F(NULL), TOKENISE},
};
#undef X
#undef F

DataFormat data_format(const char *head, size_t n, off_t bytes)
{
    const Head h = {head, n, bytes};
    const struct Row *r = rows;
    while (r->magic ? !begins(&h, r->magic, r->n) : r->is && !r->is(&h))
        r++;
    return (DataFormat){r->name, r->advice};
}
