/* safetensors/file.c: opens safetensors files, checks every number of their headers, and reads elements as
 * fp32. */
#include "safetensors/safetensors.h"

#include "files/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, PIECE = 1 << 15 };

/* ---- numbers ---- */

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float from_half(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 0) /* zero and subnormal numbers: multiples of 2^-24 */
        return sign ? -(float)fraction * 0x1p-24f : (float)fraction * 0x1p-24f;
    return from_bits(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}

static float from_bf16(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) /* NaN is kept */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- dtypes ---- */
/* All dtypes of the format, because their sizes are checked; only those with a reader can be read. NULL,
 * size 4: fp32, copied. */
static const struct Dtype {
    const char *name;
    int bytes;
    bool read;
    float (*from16)(uint16_t bits);
} dtypes[] = {
    {"F32", 4, true, NULL},      {"BF16", 2, true, from_bf16}, {"F16", 2, true, from_half},
    {"F64", 8, false, NULL},     {"I64", 8, false, NULL},      {"I32", 4, false, NULL},
    {"I16", 2, false, NULL},     {"I8", 1, false, NULL},       {"U64", 8, false, NULL},
    {"U32", 4, false, NULL},     {"U16", 2, false, NULL},      {"U8", 1, false, NULL},
    {"BOOL", 1, false, NULL},    {"F8_E4M3", 1, false, NULL},  {"F8_E5M2", 1, false, NULL},
    {"F8_E8M0", 1, false, NULL}, {"C64", 8, false, NULL},
};

static const struct Dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

/* ---- one tensor of the header ---- */

void safetensors_shape(const int64_t *shape, int dims, char text[ST_SHAPE_TEXT])
{
    int n = snprintf(text, ST_SHAPE_TEXT, "[");
    for (int i = 0; i < dims && n < ST_SHAPE_TEXT - 1; i++)
        n += snprintf(text + n, (size_t)(ST_SHAPE_TEXT - n), "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (n < ST_SHAPE_TEXT - 1)
        snprintf(text + n, (size_t)(ST_SHAPE_TEXT - n), "]");
}

/* Names are printed in messages. */
static bool printable(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == 0x7f)
            return false;
    return true;
}

static int take_shape(BurstCtx *c, const StFile *f, StTensor *t, const json_t *shape)
{
    if (!json_is_array(shape) || json_array_size(shape) > ST_DIMS)
        return burst_fail(c, BURST_E_IO, "%s: %s needs a shape of at most %d dimensions", f->path, t->name,
                          ST_DIMS);
    t->dims = (int)json_array_size(shape);
    t->elements = 1;
    for (int i = 0; i < t->dims; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        t->shape[i] = json_integer_value(size);
        if (!json_is_integer(size) || t->shape[i] < 0 ||
            __builtin_mul_overflow(t->elements, t->shape[i], &t->elements))
            return burst_fail(c, BURST_E_IO,
                              "%s: the shape of %s must hold whole numbers with a product below 2^63",
                              f->path, t->name);
    }
    return BURST_OK;
}

static int take_offsets(BurstCtx *c, const StFile *f, StTensor *t, const json_t *offsets, int64_t data_bytes)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    t->begin = json_integer_value(begin);
    t->end = json_integer_value(end);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) || t->begin < 0 ||
        t->end < t->begin)
        return burst_fail(c, BURST_E_IO, "%s: the data_offsets of %s must be [begin, end]", f->path, t->name);
    if (t->end > data_bytes)
        return burst_fail(c, BURST_E_IO, "'%s' is truncated: %s ends at byte %lld of %lld", f->path, t->name,
                          (long long)t->end, (long long)data_bytes);
    return BURST_OK;
}

