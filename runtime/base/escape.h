/* escape.h: makes outside text (names, other people's files) safe for a terminal and for JSON: UTF-8 without
 * control characters. Used by the compiler and by programs, so without BurstCtx. */
#ifndef BURST_ESCAPE_H
#define BURST_ESCAPE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

enum { ESCAPED = 4 }; /* bytes that replace one: "\xNN" */

/* Bytes of the valid multi-byte UTF-8 character at s; 0: there is none. */
int utf8_length(const unsigned char *s, size_t left);
/* Bytes of the character at text, which is zero-terminated; 0: there is none, or it is a control character,
 * or one that reverses or hides text. */
size_t shown_length(const char *text);
/* Replaces every byte that is not shown by \xNN, in place, and truncates the result to size. */
void escape_shown(char *text, size_t size);
/* The formatted text with every byte that is not shown as \xNN; the caller frees it. NULL: out of memory. */
char *shown_text(const char *format, va_list ap);
/* Prints it. Names reach a terminal only through this, say_line or burst_fail. */
__attribute__((format(printf, 2, 3))) void print_shown(FILE *to, const char *format, ...);
/* The text with every byte outside of UTF-8 characters as \xNN; the caller frees it. NULL: out of memory. */
char *escaped_utf8(const char *text);

#endif
