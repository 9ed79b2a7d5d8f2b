/* step/passes/infer.c: forward of a program that continues prompts. Before attention each layer copies its
 * keys and values, or the latents that they are made of, to a cache, which all later tokens attend; a
 * recurrent layer keeps the rows before its convolution and its state after the prompt, on all ranks. The
 * head has the next token of the last one, in place of the loss.
 *
 * A later token goes through the same list, with one token in place of a prompt: attention then reads the
 * cache (templates/common/burst_infer.h). So weights last from the first prompt on, and what the cache has no
 * other operation overwrites.
 *
 * In the last layer only a prompt's last token goes on once the keys and values of all are kept: nothing
 * reads the others' outputs, and its own attention reads the cache, as a later token's does. What queries are
 * computed from, and what else is read later, is cut to that token's row in place; in other layers the
 * operations that cut do nothing. Of ranks that share the prompt all get the row from the one that has it,
 * and go on as with a later token. Tensor ranks and chunks of the tokens compute the last layer as others. */
#include "step/step.h"

#include "burst_kernels.h"

#include <string.h>

int64_t step_cache_rows(const Step *s, int mask)
{
    const int64_t more = s->program->infer.tokens - 1, ranks = s->choice.ranks > 0 ? s->choice.ranks : 1;
    const int64_t kept = s->kept && mask >= 0 && mask < s->program->mask_count ? s->kept[mask]
                                                                               : s->all_tokens;
    return kept + (more + ranks - 1) / ranks;
}

int64_t step_cache_tokens(const Step *s, int layer)
{
    const bool is_layer = layer >= 0 && layer < s->program->model.layers;
    return step_cache_rows(s, is_layer ? s->program->layer_mask[layer] : -1);
}

bool step_is_recurrent(const Step *s, int layer)
{
    const Model *m = &s->program->model;
    return layer >= 0 && layer < m->layers && m->kind[model_kind(m, layer)].scan;
}

