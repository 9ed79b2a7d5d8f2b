/* settings/data.c: `data` and `tensor`: the number of groups of ranks with sequences of their own, and the
 * number of ranks that split each layer's weights. Each `tensor` makes another program (search/search.c). */
#include "layout/layout.h"

static int count(const Program *p)
{
    return p->cluster.world / program_tensor(p);
}

/* Values start with the most groups, since small groups are judged quickly. If open: divisors of the ranks
 * and the batch with which every rank has a token. */
static bool take(const Program *p, Choice *c, int n)
{
    const int world = count(p), data = world - n;
    c->data = data;
    c->tensor = program_tensor(p) > 1 ? program_tensor(p) : 0;
    c->ranks = world / data;
    if (!p->layout.data.is_auto)
        return p->layout.data.value == data;
    return world % data == 0 && p->train.batch % data == 0 && c->ranks * choice_tensor(c) <= p->sequence;
}

static const char *data_text(Arena *a, const Choice *c)
{
    return arena_printf(a, "%d", c->data);
}

static const char *tensor_text(Arena *a, const Choice *c)
{
    return c->tensor ? arena_printf(a, "%d", c->tensor) : NULL;
}

const SettingRecord setting_data = {
    .form = &(const SettingForm){.name = "data", .at = offsetof(Layout, data)},
    .column = 5,
    .if_several = true,
    .count = count,
    .take = take,
    .text = data_text,
};

const SettingRecord setting_tensor = {
    .form = &(const SettingForm){.name = "tensor", .at = offsetof(Layout, tensor)},
    .column = 6,
    .if_several = true,
    .text = tensor_text,
};
