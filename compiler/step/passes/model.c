/* step/passes/model.c: a Llama's tensors, and forward of its layer, its embedding and its head, as rows. A
 * model with a bias or another norm is other rows; everything after this pass follows from them.
 *
 * Rows of a part that a model may have name the function that says so. Where an operation's operand
 * depends on the parts it has several names, "q_product|q_flat": the first that the model has.
 */
#include "step/step.h"

#include <string.h>

/* Whether a model has what a row is of; rows that say nothing are every model's. */
typedef bool Part(const Model *m);

static bool has_part(const Model *m, Part *part) { return !part || part(m); }

static bool qkv_bias(const Model *m) { return m->qkv_bias; }
static bool qk_norm(const Model *m) { return m->qk_norm; }
static bool sinks(const Model *m) { return m->sinks; }
/* Whether what a layer adds to its input is made first, and then added. */
static bool adds_later(const Model *m) { return m->scale[BURST_SCALE_RESIDUAL] > 0; }
static bool adds_at_once(const Model *m) { return !adds_later(m); }
static bool scales_embedding(const Model *m) { return m->scale[BURST_SCALE_EMBEDDING] > 0; }
static bool scales_logits(const Model *m) { return m->scale[BURST_SCALE_LOGIT] > 0; }

/* ---- tensors ---- */

/* By their names within the unit, as Hugging Face has them. */
/* Heads and ffn are split over tensor ranks, along the dimension that is theirs. */
typedef struct Tensor { const char *name; Dim rows, cols; First first; Part *part; } Tensor;

static const Tensor embed_tensors[] = {{"model.embed_tokens.weight", DIM_VOCAB, DIM_HIDDEN, FIRST_NORMAL}};
static const Tensor layer_tensors[] = {
    {"input_layernorm.weight", DIM_ONE, DIM_HIDDEN, FIRST_ONES},
    {"self_attn.q_proj.weight", DIM_QUERY, DIM_HIDDEN, FIRST_NORMAL},
    {"self_attn.q_proj.bias", DIM_ONE, DIM_QUERY, FIRST_ZEROS, qkv_bias},
    {"self_attn.q_norm.weight", DIM_ONE, DIM_HEAD, FIRST_ONES, qk_norm},
    {"self_attn.k_proj.weight", DIM_KEY, DIM_HIDDEN, FIRST_NORMAL},
    {"self_attn.k_proj.bias", DIM_ONE, DIM_KEY, FIRST_ZEROS, qkv_bias},
    {"self_attn.k_norm.weight", DIM_ONE, DIM_HEAD, FIRST_ONES, qk_norm},
    {"self_attn.v_proj.weight", DIM_KEY, DIM_HIDDEN, FIRST_NORMAL},
    {"self_attn.v_proj.bias", DIM_ONE, DIM_KEY, FIRST_ZEROS, qkv_bias},
    {"self_attn.o_proj.weight", DIM_HIDDEN, DIM_QUERY, FIRST_NORMAL},
    {"post_attention_layernorm.weight", DIM_ONE, DIM_HIDDEN, FIRST_ONES},
    {"mlp.gate_proj.weight", DIM_FFN, DIM_HIDDEN, FIRST_NORMAL},
    {"mlp.up_proj.weight", DIM_FFN, DIM_HIDDEN, FIRST_NORMAL},
    {"mlp.down_proj.weight", DIM_HIDDEN, DIM_FFN, FIRST_NORMAL},
    {"self_attn.sinks", DIM_ONE, DIM_HEADS, FIRST_ZEROS, sinks}, /* the last: matrices stay aligned */
};
static const Tensor head_tensors[] = {
    {"model.norm.weight", DIM_ONE, DIM_HIDDEN, FIRST_ONES},
    {"lm_head.weight", DIM_VOCAB, DIM_HIDDEN, FIRST_NORMAL}, /* the last: a tied head has none */
};

static bool is_split(const Shape *s, Dim d)
{
    return s->tensor > 1 && (d == DIM_QUERY || d == DIM_KEY || d == DIM_HEADS || d == DIM_FFN);
}

/* Of a split dimension: where ranks are more than key heads, neighbours have the same. */
static int parts_of(const Shape *s, Dim d)
{
    return !is_split(s, d) ? 1 : d == DIM_KEY ? s->tensor / s->key_copies : s->tensor;
}

