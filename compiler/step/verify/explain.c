/* step/verify/explain.c: messages for refusals. */
#include "step/verify/internal.h"

static const char *const proof_names[] = {
#define X(id, number, name) [number] = name,
    STEP_PROOFS(X)
#undef X
};

/* ---- messages ---- */

const char *name_of(const Machine *m, int value)
{
    return m->step->values.at[value].name;
}

const char *op_text(const Machine *m, int t)
{
    const StepOp *o = &m->flow->op[t];
    const char *layer = m->step->block[o->block].end ? arena_printf(m->arena, " of layer %d", o->layer) : "";
    return arena_printf(m->arena, "%s%s%s in block `%s`%s", op_name(o->op->kind), o->op->weight ? " of " : "",
                        o->op->weight ? o->op->weight : "", m->step->block[o->block].name, layer);
}

static const char *made_text(const Machine *m, const Made *x)
{
    const char *layer = block_phase(x->block) == BLOCK_FORWARD
                            ? arena_printf(m->arena, " of layer %d", x->unit - 1)
                            : "";
    return arena_printf(m->arena, "%s%s%s%s", op_name(x->op->kind), x->op->weight ? " of " : "",
                        x->op->weight ? x->op->weight : "", layer);
}

static const char *now_text(const Machine *m)
{
    if (m->now < -1)
        return "forward of a layer";
    return m->now < 0 ? "at the end of the step" : op_text(m, m->now);
}

void __attribute__((format(printf, 3, 4))) reject(Machine *m, StepProof proof, const char *fmt, ...)
{
    va_list ap;
    Text t = {0};
    if (m->failed)
        return;
    va_start(ap, fmt);
    text_vprintf(&t, fmt, ap);
    va_end(ap);
    diag_error(m->diags, (Span){0}, "proof %d (%s) fails: %s: %s", proof, proof_names[proof], now_text(m),
               t.at);
    text_free(&t);
    m->failed = true;
}

const char *record_text(const Machine *m, const Record *r)
{
    if (!r)
        return "nothing";
    const char *name = name_of(m, r->value);
    return r->op < 0 ? name : arena_printf(m->arena, "%s of %s", name, op_text(m, r->op));
}

/* ---- reasons ---- */

static int count_part(const Record *r, uint64_t part)
{
    int n = 0;
    for (; r; r = r->before)
        n += r->part == part;
    return n;
}

/* Chunks of the loop around forward's operation, and so around its backward. */
static int chunks_of(const Machine *m, const Made *x)
{
    return op_dim(m->step, x->op) != LOOP_DIMS ? op_chunks(m->step, x->op) : m->step->chunks;
}

/* What is wrong with a part of a sum, which may have come in chunks; NULL: it is there exactly once. */
static const char *part_fault(const Machine *m, const Record *r, uint64_t part, const Made *of)
{
    const int whole = count_part(r, part), chunks = chunks_of(m, of);
    for (int c = 0; !whole && c < chunks && chunks > 1; c++) {
        const int n = count_part(r, chunk_number(part, c, chunks));
        if (n != 1)
            return arena_printf(m->arena, "chunk %d of the part of %s %s", c, made_text(m, of),
                                n ? "is in it twice" : "is missing");
    }
    return whole == 1 || (!whole && chunks > 1)
               ? NULL
               : arena_printf(m->arena, "the part of %s %s", made_text(m, of),
                              whole ? "is in it twice" : "is missing");
}

/* What is wrong with the gradient of an output; NULL: it has all parts, and something else in addition. */
static const char *gradient_fault(const Machine *m, const Made *x, int output, const Record *r)
{
    const char *fault = NULL;
    for (const Made *k = m->made.at; k < m->made.at + m->made.n && !fault; k++)
        for (int n = 0; n < k->ins && !fault; n++) {
            if (k->from[n] != x - m->made.at || k->output[n] != output)
                continue;
            fault = passes(m, k, n) ? gradient_fault(m, k, 0, r)
                                    : part_fault(m, r, part_number(m, k, 'd', n), k);
        }
    return fault;
}

const char *sum_fault(const Machine *m, int unit, const Record *r)
{
    for (const Made *k = m->made.at; k < m->made.at + m->made.n; k++) {
        /* tied: the other part is elsewhere */
        const bool one_of_two = m->step->program->model.tied && unit == 0;
        const uint64_t part = part_number(m, k, 'w', 0);
        const char *fault = k->weights == unit && adds_to_sum(k->op) ? part_fault(m, r, part, k) : NULL;
        if (fault && !(one_of_two && !count_part(r, part)))
            return fault;
    }
    return "it was not zeroed, or has parts of other units";
}

/* Reports the first operand that differs from the nearest operation of forward. */
void explain(Machine *m, const Doing *d, const Rule *r, const Made *x, int bad)
{
    if (!x || bad < 0) {
        reject(m, STEP_UNITS, "forward has no such operation in unit %d", d->at->unit);
    } else if (bad >= d->datas || !r->read[2 * bad]) {
        reject(m, STEP_VALUES, "it does not have the operands of its kind");
    } else if (r->read[2 * bad] == 'g') {
        const char *fault = gradient_fault(m, x, r->read[2 * bad + 1] - '0', d->data[bad].record);
        reject(m, STEP_GRADIENTS, "%s[%d] is not the whole gradient of what %s makes: %s",
               name_of(m, d->data[bad].value), d->data[bad].index, made_text(m, x),
               fault ? fault : "what it was added to is not part of it");
    } else {
        reject(m, STEP_VALUES, "%s[%d] is not what %s has there: it is %s", name_of(m, d->data[bad].value),
               d->data[bad].index, made_text(m, x), record_text(m, d->data[bad].record));
    }
}
