/* shares.c: divides a sequence over ranks of different speed: each gets tokens in proportion to its share.
 *
 * Ranks meet at every attention, so a step is the slowest rank's attention plus the slowest rank's other
 * work. Both are linear in a rank's tokens. The sum is smallest if one of the two is balanced, or, with more
 * than two kinds of devices, near the balance of both together. The search tries these three in addition to
 * equal shares. */
#include "cost/cost.h"

#include <limits.h>
#include <math.h>
#include <string.h>

typedef struct Speed {
    const Device *device;
    double seconds[2]; /* per token: attention, everything else */
    int share;
} Speed;
struct Speeds { int n; Speed at[]; };

static const char *const shares_names[SHARES_KINDS] = {
#define X(id, name) name,
    SHARES_ROWS(X)
#undef X
};

static Speed *speed_of(Speeds *s, const Device *d)
{
    int i = 0;
    while (i < s->n && s->at[i].device != d)
        i++;
    return &s->at[i];
}

/* Groups of nodes with the same device count as the slowest of them: CPUs may have fewer cores each. */
Speeds *shares_speeds(Arena *a, const Program *p, const double *pairs)
{
    const Cluster *c = &p->cluster;
    Speeds *s = arena_alloc(a, sizeof *s + sizeof *s->at * (size_t)(c->group_count + 1));
    for (int g = 0, rank = 0; g < c->group_count; rank += c->groups[g].nodes * c->groups[g].gpus, g++) {
        Speed *x = speed_of(s, c->groups[g].device);
        double seconds[2];
        cost_token(p, pairs, rank, seconds);
        s->n += !x->device;
        x->device = c->groups[g].device;
        for (int i = 0; i < 2; i++)
            x->seconds[i] = fmax(x->seconds[i], seconds[i]);
    }
    return s;
}

/* ---- speeds as small whole numbers ---- */

static double seconds_of(const Speed *x, SharesKind kind)
{
    return (kind != SHARES_REST ? x->seconds[0] : 0) + (kind != SHARES_ATTENTION ? x->seconds[1] : 0);
}

static int share_of_most(double part, int most)
{
    return (int)fmax(1, round(part * most));
}

static int divisor(int x, int y)
{
    return y ? divisor(y, x % y) : x;
}

/* The smallest share of the fastest rank, up to limit, with which the others are exact within 1 %; else the
 * closest. */
static void round_shares(Speeds *s, SharesKind kind, int limit)
{
    double least = INFINITY, nearest = INFINITY;
    int most = 1;
    for (int i = 0; i < s->n; i++)
        least = fmin(least, seconds_of(&s->at[i], kind));
    for (int m = 1; m <= limit && nearest > 0.01; m++) {
        double error = 0;
        for (int i = 0; i < s->n; i++) {
            const double part = least / seconds_of(&s->at[i], kind);
            error = fmax(error, fabs(share_of_most(part, m) / (part * m) - 1));
        }
        most = error < nearest ? m : most;
        nearest = fmin(error, nearest);
    }
    for (int i = 0; i < s->n; i++)
        s->at[i].share = share_of_most(least / seconds_of(&s->at[i], kind), most);
}

/* A striped partition deals the shares out in turn, and short sequences have few stripes. */
static int most_shares(const Program *p, const Choice *c)
{
    enum { TURNS = 8, MOST = 64 };
    return (int)fmax(1, fmin(MOST, (double)p->sequence / TURNS / c->ranks));
}

static void by_speed(Speeds *s, const Program *p, const Choice *c)
{
    bool idle = false; /* without any work of that kind shares are equal */
    for (int i = 0; i < s->n; i++)
        idle |= seconds_of(&s->at[i], c->shares) <= 0;
    if (!idle)
        round_shares(s, c->shares, most_shares(p, c));
}

static void by_device(Speeds *s, const GivenShares *given)
{
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < given->n; j++)
            if (strcmp(given->at[j].device, s->at[i].device->name) == 0)
                s->at[i].share = given->at[j].share;
}

