/* cost/links.c: links and NICs as resources of the simulation, and transfers over them: hops, exchanges,
 * ring collectives. */
#include "cost/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int links_rank(const AttentionInput *in, int rank)
{
    return choice_rank(in->schedule->choice, in->group, in->rank[rank]);
}

const NodeGroup *links_group(const AttentionInput *in, int rank)
{
    return cluster_group_of(in->cluster, links_rank(in, rank));
}

static int node_of(const AttentionInput *in, int rank)
{
    return cluster_node_of(in->cluster, links_rank(in, rank));
}

/* Resources of each rank: its link out and in, and its NIC out and in, which is the NIC of the first
 * simulated rank that shares it. All NICs of each node follow. */
enum { LINK_OUT, LINK_IN, NIC_OUT, NIC_IN, RANK_RESOURCES };
static const double unlimited = 1e30;

static double or_unlimited(double rate)
{
    return rate > 0 ? rate : unlimited;
}

/* Resource: all NICs of the rank's node, outwards. The next resource is inwards. */
static int node_nics(const AttentionInput *in, int rank)
{
    return RANK_RESOURCES * in->ranks + 2 * node_of(in, rank);
}

/* Resource: the first uplink of the level, outwards. Each unit has two resources: outwards, inwards. */
static int first_uplink(const AttentionInput *in, int level)
{
    const Cluster *c = in->cluster;
    int at = RANK_RESOURCES * in->ranks + 2 * c->nodes;
    for (int l = 0; l < level; l++)
        at += 2 * cluster_units(c, l);
    return at;
}

/* 0: outwards, 1: inwards. */
static int uplink(const AttentionInput *in, int level, int rank, int inwards)
{
    return first_uplink(in, level) + 2 * (node_of(in, rank) / in->cluster->level[level].nodes) + inwards;
}

/* Groups that do the same at the same time share their nodes' NICs and uplinks: the simulated group gets its
 * part of them. */
static int alike(const AttentionInput *in)
{
    return in->alike > 1 ? in->alike : 1;
}

/* World index of the rank's NIC. */
static int nic_of(const AttentionInput *in, int rank)
{
    const NodeGroup *g = links_group(in, rank);
    int place = cluster_place_of(in->cluster, links_rank(in, rank));
    if (g->nics < g->gpus)
        place = g->nics_in_turn ? place % g->nics : place * g->nics / g->gpus;
    return node_of(in, rank) * cluster_most_ranks(in->cluster) + place;
}

/* The rank's share of its NIC's bandwidth: groups that do the same at the same time use the card too. */
static double nic_share(const AttentionInput *in, int users, const NodeGroup *g)
{
    const double devices = g->nics ? (double)g->gpus / g->nics : 1;
    return alike(in) > 1 && devices > users ? users / devices : 1;
}

AttentionInput links_with_nics(Arena *a, const AttentionInput *in)
{
    const int nics = in->cluster->nodes * cluster_most_ranks(in->cluster);
    int *first = NEW_ARRAY(a, int, nics); /* 1 + rank; 0: none */
    int *nic = NEW_ARRAY(a, int, in->ranks);
    for (int r = 0; r < in->ranks; r++) {
        int *of = &first[nic_of(in, r)];
        *of = *of ? *of : r + 1;
        nic[r] = *of - 1;
    }
    AttentionInput with = *in;
    with.nic = nic;
    return with;
}

