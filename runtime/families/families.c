/* families/families.c: the table of model families. Defaults are those of transformers 5.24. */
#include "families/families.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const llama_off[] = {"attention_bias", "mlp_bias", NULL};
static const char *const attention_off[] = {"attention_bias", NULL};

static const PartField biases[] = {
    {"attention_bias", .adds = {.qkv_bias = true, .layer.o_bias = 1}},
    {"mlp_bias", .adds = {.layer.mlp_bias = 1}},
    {0},
};
static const PartField attention_bias[] = {
    {"attention_bias", .adds = {.qkv_bias = true, .layer.o_bias = 1}},
    {0},
};
static const PartField mlp_bias[] = {{"mlp_bias", .adds = {.layer.mlp_bias = 1}}, {0}};
static const PartField jais2_flags[] = {
    {"attention_bias", true, {.qkv_bias = true, .layer.o_bias = 1}},
    {"mlp_bias", true, {.layer.mlp_bias = 1}},
    {0},
};
static const PartField glm_flags[] = {{"attention_bias", true, {.qkv_bias = true}}, {0}};
static const PartField helium_flags[] = {
    {"attention_bias", .adds = {.qkv_bias = true}},
    {"mlp_bias", .adds = {.layer.mlp_bias = 1}},
    {0},
};
static const PartField seed_oss_flags[] = {
    {"attention_bias", true, {.qkv_bias = true}},
    {"attention_out_bias", .adds = {.layer.o_bias = 1}},
    {"mlp_bias", .adds = {.layer.mlp_bias = 1}},
    {0},
};
static const PartField ernie4_5_flags[] = {
    {"use_bias", .adds = {.qkv_bias = true, .layer.o_bias = 1, .layer.mlp_bias = 1}},
    {0},
};
static const PartField stablelm_flags[] = {
    {"use_qkv_bias", .adds = {.qkv_bias = true}},
    {"use_parallel_residual", .adds = {.layer.parallel = BURST_PARALLEL_ONE_NORM}},
    {0},
};
static const PartField starcoder2_flags[] = {
    {"use_bias", true, {.qkv_bias = true, .layer.o_bias = 1, .layer.mlp_bias = 1}},
    {0},
};
static const PartField gpt_neox_flags[] = {
    {"attention_bias", true, {.qkv_bias = true, .layer.o_bias = 1}},
    {"use_parallel_residual", true, {.layer.parallel = BURST_PARALLEL_TWO_NORMS}},
    {0},
};

