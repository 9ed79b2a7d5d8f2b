/* layout/table.c: the settings in their order, and what is said of a choice by all of them. */
#include "layout/layout.h"

const SettingRecord *const settings[SETTING_COUNT] = {
#define X(id, name) &setting_##name,
    SETTINGS(X)
#undef X
};

bool setting_leave_open(int i, Layout *l)
{
    if (settings[i]->leave_open)
        return settings[i]->leave_open(l);
    Setting *s = (Setting *)((char *)l + settings[i]->form->at);
    const bool given = !s->is_auto;
    s->is_auto = true;
    return given;
}

bool setting_fits_each(int i, const Program *p)
{
    const SettingRecord *s = settings[i];
    return s->spares && (s->fits_each ? s->fits_each(p) : setting_at(&p->layout, s->form->at)->is_auto);
}

const char *choice_why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *reason = NULL;
    for (int i = 0; i < SETTING_COUNT && !reason; i++)
        reason = settings[i]->why_not ? settings[i]->why_not(a, p, c) : NULL;
    return reason;
}

const char *choice_text(Arena *a, const Choice *c)
{
    const char *all = "layout {";
    for (int i = 0; i < SETTING_COUNT; i++) {
        const char *text = settings[i]->text(a, c);
        all = text ? arena_printf(a, "%s %s %s;", all, settings[i]->form->name, text) : all;
    }
    return arena_printf(a, "%s }", all);
}
