/* cluster.c: the node of a rank. Ranks are numbered node by node, in the order of the cluster's text. */
#include "ir/cluster.h"

#include <math.h>

/* The node group that holds the rank, the first rank of that group, and the first node. */
static const NodeGroup *find(const Cluster *c, int rank, int *first_rank, int *first_node)
{
    *first_rank = *first_node = 0;
    for (int g = 0; g < c->group_count; g++) {
        int ranks = c->groups[g].nodes * c->groups[g].gpus;
        if (rank < *first_rank + ranks || g == c->group_count - 1)
            return &c->groups[g];
        *first_rank += ranks;
        *first_node += c->groups[g].nodes;
    }
    return NULL;
}

int cluster_node_of(const Cluster *c, int rank)
{
    int first_rank, first_node;
    const NodeGroup *g = find(c, rank, &first_rank, &first_node);
    return first_node + (rank - first_rank) / g->gpus;
}

int cluster_place_of(const Cluster *c, int rank)
{
    int first_rank, first_node;
    const NodeGroup *g = find(c, rank, &first_rank, &first_node);
    return (rank - first_rank) % g->gpus;
}

const NodeGroup *cluster_group_of(const Cluster *c, int rank)
{
    int first_rank, first_node;
    return find(c, rank, &first_rank, &first_node);
}

int cluster_crossed(const Cluster *c, int node, int other)
{
    int crossed = 0;
    while (crossed < c->levels && node / c->level[crossed].nodes != other / c->level[crossed].nodes)
        crossed++;
    return crossed;
}

int cluster_units(const Cluster *c, int level)
{
    return (c->nodes + c->level[level].nodes - 1) / c->level[level].nodes;
}

double cluster_uplink(const Cluster *c, int level, int unit)
{
    const Level *l = &c->level[level];
    const int first = unit * l->nodes, end = first + l->nodes;
    double cards = 0;
    for (int g = 0, begin = 0; g < c->group_count; begin += c->groups[g].nodes, g++) {
        const NodeGroup *n = &c->groups[g];
        const int from = first > begin ? first : begin, to = end < begin + n->nodes ? end : begin + n->nodes;
        cards += to > from && n->nic ? (to - from) * n->nics * n->nic->bandwidth : 0;
    }
    return (l->uplink > 0 ? l->uplink : cards) / l->oversubscription;
}

int cluster_most_ranks(const Cluster *c)
{
    int most = 0;
    for (int g = 0; g < c->group_count; g++)
        most = c->groups[g].gpus > most ? c->groups[g].gpus : most;
    return most;
}

double cluster_host_rate(const Cluster *c)
{
    static const double core = 5e9, most = 200e9;
    const double of_cores = c->host_cores * core < most ? c->host_cores * core : most;
    const double all = c->host_bandwidth > 0 ? c->host_bandwidth : of_cores;
    return all / cluster_most_ranks(c);
}

double cluster_pcie(const Cluster *c)
{
    const int64_t ranks = cluster_most_ranks(c), sharing = c->pcie_shared < ranks ? c->pcie_shared : ranks;
    return c->pcie / (double)(sharing > 1 ? sharing : 1);
}

/* Without a rate for both, as on one H200's bus (benchmarks/log/2026-11-29-rates-that-last.md), or as the
 * host's memory has them. */
double cluster_both_ways(const Cluster *c)
{
    static const double on_bus = 1.09;
    if (c->pcie_both > 0)
        return fmax(1, c->pcie / c->pcie_both);
    return fmax(c->target->device_memory ? on_bus : 1, 2 * cluster_pcie(c) / cluster_host_rate(c));
}

double cluster_slowest_nic(const Cluster *c)
{
    double least = 0;
    for (int i = 0; i < c->group_count; i++) {
        const Nic *nic = c->groups[i].nic;
        if (nic && (least == 0 || nic->bandwidth < least))
            least = nic->bandwidth;
    }
    return least;
}

const Device *cluster_least_memory(const Cluster *c)
{
    const Device *least = c->groups[0].device;
    for (int g = 1; g < c->group_count; g++)
        if (c->groups[g].device->memory < least->memory)
            least = c->groups[g].device;
    return least;
}

bool cluster_shards(const Cluster *c, int tensor, int64_t ranks)
{
    const int node = cluster_node_ranks(c);
    bool apart = ranks > 0 && ranks % tensor == 0 && c->world % ranks == 0;
    if (!apart || (node && ranks % node == 0))
        return apart;
    for (int g = 0; g < c->group_count; g++)
        apart &= c->groups[g].gpus % ranks == 0;
    return apart;
}

int cluster_node_ranks(const Cluster *c)
{
    for (int g = 1; g < c->group_count; g++)
        if (c->groups[g].gpus != c->groups[0].gpus)
            return 0;
    return c->group_count ? c->groups[0].gpus : c->world;
}
