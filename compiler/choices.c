/* choices.c: the words of a layout's choices whose rows are in burst.h. */
#include "burst.h"

const char *const range_names[2] = {"no", "yes"}, *const gradient_names[2] = {"fp32", "bf16"};
const char *const sharding_names[SHARDINGS] = {
#define X(id, name, weights, gradients) name,
    SHARDING_ROWS(X)
#undef X
};
