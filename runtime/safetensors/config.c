/* safetensors/config.c: config.json of a Llama or its like: one table of fields is both what is compared with
 * the plan and what is written. safetensors/fields.c has the other fields. */
#include "safetensors/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 15 };

/* What a plan is to transformers, the first row that fits: a layer's tensor that only such a model has,
 * NULL: any. What a config.json without the field means, 0: key heads are heads, head_dim is hidden /
 * heads. How many of attention_bias and mlp_bias it reads. */
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

/* plan: the value that the plan has; absent: what a config.json without the field means, NULL where it must
 * be there; null: what null means, NULL where that is the same. */
typedef struct Field { const char *name; json_t *plan, *absent, *null; } Field;

/* How many. */
static int fill_fields(const BurstPlan *p, Field f[FIELDS])
{
    const Family *family = family_of(p);
    const Field all[FIELDS] = {
        {"model_type", json_string(family->type), NULL, NULL},
        {"hidden_size", json_integer(p->hidden), NULL, NULL},
        {"num_hidden_layers", json_integer(p->layers), NULL, NULL},
        {"num_attention_heads", json_integer(p->heads), NULL, NULL},
        {"num_key_value_heads", json_integer(p->kv_heads),
         json_integer(family->kv_heads ? family->kv_heads : p->heads), json_integer(p->heads)},
        {"head_dim", json_integer(p->head_dim),
         json_integer(family->head_dim ? family->head_dim : p->hidden / p->heads), NULL},
        {"intermediate_size", json_integer(p->ffn), NULL, NULL},
        {"vocab_size", json_integer(p->vocab), NULL, NULL},
        {"rms_norm_eps", json_real(p->norm_eps), json_real(1e-6), NULL},
        {"rope_theta", json_real(p->rope_theta), json_real(10000), NULL},
        {"tie_word_embeddings", json_boolean(p->tied), json_false(), NULL},
        {"hidden_act", json_string("silu"), json_string("silu"), NULL},
        {"attn_logit_softcapping", p->softcap > 0 ? json_real(p->softcap) : json_null(), json_null(), NULL},
        {"attention_bias", json_false(), json_false(), NULL},
        {"mlp_bias", json_false(), json_false(), NULL}, /* both last */
    };
    memcpy(f, all, sizeof all);
    return FIELDS - 2 + family->biases;
}

static void free_fields(Field f[FIELDS])
{
    for (int i = 0; i < FIELDS; i++) {
        json_decref(f[i].plan);
        json_decref(f[i].absent);
        json_decref(f[i].null);
    }
}

/* ---- values ---- */

void value_text(const json_t *value, char text[VALUE_TEXT])
{
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(text, VALUE_TEXT, "%s", dumped ? dumped : "missing");
    if (dumped && strlen(dumped) >= VALUE_TEXT)
        memcpy(text + VALUE_TEXT - 4, "...", 3);
    free(dumped);
}

/* Real numbers may have been written with few digits, and whole ones without a point. */
bool same_value(const json_t *a, const json_t *b)
{
    if (!json_is_number(a) || !json_is_number(b) || (json_is_integer(a) && json_is_integer(b)))
        return json_equal(a, b);
    const double x = json_number_value(a), y = json_number_value(b);
    return fabs(x - y) <= 1e-6 * fabs(x);
}

bool given(const json_t *value)
{
    return value && !json_is_null(value);
}

/* ---- rotary embedding ---- */

/* Where it may be described besides rope_theta: older files have rope_scaling, newer ones rope_parameters. */
static const char *const rope_blocks[] = {"rope_scaling", "rope_parameters"};
enum { ROPE_BLOCKS = sizeof rope_blocks / sizeof *rope_blocks };

