/* words/mistakes.h: what was most likely meant where a text does not parse. */
#ifndef BURST_WORDS_MISTAKES_H
#define BURST_WORDS_MISTAKES_H

#include "base/base.h"

/* text NULL: nothing is likely. fix: in place of what stands at `at`, or NULL. */
typedef struct Mistake { Span at; const char *text, *fix; } Mistake;
/* at: the token that cannot stand there. */
Mistake mistake_at(Arena *a, const Source *s, Span at);
/* Whether // there begins a comment of another language; elsewhere it divides. */
bool is_comment_place(const Source *s, uint32_t at);
/* Why a ';' after the token that ended at last_end must go; NULL: it may stay. */
const char *needless_semicolon(const Source *s, uint32_t last_end);

#endif