Sim *links_sim(Arena *a, const AttentionInput *in)
{
    const Cluster *c = in->cluster;
    const int all = first_uplink(in, c->levels);
    double *capacity = NEW_ARRAY(a, double, all);
    int *users = NEW_ARRAY(a, int, in->ranks);
    for (int r = 0; r < in->ranks; r++)
        users[in->nic[r]]++;
    for (int r = 0; r < in->ranks; r++) {
        const NodeGroup *g = links_group(in, r);
        double link = or_unlimited(c->link_bandwidth * cost_rate_share(c, g)),
               nic = g->nic ? g->nic->bandwidth : 0, node = g->nics * nic;
        /* one NIC, or several if there are more NICs than ranks */
        double own = or_unlimited(fmax(nic, node / g->gpus) * nic_share(in, users[in->nic[r]], g));
        double *rank = &capacity[RANK_RESOURCES * r], *out = &capacity[node_nics(in, r)];
        rank[LINK_OUT] = rank[LINK_IN] = link;
        rank[NIC_OUT] = rank[NIC_IN] = own;
        out[0] = out[1] = or_unlimited(node / fmax(1, c->oversubscription)) / alike(in);
    }
    for (int l = 0; l < c->levels; l++)
        for (int u = 0; u < cluster_units(c, l); u++)
            capacity[first_uplink(in, l) + 2 * u] = capacity[first_uplink(in, l) + 2 * u + 1] =
                or_unlimited(cluster_uplink(c, l, u)) / alike(in);
    return sim_new(a, all, capacity);
}

static int distance(const AttentionInput *in, int from, int to)
{
    const int a = node_of(in, from), b = node_of(in, to);
    return a == b ? 0 : 1 + cluster_crossed(in->cluster, a, b);
}

static CostClass class_of(int distance)
{
    static const CostClass within[] = {COST_LINK, COST_NIC};
    const int levels = distance - countof(within);
    return levels < 0 ? within[distance] : (CostClass)(COST_UPLINK + levels);
}

int links_distance(CostClass class)
{
    for (int distance = 0; distance < DISTANCES; distance++)
        if (class_of(distance) == class)
            return distance;
    return 0;
}

/* Seconds. */
static double hop_latency(const AttentionInput *in, int from, int distance)
{
    const Nic *nic = links_group(in, from)->nic;
    double ns = distance && nic ? nic->latency : in->cluster->link_latency;
    for (int l = 0; l + 1 < distance; l++)
        ns += in->cluster->level[l].latency;
    return ns * 1e-9;
}

/* Adds the uplinks of a transfer of that distance: out of the sender's side, or into the receiver's. */
static void use_uplinks(const AttentionInput *in, Task *t, int rank, int distance, int inwards)
{
    for (int l = 0; l + 1 < distance; l++)
        t->resource[t->resources++] = uplink(in, l, rank, inwards);
}

Task links_hop(const AttentionInput *in, int from, int to, double bytes)
{
    const int out = RANK_RESOURCES * from, into = RANK_RESOURCES * to, far = distance(in, from, to);
    Task t = {.class = class_of(far), .seconds = hop_latency(in, from, far), .bytes = bytes, .resources = 2,
              .resource = {out + LINK_OUT, into + LINK_IN}};
    if (!far)
        return t;
    t.resource[0] = RANK_RESOURCES * in->nic[from] + NIC_OUT;
    t.resource[1] = RANK_RESOURCES * in->nic[to] + NIC_IN;
    t.resource[2] = node_nics(in, from), t.resource[3] = node_nics(in, to) + 1;
    t.resources = 4;
    use_uplinks(in, &t, from, far, 0);
    use_uplinks(in, &t, to, far, 1);
    return t;
}

void links_count(AttentionTime *t, int distance, double bytes)
{
    *(distance ? &t->nic_bytes : &t->link_bytes) += bytes;
    for (int l = 0; l + 1 < distance; l++)
        t->uplink_bytes[l] += bytes;
}

/* ---- all-to-all ---- */

void links_shares(const AttentionInput *in, int rank, double share[DISTANCES])
{
    const int x = in->schedule->choice->schedule->exchanged, here = rank / in->stride[x] % in->size[x];
    memset(share, 0, sizeof *share * DISTANCES);
    for (int i = 0; i < in->size[x]; i++)
        if (i != here)
            share[distance(in, rank, rank + (i - here) * in->stride[x])] += 1.0 / (in->size[x] - 1);
}

static void add_flow(Sim *s, Task t, int start, int end)
{
    if (t.bytes <= 0)
        return;
    int flow = sim_task(s, t);
    sim_after(s, flow, start);
    sim_after(s, end, flow);
}

