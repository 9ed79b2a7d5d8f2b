/* peaked.h: answers for peaked rows; see peaked.c. */
#ifndef PEAKED_H
#define PEAKED_H

#include "expected.h"

/* shape: heads, key heads, head_dim (more than 8), tokens. NULL: out of memory. */
Expected *peaked_make(const int *shape);

#endif
