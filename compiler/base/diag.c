/* diag.c: diagnostics like clang's: file:line:col: error: text, the source line, carets, fix-its, notes.
 *
 * Messages are kept until diags_print, so that a pass can continue after an error and report several.
 * Printed text never contains a control byte of the input: those appear as <XX>. */
#include "base/base.h"
#include "base/escape.h"

#include <stdlib.h>
#include <string.h>

typedef enum Severity { SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_NOTE, SEVERITIES } Severity;
static const char *const severity_names[SEVERITIES] = {"error", "warning", "note"};

typedef struct Fixit { Span at; const char *text; } Fixit;
typedef struct Message {
    Severity severity;
    Span at;
    const char *text;
    Fixit fixit; /* text NULL: none */
} Message;

static const char *const warning_names[WARNING_COUNT] = {
#define X(id, name, what) name,
    WARNINGS(X)
#undef X
};
typedef enum Fatal { FATAL_AS_ALL, FATAL_NO, FATAL_YES } Fatal;

struct Diags {
    Arena *arena;
    bool off[WARNING_COUNT], all_fatal;
    Fatal fatal[WARNING_COUNT];
    Vec(Message) messages;
    int errors;
    bool dropping; /* the last error or warning was dropped, so its notes are too */
    bool too_many;
};

enum { TAB = 8, WINDOW = 110, LEAD = 60 };

Diags *diags_new(Arena *a)
{
    Diags *d = NEW(a, Diags);
    d->arena = a;
    return d;
}

Diags *diags_like(Arena *a, const Diags *d)
{
    Diags *new = diags_new(a);
    memcpy(new->off, d->off, sizeof d->off);
    memcpy(new->fatal, d->fatal, sizeof d->fatal);
    new->all_fatal = d->all_fatal;
    return new;
}

int diags_errors(const Diags *d)
{
    return d->errors;
}

const char *diags_first(const Diags *d)
{
    for (int i = 0; i < d->messages.n; i++)
        if (d->messages.at[i].severity == SEVERITY_ERROR)
            return d->messages.at[i].text;
    return "";
}

static bool same_span(Span a, Span b)
{
    return a.src == b.src && a.begin == b.begin && a.end == b.end;
}

static bool already_said(const Diags *d, Severity severity, Span at, const char *text)
{
    for (int i = 0; i < d->messages.n; i++) {
        const Message *m = &d->messages.at[i];
        if (m->severity == severity && same_span(m->at, at) && strcmp(m->text, text) == 0)
            return true;
    }
    return false;
}

static const char *format(Arena *a, const char *fmt, va_list ap)
{
    Text t = {0};
    text_vprintf(&t, fmt, ap);
    return text_keep(a, &t);
}

static void keep(Diags *d, Severity severity, Span at, const char *text)
{
    *vec_push(d->arena, &d->messages) = (Message){.severity = severity, .at = at, .text = text};
}

/* Errors and warnings open a group. A message that repeats one or exceeds the limit is dropped with its
 * notes. */
static void report(Diags *d, Severity severity, Span at, const char *text)
{
    d->dropping = already_said(d, severity, at, text);
    if (d->dropping)
        return;
    if (severity == SEVERITY_ERROR && ++d->errors > DIAG_MAX_ERRORS)
        d->too_many = true;
    d->dropping = d->too_many;
    if (!d->dropping)
        keep(d, severity, at, text);
}

void diags_take(Diags *d, const Diags *from)
{
    for (int i = 0; i < from->messages.n; i++) {
        const Message *m = &from->messages.at[i];
        if (m->severity != SEVERITY_NOTE)
            report(d, m->severity, m->at, arena_printf(d->arena, "%s", m->text));
        else if (!d->dropping)
            keep(d, m->severity, m->at, arena_printf(d->arena, "%s", m->text));
        if (m->fixit.text && !d->dropping)
            d->messages.at[d->messages.n - 1].fixit = m->fixit;
    }
}

