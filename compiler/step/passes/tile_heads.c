/* step/passes/tile_heads.c: attention of a layer over chunks of its heads, one after the other (headwise
 * chunking, as UPipe does around an all-to-all: Untied Ulysses, arXiv 2602.21196).
 *
 * The model of such a step has the heads of one chunk. Operations on values with heads become a loop over
 * chunks: projections of the chunk's queries, keys and values, its rotation and attention, and the product
 * with its columns of the output projection, whose sum over the chunks is attention's output; likewise in
 * backward. Their results exist for one chunk at a time, and so do the gradients. What a layer saves, and
 * what one loop leaves for another (attention's output, if backward recomputes it before the feed-forward
 * network), is stored chunk after chunk. All other values are whole for every chunk: the first begins a sum
 * over the chunks, the others add to it. */
#include "step/step.h"

static bool touches_heads(const Step *s, const Op *o)
{
    return op_touches(s, o, is_of_heads);
}

/* Marks values that a loop reads and did not compute. */
static void mark_crossing(Step *s, const Block *b)
{
    /* [values]: the loop that last wrote it; 0: none */
    int *made = NEW_ARRAY(s->arena, int, s->values.n), loop = 0;
    for (int i = 0; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        if (!op_in_loop(s, o, LOOP_HEADS))
            continue;
        loop += i == 0 || !op_same_loop(s, o, o - 1);
        for (int j = 0; j < OP_READS && o->read[j].value >= 0; j++) {
            Value *v = &s->values.at[o->read[j].value];
            v->all_heads |= is_of_heads(v) && made[o->read[j].value] != loop;
        }
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0; j++)
            made[o->write[j].value] = loop;
    }
}

/* If rotation and a change of layout work in place, both values have the same size. */
static void mark_alike(Step *s, const Block *b)
{
    for (int i = 0; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        Value *x = &s->values.at[o->read[0].value], *y = &s->values.at[o->write[0].value];
        if (o->kind == OP_ROPE || o->kind == OP_LAYOUT)
            x->all_heads = y->all_heads = x->all_heads | y->all_heads;
    }
}

void step_heads(Step *s)
{
    int blocks[STEP_BLOCKS];
    const int n = step_layer_blocks(s, blocks);
    if (s->shape.head_chunks < 2)
        return;
    for (int i = 0; i < s->values.n; i++)
        s->values.at[i].all_heads = s->values.at[i].saved && is_of_heads(&s->values.at[i]);
    for (int i = 0; i < n; i++) {
        step_tile(s, &s->block[blocks[i]], LOOP_HEADS, touches_heads);
        mark_crossing(s, &s->block[blocks[i]]);
    }
    for (int i = 0; i < n && s->program->target->one_layout; i++)
        mark_alike(s, &s->block[blocks[i]]);
}
