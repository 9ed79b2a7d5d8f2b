/* pack.h: documents packed into sequences by best fit (Ding et al., arXiv 2404.10830): none is cut that fits,
 * as far as the sequences are full for it. Every token is in one sequence, and only one sequence is not full.
 */
#ifndef BURST_PACK_H
#define BURST_PACK_H

#include "core/internal.h"

/* Tokens that follow each other in the file and in a sequence. */
typedef struct Piece {
    int64_t begin, length;
} Piece;
typedef struct Packed {
    int64_t sequences;
    int64_t *first; /* [sequences + 1]: the first piece of each */
    Piece *piece;
} Packed;

/* first [documents + 1]: first token of each document, then the number of tokens. false: out of memory. The
 * result is a function of the arguments alone; packed_free releases it, also after a failure. p is zeroed
 * memory. */
bool packed_make(Packed *p, const int64_t *first, int64_t documents, int64_t sequence);
void packed_free(Packed *p);
#endif