static const FusedTensor phi3_fused[] = {
    {"self_attn.qkv_proj.weight",
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
    {"mlp.gate_up_proj.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
    {0},
};

static const FusedTensor glm_fused[] = {
    {"mlp.gate_up_proj.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
    {0},
};

static const FusedTensor latent_names[] = {
    {"self_attn.kv_a_proj_with_mqa.weight", {"self_attn.kv_a_proj.weight", "self_attn.k_shared_proj.weight"}},
    {"self_attn.kv_b_proj.weight",
     {"self_attn.k_b_proj.weight", "self_attn.v_b_proj.weight"},
     .by_heads = true},
    {0},
};

#define NORM(name) name ".weight"
static const FusedTensor after_names[] = {
    {NORM("post_attention_layernorm"), {"self_attn.output_norm.weight"}},
    {NORM("post_feedforward_layernorm"), {"mlp.output_norm.weight"}},
    {0},
};
static const FusedTensor gemma_names[] = {
    {NORM("pre_feedforward_layernorm"), {"post_attention_layernorm.weight"}},
    {NORM("post_attention_layernorm"), {"self_attn.output_norm.weight"}},
    {NORM("post_feedforward_layernorm"), {"mlp.output_norm.weight"}},
    {0},
};
static const FusedTensor glm4_names[] = {
    {"mlp.gate_up_proj.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
    {NORM("post_self_attn_layernorm"), {"self_attn.output_norm.weight"}},
    {NORM("post_mlp_layernorm"), {"mlp.output_norm.weight"}},
    {0},
};
static const FusedTensor vaultgemma_names[] = {
    {NORM("pre_feedforward_layernorm"), {"post_attention_layernorm.weight"}},
    {0},
};
static const FusedTensor granite_names[] = {
    {"shared_mlp.input_linear.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
    {"shared_mlp.output_linear.weight", {"mlp.down_proj.weight"}},
    {0},
};
static const FusedTensor starcoder2_names[] = {
    {"mlp.c_fc.weight", {"mlp.up_proj.weight"}},
    {"mlp.c_fc.bias", {"mlp.up_proj.bias"}},
    {"mlp.c_proj.weight", {"mlp.down_proj.weight"}},
    {"mlp.c_proj.bias", {"mlp.down_proj.bias"}},
    {0},
};

static const FusedTensor phi_names[] = {
    {"self_attn.dense.weight", {"self_attn.o_proj.weight"}},
    {"self_attn.dense.bias", {"self_attn.o_proj.bias"}},
    {"mlp.fc1.weight", {"mlp.up_proj.weight"}},
    {"mlp.fc1.bias", {"mlp.up_proj.bias"}},
    {"mlp.fc2.weight", {"mlp.down_proj.weight"}},
    {"mlp.fc2.bias", {"mlp.down_proj.bias"}},
    {NORM("model.final_layernorm"), {"model.norm.weight"}},
    {"model.final_layernorm.bias", {"model.norm.bias"}},
    {0},
};
static const FusedTensor gpt_neox_names[] = {
    {"gpt_neox.embed_in.weight", {"model.embed_tokens.weight"}},
    {"attention.query_key_value.weight",
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
     .by_heads = true},
    {"attention.query_key_value.bias",
     {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"},
     .by_heads = true},
    {"attention.dense.weight", {"self_attn.o_proj.weight"}},
    {"attention.dense.bias", {"self_attn.o_proj.bias"}},
    {"mlp.dense_h_to_4h.weight", {"mlp.up_proj.weight"}},
    {"mlp.dense_h_to_4h.bias", {"mlp.up_proj.bias"}},
    {"mlp.dense_4h_to_h.weight", {"mlp.down_proj.weight"}},
    {"mlp.dense_4h_to_h.bias", {"mlp.down_proj.bias"}},
    {NORM("gpt_neox.final_layer_norm"), {"model.norm.weight"}},
    {"gpt_neox.final_layer_norm.bias", {"model.norm.bias"}},
    {"embed_out.weight", {"lm_head.weight"}},
    {0},
};
static const FusedTensor exaone_names[] = {
    {"transformer.wte.weight", {"model.embed_tokens.weight"}},
    {NORM("ln_1"), {"input_layernorm.weight"}},
    {NORM("ln_2"), {"post_attention_layernorm.weight"}},
    {"attn.attention.q_proj.weight", {"self_attn.q_proj.weight"}},
    {"attn.attention.k_proj.weight", {"self_attn.k_proj.weight"}},
    {"attn.attention.v_proj.weight", {"self_attn.v_proj.weight"}},
    {"attn.attention.out_proj.weight", {"self_attn.o_proj.weight"}},
    {"mlp.c_fc_0.weight", {"mlp.gate_proj.weight"}},
    {"mlp.c_fc_1.weight", {"mlp.up_proj.weight"}},
    {"mlp.c_proj.weight", {"mlp.down_proj.weight"}},
    {NORM("transformer.ln_f"), {"model.norm.weight"}},
    {0},
};
static const FusedTensor internlm2_names[] = {
    {"model.tok_embeddings.weight", {"model.embed_tokens.weight"}},
    {NORM("attention_norm"), {"input_layernorm.weight"}},
    {NORM("ffn_norm"), {"post_attention_layernorm.weight"}},
    {"attention.wqkv.weight",
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
     .by_heads = true},
    {"attention.wo.weight", {"self_attn.o_proj.weight"}},
    {"feed_forward.w1.weight", {"mlp.gate_proj.weight"}},
    {"feed_forward.w3.weight", {"mlp.up_proj.weight"}},
    {"feed_forward.w2.weight", {"mlp.down_proj.weight"}},
    {"output.weight", {"lm_head.weight"}},
    {0},
};
static const char *const expert_fields[] = {"n_routed_experts",
                                            "n_shared_experts",
                                            "num_experts",
                                            "num_experts_per_tok",
                                            "moe_intermediate_size",
                                            "moe_layer_freq",
                                            "n_group",
                                            "topk_group",
                                            "topk_method",
                                            "norm_topk_prob",
                                            "routed_scaling_factor",
                                            "scoring_func",
                                            "aux_loss_alpha",
                                            "seq_aux",
                                            "ep_size",
                                            "output_router_logits",
                                            "router_aux_loss_coef",
                                            NULL};
static const char *const granite_unread[] = {
    "intermediate_size",    "num_experts_per_tok", "output_router_logits",
    "router_aux_loss_coef", "time_step_limit",     "mamba_chunk_size",
    "mamba_conv_bias",      "mamba_d_conv",        "mamba_d_head",
    "mamba_d_state",        "mamba_expand",        "mamba_n_groups",
    "mamba_n_heads",        "mamba_proj_bias",     NULL};
static const FixedField granite_fixed[] = {
    {"num_local_experts", "0"},
    {"position_embedding_type", "\"rope\""},
    {0},
};
static const FusedTensor qwen_moe_names[] = {
    {"mlp.gate.weight", {"mlp.router.weight"}},
    {0},
};
static const FusedTensor mixtral_names[] = {
    {"block_sparse_moe.gate.weight", {"mlp.router.weight"}},
    {"block_sparse_moe.experts.%d.w1.weight", {"mlp.experts.%d.gate_proj.weight"}},
    {"block_sparse_moe.experts.%d.w3.weight", {"mlp.experts.%d.up_proj.weight"}},
    {"block_sparse_moe.experts.%d.w2.weight", {"mlp.experts.%d.down_proj.weight"}},
    {0},
};
static const FusedTensor granitemoe_names[] = {
    {"block_sparse_moe.router.layer.weight", {"mlp.router.weight"}},
    {"block_sparse_moe.input_linear.weight",
     {"mlp.experts.%d.gate_proj.weight", "mlp.experts.%d.up_proj.weight"},
     .by_experts = true},
    {"block_sparse_moe.output_linear.weight", {"mlp.experts.%d.down_proj.weight"}, .by_experts = true},
    {0},
};
static const Alias num_experts_aliases[] = {{"num_experts", "num_local_experts"}, {0}};
static const Alias num_local_experts_aliases[] = {{"num_local_experts", "num_experts"}, {0}};
static const ExpertFields qwen3_moe_fields = {
    "num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", 128, 8, 768, false};
static const ExpertFields olmoe_fields = {
    "num_experts", "num_experts_per_tok", "intermediate_size", "norm_topk_prob", 64, 8, 2048, false};
static const ExpertFields mixtral_fields = {
    "num_local_experts", "num_experts_per_tok", "intermediate_size", NULL, 8, 2, 14336, true};
static const ExpertFields granitemoe_fields = {
    "num_local_experts", "num_experts_per_tok", "intermediate_size", NULL, 8, 2, 11008, true};
static const Alias exaone_aliases[] = {
    {"num_hidden_layers", "num_layers"},
    {"rms_norm_eps", "layer_norm_epsilon"},
    {"hidden_act", "activation_function"},
    {0},
};

/* Of those with the same parts, the first is what a model is called that does not say. */
const Family families[] = {
    {.type = "llama",
     .architecture = "LlamaForCausalLM",
     .flags = biases,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000}},
    {.type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .parts = {.qkv_bias = true},
     .kv_heads = 32,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .windows = WINDOWS_BY_FLAG,
     .window = 4096,
     .from = 28,
     .types = true},
    {.type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .parts = {.qk_norm = true},
     .flags = attention_bias,
     .kv_heads = 32,
     .head_dim = 128,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .windows = WINDOWS_BY_FLAG,
     .window = 4096,
     .from = 28,
     .types = true},
    {.type = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .windows = WINDOWS_IN_ALL,
     .window = 4096},
    {.type = "ministral",
     .architecture = "MinistralForCausalLM",
     .kv_heads = 8,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .windows = WINDOWS_IN_ALL,
     .window = 4096,
     .window_needed = true,
     .types = true},
    {.type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .own_code = true,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .original = 4096,
     .part = 1,
     .windows = WINDOWS_IN_ALL,
     .fused = phi3_fused},
    {.type = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .flags = seed_oss_flags,
     .kv_heads = 8,
     .head_dim = 128,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .zero = (const char *const[]){"attention_dropout", "residual_dropout", NULL}},
    {.type = "internlm2",
     .architecture = "InternLM2ForCausalLM",
     .own_code = true,
     .only_code = true,
     .always_causal = true,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .fused = internlm2_names,
     .off = (const char *const[]){"bias", NULL}},
    {.type = "minicpm",
     .architecture = "MiniCPMForCausalLM",
     .own_code = true,
     .only_code = true,
     .always_causal = true,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .tied = true,
     .scales = {{"scale_emb", BURST_SCALE_EMBEDDING, SCALE_IS, 1},
                {"scale_depth", BURST_SCALE_RESIDUAL, SCALE_BY_ROOT_LAYERS, 1},
                {"dim_model_base", BURST_SCALE_LOGIT, SCALE_BY_HIDDEN, 1}},
     .off = attention_off},
    {.type = "minicpm3",
     .architecture = "MiniCPM3ForCausalLM",
     .own_code = true,
     .parts = {.layer.latent = 1},
     .kv_heads = 40,
     .latent = 256,
     .query_latent = 768,
     .own = 64,
     .shared = 32,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .tied = true,
     .scales = {{"scale_emb", BURST_SCALE_EMBEDDING, SCALE_IS, 12},
                {"scale_depth", BURST_SCALE_RESIDUAL, SCALE_BY_ROOT_LAYERS, 1.4},
                {"dim_model_base", BURST_SCALE_LOGIT, SCALE_BY_HIDDEN, 256}},
     .fused = latent_names,
     .off = llama_off},
    {.type = "deepseek_v2",
     .architecture = "DeepseekV2ForCausalLM",
     .own_code = true,
     .parts = {.layer.latent = 1},
     .latent = 512,
     .query_latent = 1536,
     .own = 128,
     .shared = 64,
     .value_dim = 128,
     .unread = expert_fields,
     .dense_first = true,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .interleaved = true,
     .fused = latent_names,
     .off = llama_off},
    {.type = "youtu",
     .architecture = "YoutuForCausalLM",
     .own_code = true,
     .parts = {.layer.latent = 1},
     .kv_heads = 16,
     .latent = 512,
     .query_latent = 1536,
     .own = 128,
     .shared = 64,
     .value_dim = 128,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .interleaved = true,
     .tied = true,
     .fused = latent_names,
     .off = attention_off},
    {.type = "iquestcoder",
     .architecture = "LlamaForCausalLM",
     .published = "IQuestCoderForCausalLM",
     .own_code = true,
     .flags = biases,
     .kv_heads = 8,
     .head_dim = 128,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000}},
    {.type = "internlm3",
     .architecture = "LlamaForCausalLM",
     .published = "InternLM3ForCausalLM",
     .own_code = true,
     .kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .off = llama_off},
    {.type = "exaone",
     .architecture = "LlamaForCausalLM",
     .published = "ExaoneForCausalLM",
     .own_code = true,
     .aliases = exaone_aliases,
     .kv_heads = 8,
     .norm_eps = 1e-5,
     .rope = {.theta = 5e5},
     .layers = "transformer.h",
     .fused = exaone_names,
     .off = llama_off},
    {.type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .flags = biases,
     .kv_heads = 4,
     .norm_eps = 1e-6,
     .rope = {.theta = 2e6},
     .layer_ropes = ROPES_LISTED,
     .tied = true,
     .windows = WINDOWS_WITHOUT_ROPE,
     .types = true},
    {.type = "helium",
     .architecture = "HeliumForCausalLM",
     .flags = helium_flags,
     .kv_heads = 20,
     .head_dim = 128,
     .norm_eps = 1e-8,
     .rope = {.theta = 1e5},
     .interleaved = true},
    {.type = "ernie4_5",
     .architecture = "Ernie4_5ForCausalLM",
     .flags = ernie4_5_flags,
     .kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 1e-5,
     .rope = {.theta = 5e5},
     .interleaved = true,
     .tied = true},
    {.type = "glm",
     .architecture = "GlmForCausalLM",
     .flags = glm_flags,
     .kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 0.00000015625,
     .rope = {.theta = 10000},
     .part = 0.5,
     .interleaved = true,
     .fused = glm_fused},
    {.type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .parts = {.qk_norm = true, .layer.norms = BURST_NORMS_AFTER, .layer.qk_norm_all = 1},
     .flags = attention_bias,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .fused = after_names},
    {.type = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .parts = {.qk_norm = true, .layer.norms = BURST_NORMS_AFTER, .layer.qk_norm_all = 1},
     .flags = attention_bias,
     .norm_eps = 1e-5,
     .rope = {.theta = 5e5},
     .layer_ropes = ROPES_BY_TYPE,
     .local_theta = 5e5,
     .windows = WINDOWS_IN_RUNS,
     .window = 4096,
     .pattern = 4,
     .window_needed = true,
     .types = true,
     .fused = after_names},
    {.type = "exaone4",
     .architecture = "Exaone4ForCausalLM",
     .parts = {.qk_norm = true, .layer.norms = BURST_NORMS_AFTER},
     .kv_heads = 32,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .layer_ropes = ROPES_OF_WINDOWS,
     .windows = WINDOWS_BY_PATTERN,
     .window = 4096,
     .pattern = 4,
     .types = true,
     .fused = after_names},
    {.type = "glm4",
     .architecture = "Glm4ForCausalLM",
     .parts = {.layer.norms = BURST_NORMS_BOTH},
     .flags = glm_flags,
     .kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 0.00000015625,
     .rope = {.theta = 10000},
     .part = 0.5,
     .interleaved = true,
     .fused = glm4_names},
    {.type = "gemma",
     .architecture = "GemmaForCausalLM",
     .parts = {.layer.activation = BURST_ACTIVATION_GEGLU_TANH},
     .flags = attention_bias,
     .norms_less_one = true,
     .activation = "gelu_pytorch_tanh",
     .kv_heads = 16,
     .head_dim = 256,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .tied = true,
     .scales = {{NULL, BURST_SCALE_EMBEDDING, SCALE_ROOT_HIDDEN, 0}}},
    {.type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .parts = {.layer.activation = BURST_ACTIVATION_GEGLU_TANH, .layer.norms = BURST_NORMS_BOTH},
     .flags = attention_bias,
     .norms_less_one = true,
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .kv_heads = 4,
     .head_dim = 256,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .tied = true,
     .softcap = 50,
     .windows = WINDOWS_IN_RUNS,
     .window = 4096,
     .pattern = 2,
     .window_needed = true,
     .types = true,
     .scales = {{NULL, BURST_SCALE_EMBEDDING, SCALE_ROOT_HIDDEN, 0},
                {"query_pre_attn_scalar", BURST_SCALE_ATTENTION, SCALE_INVERSE_ROOT, 256},
                {"final_logit_softcapping", BURST_SCALE_LOGIT_SOFTCAP, SCALE_IS, 30}},
     .fused = gemma_names},
    {.type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .parts = {.qk_norm = true,
               .layer.activation = BURST_ACTIVATION_GEGLU_TANH,
               .layer.norms = BURST_NORMS_BOTH},
     .flags = attention_bias,
     .norms_less_one = true,
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .kv_heads = 4,
     .head_dim = 256,
     .norm_eps = 1e-6,
     .rope = {.theta = 1e6},
     .layer_ropes = ROPES_BY_TYPE,
     .local_theta = 10000,
     .local_theta_field = "rope_local_base_freq",
     .tied = true,
     .windows = WINDOWS_BY_PATTERN,
     .window = 4096,
     .pattern = 6,
     .window_needed = true,
     .types = true,
     .scales = {{NULL, BURST_SCALE_EMBEDDING, SCALE_ROOT_HIDDEN, 0},
                {"query_pre_attn_scalar", BURST_SCALE_ATTENTION, SCALE_INVERSE_ROOT, 256},
                {"final_logit_softcapping", BURST_SCALE_LOGIT_SOFTCAP, SCALE_IS, 0}},
     .fused = gemma_names},
    {.type = "vaultgemma",
     .architecture = "VaultGemmaForCausalLM",
     .parts = {.layer.activation = BURST_ACTIVATION_GEGLU_TANH},
     .flags = attention_bias,
     .norms_less_one = true,
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .kv_heads = 4,
     .head_dim = 256,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .tied = true,
     .softcap = 50,
     .windows = WINDOWS_IN_RUNS,
     .window = 4096,
     .pattern = 2,
     .window_needed = true,
     .types = true,
     .scales = {{NULL, BURST_SCALE_EMBEDDING, SCALE_ROOT_HIDDEN, 0},
                {"query_pre_attn_scalar", BURST_SCALE_ATTENTION, SCALE_INVERSE_ROOT, 256},
                {"final_logit_softcapping", BURST_SCALE_LOGIT_SOFTCAP, SCALE_IS, 30}},
     .fused = vaultgemma_names},
    {.type = "arcee",
     .architecture = "ArceeForCausalLM",
     .parts = {.layer.activation = BURST_ACTIVATION_RELU2},
     .flags = biases,
     .activation = "relu2",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000}},
    {.type = "stablelm",
     .architecture = "StableLmForCausalLM",
     .always_causal = true,
     .parts = {.layer.norm = BURST_NORM_LAYER, .layer.norm_bias = 1},
     .flags = stablelm_flags,
     .eps_field = "layer_norm_eps",
     .kv_heads = 32,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .part = 0.25,
     .off = (const char *const[]){"qk_layernorm", NULL}},
    {.type = "starcoder2",
     .architecture = "Starcoder2ForCausalLM",
     .parts = {.layer.norm = BURST_NORM_LAYER,
               .layer.norm_bias = 1,
               .layer.activation = BURST_ACTIVATION_GELU_TANH},
     .flags = starcoder2_flags,
     .eps_field = "norm_epsilon",
     .activation = "gelu_pytorch_tanh",
     .kv_heads = 2,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .tied = true,
     .windows = WINDOWS_IN_ALL,
     .fused = starcoder2_names},
    {.type = "nemotron",
     .architecture = "NemotronForCausalLM",
     .always_causal = true,
     .parts = {.layer.norm = BURST_NORM_LAYER,
               .layer.norm_bias = 1,
               .layer.activation = BURST_ACTIVATION_RELU2},
     .flags = biases,
     .norms_less_one = true,
     .eps_field = "norm_eps",
     .activation = "relu2",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .part = 0.5},
    {.type = "jais2",
     .architecture = "Jais2ForCausalLM",
     .parts = {.layer.norm = BURST_NORM_LAYER,
               .layer.norm_bias = 1,
               .layer.activation = BURST_ACTIVATION_RELU2},
     .flags = jais2_flags,
     .eps_field = "layer_norm_eps",
     .activation = "relu2",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000}},
    {.type = "phi",
     .architecture = "PhiForCausalLM",
     .parts = {.qkv_bias = true,
               .layer.norm = BURST_NORM_LAYER,
               .layer.norm_bias = 1,
               .layer.activation = BURST_ACTIVATION_GELU_TANH,
               .layer.parallel = BURST_PARALLEL_ONE_NORM,
               .layer.o_bias = 1,
               .layer.mlp_bias = 1,
               .layer.head_bias = 1},
     .eps_field = "layer_norm_eps",
     .activation = "gelu_new",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .part = 0.5,
     .fused = phi_names,
     .off = (const char *const[]){"qk_layernorm", NULL}},
    {.type = "gpt_neox",
     .architecture = "GPTNeoXForCausalLM",
     .parts = {.layer.norm = BURST_NORM_LAYER,
               .layer.norm_bias = 1,
               .layer.activation = BURST_ACTIVATION_GELU,
               .layer.mlp_bias = 1},
     .flags = gpt_neox_flags,
     .eps_field = "layer_norm_eps",
     .part_field = "rotary_pct",
     .theta_field = "rotary_emb_base",
     .activation = "gelu",
     .all_heads = true,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .part = 0.25,
     .layers = "gpt_neox.layers",
     .buffers = (const char *const[]){".attention.bias", ".attention.masked_bias", NULL},
     .fused = gpt_neox_names},
    {.type = "cohere",
     .architecture = "CohereForCausalLM",
     .parts = {.layer.norm = BURST_NORM_LAYER, .layer.parallel = 1},
     .flags = attention_bias,
     .eps_field = "layer_norm_eps",
     .norm_eps = 1e-5,
     .rope = {.theta = 5e5},
     .interleaved = true,
     .tied = true,
     .scales = {{"logit_scale", BURST_SCALE_LOGIT, SCALE_IS, 0.0625}},
     .off = (const char *const[]){"use_qk_norm", NULL}},
    {.type = "cohere2",
     .architecture = "Cohere2ForCausalLM",
     .parts = {.layer.norm = BURST_NORM_LAYER, .layer.parallel = 1},
     .flags = attention_bias,
     .eps_field = "layer_norm_eps",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .interleaved = true,
     .layer_ropes = ROPES_IN_WINDOWS,
     .tied = true,
     .windows = WINDOWS_BY_PATTERN,
     .window = 4096,
     .pattern = 4,
     .window_needed = true,
     .types = true,
     .scales = {{"logit_scale", BURST_SCALE_LOGIT, SCALE_IS, 0.0625}}},
    {.type = "granite",
     .architecture = "GraniteForCausalLM",
     .flags = biases,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .scales = {{"embedding_multiplier", BURST_SCALE_EMBEDDING, SCALE_IS, 1},
                {"residual_multiplier", BURST_SCALE_RESIDUAL, SCALE_IS, 1},
                {"attention_multiplier", BURST_SCALE_ATTENTION, SCALE_IS, 1},
                {"logits_scaling", BURST_SCALE_LOGIT, SCALE_INVERSE, 1}}},
    {.type = "granitemoehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .flags = attention_bias,
     .ffn_field = "shared_intermediate_size",
     .unread = granite_unread,
     .hybrid = true,
     .fixed = granite_fixed,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .scales = {{"embedding_multiplier", BURST_SCALE_EMBEDDING, SCALE_IS, 1},
                {"residual_multiplier", BURST_SCALE_RESIDUAL, SCALE_IS, 1},
                {"attention_multiplier", BURST_SCALE_ATTENTION, SCALE_IS, 1},
                {"logits_scaling", BURST_SCALE_LOGIT, SCALE_INVERSE, 1}},
     .fused = granite_names},
    {.type = "cwm",
     .architecture = "CwmForCausalLM",
     .flags = mlp_bias,
     .kv_heads = 8,
     .head_dim = 128,
     .norm_eps = 1e-5,
     .rope = {.theta = 1e6, .kind = BURST_ROPE_LLAMA3, .factor = 16, .original = 8192, .low = 1, .high = 4},
     .windows = WINDOWS_BUT_FOURTH,
     .window = 8192,
     .window_needed = true,
     .types = true,
     .bos = true},
    {.type = "qwen2_5_vl_text",
     .architecture = "Qwen2_5_VLForConditionalGeneration",
     .part_only = true,
     .mrope = true,
     .parts = {.qkv_bias = true},
     .kv_heads = 8,
     .norm_eps = 1e-5,
     .rope = {.theta = 1e6},
     .windows = WINDOWS_BY_FLAG,
     .window = 4096,
     .from = 80,
     .types = true},
    {.type = "qwen3_vl_text",
     .architecture = "Qwen3VLForConditionalGeneration",
     .part_only = true,
     .mrope = true,
     .parts = {.qk_norm = true},
     .flags = attention_bias,
     .kv_heads = 32,
     .head_dim = 128,
     .norm_eps = 1e-6,
     .rope = {.theta = 5e5}},
    {.type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .parts = {.qk_norm = true, .layer = {.experts = 1}},
     .aliases = num_experts_aliases,
     .kv_heads = 4,
     .moe = &qwen3_moe_fields,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .fused = qwen_moe_names,
     .flags = attention_bias},
    {.type = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .parts = {.qk_norm = true, .layer = {.experts = 1, .qk_norm_all = 1}},
     .aliases = num_experts_aliases,
     .moe = &olmoe_fields,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .fused = qwen_moe_names,
     .flags = attention_bias},
    {.type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .parts = {.layer = {.experts = 1}},
     .aliases = num_local_experts_aliases,
     .kv_heads = 8,
     .moe = &mixtral_fields,
     .norm_eps = 1e-5,
     .rope = {.theta = 1e6},
     .windows = WINDOWS_IN_ALL,
     .fused = mixtral_names},
    {.type = "granitemoe",
     .architecture = "GraniteMoeForCausalLM",
     .parts = {.layer = {.experts = 1}},
     .aliases = num_local_experts_aliases,
     .moe = &granitemoe_fields,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .scales = {{"embedding_multiplier", BURST_SCALE_EMBEDDING, SCALE_IS, 1},
                {"residual_multiplier", BURST_SCALE_RESIDUAL, SCALE_IS, 1},
                {"attention_multiplier", BURST_SCALE_ATTENTION, SCALE_IS, 1},
                {"logits_scaling", BURST_SCALE_LOGIT, SCALE_INVERSE, 1}},
     .fused = granitemoe_names,
     .flags = attention_bias},
    {.type = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .scaled_queries = true,
     .kv_heads = 8,
     .head_dim = 128,
     .norm_eps = 1e-5,
     .rope = {.theta = 1e6,
              .kind = BURST_ROPE_YARN,
              .factor = 16,
              .original = 16384,
              .low = 1,
              .high = 32,
              .attention = 1,
              .query_beta = 0.1},
     .windows = WINDOWS_IN_ALL},
};
const int family_count = sizeof families / sizeof *families;

static const char gemma3_absent[] =
    "{\"hidden_size\": 2304, \"intermediate_size\": 9216, \"num_hidden_layers\": 26, "
    "\"num_attention_heads\": 8, \"vocab_size\": 262208, \"max_position_embeddings\": 131072}";

const Whole wholes[] = {
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", true, gemma3_absent},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral", true, NULL},
    {"mistral3", "Mistral3ForConditionalGeneration", "ministral3", true, NULL},
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", false, NULL},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text", false, NULL},
    {0},
};

