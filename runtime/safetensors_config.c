/* safetensors_config.c: config.json of a Llama or its like: one table of fields is both what is checked and what is written. */
#include "safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 15, VALUE_TEXT = 120 };

/* What a plan is to transformers, the first row that fits: a layer's tensor that only such a model has, NULL: any. What a
 * config.json without the field means, 0: key heads are heads, head_dim is hidden / heads. How many of attention_bias and mlp_bias
 * it reads. */
typedef struct Family { const char *type, *architecture, *tensor; int kv_heads, head_dim, biases; } Family;
static const Family families[] = {
    {"qwen3", "Qwen3ForCausalLM", "self_attn.q_norm.weight", 32, 128, 1},
    {"qwen2", "Qwen2ForCausalLM", "self_attn.q_proj.bias", 32, 0, 0},
    {"llama", "LlamaForCausalLM", NULL, 0, 0, 2},
};

static bool has_tensor(const BurstPlan *p, const char *name)
{
    for (int u = 0; u < p->unit_rows; u++)
        for (int t = 0; t < p->units[u].tensors; t++)
            if (strcmp(p->units[u].tensor[t].name, name) == 0)
                return true;
    return false;
}

static const Family *family_of(const BurstPlan *p)
{
    const Family *f = families;
    while (f->tensor && !has_tensor(p, f->tensor))
        f++;
    return f;
}

/* plan: the value that the plan has; absent: what a config.json without the field means, NULL where it must be there. */
typedef struct Field { const char *name; json_t *plan, *absent; } Field;

/* How many. */
static int fill_fields(const BurstPlan *p, Field f[FIELDS])
{
    const Family *family = family_of(p);
    const Field all[FIELDS] = {
        {"model_type", json_string(family->type), NULL},
        {"hidden_size", json_integer(p->hidden), NULL},
        {"num_hidden_layers", json_integer(p->layers), NULL},
        {"num_attention_heads", json_integer(p->heads), NULL},
        {"num_key_value_heads", json_integer(p->kv_heads), json_integer(family->kv_heads ? family->kv_heads : p->heads)},
        {"head_dim", json_integer(p->head_dim), json_integer(family->head_dim ? family->head_dim : p->hidden / p->heads)},
        {"intermediate_size", json_integer(p->ffn), NULL},
        {"vocab_size", json_integer(p->vocab), NULL},
        {"rms_norm_eps", json_real(p->norm_eps), json_real(1e-6)},
        {"rope_theta", json_real(p->rope_theta), json_real(10000)},
        {"tie_word_embeddings", json_boolean(p->tied), json_false()},
        {"hidden_act", json_string("silu"), json_string("silu")},
        {"attn_logit_softcapping", p->softcap > 0 ? json_real(p->softcap) : json_null(), json_null()},
        {"attention_bias", json_false(), json_false()},
        {"mlp_bias", json_false(), json_false()}, /* both last */
    };
    memcpy(f, all, sizeof all);
    return FIELDS - 2 + family->biases;
}

static void free_fields(Field f[FIELDS])
{
    for (int i = 0; i < FIELDS; i++) {
        json_decref(f[i].plan);
        json_decref(f[i].absent);
    }
}

static void value_text(const json_t *value, char text[VALUE_TEXT])
{
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(text, VALUE_TEXT, "%s", dumped ? dumped : "missing");
    free(dumped);
}

/* Real numbers may have been written with few digits, and whole ones without a point. */
static bool same_value(const json_t *a, const json_t *b)
{
    if (!json_is_real(a))
        return json_equal(a, b);
    double x = json_real_value(a), y = json_number_value(b);
    return json_is_number(b) && fabs(x - y) <= 1e-6 * fabs(x);
}

/* ---- rotary embedding ---- */

/* Where it may be described besides rope_theta: older files have rope_scaling, newer ones rope_parameters. */
static const char *const rope_blocks[] = {"rope_scaling", "rope_parameters"};
enum { ROPE_BLOCKS = sizeof rope_blocks / sizeof *rope_blocks };

/* Without a type only what is read may be there: a factor says that positions are scaled. */
static bool is_default_rope(const json_t *block)
{
    const json_t *type = json_object_get(block, "rope_type");
    type = type ? type : json_object_get(block, "type");
    size_t read = (json_object_get(block, "rope_theta") != NULL) + (json_object_get(block, "partial_rotary_factor") != NULL);
    if (!type)
        return json_is_object(block) && json_object_size(block) == read;
    return json_is_string(type) && strcmp(json_string_value(type), "default") == 0;
}

static bool given(const json_t *value)
{
    return value && !json_is_null(value);
}

static int check_rotated(BurstCtx *c, const char *path, const json_t *part)
{
    char text[VALUE_TEXT];
    if (!given(part) || json_number_value(part) == 1)
        return BURST_OK;
    value_text(part, text);
    return burst_fail(c, BURST_E_USAGE, "%s: partial_rotary_factor is %s; whole heads are rotated", path, text);
}

/* *theta: borrowed, NULL where none is given. */
static int find_theta(BurstCtx *c, const char *path, const json_t *config, const json_t **theta)
{
    char text[VALUE_TEXT], other[VALUE_TEXT];
    *theta = json_object_get(config, "rope_theta");
    for (int i = 0; i < ROPE_BLOCKS; i++) {
        const json_t *block = json_object_get(config, rope_blocks[i]);
        if (!given(block))
            continue;
        value_text(block, text);
        if (!is_default_rope(block))
            return burst_fail(c, BURST_E_USAGE, "%s: %s is %s; only the type \"default\" is computed", path, rope_blocks[i], text);
        BURST_TRY(check_rotated(c, path, json_object_get(block, "partial_rotary_factor")));
        const json_t *inner = json_object_get(block, "rope_theta");
        value_text(*theta, other);
        if (given(*theta) && given(inner) && json_number_value(*theta) != json_number_value(inner))
            return burst_fail(c, BURST_E_USAGE, "%s: rope_theta is %s, and in %s %s", path, other, rope_blocks[i], text);
        *theta = given(inner) ? inner : *theta;
    }
    return BURST_OK;
}

