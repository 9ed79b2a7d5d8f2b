/* families/families.c: the table of model families. Defaults are those of transformers 5.24. */
#include "families/families.h"

#include <math.h>
#include <string.h>

static const char *const llama_off[] = {"attention_bias", "mlp_bias", NULL};
static const char *const attention_off[] = {"attention_bias", NULL};
static const char *const none_off[] = {NULL};

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
static const FusedTensor starcoder2_names[] = {
    {"mlp.c_fc.weight", {"mlp.up_proj.weight"}},
    {"mlp.c_fc.bias", {"mlp.up_proj.bias"}},
    {"mlp.c_proj.weight", {"mlp.down_proj.weight"}},
    {"mlp.c_proj.bias", {"mlp.down_proj.bias"}},
    {0},
};

/* Of those with the same parts, the first is what a model is called that does not say. */
const Family families[] = {
    {.type = "llama",
     .architecture = "LlamaForCausalLM",
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .off = llama_off},
    {.type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .kv_heads = 32,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .types = true,
     .off = none_off},
    {.type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qk_norm = true,
     .kv_heads = 32,
     .head_dim = 128,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .types = true,
     .off = attention_off},
    {.type = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .windows = WINDOWS_IN_ALL,
     .window = 4096,
     .off = none_off},
    {.type = "ministral",
     .architecture = "MinistralForCausalLM",
     .kv_heads = 8,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .windows = WINDOWS_IN_ALL,
     .window = 4096,
     .types = true,
     .off = none_off},
    {.type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .part = 1,
     .windows = WINDOWS_IN_ALL,
     .fused = phi3_fused,
     .off = none_off},
    {.type = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .bias_field = "attention_bias",
     .kv_heads = 8,
     .head_dim = 128,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .off = (const char *const[]){"attention_out_bias", "mlp_bias", NULL}},
    {.type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .kv_heads = 4,
     .norm_eps = 1e-6,
     .rope = {.theta = 2e6},
     .layer_ropes = ROPES_LISTED,
     .tied = true,
     .types = true,
     .off = llama_off},
    {.type = "helium",
     .architecture = "HeliumForCausalLM",
     .kv_heads = 20,
     .head_dim = 128,
     .norm_eps = 1e-8,
     .rope = {.theta = 1e5},
     .interleaved = true,
     .off = llama_off},
    {.type = "ernie4_5",
     .architecture = "Ernie4_5ForCausalLM",
     .kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 1e-5,
     .rope = {.theta = 5e5},
     .interleaved = true,
     .tied = true,
     .off = (const char *const[]){"use_bias", NULL}},
    {.type = "glm",
     .architecture = "GlmForCausalLM",
     .bias_field = "attention_bias",
     .kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 0.00000015625,
     .rope = {.theta = 10000},
     .part = 0.5,
     .interleaved = true,
     .fused = glm_fused,
     .off = none_off},
    {.type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .qk_norm = true,
     .layer = {.norms = BURST_NORMS_AFTER, .qk_norm_all = 1},
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .fused = after_names,
     .off = attention_off},
    {.type = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .qk_norm = true,
     .layer = {.norms = BURST_NORMS_AFTER, .qk_norm_all = 1},
     .norm_eps = 1e-5,
     .rope = {.theta = 5e5},
     .layer_ropes = ROPES_BY_TYPE,
     .local_theta = 5e5,
     .windows = WINDOWS_IN_RUNS,
     .window = 4096,
     .pattern = 4,
     .types = true,
     .fused = after_names,
     .off = attention_off},
    {.type = "exaone4",
     .architecture = "Exaone4ForCausalLM",
     .qk_norm = true,
     .layer = {.norms = BURST_NORMS_AFTER},
     .kv_heads = 32,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .layer_ropes = ROPES_OF_WINDOWS,
     .windows = WINDOWS_IN_RUNS,
     .window = 4096,
     .pattern = 4,
     .types = true,
     .fused = after_names,
     .off = none_off},
    {.type = "glm4",
     .architecture = "Glm4ForCausalLM",
     .layer = {.norms = BURST_NORMS_BOTH},
     .bias_field = "attention_bias",
     .kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 0.00000015625,
     .rope = {.theta = 10000},
     .part = 0.5,
     .interleaved = true,
     .fused = glm4_names,
     .off = none_off},
    {.type = "gemma",
     .architecture = "GemmaForCausalLM",
     .layer = {.activation = BURST_ACTIVATION_GEGLU_TANH},
     .norms_less_one = true,
     .activation = "gelu_pytorch_tanh",
     .kv_heads = 16,
     .head_dim = 256,
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .tied = true,
     .scales = {{NULL, BURST_SCALE_EMBEDDING, SCALE_ROOT_HIDDEN, 0}},
     .off = attention_off},
    {.type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .qk_norm = true,
     .layer = {.activation = BURST_ACTIVATION_GEGLU_TANH, .norms = BURST_NORMS_BOTH},
     .norms_less_one = true,
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .kv_heads = 4,
     .head_dim = 256,
     .norm_eps = 1e-6,
     .rope = {.theta = 1e6},
     .layer_ropes = ROPES_BY_TYPE,
     .local_theta = 10000,
     .tied = true,
     .windows = WINDOWS_IN_RUNS,
     .window = 4096,
     .pattern = 6,
     .types = true,
     .scales = {{NULL, BURST_SCALE_EMBEDDING, SCALE_ROOT_HIDDEN, 0},
                {"query_pre_attn_scalar", BURST_SCALE_ATTENTION, SCALE_INVERSE_ROOT, 256}},
     .fused = gemma_names,
     .off = attention_off},
    {.type = "arcee",
     .architecture = "ArceeForCausalLM",
     .layer = {.activation = BURST_ACTIVATION_RELU2},
     .activation = "relu2",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .off = llama_off},
    {.type = "stablelm",
     .architecture = "StableLmForCausalLM",
     .layer = {.norm = BURST_NORM_LAYER, .norm_bias = 1},
     .eps_field = "layer_norm_eps",
     .bias_field = "use_qkv_bias",
     .no_bias = true,
     .kv_heads = 32,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .part = 0.25,
     .off = (const char *const[]){"qk_layernorm", "use_parallel_residual", NULL}},
    {.type = "starcoder2",
     .architecture = "Starcoder2ForCausalLM",
     .qkv_bias = true,
     .layer = {.norm = BURST_NORM_LAYER,
               .norm_bias = 1,
               .activation = BURST_ACTIVATION_GELU_TANH,
               .o_bias = 1,
               .mlp_bias = 1},
     .eps_field = "norm_epsilon",
     .activation = "gelu_pytorch_tanh",
     .kv_heads = 2,
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .tied = true,
     .windows = WINDOWS_IN_ALL,
     .fused = starcoder2_names,
     .off = none_off,
     .on = "use_bias"},
    {.type = "nemotron",
     .architecture = "NemotronForCausalLM",
     .layer = {.norm = BURST_NORM_LAYER, .norm_bias = 1, .activation = BURST_ACTIVATION_RELU2},
     .norms_less_one = true,
     .eps_field = "norm_eps",
     .activation = "relu2",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .part = 0.5,
     .off = llama_off},
    {.type = "cohere",
     .architecture = "CohereForCausalLM",
     .layer = {.norm = BURST_NORM_LAYER, .parallel = 1},
     .eps_field = "layer_norm_eps",
     .norm_eps = 1e-5,
     .rope = {.theta = 5e5},
     .interleaved = true,
     .tied = true,
     .scales = {{"logit_scale", BURST_SCALE_LOGIT, SCALE_IS, 0.0625}},
     .off = (const char *const[]){"attention_bias", "use_qk_norm", NULL}},
    {.type = "cohere2",
     .architecture = "Cohere2ForCausalLM",
     .layer = {.norm = BURST_NORM_LAYER, .parallel = 1},
     .eps_field = "layer_norm_eps",
     .norm_eps = 1e-5,
     .rope = {.theta = 10000},
     .interleaved = true,
     .layer_ropes = ROPES_IN_WINDOWS,
     .tied = true,
     .windows = WINDOWS_IN_RUNS,
     .window = 4096,
     .pattern = 4,
     .types = true,
     .scales = {{"logit_scale", BURST_SCALE_LOGIT, SCALE_IS, 0.0625}},
     .off = attention_off},
    {.type = "granite",
     .architecture = "GraniteForCausalLM",
     .norm_eps = 1e-6,
     .rope = {.theta = 10000},
     .scales = {{"embedding_multiplier", BURST_SCALE_EMBEDDING, SCALE_IS, 1},
                {"residual_multiplier", BURST_SCALE_RESIDUAL, SCALE_IS, 1},
                {"attention_multiplier", BURST_SCALE_ATTENTION, SCALE_IS, 1},
                {"logits_scaling", BURST_SCALE_LOGIT, SCALE_INVERSE, 1}},
     .off = llama_off},
    {.type = "cwm",
     .architecture = "CwmForCausalLM",
     .kv_heads = 8,
     .head_dim = 128,
     .norm_eps = 1e-5,
     .rope = {.theta = 1e6, .kind = BURST_ROPE_LLAMA3, .factor = 16, .original = 8192, .low = 1, .high = 4},
     .windows = WINDOWS_BUT_FOURTH,
     .window = 8192,
     .types = true,
     .bos = true,
     .off = (const char *const[]){"mlp_bias", NULL}},
};
const int family_count = sizeof families / sizeof *families;

const Family *family_named(const char *type)
{
    for (int i = 0; type && i < family_count; i++)
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    return NULL;
}

bool family_has(const Family *f, bool qkv_bias, bool qk_norm, const BurstLayer *layer)
{
    return memcmp(&f->layer, layer, sizeof *layer) == 0 && f->qk_norm == qk_norm &&
           (f->bias_field || f->qkv_bias == qkv_bias);
}

const Family *family_with(bool qkv_bias, bool qk_norm, const BurstLayer *layer)
{
    for (int i = 0; i < family_count; i++)
        if (family_has(&families[i], qkv_bias, qk_norm, layer))
            return &families[i];
    return &families[0];
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
    return which == BURST_SCALE_ATTENTION ? 1 / sqrt(head_dim) : 1;
}

const FusedTensor *family_fused(const Family *f, const char *tensor, int *part)
{
    for (const FusedTensor *t = f->fused; t && t->name; t++)
        for (*part = 0; *part < FUSED_PARTS && t->part[*part]; ++*part)
            if (strcmp(t->part[*part], tensor) == 0)
                return t;
    *part = 0;
    return NULL;
}
