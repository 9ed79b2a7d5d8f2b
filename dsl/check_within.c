/* check_within.c: the ranks over which a layout shards the weights. */
#include "check.h"

void check_within(Checker *c, Layout *l)
{
    const Cluster *k = &c->program->cluster;
    const int node = cluster_node_ranks(k);
    if (l->within.value == 0)
        l->within.value = node;
    const int64_t ranks = l->within.value;
    if (!ranks) {
        diag_error(
            c->diags, l->within.span,
            "`within node` requires nodes with equal numbers of ranks; give the number of ranks that share "
            "the weights, such as `within 2`");
        return;
    }
    if (cluster_shards(k, 1, ranks))
        return;
    diag_error(
        c->diags, l->within.span,
        "groups of %lld rank%s do not divide a node evenly and are not whole nodes of this cluster of %d "
        "rank%s%s",
        (long long)ranks, plural(ranks), k->world, plural(k->world),
        node ? arena_printf(c->arena, "; use `within node`, which is %d", node) : "");
}
