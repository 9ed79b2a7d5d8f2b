/* say.c: what goes wrong, kept in a rank's context, and what is said on standard error. */
#include "base/escape.h"
#include "core/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *burst_error(const BurstCtx *c) { return c->error; }

int burst_fail(BurstCtx *c, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->error, sizeof c->error, fmt, ap);
    va_end(ap);
    escape_shown(c->error, sizeof c->error); /* names and other people's files */
    return code;
}

void say_line(const char *format, ...)
{
    char start[ERROR_TEXT]; /* where there is no memory for more */
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    char *text = shown_text(format, ap);
    vsnprintf(start, sizeof start, format, again);
    escape_shown(start, sizeof start);
    fprintf(stderr, "burst: %s\n", text ? text : start);
    free(text);
    va_end(again);
    va_end(ap);
}
