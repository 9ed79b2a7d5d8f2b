/* step/passes/pipeline.c: a step from a choice: the model's operations, then each pass over the list in
 * its order. */
#include "step/step.h"

#include "burst_sizes.h"

#include <string.h>

#define KIND(id) (UINT64_C(1) << OP_##id)

/* Memory of all operations of some kinds, each while it runs. */
static void add_scratch(Step *s, const char *name, Dim of, int64_t bytes, uint64_t kinds)
{
    if (!bytes)
        return;
    const int v = step_add_value(s, (Value){.name = name,
                                            .kind = VALUE_SCRATCH,
                                            .dim = {DIM_SCRATCH, of},
                                            .element = EL_BYTE,
                                            .gradient = -1,
                                            .bytes = bytes});
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (int i = 0; i < s->block[b].ops.n; i++)
            if (kinds >> s->block[b].ops.at[i].kind & 1)
                op_write(&s->block[b].ops.at[i], v, 0, false);
}

const uint64_t *step_pairs(Arena *a, const Program *p, const Choice *c, const Partition *part,
                           PairCounts *const *counts)
{
    if (!choice_chunks_keys(c) || !part || !counts)
        return NULL;
    const int chunks = chunk_count(part->max_tokens, c->token_chunks);
    uint64_t *pairs = NEW_ARRAY(a, uint64_t, p->mask_count * chunks);
    for (int m = 0; m < p->mask_count; m++)
        memcpy(pairs + m * chunks, pair_chunks(counts[m], chunks), sizeof *pairs * (size_t)chunks);
    return pairs;
}

Step *step_make(Arena *a, const Program *p, const Choice *c, const Partition *part, Units units,
                const uint64_t *pairs, int64_t attention, int64_t keys)
{
    const Model *m = &p->model;
    Step *s = step_model(a, p, part, units);
    s->sequences = (int)(p->train.batch / c->data);
    s->staged_layers = c->staged_layers ? c->staged_layers : s->staged_layers;
    s->optimizer = c->optimizer;
    s->by_tokens = c->token_chunks > 1;
    s->by_queries = choice_chunks_queries(c);
    s->by_keys = choice_chunks_keys(c);
    s->pairs = pairs;
    s->by_fetches = c->fetch_chunks;
    s->loss_tile = choice_loss_tile(p, c);
    step_tensor(s);
    step_queries(s);
    step_backward(s);
    step_save(s, saving_of(c));
    step_heads(s);
    step_chunks(s, s->by_tokens ? c->token_chunks : c->ffn_chunks);
    if (c->overlap)
        step_overlap(s);
    step_space(s, c->offload);
    step_weights(s, c->sharding, c->bf16_gradients);
    step_optimizer(s);
    add_scratch(s, "attention_scratch", DIM_ONE, attention,
                KIND(ATTENTION) | KIND(ATTENTION_BACK) | KIND(ATTENTION_REST));
    add_scratch(s, "attention_keys", DIM_KEY, keys, KIND(ATTENTION) | KIND(ATTENTION_BACK));
    const bool device = p->target->device_memory;
    add_scratch(s, "loss_scratch", DIM_ONE, device ? burst_gpu_loss_bytes(s->loss_tile, m->vocab) :
                burst_loss_floats(s->tokens, s->loss_tile, m->hidden, m->vocab) * 4, KIND(LOSS));
    const int heads = m->layer.qk_norm_all ? m->heads * m->head_dim : m->head_dim;
    const int widest_norm = heads > m->hidden ? heads : m->hidden;
    add_scratch(s, "norm_scratch", DIM_ONE, device ? burst_gpu_norm_doubles(widest_norm) * 8 : 0,
                KIND(NORM_BACK));
    add_scratch(s, "embed_scratch", DIM_ONE, device ? 0 : burst_embed_ints(s->tokens) * 4, KIND(EMBED_BACK));
    step_waits(s);
    return s;
}
