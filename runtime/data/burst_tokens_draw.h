/* burst_tokens_draw.h: `burst-tokens --draw`: documents of random tokens, whose lengths are drawn. */
#ifndef BURST_TOKENS_DRAW_H
#define BURST_TOKENS_DRAW_H

#include "data/lengths.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct Drawing {
    const Lengths *lengths;
    uint64_t seed;
    int64_t documents, vocabulary;
    int width;    /* bytes per token */
    bool listing; /* writes lengths as text instead of tokens */
} Drawing;

/* Errors are left to ferror. */
void drawing_write(const Drawing *d, FILE *out);

#endif
