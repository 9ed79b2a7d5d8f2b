/* executor.h: runs a schedule at all ranks with values, under the worst timing that its waits allow. */
#ifndef EXECUTOR_H
#define EXECUTOR_H

#include "attention/attention.h"

typedef struct Outcome {
    bool right;      /* every rank ends with every wanted pair once, whatever the timing */
    const char *why; /* what went wrong first; "" */
} Outcome;
/* live NULL: all operations run. pair[q * ranks * pieces + k]: the pairs wanted; NULL: all. The text lives
 * in the arena. */
Outcome execute(Arena *a, const Schedule *s, const Live *live, const uint8_t *pair);
/* The same where pairs have work for some tiles, tiles[q * ranks * pieces + k], of each chunk's first
 * `most`, and transfers carry live->tiles. */
Outcome execute_ranges(Arena *a, const Schedule *s, const Live *live, const uint8_t *pair,
                       const BurstPairTiles *tiles, int most);

#endif
