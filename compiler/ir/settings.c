/* ir/settings.c: the syntax of settings whose value is a word or a count. */
#include "ir/layout.h"

#include <stddef.h>

#define X(member, name, otherwise, ...) \
    static const char *const words_##member[] = {__VA_ARGS__}; \
    const SettingForm form_##member = {name, offsetof(Layout, member), OTHERWISE_##otherwise, \
                                       words_##member, countof(words_##member)};
WORD_SETTINGS(X)
#undef X

#define X(member, name, otherwise, least, most) \
    const SettingForm form_##member = {name, offsetof(Layout, member), OTHERWISE_##otherwise, NULL, 0, \
                                       least, most};
COUNT_SETTINGS(X)
#undef X

const SettingForm *const setting_forms[] = {
#define X(member, ...) &form_##member,
    WORD_SETTINGS(X) COUNT_SETTINGS(X)
#undef X
        NULL};

const Setting *setting_at(const Layout *l, size_t at)
{
    return (const Setting *)((const char *)l + at);
}

void settings_otherwise(Layout *l)
{
    for (int i = 0; setting_forms[i]; i++) {
        const SettingForm *form = setting_forms[i];
        Setting *s = (Setting *)((char *)l + form->at);
        *s = (Setting){.value = form->least, .is_auto = form->otherwise == OTHERWISE_AUTO};
    }
}
