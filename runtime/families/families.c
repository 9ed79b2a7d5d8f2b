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

bool family_has(const Family *f, bool qkv_bias, bool qk_norm)
{
    return f->qk_norm == qk_norm && (f->bias_field || f->qkv_bias == qkv_bias);
}

const Family *family_with(bool qkv_bias, bool qk_norm)
{
    for (int i = 0; i < family_count; i++)
        if (family_has(&families[i], qkv_bias, qk_norm))
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
