/* settings/shares.c: `shares`: relative numbers of tokens of ranks of different speed. */
#include "layout/layout.h"

static int count(const Program *p)
{
    (void)p;
    return SHARES_KINDS;
}

/* If open, by the speed of ranks that differ. An all-to-all divides attention by heads, so only the rest by
 * tokens. */
static bool take(const Program *p, Choice *c, int n)
{
    const Setting *given = &p->layout.shares;
    c->shares = c->ranks == 1 ? SHARES_EQUAL : (SharesKind)n;
    if (!given->is_auto)
        return given->value == n;
    return n == SHARES_EQUAL ||
           (n != SHARES_GIVEN && (n == SHARES_REST || !choice_exchanges(c)) && shares_differ(p, c));
}

static const char *text(Arena *a, const Choice *c)
{
    (void)a;
    return c->shares_text;
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return c->ranks == 1 && p->layout.shares.value == SHARES_GIVEN ? idle_on_one_rank : NULL;
}

const SettingRecord setting_shares = {
    .form = &(const SettingForm){.name = "shares", .at = offsetof(Layout, shares)},
    .column = 20,
    .if_several = true,
    .count = count,
    .take = take,
    .why_not = shares_why_not,
    .text = text,
    .idle = {{offsetof(Layout, shares), idle}},
};