/* Of the type "default", with nothing that says more: a factor scales positions. */
static bool is_default_rope(const json_t *block)
{
    static const char *const known[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    size_t found = 0;
    const json_t *type = json_object_get(block, "rope_type");
    type = type ? type : json_object_get(block, "type");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        found += json_object_get(block, known[i]) != NULL;
    return json_is_object(block) && json_object_size(block) == found &&
           (!type || (json_is_string(type) && strcmp(json_string_value(type), "default") == 0));
}

static void check_block(Misfits *m, const char *name, const json_t *block, const json_t **theta)
{
    char text[VALUE_TEXT], other[VALUE_TEXT];
    const json_t *inner = json_object_get(block, "rope_theta"),
                 *part = json_object_get(block, "partial_rotary_factor");
    value_text(block, text);
    value_text(*theta, other);
    if (!is_default_rope(block) || (given(part) && json_number_value(part) != 1))
        misfit(m, "%s is %s; only type \"default\" with partial_rotary_factor 1 is supported", name, text);
    else if (given(*theta) && given(inner) && json_number_value(*theta) != json_number_value(inner))
        misfit(m, "rope_theta is %s, but %s is %s", other, name, text);
    *theta = given(inner) ? inner : *theta;
}

/* Borrowed; NULL where none is given. */
static const json_t *find_theta(Misfits *m, const json_t *config)
{
    const json_t *theta = json_object_get(config, "rope_theta");
    int filled = 0;
    for (int i = 0; i < ROPE_BLOCKS; i++) {
        const json_t *block = json_object_get(config, rope_blocks[i]);
        if (!given(block))
            continue;
        filled += !json_is_object(block) || json_object_size(block) > 0;
        check_block(m, rope_blocks[i], block, &theta);
    }
    if (filled > 1) /* transformers takes one of them, and nothing from the other */
        misfit(m, "rope_scaling and rope_parameters are both set; remove one");
    return theta;
}

/* ---- checking ---- */

static void check_field(Misfits *m, const Field *f, const json_t *there)
{
    char text[VALUE_TEXT], plan[VALUE_TEXT];
    const bool here = given(there);
    const json_t *unsaid = there && f->null ? f->null : f->absent, *value = here ? there : unsaid;
    value_text(value, text);
    value_text(f->plan, plan);
    if (!value)
        misfit(m, "config.json has no %s", f->name);
    else if (!same_value(f->plan, value))
        misfit(m, "%s is %s%s, expected %s", f->name, text, here ? "" : " (by default)", plan);
}

static void check_architectures(Misfits *m, const char *wanted, const json_t *there)
{
    char text[VALUE_TEXT];
    const char *first = json_string_value(json_array_get(there, 0));
    if (!given(there) || (json_array_size(there) == 1 && first && strcmp(first, wanted) == 0))
        return;
    value_text(there, text);
    misfit(m, "architectures is %s, expected [\"%s\"]", text, wanted);
}

/* transformers gives this token's embedding no gradient. */
static void say_padding(const BurstCtx *c, const char *path, const json_t *token)
{
    char text[VALUE_TEXT];
    if (c->rank != 0 || !given(token))
        return;
    value_text(token, text);
    say_line("%s sets pad_token_id to %s; transformers does not train that token, this program does", path,
             text);
}

typedef struct Compared { const Field *field; int fields; } Compared;

static bool is_compared(const void *what, const char *name)
{
    static const char *const elsewhere[] = {
        "architectures",      "rope_scaling",   "rope_parameters",   "pad_token_id", "is_causal",
        "use_sliding_window", "sliding_window", "max_window_layers", "layer_types",  "burst_attention"};
    const Compared *t = what;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(name, elsewhere[i]) == 0)
            return true;
    for (int i = 0; i < t->fields; i++)
        if (strcmp(name, t->field[i].name) == 0)
            return true;
    return false;
}

static void check_all(BurstCtx *c, const BurstPlan *p, const char *path, const json_t *config, Misfits *m)
{
    Field field[FIELDS];
    const int fields = fill_fields(p, field);
    const json_t *theta = find_theta(m, config);
    for (int i = 0; i < fields; i++) {
        const bool rope = strcmp(field[i].name, "rope_theta") == 0;
        check_field(m, &field[i], rope ? theta : json_object_get(config, field[i].name));
    }
    check_architectures(m, family_of(p)->architecture, json_object_get(config, "architectures"));
    config_check_others(m, config, is_compared, &(Compared){field, fields});
    config_check_masks(c, p, config, path, m);
    if (!m->count)
        say_padding(c, path, json_object_get(config, "pad_token_id"));
    free_fields(field);
}

int config_check(BurstCtx *c, const BurstPlan *p, const char *folder, Misfits *m)
{
    char path[PATH_MAX];
    json_t *config = NULL;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
        return burst_fail(c, BURST_E_IO, "the path '%s' is too long", folder);
    BURST_TRY(load_json(c, path, &config));
    check_all(c, p, path, config, m);
    json_decref(config);
    return BURST_OK;
}

/* ---- writing ---- */

json_t *config_make(const BurstPlan *p, int dtype)
{
    const char *name = dtype == BURST_F32 ? "float32" : "bfloat16";
    Field field[FIELDS];
    json_t *end = p->train.separator < 0 ? json_null() : json_integer((json_int_t)p->train.separator);
    json_t *config = json_pack("{s:[s], s:I, s:n, s:s, s:n, s:o}", "architectures",
                               family_of(p)->architecture, "max_position_embeddings", (json_int_t)p->sequence,
                               "rope_scaling", "torch_dtype", name, "bos_token_id", "eos_token_id", end);
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
