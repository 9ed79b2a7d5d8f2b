/* escape.c: see escape.h. */
#include "escape.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The character at text; 0 bytes: none. What a longer form of a smaller number or a surrogate spells is none. */
static size_t decode(const char *text, uint32_t *character)
{
    static const struct { unsigned char mask, lead; uint32_t least; } form[] = {
        {0x80, 0x00, 1}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    const unsigned char *at = (const unsigned char *)text;
    for (size_t n = 0; n < sizeof form / sizeof *form; n++) {
        if ((*at & form[n].mask) != form[n].lead)
            continue;
        uint32_t c = *at & (unsigned char)~form[n].mask;
        for (size_t i = 1; i <= n; i++) {
            if ((at[i] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (at[i] & 0x3f);
        }
        *character = c;
        return c >= form[n].least && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) ? n + 1 : 0;
    }
    return 0;
}

size_t utf8_length(const char *text)
{
    uint32_t character;
    return decode(text, &character);
}

size_t shown_length(const char *text)
{
    /* ASCII's and Latin-1's controls; marks of direction, separators of lines; the mark of byte order; tags */
    static const struct { uint32_t first, last; } obeyed[] = {{0, 0x1f}, {0x7f, 0x9f}, {0x200b, 0x200f}, {0x2028, 0x202e},
                                                              {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xe0000, 0xe007f}};
    uint32_t character = 0;
    const size_t n = decode(text, &character);
    for (size_t i = 0; i < sizeof obeyed / sizeof *obeyed; i++)
        if (character >= obeyed[i].first && character <= obeyed[i].last)
            return 0;
    return n;
}

void escape_shown(char *text, size_t size)
{
    size_t kept = 0, n;
    while (text[kept] && (n = shown_length(text + kept)) > 0)
        kept += n;
    char *rest = text[kept] ? strdup(text + kept) : NULL;
    for (const char *at = rest; at && *at; at += n ? n : 1) {
        n = shown_length(at);
        if (kept + (n ? n : ESCAPED) >= size)
            break;
        if (n)
            memcpy(text + kept, at, n);
        else
            snprintf(text + kept, ESCAPED + 1, "\\x%02x", (unsigned char)*at);
        kept += n ? n : ESCAPED;
    }
    text[kept] = 0;
    free(rest);
}

char *escaped_utf8(const char *text)
{
    char *escaped = malloc(ESCAPED * strlen(text) + 1), *to = escaped;
    for (size_t n; to && *text; text += n ? n : 1) {
        n = utf8_length(text);
        memcpy(to, text, n);
        to += n ? n : (size_t)snprintf(to, ESCAPED + 1, "\\x%02x", (unsigned char)*text);
    }
    if (to)
        *to = 0;
    return escaped;
}
