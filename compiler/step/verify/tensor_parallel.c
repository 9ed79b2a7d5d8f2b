/* step/verify/tensor_parallel.c: checks forward of a layer that tensor ranks split, by what each rank has of
 * a value: its own tokens or all of them, the whole or a part of a sum over the ranks.
 *
 * A product with some rows of a matrix has some columns of a common value, and needs all tokens, whole. One
 * with some columns has a part of every sum, which only a scatter may read, once. One with all of a matrix
 * has the rank's own tokens. The sum of a token's rows of experts is a part if these are. A norm with a split
 * weight has a part of every row, and needs the mean of squares of the whole row: the ranks' parts of it,
 * summed up. Every other operation reads and writes the same tokens, whole. What is computed of all tokens by
 * weights that are not split may only gate columns that ranks split: each then has a part of its gradient. */
#include "step/verify/internal.h"

/* sums: operations that add it up; of: 1 + the value whose squares it is; 0: none */
typedef struct Held { bool all, part; int sums, of; } Held;

static bool has_all_tokens(const Machine *m, Operand x)
{
    const Value *v = &m->step->values.at[x.value];
    for (int i = 0; i < countof(v->dim); i++)
        /* chunks, the tail, pieces and the rows before them, bounds of experts' rows and lists of blocks are
         * of all tokens */
        if (v->dim[i] == DIM_ALL_TOKENS || v->dim[i] == DIM_CHUNK || v->dim[i] == DIM_TAIL ||
            v->dim[i] == DIM_BOUNDS || v->dim[i] == DIM_TILES || v->dim[i] == DIM_HALO ||
            v->dim[i] == DIM_SCAN_PIECES)
            return true;
    return false;
}

static bool adds_up(OpKind k) { return k == OP_TENSOR_SCATTER || k == OP_TENSOR_ALL_REDUCE; }

/* Whether nothing that computes but gates of rows reads it. */
static bool only_gates(const Machine *m, Operand x)
{
    for (int k = 0; k < step_kinds(m->step); k++) {
        const Block *b = &m->step->block[BLOCK_FORWARD + k];
        for (const Op *o = b->ops.at; o < b->ops.at + b->ops.n; o++)
            for (int j = 0; j < OP_READS && o->read[j].value >= 0; j++)
                if (o->read[j].value == x.value && o->kind <= OP_LOSS && (o->kind != OP_GATE || j != 1))
                    return false;
    }
    return true;
}

/* Products and biases, whose gradients are sums over tokens. */
static bool is_product(OpKind k)
{
    return k == OP_LINEAR || k == OP_LOGITS || k == OP_EXPERTS_UP || k == OP_EXPERTS_DOWN ||
           k == OP_EXPERTS_BIAS || k == OP_EXPERTS_OUT_BIAS;
}

/* What is wrong with an operation that reads x; NULL: nothing. */
static const char *what_is_wrong(const Machine *m, const Op *o, Held x, Split split)
{
    if (x.part && !adds_up(o->kind) && o->kind != OP_COMBINE)
        return "it reads parts of sums that are not added up";
    if (!x.part && adds_up(o->kind))
        return "it adds up what is no part of a sum";
    if (o->kind == OP_TENSOR_SCATTER && x.of)
        return "each rank needs the sum of all tokens, and gets that of its own";
    if (o->kind == OP_TENSOR_ALL_REDUCE && !x.of)
        return "it adds up what is no mean of squares";
    if (x.all && o->kind == OP_TENSOR_GATHER)
        return "it gathers what has all tokens";
    if (!x.all && o->kind == OP_SQUARES)
        return "it reads whole rows";
    if (!x.all && split != SPLIT_NONE)
        return "its weights are split, and it does not read all tokens";
    /* its gradient would be summed over ranks that each have all of it */
    return is_product(o->kind) && split == SPLIT_NONE && x.all && !only_gates(m, o->write[0])
               ? "its weights are not split, and it reads all tokens"
               : NULL;
}

