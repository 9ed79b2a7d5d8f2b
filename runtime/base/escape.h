/* escape.h: text from outside (names, other people's files) as a terminal and a reader of JSON can take it:
 * UTF-8 without control characters. For the compiler and for programs: no BurstCtx. */
#ifndef BURST_ESCAPE_H
#define BURST_ESCAPE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

enum { ESCAPED = 4 }; /* bytes that stand for one: "\xNN" */

/* Bytes of the valid UTF-8 character of more than one byte at s, 0 where there is none. */
int utf8_length(const unsigned char *s, size_t left);
/* Bytes of the character at text, which ends with a zero byte; 0 where there is none, or one that a terminal
 * obeys instead of showing it: controls, and those that turn or hide text. */
size_t shown_length(const char *text);
/* Writes every byte of what is not shown as \xNN, in place; cuts what then is too long. */
void escape_shown(char *text, size_t size);
/* The formatted text with every byte of what is not shown as \xNN, however long; the caller frees. NULL:
 * no memory. */
char *shown_text(const char *format, va_list ap);
/* Prints it: all that goes to a terminal with a name in it does so through this, say_line or burst_fail. */
__attribute__((format(printf, 2, 3))) void print_shown(FILE *to, const char *format, ...);
/* The text with every byte that is not of a UTF-8 character as \xNN; the caller frees. NULL: no memory. */
char *escaped_utf8(const char *text);

#endif
