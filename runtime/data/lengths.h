/* lengths.h: distributions of document lengths, from which plans, tests and benchmarks draw batches. Four
 * sets from published tables have names; others are read from a text. Used by the compiler and by programs,
 * so without BurstCtx. Equal states give equal lengths. */
#ifndef BURST_DATA_LENGTHS_H
#define BURST_DATA_LENGTHS_H

#include <stddef.h>
#include <stdint.h>

#define LENGTHS_MOST (INT64_C(1) << 31) /* tokens per document */
enum { LENGTHS_SET_COUNT = 5 };

/* The share of documents up to a length: share ascends from 0 to 1, tokens ascends. Between knots lengths
 * are drawn log-uniformly. */
typedef struct LengthKnot {
    double share, tokens;
} LengthKnot;

/* A set of knots; or a list of lengths, each with the cumulative number of documents. */
typedef struct Lengths {
    const char *name;
    int knots;
    const LengthKnot *knot;
    int64_t listed;
    int64_t *length, *until; /* [listed]; until: documents with this or an earlier length of the list */
} Lengths;

extern const Lengths lengths_sets[LENGTHS_SET_COUNT];
const Lengths *lengths_named(const char *name); /* NULL: none has that name */

/* Reads a text with a length a line, optionally followed by the number of documents that have it; `#` begins
 * a comment. Returns NULL, or what is wrong, in `why`; line: its number, from 1 on. */
enum { LENGTHS_WHY = 160 };
const char *lengths_read(Lengths *to, const char *text, size_t bytes, int64_t *line, char why[LENGTHS_WHY]);
void lengths_free(Lengths *l); /* for lengths from lengths_read */

uint64_t lengths_random(uint64_t *state);
int64_t lengths_draw(const Lengths *l, uint64_t *state); /* from 1 to LENGTHS_MOST */

#endif
