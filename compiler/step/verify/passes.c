/* step/verify/passes.c: what holds after every pass over the step's list, whole or not: operands are values
 * with the index that is meant, scopes are in one piece and inside what they need, tensors are those of the
 * block's unit, and nothing
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

/* Refuses a kind without a name. */
static void refuse_kind(Checker *c)
{
    diag_error(c->diags, (Span){0}, "after pass `%s`: an operation has no kind", c->pass);
    c->failed = true;
}

/* ---- one operation ---- */

/* No operand follows the last, and each must be a value. */
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
    else if (o->scope < 0 || o->scope >= c->step->scopes.n)
        refuse(c, block, o, "is in a scope %d, and there are %d", o->scope, c->step->scopes.n);
    else if (o->kind == OP_WAIT && op_stream(o->awaits) == STREAM_COMPUTE)
        refuse(c, block, o, "waits for %s, which computing does itself", op_name(o->awaits));
    else if (!has_tensor(c->step, o, &c->step->block[block]))
        refuse(c, block, o, "has a tensor %s, which its unit lacks", o->weight);
}

/* ---- scopes ---- */

/* A loop over chunks of keys is in one over chunks of queries, and a condition in the loop that it is of. */
static const char *scope_fault(const Step *s, int scope)
{
    const Scope *n = &s->scopes.at[scope], *around = &s->scopes.at[n->around],
                *early = &s->scopes.at[n->early];
    const bool loops = n->around && around->kind == SCOPE_LOOP;
    if (n->kind == SCOPE_LOOP)
        return n->dim == LOOP_KEYS && !(loops && around->dim == LOOP_TOKENS)
                   ? "is a loop over key chunks outside of one over query chunks"
                   : NULL;
    if (n->kind == SCOPE_BEGUN)
        return n->around && around->dim == LOOP_KEYS ? NULL : "reads sums outside of a loop over key chunks";
    if (!loops || around->dim != n->dim)
        return "is a turn ahead outside of its loop";
    return early->kind == SCOPE_LOOP && early->dim == n->dim && early->around == around->around &&
                   early->turns == n->turns && n->turns > 0
               ? NULL
               : "is a turn ahead of a loop whose first turns are missing";
}

static void check_scopes(Checker *c)
{
    const Step *s = c->step;
    for (int i = 1; i < s->scopes.n && !c->failed; i++) {
        const Scope *n = &s->scopes.at[i];
        const bool order = n->around >= 0 && n->around < i && n->early >= 0 && n->early < i && n->dim >= 0 &&
                           n->dim < LOOP_DIMS;
        const char *fault = order ? scope_fault(s, i) : "is not inside a scope before it";
        if (fault)
            diag_error(c->diags, (Span){0}, "after pass `%s`: scope %d %s", c->pass, i, fault);
        c->failed |= fault != NULL;
    }
}

/* Operations of one scope follow each other. */
static void check_loops(Checker *c, int block)
{
    const Step *s = c->step;
    const Block *b = &s->block[block];
    for (int i = 0; i < b->ops.n && !c->failed; i++)
        for (int scope = b->ops.at[i].scope; scope && !c->failed; scope = s->scopes.at[scope].around)
            for (int j = scope_end(s, b, i, scope); j < b->ops.n; j++)
                if (scope_inside(s, b->ops.at[j].scope, scope))
                    refuse(c, block, &b->ops.at[j], "is apart from the other operations of its loop");
}

static void check_lists(Checker *c)
{
    check_scopes(c);
    for (int b = 0; b < STEP_BLOCKS; b++) {
        for (int i = 0; i < c->step->block[b].ops.n && !c->failed; i++) {
            const Op *o = &c->step->block[b].ops.at[i];
            check_flags(c, b, o);
            check_operands(c, b, o, o->read, OP_READS);
            check_operands(c, b, o, o->write, OP_WRITES);
        }
        if (!c->failed)
            check_loops(c, b);
    }
}

/* ---- written before read ---- */

/* Whether it was there when the sequence began, or only its memory is needed: matrices of several layers are
 * collected at their owner. */
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
        step_walk(s, NULL, see, &c);
    arena_free(c.arena);
    return !c.failed;
}