/* Models what a rank sends to its peers inside or outside its node, and what it receives, as one flow each.
 * An exchange lasts until every rank has everything, so only the load of each link and NIC counts, not the
 * pair of ranks; and the number of flows does not grow with the square of the ranks. */
void links_exchange(Sim *s, const AttentionInput *in, int rank, double sent, double received, int distance,
                    int start, int sends, int end)
{
    const int link = RANK_RESOURCES * rank, nic = RANK_RESOURCES * in->nic[rank], node = node_nics(in, rank);
    Task t = {.class = class_of(distance), .seconds = hop_latency(in, rank, distance)};
    t.bytes = sent;
    t.resource[0] = distance ? nic + NIC_OUT : link + LINK_OUT;
    t.resource[1] = node;
    t.resources = distance ? 2 : 1;
    use_uplinks(in, &t, rank, distance, 0);
    add_flow(s, t, start, sends);
    t.bytes = received;
    t.resource[0] = distance ? nic + NIC_IN : link + LINK_IN;
    t.resource[1] = node + 1;
    t.resources = distance ? 2 : 1;
    use_uplinks(in, &t, rank, distance, 1);
    add_flow(s, t, start, end);
}

/* ---- ring collectives ---- */

static double slowest_nics(const Cluster *c)
{
    double least = unlimited;
    for (int g = 0; g < c->group_count; g++) {
        const NodeGroup *n = &c->groups[g];
        if (n->nic && n->nics > 0)
            least = fmin(least, n->nics * n->nic->bandwidth / fmax(1, c->oversubscription));
    }
    return least;
}

static double slowest_uplink(const Cluster *c, int level)
{
    double least = unlimited;
    for (int u = 0; u < cluster_units(c, level); u++)
        least = fmin(least, or_unlimited(cluster_uplink(c, level, u)));
    return least;
}

static double slowest_link(const Cluster *c)
{
    double share = 1;
    for (int g = 0; g < c->group_count; g++)
        share = fmin(share, cost_rate_share(c, &c->groups[g]));
    return or_unlimited(c->link_bandwidth * share);
}

double collective_moving(const Cluster *c, Collective x)
{
    double seconds = fmax(x.link / slowest_link(c), x.nic / slowest_nics(c));
    for (int l = 0; l < c->levels; l++)
        seconds = fmax(seconds, x.uplink[l] / slowest_uplink(c, l));
    return seconds;
}

/* Number of nodes, or racks, that a ring spans, given the ranks of each and their number. */
static int ring_spans(const Cluster *c, Ring r, int ranks, int units)
{
    const int all = r.ranks * r.stride;
    if (all <= ranks)
        return 1;
    if (r.stride > 1 && r.stride >= ranks)
        return r.ranks;
    return all == c->world ? units : all / ranks;
}

/* Bytes that leave one node or rack, summed over its rings: each ring enters and leaves once. */
static double ring_leaves(Ring r, int ranks, int spans, double sent)
{
    if (spans <= 1)
        return 0;
    return (r.stride < ranks ? r.stride : ranks) * sent;
}

/* Consecutive ranks of a ring in one node. */
static int ring_near(Ring r, int gpus)
{
    if (r.stride >= gpus)
        return 1;
    return r.ranks < gpus / r.stride ? r.ranks : gpus / r.stride;
}

/* Seconds of its bytes if links take at most this rate; 0: their own. */
static double moving_at(const Cluster *c, Collective x, double rate)
{
    const double moving = collective_moving(c, x);
    return rate > 0 ? fmax(moving, x.link / rate) : moving;
}

