/* safetensors/unsupported.c: types of models that no plan can be: one line says which part burstc does not
 * compute, instead of a line for each field that follows from it. */
#include "safetensors/safetensors.h"

#include <string.h>

#define EXPERTS \
    "is a mixture of experts", "types with experts that are known: qwen3_moe, qwen2_moe, olmoe, mixtral, " \
                               "granitemoe, gpt_oss, minimax_m2, deepseek_v2, deepseek_v3, kimi_k2, " \
                               "glm4_moe, glm4_moe_lite, ernie4_5_moe"
#define RECURRENT \
    "has recurrent layers", \
        "of types with a state that follows the tokens qwen3_5, qwen3_5_moe, " \
        "qwen3_next, granitemoehybrid, nemotron_h, falcon_h1 and olmo_hybrid are computed"
#define CONVOLUTION "has convolution layers", "of types with layers of convolutions lfm2 is computed"
#define SELECTED "selects the keys of a token by a score", "masks chosen by content are not computed"

/* A part, by a field that a config.json without it lacks, has as null, 0, 1, false or an empty list. */
static const struct {
    const char *field, *has, *why;
} parts[] = {
    {"linear_num_value_heads", RECURRENT},
    {"linear_attn_config", RECURRENT},
    {"mamba_d_state", RECURRENT},
    {"mamba_num_heads", RECURRENT},
    {"mamba_d_conv", RECURRENT},
    {"ssm_state_size", RECURRENT},
    {"state_size", RECURRENT},
    {"lru_width", RECURRENT},
    {"hybrid_override_pattern", RECURRENT},
    {"attention_hidden_size", RECURRENT},
    {"conv_L_cache", CONVOLUTION},
    {"index_topk", SELECTED},
    {"num_experts", EXPERTS},
    {"num_local_experts", EXPERTS},
    {"n_routed_experts", EXPERTS},
    {"moe_num_experts", EXPERTS},
    {"num_experts_per_tok", EXPERTS},
    {"moe_intermediate_size", EXPERTS},
    {"ffn_config", EXPERTS}, /* of DBRX */
};

/* Types by what in them is not computed, where fields do not say it. */
static const struct {
    const char *type, *why;
} others[] = {
    {"kimi_linear", "the decay of its recurrent layers is by channel of the key (Kimi delta attention)"},
    {"bailing_hybrid", "the decay of its recurrent layers is by channel of the key (Kimi delta attention)"},
    {"minimax",
     "its recurrent layers have a constant decay (lightning attention), and sums begin after norms"},
    {"minimax_text_01",
     "its recurrent layers have a constant decay (lightning attention), and sums begin after norms"},
    {"mamba", "the state of its layers decays by channel and element (Mamba-1)"},
    {"falcon_mamba", "the state of its layers decays by channel and element (Mamba-1)"},
    {"jamba", "the state of its recurrent layers decays by channel and element (Mamba-1)"},
    {"mamba2", "its layers have no attention and no feed-forward network"},
    {"zamba2", "its layers of attention share weights, and have the embedding beside their input"},
    {"recurrent_gemma", "the state of its recurrent layers is one number a channel (RG-LRU)"},
    {"phimoe", "its router draws random numbers in training (sparsemixer)"},
    {"llama4", "scores multiply experts' inputs, and queries are scaled by their positions"},
    {"llama4_text", "scores multiply experts' inputs, and queries are scaled by their positions"},
    {"gemma4",
     "its experts run beside a dense network with norms of their own, and full attention has other heads"},
    {"gemma4_text",
     "its experts run beside a dense network with norms of their own, and full attention has other heads"},
    {"longcat_flash", "a layer has two attentions, and some experts return their input"},
    {"deepseek_v4",
     "some layers choose experts by a table of tokens, and layers have several residual streams"},
};

/* A part by what lists of layers have, of which one value says it. */
static const struct {
    const char *field, *value, *has, *why;
} layers[] = {
    {"attn_type_list", "0", RECURRENT}, /* of MiniMax; 1: full attention */
    {"layer_types", "\"linear_attention\"", RECURRENT},
    {"layer_types", "\"mamba\"", RECURRENT},
    {"layer_types", "\"conv\"", CONVOLUTION},
    {"layers_block_type", "\"mamba\"", RECURRENT},
    {"layers_block_type", "\"recurrent\"", RECURRENT},
    {"block_types", "\"recurrent\"", RECURRENT},
};

/* The types that text models are of. */
static void known_types(char *text, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < family_count && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", families[i].type);
}

static bool says_something(const json_t *value)
{
    if (json_is_number(value))
        return json_number_value(value) > 1;
    return json_is_string(value) || json_is_object(value) || json_is_true(value) ||
           json_array_size(value) > 0;
}

static bool tell(Misfits *m, const json_t *config, const char *field, const json_t *value, const char *has,
                 const char *why)
{
    char named[VALUE_TEXT], text[VALUE_TEXT];
    value_text(json_object_get(config, "model_type"), named);
    value_text(value, text);
    misfit_alone(m, "model_type is %s, which %s (%s is %s): %s", named, has, field, text, why);
    return true;
}

/* Of the model, or of its text part. */
static const json_t *field_of(const json_t *config, const char *name)
{
    const json_t *own = json_object_get(config, name);
    return own ? own : json_object_get(json_object_get(config, "text_config"), name);
}

static bool has_part(Misfits *m, const json_t *config)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const json_t *value = field_of(config, parts[i].field);
        if (says_something(value))
            return tell(m, config, parts[i].field, value, parts[i].has, parts[i].why);
    }
    return false;
}

static bool has_layer(Misfits *m, const json_t *config, const char *type)
{
    char text[VALUE_TEXT];
    const json_t *value;
    size_t layer;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        json_array_foreach(field_of(config, layers[i].field), layer, value)
        {
            value_text(value, text);
            if (strcmp(text, layers[i].value) != 0)
                continue;
            misfit_alone(m, "model_type is %s, which %s (layer %zu of %s is %s): %s", type, layers[i].has,
                         layer, layers[i].field, text, layers[i].why);
            return true;
        }
    return false;
}

static bool is_other_type(Misfits *m, const char *type)
{
    for (size_t i = 0; type && i < sizeof others / sizeof *others; i++) {
        if (strcmp(others[i].type, type) != 0)
            continue;
        misfit_alone(m, "model_type is \"%s\": %s; this is not computed", type, others[i].why);
        return true;
    }
    return false;
}

bool config_is_unsupported(Misfits *m, const json_t *config)
{
    const json_t *type = json_object_get(config, "model_type");
    const Family *family = family_named(json_string_value(type));
    char named[VALUE_TEXT], known[MISFIT_TEXT];
    if (family)
        return false;
    value_text(type, named);
    known_types(known, sizeof known);
    if (!given(type))
        misfit_alone(m, "config.json has no model_type; known are %s", known);
    else if (!is_other_type(m, json_string_value(type)) && !has_part(m, config) &&
             !has_layer(m, config, named))
        misfit_alone(m, "model_type is %s; known are %s", named, known);
    return true;
}