/* ---- for the ranks that share a sequence ---- */

static const Device *device_at(const Program *p, const Choice *c, int group, int chunk)
{
    return cluster_group_of(&p->cluster, choice_rank(c, group, chunk))->device;
}

bool shares_differ(const Program *p, const Choice *c)
{
    bool differ = false;
    for (int d = 0; d < c->data && cost_mixed(&p->cluster); d++)
        for (int r = 1; r < c->ranks && !differ; r++)
            differ = device_at(p, c, d, r) != device_at(p, c, d, 0);
    return differ;
}

static bool by_rank(const Program *p)
{
    return p->layout.given_shares.n && !p->layout.given_shares.at[0].device;
}

/* All groups divide their sequences alike: among ranks with the same index in their groups the slowest
 * decides. */
static void spread(Speeds *s, const Program *p, const Choice *c, int *share)
{
    for (int r = 0; r < c->ranks; r++)
        share[r] = INT_MAX;
    for (int r = 0; r < c->ranks * c->data; r++) {
        const int mine = speed_of(s, device_at(p, c, r / c->ranks, r % c->ranks))->share;
        share[r % c->ranks] = mine < share[r % c->ranks] ? mine : share[r % c->ranks];
    }
}

static const char *device_text(Arena *a, const Speeds *s)
{
    int all = 0;
    const char *text = "";
    for (int i = 0; i < s->n; i++)
        all = divisor(all, s->at[i].share);
    for (int i = 0; i < s->n; i++)
        text = arena_printf(a, "%s%s%s %d", text, i ? ", " : "", s->at[i].device->name, s->at[i].share / all);
    return text;
}

static const char *rank_text(Arena *a, const GivenShares *given)
{
    Text t = {0};
    for (int i = 0; i < given->n; i++)
        text_printf(&t, i ? ", %d" : "%d", given->at[i].share);
    return text_keep(a, &t);
}

static void take_by_rank(Arena *a, const GivenShares *given, Choice *c, int *share)
{
    c->shares_text = rank_text(a, given);
    for (int r = 0; r < c->ranks && given->n == c->ranks; r++)
        share[r] = given->at[r].share;
}

/* Shares of all ranks without their common divisor; NULL: they are equal. */
static const int *reduced(int *share, int ranks)
{
    int all = 0;
    bool equal = true;
    for (int r = 0; r < ranks; r++) {
        all = divisor(all, share[r]);
        equal &= share[r] == share[0];
    }
    for (int r = 0; r < ranks && all; r++)
        share[r] /= all;
    return equal ? NULL : share;
}

void shares_take(Arena *a, const Program *p, Speeds *s, Choice *c)
{
    c->share = NULL;
    c->shares_text = shares_differ(p, c) ? shares_names[SHARES_EQUAL] : NULL;
    if (c->shares == SHARES_EQUAL)
        return;
    int *share = NEW_ARRAY(a, int, c->ranks);
    for (int i = 0; i < s->n; i++)
        s->at[i].share = 1;
    if (c->shares == SHARES_GIVEN && by_rank(p)) {
        take_by_rank(a, &p->layout.given_shares, c, share);
    } else {
        if (c->shares == SHARES_GIVEN)
            by_device(s, &p->layout.given_shares);
        else
            by_speed(s, p, c);
        spread(s, p, c, share);
        c->shares_text = device_text(a, s);
    }
    c->share = reduced(share, c->ranks);
}

const char *shares_why_not(Arena *a, const Program *p, const Choice *c)
{
    const int n = p->layout.given_shares.n;
    return c->shares != SHARES_GIVEN || !by_rank(p) || n == c->ranks
               ? NULL
               : arena_printf(a, "the layout gives shares to %d rank%s, but %d share%s a sequence", n,
                              plural(n), c->ranks, c->ranks == 1 ? "s" : "");
}
