/* ir/positions.h: positions of a rank's tokens. */
#ifndef BURST_IR_POSITIONS_H
#define BURST_IR_POSITIONS_H

#include "base/base.h"

/* Positions start + j*stride + t for j < count, t < run, in that order (j outer). run <= stride. */
typedef struct Piece { int64_t start, run, stride, count; } Piece;
/* local order: pieces in turn */
typedef struct PosSet { int64_t tokens; int npieces; const Piece *pieces; } PosSet;
PosSet pos_first(Arena *a, const PosSet *s, int64_t tokens); /* its first so many */
PosSet pos_run(Piece *p, int64_t begin, int64_t end); /* one run; p is its piece */
int64_t pos_cut(int64_t tokens, int i, int shares);   /* where the i-th of so many contiguous shares begins */
PosSet pos_share(Arena *a, const PosSet *s, int i, int shares); /* of the local order */
/* Appends a piece, or a run; leaves out an empty one and joins a run to the one before where they touch.
 * pieces: s's, with room. */
void pos_add_piece(PosSet *s, Piece *pieces, Piece p);
void pos_add_run(PosSet *s, Piece *pieces, int64_t begin, int64_t end);
int64_t pos_piece_tokens(const Piece *p);
int64_t pos_before(const PosSet *s, int64_t x);       /* how many positions are less than x */

#endif
