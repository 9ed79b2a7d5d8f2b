/* escape.c: see escape.h. */
#include "base/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 4 }; /* bytes per character */

int utf8_length(const unsigned char *s, size_t left)
{
    static const struct { unsigned char first, last, second_low, second_high; int n; } forms[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (int i = 0; i < (int)(sizeof forms / sizeof *forms); i++) {
        if (s[0] < forms[i].first || s[0] > forms[i].last || left < (size_t)forms[i].n)
            continue;
        bool good = s[1] >= forms[i].second_low && s[1] <= forms[i].second_high;
        for (int j = 2; j < forms[i].n; j++)
            good = good && (s[j] & 0xc0) == 0x80;
        return good ? forms[i].n : 0;
    }
    return 0;
}

/* Length of the character of a zero-terminated text. */
static size_t character_length(const char *text)
{
    const size_t left = strnlen(text, LONGEST);
    return left && !(*text & 0x80) ? 1 : (size_t)utf8_length((const unsigned char *)text, left);
}

static uint32_t decode(const char *text, size_t n)
{
    static const unsigned char lead[LONGEST + 1] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t character = (unsigned char)*text & lead[n];
    for (size_t i = 1; i < n; i++)
        character = character << 6 | (text[i] & 0x3f);
    return character;
}

size_t shown_length(const char *text)
{
    /* controls of ASCII and Latin-1; marks of direction, line separators; the byte order mark */
    static const struct {
        uint32_t first, last;
    } obeyed[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x200b, 0x200f},  {0x2028, 0x202e},
                  {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xe0000, 0xe007f}};
    const size_t n = character_length(text);
    const uint32_t character = decode(text, n);
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

char *shown_text(const char *format, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    const size_t size = n < 0 ? 0 : ESCAPED * (size_t)n + 1;
    char *text = size ? malloc(size) : NULL;
    if (text) {
        vsnprintf(text, size, format, ap);
        escape_shown(text, size);
    }
    return text;
}

void print_shown(FILE *to, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    char *text = shown_text(format, ap);
    va_end(ap);
    fputs(text ? text : "(out of memory for a message)", to);
    free(text);
}

char *escaped_utf8(const char *text)
{
    char *escaped = malloc(ESCAPED * strlen(text) + 1), *to = escaped;
    for (size_t n; to && *text; text += n ? n : 1) {
        n = character_length(text);
        memcpy(to, text, n);
        to += n ? n : (size_t)snprintf(to, ESCAPED + 1, "\\x%02x", (unsigned char)*text);
    }
    if (to)
        *to = 0;
    return escaped;
}