bool step_keeps_keys(const Step *s, int layer)
{
    const Model *m = &s->program->model;
    if (layer < 0 || layer >= m->layers)
        return false;
    const KindParts *k = &m->kind[model_kind(m, layer)];
    return !k->no_mixer && (!k->scan || m->layer.scan_attends);
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

static int add_kept(Step *s, const char *name, Dim rows, Dim columns, Element element)
{
    return step_add_value(s, (Value){.name = name,
                                     .kind = VALUE_CACHE,
                                     .dim = {rows, columns},
                                     .element = element,
                                     .index = INDEX_LAYER,
                                     .gradient = -1});
}

/* Before the block's attention. of: what is kept. */
static void keep(Step *s, Block *b, const int of[2], const int cache[2], const char *weight)
{
    Op o = op_make(OP_CACHE);
    for (int i = 0; i < 2; i++)
        op_read(&o, of[i], 0);
    for (int i = 0; i < 2; i++)
        op_write(&o, cache[i], 0, false);
    o.weight = weight;
    o.tensors = weight ? 2 : 1;
    op_insert(s, b, op_first(b, OP_ATTENTION), o);
}

/* A token's keys and values. */
static void keep_keys(Step *s)
{
    const int cache[2] = {add_cache(s, "cache_k", step_value(s, "k")),
                          add_cache(s, "cache_v", step_value(s, "v"))};
    for (int kind = 0; kind < step_kinds(s); kind++) {
        Block *b = &s->block[BLOCK_FORWARD + kind];
        if (!op_in_block(b, OP_ATTENTION))
            continue;
        const Op *o = &b->ops.at[op_first(b, OP_ATTENTION)];
        keep(s, b, (int[]){o->read[1].value, o->read[2].value}, cache, NULL);
    }
}

bool step_keeps_latents(const Step *s)
{
    const Model *m = &s->program->model;
    return m->latent > 0 &&
           (!s->program->target->device_memory ||
            (m->latent % 8 == 0 && m->shared % 8 == 0 &&
             m->latent + m->shared <= BURST_LATENT_MOST)); /* a row is of vectors of 16 bytes */
}

/* The latent that keys and values are made of, and what all heads' keys share. A later token's queries are
 * multiplied by the weights of keys, and its output by those of values (DeepSeek-V2, arXiv 2405.04434). */
static void keep_latents(Step *s)
{
    static const char weights[] = "self_attn.k_b_proj.weight"; /* the first of two consecutive tensors */
    const int cache[2] = {add_kept(s, "cache_latent", DIM_CACHE, DIM_LATENT, EL_ACTIVATION),
                          add_kept(s, "cache_shared", DIM_CACHE, DIM_SHARED, EL_ACTIVATION)};
    for (int kind = 0; kind < step_kinds(s); kind++) {
        Block *b = &s->block[BLOCK_FORWARD + kind];
        int latent = -1;
        for (int i = 0; i < b->ops.n; i++)
            if (b->ops.at[i].kind == OP_LINEAR && strcmp(b->ops.at[i].weight, weights) == 0)
                latent = b->ops.at[i].read[0].value; /* of all tensor ranks' tokens, if there are several */
        if (op_in_block(b, OP_ATTENTION))
            keep(s, b, (int[]){latent, b->ops.at[op_first(b, OP_ATTENTION)].read[1].value}, cache, weights);
    }
}

/* ---- recurrent layers ---- */

/* Before what reads other ranks' rows or states, where there is such an operation. */
static int first_of(const Block *b, OpKind of_pieces, OpKind whole)
{
    return op_first(b, op_in_block(b, of_pieces) ? of_pieces : whole);
}

static void keep_rows(Step *s, Block *b, int cache)
{
    const int at = first_of(b, OP_HALO, OP_CONV);
    Op o = op_make(OP_CACHE_CONV);
    op_read(&o, b->ops.at[at].read[0].value, 0);
    op_write(&o, cache, 0, false);
    op_insert(s, b, at, o);
}

/* Gates of tokens after the prompt become 0, in place. */
static void keep_state(Step *s, Block *b, int cache)
{
    const int at = first_of(b, OP_STATES, OP_SCAN);
    const Op scan = b->ops.at[at];
    Op o = op_make(OP_CACHE_SCAN);
    for (int gate = 1; gate <= 2; gate++) {
        op_read(&o, scan.read[gate].value, 0);
        op_write(&o, scan.read[gate].value, 0, false);
    }
    op_write(&o, cache, 0, false);
    op_insert(s, b, at, o);
}

static void keep_recurrent(Step *s)
{
    const Model *m = &s->program->model;
    if (!m->scan.columns)
        return;
    const int rows = add_kept(s, "cache_conv", DIM_KERNEL, DIM_SCAN_COLUMNS, EL_ACTIVATION),
              state = m->scan.heads ? add_kept(s, "cache_scan", DIM_ONE, DIM_SCAN_STATE, EL_FLOAT) : -1;
    for (int kind = 0; kind < step_kinds(s); kind++) {
        Block *b = &s->block[BLOCK_FORWARD + kind];
        if (op_in_block(b, OP_CONV) || op_in_block(b, OP_CONV_PIECES))
            keep_rows(s, b, rows);
        if (op_in_block(b, OP_SCAN) || op_in_block(b, OP_SCAN_PIECES))
            keep_state(s, b, state);
    }
}

/* ---- the last layer ---- */

/* Marks the operations before `end` that keys and values follow from. */
static void mark_keys(const Step *s, const Block *b, int end, bool *marked)
{
    bool *needed = NEW_ARRAY(s->arena, bool, s->values.n);
    for (int i = end; i >= 0; i--) {
        const Op *o = &b->ops.at[i];
        marked[i] = i == end;
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0; j++)
            marked[i] |= needed[o->write[j].value];
        for (int j = 0; j < OP_READS && o->read[j].value >= 0 && marked[i]; j++)
            needed[o->read[j].value] = true;
    }
}

