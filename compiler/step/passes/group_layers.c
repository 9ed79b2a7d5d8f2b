/* step/passes/group_layers.c: groups of layers, of which only the first saves its input (checkpoints every n
 * layers: Chen et al., arXiv 1604.06174, section 4).
 *
 * Before backward of a group, forward of its layers except the last recomputes the inputs of the others from
 * the saved one. The last group comes first in backward, and its inputs are still there from forward. Within
 * a group a layer's input is saved as without groups; memory of recomputed inputs is free before, which
 * their lifetimes express.
 *
 * If inputs are offloaded, only the first layers' are. Each is fetched when the forward that begins with it
 * is repeated, and stays until its own backward. */
#include "step/step.h"

/* Whether it copies layers' inputs, or waits for such a copy. */
static bool is_copy(const Step *s, const Op *o)
{
    const OpKind k = o->kind == OP_WAIT ? o->awaits : o->kind;
    return (k == OP_STAGE || k == OP_FETCH) && copied_group(s, o) > 1;
}

static bool of_experts(const Value *v) { return v->dim[1] == DIM_EXPERTS; }

/* Which experts tokens choose, and blocks tiles do, is saved of every layer, and never chosen anew, nor
 * counted: what makes or reads logits of the router. */
static bool is_choice(const Step *s, const Op *o)
{
    return op_touches(s, o, of_experts) || o->kind == OP_SELECT;
}

/* NULL: inputs stay on the device. */
static const Op *fetch_in(const Step *s, const Block *b)
{
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.at[i].kind == OP_FETCH && is_copy(s, &b->ops.at[i]))
            return &b->ops.at[i];
    return NULL;
}

static void drop_copies(const Step *s, Block *b)
{
    int left = 0;
    for (int i = 0; i < b->ops.n; i++)
        if (!is_copy(s, &b->ops.at[i]))
            b->ops.at[left++] = b->ops.at[i];
    b->ops.n = left;
}

static void group_of_kind(Step *s, int kind)
{
    const Block *forward = &s->block[BLOCK_FORWARD + kind];
    Block *again = &s->block[BLOCK_FORWARD_AGAIN + kind], *backward = &s->block[BLOCK_BACKWARD + kind];
    again->end = s->program->model.layers;
    const Op *fetched = fetch_in(s, backward);
    if (fetched) { /* backward fetches the previous layer's */
        Op fetch = *fetched;
        fetch.read[0].next = fetch.write[0].next = 0;
        *vec_push(s->arena, &again->ops) = fetch;
    }
    for (int i = 0; i < forward->ops.n; i++) {
        Op o = forward->ops.at[i];
        o.again = true;
        if (!is_copy(s, &o) && !is_choice(s, &o))
            *vec_push(s->arena, &again->ops) = o;
    }
    drop_copies(s, backward);
}

void step_group(Step *s)
{
    for (int k = 0; k < step_kinds(s) && s->group > 1; k++)
        group_of_kind(s, k);
}