static Split heads_of(Dim rows, Dim cols)
{
    return dim_of_heads(rows) ? SPLIT_ROWS : dim_of_heads(cols) ? SPLIT_COLS : SPLIT_NONE;
}

static Unit unit_of(Arena *a, const Model *m, const Shape *s, int ranks, const char *name, const Tensor *row,
                    int n, int repeat)
{
    UnitTensor *t = NEW_ARRAY(a, UnitTensor, n);
    int64_t at = 0;
    int tensors = 0;
    for (int i = 0; i < n; i++) {
        if (!has_part(m, row[i].part))
            continue;
        const int64_t rows = model_dim(m, s, s->rank, row[i].rows),
                      cols = model_dim(m, s, s->rank, row[i].cols);
        const Split split = is_split(s, row[i].rows)   ? SPLIT_ROWS
                            : is_split(s, row[i].cols) ? SPLIT_COLS
                                                       : SPLIT_NONE;
        t[tensors++] = (UnitTensor){row[i].name,
                                    rows,
                                    cols,
                                    at,
                                    row[i].first,
                                    split,
                                    heads_of(row[i].rows, row[i].cols),
                                    parts_of(s, row[i].rows) * parts_of(s, row[i].cols)};
        at += rows * cols;
    }
    return (Unit){name, repeat, ranks, at, (at + ranks - 1) / ranks, tensors, t};
}

Units units_make(Arena *a, const Program *p, const Shape *shape, int within)
{
    const int ranks = within ? within : p->cluster.world;
    const Model *m = &p->model;
    Unit *u = NEW_ARRAY(a, Unit, 3);
    u[0] = unit_of(a, m, shape, ranks, "embedding", embed_tensors, countof(embed_tensors), 1);
    u[1] = unit_of(a, m, shape, ranks / shape->tensor, "layer", layer_tensors, countof(layer_tensors),
                   m->layers);
    u[2] = unit_of(a, m, shape, ranks, "head", head_tensors, countof(head_tensors) - m->tied, 1);
    return (Units){3, u, ranks};
}

/* ---- values and operations ---- */

/* "x+1" is x of the next layer. */
typedef struct Row { OpKind kind; const char *read[3], *write[3], *weight; int tensors; Part *part; int scale; } Row;

