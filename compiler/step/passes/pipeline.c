/* step/passes/pipeline.c: makes a step from a choice: the model's operations, then each pass over the list
 * in order. */
#include "mask/mask.h"
#include "step/step.h"

#include "burst_sizes.h"

#include <string.h>

#define KINDS(...) ((const OpKind[]){__VA_ARGS__, OP_KINDS})

/* Memory of all operations of some kinds, each while it runs. kinds: up to OP_KINDS. */
static void add_scratch(Step *s, const char *name, Dim of, int64_t bytes, const OpKind *kinds)
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
            for (const OpKind *k = kinds; *k != OP_KINDS; k++)
                if (s->block[b].ops.at[i].kind == *k)
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

/* Adds the scratch of recurrent layers. */
static void add_scan_scratch(Step *s, const Model *m, bool device)
{
    const BurstScan scan = scan_of_rank(m, s->shape.tensor);
    const int64_t halo = (int64_t)s->pieces * (m->scan_kernel - 1) * scan.columns, n = s->all_tokens;
    const int pieces = s->pieces ? s->pieces : 1, ranks = s->choice.ranks;
    const BurstConv conv = {scan.columns, m->scan_kernel, 1};
    const bool states = scan.heads > 0, apart = states && s->pieces;
    const int norm = scan.read ? scan.value_dim : scan.heads * scan.value_dim;
    const struct {
        const char *name;
        int64_t host, device; /* bytes */
        OpKind kinds[5];
    } row[] = {
        {"scan_scratch",
         states ? burst_scan_floats(&scan, n) * 4 : 0,
         states ? burst_gpu_scan_most_bytes(&scan, pieces, n) : 0,
         {OP_SCAN, OP_SCAN_BACK, OP_SCAN_PIECES, OP_SCAN_PIECES_BACK, OP_KINDS}},
        {"conv_scratch",
         (int64_t)scan.columns * 4,
         burst_gpu_conv_doubles(&conv) * 8,
         {OP_CONV_BACK, OP_CONV_PIECES_BACK, OP_KINDS}},
        {"gates_scratch", 0, burst_gpu_scan_gates_doubles(scan.heads) * 8, {OP_SCAN_GATES_BACK, OP_KINDS}},
        {"gated_norm_scratch", 0, burst_gpu_norm_doubles(norm) * 8, {OP_GATED_NORM_BACK, OP_KINDS}},
        {"states_scratch",
         apart ? burst_states_floats(&scan, n, ranks, pieces) * 4 : 0,
         apart ? burst_gpu_states_bytes(&scan, n, ranks, pieces) : 0,
         {OP_STATES, OP_STATES_BACK, OP_KINDS}},
        {"halo_scratch", halo * 4, halo * 2, {OP_HALO, OP_HALO_BACK, OP_KINDS}},
    };
    for (int i = 0; i < countof(row); i++)
        add_scratch(s, row[i].name, DIM_ONE, device ? row[i].device : row[i].host, row[i].kinds);
}

/* Logits of a token, of all ranks' rows if units are in slices; behind these the tensor ranks' rows that the
 * head reads. */
static int64_t next_bytes(const Step *s)
{
    const Model *m = &s->program->model;
    const bool device = s->program->target->device_memory;
    const int64_t one = device ? burst_gpu_next_bytes(m->vocab) : (int64_t)m->vocab * 4,
                  all = s->units.slices ? 4 * s->units.ranks * units_token_rows(&s->units) : 0,
                  row = s->program->target->activation_bytes * (int64_t)m->hidden,
                  rows = s->units.slices && s->shape.tensor > 1 ? s->shape.tensor * row : 0;
    return (one > all ? one : all) + rows;
}