const Family *family_named(const char *type)
{
    for (int i = 0; type && i < family_count; i++)
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    return NULL;
}

static int *part(LayerParts *p, int i) { return (int *)(void *)p + i; }

static int part_of(const LayerParts *p, int i) { return ((const int *)(const void *)p)[i]; }

bool part_field_is_on(const PartField *f, const LayerParts *parts)
{
    bool on = false;
    for (int i = 0; i < PARTS; i++)
        on |= part_of(&f->adds, i) && part_of(parts, i);
    return on;
}

void parts_add(LayerParts *parts, const LayerParts *more)
{
    for (int i = 0; i < PARTS; i++)
        *part(parts, i) |= part_of(more, i);
}

LayerParts family_parts(const Family *f, const LayerParts *parts)
{
    LayerParts all = f->parts;
    for (const PartField *flag = f->flags; flag && flag->name; flag++)
        if (part_field_is_on(flag, parts))
            parts_add(&all, &flag->adds);
    return all;
}

bool family_has(const Family *f, const LayerParts *parts)
{
    const LayerParts has = family_parts(f, parts);
    return memcmp(&has, parts, sizeof has) == 0;
}

const Family *family_with(const LayerParts *parts)
{
    for (int i = 0; i < family_count; i++)
        if (family_has(&families[i], parts))
            return &families[i];
    return NULL;
}

