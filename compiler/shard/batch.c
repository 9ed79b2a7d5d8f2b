/* shard/batch.c: the partition of one drawn batch, computed by the programs' planner (data/balance); runs of
 * any batch. */
#include "shard/shard.h"

#include "data/balance/balance.h"

#include <limits.h>

int64_t partition_tile(const Program *prog, const Partition *p)
{
    return balance_tile(p->max_tokens, p->block, prog->target->device_memory > 0);
}

int partition_batch_runs(const Program *prog, const Partition *p)
{
    if (p->kind != PART_BALANCED)
        return partition_most_runs(p);
    return (int)burst_min(p->max_tokens / partition_tile(prog, p), INT_MAX);
}

int partition_scan_pieces(const Program *prog, const Partition *p)
{
    return prog->model.scan.columns && p->ranks > 1 && !prog->library ? partition_batch_runs(prog, p) : 0;
}

static void add_pieces(Arena *a, const Balance *b, PosSet *of)
{
    Piece **pieces = NEW_ARRAY(a, Piece *, b->ranks);
    for (int r = 0; r < b->ranks; r++)
        pieces[r] = NEW_ARRAY(a, Piece, b->share);
    for (int64_t t = 0; t < b->tiles; t++)
        pos_add_run(&of[b->owner[t]], pieces[b->owner[t]], t * b->size, (t + 1) * b->size);
    for (int r = 0; r < b->ranks; r++)
        of[r].pieces = pieces[r];
}

static const Partition *partition_balanced(Arena *a, const Partition *plan, Balance *b, MaskMap **masks)
{
    for (int m = 0; m < b->masks; m++)
        b->mask[m] = (BalanceMask){.cover = mask_box, .of = masks[m]};
    balance_count(b, &(BurstTables){0}, 0);
    balance_assign(b);
    Partition *made = NEW(a, Partition);
    PosSet *of = NEW_ARRAY(a, PosSet, plan->ranks);
    add_pieces(a, b, of);
    *made = *plan;
    made->of = of;
    return made;
}

const Partition *partition_of_batch(Arena *a, const Program *p, const Partition *plan, MaskMap **masks)
{
    if (plan->kind != PART_BALANCED)
        return plan;
    const BurstPlan as_run = {.group = plan->ranks,
                              .sequence = plan->sequence,
                              .max_tokens = plan->max_tokens,
                              .balanced = plan->block,
                              .on_gpu = p->target->device_memory,
                              .layers = (int)p->model.layers,
                              .layer_mask = p->layer_mask};
    Balance *b = balance_open(&as_run);
    if (!b)
        out_of_memory();
    const Partition *made = partition_balanced(a, plan, b, masks);
    balance_close(b);
    return made;
}