void diag_error(Diags *d, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report(d, SEVERITY_ERROR, at, format(d->arena, fmt, ap));
    va_end(ap);
}

void diag_warn(Diags *d, Warning w, Span at, const char *fmt, ...)
{
    bool fatal = d->fatal[w] == FATAL_YES || (d->fatal[w] == FATAL_AS_ALL && d->all_fatal);
    d->dropping = d->off[w];
    if (d->off[w])
        return;
    va_list ap;
    va_start(ap, fmt);
    const char *text = format(d->arena, fmt, ap);
    va_end(ap);
    text = arena_printf(d->arena, "%s [-W%s%s]", text, fatal ? "error,-W" : "", warning_names[w]);
    report(d, fatal ? SEVERITY_ERROR : SEVERITY_WARNING, at, text);
}

const char *diags_option(Diags *d, const char *option)
{
    const char *name = option + strlen("-W");
    bool no = strncmp(name, "no-", 3) == 0;
    name += no ? 3 : 0;
    if (strcmp(name, "error") == 0) {
        d->all_fatal = !no;
        return NULL;
    }
    bool fatal = strncmp(name, "error=", 6) == 0;
    name += fatal ? 6 : 0;
    for (int w = 0; w < WARNING_COUNT; w++) {
        if (strcmp(name, warning_names[w]) != 0)
            continue;
        d->off[w] = fatal ? d->off[w] && no : no;
        if (fatal)
            d->fatal[w] = no ? FATAL_NO : FATAL_YES;
        return NULL;
    }
    const char *near = nearest_name(name, warning_names, WARNING_COUNT);
    return near ? arena_printf(d->arena, "unknown warning '%s' in '%s'; did you mean '%s'?", name, option,
                               near)
                : arena_printf(d->arena, "unknown warning '%s' in '%s'", name, option);
}

void diag_note(Diags *d, Span at, const char *fmt, ...)
{
    if (d->dropping)
        return;
    va_list ap;
    va_start(ap, fmt);
    keep(d, SEVERITY_NOTE, at, format(d->arena, fmt, ap));
    va_end(ap);
}

void diag_fixit(Diags *d, Span at, const char *replacement)
{
    if (d->dropping || !d->messages.n)
        return;
    d->messages.at[d->messages.n - 1].fixit = (Fixit){at,
                                                      arena_copy(d->arena, replacement, strlen(replacement))};
}

