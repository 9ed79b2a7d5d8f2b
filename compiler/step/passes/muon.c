/* step/passes/muon.c: updates layers' matrices by Muon (Moonlight, arXiv 2502.16982) instead of AdamW, which
 * updates norms, biases, the embedding and the head.
 *
 * Momentum is sharded like AdamW's first moment, and updates are applied in the shards. A matrix must be
 * whole to be orthogonalised: its parts go to its owner (burst_muon.h), chosen so that all ranks have about
 * equal parts of the matrices, and come back. Alternatives: each rank gathers all matrices and computes as
 * much as a single rank; or ranks share each product, with five sums of A on the way. Both exchanges happen
 * once a step, between the last gradients and the next weights, when activations' memory is free for whole
 * matrices. All layers are exchanged, one after the other, before any matrix is computed, so that work is
 * balanced over as many matrices as possible; so are groups of their experts, which have units of their own.
 */
#include "step/step.h"

#include "burst_muon.h"

static int matrices_of(const Unit *unit, BurstMatrix *matrix)
{
    int n = 0;
    for (const UnitTensor *t = unit->tensor; t < unit->tensor + unit->tensors; t++)
        if (t->first == FIRST_NORMAL && burst_muon_takes(t->cols))
            matrix[n++] = (BurstMatrix){t->rows * (t->split == SPLIT_ROWS ? t->parts : 1),
                                        t->cols * (t->split == SPLIT_COLS ? t->parts : 1)};
    return n;
}

MuonShare muon_share(Arena *a, const Program *p, Units units)
{
    const int layers = p->model.layers, n = layers * (1 + units.groups);
    BurstMatrices *row = NEW_ARRAY(a, BurstMatrices, units.n), *of = NEW_ARRAY(a, BurstMatrices, n);
    int all = 0;
    for (int k = 0; k < units.n; k++) {
        BurstMatrix *matrix = NEW_ARRAY(a, BurstMatrix, units.at[k].tensors);
        row[k] = (BurstMatrices){matrix, matrices_of(&units.at[k], matrix)};
    }
    for (int i = 0; i < n; i++) { /* as programs number units: the head's follows the layers' */
        of[i] = row[units_of(&units, &p->model, i < layers ? 1 + i : 2 + i) - units.at];
        all += of[i].n;
    }
    int64_t *at = NEW_ARRAY(a, int64_t, all + 2 * units.ranks), *load = at + all,
            *elements = load + units.ranks;
    int *owner = NEW_ARRAY(a, int, all);
    int64_t *matrices = NEW_ARRAY(a, int64_t, units.ranks);
    burst_muon_share(of, n, units.ranks, owner, at, load, elements);
    MuonShare most = {0};
    for (int i = 0; i < all; i++) {
        const int64_t own = ++matrices[owner[i]];
        most.matrices = own > most.matrices ? own : most.matrices;
    }
    for (int r = 0; r < units.ranks; r++) {
        most.elements = elements[r] > most.elements ? elements[r] : most.elements;
        most.flops = load[r] > most.flops ? load[r] : most.flops;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < of[i].n; j++) {
            const int64_t scratch = burst_muon_scratch(of[i].matrix[j]);
            most.scratch = scratch > most.scratch ? scratch : most.scratch;
        }
    return most;
}

static void add_op(Step *s, int block, OpKind k, int read, int write)
{
    Op o = op_make(k);
    o.when = WHEN_LAST;
    op_read(&o, read, 0);
    if (write >= 0)
        op_write(&o, write, 0, k == OP_TO_OWNERS);
    *vec_push(s->arena, &s->block[block].ops) = o;
}

void step_muon(Step *s)
{
    if (s->program->train.optimizer != BURST_OPTIMIZER_MUON)
        return;
    const MuonShare share = muon_share(s->arena, s->program, s->units);
    const int grad = step_value(s, "grad_shard"), element = s->program->target->activation_bytes;
    const int update = step_add_value(s, (Value){.name = "update",
                                                 .kind = VALUE_SHARD,
                                                 .dim = {DIM_SHARD},
                                                 .element = EL_ACTIVATION,
                                                 .index = INDEX_UNIT,
                                                 .gradient = -1});
    const int whole = step_add_value(s, (Value){.name = "matrices",
                                                .kind = VALUE_SHARD,
                                                .dim = {DIM_MATRICES},
                                                .element = EL_ACTIVATION,
                                                .gradient = -1,
                                                .bytes = share.elements * element});
    const int scratch = step_add_value(s, (Value){.name = "muon_scratch",
                                                  .kind = VALUE_SCRATCH,
                                                  .dim = {DIM_SCRATCH},
                                                  .element = EL_BYTE,
                                                  .gradient = -1,
                                                  .bytes = share.scratch * element});
    if (s->units.groups)
        s->block[BLOCK_MOMENTUM].repeat = s->block[BLOCK_MATRICES].repeat = REPEAT_LAYER_UNITS;
    add_op(s, BLOCK_MOMENTUM, OP_MOMENTUM, grad, update);
    add_op(s, BLOCK_MOMENTUM, OP_TO_OWNERS, update, whole);
    add_op(s, BLOCK_ORTHOGONALIZE, OP_ORTHOGONALIZE, whole, whole);
    op_write(&s->block[BLOCK_ORTHOGONALIZE].ops.at[0], scratch, 0, false);
    add_op(s, BLOCK_MATRICES, OP_FROM_OWNERS, whole, update);
    add_op(s, BLOCK_MATRICES, OP_MUON, update, -1);
}
