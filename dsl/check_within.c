/* check_within.c: over which ranks a layout shards the weights. */
#include "check.h"

/* The ranks that share the weights are whole nodes, or parts of one: only then are a ring's links known. */
void check_within(Checker *c, Layout *l)
{
    const Cluster *k = &c->program->cluster;
    const int node = cluster_node_ranks(k);
    bool apart = true;
    if (l->within.value == 0)
        l->within.value = node;
    const int64_t ranks = l->within.value;
    if (!ranks) {
        diag_error(c->diags, l->within.span, "the cluster's nodes have different numbers of ranks; say how many share the weights, such as "
                   "`within 2`");
        return;
    }
    for (int g = 0; g < k->group_count; g++)
        apart = apart && k->groups[g].gpus % ranks == 0;
    if (k->world % ranks == 0 && (apart || (node && ranks % node == 0)))
        return;
    diag_error(c->diags, l->within.span, "groups of %lld ranks are neither parts of a node nor whole nodes of this cluster of %d ranks%s", (long long)ranks,
               k->world, node ? arena_printf(c->arena, "; use `within node`, which is %d", node) : "");
}
