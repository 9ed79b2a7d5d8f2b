/* settings/overlap.c: `overlap`: whether tensor ranks' communication overlaps products. */
#include "layout/layout.h"

static int count(const Program *p) { return program_tensor(p) > 1 && p->layout.overlap.is_auto ? 2 : 1; }

static bool take(const Program *p, Choice *c, int n)
{
    c->overlap = c->tensor && (p->layout.overlap.is_auto ? n == 0 : p->layout.overlap.value);
    return true;
}

static const char *text(Arena *a, const Choice *c)
{
    (void)a;
    return c->tensor ? form_overlap.words[c->overlap] : NULL;
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return p->layout.overlap.value && !c->tensor
               ? "it requires tensor parallelism; set `tensor 2` or remove it"
               : NULL;
}

const SettingRecord setting_overlap = {
    .form = &form_overlap,
    .column = 8,
    .if_several = true,
    .count = count,
    .take = take,
    .text = text,
    .idle = {{offsetof(Layout, overlap), idle}},
};
