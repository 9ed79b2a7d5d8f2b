/* step/verify/tensor_parallel.c: forward of a layer that tensor ranks split, as what each rank has of a
 * value: its own tokens or all of them, and the whole or a part of a sum that the ranks have together.
 *
 * A product with some rows of a matrix has some columns of what all have, and needs all tokens, whole. One
 * with some columns has a part of every sum, which a scatter alone may read, once. One with all of a matrix
 * has the rank's own tokens. Every other operation reads and writes the same tokens, whole.
 */
#include "step/verify/internal.h"

typedef struct Held { bool all, part; int sums; } Held; /* sums: how many scatters read it */

static bool has_all_tokens(const Machine *m, Operand x)
{
    const Value *v = &m->step->values.at[x.value];
    for (int i = 0; i < countof(v->dim); i++)
        /* chunks, and the last, of all */
        if (v->dim[i] == DIM_ALL_TOKENS || v->dim[i] == DIM_CHUNK || v->dim[i] == DIM_TAIL)
            return true;
    return false;
}

/* Of an operation that reads x; NULL: nothing. */
static const char *what_is_wrong(const Op *o, Held x, Split split)
{
    if (x.part && o->kind != OP_TENSOR_SCATTER)
        return "it reads parts of sums that are not added up";
    if (!x.part && o->kind == OP_TENSOR_SCATTER)
        return "it adds up what is no part of a sum";
    if (x.all && o->kind == OP_TENSOR_GATHER)
        return "it gathers what has all tokens";
    if (!x.all && split != SPLIT_NONE)
        return "its weights are split, and it does not read all tokens";
    /* its gradient would be summed over ranks that each have all of it */
    return o->kind == OP_LINEAR && split == SPLIT_NONE && x.all
               ? "its weights are not split, and it reads all tokens"
               : NULL;
}

/* What its outputs are, by what it reads. */
static Held share_of_output(Machine *m, const Op *o, Held x)
{
    const UnitTensor *t = op_tensor(m->step, o, &m->step->block[BLOCK_FORWARD]);
    const Split split = o->kind == OP_LINEAR && t ? t->split : SPLIT_NONE;
    const char *wrong = what_is_wrong(o, x, split);
    if (wrong)
        reject(m, STEP_VALUES, "%s of %s: %s", op_name(o->kind),
               o->weight ? o->weight : m->step->values.at[o->write[0].value].name, wrong);
    return (Held){o->kind == OP_TENSOR_GATHER || (x.all && o->kind != OP_TENSOR_SCATTER), split == SPLIT_COLS,
                  0};
}

static void check_op(Machine *m, const Op *o, Held *share)
{
    const Held x = share[o->read[0].value], y = share_of_output(m, o, x);
    for (int i = 1; i < OP_READS && o->read[i].value >= 0; i++) {
        const ValueKind k = m->step->values.at[o->read[i].value].kind;
        const Held *other = &share[o->read[i].value];
        if (k == VALUE_ACTIVATION &&
            (other->part || other->all != (o->kind == OP_TENSOR_SCATTER ? y.all : x.all)))
            reject(m, STEP_VALUES, "%s reads other tokens of %s than of %s", op_name(o->kind),
                   name_of(m, o->read[i].value), name_of(m, o->read[0].value));
    }
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++) {
        if (m->step->values.at[o->write[i].value].kind != VALUE_ACTIVATION)
            continue;
        if (has_all_tokens(m, o->write[i]) != y.all)
            reject(m, STEP_VALUES, "%s makes %s tokens of %s", op_name(o->kind), y.all ? "all" : "its own",
                   name_of(m, o->write[i].value));
        share[o->write[i].value] = y;
    }
    share[o->read[0].value].sums += o->kind == OP_TENSOR_SCATTER;
}

void check_tensor_ranks(Machine *m)
{
    const Block *b = &m->step->block[BLOCK_FORWARD];
    Held *share = NEW_ARRAY(m->arena, Held, m->step->values.n);
    if (m->step->shape.tensor == 1)
        return;
    m->now = -2;
    for (int i = 0; i < b->ops.n && !m->failed; i++)
        if (b->ops.at[i].kind <= OP_LOSS)
            check_op(m, &b->ops.at[i], share);
    for (int v = 0; v < m->step->values.n; v++)
        if (share[v].part && share[v].sums != 1)
            reject(m, STEP_VALUES, "parts of %s are added up %d times", name_of(m, v), share[v].sums);
}