/* Scratch for the target's loss, norms and embedding. */
static void add_target_scratch(Step *s)
{
    const Model *m = &s->program->model;
    const bool device = s->program->target->device_memory;
    const int heads = m->layer.qk_norm_all ? s->shape.rank.heads * m->head_dim : m->head_dim;
    const int norms[] = {heads, m->hidden, m->latent, m->query_latent};
    int widest_norm = 0;
    for (int i = 0; i < countof(norms); i++)
        widest_norm = norms[i] > widest_norm ? norms[i] : widest_norm;
    const int64_t loss = device ? burst_gpu_loss_bytes(s->loss_tile, m->vocab)
                                : burst_loss_floats(s->tokens, s->loss_tile, m->hidden, m->vocab) * 4;
    add_scratch(s, "loss_scratch", DIM_ONE, s->forward ? 0 : loss, KINDS(OP_LOSS));
    add_scratch(s, "next_scratch", DIM_ONE, s->forward ? next_bytes(s) : 0, KINDS(OP_NEXT));
    add_scratch(s, "slice_scratch", DIM_ONE,
                s->units.slices && device ? (int64_t)s->units.ranks * m->hidden * 2 : 0,
                KINDS(OP_EMBED, OP_COMBINE));
    add_scratch(s, "norm_scratch", DIM_ONE, device ? burst_gpu_norm_doubles(widest_norm) * 8 : 0,
                KINDS(OP_NORM_BACK));
    if (m->experts.experts && device)
        add_scratch(s, "experts_scratch", DIM_ONE, burst_gpu_experts_bytes(m->experts.experts),
                    KINDS(OP_ARRANGE, OP_LOGITS_DW, OP_LOGITS_DX));
    else if (m->experts.experts)
        add_scratch(s, "experts_scratch", DIM_ONE, burst_experts_floats(m->hidden) * 4,
                    KINDS(OP_EXPERTS_UP, OP_EXPERTS_UP_DW, OP_EXPERTS_DOWN_DW, OP_EXPERTS_DOWN_DX));
    if (m->scan.columns)
        add_scan_scratch(s, m, device);
    add_scratch(s, "select_scratch", DIM_ONE,
                m->selects ? select_scratch(s->program, &s->shape, s->choice.ranks, s->all_tokens) : 0,
                KINDS(OP_SELECT));
    add_scratch(s, "embed_scratch", DIM_ONE, device ? 0 : burst_embed_ints(s->tokens) * 4,
                KINDS(OP_EMBED_BACK));
}

/* ---- passes that read the choice ---- */

static void save(Step *s, const StepInput *in)
{
    if (!s->forward)
        step_save(s, saving_of(in->choice));
}

static void tile_tokens(Step *s, const StepInput *in)
{
    /* attention's chunks are of the tokens that there are, not of as many for each rank that splits layers */
    step_chunks(s, s->by_queries ? in->partition->max_tokens : s->all_tokens,
                s->by_tokens ? in->choice->token_chunks : in->choice->ffn_chunks);
}

static void overlap(Step *s, const StepInput *in)
{
    if (in->choice->overlap)
        step_overlap(s);
}

static void offload(Step *s, const StepInput *in)
{
    step_space(s, in->choice->offload);
}

static void weights(Step *s, const StepInput *in)
{
    step_weights(s, in->choice->sharding, in->choice->bf16_gradients);
}

/* Parts of a further token's output, from the keys' cache to attention. */
static int64_t decode_bytes(const Step *s)
{
    const Heads h = s->shape.rank;
    const Model *m = &s->program->model;
    const bool device = s->program->target->device_memory;
    if (!s->forward)
        return 0;
    return device && step_keeps_latents(s)
               ? burst_decode_latent_bytes(h.heads, m->latent, m->shared, s->choice.ranks)
               : burst_decode_bytes(h.heads, h.kv_heads, m->value_dim, s->choice.ranks, device);
}

static void scratch(Step *s, const StepInput *in)
{
    add_scratch(s, "decode_scratch", DIM_ONE, decode_bytes(s), KINDS(OP_CACHE, OP_ATTENTION));
    add_scratch(s, "row_scratch", DIM_ONE, s->program->target->device_memory ? step_last_row_bytes(s) : 0,
                KINDS(OP_LAST_TOKEN));
    add_scratch(s, "attention_scratch", DIM_ONE, in->attention,
                KINDS(OP_ATTENTION, OP_ATTENTION_BACK, OP_ATTENTION_REST));
    add_scratch(s, "attention_keys", DIM_KEY, in->keys, KINDS(OP_ATTENTION, OP_ATTENTION_BACK));
    add_target_scratch(s);
}

/* ---- all passes ---- */

/* A layer keeps what its mask still shows to later tokens. */
static const int64_t *reach_of(Arena *a, const Program *p)
{
    int64_t *reach = p->infer.lengths ? NEW_ARRAY(a, int64_t, p->mask_count) : NULL;
    for (int m = 0; m < p->mask_count && reach; m++)
        reach[m] = mask_reach(p, m);
    return reach;
}

