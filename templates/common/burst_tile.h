/* burst_tile.h: what a call of attention has of a layer's queries and keys, as an operand of the call; on
 * either target. */
#ifndef BURST_TILE_H
#define BURST_TILE_H

#include <stdbool.h>

/* All zero: all of both. */
typedef struct PlanTile {
    int queries, keys; /* which chunk of this rank's */
    bool resumes;      /* o, lse and dq are there of the keys before these */
    bool suspends;     /* keys follow that these queries attend to */
    bool adds;         /* dk and dv are there of the queries before these */
    bool has_keys;     /* keys of all that share heads were exchanged before */
    bool keeps_sums;   /* their gradients are exchanged later: queries follow that add to them */
} PlanTile;

#endif
