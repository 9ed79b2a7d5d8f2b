/* step/verify/slices.c: units in slices. A shard has each element that all ranks have once, and then a slice
 * of each matrix; gathered, all slices of a matrix follow one another and hold each of its rows once. What
 * operations of a later token read is there: a tensor that all ranks have, or the slice of a whole matrix by
 * an operation whose parts ranks gather or add up. */
#include "step/verify/internal.h"

#include <string.h>

static int64_t elements_of(const UnitTensor *t) { return t->rows * t->cols; }

static bool is_of_experts(const UnitTensor *t) { return strncmp(t->name, "mlp.experts.", 12) == 0; }

/* Tensors from this one on that are one matrix. */
static int tensors_of_matrix(const Unit *u, const UnitTensor *t)
{
    int n = 1;
    while (&t[n] < u->tensor + u->tensors && t[n].slice == SLICE_GOES_ON)
        n++;
    return n;
}

static int64_t elements_of_matrix(const Unit *u, const UnitTensor *t)
{
    int64_t elements = 0;
    for (int i = 0; i < tensors_of_matrix(u, t); i++)
        elements += elements_of(&t[i]);
    return elements;
}

/* What a slice has a whole number of: rows, or experts. */
static int64_t grain_of(const Machine *m, const Unit *u, const UnitTensor *t)
{
    return is_of_experts(t) ? elements_of_matrix(u, t) / m->step->program->model.experts.experts : t->cols;
}

/* Tensors of a matrix follow one another where its first slice begins. */
static void check_matrix(Machine *m, const Unit *u, const UnitTensor *t, int64_t slices)
{
    const int n = tensors_of_matrix(u, t);
    const int64_t elements = elements_of_matrix(u, t);
    int64_t at = u->whole + u->ranks * slices;
    for (int i = 0; i < n; i++) {
        if (t[i].offset != at)
            reject(m, STEP_UNITS, "%s of %s is not where gathered slices have it", t[i].name, u->name);
        at += elements_of(&t[i]);
    }
    if (t->slice_at != u->whole + slices || t->slice % grain_of(m, u, t) != 0 ||
        u->ranks * t->slice < elements)
        reject(m, STEP_UNITS, "slices of %s of %s do not have each row once", t->name, u->name);
}

static void check_unit(Machine *m, const Unit *u)
{
    int64_t whole = 0, slices = 0, elements = 0;
    for (const UnitTensor *t = u->tensor; t < u->tensor + u->tensors; t++) {
        elements += elements_of(t);
        if (t->slice == 0 && (t->offset != whole || slices))
            reject(m, STEP_UNITS, "%s of %s is not where each rank has it", t->name, u->name);
        if (t->slice == 0)
            whole += elements_of(t);
        if (t->slice <= 0)
            continue;
        check_matrix(m, u, t, slices);
        slices += t->slice;
    }
    if (whole > u->whole || u->shard != u->whole + slices || elements != u->elements)
        reject(m, STEP_UNITS, "a shard of %s has %lld elements, and needs %lld", u->name, (long long)u->shard,
               (long long)(u->whole + slices));
}

/* Tensors that the operation reads, from its own on. */
static int tensors_read(const Unit *u, const Op *o, const UnitTensor *t)
{
    int n = o->tensors;
    if (o->kind != OP_EXPERTS_UP && o->kind != OP_EXPERTS_DOWN)
        return n;
    while (&t[n] < u->tensor + u->tensors && is_of_experts(&t[n]) && strstr(t[n].name, ".weight") &&
           !strstr(t[n].name, ".down_proj") == (o->kind == OP_EXPERTS_UP))
        n++;
    return n;
}

/* The head reads its bias by its own address. */
static void check_op(Machine *m, const Block *b, const Op *o)
{
    static const OpKind in_parts[] = {OP_LINEAR, OP_EMBED, OP_NEXT, OP_EXPERTS_UP, OP_EXPERTS_DOWN};
    const UnitTensor *t = op_tensor(m->step, o, b);
    const Unit *u = &m->step->units.at[step_unit_row(m->step, o, b)];
    bool parts = false;
    if (t < u->tensor || t >= u->tensor + u->tensors)
        u = &m->step->units.at[0]; /* a tied head's */
    const int reads = o->kind == OP_NEXT ? 1 : tensors_read(u, o, t);
    for (int i = 0; i < countof(in_parts); i++)
        parts |= in_parts[i] == o->kind;
    if (t->slice && (!parts || t->slice < 0 || tensors_of_matrix(u, t) != reads))
        reject(m, STEP_UNITS, "%s of a later token reads %s, of which a rank has a slice", op_name(o->kind),
               o->weight);
    for (int i = 0; i < reads && !t->slice; i++)
        if (t[i].slice)
            reject(m, STEP_UNITS, "%s of a later token reads %s, of which a rank has a slice",
                   op_name(o->kind), t[i].name);
}

void check_slices(Machine *m)
{
    const Units *u = &m->step->units;
    for (int i = 0; i < u->n && u->slices; i++)
        check_unit(m, &u->at[i]);
    for (int b = 0; b < STEP_BLOCKS && u->slices; b++)
        for (int i = 0; i < m->step->block[b].ops.n && !m->failed; i++)
            if (m->step->block[b].ops.at[i].weight)
                check_op(m, &m->step->block[b], &m->step->block[b].ops.at[i]);
}
