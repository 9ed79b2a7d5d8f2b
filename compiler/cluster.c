/* cluster.c: where a rank is. Ranks are numbered node by node, in the order of the cluster's text. */
#include "burst.h"

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

const NodeGroup *cluster_group_of(const Cluster *c, int rank)
{
    int first_rank, first_node;
    return find(c, rank, &first_rank, &first_node);
}