static int check_size(BurstCtx *c, const StFile *f, const StTensor *t)
{
    const struct Dtype *d = find_dtype(t->dtype);
    char shape[ST_SHAPE_TEXT];
    int64_t bytes;
    if (!d)
        return BURST_OK; /* from a newer format: an error only when it is read */
    if (!__builtin_mul_overflow(t->elements, (int64_t)d->bytes, &bytes) && bytes == t->end - t->begin)
        return BURST_OK;
    safetensors_shape(t->shape, t->dims, shape);
    return burst_fail(c, BURST_E_IO, "%s: %s is %s %s, which does not match its %lld bytes", f->path, t->name,
                      t->dtype, shape, (long long)(t->end - t->begin));
}

static int take_tensor(BurstCtx *c, const StFile *f, const char *name, const json_t *facts,
                       int64_t data_bytes, StTensor *t)
{
    if (!printable(name))
        return burst_fail(c, BURST_E_IO, "%s: a tensor name contains control characters", f->path);
    *t = (StTensor){.name = name, .dtype = json_string_value(json_object_get(facts, "dtype")), .file = f};
    if (!t->dtype || !printable(t->dtype) || json_object_size(facts) != 3)
        return burst_fail(c, BURST_E_IO, "%s: %s must have exactly the fields dtype, shape and data_offsets",
                          f->path, name);
    BURST_TRY(take_shape(c, f, t, json_object_get(facts, "shape")));
    BURST_TRY(take_offsets(c, f, t, json_object_get(facts, "data_offsets"), data_bytes));
    return check_size(c, f, t);
}

/* ---- the header ---- */

static int by_place(const void *a, const void *b)
{
    const StTensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin > y->begin ? 1 : -1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Checks that the tensors fill the data without overlaps or gaps. */
static int check_places(BurstCtx *c, StFile *f, int64_t data_bytes)
{
    int64_t at = 0;
    if (f->tensors)
        qsort(f->tensor, (size_t)f->tensors, sizeof *f->tensor, by_place);
    for (int i = 0; i < f->tensors; at = f->tensor[i++].end) {
        const StTensor *t = &f->tensor[i];
        if (t->begin < at)
            return burst_fail(c, BURST_E_IO, "%s: %s and %s overlap", f->path, f->tensor[i - 1].name,
                              t->name);
        if (t->begin > at)
            return burst_fail(c, BURST_E_IO, "%s: the %lld bytes before %s belong to no tensor", f->path,
                              (long long)(t->begin - at), t->name);
    }
    if (at != data_bytes)
        return burst_fail(c, BURST_E_IO, "%s: its last %lld bytes belong to no tensor", f->path,
                          (long long)(data_bytes - at));
    return BURST_OK;
}

static int take_header(BurstCtx *c, StFile *f, int64_t data_bytes)
{
    const char *name;
    json_t *facts;
    f->tensor = calloc(json_object_size(f->header) + 1, sizeof *f->tensor);
    if (!f->tensor)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the tensors of '%s'", f->path);
    json_object_foreach(f->header, name, facts) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        BURST_TRY(take_tensor(c, f, name, facts, data_bytes, &f->tensor[f->tensors]));
        f->tensors++;
    }
    return check_places(c, f, data_bytes);
}

static int parse_header(BurstCtx *c, StFile *f, const char *text, size_t bytes)
{
    json_error_t wrong;
    f->header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (!f->header)
        return burst_fail(c, BURST_E_IO, "the header of '%s' is not valid JSON: byte %d: %s", f->path,
                          wrong.position, wrong.text);
    if (!json_is_object(f->header))
        return burst_fail(c, BURST_E_IO, "the header of '%s' is not a JSON object of tensors", f->path);
    return BURST_OK;
}