Collective collective_of(const Cluster *c, Ring r, double bytes)
{
    if (r.ranks == 1)
        return (Collective){0};
    const Nic *nic = c->groups[0].nic;
    const int gpus = c->groups[0].gpus, nodes = ring_spans(c, r, gpus, c->nodes);
    const int near = ring_near(r, gpus);
    Collective x = {.bytes = r.rounds * (bytes * (r.ranks - 1) / r.ranks)};
    double latency = (nodes - 1) * (nic ? nic->latency : c->link_latency) + (near - 1) * c->link_latency;
    x.link = near > 1 ? x.bytes : 0;
    x.nic = ring_leaves(r, gpus, nodes, x.bytes);
    for (int l = 0; l < c->levels; l++) {
        const int ranks = gpus * c->level[l].nodes, spans = ring_spans(c, r, ranks, cluster_units(c, l));
        latency += (spans - 1) * c->level[l].latency;
        x.uplink[l] = ring_leaves(r, ranks, spans, x.bytes);
    }
    const double alone = c->link_sums_alone > 0 ? c->link_sums_alone : c->link_sums;
    x.seconds = moving_at(c, x, r.adds ? c->link_sums : 0) + r.rounds * latency * 1e-9;
    x.alone = moving_at(c, x, r.adds ? alone : 0) + r.rounds * latency * 1e-9;
    x.taking = r.adds && near > 1 ? c->link_sums_taking : 0;
    return x;
}

typedef struct Place { int rank, world; } Place; /* simulated rank; world rank */

static int by_world(const void *x, const void *y)
{
    const int a = ((const Place *)x)->world, b = ((const Place *)y)->world;
    return (a > b) - (a < b);
}

/* The simulated ranks, ordered by node. */
static Place *places(const AttentionInput *in)
{
    Place *p = xmalloc(sizeof *p * (size_t)in->ranks);
    for (int r = 0; r < in->ranks; r++)
        p[r] = (Place){r, links_rank(in, r)};
    qsort(p, (size_t)in->ranks, sizeof *p, by_world);
    return p;
}

/* Index of the next node's first entry. */
static int next_node(const AttentionInput *in, const Place *p, int at)
{
    int next = at;
    while (next < in->ranks && node_of(in, p[next].rank) == node_of(in, p[at].rank))
        next++;
    return next < in->ranks ? next : 0;
}

/* One flow from each node to the next, which counts for all the node's ranks, including those of concurrent
 * groups. */
static void add_between_nodes(Sim *s, const AttentionInput *in, Task t, int rank, int next, int start,
                              int end)
{
    t.weight = (double)links_group(in, rank)->gpus / alike(in);
    t.bytes /= alike(in);
    t.resource[0] = node_nics(in, rank), t.resource[1] = node_nics(in, next) + 1;
    use_uplinks(in, &t, rank, distance(in, rank, next), 0);
    use_uplinks(in, &t, next, distance(in, rank, next), 1);
    add_flow(s, t, start, end);
}

/* A flow over each link to the next rank of the node, and over the NICs from each node to the next. */
int links_collective(Sim *s, const AttentionInput *in, Collective c, int after)
{
    const double moving = collective_moving(in->cluster, c),
                 share = c.seconds < moving ? c.seconds / moving : 1;
    const Task t = {.class = COST_WEIGHTS, .seconds = c.seconds - share * moving, .resources = 2};
    const int start = sim_task(s, (Task){.class = COST_WEIGHTS}),
              end = sim_task(s, (Task){.class = COST_WEIGHTS});
    Place *p = places(in);
    sim_after(s, start, after);
    sim_after(s, end, start);
    for (int i = 0, first = 0; i < in->ranks; i++) {
        const int next = next_node(in, p, i), rank = p[i].rank;
        const bool last = i + 1 == in->ranks || next == i + 1;
        Task near = t, far = t;
        near.bytes = c.link * share, far.bytes = c.nic * share;
        near.resource[0] = RANK_RESOURCES * rank + LINK_OUT;
        near.resource[1] = RANK_RESOURCES * p[last ? first : i + 1].rank + LINK_IN;
        first = last ? i + 1 : first;
        if (links_group(in, rank)->gpus > 1)
            add_flow(s, near, start, end);
        if (last && in->cluster->nodes > 1)
            add_between_nodes(s, in, far, rank, p[next].rank, start, end);
    }
    free(p);
    return end;
}
