/* safetensors/fields.c: the fields of config.json that no plan has a value for, in two tables. A field in
 * neither is refused: what it says of the computation is unknown. */
#include "safetensors/safetensors.h"

#include <stdio.h>
#include <string.h>

/* They change no numbers of training: names and versions, special tokens, labels and heads of other tasks,
 * the dtype of files, initial values, lengths without scaled positions, caches, generation, how a library
 * computes the same. */
static const char *const without_effect[] = {
    "_name_or_path",
    "name_or_path",
    "_commit_hash",
    "_attn_implementation_autoset",
    "_attn_implementation",
    "attn_implementation",
    "transformers_version",
    "unsloth_version",
    "unsloth_fixed",
    "finetuning_task",
    "tokenizer_class",
    "prefix",
    "bos_token_id",
    "eos_token_id",
    "sep_token_id",
    "unk_token_id",
    "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "task_specific_params",
    "classifier_dropout",
    "torch_dtype",
    "dtype",
    "use_bfloat16",
    "tf_legacy_loss",
    "_from_model_config",
    "torchscript",
    "initializer_range",
    "initializer_factor",
    "max_position_embeddings",
    "max_sequence_length",
    "model_max_length",
    "pretraining_tp",
    "use_cache",
    "cache_implementation",
    "gradient_checkpointing",
    "chunk_size_feed_forward",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "return_dict",
    "return_dict_in_generate",
    "use_return_dict",
    "max_length",
    "min_length",
    "max_new_tokens",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "begin_suppress_tokens",
    "suppress_tokens",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "num_return_sequences",
    "remove_invalid_values",
    "is_decoder",
    "sliding_window", /* of types whose windows use_sliding_window or nothing sets */
    "max_window_layers",
    "sliding_window_size", /* of Gemma 2, beside sliding_window */
    "_sliding_window_pattern", /* layer_types says it too */
    "use_parallel_embedding",
    "attention_softmax_in_fp32",
    "scale_attention_softmax_in_fp32",
    "embedding_initializer_range",
    "mup_denominator",       /* of MiniCPM's initial values and learning rates */
    "transformers.js_config",
    "intermediate_size", /* of types with experts in all layers, whose width another field says */
    "router_aux_loss_coef", /* of a loss that output_router_logits adds */
};

/* They do, but for these values, a list as JSON. The first is what a message names. family: of that one
 * alone; those are fields that transformers does not read, of the code that a model was published with. */
static const struct Neutral {
    const char *name, *values, *family;
    bool unread; /* some types read it, and the type in question is none of them */
} neutral[] = {
    {"is_causal", "[true]", .unread = true},
    {"use_sliding_window", "[false, null]", .unread = true},
    {"sliding_window_pattern", "[null]", .unread = true},
    {"attn_logit_softcapping", "[null]", .unread = true},
    {"rope_local_base_freq", "[null]", .unread = true},
    {"attention_dropout", "[0, null]"},
    {"attn_pdrop", "[0, null]"},
    {"attn_dropout", "[0, null]"},
    {"hidden_dropout", "[0, null]"},
    {"hidden_dropout_prob", "[0, null]"},
    {"attention_probs_dropout_prob", "[0, null]"},
    {"resid_pdrop", "[0, null]"},
    {"residual_dropout", "[0, null]"},
    {"resid_dropout", "[0, null]"},
    {"embd_pdrop", "[0, null]"},
    {"embedding_dropout", "[0, null]"},
    {"embed_dropout", "[0, null]"},
    {"ffn_dropout", "[0, null]"},
    {"dropout", "[0, null]"},
    {"layerdrop", "[0, null]"},
    {"partial_rotary_factor", "[1, null]"},
    {"rotary_pct", "[1, null]"},
    {"no_rope_layers", "[null, []]"},
    {"no_rope_layer_interval", "[null, 0]"},
    {"use_mrope", "[false, null]"},
    {"use_bidirectional_attention", "[false, null]"},
    {"rope_interleave", "[true]", "youtu"},
    {"rope_interleave", "[true]", "deepseek_v3"},
    {"rope_interleave", "[true]", "kimi_k2"},
    {"rope_interleave", "[true]", "glm4_moe_lite"},
    {"moe_norm_min", "[1e-12]", "ernie4_5_moe"},
    {"rope_interleave", "[false, null]"},
    {"attention_bias", "[false, null]"},
    {"mlp_bias", "[false, null]"},
    {"attention_out_bias", "[false, null]"},
    {"qkv_bias", "[false, null]"},
    {"use_bias", "[false, null]"},
    {"use_qkv_bias", "[false, null]"},
    {"bias", "[false, null]"},
    {"lm_head_bias", "[false, null]"},
    {"mamba_conv_bias", "[true]", "granitemoehybrid"},
    {"mamba_proj_bias", "[false, null]", "granitemoehybrid"},
    {"mamba_proj_bias", "[false, null]", "nemotron_h"},
    {"mamba_conv_bias", "[true]", "falcon_h1"},
    {"mamba_proj_bias", "[false, null]", "falcon_h1"},
    {"projectors_bias", "[false, null]", "falcon_h1"},
    {"mamba_hidden_act", "[\"silu\"]", "nemotron_h"},
    {"moe_latent_size", "[null]", "nemotron_h"},
    {"use_conv_bias", "[true]", "nemotron_h"},
    {"attn_output_gate", "[true]", "qwen3_5_text"},
    {"attn_output_gate", "[true]", "qwen3_5_moe_text"},
    {"use_qk_norm", "[true]", "qwen3_moe"},
    {"shared_expert_intermediate_size", "[0, null]"},
    {"use_qk_norm", "[false, null]"},
    {"qk_layernorm", "[false, null]"},
    {"use_parallel_residual", "[false, null]"},
    {"embedding_multiplier", "[1, null]"},
    {"residual_multiplier", "[1, null]"},
    {"logits_scaling", "[1, null]"},
    {"logit_scale", "[1, null]"},
    {"attention_multiplier", "[null]"},
    {"query_pre_attn_scalar", "[null]"},
    {"scale_emb", "[1, null]"},
    {"scale_depth", "[null]"},
    {"dim_model_base", "[null]"},
    {"final_logit_softcapping", "[null, 0]"},
    {"clip_qkv", "[null]"},
    {"attention_chunk_size", "[null]"},
    {"attn_temperature_tuning", "[false, null]"},
    {"attention_sinks", "[null, false]"},
    {"output_router_logits", "[false, null]"},
    {"router_jitter_noise", "[0, null]"},
    {"mlp_only_layers", "[[], null]"},
    {"decoder_sparse_step", "[1, null]"},
    {"num_experts", "[null, 0]"},
    {"num_local_experts", "[null, 0]"},
    {"num_nextn_predict_layers", "[null, 0]"},
    {"use_cla", "[false, null]"},
    {"use_mla", "[false, null]"},
    {"hidden_activation", "[\"gelu_pytorch_tanh\", null]", "gemma"},
    {"hidden_activation", "[\"silu\", null]"},
    {"is_llama_config", "[true]", "llama"},
    {"rope_interleaved", "[false]", "llama"},
    {"full_attn_mod", "[1]", "phi3"},
    {"interpolate_factor", "[1]", "phi3"},
    {"is_encoder_decoder", "[false, null]"},
    {"add_cross_attention", "[false, null]"},
    {"cross_attention_hidden_size", "[null]"},
    {"tie_encoder_decoder", "[false, null]"},
    {"pruned_heads", "[{}, null]"},
    {"quantization_config", "[null]"},
    {"auto_map", "[null, {}]"},
    {"per_layer_config", "[null, {}]"},
    {"order_of_interleaved_layers", "[\"local_attn_first\"]", "cohere2"},
    {"position_embedding_type", "[\"rope_gptj\"]", "cohere2"},
    {"layer_switch", "[4]", "cohere2"},
    {"use_embedding_sharing", "[true]", "cohere2"},
    {"use_gated_activation", "[true]", "cohere2"},
    {"use_parallel_block", "[true]", "cohere2"},
    {"activation_function", "[\"gelu\"]", "starcoder2"},
    {"layer_norm_epsilon", "[1e-5]", "starcoder2"},
    {"mlp_type", "[\"default\"]", "starcoder2"},
    {"norm_type", "[\"layer_norm\"]", "starcoder2"},
    {"scale_attn_weights", "[true]", "starcoder2"},
};

