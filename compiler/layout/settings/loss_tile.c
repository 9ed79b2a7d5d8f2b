/* settings/loss_tile.c: `loss tile`: tokens whose logits are there at once: as many as suit the
 * vocabulary; where memory requires it a half, a quarter, an eighth of them.
 */
#include "layout/layout.h"

enum { HALVINGS = 3 };

static bool is_open(const Program *p)
{
    return p->layout.loss_tile.is_auto;
}

static int count(const Program *p)
{
    return is_open(p) ? HALVINGS + 1 : 1;
}

static int64_t tile_at(const Program *p, int halvings)
{
    const int64_t tile = choice_loss_tile(p, &(Choice){0}) >> halvings;
    if (halvings == 0)
        return 0;
    return tile < LEAST_LOSS_TILE ? LEAST_LOSS_TILE : tile;
}

static bool take(const Program *p, Choice *c, int n)
{
    c->loss_tile = is_open(p) ? tile_at(p, n) : p->layout.loss_tile.value;
    return true;
}

static bool other(const Program *p, Choice *c, int n)
{
    c->loss_tile = tile_at(p, n);
    return n <= HALVINGS;
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
    .other = other,
    .text = text,
};
