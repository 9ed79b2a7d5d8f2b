/* text.c: growing text; files read whole and written atomically. */
#include "burst.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void reserve(Text *t, size_t more)
{
    if (t->n + more + 1 <= t->cap)
        return;
    t->cap = (t->n + more + 1) * 2;
    t->at = xrealloc(t->at, t->cap);
}

void text_add_n(Text *t, const char *s, size_t n)
{
    reserve(t, n);
    if (n)
        memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = 0;
}

void text_add(Text *t, const char *s)
{
    text_add_n(t, s, strlen(s));
}

void text_vprintf(Text *t, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    reserve(t, (size_t)n);
    vsnprintf(t->at + t->n, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n += (size_t)n;
}

void text_printf(Text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(t, fmt, ap);
    va_end(ap);
}

void text_free(Text *t)
{
    free(t->at);
    *t = (Text){0};
}

static int write_all(FILE *f, const Text *t)
{
    size_t done = t->n ? fwrite(t->at, 1, t->n, f) : 0;
    return done == t->n && fflush(f) == 0 ? 0 : -1;
}

/* A new file has the permissions that the user's umask gives, not mkstemp's 0600. */
static int usual_mode(int fd)
{
    mode_t mask = umask(0);
    umask(mask);
    return fchmod(fd, 0666 & ~mask);
}

int text_write_file(const Text *t, const char *path)
{
    if (strcmp(path, "-") == 0)
        return write_all(stdout, t);
    size_t len = strlen(path);
    char *temporary = xmalloc(len + 8);
    memcpy(temporary, path, len);
    memcpy(temporary + len, ".XXXXXX", 8);
    int fd = mkstemp(temporary), failed = fd < 0;
    if (!failed) {
        FILE *f = fdopen(fd, "w");
        failed = !f || write_all(f, t) != 0 || usual_mode(fd) != 0 || fsync(fd) != 0;
        if (f ? fclose(f) != 0 : close(fd) != 0)
            failed = 1;
        failed = failed || rename(temporary, path) != 0;
        int reason = errno;
        if (failed)
            unlink(temporary);
        if (failed && reason == ENOMEM)
            out_of_memory();
        errno = reason;
    }
    free(temporary);
    return failed ? -1 : 0;
}

char *read_file(Arena *a, const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f && errno == ENOMEM)
        out_of_memory();
    if (!f)
        return NULL;
    Text t = {0};
    char buffer[1 << 14];
    size_t n;
    text_add_n(&t, "", 0);
    while ((n = fread(buffer, 1, sizeof buffer, f)) > 0)
        text_add_n(&t, buffer, n);
    int reason = ferror(f) ? (errno ? errno : EIO) : 0;
    fclose(f);
    char *copy = reason ? NULL : arena_copy(a, t.at, t.n);
    *len = t.n;
    text_free(&t);
    if (reason)
        errno = reason;
    return copy;
}
