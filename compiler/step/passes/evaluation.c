/* step/passes/evaluation.c: the step without backward, for evaluation: the step's own forward, and a head
 * that computes the loss without gradients. Its values lie where the step has them. */
#include "step/step.h"

#include <string.h>

/* What the loss alone does not need: gradients to be cleared or awaited, and the weights of backward. */
static bool of_backward(const Op *o)
{
    const OpKind k = o->kind == OP_WAIT ? o->awaits : o->kind;
    const bool next = k == OP_GATHER && o->kind == OP_GATHER && o->write[0].next > 0;
    return next || k == OP_ZERO || k == OP_REDUCE || k == OP_ALL_REDUCE || k == OP_TENSOR_SUM ||
           k == OP_DOWNLOAD;
}

static Op without_gradients(const Step *s, const Op *loss)
{
    Op o = *loss;
    int kept = 0;
    o.kind = OP_EVALUATE;
    for (int i = 0; i < OP_WRITES; i++) {
        const Operand x = loss->write[i];
        o.write[i] = (Operand){-1, 0};
        o.adds[i] = false;
        if (x.value >= 0 && s->values.at[x.value].kind == VALUE_SCRATCH)
            o.write[kept++] = x;
    }
    return o;
}

Step *step_evaluation(Arena *a, const Step *s)
{
    Step *e = NEW(a, Step);
    const Block *head = &s->block[BLOCK_HEAD];
    *e = *s;
    e->arena = a;
    e->forward = true;
    for (int b = BLOCK_HEAD; b < STEP_BLOCKS; b++)
        memset(&e->block[b].ops, 0, sizeof e->block[b].ops);
    e->block[BLOCK_HEAD].name = "loss";
    for (int i = 0, loss = op_first(head, OP_LOSS); i <= loss; i++)
        if (!of_backward(&head->ops.at[i]))
            *vec_push(a, &e->block[BLOCK_HEAD].ops) = i < loss ? head->ops.at[i]
                                                               : without_gradients(s, &head->ops.at[i]);
    return e;
}
