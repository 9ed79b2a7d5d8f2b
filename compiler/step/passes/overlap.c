/* step/passes/overlap.c: overlaps tensor ranks' communication with products of backward that do not need it
 * (Megatron-LM, arXiv 2205.05198, section 4.3).
 *
 * A layer's operations stay the same, in another order. Products for weight gradients can be late: only the
 * reduction reads them. A scatter of a gradient's parts is overlapped with those products that read the same
 * gradient, a gather with one that is left over. Gathers repeated for backward's products begin as soon as
 * their norm can be recomputed. Sums of each tensor keep their order. */
#include "step/step.h"

static void move_op(Block *b, int from, int to)
{
    const Op moved = b->ops.at[from];
    for (int i = from; i != to; i += from < to ? 1 : -1)
        b->ops.at[i] = b->ops.at[i + (from < to ? 1 : -1)];
    b->ops.at[to] = moved;
}

static bool reads(const Op *o, int value)
{
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        if (o->read[i].value == value)
            return true;
    return false;
}

static bool writes(const Op *o, int value)
{
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        if (o->write[i].value == value)
            return true;
    return false;
}

/* A product for a whole weight gradient, which may be late. */
static bool can_wait(const Op *o) { return o->kind == OP_LINEAR_DW && !o->scope; }

/* Whether the block computes this value from a value with the given gradient. */
static bool makes_from(const Block *b, int end, int value, int gradient)
{
    for (int i = 0; i < end; i++)
        if (b->ops.at[i].kind == OP_LINEAR_DX && writes(&b->ops.at[i], value) &&
            b->ops.at[i].read[0].value == gradient)
            return true;
    return false;
}

/* Puts the weight gradients of the products whose parts the scatter at `at` adds up after it. */
static void put_beside_scatter(Block *b, int at)
{
    const int parts = b->ops.at[at].read[0].value;
    for (int i = 0, left = at; i < left;)
        if (can_wait(&b->ops.at[i]) && makes_from(b, at, parts, b->ops.at[i].read[0].value))
            move_op(b, i, at), left--;
        else
            i++;
}

/* Puts the last weight gradient that no other transfer overlaps after the gather at `at`. */
static void put_beside_gather(Block *b, int at)
{
    int found = -1;
    bool beside = false;
    for (int i = 0; i < at; i++) {
        const Op *o = &b->ops.at[i];
        beside = op_stream(o->kind) == STREAM_TENSOR || (beside && can_wait(o));
        found = can_wait(o) && !beside ? i : found;
    }
    if (found >= 0)
        move_op(b, found, at);
}

/* Whether an operation of the block before `end` writes what this one reads. */
static bool depends(const Block *b, int end, const Op *o)
{
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        for (int j = 0; j < end; j++)
            if (writes(&b->ops.at[j], o->read[i].value))
                return true;
    return false;
}

/* The first operation from `from` on that reads the value; their number: none. */
static int first_reader(const Block *b, int from, int value)
{
    while (from < b->ops.n && !reads(&b->ops.at[from], value))
        from++;
    return from;
}

/* Puts a gather, with the norm that computes its input, after the first operation that waits for the
 * previous transfer, and its loop: computing waits for all of the tensor ranks' queued work. */
static void put_behind_wait(const Step *s, Block *b, int at)
{
    const Op *norm = &b->ops.at[at - 1];
    int before = at - 2;
    if (norm->kind != OP_NORM || norm->scope || !reads(&b->ops.at[at], norm->write[0].value) ||
        depends(b, at - 1, norm))
        return;
    while (before >= 0 && op_stream(b->ops.at[before].kind) != STREAM_TENSOR)
        before--;
    int to = before < 0 ? b->ops.n : first_reader(b, before + 1, b->ops.at[before].write[0].value) + 1;
    while (to < b->ops.n && op_same_loop(s, &b->ops.at[to], &b->ops.at[to - 1]))
        to++;
    if (to < at - 1) {
        move_op(b, at - 1, to);
        move_op(b, at, to + 1);
    } else if (to > at && to <= first_reader(b, at + 1, b->ops.at[at].write[0].value)) {
        move_op(b, at, to - 1);
        move_op(b, at - 1, to - 2);
    }
}

void step_overlap(Step *s)
{
    for (int k = BLOCK_BACKWARD; k < BLOCK_EMBED_BACK; k++) {
        Block *b = &s->block[k];
        for (int i = 0; i < b->ops.n; i++)
            if (b->ops.at[i].kind == OP_TENSOR_GATHER_BACK)
                put_beside_scatter(b, i);
        for (int i = 0; i < b->ops.n; i++)
            if (b->ops.at[i].kind == OP_TENSOR_SCATTER_BACK)
                put_beside_gather(b, i);
        for (int i = b->ops.n - 1; i > 0; i--)
            if (b->ops.at[i].kind == OP_TENSOR_GATHER)
                put_behind_wait(s, b, i);
    }
}