static const Value layer_values[] = {
    {.name = "x", .dim = {DIM_TOKENS, DIM_HIDDEN}, .index = INDEX_BOUNDARY},
    {.name = "h1", .dim = {DIM_TOKENS, DIM_HIDDEN}},
    {.name = "rstd1", .dim = {DIM_TOKENS}, .element = EL_FLOAT},
    {.name = "q_flat", .dim = {DIM_TOKENS, DIM_QUERY}},
    {.name = "q", .dim = {DIM_TOKENS, DIM_QUERY}, .by_heads = true},
    {.name = "k_flat", .dim = {DIM_TOKENS, DIM_KEY}},
    {.name = "k", .dim = {DIM_TOKENS, DIM_KEY}, .by_heads = true},
    {.name = "v_flat", .dim = {DIM_TOKENS, DIM_KEY}},
    {.name = "v", .dim = {DIM_TOKENS, DIM_KEY}, .by_heads = true},
    {.name = "o", .dim = {DIM_TOKENS, DIM_QUERY}, .by_heads = true},
    {.name = "lse", .dim = {DIM_HEADS, DIM_TOKENS}, .element = EL_FLOAT},
    {.name = "o_flat", .dim = {DIM_TOKENS, DIM_QUERY}},
    {.name = "x_mid", .dim = {DIM_TOKENS, DIM_HIDDEN}},
    {.name = "h2", .dim = {DIM_TOKENS, DIM_HIDDEN}},
    {.name = "rstd2", .dim = {DIM_TOKENS}, .element = EL_FLOAT},
    /* of the host, gate and then up; of a device, side by side */
    {.name = "gate_up", .dim = {DIM_TOKENS, DIM_PAIR}},
    {.name = "ffn", .dim = {DIM_TOKENS, DIM_FFN}},
};
/* Of parts that a model may have. */
static const struct { Part *part; Value value; } part_values[] = {
    {qkv_bias, {.name = "q_product", .dim = {DIM_TOKENS, DIM_QUERY}}},
    {qkv_bias, {.name = "k_product", .dim = {DIM_TOKENS, DIM_KEY}}},
    {qkv_bias, {.name = "v_product", .dim = {DIM_TOKENS, DIM_KEY}}},
    {qk_norm, {.name = "q_raw", .dim = {DIM_TOKENS, DIM_QUERY}}},
    {qk_norm, {.name = "rstd_q", .dim = {DIM_TOKENS, DIM_HEADS}, .element = EL_FLOAT}},
    {qk_norm, {.name = "k_raw", .dim = {DIM_TOKENS, DIM_KEY}}},
    {qk_norm, {.name = "rstd_k", .dim = {DIM_TOKENS, DIM_KEY_HEADS}, .element = EL_FLOAT}},
    {adds_later, {.name = "attn", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {adds_later, {.name = "mlp", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {sinks, {.name = "o_sink", .dim = {DIM_TOKENS, DIM_QUERY}, .by_heads = true}},
};
static const Row layer_rows[] = {
    {OP_NORM, {"x"}, {"h1", "rstd1"}, "input_layernorm.weight"},
    {OP_LINEAR, {"h1"}, {"q_product|q_raw|q_flat"}, "self_attn.q_proj.weight"},
    {OP_BIAS, {"q_product"}, {"q_flat"}, "self_attn.q_proj.bias", .part = qkv_bias},
    {OP_NORM, {"q_raw"}, {"q_flat", "rstd_q"}, "self_attn.q_norm.weight", .part = qk_norm},
    {OP_ROPE, {"q_flat"}, {"q"}, NULL},
    {OP_LINEAR, {"h1"}, {"k_product|k_raw|k_flat"}, "self_attn.k_proj.weight"},
    {OP_BIAS, {"k_product"}, {"k_flat"}, "self_attn.k_proj.bias", .part = qkv_bias},
    {OP_NORM, {"k_raw"}, {"k_flat", "rstd_k"}, "self_attn.k_norm.weight", .part = qk_norm},
    {OP_ROPE, {"k_flat"}, {"k"}, NULL},
    {OP_LINEAR, {"h1"}, {"v_product|v_flat"}, "self_attn.v_proj.weight"},
    {OP_BIAS, {"v_product"}, {"v_flat"}, "self_attn.v_proj.bias", .part = qkv_bias},
    {OP_LAYOUT, {"v_flat"}, {"v"}, NULL},
    {OP_ATTENTION, {"q", "k", "v"}, {"o", "lse"}, NULL},
    {OP_SINK, {"o", "lse"}, {"o_sink"}, "self_attn.sinks", .part = sinks},
    {OP_LAYOUT, {"o_sink|o"}, {"o_flat"}, NULL},
    /* the second operand is added */
    {OP_LINEAR, {"o_flat", "x"}, {"x_mid"}, "self_attn.o_proj.weight", .part = adds_at_once},
    {OP_LINEAR, {"o_flat"}, {"attn"}, "self_attn.o_proj.weight", .part = adds_later},
    {OP_SCALE, {"attn", "x"}, {"x_mid"}, NULL, .part = adds_later, .scale = BURST_SCALE_RESIDUAL},
    {OP_NORM, {"x_mid"}, {"h2", "rstd2"}, "post_attention_layernorm.weight"},
    {OP_LINEAR, {"h2"}, {"gate_up"}, "mlp.gate_proj.weight", 2}, /* gate and up: one product on a device */
    {OP_SWIGLU, {"gate_up"}, {"ffn"}, NULL},
    {OP_LINEAR, {"ffn", "x_mid"}, {"x+1"}, "mlp.down_proj.weight", .part = adds_at_once},
    {OP_LINEAR, {"ffn"}, {"mlp"}, "mlp.down_proj.weight", .part = adds_later},
    {OP_SCALE, {"mlp", "x_mid"}, {"x+1"}, NULL, .part = adds_later, .scale = BURST_SCALE_RESIDUAL},
};

/* The head's x is that of the last layer. Its loss makes the gradient of its input at once. */
static const Value end_values[] = {
    {.name = "token", .kind = VALUE_INPUT, .dim = {DIM_TOKENS}, .element = EL_INT},
    {.name = "label", .kind = VALUE_INPUT, .dim = {DIM_TOKENS}, .element = EL_INT},
    {.name = "label_weight", .kind = VALUE_INPUT, .dim = {DIM_TOKENS}, .element = EL_FLOAT},
    {.name = "h_final", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS, DIM_HIDDEN}},
    {.name = "rstd", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS}, .element = EL_FLOAT},
};
/* Of parts that a model may have. */
static const struct { Part *part; Value value; } part_end_values[] = {
    {scales_embedding, {.name = "x_embed", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {scales_logits, {.name = "h_norm", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS, DIM_HIDDEN}}},
};
static const Row embed_rows[] = {
    {OP_EMBED, {"token"}, {"x_embed|x"}, "model.embed_tokens.weight"},
    {OP_SCALE, {"x_embed"}, {"x"}, NULL, .part = scales_embedding, .scale = BURST_SCALE_EMBEDDING},
};
static const Row head_rows[] = {
    {OP_NORM, {"x"}, {"h_norm|h_final", "rstd"}, "model.norm.weight"},
    {OP_SCALE, {"h_norm"}, {"h_final"}, NULL, .part = scales_logits, .scale = BURST_SCALE_LOGIT},
    {OP_LOSS, {"h_final", "label", "label_weight"}, {NULL}, "lm_head.weight"},
};

static Operand operand(const Step *s, const char *text)
{
    char name[32];
    const size_t n = strcspn(text, "+|");
    memcpy(name, text, n);
    name[n] = 0;
    const int value = step_value(s, name);
    return value < 0 && text[n] == '|' ? operand(s, text + n + 1) : (Operand){value, text[n] == '+'};
}

static void add_rows(Step *s, int block, const Row *row, int rows)
{
    for (int i = 0; i < rows; i++) {
        if (!has_part(&s->program->model, row[i].part))
            continue;
        Op o = op_make(row[i].kind);
        o.weight = row[i].weight;
        o.tensors = row[i].tensors ? row[i].tensors : 1;
        o.scale = row[i].scale;
        for (int j = 0; j < countof(row->read) && row[i].read[j]; j++)
            o.read[j] = operand(s, row[i].read[j]);
        for (int j = 0; j < countof(row->write) && row[i].write[j]; j++)
            o.write[j] = operand(s, row[i].write[j]);
        *vec_push(s->arena, &s->block[block].ops) = o;
    }
}

static void add_values(Step *s, const Value *v, int n, bool layer)
{
    for (int i = 0; i < n; i++) {
        Value x = v[i];
        x.gradient = -1;
        if (layer) {
            x.kind = VALUE_ACTIVATION;
            x.index = x.index == INDEX_NONE ? INDEX_LAYER : x.index;
        }
        step_add_value(s, x);
    }
}

Step *step_model(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units)
{
    static const Block blocks[STEP_BLOCKS] = {
        [BLOCK_EMBED] = {.name = "embed"},
        [BLOCK_FORWARD] = {.name = "forward", .repeat = REPEAT_UP, .unit = 1},
        [BLOCK_HEAD] = {.name = "head", .unit = 2},
        [BLOCK_BACKWARD] = {.name = "backward", .repeat = REPEAT_DOWN, .unit = 1},
        [BLOCK_BACKWARD_LOWER] = {.name = "backward_lower", .repeat = REPEAT_DOWN, .unit = 1},
        [BLOCK_EMBED_BACK] = {.name = "embed backward"},
        [BLOCK_OPTIMIZER] = {.name = "optimizer", .repeat = REPEAT_UNITS},
        [BLOCK_DONE] = {.name = "done", .unit = 2}};
    Step *s = NEW(a, Step);
    const int64_t tokens = (part->max_tokens + shape->tensor - 1) / shape->tensor;
    *s = (Step){.arena = a,
                .program = p,
                .shape = *shape,
                .tokens = tokens,
                .all_tokens = tokens * shape->tensor,
                .chunks = 1,
                .offload_layers = p->model.layers - 1,
                .units = units};
    memcpy(s->block, blocks, sizeof blocks);
    s->block[BLOCK_FORWARD].end = s->block[BLOCK_BACKWARD].end = p->model.layers;
    add_values(s, end_values, countof(end_values), false);
    for (int i = 0; i < countof(part_end_values); i++)
        add_values(s, &part_end_values[i].value, has_part(&p->model, part_end_values[i].part), false);
    add_values(s, layer_values, countof(layer_values), true);
    for (int i = 0; i < countof(part_values); i++)
        add_values(s, &part_values[i].value, has_part(&p->model, part_values[i].part), true);
    add_rows(s, BLOCK_EMBED, embed_rows, countof(embed_rows));
    add_rows(s, BLOCK_FORWARD, layer_rows, countof(layer_rows));
    add_rows(s, BLOCK_HEAD, head_rows, countof(head_rows));
    return s;
}
