/* step/passes/backward.c: backward of the step, by the rules of operations (step/operations.def).
 *
 * A value's gradient is one value: if several operations read the value, the first backward writes the
 * gradient and the others add to it. A summand of a residual sum shares the sum's gradient. Among the
 * operations whose output gradients are complete, backward takes the one that is first in forward, and norms
 * of two weights of the layer's input at the end; if queries have loops of their own, the last one, so that
 * their loop is next to attention's. */
#include "step/step.h"

#include <stdlib.h>
#include <string.h>

typedef struct Backward {
    Step *step;
    const Block *from;
    Block *to;
    bool *started; /* [values]: the gradient has a first part */
    bool *done;    /* [operations of from] */
} Backward;

static int gradient_of(Step *s, int value)
{
    const Value v = s->values.at[value];
    if (v.gradient >= 0)
        return v.gradient;
    /* queries, keys and values: gradients are sums over pairs of chunks, which may travel */
    const bool sums = !strcmp(v.name, "q") || !strcmp(v.name, "k") || !strcmp(v.name, "v");
    const int g = step_add_value(s, (Value){.name = arena_printf(s->arena, "d_%s", v.name),
                                            .kind = VALUE_GRADIENT,
                                            .dim = {v.dim[0], v.dim[1]},
                                            .by_heads = v.by_heads,
                                            .element = sums ? EL_FLOAT : v.element,
                                            .index = v.index == INDEX_LAYER ? INDEX_LAYER : INDEX_NONE,
                                            .gradient = -1});
    return s->values.at[value].gradient = g;
}

/* A value of the step by its name, which must exist. */
static Operand named_operand(const Step *s, const char *name)
{
    const int value = step_value(s, name);
    if (value < 0)
        abort(); /* a word of a rule is neither an operand nor a value's name */
    return (Operand){value, 0};
}

static Operand rule_operand(Backward *b, const Op *forward, const char *word)
{
    const bool gradient = word[0] == 'd' && (word[1] == 'x' || word[1] == 'y');
    const char *name = word + gradient;
    const bool operand = (name[0] == 'x' || name[0] == 'y') && name[1] >= '0' && name[1] <= '9' && !name[2];
    if (!operand)
        return named_operand(b->step, word);
    const Operand x = name[0] == 'x' ? forward->read[name[1] - '0'] : forward->write[name[1] - '0'];
    if (x.value < 0)
        return x;
    if (gradient && b->step->values.at[x.value].element == EL_INT)
        return (Operand){-1, 0}; /* numbers have none */
    if (gradient && name[0] == 'y' && b->step->values.at[x.value].gradient < 0)
        return (Operand){-1, 0}; /* its gradient is not needed */
    return gradient ? (Operand){gradient_of(b->step, x.value), 0} : x;
}

/* The next word of a rule's side as an operand; false at its end. */
static bool next_word(Backward *b, const Op *forward, const char **words, Operand *x)
{
    const size_t n = strcspn(*words, " ");
    if (n)
        *x = rule_operand(b, forward, arena_copy(b->step->arena, *words, n));
    *words += n + ((*words)[n] == ' ');
    return n > 0;
}

static void apply(Backward *b, const Op *forward, const OpRule *r)
{
    Op o = op_make(r->kind);
    Operand x;
    o.weight = r->weight ? forward->weight : NULL;
    o.tensors = r->weight ? forward->tensors : 1;
    o.scale = forward->scale;
    o.group = forward->group;
    for (const char *at = r->read; next_word(b, forward, &at, &x);)
        op_read(&o, x.value, x.next);
    for (const char *at = r->write; next_word(b, forward, &at, &x);) {
        if (x.value < 0)
            continue;
        op_write(&o, x.value, x.next, b->started[x.value]);
        b->started[x.value] = true;
    }
    if (o.kind == OP_EXPERTS_SUM) /* the next group's rows are others */
        b->started[o.read[0].value] = false;
    *vec_push(b->step->arena, &b->to->ops) = o;
}

/* The operand to which a sum passes its gradient on: what a product, a sum over ranks, a scaled value or a
 * bias is added to. */
static int passed_to(const Op *forward)
{
    switch (forward->kind) {
    case OP_LINEAR:
    case OP_SCALE:
    case OP_TENSOR_SCATTER: return forward->read[1].value;
    case OP_BIAS:
    case OP_EXPERTS_BIAS: return forward->read[0].value;
    case OP_EXPERTS_OUT_BIAS:
    case OP_COMBINE: return forward->read[2].value;
    default: return -1;
    }
}

/* The gradient of the parts of a sum over ranks, if an earlier operation gathered the same gradient for
 * another sum and nothing has changed it since, as in layers with parallel attention and network; -1:
 * none. */
