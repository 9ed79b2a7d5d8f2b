/* lists.c: records the blocks that tiles of an emitted program choose. The program is compiled with
 * PLAN_SEE_CHOSEN, which calls see_chosen. */
#include "burst_attend.h"

#include <stdlib.h>
#include <string.h>

void see_chosen(const BurstSelection *how, int64_t tiles, int64_t words, const int32_t *lists);
const int32_t *recorded_lists(int64_t *count);

static int32_t *record;
static int64_t recorded;

const int32_t *recorded_lists(int64_t *count)
{
    *count = recorded;
    return record;
}

void see_chosen(const BurstSelection *how, int64_t tiles, int64_t words, const int32_t *lists)
{
    (void)how;
    record = realloc(record, sizeof *record * (size_t)(recorded + tiles * words + 1));
    if (!record)
        exit(3);
    memcpy(record + recorded, lists, sizeof *record * (size_t)(tiles * words));
    recorded += tiles * words;
}
