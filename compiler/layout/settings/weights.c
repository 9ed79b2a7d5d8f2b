/* settings/weights.c: `weights`: what every rank holds whole, and over which ranks the rest is sharded. */
#include "layout/layout.h"

/* Groups of values: sharded over all ranks; over those of a node; over those of a unit of each level. */
enum { GROUPS = 2 + MAX_LEVELS };

static int count(const Program *p)
{
    (void)p;
    return GROUPS * SHARDINGS;
}

/* The ranks of a node, or of a unit of a level; 0: nodes do not have equally many. */
static int64_t ranks_inside(const Cluster *c, int group)
{
    const int64_t node = cluster_node_ranks(c);
    if (group == 1)
        return node;
    return group - 2 < c->levels ? node * c->level[group - 2].nodes : 0;
}

/* The ranks that the n-th group of values shards over, some of those that `within` allows; or what the layout
 * says. -1: none. */
static int64_t within_at(const Program *p, int n)
{
    const int world = p->cluster.world;
    if (p->layout.within.given && n)
        return -1;
    if (p->layout.within.given)
        return p->layout.within.value < world ? p->layout.within.value : 0;
    if (n == 0)
        return 0;
    const int64_t ranks = ranks_inside(&p->cluster, n);
    return ranks > 1 && ranks < world && cluster_shards(&p->cluster, program_tensor(p), ranks) ? ranks : -1;
}

/* Whether the value differs from others: one rank shards nothing. */
static bool sharding_differs(const Program *p, const Choice *c)
{
    return c->sharding == SHARDING_ZERO3 || p->cluster.world > 1;
}

/* In a program that infers ranks have all weights; or a part that prompts gather, by whose slices later
 * tokens are multiplied, unless products are whole or experts in groups. */
static bool infers(const Program *p, Sharding sharding, int64_t within)
{
    const Setting *groups = &p->layout.expert_groups;
    const bool whole = p->infer.products == PRODUCTS_WHOLE || groups->value > 1 || groups->is_auto,
               slices = p->infer.tokens > 1 && p->cluster.world > 1;
    if (!p->infer.lengths || within)
        return !p->infer.lengths;
    return sharding == SHARDING_ZERO1 || (sharding == SHARDING_ZERO3 && !(whole && slices));
}

static bool take(const Program *p, Choice *c, int n)
{
    const int64_t within = within_at(p, n / SHARDINGS);
    const bool is_auto = p->layout.weights.is_auto;
    c->sharding = (Sharding)(n % SHARDINGS);
    c->within = (int)within;
    return within >= 0 && (n < SHARDINGS || is_auto) && infers(p, c->sharding, within) &&
           (is_auto ? sharding_differs(p, c) : p->layout.weights.value == n % SHARDINGS);
}

/* The n-th value that works: groups that do not are left out. */
static bool other(const Program *p, Choice *c, int n)
{
    const int kinds = p->cluster.world == 1 ? 1 : SHARDINGS;
    for (int value = 0; value < GROUPS * kinds; value++) {
        const int64_t within = within_at(p, value / kinds);
        if (within < 0 || !infers(p, (Sharding)(value % kinds), within) || n-- > 0)
            continue;
        c->sharding = (Sharding)(value % kinds);
        c->within = (int)within;
        return true;
    }
    return false;
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
