/* mix.h: which of several files a sequence is from: each has its share of any number of sequences in a row
 * from the first, within one. A table of MIX_SLOTS sequences is repeated, so that the n-th needs no others.
 */
#ifndef BURST_MIX_H
#define BURST_MIX_H

#include "core/internal.h"

enum { MIX_SLOTS = 1 << 16 };
typedef struct Mix {
    uint8_t file[MIX_SLOTS];
    uint16_t before[MIX_SLOTS];      /* of the same file, in the slots before */
    int32_t slots[BURST_DATA_FILES]; /* of each file; 0: its share is too small for one */
} Mix;

/* files: 1 to BURST_DATA_FILES; share: positive. */
void mix_make(Mix *m, const double *share, int files);
/* The file of the n-th sequence; *index: how many before it are from the same one. */
int mix_at(const Mix *m, int64_t n, int64_t *index);
#endif
