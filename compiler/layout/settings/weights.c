/* settings/weights.c: `weights`: what every rank holds whole, and over which ranks the rest is sharded. */
#include "layout/layout.h"

/* What a rank holds whole, if sharded over all ranks, and over those of a node. */
static int count(const Program *p)
{
    (void)p;
    return 2 * SHARDINGS;
}

/* The ranks that the n-th group of values shards over: all, then one node's if several nodes have as many
 * ranks each and `within node` is allowed; or what the layout says. -1: there are fewer. */
static int64_t within_at(const Program *p, int n)
{
    const int node = cluster_node_ranks(&p->cluster), world = p->cluster.world;
    if (p->layout.within.given && n)
        return -1;
    if (p->layout.within.given)
        return p->layout.within.value < world ? p->layout.within.value : 0;
    if (n == 0)
        return 0;
    const bool by_node = node > 1 && node < world && cluster_shards(&p->cluster, program_tensor(p), node);
    return n == 1 && by_node ? node : -1;
}

/* Whether the value differs from others: one rank shards nothing, and without a second sequence zero1 is
 * zero2 and no_sync is zero3. */
static bool sharding_differs(const Program *p, const Choice *c)
{
    return c->sharding == SHARDING_ZERO3 ||
           (p->cluster.world > 1 && (c->sharding == SHARDING_ZERO2 || p->train.batch > c->data));
}

static bool take(const Program *p, Choice *c, int n)
{
    const int64_t within = within_at(p, n / SHARDINGS);
    const bool is_auto = p->layout.weights.is_auto;
    c->sharding = (Sharding)(n % SHARDINGS);
    c->within = (int)within;
    return within >= 0 && (n < SHARDINGS || is_auto) &&
           (is_auto ? sharding_differs(p, c) : p->layout.weights.value == n % SHARDINGS);
}

static bool other(const Program *p, Choice *c, int n)
{
    const int several = p->train.batch > c->data ? SHARDINGS : SHARDING_ZERO1;
    const int kinds = p->cluster.world == 1 ? 1 : several;
    const int64_t within = within_at(p, n / kinds);
    c->sharding = (Sharding)(n % kinds);
    c->within = (int)within;
    return within >= 0;
}

static const char *text(Arena *a, const Choice *c)
{
    return c->within ? arena_printf(a, "%s within %d", sharding_names[c->sharding], c->within)
                     : sharding_names[c->sharding];
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    const bool usual = c->sharding == SHARDING_ZERO3 && !p->layout.within.given;
    return p->cluster.world == 1 && !usual ? "the cluster has one rank, which holds all weights; remove it"
                                           : NULL;
}

static bool leave_open(Layout *l)
{
    const bool given = !l->weights.is_auto;
    l->within = (Setting){0};
    l->weights.is_auto = true;
    return given;
}

const SettingRecord setting_weights = {
    .form = &(const SettingForm){.name = "weights", .at = offsetof(Layout, weights)},
    .column = 15,
    .if_several = true,
    .spares = true,
    .count = count,
    .take = take,
    .other = other,
    .leave_open = leave_open,
    .text = text,
    .idle = {{offsetof(Layout, weights), idle}},
};
