#ifndef COVER_H
#define COVER_H

#include "mask/internal.h"

Cover mask_cover(const Expr *e, int64_t q_lo, int64_t q_last, int64_t k_lo, int64_t k_last);

#endif
