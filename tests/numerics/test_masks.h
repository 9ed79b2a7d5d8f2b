/* test_masks.h: the masks under test as C predicates, for the oracles: stock ones, then random ones. */
#ifndef TEST_MASKS_H
#define TEST_MASKS_H

#include "model64.h"

typedef struct TestMask {
    const char *text; /* in a model file */
    bool documents;   /* reads doc */
    bool (*keep)(int64_t q, int64_t k, const int32_t *doc);
    const Select64 *select; /* narrows it; NULL: no selection */
} TestMask;
extern const TestMask test_masks[];
extern const int test_mask_count;
/* NULL, with a word on stderr, where no mask is written so. */
const TestMask *test_mask_named(const char *text);
/* A mask on one document table, as the oracle wants it: (Mask64){mask_view_keep, &view}. */
typedef struct MaskView { const TestMask *mask; const int32_t *doc; } MaskView;
bool mask_view_keep(int64_t q, int64_t k, const void *view);

#endif
