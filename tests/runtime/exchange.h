/* exchange.h: bodies that exchange messages in random patterns and check every byte: for one host and for
 * several. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "check.h"

typedef struct Exchange { uint64_t seed; int messages, most_floats; } Exchange;
/* Bytes of the arena that the bodies take on a world of this size. */
size_t exchange_arena(int world, const Exchange *e);
/* Point to point, posted in a random order and waited for in another. arg: Exchange. */
int exchange_messages(BurstCtx *c, const BurstPlan *p, void *arg);
/* Gathers, reduce-scatters, allreduces on strided groups, against sums done serially: same bits. arg:
 * Exchange. */
int exchange_collectives(BurstCtx *c, const BurstPlan *p, void *arg);
#endif