/* ---- checking ---- */

static int check_field(BurstCtx *c, const char *path, const Field *f, const json_t *there)
{
    char text[VALUE_TEXT], plan[VALUE_TEXT];
    const bool here = given(there);
    const json_t *value = here ? there : f->absent;
    if (!value)
        return burst_fail(c, BURST_E_USAGE, "%s has no %s", path, f->name);
    if (same_value(f->plan, value))
        return BURST_OK;
    value_text(value, text);
    value_text(f->plan, plan);
    return burst_fail(c, BURST_E_USAGE, "%s: %s is %s%s, and the plan's is %s", path, f->name, text,
                      here ? "" : " (where nothing is given)", plan);
}

/* What would change the computation and has no place in a plan. */
static int check_foreign(BurstCtx *c, const char *path, const json_t *config)
{
    if (given(json_object_get(config, "quantization_config")))
        return burst_fail(c, BURST_E_USAGE, "%s has a quantization_config; weights of F32, BF16 and F16 are read", path);
    return check_rotated(c, path, json_object_get(config, "partial_rotary_factor"));
}

static const char *mask_text(const BurstPlan *p, int layer)
{
    return p->masks[p->layer_mask[layer]]->text;
}

static bool all_causal(const BurstPlan *p)
{
    for (int i = 0; p->masks && i < p->layers; i++)
        if (strcmp(mask_text(p, i), "causal") != 0)
            return false;
    return true;
}

/* [layers] texts. A mask may name a file, and a path may be any bytes; JSON is UTF-8. */
json_t *masks_of(const BurstPlan *p)
{
    json_t *texts = json_array();
    for (int i = 0; texts && i < p->layers; i++) {
        json_t *text = json_string(p->masks ? mask_text(p, i) : "causal");
        json_array_append_new(texts, text ? text : json_string("(its text is not UTF-8)"));
    }
    return texts;
}

/* Masks are no part of the weights, so training may go on with others: said, but no error. */
static void compare_masks(const BurstCtx *c, const BurstPlan *p, const char *path, const json_t *config)
{
    const json_t *there = json_object_get(config, "burst_attention");
    json_t *here = masks_of(p);
    const bool window = json_is_true(json_object_get(config, "use_sliding_window"));
    bool same = there ? json_equal(there, here) : all_causal(p) && !window;
    if (c->rank == 0 && !same)
        fprintf(stderr, "burst: the plan's masks are not those that %s names (%s)\n", path, there ? "burst_attention" : window ? "a window" : "causal");
    json_decref(here);
}

static int check_all(BurstCtx *c, const BurstPlan *p, const char *path, const json_t *config)
{
    Field field[FIELDS];
    const json_t *theta = NULL;
    const int fields = fill_fields(p, field);
    int status = find_theta(c, path, config, &theta);
    for (int i = 0; status == BURST_OK && i < fields; i++) {
        bool rope = strcmp(field[i].name, "rope_theta") == 0;
        status = check_field(c, path, &field[i], rope ? theta : json_object_get(config, field[i].name));
    }
    free_fields(field);
    return status == BURST_OK ? check_foreign(c, path, config) : status;
}

int config_check(BurstCtx *c, const BurstPlan *p, const char *folder)
{
    char path[PATH_MAX];
    json_error_t wrong;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
        return burst_fail(c, BURST_E_IO, "the name of %s is too long", folder);
    json_t *config = json_load_file(path, JSON_REJECT_DUPLICATES, &wrong);
    if (!config && wrong.line < 0)
        return burst_fail(c, BURST_E_IO, "cannot read a Hugging Face folder: %s", wrong.text);
    if (!json_is_object(config)) {
        json_decref(config);
        return burst_fail(c, BURST_E_IO, "%s:%d:%d: %s", path, wrong.line, wrong.column, config ? "no object" : wrong.text);
    }
    int status = check_all(c, p, path, config);
    if (status == BURST_OK)
        compare_masks(c, p, path, config);
    json_decref(config);
    return status;
}

/* ---- writing ---- */

json_t *config_make(const BurstPlan *p, int dtype)
{
    const char *name = dtype == BURST_F32 ? "float32" : "bfloat16";
    Field field[FIELDS];
    json_t *end = p->train.separator < 0 ? json_null() : json_integer((json_int_t)p->train.separator);
    json_t *config = json_pack("{s:[s], s:I, s:n, s:s, s:n, s:o}", "architectures", family_of(p)->architecture, "max_position_embeddings",
                               (json_int_t)p->sequence, "rope_scaling", "torch_dtype", name, "bos_token_id", "eos_token_id", end);
    bool made = config != NULL;
    const int fields = fill_fields(p, field);
    for (int i = 0; made && i < fields; i++)
        made = json_is_null(field[i].plan) || json_object_set(config, field[i].name, field[i].plan) == 0;
    free_fields(field);
    if (made && !all_causal(p))
        made = json_object_set_new(config, "burst_attention", masks_of(p)) == 0;
    if (!made)
        json_decref(config);
    return made ? config : NULL;
}
