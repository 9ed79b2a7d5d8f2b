/* step/passes/tensor_parallel.c: layers split over tensor ranks, with sequence parallelism (Megatron-LM,
 * arXiv 1909.08053; 2205.05198, section 4.2).
 *
 * Tensor ranks, which have a chunk together, each have some of the heads and of ffn, so rows or columns of
 * each product's weights. Values with heads or ffn have all tokens of the chunk; values of the hidden size
 * have the rank's own tokens. A product that computes the former reads a gather's result; one that computes
 * the latter from the former has a part of every sum, and a scatter adds these up. Backward of each is the
 * other, by the rules of step/passes/backward.c. Latents of keys and queries have no heads: a rank computes
 * those of its own tokens, and they are gathered.
 *
 * Each rank has some columns of every expert. The router has the rank's own tokens; its choice and weights
 * are gathered, so that all ranks order the same rows. These, and the sum of a token's rows, are parts, and a
 * scatter adds up the sums; groups of experts add to one part, and the last one's sum is scattered. Biases of
 * experts' outputs are not split: a rank adds them to its own tokens, group after group, and the scatter adds
 * these to the sum.
 *
 * Recurrent layers are split by heads, with the key heads that these read: a rank has some of all queries, of
 * all keys and of all values, their convolution and gates, and whole groups of their norm.
 *
 * A norm over all heads of a token needs the mean of squares over all ranks: each rank's part, one number
 * per token, is summed over them, and so is its gradient in backward. The other projections overlap the sum:
 * the norms come after all of them. Backward does not repeat the sum, since every rule of recomputation
 * saves it. */
#include "step/step.h"

#include <string.h>

/* The shared expert's gate is computed of all tokens by each rank, for its columns; each rank numbers all
 * rows of experts. */
static bool is_split(Dim d)
{
    return dim_of_heads(d) || dim_of_scan(d) || d == DIM_FFN || d == DIM_PAIR || d == DIM_SHARED_FFN ||
           d == DIM_SHARED_PAIR || d == DIM_SHARED_GATE || d == DIM_TOP_PAIR || d == DIM_TOP_WIDTH ||
           d == DIM_TOP_HIDDEN || d == DIM_TOP_ROWS || d == DIM_SLOTS;
}

static bool has_all_tokens(const Step *s, Operand x)
{
    const Value *v = x.value >= 0 ? &s->values.at[x.value] : NULL;
    return v && (v->dim[0] == DIM_ALL_TOKENS || v->dim[1] == DIM_ALL_TOKENS || v->dim[0] == DIM_TILES);
}

/* A copy of the value's description, for all tokens. */
static int all_tokens_of(Step *s, int value, const char *form)
{
    Value v = s->values.at[value];
    v.name = arena_printf(s->arena, form, v.name);
    v.dim[0] = DIM_ALL_TOKENS;
    v.index = INDEX_LAYER;
    v.kept = false;
    const int known = step_value(s, v.name);
    return known >= 0 ? known : step_add_value(s, v);
}

static bool writes(const Block *b, int value)
{
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.at[i].write[0].value == value)
            return true;
    return false;
}

/* Gathers, for example, h1 of all tokens, before its first reader. */
static void gather_input(Step *s, Block *to, Op *o, int operand)
{
    const int own = o->read[operand].value, all = all_tokens_of(s, own, "%s_all");
    if (!writes(to, all)) {
        Op gather = op_make(OP_TENSOR_GATHER);
        op_read(&gather, own, 0);
        op_write(&gather, all, 0, false);
        *vec_push(s->arena, &to->ops) = gather;
    }
    o->read[operand].value = all;
}

static bool is_own(const Step *s, Operand x)
{
    return x.value >= 0 && s->values.at[x.value].kind == VALUE_ACTIVATION &&
           s->values.at[x.value].dim[0] == DIM_TOKENS;
}

static void gather_inputs(Step *s, Block *to, Op *o)
{
    for (int i = 0; i < OP_READS; i++)
        if (is_own(s, o->read[i]))
            gather_input(s, to, o, i);
}

/* Takes what groups of experts add to their rows' sums out of these, since sums are parts: what the first
 * group adds to, or the last one's biases, which begin with it. base: becomes that. */
static void chain_groups(const Step *s, Op *o, Operand *base)
{
    const bool biased = s->program->model.experts.bias;
    if (o->kind == OP_EXPERTS_OUT_BIAS && o->group > 1)
        o->read[2] = (Operand){step_expert_value(s, "expert_biases", o->group - 1), 0};
    if (o->kind != OP_COMBINE || (!biased && o->group != 1) || !o->group)
        return;
    *base = o->read[2];
    o->read[2] = (Operand){o->group > 1 ? step_expert_value(s, "expert_sum", o->group - 1) : -1, 0};
}

/* Makes a sum whose parts are scattered, and then added to its former addend, a last operand; or to what
 * chain_groups took out, where groups add to the same parts. */