/* Whether a norm's second operand, its mean of squares, covers all of its rows. */
static const char *what_is_wrong_with_norm(const Op *o, Held square, Split split)
{
    if (split == SPLIT_NONE)
        return square.of ? "it has all of its rows, and reads a mean of squares" : NULL;
    return square.of == o->read[0].value + 1 ? NULL
                                             : "it has a part of its rows, and no mean of squares of them";
}

static void reject_op(Machine *m, const Op *o, const char *wrong)
{
    if (wrong)
        reject(m, STEP_VALUES, "%s of %s: %s", op_name(o->kind),
               o->weight ? o->weight : m->step->values.at[o->write[0].value].name, wrong);
}

static int squares_of(const Op *o, Held x)
{
    if (o->kind == OP_SQUARES)
        return o->read[0].value + 1;
    return o->kind == OP_TENSOR_ALL_REDUCE ? x.of : 0;
}

/* A bias with some of the columns has all tokens of these. */
static bool is_part(const Op *o, Held x, Split split)
{
    const bool columns = split == SPLIT_COLS && (o->kind == OP_LINEAR || o->kind == OP_EXPERTS_DOWN);
    return columns || o->kind == OP_SQUARES || (o->kind == OP_COMBINE && x.part);
}

/* The outputs' shares, from the inputs'. */
static Held share_of_output(Machine *m, const Block *b, const Op *o, const Held *share)
{
    const UnitTensor *t = op_tensor(m->step, o, b);
    const bool product = is_product(o->kind);
    const Split split = (product || o->kind == OP_NORM) && t ? t->split : SPLIT_NONE;
    const Held x = share[o->read[0].value], none = {0};
    const Held square = o->read[1].value < 0 ? none : share[o->read[1].value];
    reject_op(m, o, what_is_wrong(m, o, x, split));
    if (o->kind == OP_NORM)
        reject_op(m, o, what_is_wrong_with_norm(o, square, split));
    return (Held){.all = o->kind == OP_TENSOR_GATHER || (x.all && o->kind != OP_TENSOR_SCATTER),
                  .part = is_part(o, x, split),
                  .of = squares_of(o, x)};
}

/* A chunk's copy is of the tokens that the value is of. */
static int held_as(const Machine *m, int value)
{
    const Value *v = &m->step->values.at[value];
    return v->copy ? v->original : value;
}

static void check_op(Machine *m, const Block *b, const Op *o, Held *share)
{
    const Held x = share[o->read[0].value], y = share_of_output(m, b, o, share);
    for (int i = 1; i < OP_READS && o->read[i].value >= 0; i++) {
        const ValueKind k = m->step->values.at[o->read[i].value].kind;
        const Held *other = &share[held_as(m, o->read[i].value)];
        /* groups of experts add to one part of a sum */
        const bool adds = o->kind == OP_COMBINE && i == 2 && x.part && other->part;
        share[o->read[i].value].sums += adds;
        if (k == VALUE_ACTIVATION && !adds &&
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
    share[o->read[0].value].sums += adds_up(o->kind) || o->kind == OP_COMBINE;
}

static void check_layer(Machine *m, const Block *b)
{
    Held *share = NEW_ARRAY(m->arena, Held, m->step->values.n);
    for (int i = 0; i < b->ops.n && !m->failed; i++)
        if (b->ops.at[i].kind <= OP_LOSS)
            check_op(m, b, &b->ops.at[i], share);
    for (int v = 0; v < m->step->values.n; v++)
        if (share[v].part && share[v].sums != 1)
            reject(m, STEP_VALUES, "parts of %s are added up %d times", name_of(m, v), share[v].sums);
}

void check_tensor_ranks(Machine *m)
{
    m->now = -2;
    for (int k = 0; k < step_kinds(m->step) && m->step->shape.tensor > 1; k++)
        check_layer(m, &m->step->block[BLOCK_FORWARD + k]);
}