/* At most so many tokens of a piece lie within `reach` positions in a row. */
static int64_t tokens_within(const Piece *p, int64_t reach)
{
    const int64_t stride = p->count > 1 ? p->stride : reach + p->run, rest = reach % stride,
                  all = p->run * (p->count > 1 ? p->count : 1);
    const int64_t most = reach / stride * p->run + (rest < p->run ? rest : p->run);
    return most < all ? most : all;
}

/* Of a prompt, whose last tokens by `reach` are kept, the most on any rank. */
static int64_t kept_of(const Partition *part, int64_t reach)
{
    int64_t most = 0;
    for (int r = 0; r < part->ranks; r++) {
        int64_t tokens = 0;
        for (int i = 0; i < part->of[r].npieces; i++)
            tokens += tokens_within(&part->of[r].pieces[i], reach);
        tokens = tokens < reach ? tokens : reach;
        most = tokens > most ? tokens : most;
    }
    return most;
}

static void find_kept(Step *s, const Partition *part)
{
    const int masks = s->program->mask_count;
    s->reach = reach_of(s->arena, s->program);
    s->kept = s->reach ? NEW_ARRAY(s->arena, int64_t, masks) : NULL;
    for (int m = 0; m < masks && s->reach; m++)
        s->kept[m] = s->reach[m] ? kept_of(part, s->reach[m]) : s->all_tokens;
}

static Step *begin(Arena *a, const StepInput *in)
{
    const Choice *c = in->choice;
    const Shape shape = shape_of(in->program, c);
    Step *s = step_model(a, in->program, &shape, in->partition, in->units);
    s->choice = *c;
    s->pieces = partition_scan_pieces(in->program, in->partition);
    s->forward = in->program->infer.lengths > 0;
    find_kept(s, in->partition);
    /* what lasts from one prompt to the next does so after the first */
    s->sequences = s->forward ? 2 : (int)(in->program->train.batch / c->data);
    s->offload_layers = c->offload_layers ? c->offload_layers : s->offload_layers;
    s->group = saving_group(saving_of(c));
    s->by_tokens = c->token_chunks > 1;
    s->by_queries = choice_chunks_queries(c);
    s->by_keys = choice_chunks_keys(c);
    s->pairs = in->pairs;
    s->loss_tile = choice_loss_tile(in->program, c);
    return s;
}

/* In order, after the model's; each is named as its file. */
static const struct {
    const char *name;
    void (*run)(Step *s);
    void (*choose)(Step *s, const StepInput *in); /* if run is NULL */
} passes[] = {
    {"tensor_parallel", step_tensor, NULL},
    {"scan_pieces", step_pieces, NULL},
    {"latents", step_latents, NULL},
    {"tile_queries", step_queries, NULL},
    {"infer", step_infer, NULL},
    {"backward", step_backward, NULL},
    {"recompute", NULL, save},
    {"tile_heads", step_heads, NULL},
    {"tile_tokens", NULL, tile_tokens}, /* and in its loops, tile_kv */
    {"overlap", NULL, overlap},
    {"offload", NULL, offload},
    {"group_layers", step_group, NULL},
    {"zero", NULL, weights},
    {"offload_optimizer", step_optimizer, NULL},
    {"muon", step_muon, NULL},
    {"scratch", NULL, scratch},
    {"waits", step_waits, NULL},
};

const char *step_pass_name(int pass)
{
    if (pass == 0)
        return "model";
    return pass <= countof(passes) ? passes[pass - 1].name : NULL;
}

Step *step_make_watched(Arena *a, const StepInput *in, SeeStep see, void *to)
{
    Step *s = begin(a, in);
    for (int i = 0; i <= countof(passes); i++) {
        if (i > 0 && passes[i - 1].run)
            passes[i - 1].run(s);
        else if (i > 0)
            passes[i - 1].choose(s, in);
        if (see)
            see(to, step_pass_name(i), s);
    }
    return s;
}

Step *step_make(Arena *a, const Program *p, const Choice *c, const Partition *part, Units units,
                const uint64_t *pairs, int64_t attention, int64_t keys)
{
    const StepInput in = {p, c, part, units, pairs, attention, keys};
    return step_make_watched(a, &in, NULL, NULL);
}
