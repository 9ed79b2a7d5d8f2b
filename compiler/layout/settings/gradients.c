/* settings/gradients.c: `gradients`: the format in which weight gradients are kept. */
#include "layout/layout.h"

static int count(const Program *p)
{
    (void)p;
    return 1;
}

static bool take(const Program *p, Choice *c, int n)
{
    (void)n;
    c->bf16_gradients = p->layout.gradients.value;
    return true;
}

static const char *text(Arena *a, const Choice *c)
{
    (void)a;
    return c->bf16_gradients ? form_gradients.words[1] : NULL;
}

const SettingRecord setting_gradients = {
    .form = &form_gradients,
    .count = count,
    .take = take,
    .text = text,
};