static bool is_without_effect(const Family *family, const char *name)
{
    for (const char *const *unread = family->unread; unread && *unread; unread++)
        if (strcmp(*unread, name) == 0)
            return true;
    for (size_t i = 0; i < sizeof without_effect / sizeof *without_effect; i++)
        if (strcmp(name, without_effect[i]) == 0)
            return true;
    return false;
}

static const struct Neutral *find_neutral(const Family *family, const char *name)
{
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if (strcmp(neutral[i].name, name) == 0 &&
            (!neutral[i].family || strcmp(neutral[i].family, family->type) == 0))
            return &neutral[i];
    return NULL;
}

/* Those of a folder, told in one line. */
typedef struct Dropouts {
    int count;
    char text[MISFIT_TEXT / 2]; /* "attention_dropout is 0.1, resid_pdrop is 0.1" */
} Dropouts;

static void add_dropout(Dropouts *d, const char *name, const char *value)
{
    const size_t n = strlen(d->text);
    snprintf(d->text + n, sizeof d->text - n, "%s%s is %s", n ? ", " : "", name, value);
    d->count++;
}

static void check_neutral(Misfits *m, const Family *family, const struct Neutral *n, const json_t *value,
                          Dropouts *dropouts)
{
    json_t *values = json_loads(n->values, 0, NULL);
    char text[VALUE_TEXT], only[VALUE_TEXT];
    bool found = false;
    for (size_t i = 0; i < json_array_size(values); i++)
        found = found || same_value(json_array_get(values, i), value);
    value_text(value, text);
    value_text(json_array_get(values, 0), only);
    if (!found && strstr(n->name, "drop"))
        add_dropout(dropouts, n->name, text);
    else if (!found && strcmp(n->name, "auto_map") == 0)
        misfit(m, "auto_map names code of the folder's own (%s); burstc cannot know what that computes",
               text);
    else if (!found && n->unread)
        misfit(m, "%s is %s, which transformers does not read of a %s; remove it", n->name, text,
               family->type);
    else if (!found)
        misfit(m, "%s is %s; only %s is supported", n->name, text, only);
    json_decref(values);
}

void config_check_others(Misfits *m, const json_t *config, const Family *family)
{
    const char *name;
    json_t *value;
    Dropouts dropouts = {0};
    json_object_foreach((json_t *)config, name, value) {
        const struct Neutral *n = find_neutral(family, name);
        if (config_is_compared(family, name) || is_without_effect(family, name) ||
            (strcmp(name, "quantization_config") == 0 && config_is_mxfp4(config)))
            continue;
        if (n)
            check_neutral(m, family, n, value, &dropouts);
        else
            misfit(m,
                   "unknown field %s; remove it from config.json only if the code that computes a %s does "
                   "not read it",
                   name, family->type);
    }
    if (dropouts.count)
        misfit(m, "%s: dropout is not computed; set %s to 0 in config.json", dropouts.text,
               dropouts.count == 1 ? "it" : "them");
}
