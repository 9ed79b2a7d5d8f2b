/* import/plan.c: a program's model as programs get it: sizes, parts, tensors and masks. */
#include "import/import.h"

#include "burst_plan.h"
#include "step/step.h"

#include <string.h>

/* Whole tensors, not split over ranks. */
static const BurstTensor *tensors_of(Arena *a, const Unit *u)
{
    static const float init_std[] = {
#define X(id, init_std) init_std,
        FIRSTS(X)
#undef X
    };
    BurstTensor *t = NEW_ARRAY(a, BurstTensor, u->tensors);
    for (int i = 0; i < u->tensors; i++)
        t[i] = (BurstTensor){.name = u->tensor[i].name,
                             .rows = u->tensor[i].rows,
                             .cols = u->tensor[i].cols,
                             .offset = u->tensor[i].offset,
                             .init_std = init_std[u->tensor[i].first]};
    return t;
}

static void add_units(Arena *a, const Program *p, BurstPlan *plan)
{
    const Shape whole = shape_of(p, &(Choice){0});
    const Units units = units_make(a, p, &whole, 1, false);
    const Model *m = &p->model;
    BurstUnit *u = NEW_ARRAY(a, BurstUnit, m->layers + 2);
    int n = 0;
    for (int unit = 0, repeat; unit < m->layers + 2; unit += repeat) {
        const Unit *row = units_of(&units, m, unit);
        for (repeat = 1; unit + repeat < m->layers + 2 && units_of(&units, m, unit + repeat) == row;)
            repeat++;
        u[n++] = (BurstUnit){.name = row->full_name,
                             .elements = row->elements,
                             .shard = row->shard,
                             .tensors = row->tensors,
                             .tensor = tensors_of(a, row),
                             .repeat = repeat};
    }
    plan->units = u;
    plan->unit_rows = n;
}

/* By their texts alone. */
static const BurstMask *const *masks_of_program(Arena *a, const Program *p)
{
    BurstMask *mask = NEW_ARRAY(a, BurstMask, p->mask_count);
    const BurstMask **masks = NEW_ARRAY(a, const BurstMask *, p->mask_count);
    for (int i = 0; i < p->mask_count; i++) {
        mask[i].text = p->masks[i].text;
        masks[i] = &mask[i];
    }
    return masks;
}

const BurstPlan *model_plan(Arena *a, const Program *p)
{
    const Model *m = &p->model;
    BurstPlan *plan = NEW(a, BurstPlan);
    *plan = (BurstPlan){.sequence = p->sequence,
                        .layers = m->layers,
                        .hidden = m->hidden,
                        .heads = m->heads,
                        .kv_heads = m->kv_heads,
                        .head_dim = m->head_dim,
                        .value_dim = m->latent ? m->value_dim : 0,
                        .latent = m->latent,
                        .query_latent = m->query_latent,
                        .ffn = m->ffn,
                        .experts = m->experts,
                        .indexer = m->indexer,
                        .scan = m->scan,
                        .vocab = m->vocab,
                        .tied = m->tied,
                        .family = m->family,
                        .norm_eps = m->norm_eps,
                        .rope = m->rope,
                        .ropes = m->ropes > 1 ? m->rope_of : NULL,
                        .layer_rope = m->ropes > 1 ? m->layer_rope : NULL,
                        .layer = m->layer,
                        .softcap = m->softcap,
                        .masks = masks_of_program(a, p),
                        .layer_mask = p->layer_mask};
    memcpy(plan->scale, m->scale, sizeof plan->scale);
    add_units(a, p, plan);
    return plan;
}