static int gathered_before(const Backward *b, int gradient)
{
    for (int i = b->to->ops.n - 1; i >= 0; i--) {
        const Op *o = &b->to->ops.at[i];
        if (o->kind == OP_TENSOR_SCATTER_BACK && o->read[0].value == gradient)
            return o->write[0].value;
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0; j++)
            if (o->write[j].value == gradient)
                return -1;
    }
    return -1;
}

/* Whether all its outputs are numbers, of experts or of rows, which have no gradients; or counts. */
static bool of_numbers(const Step *s, const Op *o)
{
    bool all = o->kind != OP_BALANCE;
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        all &= s->values.at[o->write[i].value].element == EL_INT;
    return all;
}

/* Whether all that it makes is an indexer's. */
static bool is_frozen(const Step *s, const Op *o)
{
    return o->write[0].value >= 0 && s->values.at[o->write[0].value].frozen;
}

static void undo(Backward *b, const Op *forward)
{
    if (is_frozen(b->step, forward))
        return;
    /* states have none either: the scan's backward finds those of the states after its pieces */
    if (of_numbers(b->step, forward) || forward->kind == OP_STATES)
        return;
    const int gradient = forward->write[0].value < 0 ? -1 : gradient_of(b->step, forward->write[0].value);
    if (forward->kind == OP_COMBINE) /* what adds up rows passes the sum's on, by tokens */
        b->step->values.at[forward->read[0].value].gradient = gradient;
    if (passed_to(forward) >= 0)
        b->step->values.at[passed_to(forward)].gradient = gradient;
    const int gathered = forward->kind == OP_TENSOR_SCATTER ? gathered_before(b, gradient) : -1;
    if (gathered >= 0) {
        b->step->values.at[forward->read[0].value].gradient = gathered;
        return;
    }
    const OpRule *rule = op_row_of(forward->kind)->backward;
    for (int i = 0; i < OP_RULES && rule[i].read; i++)
        apply(b, forward, &rule[i]);
}

static bool reads(const Op *o, Operand x)
{
    for (int i = 0; i < OP_READS; i++)
        if (o->read[i].value == x.value && o->read[i].next == x.next)
            return true;
    return false;
}

static bool is_norm_of_input(const Backward *b, const Op *o)
{
    return o->kind == OP_NORM && b->step->values.at[o->read[0].value].index == INDEX_BOUNDARY;
}

/* Norms of two weights that read the layer's input add to a gradient that others read, which loops over
 * chunks may gather around them, so they come last. A single norm does not wait, since its output would stay
 * alive. */
static bool comes_last(const Backward *b, const Op *o)
{
    bool two = false, others = false;
    for (int j = 0; j < b->from->ops.n && is_norm_of_input(b, o); j++) {
        const Op *x = &b->from->ops.at[j];
        const bool norm = is_norm_of_input(b, x);
        two |= norm && strcmp(x->weight, o->weight) != 0;
        others |= !norm && !b->done[j];
    }
    return two && others;
}

/* Whether backward of all readers of its outputs is done. A choice of blocks has none, nor has an indexer, so
 * that gradients are added up in the order that they have without one. */
static bool reads_undone(const Backward *b, const Op *o)
{
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        for (int j = 0; j < b->from->ops.n; j++)
            if (!b->done[j] && b->from->ops.at[j].kind != OP_SELECT &&
                !is_frozen(b->step, &b->from->ops.at[j]) && reads(&b->from->ops.at[j], o->write[i]))
                return false;
    return true;
}

/* Backward of a rank's squares needs tensor ranks' sums, so what does not need them goes first. */
static bool sums_go_on(const Backward *b, const Op *o)
{
    for (int j = 0; j < b->from->ops.n && o->kind == OP_SQUARES; j++)
        if (!b->done[j] && b->from->ops.at[j].kind != OP_SQUARES && reads_undone(b, &b->from->ops.at[j]))
            return true;
    return false;
}

/* Another reader begins the gradient of experts' weights, to which that of biases adds, of a group's experts
 * one of the group; and of logits, to which the balance loss adds. */
static bool gradient_begun(const Backward *b, const Op *o)
{
    const bool adds = o->kind == OP_EXPERTS_OUT_BIAS || o->kind == OP_BALANCE;
    const Operand x = o->read[o->kind == OP_EXPERTS_OUT_BIAS];
    for (int j = 0; j < b->from->ops.n && adds; j++)
        if (!b->done[j] && b->from->ops.at[j].kind != o->kind && b->from->ops.at[j].group == o->group &&
            reads(&b->from->ops.at[j], x))
            return false;
    return true;
}