static size_t line_begin(const Source *s, size_t at)
{
    while (at > 0 && s->text[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const Source *s, size_t at)
{
    while (at < s->len && s->text[at] != '\n')
        at++;
    return at > 0 && at <= s->len && s->text[at - 1] == '\r' ? at - 1 : at;
}

static size_t clamp(const Source *s, size_t at)
{
    return at < s->len ? at : s->len;
}

void span_line(Span at, int *line, int *column)
{
    *line = *column = 1;
    if (!at.src)
        return;
    size_t begin = clamp(at.src, at.begin), start = line_begin(at.src, begin);
    for (size_t i = 0; i < start; i++)
        *line += at.src->text[i] == '\n';
    *column = (int)(begin - start) + 1;
}

Span span_join(Span a, Span b)
{
    if (!a.src || a.src != b.src)
        return a.src ? a : b;
    return (Span){a.src, a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

/* A character of input as a terminal shows it. C1 controls (c2 80 .. c2 9f) are shown as bytes too. */
typedef struct Cell { char text[16]; int width; size_t bytes; } Cell;

static Cell cell_at(const char *s, size_t left, int column)
{
    const unsigned char *u = (const unsigned char *)s;
    int n = utf8_length(u, left);
    Cell c = {.bytes = n ? (size_t)n : 1};
    if (u[0] == '\t') {
        c.width = TAB - column % TAB;
        memset(c.text, ' ', (size_t)c.width);
    } else if ((u[0] >= 0x20 && u[0] < 0x7f) || (n && !(u[0] == 0xc2 && u[1] < 0xa0))) {
        memcpy(c.text, s, c.bytes);
        c.width = 1;
    } else {
        c.bytes = 1;
        c.width = snprintf(c.text, sizeof c.text, "<%02X>", u[0]);
    }
    return c;
}

/* Display column of byte `at` in the line that begins at `start`. */
static int column_of(const Source *s, size_t start, size_t at)
{
    int column = 0;
    for (size_t i = start; i < at;) {
        Cell c = cell_at(s->text + i, s->len - i, column);
        column += c.width;
        i += c.bytes;
    }
    return column;
}

static void put_clean(FILE *out, const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len;) {
        Cell c = cell_at(text + i, len - i, 0);
        fputs(text[i] == '\t' ? "<09>" : c.text, out);
        i += c.bytes;
    }
}

/* The part of a source line that is shown: all of a short line, WINDOW columns around the caret of a long
 * one. */
typedef struct Excerpt { const Source *src; size_t begin, end; int from, to, width; } Excerpt;

static Excerpt excerpt(Span at)
{
    size_t where = clamp(at.src, at.begin);
    Excerpt e = {.src = at.src, .begin = line_begin(at.src, where), .end = line_end(at.src, where)};
    if (e.end < e.begin)
        e.end = e.begin;
    e.width = column_of(e.src, e.begin, e.end);
    int caret = column_of(e.src, e.begin, where < e.end ? where : e.end);
    e.from = e.width > WINDOW && caret > LEAD ? caret - LEAD : 0;
    e.to = e.width > e.from + WINDOW ? e.from + WINDOW : e.width;
    return e;
}

static void print_line(const Excerpt *e, FILE *out)
{
    fputs(e->from ? "..." : "", out);
    int column = 0;
    for (size_t i = e->begin; i < e->end && column < e->to;) {
        Cell c = cell_at(e->src->text + i, e->src->len - i, column);
        if (column >= e->from)
            fputs(c.text, out);
        column += c.width;
        i += c.bytes;
    }
    fputs(e->to < e->width ? "...\n" : "\n", out);
}

static int shown_column(const Excerpt *e, size_t at)
{
    int column = column_of(e->src, e->begin, at < e->end ? at : e->end);
    if (column < e->from)
        column = e->from;
    else if (column > e->to)
        column = e->to;
    return column - e->from + (e->from ? 3 : 0);
}

static void print_carets(const Excerpt *e, Span at, FILE *out)
{
    int begin = shown_column(e, at.begin), end = shown_column(e, at.end);
    fprintf(out, "%*s^", begin, "");
    for (int i = begin + 1; i < end; i++)
        fputc('~', out);
    fputc('\n', out);
}

static void print_message(const Message *m, FILE *out)
{
    if (!m->at.src) {
        fprintf(out, "burstc: %s: ", severity_names[m->severity]);
        put_clean(out, m->text);
        fputc('\n', out);
        return;
    }
    int line, column;
    span_line(m->at, &line, &column);
    put_clean(out, m->at.src->name);
    fprintf(out, ":%d:%d: %s: ", line, column, severity_names[m->severity]);
    put_clean(out, m->text);
    fputc('\n', out);
    Excerpt e = excerpt(m->at);
    print_line(&e, out);
    print_carets(&e, m->at, out);
    if (m->fixit.text && m->fixit.at.src == e.src && m->fixit.at.begin >= e.begin &&
        m->fixit.at.begin <= e.end) {
        fprintf(out, "%*s", shown_column(&e, m->fixit.at.begin), "");
        put_clean(out, m->fixit.text);
        fputc('\n', out);
    }
}

void diags_print(Diags *d, FILE *out)
{
    for (int i = 0; i < d->messages.n; i++)
        print_message(&d->messages.at[i], out);
    if (d->too_many)
        fputs("burstc: error: too many errors emitted\n", out);
    d->messages.n = d->errors = 0;
    d->too_many = d->dropping = false;
}
