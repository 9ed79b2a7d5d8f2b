/* pack.h: packs documents into sequences by best fit (Ding et al., arXiv 2404.10830): documents that fit are
 * not cut, as far as full sequences allow. Every token is in one sequence, and only one sequence is not
 * full. */
#ifndef BURST_PACK_H
#define BURST_PACK_H

#include "burst_plan.h"

/* Consecutive tokens of the file and of a sequence. */
typedef struct Piece {
    int64_t begin, length;
} Piece;
typedef struct Packed {
    int64_t sequences;
    int64_t *first; /* [sequences + 1]: the first piece of each */
    Piece *piece;
} Packed;

/* first [documents + 1]: first token of each document, then the number of tokens. Returns false if out of
 * memory. The result depends only on the arguments. packed_free releases it, also after a failure. p: zeroed
 * memory. */
bool packed_make(Packed *p, const int64_t *first, int64_t documents, int64_t sequence);
void packed_free(Packed *p);
#endif
