/* verify.h: what the tests of the verifier reach into. */
#ifndef VERIFY_H
#define VERIFY_H

#include "burst.h"

/* As verify_pruned, of what `live` says is left instead of what prune() finds. */
bool verify_live(Arena *a, Diags *d, const Schedule *s, Live live, const uint8_t *pair, const char *mask);

#endif