const ScaleField *family_scale(const Family *f, int scale)
{
    for (const ScaleField *s = f->scales; s->name || s->form; s++)
        if (s->scale == scale)
            return s;
    return NULL;
}

double scale_number(const double scale[BURST_SCALES], int which, double head_dim)
{
    if (scale[which] > 0)
        return scale[which];
    if (which == BURST_SCALE_LOGIT_SOFTCAP)
        return 0;
    return which == BURST_SCALE_ATTENTION ? 1 / sqrt(head_dim) : 1;
}

static const char experts_begin[] = "mlp.experts.";

int tensor_expert(const char *tensor)
{
    const size_t n = sizeof experts_begin - 1;
    return strncmp(tensor, experts_begin, n) == 0 ? atoi(tensor + n) : -1;
}

/* Whether the tensor has the name, in which "%d" stands for any expert's number. */
static bool is_named(const char *name, const char *tensor)
{
    const char *number = strstr(name, "%d");
    if (!number)
        return strcmp(name, tensor) == 0;
    const size_t before = (size_t)(number - name);
    return strncmp(name, tensor, before) == 0 &&
           strcmp(number + 2, tensor + before + strspn(tensor + before, "0123456789")) == 0;
}

const FusedTensor *family_fused(const Family *f, const char *tensor, int *part)
{
    for (const FusedTensor *t = f->fused; t && t->name; t++)
        for (*part = 0; *part < FUSED_PARTS && t->part[*part]; ++*part)
            if (is_named(t->part[*part], tensor))
                return t;
    *part = 0;
    return NULL;
}
