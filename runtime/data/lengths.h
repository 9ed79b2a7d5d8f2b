/* lengths.h: distributions of document lengths, from which plans, tests and benchmarks draw batches. Four
 * sets are known by name, from published tables; others are read from a text. For the compiler and for
 * programs: no BurstCtx. The same state gives the same lengths.
 */
#ifndef BURST_DATA_LENGTHS_H
#define BURST_DATA_LENGTHS_H

#include <stddef.h>
#include <stdint.h>

#define LENGTHS_MOST (INT64_C(1) << 31) /* tokens of a document */
enum { LENGTHS_SET_COUNT = 5 };

/* Documents up to a length, of all: share ascends from 0 to 1, tokens ascends. Between two of them lengths
 * are drawn log-uniformly. */
typedef struct LengthKnot {
    double share, tokens;
} LengthKnot;

/* A set by its knots; or a list of lengths, each with the number of documents up to it. */
typedef struct Lengths {
    const char *name;
    int knots;
    const LengthKnot *knot;
    int64_t listed;
    int64_t *length, *until; /* [listed]; until: documents with this or an earlier length of the list */
} Lengths;

extern const Lengths lengths_sets[LENGTHS_SET_COUNT];
const Lengths *lengths_named(const char *name); /* NULL: none has that name */

/* Reads a text with a length a line, after it the number of documents that have it where that is not 1;
 * `#` begins a comment. NULL, or what is wrong, in `why`; line: where, from 1 on. */
enum { LENGTHS_WHY = 160 };
const char *lengths_read(Lengths *to, const char *text, size_t bytes, int64_t *line, char why[LENGTHS_WHY]);
void lengths_free(Lengths *l); /* of one that was read */

uint64_t lengths_random(uint64_t *state);
int64_t lengths_draw(const Lengths *l, uint64_t *state); /* from 1 to LENGTHS_MOST */

#endif
