/* step_save.c: what forward saves for backward, and what backward makes again.
 *
 * A rule of recomputation is the set of values that it saves. What backward reads and nobody saved is made again just before
 * the operation that reads it: the operation of forward that wrote it, and before that what it reads in turn. So a rule of
 * one's own is a row.
 */
#include "step.h"

#include <string.h>

Saving saving_of(const Choice *c)
{
    return c->saving.upper ? c->saving : (Saving){recompute_saved[c->recompute], recompute_saved[c->recompute], 0};
}

typedef struct Saver { Step *step; const Block *forward; Vec(Op) out; bool *here; /* [values] */ } Saver;

static const Op *writer_of(const Saver *s, int value)
{
    for (int i = 0; i < s->forward->ops.n; i++)
        for (int j = 0; j < OP_WRITES; j++)
            if (s->forward->ops.at[i].write[j].value == value && !s->forward->ops.at[i].write[j].next)
                return &s->forward->ops.at[i];
    return NULL;
}

static void need(Saver *s, int value)
{
    const Op *w = value < 0 || s->here[value] ? NULL : writer_of(s, value);
    if (!w)
        return;
    for (int i = 0; i < OP_READS; i++)
        need(s, w->read[i].value);
    Op *again = vec_push(s->step->arena, &s->out);
    *again = *w;
    again->again = true;
    for (int i = 0; i < OP_WRITES; i++)
        if (w->write[i].value >= 0)
            s->here[w->write[i].value] = true;
}

static bool savable(const Value *v)
{
    return v->kind == VALUE_ACTIVATION && v->index != INDEX_NONE;
}

void make_again(Step *s, const Block *from, const char *set, Block *to)
{
    Saver v = {s, &s->block[BLOCK_FORWARD], {0}, NEW_ARRAY(s->arena, bool, s->values.n)};
    for (int i = 0; i < s->values.n; i++)
        v.here[i] = !savable(&s->values.at[i]) || saves(set, s->values.at[i].name);
    for (int i = 0; i < from->ops.n; i++) {
        for (int j = 0; j < OP_READS; j++)
            need(&v, from->ops.at[i].read[j].value);
        *vec_push(s->arena, &v.out) = from->ops.at[i];
    }
    to->ops.at = v.out.at, to->ops.n = v.out.n, to->ops.cap = v.out.cap;
}

void step_save(Step *s, Saving v)
{
    Block *upper = &s->block[BLOCK_BACKWARD], *lower = &s->block[BLOCK_BACKWARD_LOWER];
    s->saving = v;
    for (int i = 0; i < s->values.n; i++) {
        Value *x = &s->values.at[i];
        x->saved = savable(x) && saves(v.upper, x->name);
        x->saved_from = saves(v.lower, x->name) ? 0 : v.from;
    }
    upper->first = lower->end = v.from;
    if (v.from)
        make_again(s, upper, v.lower, lower);
    make_again(s, upper, v.upper, upper);
}
