/* safetensors/json.c: parses JSON from untrusted files, writes arbitrary bytes as JSON, and keeps the list
 * of differences from a plan. */
#include "safetensors/safetensors.h"

#include "base/escape.h"
#include "base/plural.h"
#include "files/files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Infinity or NaN, which Python writes. */
typedef struct NoNumber {
    size_t at, field, field_bytes; /* field: the one before it */
} NoNumber;

static size_t string_end(const char *text, size_t bytes, size_t at)
{
    for (at++; at < bytes && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < bytes ? at : bytes; /* of a text that ends behind a backslash too */
}

/* Replaces them by numbers so that the rest can be parsed; returns the first. */
static bool replace_no_numbers(char *text, size_t bytes, NoNumber *first)
{
    static const char *const words[][2] = {{"Infinity", "1e308   "}, {"NaN", "0  "}};
    NoNumber here = {0};
    bool found = false;
    for (size_t at = 0; at < bytes; at++) {
        if (text[at] == '"') {
            const size_t end = string_end(text, bytes, at);
            here.field = at + 1;
            here.field_bytes = end - at - 1;
            at = end;
        }
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (strncmp(text + at, words[w][0], strlen(words[w][0])) == 0) {
                here.at = at;
                *first = found ? *first : here;
                found = true;
                memcpy(text + at, words[w][1], strlen(words[w][1]));
            }
    }
    return found;
}

static int line_of(const char *text, size_t at)
{
    int line = 1;
    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    return line;
}

/* Reports numbers that JSON does not allow and parses the rest. */
static int parse_again(BurstCtx *c, const char *path, char *text, size_t bytes, json_t **json)
{
    NoNumber first = {0};
    if (!replace_no_numbers(text, bytes, &first))
        return BURST_OK;
    *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *sign = first.at && text[first.at - 1] == '-' ? "-" : "";
    if (text[first.at] == '0')
        return burst_fail(
            c, BURST_E_IO, "%s:%d: %.*s is NaN, which JSON does not have; write a number instead", path,
            line_of(text, first.at), (int)first.field_bytes, text + first.field);
    return burst_fail(c, BURST_E_IO,
                      "%s:%d: %.*s is %sInfinity, which JSON does not have; write %s1e308 instead", path,
                      line_of(text, first.at), (int)first.field_bytes, text + first.field, sign, sign);
}

static int parse(BurstCtx *c, const char *path, char *text, size_t bytes, json_t **json)
{
    json_error_t wrong;
    *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (json_is_object(*json))
        return BURST_OK;
    const char *what = *json ? NULL : foreign_content(text, bytes);
    if (what)
        return burst_fail(c, BURST_E_IO, "'%s' %s", path, what);
    if (!*json)
        BURST_TRY(parse_again(c, path, text, bytes, json));
    if (!*json)
        return burst_fail(c, BURST_E_IO, "%s:%d:%d: %s", path, wrong.line, wrong.column, wrong.text);
    json_decref(*json);
    *json = NULL;
    return burst_fail(c, BURST_E_IO, "%s: expected a JSON object", path);
}

int load_json(BurstCtx *c, const char *path, json_t **json)
{
    off_t bytes;
    const int fd = open_regular(c, path, &bytes);
    if (fd < 0)
        return BURST_E_IO;
    char *text = bytes <= ST_HEADER_MOST ? calloc((size_t)bytes + 1, 1) : NULL;
    int status;
    if (bytes > ST_HEADER_MOST)
        status = burst_fail(c, BURST_E_IO, "'%s' has %lld bytes, expected at most %d", path, (long long)bytes,
                            ST_HEADER_MOST);
    else if (!text)
        status = burst_fail(c, BURST_E_MEMORY, "out of memory for '%s'", path);
    else if (!read_at(fd, text, (size_t)bytes, 0))
        status = burst_fail(c, BURST_E_IO, "cannot read '%s': %s", path,
                            errno ? strerror(errno) : "the file is truncated");
    else
        status = parse(c, path, text, (size_t)bytes, json);
    free(text);
    close(fd);
    return status;
}

/* ---- differences ---- */

/* Position of a layer's number; from == end: none. */
typedef struct Digits {
    size_t from, end;
} Digits;

static Digits layer_digits(const char *text)
{
    static const char before[] = "model.layers.";
    const char *at = strstr(text, before);
    Digits d = {at ? (size_t)(at - text) + sizeof before - 1 : 0, 0};
    d.end = at ? d.from + strspn(text + d.from, "0123456789") : 0;
    return d;
}

static bool same_but_layer(const char *a, const char *b)
{
    const Digits x = layer_digits(a), y = layer_digits(b);
    return x.end > x.from && y.end > y.from && x.from == y.from && strncmp(a, b, x.from) == 0 &&
           strcmp(a + x.end, b + y.end) == 0;
}

static void cut(char *text)
{
    size_t n = MISFIT_TEXT - 4;
    if (strlen(text) < MISFIT_TEXT)
        return;
    while (n > 0 && (text[n] & 0xc0) == 0x80) /* inside a multi-byte character */
        n--;
    memcpy(text + n, "...", 4);
}

static void add(Misfits *m, MisfitKind kind, char *text)
{
    const Digits layer = text ? layer_digits(text) : (Digits){0, 0};
    m->count++;
    for (int i = 0; i < m->kept && text; i++)
        if (same_but_layer(m->misfit[i].text, text)) {
            m->misfit[i].layers++;
            free(text);
            return;
        }
    if (text && m->kept < MISFITS_MOST) {
        cut(text);
        m->misfit[m->kept++] = (Misfit){text, layer.end > layer.from, kind};
    } else {
        free(text);
    }
}

void misfit(Misfits *m, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    add(m, MISFIT_MODEL, shown_text(format, ap));
    va_end(ap);
}

void misfit_of(Misfits *m, MisfitKind kind, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    add(m, kind, shown_text(format, ap));
    va_end(ap);
}

void misfit_rope(Misfits *m, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    char *text = shown_text(format, ap);
    va_end(ap);
    m->other_rope = true;
    if (!m->plan_rope)
        misfit_of(m, MISFIT_ROPE, "%s; use --plan-rope to train with the plan's RoPE", text ? text : "");
    free(text);
}

void misfit_alone(Misfits *m, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    add(m, MISFIT_MODEL, shown_text(format, ap));
    va_end(ap);
    m->alone = true;
}

int misfit_error(Misfits *m, const BurstCtx *c, int status)
{
    if (status == BURST_OK || status == BURST_E_MEMORY)
        return status;
    misfit(m, "%s", burst_error(c));
    m->status = m->status ? m->status : status;
    return BURST_OK;
}

/* The number of differences that it represents. */
static int number_of(const Misfit *one) { return one->layers ? one->layers : 1; }

/* The caller frees it; NULL: no memory. */
static char *told_text(const Misfit *one)
{
    char *text = NULL;
    const int others = number_of(one) - 1;
    if (others == 0)
        return strdup(one->text);
    const int n = asprintf(&text, "%s (the same in %d other layer%s)", one->text, others, plural(others));
    return n < 0 ? NULL : text;
}

void misfits_tell(const Misfits *m, MisfitKind kind, void (*tell)(void *to, const char *text), void *to)
{
    char more[40];
    int told = 0;
    for (int i = 0; i < m->kept; i++) {
        const Misfit *one = &m->misfit[i];
        char *text = told_text(one);
        if (one->kind == kind)
            tell(to, text ? text : one->text);
        free(text);
        told += number_of(one);
    }
    snprintf(more, sizeof more, "and %d more", m->count - told);
    if (m->count > told && kind == MISFIT_MODEL)
        tell(to, more);
}

/* Joins as many as fit into the text; returns how many differences are left out. */
static int join(const Misfits *m, char joined[MISFITS_TEXT])
{
    size_t used = 0;
    int left_out = m->count;
    joined[0] = 0;
    for (int i = 0; i < m->kept; i++) {
        char *text = told_text(&m->misfit[i]);
        if (!text || used + strlen(text) + 3 > MISFITS_TEXT) {
            free(text);
            break;
        }
        used += (size_t)snprintf(joined + used, MISFITS_TEXT - used, "%s%s", used ? "; " : "", text);
        left_out -= number_of(&m->misfit[i]);
        free(text);
    }
    return left_out;
}

int misfits_end(BurstCtx *c, Misfits *m, const char *folder, int status)
{
    char text[MISFITS_TEXT], more[40] = "";
    if (status == BURST_OK && m->count) {
        const int left_out = join(m, text);
        if (left_out)
            snprintf(more, sizeof more, "; and %d more", left_out);
        status = burst_fail(c, m->status ? m->status : BURST_E_USAGE, "'%s' %s: %s%s", folder,
                            m->alone ? "cannot be used" : "does not match the plan", text, more);
    }
    misfits_close(m);
    return status;
}

void misfits_close(Misfits *m)
{
    for (int i = 0; i < m->kept; i++)
        free(m->misfit[i].text);
    m->kept = 0;
}
