/* step_chunks.c: the feed-forward network over chunks of the tokens, one after the other.
 *
 * Operations on values of the width ffn become a loop over chunks. What they make and no layer saves is there for one chunk at a
 * time, and so is its gradient: that of a saved one lies in its place. Of all other values a chunk is a range of rows. The first
 * chunk begins a value or adds to it as the whole would; the others write beside it, and add to gradients of weights.
 */
#include "step.h"

#include <stdlib.h>
#include <string.h>

static bool wide(const Value *v)
{
    return v->dim[1] == DIM_FFN || v->dim[1] == DIM_PAIR;
}

static bool is_wide(const Step *s, Operand x)
{
    return x.value >= 0 && wide(&s->values.at[x.value]);
}

static bool touches_wide(const Step *s, const Op *o)
{
    for (int i = 0; i < OP_READS; i++)
        if (is_wide(s, o->read[i]))
            return true;
    for (int i = 0; i < OP_WRITES; i++)
        if (is_wide(s, o->write[i]))
            return true;
    return false;
}

static bool reads_from(const Op *o, const Op *writer)
{
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        for (int j = 0; j < OP_WRITES; j++)
            if (writer->write[j].value == o->read[i].value)
                return true;
    return false;
}

/* The operation at `at` goes before the loop that begins at `first`. */
static void move_before(Block *b, int at, int first)
{
    const Op moved = b->ops.at[at];
    memmove(&b->ops.at[first + 1], &b->ops.at[first], sizeof(Op) * (size_t)(at - first));
    b->ops.at[first] = moved;
}

static bool reads_from_loop(const Block *b, int first, int end, int from, int to)
{
    for (int i = from; i < to; i++)
        for (int j = first; j < end; j++)
            if (reads_from(&b->ops.at[i], &b->ops.at[j]))
                return true;
    return false;
}

int gather_loops(Step *s, Block *b, bool (*touches)(const Step *s, const Op *o), bool by_heads)
{
    int loops = 0, first = 0, end = 0; /* of the loop so far */
    for (int i = 0; i < b->ops.n; i++) {
        if (!touches(s, &b->ops.at[i]))
            continue;
        if (loops == 0 || reads_from_loop(b, first, end, end, i))
            first = end = i, loops++;
        for (; end < i; first++, end++)
            move_before(b, end, first);
        b->ops.at[end].chunked = true;
        b->ops.at[end++].by_heads = by_heads;
    }
    return loops;
}

void step_chunks(Step *s, int chunks)
{
    static const int blocks[] = {BLOCK_FORWARD, BLOCK_BACKWARD, BLOCK_BACKWARD_LOWER};
    if (chunks <= 1)
        return;
    s->chunk = (s->all_tokens + chunks - 1) / chunks;
    s->chunks = (int)((s->all_tokens + s->chunk - 1) / s->chunk);
    for (int i = 0; i < countof(blocks); i++)
        if (gather_loops(s, &s->block[blocks[i]], touches_wide, false) > 1)
            abort(); /* a layer whose wide values are made in two places */
    for (int i = 0; i < s->values.n; i++) {
        Value *v = &s->values.at[i];
        if (!wide(v) || v->kind != VALUE_ACTIVATION || v->saved)
            continue;
        v->dim[0] = DIM_CHUNK;
        if (v->gradient >= 0)
            s->values.at[v->gradient].dim[0] = DIM_CHUNK;
    }
}
