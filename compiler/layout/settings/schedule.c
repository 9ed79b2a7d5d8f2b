/* settings/schedule.c: `schedule`: how chunks travel between ranks. */
#include "layout/layout.h"

#include <string.h>

static int count(const Program *p)
{
    return p->schedule_count;
}

/* Order of trial; the first of equally fast schedules wins: no pieces first, then fewer coordinates, then
 * the well-known ring. Schedules with pieces also take longest to simulate, and simulation ends early once a
 * faster one is known. */
enum { SCHEDULE_ORDERS = 4 * (MAX_COORDS + 1) };

static int schedule_order(const SchedText *t)
{
    return (t->pieces > 1 ? SCHEDULE_ORDERS / 2 : 0) + 2 * t->coords + (strcmp(t->name, "ring") != 0);
}

static const SchedText *schedule_at(const Program *p, int n)
{
    for (int order = 0; order < SCHEDULE_ORDERS; order++)
        for (int i = 0; i < p->schedule_count; i++)
            if (schedule_order(p->schedules[i]) == order && n-- == 0)
                return p->schedules[i];
    return NULL;
}

/* If open, schedules with pieces are tried only with few chunks: pairs of chunks to count and simulate grow
 * with their square. */
static bool take(const Program *p, Choice *c, int n)
{
    enum { MOST_CHUNKS = 512 };
    c->schedule = schedule_at(p, n);
    const bool named = p->layout.schedule && strcmp(p->layout.schedule, c->schedule->name) == 0;
    const bool tried = !p->layout.schedule && (choice_pieces(c) == 1 || choice_chunks(c) <= MOST_CHUNKS);
    return (named || tried) && coords_wanted(p, c->schedule);
}

const char *schedule_text(Arena *a, const Choice *c)
{
    return c->of_mask ? by_mask_text(a, c, schedule_text) : c->schedule->name;
}

static bool leave_open(Layout *l)
{
    const bool given = l->schedule && !l->of_mask;
    l->schedule = NULL;
    return given;
}

const SettingRecord setting_schedule = {
    .form = &(const SettingForm){.name = "schedule"},
    .span = offsetof(Layout, schedule_span),
    .column = 11,
    .count = count,
    .take = take,
    .leave_open = leave_open,
    .why_not = layers_why_not,
    .text = schedule_text,
};
