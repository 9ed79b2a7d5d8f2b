/* step/verify/adjacent.c: values that several adjacent tensors compute from one input. On a host they are
 * adjacent arrays of a call's tokens (burst_step.h), so that rows of a chunk are not rows of the whole: all
 * operations have such a value by chunks of the tokens, or all have it whole. */
#include "step/verify/internal.h"

static bool has_operand(const Operand *x, int most, int value)
{
    bool has = false;
    for (int i = 0; i < most; i++)
        has |= x[i].value == value;
    return has;
}

/* Whether the operation computes on the value; copies do not look inside. */
static bool computes_on(const Op *o, int value)
{
    return o->kind != OP_WAIT && !op_copies(o->kind) &&
           (has_operand(o->read, OP_READS, value) || has_operand(o->write, OP_WRITES, value));
}

/* Whether it has the value as what several tensors compute, or as its gradient. */
static bool is_of_several(const Op *o, int value)
{
    const bool result = o->kind == OP_LINEAR && o->write[0].value == value,
               gradient = (o->kind == OP_LINEAR_DW || o->kind == OP_LINEAR_DX) && o->read[0].value == value;
    return o->tensors > 1 && (result || gradient);
}

static void check_value(Machine *m, int value)
{
    const Step *s = m->step;
    bool several = false, by_chunks[2] = {false, false};
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (const Op *o = s->block[b].ops.at; o < s->block[b].ops.at + s->block[b].ops.n; o++) {
            if (!computes_on(o, value))
                continue;
            several |= is_of_several(o, value);
            by_chunks[op_in_loop(s, o, LOOP_TOKENS)] = true;
        }
    if (several && by_chunks[0] && by_chunks[1])
        reject(m, STEP_VALUES,
               "%s is computed by chunks of the tokens and whole, and its arrays lie otherwise",
               s->values.at[value].name);
}

void check_adjacent(Machine *m)
{
    for (int i = 0; i < m->step->values.n && !m->step->program->target->device_memory; i++)
        check_value(m, i);
}
