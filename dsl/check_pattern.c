/* check_pattern.c: pattern files: rows of 0s and 1s. */
#include "check.h"

#include <errno.h>
#include <string.h>

/* Parses rows of 0s and 1s, one row a line; blanks are ignored. */
static const char *read_pattern(Arena *a, const char *text, size_t len, Pattern *out)
{
    uint8_t *bits = NEW_ARRAY(a, uint8_t, len);
    int64_t row_length = 0, n = 0;
    for (size_t i = 0; i <= len; i++) {
        char ch = i < len ? text[i] : '\n';
        if (ch == '0' || ch == '1') {
            bits[n++] = (uint8_t)(ch - '0');
            row_length++;
        } else if (ch == '\n' && row_length) {
            if (out->rows && row_length != out->cols)
                return arena_printf(a, "row %lld has %lld entries, but row 1 has %lld",
                                    (long long)out->rows + 1, (long long)row_length, (long long)out->cols);
            out->cols = row_length;
            out->rows++;
            row_length = 0;
        } else if (!strchr(" \t\r\n", ch) || !ch) {
            return "only 0, 1 and white space are allowed";
        }
    }
    out->bits = bits;
    return out->rows ? NULL : "it has no rows";
}

static void sum_pattern(Arena *a, Pattern *p)
{
    uint32_t *sums = NEW_ARRAY(a, uint32_t, (p->rows + 1) * (p->cols + 1)), *at = sums + p->cols + 1;
    for (int64_t r = 0; r < p->rows; r++, at += p->cols + 1)
        for (int64_t c = 0; c < p->cols; c++)
            at[c + 1] = at[c] + at[c - p->cols] - at[c - p->cols - 1] + p->bits[r * p->cols + c];
    p->sums = sums;
}

const Pattern *load_pattern(Checker *c, const Ast *a)
{
    const char *path = path_beside(c->arena, a->span, a->text), *text = NULL;
    const LoadedPattern *known = name_find(&c->patterns, path);
    if (known)
        return known->pattern;
    Pattern *p = NEW(c->arena, Pattern);
    size_t len;
    p->path = a->text;
    errno = EINVAL;
    if (is_plain_file(path))
        text = read_file(c->arena, path, &len);
    if (!text) {
        diag_error(c->diags, a->name_span, "cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    add_input(c, path);
    const char *fault = read_pattern(c->arena, text, len, p);
    if (fault)
        diag_error(c->diags, a->name_span, "'%s' is not a pattern: %s", path, fault);
    else if (p->rows < INT32_MAX / (p->cols + 1))
        sum_pattern(c->arena, p);
    LoadedPattern *loaded = NEW(c->arena, LoadedPattern);
    loaded->pattern = fault ? NULL : p;
    name_add(c->arena, &c->patterns, path, loaded);
    return loaded->pattern;
}
