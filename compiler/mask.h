/* mask.h: what the files of the mask pass share; nobody else includes it. */
#ifndef MASK_H
#define MASK_H

#include "burst.h"

#include "burst_mask.h"

/* mask_text.c */
/* The expression in the language of .burst, with the fewest parentheses; table_name may be NULL (then t0, t1, ...). */
void mask_text(const Expr *e, const Table *tables, Text *out);
/* text as the inside of a C comment or string literal. */
void mask_comment(const char *text, Text *out);
void mask_quote(const char *text, Text *out);

/* mask_interval.c */
/* Sides without tables: their values may be anything. */
BurstSide mask_side(int64_t lo, int64_t last);
int mask_cover_sides(const Expr *e, const BurstSide *q, const BurstSide *k);
bool mask_is_comparison(ExprOp op);

#endif
