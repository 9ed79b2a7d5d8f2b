/* step_space.c: activations that wait for backward in the host's memory (as FPDT's chunks do, arXiv 2408.16978).
 *
 * A value that is staged has a copy in the host's memory for each layer. Forward of a layer begins with the stage of the layer before; that has
 * arrived before the layer writes the next one's, or at its end. Backward begins with the fetch of the layer that follows it there. Both run
 * on the stream of copies, one after the other. So two layers' values are on the device at once, in the places that their lifetimes leave
 * them, and the last layer's stay: backward begins with them.
 */
#include "step.h"

#include <string.h>

/* Whether the block reads it, as forward left it: a norm that is made again writes its statistics too. */
static bool reads_saved(const Block *b, int value)
{
    bool reads = false, again = false;
    for (int i = 0; i < b->ops.n; i++) {
        for (int j = 0; j < OP_READS; j++)
            reads |= b->ops.at[i].read[j].value == value && b->ops.at[i].read[j].next == 0;
        for (int j = 0; j < OP_WRITES; j++)
            again |= b->ops.at[i].again && b->ops.at[i].write[j].value == value;
    }
    return reads && !again;
}

static bool has_dim(const Value *v, Dim d) { return v->dim[0] == d || v->dim[1] == d; }

/* Whether every layer saves it, and backward of each reads it. */
static bool can_stage(const Step *s, int value)
{
    const Value *v = &s->values.at[value];
    const Block *lower = &s->block[BLOCK_BACKWARD_LOWER];
    const bool rows = has_dim(v, DIM_TOKENS) || has_dim(v, DIM_ALL_TOKENS); /* not of a chunk of them */
    if (s->program->model.layers == 1)
        return false;
    return v->kind == VALUE_ACTIVATION && rows && v->saved && v->saved_from == 0 && !v->host &&
           reads_saved(&s->block[BLOCK_BACKWARD], value) && (!lower->ops.n || reads_saved(lower, value));
}

/* Of the layer before: forward's, and in backward the one that follows. */
static Op copy_of(OpKind k, int from, int to)
{
    Op o = op_make(k);
    op_read(&o, from, -1);
    op_write(&o, to, -1, false);
    return o;
}

/* Before what writes a staged value of the next layer, with the loop around it: as it begins, the places of the layer before are free. */
static int before_next(const Block *b)
{
    for (int i = 0; i < b->ops.n; i++)
        for (int j = 0; j < OP_WRITES && b->ops.at[0].kind == OP_STAGE; j++)
            if (b->ops.at[i].write[j].value == b->ops.at[0].read[0].value && b->ops.at[i].write[j].next == 1) {
                while (i > 0 && op_same_loop(&b->ops.at[i], &b->ops.at[i - 1]))
                    i--;
                return i;
            }
    return b->ops.n;
}

/* The copies are in order: with the last all are there. */
static void add_wait(Step *s, int last)
{
    Block *b = &s->block[BLOCK_FORWARD];
    Op o = op_make(OP_WAIT);
    op_read(&o, last, -1);
    op_insert(s, b, before_next(b), o);
}

static int add_copy(Step *s, int value)
{
    Value v = s->values.at[value];
    v.name = arena_printf(s->arena, "%s_host", v.name);
    v.host = true;
    v.gradient = -1;
    return step_add_value(s, v);
}

void step_space(Step *s, const char *set)
{
    int staged = 0, host = -1;
    for (int i = 0, n = s->values.n; i < n; i++) {
        if (!set || !saves(set, s->values.at[i].name) || !can_stage(s, i))
            continue;
        host = add_copy(s, i);
        op_insert(s, &s->block[BLOCK_FORWARD], staged, copy_of(OP_STAGE, i, host));
        op_insert(s, &s->block[BLOCK_BACKWARD], staged, copy_of(OP_FETCH, host, i));
        if (s->block[BLOCK_BACKWARD_LOWER].ops.n)
            op_insert(s, &s->block[BLOCK_BACKWARD_LOWER], staged, copy_of(OP_FETCH, host, i));
        staged++;
    }
    if (staged)
        add_wait(s, host);
}

/* The largest first: a byte that is staged frees as much and takes as long, whatever it is of. */
const char *offload_at(Arena *a, const Program *p, const Partition *part, Units units, Saving v, int values)
{
    Arena *own = arena_new();
    Step *s = step_model(own, p, part, units);
    step_tensor(s);
    step_backward(s);
    step_save(s, v);
    const char *set = " ";
    for (int n = 0; n < values; n++) {
        const Value *most = NULL;
        for (int i = 0; i < s->values.n; i++) {
            const Value *x = &s->values.at[i];
            if (can_stage(s, i) && !saves(set, x->name) && (!most || step_bytes(s, x, 1) > step_bytes(s, most, 1)))
                most = x;
        }
        set = most ? arena_printf(own, "%s%s ", set, most->name) : set;
    }
    set = arena_printf(a, "%s", set);
    arena_free(own);
    return set;
}

int64_t step_staged_bytes(const Step *s, Dim tokens)
{
    int64_t bytes = 0;
    for (int i = 0; i < s->values.n; i++) {
        const Value *v = &s->values.at[i];
        bytes += v->host && v->kind == VALUE_ACTIVATION && has_dim(v, tokens) ? step_bytes(s, v, 1) : 0;
    }
    return bytes / (tokens == DIM_TOKENS ? s->tokens : s->all_tokens);
}
