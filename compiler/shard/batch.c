/* shard/batch.c: the partition of one drawn batch, made by the planner that programs have (data/balance.h).
 */
#include "shard/shard.h"

#include "data/balance.h"

static PosSet rank_set(Arena *a, const Balance *b, int rank)
{
    PosSet s = {0};
    Piece *pieces = NEW_ARRAY(a, Piece, b->each);
    for (int run = 0; run < b->runs; run++)
        if (b->owner[run] == rank)
            pos_add_run(&s, pieces, run * b->run, (run + 1) * b->run);
    s.pieces = pieces;
    return s;
}

static const Partition *partition_balanced(Arena *a, const Partition *plan, Balance *b, MaskMap **masks)
{
    for (int m = 0; m < b->masks; m++)
        b->mask[m] = (BalanceMask){mask_box, masks[m]};
    balance_count(b, &(BurstTables){0}, 0);
    balance_assign(b);
    Partition *made = NEW(a, Partition);
    PosSet *of = NEW_ARRAY(a, PosSet, plan->ranks);
    for (int r = 0; r < plan->ranks; r++)
        of[r] = rank_set(a, b, r);
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
                              .layers = (int)p->model.layers,
                              .layer_mask = p->layer_mask};
    Balance *b = balance_open(&as_run);
    if (!b)
        out_of_memory();
    const Partition *made = partition_balanced(a, plan, b, masks);
    balance_close(b);
    return made;
}
