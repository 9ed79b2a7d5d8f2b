/* settings/loss_tile.c: `loss tile`: tokens whose logits exist at a time: a default for the vocabulary, and
 * a half, a quarter, ... of it if memory requires that. */
#include "layout/layout.h"

/* Most halvings of `loss tile auto`. `loss fused` on a device has a tile of up to 2 GiB, or a quarter of
 * that. */
enum { HALVINGS = 5, FUSED_HALVINGS = 2 };

/* Down to the smallest tile allowed. */
static int halvings(const Program *p)
{
    const int64_t tile = choice_loss_tile(p, &(Choice){0});
    int n = 0;
    while (n < HALVINGS && tile >> n > LEAST_LOSS_TILE)
        n++;
    return n;
}

static int count(const Program *p)
{
    if (p->layout.loss_tile.is_auto)
        return halvings(p) + 1;
    return p->layout.loss_tile.value == 0 && p->target->device_memory ? 2 : 1;
}

static int64_t tile_at(const Program *p, int halved)
{
    const int64_t tile = choice_loss_tile(p, &(Choice){0}) >> halved;
    if (halved == 0)
        return 0;
    return tile < LEAST_LOSS_TILE ? LEAST_LOSS_TILE : tile;
}

static bool take(const Program *p, Choice *c, int n)
{
    if (p->layout.loss_tile.is_auto)
        c->loss_tile = tile_at(p, n);
    else
        c->loss_tile = n > 0 ? tile_at(p, FUSED_HALVINGS) : p->layout.loss_tile.value;
    return true;
}

static bool other(const Program *p, Choice *c, int n)
{
    c->loss_tile = tile_at(p, n);
    return n <= halvings(p);
}

static const char *text(Arena *a, const Choice *c)
{
    return c->loss_tile ? arena_printf(a, "%lld", (long long)c->loss_tile) : NULL;
}

const SettingRecord setting_loss_tile = {
    .form = &(const SettingForm){.name = "loss tile", .at = offsetof(Layout, loss_tile)},
    .column = 9,
    .if_several = true,
    .escalates = true,
    .escalates_first = true,
    .spares = true,
    .count = count,
    .take = take,
    .trains = true,
    .other = other,
    .text = text,
};
