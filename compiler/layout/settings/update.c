/* settings/update.c: `update`: where the optimizer state that `offload optimizer` keeps in host memory is
 * updated. */
#include "layout/layout.h"

static int count(const Program *p)
{
    return p->layout.host_optimizer && p->layout.update.is_auto ? form_update.word_count : 1;
}

/* Takes the n-th word. Returns false if the state is not on the host, or there are fewer words. */
static bool other(const Program *p, Choice *c, int n)
{
    (void)p;
    if (c->optimizer == OPTIMIZER_ON_DEVICE || n >= form_update.word_count)
        return false;
    c->optimizer = n ? OPTIMIZER_FETCHED : OPTIMIZER_ON_HOST;
    return true;
}

static bool take(const Program *p, Choice *c, int n)
{
    other(p, c, p->layout.update.is_auto ? n : (int)p->layout.update.value);
    return true;
}

static const char *text(Arena *a, const Choice *c)
{
    (void)a;
    return c->optimizer ? form_update.words[c->optimizer == OPTIMIZER_FETCHED] : NULL;
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)p;
    return c->optimizer == OPTIMIZER_ON_DEVICE
               ? "parameters and moments are in device memory; set `offload optimizer` or remove it"
               : NULL;
}

const SettingRecord setting_update = {
    .form = &form_update,
    .column = 6,
    .if_several = true,
    .count = count,
    .take = take,
    .trains = true,
    .other = other,
    .text = text,
    .idle = {{offsetof(Layout, update), idle}},
};
