/* metrics.c: see metrics.h. */
#include "report/metrics.h"

#include "base/output_file.h"
#include "core/context.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BEGIN = 9 };
static const char begins[] = "{\"step\": "; /* every line of a metrics file begins like this */

static int cannot_write(BurstCtx *c, const Metrics *m)
{
    return burst_fail(c, BURST_E_IO, "cannot write '%s': %s", m->path, output_reason(errno));
}

int metrics_open(BurstCtx *c, const char *path, Metrics *m)
{
    struct stat st;
    *m = (Metrics){.path = path, .fd = -1};
    if (!path)
        return BURST_OK;
    m->fd = output_append(path);
    if (m->fd < 0 || fstat(m->fd, &st) != 0)
        return cannot_write(c, m);
    m->regular = S_ISREG(st.st_mode) && !output_is_open(path);
    m->fifo = S_ISFIFO(st.st_mode) && !output_is_open(path);
    return BURST_OK;
}

/* ---- lines of an earlier run ---- */

/* Reads the bytes after the last line's end, at most a line; *end: the file's length. -1: it cannot be
 * read. */
static ssize_t read_tail(const Metrics *m, char tail[METRICS_LINE], off_t *end)
{
    const int fd = open(m->path, O_RDONLY | O_CLOEXEC);
    *end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    const off_t from = *end > METRICS_LINE ? *end - METRICS_LINE : 0;
    ssize_t n = *end < 0 ? -1 : pread(fd, tail, METRICS_LINE, from);
    if (fd >= 0)
        close(fd);
    for (ssize_t i = n; i > 0; i--)
        if (tail[i - 1] == '\n')
            return memmove(tail, tail + i, (size_t)(n - i)), n - i;
    return n;
}

/* Whether the tail is a line that a run has begun; other text is not touched. */
static bool is_cut(const char *tail, size_t n)
{
    return memcmp(tail, begins, n < BEGIN ? n : BEGIN) == 0;
}

static int mend(BurstCtx *c, const Metrics *m)
{
    char tail[METRICS_LINE];
    off_t end;
    const ssize_t n = read_tail(m, tail, &end);
    if (n < 0)
        return cannot_write(c, m);
    if (n == 0)
        return BURST_OK;
    json_t *line = json_loadb(tail, (size_t)n, 0, NULL);
    const bool cut = !line && is_cut(tail, (size_t)n);
    json_decref(line);
    const bool mended = cut ? ftruncate(m->fd, end - n) == 0 : write(m->fd, "\n", 1) == 1;
    return mended ? BURST_OK : cannot_write(c, m);
}

/* -1: not a metrics line. */
static long long step_of(const char *line)
{
    long long step;
    return sscanf(line, "{\"step\": %lld, ", &step) == 1 ? step : -1;
}

/* Saves the evaluation after `done` steps. Returns where the lines of later steps begin, if nothing else
 * follows them; -1: nowhere. */
static off_t find_later(Metrics *m, int64_t done)
{
    FILE *f = fopen(m->path, "re");
    char *line = NULL;
    size_t room = 0;
    off_t later = -1, at = 0;
    for (ssize_t n; f && (n = getline(&line, &room, f)) > 0; at += n) {
        const long long step = step_of(line);
        if (step <= done)
            later = -1;
        else if (later < 0)
            later = at;
        if (step == done && strstr(line, "\"evaluation_loss\""))
            snprintf(m->evaluation, sizeof m->evaluation, "%s", line);
    }
    free(line);
    if (f)
        fclose(f);
    return later;
}

int metrics_begin(BurstCtx *c, Metrics *m, int64_t done, bool again)
{
    if (m->fd < 0 || !m->regular)
        return BURST_OK;
    if (done > 0)
        BURST_TRY(mend(c, m));
    const off_t end = done > 0 ? find_later(m, done) : 0;
    if (done > 0 && (!again || end < 0))
        return BURST_OK;
    return ftruncate(m->fd, end) == 0 ? BURST_OK : cannot_write(c, m);
}

/* ---- lines ---- */

static bool write_line(const Metrics *m, const char *line, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = write(m->fd, line + at, bytes - at);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* The reader has gone; training continues. */
static int lose_reader(Metrics *m)
{
    say_line("nobody reads '%s' any more; training continues, and metrics are written again when it is read",
             m->path);
    close(m->fd);
    m->fd = -1;
    m->unread = true;
    return BURST_OK;
}

/* Reopens the FIFO once it has a reader. If it is no longer a FIFO, it is somebody's file. */
static bool find_reader(Metrics *m)
{
    struct stat st;
    m->fd = open(m->path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    m->unread = m->fd < 0 || fstat(m->fd, &st) != 0 || !S_ISFIFO(st.st_mode) || fcntl(m->fd, F_SETFL, 0) != 0;
    if (m->fd >= 0 && m->unread) {
        close(m->fd);
        m->fd = -1;
    }
    return !m->unread;
}

int metrics_line(BurstCtx *c, Metrics *m, const char *format, ...)
{
    char line[METRICS_LINE];
    struct stat st;
    va_list ap;
    if (m->unread ? !find_reader(m) : m->fd < 0)
        return BURST_OK;
    va_start(ap, format);
    const int n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    const bool known = m->regular && fstat(m->fd, &st) == 0;
    if (write_line(m, line, (size_t)n))
        return BURST_OK;
    const int reason = errno;
    if (reason == EPIPE && m->fifo)
        return lose_reader(m);
    if (known)
        (void)!ftruncate(m->fd, st.st_size); /* an incomplete line is worse than none */
    errno = reason;
    return cannot_write(c, m);
}

int metrics_close(BurstCtx *c, Metrics *m, int status)
{
    const bool failed = m->fd >= 0 && close(m->fd) != 0;
    m->fd = -1;
    return status == BURST_OK && failed ? cannot_write(c, m) : status;
}
