/* layout/table.c: the settings in order, and what they report about a choice. */
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
    if (!settings[i]->form->at)
        return false;
    Setting *s = (Setting *)((char *)l + settings[i]->form->at);
    const bool given = !s->is_auto;
    s->is_auto = true;
    return given;
}

bool setting_fits_each(int i, const Program *p)
{
    const SettingRecord *s = settings[i];
    if (s->trains && p->infer.lengths)
        return false;
    return s->spares && (s->fits_each ? s->fits_each(p) : setting_at(&p->layout, s->form->at)->is_auto);
}

Span setting_span(int i, const Layout *l)
{
    const SettingRecord *s = settings[i];
    if (!s->span)
        return setting_at(l, s->form->at)->span;
    return *(const Span *)(const void *)((const char *)l + s->span);
}

int choice_refused_by(Arena *a, const Program *p, const Choice *c)
{
    int i = 0;
    while (i < SETTING_COUNT && !(settings[i]->why_not && settings[i]->why_not(a, p, c)))
        i++;
    return i;
}

const char *choice_why_not(Arena *a, const Program *p, const Choice *c)
{
    const int by = choice_refused_by(a, p, c);
    return by < SETTING_COUNT ? settings[by]->why_not(a, p, c) : NULL;
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
