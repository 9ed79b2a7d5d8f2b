/* settings/placement.c: `placement`: which rank of the cluster has which chunk of which group
 * (shard/placement.c). */
#include "layout/layout.h"

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)p;
    int axes = c->data > 1;
    for (int i = 0; i < c->coords; i++)
        axes += c->size[i] > 1;
    return axes < 2 ? "fewer than two axes have more than one rank; remove it" : NULL;
}

const SettingRecord setting_placement = {
    .form = &(const SettingForm){.name = "placement", .at = offsetof(Layout, placement)},
    .column = 16,
    .if_several = true,
    .count = placement_count,
    .take = placement_take,
    .why_not = placement_why_not,
    .text = placement_text,
    .idle = {{offsetof(Layout, placement), idle}},
};
