/* safetensors/json.c: JSON from files that may be anybody's, text of any bytes as JSON, and the list of what
 * does not fit a plan. */
#include "safetensors/safetensors.h"

#include "checkpoint/checkpoint.h"
#include "core/escape.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int parse(BurstCtx *c, const char *path, const char *text, size_t bytes, json_t **json)
{
    json_error_t wrong;
    *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (json_is_object(*json))
        return BURST_OK;
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
    char *text = bytes <= ST_HEADER_MOST ? malloc((size_t)bytes + 1) : NULL;
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

json_t *json_text(const char *text)
{
    char *escaped = escaped_utf8(text);
    json_t *json = escaped ? json_string(escaped) : NULL;
    free(escaped);
    return json;
}

void misfit(Misfits *m, const char *format, ...)
{
    char text[MISFIT_TEXT];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    escape_shown(text, sizeof text);
    const size_t n = strlen(text);
    m->count++;
    if (m->tell) {
        m->tell(m->to, text);
        return;
    }
    if (m->used + n + 3 > sizeof m->text || m->left_out) {
        m->left_out++;
        return;
    }
    m->used += (size_t)snprintf(m->text + m->used, sizeof m->text - m->used, "%s%s", m->used ? "; " : "",
                                text);
}

int misfits_end(BurstCtx *c, const Misfits *m, const char *folder)
{
    char more[40] = "";
    if (!m->count)
        return BURST_OK;
    if (m->left_out)
        snprintf(more, sizeof more, "; and %d more", m->left_out);
    return burst_fail(c, BURST_E_USAGE, "'%s' does not match the plan: %s%s", folder, m->text, more);
}
