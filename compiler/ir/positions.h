/* ir/positions.h: the positions of a rank's tokens. */
#ifndef BURST_IR_POSITIONS_H
#define BURST_IR_POSITIONS_H

#include "base/base.h"

/* Positions start + j*stride + t for j < count, t < run, in that order (j outermost). run <= stride. */
typedef struct Piece { int64_t start, run, stride, count; } Piece;
/* local order: piece after piece */
typedef struct PosSet { int64_t tokens; int npieces; const Piece *pieces; } PosSet;
PosSet pos_first(Arena *a, const PosSet *s, int64_t tokens); /* the first `tokens` positions */
PosSet pos_run(Piece *p, int64_t begin, int64_t end); /* one run; stored in p */
int64_t pos_cut(int64_t tokens, int i, int shares);   /* start of the i-th of `shares` contiguous shares */
PosSet pos_share(Arena *a, const PosSet *s, int i, int shares); /* the i-th share of the local order */
/* Appends a piece or a run. Leaves out an empty one and merges a run that continues the last. pieces: the
 * array of s, with space for one more. */
void pos_add_piece(PosSet *s, Piece *pieces, Piece p);
void pos_add_run(PosSet *s, Piece *pieces, int64_t begin, int64_t end);
int64_t pos_piece_tokens(const Piece *p);
int64_t pos_before(const PosSet *s, int64_t x);       /* number of positions less than x */

#endif
