/* step/passes/tile_queries.c: attention in the loop over chunks of the tokens: one chunk of queries at a
 * time, with all keys (as in FPDT's forward: arXiv 2408.16978, section 3).
 *
 * Keys and values are computed in a loop before it, and their backward is in a loop after it. In between,
 * queries, attention's output, its statistics and all their gradients exist for one chunk, unless layers
 * save them; gradient sums of keys grow from chunk to chunk. A selection chooses for a chunk's tiles before
 * they attend, among the blocks of all keys. So that both loops have their inputs, queries
 * have a separate norm of the layer's input with the same weight: its backward follows that of the chunk's
 * queries. If ranks split layers, one norm serves both loops, which read what is gathered of it. */
#include "step/step.h"

#include <string.h>

static int add_like(Step *s, int value)
{
    Value v = s->values.at[value];
    v.name = arena_printf(s->arena, "%s_q", v.name);
    const int known = step_value(s, v.name); /* of another kind of layers */
    return known >= 0 ? known : step_add_value(s, v);
}

static bool op_writes(const Block *b, int value)
{
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.at[i].write[0].value == value)
            return true;
    return false;
}

/* After the operation that computes the value. */
static int behind(const Block *b, int value)
{
    int i = 0;
    while (b->ops.at[i].write[0].value != value)
        i++;
    return i + 1;
}

/* An indexer's keys go before its queries, behind values; the end of what makes keys. */
static int index_keys_first(Step *s, Block *b)
{
    const int values = behind(b, step_value(s, "v")), index = step_value(s, "index_q");
    if (index < 0 || !op_writes(b, index))
        return values;
    const int queries = behind(b, index), keys = behind(b, step_value(s, "index_k"));
    Op *moved = NEW_ARRAY(s->arena, Op, queries - values);
    memcpy(moved, &b->ops.at[values], sizeof(Op) * (size_t)(queries - values));
    memmove(&b->ops.at[values], &b->ops.at[queries], sizeof(Op) * (size_t)(keys - queries));
    memcpy(&b->ops.at[values + keys - queries], moved, sizeof(Op) * (size_t)(queries - values));
    return values + keys - queries;
}

static void split_queries(Step *s, Block *b)
{
    const int lead = op_first(b, OP_LINEAR); /* a norm, and its bias */
    const int keys = behind(b, step_value(s, "q")), end = index_keys_first(s, b);
    if (keys > end) /* a norm of all heads, which comes after all products */
        return;
    Op *queries = NEW_ARRAY(s->arena, Op, keys);
    memcpy(queries, &b->ops.at[0], sizeof(Op) * (size_t)keys);
    const int own = s->shape.tensor > 1 ? 0 : lead;
    const int h = own ? queries[own - 1].write[0].value : -1;
    for (int i = 0; i < own; i++) {
        for (int j = 0; j < OP_WRITES && queries[i].write[j].value >= 0; j++)
            queries[i].write[j].value = add_like(s, queries[i].write[j].value);
        queries[i + 1].read[0] = queries[i].write[0]; /* the last: the product that computes queries */
    }
    for (int i = lead; i < keys; i++) /* what gates attention's output */
        if (own && queries[i].read[0].value == h)
            queries[i].read[0] = queries[own - 1].write[0];
    for (int i = end; i < b->ops.n && own; i++) /* an indexer's queries */
        if (b->ops.at[i].kind == OP_LINEAR && b->ops.at[i].read[0].value == h)
            b->ops.at[i].read[0] = queries[own - 1].write[0];
    memmove(&b->ops.at[lead], &b->ops.at[keys], sizeof(Op) * (size_t)(end - keys));
    memcpy(&b->ops.at[end - keys + lead], queries + lead, sizeof(Op) * (size_t)(keys - lead));
    for (int i = own - 1; i >= 0; i--)
        op_insert(s, b, end - keys + lead, queries[i]);
}

void step_queries(Step *s)
{
    for (int k = 0; k < step_kinds(s) && s->by_queries; k++)
        if (op_in_block(&s->block[BLOCK_FORWARD + k], OP_ATTENTION))
            split_queries(s, &s->block[BLOCK_FORWARD + k]);
}
