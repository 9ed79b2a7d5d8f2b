/* mix.h: chooses the file of each sequence: in any prefix of the order, each file has its share within one
 * sequence. A table of MIX_SLOTS sequences repeats, so that the n-th is computed directly. */
#ifndef BURST_MIX_H
#define BURST_MIX_H

#include "burst_plan.h"

enum { MIX_SLOTS = 1 << 16 };
typedef struct Mix {
    uint8_t file[MIX_SLOTS];
    uint16_t before[MIX_SLOTS];      /* earlier slots of the same file */
    int32_t slots[BURST_DATA_FILES]; /* of each file; 0: its share is too small for one */
} Mix;

/* files: 1 to BURST_DATA_FILES; share: positive. */
void mix_make(Mix *m, const double *share, int files);
/* The file of the n-th sequence; *index: earlier sequences from the same file. */
int mix_at(const Mix *m, int64_t n, int64_t *index);
#endif
