/* settings/experts.c: `experts in N groups`: units of weights that a layer's experts are in, gathered and
 * reduced one after the other. */
#include "layout/layout.h"

#include <string.h>

enum { MOST = 32 };

static bool is_open(const Program *p) { return p->layout.expert_groups.is_auto && p->model.experts.experts; }

/* The n-th number of groups, from 1, that divides the experts; 0: there are fewer. */
static int groups_at(const Program *p, int n)
{
    const int experts = p->model.experts.experts;
    for (int groups = 1; groups <= experts && groups <= MOST; groups++)
        if (experts % groups == 0 && n-- == 0)
            return groups;
    return 0;
}

static int count(const Program *p)
{
    int n = 1;
    while (is_open(p) && groups_at(p, n))
        n++;
    return n;
}

static bool take(const Program *p, Choice *c, int n)
{
    c->expert_groups = is_open(p) ? groups_at(p, n) : (int)p->layout.expert_groups.value;
    return true;
}

static bool other(const Program *p, Choice *c, int n)
{
    c->expert_groups = p->model.experts.experts ? groups_at(p, n) : 0;
    return c->expert_groups > 0;
}

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    const Saving v = saving_of(c);
    (void)a, (void)p;
    if (c->expert_groups < 2)
        return NULL;
    if (saving_rule(v) == RECOMPUTES && saves(v.upper, "expert_gate_up"))
        return "groups of experts recompute expert_gate_up; remove it from `save`, or use `experts in 1 "
               "groups`";
    return NULL;
}

static const char *text(Arena *a, const Choice *c)
{
    return c->expert_groups > 1 ? arena_printf(a, "in %d groups", c->expert_groups) : NULL;
}

const SettingRecord setting_experts = {
    .form = &(const SettingForm){.name = "experts", .at = offsetof(Layout, expert_groups)},
    .column = 12,
    .if_several = true,
    .escalates = true,
    .spares = true,
    .trains = true,
    .count = count,
    .take = take,
    .other = other,
    .why_not = why_not,
    .text = text,
};
