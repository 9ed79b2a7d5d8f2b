/* safetensors/unsupported.c: types of models that no plan can be: one line says which part burstc does not
 * compute, instead of a line for each field that follows from it. */
#include "safetensors/safetensors.h"

#include <string.h>

#define EXPERTS "is a mixture of experts", "feed-forward layers chosen by the token are not computed"
#define RECURRENT \
    "has recurrent layers", "layers with a state (Mamba, RWKV, gated delta rule) are not computed"
#define CONVOLUTION "has convolution layers", "layers of convolutions are not computed"
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
    {"attn_type_list", RECURRENT},
    {"attention_hidden_size", RECURRENT},
    {"conv_L_cache", CONVOLUTION},
    {"index_topk", SELECTED},
    {"num_experts", EXPERTS},
    {"num_local_experts", EXPERTS},
    {"n_routed_experts", EXPERTS},
    {"moe_num_experts", EXPERTS},
    {"num_experts_per_tok", EXPERTS},
    {"moe_intermediate_size", EXPERTS},
};

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

static bool all_attend(const json_t *types)
{
    bool all = json_array_size(types) > 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        all = all && type && (strcmp(type, "attention") == 0 || strcmp(type, "full_attention") == 0);
    }
    return all;
}

/* A type that may have recurrent layers, experts, both or none. */
static bool hybrid_is_unsupported(Misfits *m, const json_t *config)
{
    const json_t *types = json_object_get(config, "layer_types"),
                 *experts = json_object_get(config, "num_local_experts");
    if (!all_attend(types))
        return tell(m, config, "layer_types", types, RECURRENT);
    if (!json_is_integer(experts) || json_integer_value(experts) != 0)
        return tell(m, config, "num_local_experts", experts, EXPERTS);
    return false;
}

bool config_is_unsupported(Misfits *m, const json_t *config)
{
    const json_t *type = json_object_get(config, "model_type"),
                 *text_part = json_object_get(config, "text_config");
    const Family *family = family_named(json_string_value(type));
    if (!json_is_string(type) || family)
        return family && family->hybrid && hybrid_is_unsupported(m, config);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const json_t *own = json_object_get(config, parts[i].field),
                     *value = own ? own : json_object_get(text_part, parts[i].field);
        if (says_something(value))
            return tell(m, config, parts[i].field, value, parts[i].has, parts[i].why);
    }
    return false;
}