/* Groups of experts follow each other, from the last to the first, as visits of their units do. */
static bool group_begins(const Backward *b, const Op *o)
{
    static const OpKind last[] = {OP_EXPERTS_UP, OP_EXPERTS_BIAS, OP_EXPERTS_ACT, OP_EXPERTS_DOWN,
                                  OP_EXPERTS_OUT_BIAS};
    const bool begins = o->kind == OP_EXPERTS_DOWN || o->kind == OP_EXPERTS_OUT_BIAS;
    for (int j = 0; j < b->from->ops.n && begins; j++)
        for (int i = 0; i < countof(last) && !b->done[j]; i++)
            if (b->from->ops.at[j].kind == last[i] && b->from->ops.at[j].group > o->group)
                return false;
    return true;
}

/* Rows of experts are numbered within a chunk of the tokens, so that all that reads the numbers stays in the
 * loop over chunks that makes them: what sums over tensor ranks what the loop makes comes after it. So it
 * does after biases of groups' outputs, each of which begins the gradients of its own choices' weights. */
static bool rows_are_done(const Backward *b, const Op *o)
{
    bool done = true;
    for (int j = 0; j < b->from->ops.n && o->kind == OP_TENSOR_GATHER; j++) {
        const Op *x = &b->from->ops.at[j];
        done &= b->done[j] || (x->kind != OP_EXPERTS_UP && (x->kind != OP_EXPERTS_OUT_BIAS || !x->group));
    }
    return done;
}

static bool may_begin(const Backward *b, const Op *o)
{
    return gradient_begun(b, o) && group_begins(b, o) && rows_are_done(b, o);
}

static bool ready(const Backward *b, const Op *o)
{
    return !comes_last(b, o) && reads_undone(b, o) && !sums_go_on(b, o) && may_begin(b, o);
}

/* [values]: each value gets at most one more, its gradient. */
static Backward backward_of(Step *s, int from, int to)
{
    return (Backward){s, &s->block[from], &s->block[to], NEW_ARRAY(s->arena, bool, 2 * s->values.n),
                      NEW_ARRAY(s->arena, bool, s->block[from].ops.n)};
}

/* Makes a block's backward, given the gradient of x, its output. */
static void block_backward(Step *s, int from, int to, int operations)
{
    Backward b = backward_of(s, from, to);
    b.started[gradient_of(s, step_value(s, "x"))] = true;
    for (int left = operations; left > 0; left--) {
        const int by = s->by_queries ? -1 : 1;
        int i = by < 0 ? operations - 1 : 0;
        while (b.done[i] || !ready(&b, &b.from->ops.at[i]))
            i += by;
        const Op forward = b.from->ops.at[i]; /* a copy: to may be from */
        b.done[i] = true;
        undo(&b, &forward);
    }
}

/* The loss computes its input's gradient itself; backward of earlier operations runs from the last to the
 * first. */
static void loss_gradient(Step *s)
{
    const int before = s->block[BLOCK_HEAD].ops.n - 1;
    Op *loss = &s->block[BLOCK_HEAD].ops.at[before];
    op_write(loss, gradient_of(s, loss->read[0].value), 0, false);
    Backward b = backward_of(s, BLOCK_HEAD, BLOCK_HEAD);
    for (int i = before - 1; i >= 0; i--) {
        const Op forward = s->block[BLOCK_HEAD].ops.at[i]; /* a copy: the block grows */
        undo(&b, &forward);
    }
}

void step_backward(Step *s)
{
    if (s->forward)
        return;
    if (s->program->model.experts.experts)
        step_add_value(s, (Value){.name = "expert_rows",
                                  .kind = VALUE_GRADIENT,
                                  .dim = {s->values.at[step_expert_value(s, "expert_out", 1)].dim[0],
                                          DIM_TOP_HIDDEN},
                                  .gradient = -1});
    if (s->pieces && s->program->model.scan.heads)
        step_add_value(s, (Value){.name = "scan_after",
                                  .kind = VALUE_GRADIENT,
                                  .dim = {DIM_SCAN_PIECES, DIM_SCAN_STATE},
                                  .element = EL_FLOAT,
                                  .gradient = -1});
    step_add_value(s, (Value){.name = "delta",
                              .kind = VALUE_GRADIENT,
                              .dim = {DIM_HEADS, s->values.at[step_value(s, "lse")].dim[1]},
                              .element = EL_FLOAT,
                              .gradient = -1});
    loss_gradient(s);
    for (int k = 0; k < step_kinds(s); k++)
        block_backward(s, BLOCK_FORWARD + k, BLOCK_BACKWARD + k, s->block[BLOCK_FORWARD + k].ops.n);
    block_backward(s, BLOCK_EMBED, BLOCK_EMBED_BACK, s->block[BLOCK_EMBED].ops.n);
}