/* Keys and values first, then what only queries need; returns where the cache is. */
static int sort_queries(const Step *s, Block *b)
{
    const int end = op_first(b, OP_CACHE);
    bool *marked = NEW_ARRAY(s->arena, bool, end + 1);
    Op *queries = NEW_ARRAY(s->arena, Op, end + 1);
    int keys = 0, rest = 0;
    mark_keys(s, b, end, marked);
    for (int i = 0; i <= end; i++)
        if (marked[i])
            b->ops.at[keys++] = b->ops.at[i];
        else
            queries[rest++] = b->ops.at[i];
    memcpy(&b->ops.at[keys], queries, sizeof *queries * (size_t)rest);
    return keys - 1;
}

/* Whether it has a row for each token, of which later operations read the last one's. */
static bool has_rows(const Step *s, int value)
{
    const Value *v = &s->values.at[value];
    return v->kind == VALUE_ACTIVATION && v->dim[0] == DIM_TOKENS;
}

/* Marks what operations after `at` read and did not write themselves. */
static void mark_rows(const Step *s, const Block *b, int at, bool *cut)
{
    bool *made = NEW_ARRAY(s->arena, bool, s->values.n);
    for (int i = at + 1; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        const int reads = o->kind == OP_ATTENTION ? 1 : OP_READS; /* keys are in the cache */
        for (int j = 0; j < reads && o->read[j].value >= 0; j++)
            cut[o->read[j].value] |= has_rows(s, o->read[j].value) && !made[o->read[j].value];
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0; j++)
            made[o->write[j].value] |= !o->write[j].next;
    }
}

static void cut_rows(Step *s, Block *b)
{
    const int at = sort_queries(s, b);
    bool *cut = NEW_ARRAY(s->arena, bool, s->values.n);
    mark_rows(s, b, at, cut);
    for (int v = 0; v < s->values.n; v++) {
        Op o = op_make(OP_LAST_TOKEN);
        op_read(&o, v, 0);
        op_write(&o, v, 0, false);
        if (cut[v])
            op_insert(s, b, at + 1, o);
    }
}

/* Whether an operation has all of a rank's tokens, which no other rank has too. */
static bool has_tokens_at_once(const Step *s)
{
    const Choice *c = &s->choice;
    return s->shape.tensor <= 1 && c->token_chunks <= 1 && c->ffn_chunks <= 1;
}

int64_t step_last_row_bytes(const Step *s)
{
    int64_t most = 0;
    for (int kind = 0; kind < step_kinds(s); kind++) {
        const Block *b = &s->block[BLOCK_FORWARD + kind];
        for (int i = 0; i < b->ops.n; i++) {
            const Op *o = &b->ops.at[i];
            const int64_t bytes = o->kind == OP_LAST_TOKEN
                                      ? step_row_bytes(s, &s->values.at[o->read[0].value])
                                      : 0;
            most = bytes > most ? bytes : most;
        }
    }
    return s->choice.ranks > 1 ? s->choice.ranks * most : 0;
}

/* ---- the pass ---- */

void step_infer(Step *s)
{
    if (!s->forward)
        return;
    /* a layer of one part adds to its input as it writes its output, which therefore lies elsewhere */
    s->values.at[step_value(s, "x")].saved = s->program->model.layer.single;
    if (step_keeps_latents(s))
        keep_latents(s);
    else
        keep_keys(s);
    keep_recurrent(s);
    for (int kind = 0; kind < step_kinds(s) && has_tokens_at_once(s); kind++)
        if (op_in_block(&s->block[BLOCK_FORWARD + kind], OP_CACHE) &&
            !op_in_block(&s->block[BLOCK_FORWARD + kind], OP_CACHE_CONV)) /* a scan takes all tokens */
            cut_rows(s, &s->block[BLOCK_FORWARD + kind]);
    replace_loss(s);
}

bool op_of_last_token(const Step *s, const StepOp *o)
{
    const Block *b = &s->block[o->block];
    if (block_phase(o->block) != BLOCK_FORWARD || o->layer < s->program->model.layers - 1 ||
        !op_in_block(b, OP_LAST_TOKEN))
        return false;
    return o->op > &b->ops.at[op_first(b, OP_LAST_TOKEN)];
}