static int read_header(BurstCtx *c, StFile *f, off_t size)
{
    unsigned char length[LENGTH_BYTES];
    uint64_t bytes = 0;
    if (!read_at(f->fd, length, sizeof length, 0))
        return burst_fail(c, BURST_E_IO, "'%s' is not a safetensors file: it has only %lld bytes", f->path,
                          (long long)size);
    for (int i = LENGTH_BYTES; i-- > 0;)
        bytes = bytes << 8 | length[i];
    if (bytes > ST_HEADER_MOST || (int64_t)bytes > size - LENGTH_BYTES)
        return burst_fail(
            c, BURST_E_IO,
            "'%s' is truncated or not a safetensors file: its header gives %llu bytes, the file has %lld",
            f->path, (unsigned long long)bytes, (long long)size);
    char *text = malloc(bytes + 1);
    if (!text)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the header of '%s'", f->path);
    int status = read_at(f->fd, text, bytes, LENGTH_BYTES)
                     ? parse_header(c, f, text, bytes)
                     : burst_fail(c, BURST_E_IO, "cannot read '%s': %s", f->path, strerror(errno));
    free(text);
    f->data_at = LENGTH_BYTES + (int64_t)bytes;
    return status == BURST_OK ? take_header(c, f, size - f->data_at) : status;
}

int safetensors_open(BurstCtx *c, const char *path, StFile *f)
{
    *f = (StFile){.fd = -1};
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return burst_fail(c, BURST_E_IO, "the path is too long: %zu bytes", strlen(path));
    off_t bytes;
    f->fd = open_regular(c, path, &bytes);
    if (f->fd < 0)
        return BURST_E_IO;
    int status = read_header(c, f, bytes);
    if (status != BURST_OK)
        safetensors_close(f);
    return status;
}

void safetensors_close(StFile *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->tensor);
    json_decref(f->header);
    *f = (StFile){.fd = -1};
}

/* ---- elements ---- */

static bool read_wide(const StTensor *t, off_t at, int64_t count, float *to, float (*convert)(uint16_t bits))
{
    uint16_t piece[PIECE];
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t n = count - done < PIECE ? count - done : PIECE;
        if (!read_at(t->file->fd, piece, (size_t)n * sizeof *piece,
                     at + (off_t)(done * (int64_t)sizeof *piece)))
            return false;
        for (int64_t i = 0; i < n; i++)
            to[done + i] = convert(piece[i]);
    }
    return true;
}

bool safetensors_readable(const StTensor *t)
{
    const struct Dtype *d = find_dtype(t->dtype);
    return d && d->read;
}

int safetensors_bytes(BurstCtx *c, const StTensor *t, int64_t first, int64_t count, uint8_t *to)
{
    if (first < 0 || count < 0 || first > t->end - t->begin || count > t->end - t->begin - first)
        return burst_fail(c, BURST_E_PLAN, "%s has no bytes %lld to %lld", t->name, (long long)first,
                          (long long)(first + count));
    if (!read_at(t->file->fd, to, (size_t)count, (off_t)(t->file->data_at + t->begin + first)))
        return burst_fail(c, BURST_E_IO, "cannot read '%s': %s", t->file->path,
                          errno ? strerror(errno) : "the file is truncated");
    return BURST_OK;
}

int safetensors_read(BurstCtx *c, const StTensor *t, int64_t first, int64_t count, float *to)
{
    const struct Dtype *d = find_dtype(t->dtype);
    if (!d || !d->read)
        return burst_fail(c, BURST_E_IO, "%s: %s is %s, expected F32, BF16 or F16", t->file->path, t->name,
                          t->dtype);
    if (first < 0 || count < 0 || first > t->elements || count > t->elements - first)
        return burst_fail(c, BURST_E_PLAN, "%s has no elements %lld to %lld", t->name, (long long)first,
                          (long long)(first + count));
    off_t at = (off_t)(t->file->data_at + t->begin + first * d->bytes);
    bool read = d->from16 ? read_wide(t, at, count, to, d->from16)
                          : read_at(t->file->fd, to, (size_t)count * sizeof *to, at);
    if (!read)
        return burst_fail(c, BURST_E_IO, "cannot read '%s': %s", t->file->path,
                          errno ? strerror(errno) : "the file is truncated");
    return BURST_OK;
}
