/* step/passes/infer.c: forward of a program that continues prompts. Before attention each layer copies its
 * keys and values to a cache, which all later tokens attend; the head has the next token of the last one, in
 * place of the loss.
 *
 * A later token goes through the same list, with one token in place of a prompt: attention then reads the
 * cache (templates/common/burst_infer.h). So weights last from the first prompt on, and what the cache has no
 * other operation overwrites. */
#include "step/step.h"

int64_t step_cache_tokens(const Step *s)
{
    const int64_t more = s->program->infer.tokens - 1, ranks = s->choice.ranks > 0 ? s->choice.ranks : 1;
    return s->all_tokens + (more + ranks - 1) / ranks;
}

static int add_cache(Step *s, const char *name, int of)
{
    Value v = s->values.at[of];
    v.name = name;
    v.kind = VALUE_CACHE;
    v.dim[0] = DIM_CACHE;
    v.gradient = -1;
    return step_add_value(s, v);
}

/* The head's loss becomes the next token: its labels are not read. */
static void replace_loss(Step *s)
{
    Block *b = &s->block[BLOCK_HEAD];
    Op *loss = &b->ops.at[op_first(b, OP_LOSS)], next = op_make(OP_NEXT);
    next.weight = loss->weight;
    next.tensors = loss->tensors;
    next.scale = loss->scale;
    next.read[0] = loss->read[0];
    *loss = next;
}

/* Before the block's attention. */
static void keep(Step *s, Block *b, int cache_k, int cache_v)
{
    const int at = op_first(b, OP_ATTENTION);
    const Op *attention = &b->ops.at[at];
    Op cache = op_make(OP_CACHE);
    for (int side = 1; side <= 2; side++)
        op_read(&cache, attention->read[side].value, 0);
    op_write(&cache, cache_k, 0, false);
    op_write(&cache, cache_v, 0, false);
    op_insert(s, b, at, cache);
}

void step_infer(Step *s)
{
    if (!s->forward)
        return;
    const int cache_k = add_cache(s, "cache_k", step_value(s, "k")),
              cache_v = add_cache(s, "cache_v", step_value(s, "v"));
    for (int kind = 0; kind < step_kinds(s); kind++)
        keep(s, &s->block[BLOCK_FORWARD + kind], cache_k, cache_v);
    replace_loss(s);
}
