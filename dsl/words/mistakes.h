/* words/mistakes.h: finds what was most likely meant by a text that does not parse. */
#ifndef BURST_WORDS_MISTAKES_H
#define BURST_WORDS_MISTAKES_H

#include "base/base.h"

/* text NULL: nothing is likely. fix: replaces the source at `at`; or NULL. */
typedef struct Mistake { Span at; const char *text, *fix; } Mistake;
/* at: the unexpected token. */
Mistake mistake_at(Arena *a, const Source *s, Span at);
/* Of a character that has no meaning; NULL: nothing is known of it. */
const char *foreign_character(const char *text);
/* The '{' of the innermost block that the text does not close; without a source: there is none. */
Span open_block(const Source *s);
/* Whether // begins another language's comment there; elsewhere it divides. */
bool is_comment_place(const Source *s, uint32_t at);
/* Why the ';' after the token that ended at last_end must go; NULL: it may stay. */
const char *needless_semicolon(const Source *s, uint32_t last_end);

#endif
