/* text.c: growing text; reading and writing whole files. */
#include "base/base.h"

#include "base/output_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

char *text_keep(Arena *a, Text *t)
{
    char *copy = arena_copy(a, t->at, t->n);
    text_free(t);
    return copy;
}

const char *list_separator(int i, int n, const char *last)
{
    if (i == 0)
        return "";
    return i == n - 1 ? last : ", ";
}

char *grouped_text(Arena *a, double number, int digits)
{
    const char *plain = arena_printf(a, "%.*f", digits, number);
    const size_t n = strlen(plain), whole = strspn(plain, "-0123456789");
    char *text = arena_alloc(a, n + n / 3 + 2), *to = text;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0 && plain[i - 1] != '-')
            *to++ = ',';
        *to++ = plain[i];
    }
    *to = 0;
    return text;
}

char *time_text(Arena *a, double seconds, int digits)
{
    if (seconds < 1)
        return arena_printf(a, "%.3f ms", seconds * 1e3);
    return arena_printf(a, "%s s", grouped_text(a, seconds, digits));
}

char *bytes_text(Arena *a, double bytes, int digits)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; bytes >= 1024 && u + 1 < countof(unit); u++)
        bytes /= 1024;
    return arena_printf(a, "%.*f %s", u ? digits : 0, bytes, unit[u]);
}

static int write_all(FILE *f, const Text *t)
{
    size_t done = t->n ? fwrite(t->at, 1, t->n, f) : 0;
    return done == t->n && fflush(f) == 0 ? 0 : -1;
}

int text_write_file(const Text *t, const char *path)
{
    OutputFile o;
    if (strcmp(path, "-") == 0)
        return write_all(stdout, t);
    int failed = output_open(&o, path);
    if (!failed && (failed = write_all(o.file, t)) != 0) {
        int reason = errno;
        output_close(&o, false);
        errno = reason;
    } else if (!failed) {
        failed = output_close(&o, true);
    }
    if (failed && errno == ENOMEM)
        out_of_memory();
    return failed;
}

const char *environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
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
    while (t.n <= TEXT_MOST && (n = fread(buffer, 1, sizeof buffer, f)) > 0)
        text_add_n(&t, buffer, n);
    int reason = t.n > TEXT_MOST ? EFBIG : 0;
    if (ferror(f))
        reason = errno ? errno : EIO;
    fclose(f);
    char *copy = reason ? NULL : arena_copy(a, t.at, t.n);
    *len = t.n;
    text_free(&t);
    if (reason)
        errno = reason;
    return copy;
}
