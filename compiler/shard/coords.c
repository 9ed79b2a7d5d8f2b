/* coords.c: the ranks of a group as a product of rings, one for each coordinate of the schedule.
 *
 * The layout gives the sizes (`context 4 x 8 x 2`). Without them, a last coordinate `lane` gets the ranks of
 * a node, and the other sizes are searched: every factorization of the number of ranks. */
#include "shard/shard.h"
#include "ir/expr.h"

#include <limits.h>
#include <string.h>

/* Ranks of a node that share a sequence; 0 where nodes do not divide evenly. */
static int lanes_of(const Cluster *c, int ranks)
{
    int lanes = c->groups[0].gpus;
    for (int g = 1; g < c->group_count; g++)
        if (c->groups[g].gpus != lanes)
            return 0;
    if (lanes % ranks == 0)
        return ranks;
    return ranks % lanes == 0 ? lanes : 0;
}

/* The known sizes; 0: open. */
static void known_sizes(const Program *p, const SchedText *t, int ranks, int size[MAX_COORDS])
{
    const Layout *l = &p->layout;
    memset(size, 0, sizeof *size * MAX_COORDS);
    for (int i = 0, ring = 0; i < t->coords && t->coords > 1; i++) {
        if (i == t->exchanged)
            size[i] = l->heads.is_auto ? 0 : (int)l->heads.value;
        else if (l->sizes.n)
            size[i] = (int)l->sizes.at[ring++];
        else if (t->rings == 1 && t->exchanged >= 0 && !l->context.is_auto)
            size[i] = (int)l->context.value;
    }
    if (!l->sizes.n && t->lanes && !size[t->coords - 1])
        size[t->coords - 1] = lanes_of(&p->cluster, ranks);
}

bool sched_has_levels(const SchedText *t) { return t->coords - t->lanes > 1; }

bool coords_asked(const Program *p, const SchedText *t)
{
    const Layout *l = &p->layout;
    const bool both = t->exchanged >= 0 && !l->heads.is_auto && !l->context.is_auto && l->heads.value > 1 &&
                      l->context.value > 1;
    return !sched_has_levels(t) || both || l->schedule || l->sizes.n;
}

bool coords_wanted(const Program *p, const SchedText *t)
{
    const Layout *l = &p->layout;
    if (l->sizes.n)
        return t->rings == l->sizes.n;
    return true;
}

/* The least size of an open coordinate: 2 for a schedule of several rings, since with size 1 it equals a
 * simpler schedule. */
static int least_size(const Program *p, const SchedText *t, int known)
{
    return known || p->layout.schedule || !sched_has_levels(t) ? 1 : 2;
}

/* The largest size of a coordinate: ranks that share heads are at most the heads. */
static int most_size(const Program *p, const SchedText *t, int i, int ranks)
{
    const int heads = p->model.heads;
    return i == t->exchanged && t->coords > 1 && !p->layout.schedule && heads < ranks ? heads : ranks;
}

typedef struct Shaper {
    int coords, known[MAX_COORDS], least[MAX_COORDS], most[MAX_COORDS];
    int size[MAX_COORDS], wanted, found;
} Shaper;

/* Chooses sizes from coordinate i on, whose product is `left`, until the wanted combination is found. */
static void fill_sizes(Shaper *s, int i, int left)
{
    if (i == s->coords)
        s->found += left == 1;
    for (int n = 1; i < s->coords && n <= left && s->found <= s->wanted; n++) {
        if (left % n || (s->known[i] && s->known[i] != n) || (i == s->coords - 1 && n != left) ||
            n < s->least[i] || n > s->most[i])
            continue;
        s->size[i] = n;
        fill_sizes(s, i + 1, left / n);
    }
}

static Shaper shaper_of(const Program *p, const SchedText *t, const int *known, int ranks, int wanted)
{
    Shaper s = {.coords = t->coords, .wanted = wanted};
    for (int i = 0; i < t->coords; i++) {
        s.known[i] = known ? known[i] : 0;
        s.least[i] = least_size(p, t, s.known[i]);
        s.most[i] = most_size(p, t, i, ranks);
    }
    return s;
}

int coords_most(const Program *p)
{
    int most = 1;
    for (int i = 0; i < p->schedule_count; i++) {
        Shaper s = shaper_of(p, p->schedules[i], NULL, p->cluster.world, INT_MAX);
        if (coords_wanted(p, p->schedules[i]))
            fill_sizes(&s, 0, p->cluster.world / program_tensor(p));
        most = s.found > most ? s.found : most;
    }
    return most;
}

bool coords_take(const Program *p, Choice *c, int n)
{
    const SchedText *t = c->schedule;
    int known[MAX_COORDS];
    known_sizes(p, t, c->ranks, known);
    Shaper s = shaper_of(p, t, known, c->ranks, n);
    bool uneven = !p->layout.sizes.n && t->lanes && !s.known[t->coords - 1];
    if (!uneven)
        fill_sizes(&s, 0, c->ranks);
    if (s.found <= n)
        return false;
    choice_set_sizes(c, t->coords, s.size);
    return true;
}

bool coords_open(const Program *p, const Choice *c)
{
    int known[MAX_COORDS], open = 0;
    known_sizes(p, c->schedule, c->ranks, known);
    for (int i = 0; i < c->coords; i++)
        open += !known[i];
    return c->ranks > 1 && open > 1;
}

/* The requirement of the schedule that these sizes break; NULL: none. */
static const char *required(Arena *a, const Choice *c)
{
    int64_t var[MAX_SCHED_VARS] = {0};
    for (int i = 0; i < c->coords; i++)
        var[MAX_COORDS + i] = c->size[i];
    for (const Require *r = c->schedule->requires; r; r = r->next)
        if (!expr_eval(r->cond, 0, 0, var, NULL))
            return arena_printf(a, "%s %s requires `%.*s`",
                                r->span.src == c->schedule->source ? "schedule" : "a schedule used by",
                                c->schedule->name, (int)(r->span.end - r->span.begin),
                                r->span.src->text + r->span.begin);
    return NULL;
}

const char *coords_why_not(Arena *a, const Program *p, const Choice *c)
{
    if (c->coords)
        return required(a, c);
    return arena_printf(a,
                        p->layout.sizes.n || c->schedule->exchanged >= 0
                            ? "the layout's context sizes do not multiply to %d rank%s"
                            : "%d rank%s do not divide into nodes of equal size",
                        c->ranks, plural(c->ranks));
}