static void scatter_output(Step *s, Block *to, Op o, const Operand *base)
{
    Operand *addend = &o.read[o.kind == OP_COMBINE ? 2 : 1];
    Op scatter = op_make(OP_TENSOR_SCATTER);
    const int part = all_tokens_of(s, o.write[0].value, "%s_part");
    op_read(&scatter, part, 0);
    op_read(&scatter, base ? base->value : addend->value, base ? base->next : addend->next);
    scatter.write[0] = o.write[0];
    o.write[0] = (Operand){part, 0};
    addend->value = base ? addend->value : -1;
    *vec_push(s->arena, &to->ops) = o;
    *vec_push(s->arena, &to->ops) = scatter;
}

/* Whether each rank has a part of the rows that the norm covers. */
static bool is_norm_of_parts(const Step *s, const Block *b, const Op *o)
{
    return o->kind == OP_NORM && op_tensor(s, o, b)->split != SPLIT_NONE;
}

static int add_square(Step *s, const char *form, const char *of, bool kept)
{
    const char *name = arena_printf(s->arena, form, of);
    const int known = step_value(s, name); /* of another kind of layers */
    if (known >= 0)
        return known;
    return step_add_value(s, (Value){.name = name,
                                     .kind = VALUE_ACTIVATION,
                                     .dim = {DIM_ALL_TOKENS},
                                     .element = EL_FLOAT,
                                     .index = INDEX_LAYER,
                                     .kept = kept,
                                     .gradient = -1});
}

/* Adds the norm's second input. Its statistics cover all tokens, like its input. */
static void sum_squares(Step *s, Block *to, Op *norm)
{
    const char *of = s->values.at[norm->read[0].value].name;
    const int part = add_square(s, "square_%s_part", of, false), all = add_square(s, "square_%s", of, true);
    Op squares = op_make(OP_SQUARES), sum = op_make(OP_TENSOR_ALL_REDUCE);
    op_read(&squares, norm->read[0].value, 0);
    op_write(&squares, part, 0, false);
    op_read(&sum, part, 0);
    op_write(&sum, all, 0, false);
    op_read(norm, all, 0);
    s->values.at[norm->write[1].value].dim[0] = DIM_ALL_TOKENS;
    *vec_push(s->arena, &to->ops) = squares;
    *vec_push(s->arena, &to->ops) = sum;
}

typedef Vec(Op) Ops;

static bool reads_from(const Op *o, const Ops *makers)
{
    for (int i = 0; i < makers->n; i++)
        for (int j = 0; j < OP_READS && o->read[j].value >= 0; j++)
            if (makers->at[i].write[0].value == o->read[j].value)
                return true;
    return false;
}

/* Puts norms of parts of rows, and what is computed from them, directly before attention. */
static void split_norms(Step *s, Block *b)
{
    Block to = *b;
    Ops late = {0};
    memset(&to.ops, 0, sizeof to.ops);
    for (int i = 0; i < b->ops.n; i++) {
        Op o = b->ops.at[i];
        const bool norm = is_norm_of_parts(s, b, &o);
        if (norm)
            sum_squares(s, &to, &o);
        for (int j = 0; j < late.n && o.kind == OP_ATTENTION; j++)
            *vec_push(s->arena, &to.ops) = late.at[j];
        late.n = o.kind == OP_ATTENTION ? 0 : late.n;
        if (norm || reads_from(&o, &late))
            *vec_push(s->arena, &late) = o;
        else
            *vec_push(s->arena, &to.ops) = o;
    }
    *b = to;
}

static void split_block(Step *s, Block *b)
{
    Block to = *b;
    Operand base = {-1, 0}; /* of the experts' groups */
    memset(&to.ops, 0, sizeof to.ops);
    for (int i = 0; i < b->ops.n; i++) {
        Op o = b->ops.at[i];
        chain_groups(s, &o, &base);
        const bool reads = has_all_tokens(s, o.read[0]), writes = has_all_tokens(s, o.write[0]);
        if (writes)
            gather_inputs(s, &to, &o);
        if (reads && !writes)
            scatter_output(s, &to, o, o.group ? &base : NULL);
        else
            *vec_push(s->arena, &to.ops) = o;
    }
    *b = to;
    split_norms(s, b);
}

void step_tensor(Step *s)
{
    if (s->shape.tensor == 1)
        return;
    for (int i = 0; i < s->values.n; i++) {
        Value *v = &s->values.at[i];
        for (int d = 0; d < 2; d++)
            if (v->dim[d] == DIM_TOKENS && is_split(v->dim[!d]))
                v->dim[d] = DIM_ALL_TOKENS;
    }
    for (int g = 1; g < s->units.groups; g++)
        s->values.at[step_expert_value(s, "expert_sum", g)].dim[0] = DIM_ALL_TOKENS;
    for (int k = 0; k < step_kinds(s); k++)
        split_block(s, &s->block[BLOCK_FORWARD + k]);
}
