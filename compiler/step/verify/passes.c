/* step/verify/passes.c: what holds after every pass over the step's list, whole or not: operands are values
 * with the index that is meant, loops are in one piece, tensors are those of the block's unit, and nothing
 * is read or added to that no operation before it wrote. Proofs 7 to 10 are of the whole list, and say more.
 */
#include "step/verify/verify.h"

#include <string.h>

typedef struct Checker {
    Arena *arena;
    Diags *diags;
    const char *pass;
    const Step *step;
    bool **written; /* [values][index] */
    bool failed;
} Checker;

static void __attribute__((format(printf, 4, 5))) refuse(Checker *c, int block, const Op *o, const char *fmt,
                                                         ...)
{
    va_list ap;
    Text t = {0};
    if (c->failed)
        return;
    va_start(ap, fmt);
    text_vprintf(&t, fmt, ap);
    va_end(ap);
    diag_error(c->diags, (Span){0}, "after pass `%s`: %s in block `%s` %s", c->pass, op_name(o->kind),
               c->step->block[block].name, t.at);
    text_free(&t);
    c->failed = true;
}

/* One that has no name. */
static void refuse_kind(Checker *c)
{
    diag_error(c->diags, (Span){0}, "after pass `%s`: an operation has no kind", c->pass);
    c->failed = true;
}

/* ---- one operation ---- */

/* Behind the last operand there is none, and each means a value. */
static void check_operands(Checker *c, int block, const Op *o, const Operand *x, int most)
{
    bool ended = false;
    for (int i = 0; i < most; i++) {
        if (x[i].value >= c->step->values.n || x[i].next < -1 || x[i].next > 1)
            refuse(c, block, o, "has an operand %d that is no value", i);
        else if (x[i].value >= 0 && ended)
            refuse(c, block, o, "has an operand %d behind the last", i);
        ended |= x[i].value < 0;
    }
    if (!ended)
        refuse(c, block, o, "has no place behind its last operand");
}

/* op_tensor takes a name that the unit lacks for the embedding's, which a head may be tied to. */
static bool has_tensor(const Step *s, const Op *o, const Block *b)
{
    return !o->weight || strcmp(op_tensor(s, o, b)->name, o->weight) == 0 ||
           (s->program->model.tied && b == &s->block[BLOCK_HEAD]);
}

static void check_flags(Checker *c, int block, const Op *o)
{
    if (o->kind < 0 || o->kind >= OP_KINDS || o->awaits < 0 || o->awaits >= OP_KINDS)
        refuse_kind(c);
    else if ((o->by_heads || o->keys || o->ahead) && !o->chunked)
        refuse(c, block, o, "is of a loop, and outside of any");
    else if ((o->early || o->sums) && !o->keys)
        refuse(c, block, o, "is of a loop over key chunks, and outside of any");
    else if (o->by_heads && o->keys)
        refuse(c, block, o, "is of a loop over key chunks inside one over heads");
    else if (o->kind == OP_WAIT && op_stream(o->awaits) == STREAM_COMPUTE)
        refuse(c, block, o, "waits for %s, which computing does itself", op_name(o->awaits));
    else if (!has_tensor(c->step, o, &c->step->block[block]))
        refuse(c, block, o, "has a tensor %s, which its unit lacks", o->weight);
}

/* Operations of one loop follow each other. */
static void check_loops(Checker *c, int block)
{
    const Block *b = &c->step->block[block];
    for (int i = 0; i < b->ops.n && !c->failed; i++)
        for (int j = loop_end(b, i); j < b->ops.n; j++)
            if (op_same_loop(&b->ops.at[i], &b->ops.at[j]))
                refuse(c, block, &b->ops.at[j], "is apart from the other operations of its loop");
}

static void check_lists(Checker *c)
{
    for (int b = 0; b < STEP_BLOCKS; b++) {
        for (int i = 0; i < c->step->block[b].ops.n && !c->failed; i++) {
            const Op *o = &c->step->block[b].ops.at[i];
            check_flags(c, b, o);
            check_operands(c, b, o, o->read, OP_READS);
            check_operands(c, b, o, o->write, OP_WRITES);
        }
        check_loops(c, b);
    }
}

/* ---- written before read ---- */

/* Whether it was there when the sequence began, or its memory is all that is asked: of matrices at their
 * owner each layer's are beside those of others. */
static bool is_given(const Value *v)
{
    return v->kind == VALUE_INPUT || v->kind == VALUE_STATE || v->kind == VALUE_ROUNDED ||
           v->kind == VALUE_SCRATCH || v->dim[0] == DIM_MATRICES;
}

static bool *written_at(Checker *c, const StepOp *at, Operand x)
{
    const Value *v = &c->step->values.at[x.value];
    const int i = operand_index(c->step, at, x);
    if (i >= 0 && i < value_indices(c->step, v))
        return &c->written[x.value][i];
    refuse(c, at->block, at->op, "means %s[%d], and there are %d", v->name, i, value_indices(c->step, v));
    return NULL;
}

static void check_read(Checker *c, const StepOp *at, Operand x, const char *how)
{
    const bool *written = written_at(c, at, x);
    if (written && !*written && !is_given(&c->step->values.at[x.value]))
        refuse(c, at->block, at->op, "%s %s[%d], which no operation before it writes", how,
               c->step->values.at[x.value].name, operand_index(c->step, at, x));
}

static void see(void *to, const StepOp *at)
{
    Checker *c = to;
    const Op *o = at->op;
    if (c->failed || !op_follows(c->step, at))
        return;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        check_read(c, at, o->read[i], o->kind == OP_WAIT ? "waits for" : "reads");
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0 && !c->failed; i++) {
        if (o->adds[i])
            check_read(c, at, o->write[i], "adds to");
        bool *written = written_at(c, at, o->write[i]);
        if (written)
            *written = true;
    }
}

bool step_check(Diags *d, const Step *s, const char *pass)
{
    Checker c = {.arena = arena_new(), .diags = d, .pass = pass, .step = s};
    check_lists(&c);
    c.written = NEW_ARRAY(c.arena, bool *, s->values.n);
    for (int i = 0; i < s->values.n; i++)
        c.written[i] = NEW_ARRAY(c.arena, bool, value_indices(s, &s->values.at[i]));
    if (!c.failed)
        step_walk(s, see, &c);
    arena_free(c.arena);
    return !c.failed;
}
