/* generate.h: random schedules. */
#ifndef GENERATE_H
#define GENERATE_H

#include "cases.h"

/* The text of a schedule with both directions: pairs, passes, returns and exchanges in any mix, for this
 * shape. Made right, and then, more often than not, changed somewhere. */
void generate_schedule(Random *r, RankShape shape, Text *out);

#endif
