/* safetensors/model.c: a model's sizes, parts and numbers as fields of config.json: one table is what is
 * read, compared with a plan, and written. */
#include "safetensors/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* RANK, CAP: null is 0. ACT: SwiGLU's, which every plan has. */
typedef enum Kind { WHOLE, RANK, REAL, FLAG, CAP, ACT } Kind;
typedef struct Field {
    const char *name;
    Kind kind;
    size_t at;
    bool latent; /* of multi-head latent attention alone */
    bool experts; /* of families with experts alone, by names of their own (ExpertFields) */
    bool scan; /* of families with scans alone, by names of their own (ScanFields) */
    bool index; /* of families with indexers alone, by names of their own (IndexFields) */
    bool mask; /* the layers' masks have it, which are compared by themselves */
} Field;
#define AT(member) offsetof(HfModel, member)
static const Field fields[] = {
    {"hidden_size", WHOLE, AT(hidden)},
    {"num_hidden_layers", WHOLE, AT(layers)},
    {"num_attention_heads", WHOLE, AT(heads)},
    {"num_key_value_heads", WHOLE, AT(kv_heads)},
    {"head_dim", WHOLE, AT(head_dim)},
    {"kv_lora_rank", WHOLE, AT(latent), true},
    {"q_lora_rank", RANK, AT(query_latent), true},
    {"qk_nope_head_dim", WHOLE, AT(own), true},
    {"qk_rope_head_dim", WHOLE, AT(shared), true},
    {"v_head_dim", WHOLE, AT(value_dim), true},
    {"intermediate_size", WHOLE, AT(ffn)},
    {NULL, WHOLE, AT(experts), .experts = true},
    {NULL, WHOLE, AT(top), .experts = true},
    {NULL, WHOLE, AT(expert_width), .experts = true},
    {NULL, FLAG, AT(normalize), .experts = true},
    {NULL, RANK, AT(shared_ffn), .experts = true},
    {NULL, REAL, AT(weight_scale), .experts = true},
    {NULL, WHOLE, AT(groups), .experts = true},
    {NULL, WHOLE, AT(top_groups), .experts = true},
    {NULL, REAL, AT(alpha), .experts = true},
    {NULL, REAL, AT(limit), .experts = true},
    {NULL, WHOLE, AT(scan_heads), .scan = true},
    {NULL, WHOLE, AT(scan_key_heads), .scan = true},
    {NULL, WHOLE, AT(scan_key_dim), .scan = true},
    {NULL, WHOLE, AT(scan_value_dim), .scan = true},
    {NULL, WHOLE, AT(scan_kernel), .scan = true},
    {NULL, WHOLE, AT(index_heads), .index = true},
    {NULL, WHOLE, AT(index_dim), .index = true},
    {NULL, WHOLE, AT(index_block), .index = true, .mask = true},
    {NULL, WHOLE, AT(index_top), .index = true, .mask = true},
    {NULL, WHOLE, AT(index_local), .index = true, .mask = true},
    {"vocab_size", WHOLE, AT(vocab)},
    {"rms_norm_eps", REAL, AT(norm_eps)},
    {"tie_word_embeddings", FLAG, AT(tied)},
    {"hidden_act", ACT, 0},
    {"attn_logit_softcapping", CAP, AT(softcap)},
};
#undef AT
enum { FIELDS = sizeof fields / sizeof *fields };

static bool has_tensor(const BurstPlan *p, const char *name)
{
    for (int u = 0; u < p->unit_rows; u++)
        for (int t = 0; t < p->units[u].tensors; t++)
            if (strcmp(p->units[u].tensor[t].name, name) == 0)
                return true;
    return false;
}

static bool layer_has_experts(const BurstPlan *p, int layer)
{
    const BurstUnit *u = burst_unit(p, 1 + layer);
    bool found = false;
    for (int t = 0; t < u->tensors; t++)
        found |= strcmp(u->tensor[t].name, "mlp.router.weight") == 0;
    return found;
}

/* Which layers have no experts; how many. */
static int64_t note_dense(const BurstPlan *p, uint64_t at[DENSE_WORDS])
{
    int64_t dense = 0;
    for (int layer = 0; layer < p->layers && layer < DENSE_MOST; layer++)
        if (!layer_has_experts(p, layer))
            at[layer / 64] |= UINT64_C(1) << layer % 64, dense++;
    return dense;
}

/* How many of the first layers have no experts; -1: a later one has none either. */
static int64_t dense_layers(const BurstPlan *p)
{
    int dense = 0;
    while (dense < p->layers && !layer_has_experts(p, dense))
        dense++;
    for (int layer = dense; layer < p->layers; layer++)
        if (!layer_has_experts(p, layer))
            return -1;
    return dense;
}

/* The first layer with a window, or without one; -1: there is none. */
static int first_layer(const BurstPlan *p, bool window)
{
    for (int i = 0; i < p->layers; i++)
        if ((plan_mask_window(p, i) > 0) == window)
            return i;
    return -1;
}

/* Another than the model's; the model's where all layers have that. */
static BurstRope other_rope(const BurstPlan *p)
{
    for (int i = 0; i < p->layers; i++)
        if (!rope_same(&p->ropes[p->layer_rope[i]], &p->rope))
            return p->ropes[p->layer_rope[i]];
    return p->rope;
}

/* Layers with a window are local where there are others too; else those that differ from the model's. */
static void take_ropes(const BurstPlan *p, HfModel *m)
{
    m->local_rope = p->rope;
    if (!p->ropes || m->family->layer_ropes != ROPES_BY_TYPE)
        return;
    const int local = first_layer(p, true), full = first_layer(p, false);
    m->local_rope = other_rope(p);
    if (local < 0 || full < 0)
        return;
    m->local_rope = p->ropes[p->layer_rope[local]];
    m->rope = p->ropes[p->layer_rope[full]];
}

HfModel model_of(const BurstPlan *p)
{
    HfModel m = {.layers = p->layers,
                 .sequence = p->sequence,
                 .hidden = p->hidden,
                 .heads = p->heads,
                 .kv_heads = p->kv_heads,
                 .head_dim = p->head_dim,
                 .value_dim = p->value_dim,
                 .latent = p->latent,
                 .query_latent = p->query_latent,
                 .own = p->head_dim + p->rope.rotary,
                 .shared = -p->rope.rotary,
                 .ffn = p->ffn,
                 .experts = p->experts.experts,
                 .top = p->experts.top,
                 .expert_width = p->experts.width,
                 .dense = dense_layers(p),
                 .normalize = p->experts.normalize,
                 .shared_ffn = p->experts.shared,
                 .groups = p->experts.groups ? p->experts.groups : 1,
                 .top_groups = p->experts.groups ? p->experts.top_groups : 1,
                 .scan_heads = p->scan.heads,
                 .scan_key_heads = p->scan.key_heads,
                 .scan_key_dim = p->scan.key_dim,
                 .scan_value_dim = p->scan.value_dim,
                 .scan_kernel = plan_scan_kernel(p),
                 .index_heads = p->indexer.heads,
                 .index_dim = p->indexer.dim,
                 .step_least = p->scan.read ? 0 : p->scan.step_least,
                 .step_most = p->scan.read ? 0 : p->scan.step_most,
                 .beta_most = p->scan.read ? p->scan.beta_most : 0,
                 .weight_scale = p->experts.scale,
                 .alpha = p->experts.alpha,
                 .limit = p->experts.limit,
                 .balance = p->experts.balance,
                 .sinks = has_tensor(p, "self_attn.sinks"),
                 .vocab = p->vocab,
                 .norm_eps = p->norm_eps,
                 .softcap = p->softcap,
                 .tied = p->tied,
                 .parts = {has_tensor(p, "self_attn.q_proj.bias"), has_tensor(p, "self_attn.q_norm.weight"),
                           p->layer},
                 .rope = p->rope};
    memcpy(m.scale, p->scale, sizeof m.scale);
    m.family = p->family ? family_named(p->family) : family_with(&m.parts);
    const int64_t dense = note_dense(p, m.dense_at);
    if (m.family && m.family->dense == DENSE_LISTED)
        m.dense = dense;
    if (m.family && m.family->dense == DENSE_SINGLE)
        m.dense = plan_single(p);
    m.family = m.family ? m.family : &families[0];
    if (m.family->moe && m.family->moe->shared_counts && m.expert_width > 0)
        m.shared_ffn /= m.expert_width;
    take_ropes(p, &m);
    plan_index_blocks(p, &m);
    return m;
}

bool model_needs_family(const BurstPlan *p)
{
    const BurstLayer none = {0};
    const HfModel m = model_of(p);
    bool has = p->ropes || p->rope.rotary || p->rope.interleaved || p->rope.query_beta > 0 ||
               memcmp(&p->layer, &none, sizeof none) != 0 || !family_has(m.family, &m.parts);
    for (int i = 0; i < BURST_SCALES; i++)
        has = has || p->scale[i] > 0;
    return has && !p->family;
}

/* ---- values ---- */

static const char *activation_of(const Family *f) { return f->activation ? f->activation : "silu"; }

/* By this name, or one by which transformers computes the same: Gemma's first folders say "gelu" and mean the
 * tanh approximation. */
static bool is_activation(const Family *f, const char *name)
{
    static const struct {
        const char *name, *same, *type;
    } names[] = {
        {"swish", "silu", NULL},
        {"gelu_new", "gelu_pytorch_tanh", NULL},
        {"gelu_fast", "gelu_pytorch_tanh", NULL},
        {"gelu", "gelu_pytorch_tanh", "gemma"},
    };
    const char *computed = activation_of(f);
    bool same = strcmp(name, computed) == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        same |= strcmp(names[i].name, name) == 0 && strcmp(names[i].same, computed) == 0 &&
                (!names[i].type || strcmp(names[i].type, f->type) == 0);
    return same;
}

static const char *activation_text(const Family *f)
{
    static char text[64];
    snprintf(text, sizeof text, "\"%s\" is computed", activation_of(f));
    return text;
}

/* NULL: the family has none. */
static const char *experts_field_name(const Family *family, const Field *f)
{
    const ExpertFields *x = family->moe;
    if (!x)
        return NULL;
    switch (f->at) {
    case offsetof(HfModel, experts): return x->experts;
    case offsetof(HfModel, top): return x->top;
    case offsetof(HfModel, expert_width): return x->width;
    case offsetof(HfModel, shared_ffn): return x->shared;
    case offsetof(HfModel, weight_scale): return x->scale;
    case offsetof(HfModel, groups): return x->groups;
    case offsetof(HfModel, top_groups): return x->top_groups;
    case offsetof(HfModel, alpha): return x->alpha;
    case offsetof(HfModel, limit): return x->limit;
    default: return x->normalize;
    }
}

/* Its name, and its value where the field is not given; NULL: the family has none. */
static const char *scan_field_name(const Family *family, const Field *f, int *absent)
{
    const ScanFields *x = family->scan;
    if (!x)
        return NULL;
    switch (f->at) {
    case offsetof(HfModel, scan_heads): *absent = x->absent_heads; return x->heads;
    case offsetof(HfModel, scan_key_heads): *absent = x->absent_key_heads; return x->key_heads;
    case offsetof(HfModel, scan_key_dim): *absent = x->absent_key_dim; return x->key_dim;
    case offsetof(HfModel, scan_value_dim): *absent = x->absent_value_dim; return x->value_dim;
    default: *absent = x->absent_kernel; return x->kernel;
    }
}

/* The same of an indexer. */
static const char *index_field_name(const Family *family, const Field *f, int *absent)
{
    const IndexFields *x = family->index;
    if (!x)
        return NULL;
    switch (f->at) {
    case offsetof(HfModel, index_heads): *absent = x->absent_heads; return x->heads;
    case offsetof(HfModel, index_dim): *absent = x->absent_dim; return x->dim;
    case offsetof(HfModel, index_block): *absent = x->absent_block; return x->block;
    case offsetof(HfModel, index_top): *absent = x->absent_top; return x->top;
    default: *absent = x->absent_local; return x->local;
    }
}

/* Its name in the family's config.json. */
static const char *field_name(const Family *family, const Field *f)
{
    int absent;
    if (f->index)
        return index_field_name(family, f, &absent);
    if (f->experts)
        return experts_field_name(family, f);
    if (f->scan)
        return scan_field_name(family, f, &absent);
    if (f->kind == ACT && family->activation_field)
        return family->activation_field;
    if (f->at == offsetof(HfModel, ffn) && family->ffn_field)
        return family->ffn_field;
    return f->kind == REAL && family->eps_field ? family->eps_field : f->name;
}

/* Whether transformers reads it of the type: heads of two parts have no size of their own. */
static bool has_field(const Family *family, const Field *f)
{
    if (f->kind == CAP)
        return family->softcap > 0;
    if (f->kind == ACT && family->one_activation)
        return false;
    if (f->experts)
        return experts_field_name(family, f) != NULL;
    if (f->scan || f->index)
        return field_name(family, f) != NULL;
    if (f->at == offsetof(HfModel, ffn))
        return !family->moe || family->dense;
    return family->parts.layer.latent ? f->at != offsetof(HfModel, head_dim) : !f->latent;
}

/* Follows from others, whatever a file has. */
static bool is_unsaid(const Family *family, const Field *f)
{
    const bool heads = f->at == offsetof(HfModel, kv_heads) || f->at == offsetof(HfModel, head_dim);
    return family->all_heads && heads;
}

/* Another name for it; NULL: there is none. */
static const char *alias_of(const Family *family, const Field *f)
{
    const char *own = field_name(family, f); /* NULL: no field says it */
    for (const Alias *a = family->aliases; own && a && a->name; a++)
        if (strcmp(a->name, own) == 0)
            return a->other;
    return NULL;
}

static bool is_alike(const json_t *list)
{
    bool alike = json_array_size(list) > 0;
    for (size_t i = 1; alike && i < json_array_size(list); i++)
        alike = json_equal(json_array_get(list, i), json_array_get(list, 0));
    return alike;
}

/* As config.json has it, under one name or the other. */
static json_t *value_there(Misfits *m, const json_t *config, const Family *family, const Field *f)
{
    const char *name = field_name(family, f), *other = alias_of(family, f);
    json_t *value = json_object_get(config, name), *again = other ? json_object_get(config, other) : NULL;
    if (is_unsaid(family, f))
        return NULL;
    if (f->experts && family->moe && family->moe->listed && is_alike(value))
        value = json_array_get(value, 0);
    if (given(value) && given(again) && !json_equal(value, again))
        misfit(m, "%s and %s are both there, and differ; remove one of them", name, other);
    return given(again) && !given(value) ? again : value;
}

/* The shared expert, of which transformers reads 0 as none. */
static bool is_of_shared(const Field *f) { return f->at == offsetof(HfModel, shared_ffn); }

/* New; NULL: no memory. */
static json_t *value_of(const HfModel *m, const Field *f)
{
    const void *at = (const char *)m + f->at;
    switch (f->kind) {
    case WHOLE: return json_integer((json_int_t) * (const int64_t *)at);
    case RANK:
        return *(const int64_t *)at || is_of_shared(f) ? json_integer((json_int_t) * (const int64_t *)at)
                                                       : json_null();
    case REAL: return json_real(*(const double *)at);
    case FLAG: return json_boolean(*(const bool *)at);
    case ACT: return json_string(activation_of(m->family));
    default: return *(const double *)at > 0 ? json_real(*(const double *)at) : json_null();
    }
}

/* Of multi-head latent attention; NULL: there is none. */
static json_t *latent_default(const HfModel *m, const Field *f)
{
    const Family *family = m->family;
    if (f->at == offsetof(HfModel, value_dim) && family->value_dim)
        return json_integer(family->value_dim);
    if (f->at == offsetof(HfModel, value_dim))
        return m->heads > 0 && m->hidden >= m->heads ? json_integer((json_int_t)(m->hidden / m->heads))
                                                     : NULL;
    if (f->at == offsetof(HfModel, own))
        return json_integer(family->own);
    return json_integer(f->at == offsetof(HfModel, shared) ? family->shared : family->latent);
}

static json_t *experts_default(const Family *family, const Field *f, bool null)
{
    const ExpertFields *x = family->moe;
    switch (f->at) {
    case offsetof(HfModel, shared_ffn):
        return null || !x->absent_shared ? json_null() : json_integer(x->absent_shared);
    case offsetof(HfModel, weight_scale): return json_real(x->absent_scale);
    case offsetof(HfModel, groups): return json_integer(null ? 1 : x->absent_groups);
    case offsetof(HfModel, top_groups): return json_integer(null ? 1 : x->absent_top_groups);
    case offsetof(HfModel, alpha): return json_real(x->absent_alpha);
    case offsetof(HfModel, limit): return json_real(x->absent_limit);
    case offsetof(HfModel, experts): return json_integer(x->absent_experts);
    case offsetof(HfModel, top): return json_integer(x->absent_top);
    case offsetof(HfModel, expert_width): return json_integer(x->absent_width);
    default: return json_boolean(x->absent_normalize);
    }
}

/* A head's values are a part of twice the model's width where no field says them. */
static json_t *scan_default(const HfModel *m, const Field *f, int absent, bool null)
{
    const ScanFields *x = m->family->scan;
    if (f->at == offsetof(HfModel, scan_value_dim) && x->expand && m->scan_heads > 0)
        return json_integer((json_int_t)(2 * m->hidden / m->scan_heads));
    if (x->by_model && (f->at == offsetof(HfModel, scan_heads) || f->at == offsetof(HfModel, scan_key_heads)))
        return json_integer((json_int_t)m->heads);
    if (x->by_model && f->at == offsetof(HfModel, scan_key_dim) && m->scan_key_heads > 0)
        return json_integer((json_int_t)(0.75 * (double)m->hidden / (double)m->scan_key_heads));
    if (x->by_model && f->at == offsetof(HfModel, scan_value_dim))
        return json_integer((json_int_t)(2 * m->scan_key_dim));
    return null ? NULL : json_integer(absent);
}

/* What is meant where the field is not there, or null; NULL: it must be. */
static json_t *absent_value(const HfModel *m, const Field *f, bool null)
{
    const Family *family = m->family;
    int absent = 0;
    if (f->scan && scan_field_name(family, f, &absent))
        return scan_default(m, f, absent, null);
    if (f->index && index_field_name(family, f, &absent))
        return null ? NULL : json_integer(absent);
    if (f->at == offsetof(HfModel, kv_heads))
        return json_integer((json_int_t)(family->kv_heads && !null ? family->kv_heads : m->heads));
    if (f->at == offsetof(HfModel, head_dim) && family->head_dim && !null)
        return json_integer(family->head_dim);
    if (f->at == offsetof(HfModel, head_dim) && m->heads > 0)
        return json_integer((json_int_t)(m->hidden / m->heads));
    if (f->experts)
        return experts_default(family, f, null);
    if (f->latent && f->kind == WHOLE)
        return latent_default(m, f);
    switch (f->kind) {
    case WHOLE: return NULL;
    case RANK: return null ? json_null() : json_integer(family->query_latent);
    case REAL: return json_real(family->norm_eps);
    case FLAG: return json_boolean(family->tied);
    case ACT: return json_string(activation_of(family));
    default: return family->softcap > 0 && !null ? json_real(family->softcap) : json_null();
    }
}

/* NULL, or what the value should have been. */
static const char *take_value(HfModel *m, const Field *f, const json_t *value)
{
    void *at = (char *)m + f->at;
    const json_int_t whole = json_integer_value(value);
    const double real = json_number_value(value);
    switch (f->kind) {
    case WHOLE:
        *(int64_t *)at = json_is_integer(value) && whole > 0 && whole <= INT32_MAX ? whole : 0;
        return *(int64_t *)at ? NULL : "a whole number from 1 to 2147483647 is computed";
    case RANK:
        *(int64_t *)at = json_is_integer(value) && whole > 0 && whole <= INT32_MAX ? whole : 0;
        if (is_of_shared(f) && json_is_integer(value) && whole == 0)
            return NULL;
        return *(int64_t *)at || json_is_null(value) ? NULL : "null or a whole number from 1 on is computed";
    case REAL: *(double *)at = real; return real > 0 ? NULL : "a number above 0 is computed";
    case FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value) ? NULL : "true or false is read";
    case ACT:
        return json_is_string(value) && is_activation(m->family, json_string_value(value))
                   ? NULL
                   : activation_text(m->family);
    default:
        *(double *)at = real;
        return json_is_null(value) || real > 0 ? NULL : "null or a number above 0 is computed";
    }
}

/* ---- reading ---- */

static void take_field(Misfits *m, const Field *f, const json_t *value, bool here, const HfModel *plan,
                       HfModel *there)
{
    char text[VALUE_TEXT], other[VALUE_TEXT];
    const char *wanted = take_value(there, f, value), *unsaid = here ? "" : " (by default)";
    json_t *planned = plan ? value_of(plan, f) : NULL;
    value_text(value, text);
    value_text(planned, other);
    const bool none = is_of_shared(f) && json_is_null(value) && json_integer_value(planned) == 0;
    if (planned && (f->kind == ACT ? wanted != NULL : !none && !same_value(planned, value)))
        misfit(m, "%s is %s%s, expected %s", field_name(there->family, f), text, unsaid, other);
    else if (!planned && wanted)
        misfit(m, "%s is %s%s; only %s", field_name(there->family, f), text, unsaid, wanted);
    json_decref(planned);
}

/* Whether no layer has the network that the field describes. */
static bool is_of_none(const HfModel *m, const Field *f)
{
    const bool ffn = f->at == offsetof(HfModel, ffn);
    if (f->scan)
        return !m->parts.layer.scan;
    if (f->index)
        return !m->parts.layer.indexer;
    return m->family->dense && ((f->experts && m->dense == m->layers) || (ffn && m->dense == 0));
}

static double number_of(const json_t *config, const char *name, double absent)
{
    const json_t *value = json_object_get(config, name);
    return given(value) ? json_number_value(value) : absent;
}

/* The columns of ffn that a family means by its field; NULL: the field as it is. */
static json_t *adjusted_ffn(const Family *family, const Field *f, const json_t *config, const json_t *value)
{
    const json_t *adjusts = json_object_get(config, "block_auto_adjust_ff_dim");
    const double times = number_of(config, "block_ffn_dim_multiplier", 1);
    const json_int_t multiple = (json_int_t)number_of(config, "block_multiple_of", 256);
    if (!family->adjusts_ffn || f->at != offsetof(HfModel, ffn) || json_is_false(adjusts) ||
        !json_is_integer(value) || multiple < 1)
        return NULL;
    const json_int_t columns = (json_int_t)(times * (double)(2 * json_integer_value(value) / 3));
    return json_integer((columns + multiple - 1) / multiple * multiple);
}

static bool is_of_groups(const Field *f)
{
    return f->experts && (f->at == offsetof(HfModel, groups) || f->at == offsetof(HfModel, top_groups));
}

static bool reads_groups(const json_t *method)
{
    const char *text = json_string_value(method);
    return text && strcmp(text, "group_limited_greedy") == 0;
}

/* Whether a folder's method of choosing experts does not read its groups. */
static bool ignores_groups(const json_t *config, const Family *f)
{
    return f->moe && f->moe->method && !reads_groups(json_object_get(config, "topk_method"));
}

static void read_field(Misfits *m, const Field *f, const json_t *config, const HfModel *plan, HfModel *there)
{
    if (is_of_none(there, f) || (is_of_groups(f) && ignores_groups(config, there->family)))
        return;
    json_t *value = value_there(m, config, there->family, f), *absent = NULL,
           *adjusted = adjusted_ffn(there->family, f, config, value);
    value = adjusted ? adjusted : value;
    const HfModel *with = f->scan && plan && !plan->parts.layer.scan ? NULL : plan; /* scans_check tells */
    with = f->mask ? NULL : with;
    if (!given(value))
        absent = absent_value(there, f, value != NULL);
    if (!given(value) && !absent)
        misfit(m, "config.json has no %s", field_name(there->family, f));
    else
        take_field(m, f, absent ? absent : value, !absent, with, there);
    json_decref(absent), json_decref(adjusted);
}

/* plan: its parts; NULL: there is none. */
static void read_flag(Misfits *m, const json_t *config, const PartField *f, const LayerParts *plan,
                      LayerParts *there)
{
    const json_t *value = json_object_get(config, f->name);
    const bool is = value ? json_is_true(value) : f->absent, on = is != f->negated,
               needed = plan && part_field_is_on(f, plan);
    char text[VALUE_TEXT];
    value_text(value, text);
    if (on)
        parts_add(there, &f->adds);
    if (given(value) && !json_is_boolean(value))
        misfit(m, "%s is %s; only true or false is read", f->name, text);
    else if (plan && on != needed)
        misfit(m, "%s is %s, expected %s", f->name, is ? "true" : "false", is ? "false" : "true");
}

static void check_fixed(Misfits *m, const json_t *config, const FixedField *f)
{
    json_t *needed = json_loads(f->value, JSON_DECODE_ANY, NULL), *value = json_object_get(config, f->name);
    char text[VALUE_TEXT];
    value_text(value, text);
    if (!value || !same_value(needed, value))
        misfit(m, "%s is %s; only %s is computed", f->name, text, f->value);
    json_decref(needed);
}

static void read_parts(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    const Family *f = there->family;
    there->parts = f->parts;
    if (f->scan && f->scan->optional)
        there->parts.layer.scan = config_has_scans(f, config);
    if (f->index)
        there->parts.layer.indexer = config_has_indexer(f, config, -1);
    for (const PartField *flag = f->flags; flag && flag->name; flag++)
        read_flag(m, config, flag, plan ? &plan->parts : NULL, &there->parts);
    for (const FixedField *fixed = f->fixed; fixed && fixed->name; fixed++)
        check_fixed(m, config, fixed);
    for (const char *const *zero = f->zero; zero && *zero; zero++)
        if (!json_object_get(config, *zero))
            misfit(m, "config.json has no %s, and a %s without it has dropout; set it to 0", *zero, f->type);
}

/* ---- layers without experts ---- */

static const char *const dense_fields[] = {
    [DENSE_FIRST] = "first_k_dense_replace", [DENSE_TYPES] = "mlp_layer_types",
    [DENSE_START] = "moe_layer_start_index", [DENSE_ZERO] = "num_local_experts",
    [DENSE_LISTED] = "mlp_only_layers",
};

/* By a list of "dense" and "sparse"; -1: others than the first are dense. */
static int64_t dense_types(const json_t *types)
{
    const size_t layers = json_array_size(types);
    size_t dense = 0, sparse = 0;
    while (
        dense < layers && json_equal(json_array_get(types, dense), json_array_get(types, 0)) &&
        strcmp(json_string_value(json_array_get(types, 0)) ? json_string_value(json_array_get(types, 0)) : "",
               "dense") == 0)
        dense++;
    for (size_t i = dense; i < layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        sparse += type && strcmp(type, "sparse") == 0;
    }
    return dense + sparse == layers ? (int64_t)dense : -1;
}

/* Experts up to the last layer and in each of them. */
static bool ends_late(const json_t *config, json_int_t layers)
{
    const json_t *end = json_object_get(config, "moe_layer_end_index"),
                 *interval = json_object_get(config, "moe_layer_interval");
    const json_int_t last = json_integer_value(end);
    return (!given(end) || last == -1 || last >= layers - 1) &&
           (!given(interval) || json_integer_value(interval) == 1);
}

/* How many of the first layers have none; -1: no model can say it. */
static int64_t dense_of(const json_t *config, const Family *f, json_int_t layers)
{
    const json_t *value = json_object_get(config, dense_fields[f->dense]);
    if (f->dense == DENSE_START && !ends_late(config, layers))
        return -1;
    if (!given(value))
        return f->absent_dense < layers ? f->absent_dense : layers;
    if (f->dense == DENSE_ZERO)
        return json_is_integer(value) && json_integer_value(value) == 0 ? layers : 0;
    if (f->dense == DENSE_TYPES)
        return json_array_size(value) == (size_t)layers ? dense_types(value) : -1;
    const json_int_t dense = json_integer_value(value);
    if (!json_is_integer(value) || dense < 0)
        return -1;
    return dense < layers ? dense : layers;
}

static bool lists(const json_t *list, json_int_t layer)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == layer)
            return true;
    return false;
}

/* Layers that mlp_only_layers lists, and all but each decoder_sparse_step-th; -1: no model can say it. */
static int64_t dense_listed(const json_t *config, json_int_t layers, uint64_t at[DENSE_WORDS])
{
    const json_t *list = json_object_get(config, dense_fields[DENSE_LISTED]),
                 *every = json_object_get(config, "decoder_sparse_step");
    const json_int_t step = given(every) ? json_integer_value(every) : 1;
    bool right = step > 0 && layers <= DENSE_MOST && (!given(list) || json_is_array(list));
    int64_t dense = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        right = right && json_is_integer(json_array_get(list, i));
    for (json_int_t layer = 0; layer < layers && right; layer++)
        if (lists(list, layer) || (layer + 1) % step)
            at[layer / 64] |= UINT64_C(1) << layer % 64, dense++;
    return right ? dense : -1;
}

static void note_first(HfModel *there)
{
    for (int64_t layer = 0; layer < there->dense && layer < DENSE_MOST; layer++)
        there->dense_at[layer / 64] |= UINT64_C(1) << layer % 64;
}

static bool same_dense(const HfModel *a, const HfModel *b)
{
    return a->dense == b->dense &&
           (a->family->dense != DENSE_LISTED || memcmp(a->dense_at, b->dense_at, sizeof a->dense_at) == 0);
}

/* Experts where the list of types says so; scans_check compares the plan's. */
static void read_single(Misfits *m, const json_t *config, HfModel *there)
{
    there->layers = json_integer_value(json_object_get(config, "num_hidden_layers"));
    there->dense = config_single(there->family, config, there->dense_at);
    there->parts.layer.experts = there->dense < there->layers ? BURST_EXPERTS_SOME : BURST_EXPERTS_NO;
    if (there->parts.layer.experts && there->parts.layer.mlp_bias)
        misfit(m, "mlp_bias is true; in a %s with experts only false is computed", there->family->type);
}

static void read_dense(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    const Family *f = there->family;
    const json_int_t layers = json_integer_value(json_object_get(config, "num_hidden_layers"));
    char text[VALUE_TEXT];
    if (!f->dense || layers < 1)
        return;
    if (f->dense == DENSE_SINGLE) {
        read_single(m, config, there);
        return;
    }
    const bool listed = f->dense == DENSE_LISTED;
    there->dense = listed ? dense_listed(config, layers, there->dense_at) : dense_of(config, f, layers);
    if (!listed)
        note_first(there);
    there->layers = layers;
    value_text(json_object_get(config, dense_fields[f->dense]), text);
    if (there->dense < 0 && listed)
        misfit(m, "%s is %s; only a list of layers, and a decoder_sparse_step from 1 on, are computed",
               dense_fields[f->dense], text);
    else if (there->dense < 0)
        misfit(m, "%s is %s; only experts in all layers from one on are computed", dense_fields[f->dense],
               text);
    else if (plan && listed && !same_dense(there, plan))
        misfit(m, "%s is %s: other layers without experts than the plan's", dense_fields[f->dense], text);
    else if (plan && !same_dense(there, plan))
        misfit(m, "%s is %s: %lld layers without experts, expected %lld", dense_fields[f->dense], text,
               (long long)there->dense, (long long)plan->dense);
    there->dense = there->dense < 0 ? 0 : there->dense;
    there->parts.layer.experts = there->dense ? BURST_EXPERTS_SOME : BURST_EXPERTS_ALL;
    if (there->dense == layers)
        there->parts.layer.experts = BURST_EXPERTS_NO;
}

static bool write_listed(json_t *config, const HfModel *m)
{
    json_t *list = json_array();
    for (int64_t i = 0; list && i < m->layers; i++)
        if (layer_is_dense(m->dense_at, i))
            json_array_append_new(list, json_integer(i));
    return json_object_set_new(config, dense_fields[DENSE_LISTED], list) == 0 &&
           json_object_set_new(config, "decoder_sparse_step", json_integer(1)) == 0;
}

static bool write_dense(json_t *config, const HfModel *m)
{
    const Family *f = m->family;
    if (f->dense == DENSE_SINGLE) /* the list of types says it */
        return true;
    if (f->dense == DENSE_ZERO)
        return m->dense < m->layers ||
               json_object_set_new(config, dense_fields[f->dense], json_integer(0)) == 0;
    if (f->dense == DENSE_LISTED)
        return write_listed(config, m);
    if (f->dense != DENSE_TYPES)
        return json_object_set_new(config, dense_fields[f->dense], json_integer((json_int_t)m->dense)) == 0;
    json_t *types = json_array();
    for (int64_t i = 0; types && i < m->layers; i++)
        json_array_append_new(types, json_string(i < m->dense ? "dense" : "sparse"));
    return json_object_set_new(config, dense_fields[f->dense], types) == 0;
}

/* Whether transformers adds a loss of the type that balances experts. */
static bool has_balance(const Family *f) { return f->moe && f->moe->absent_balance > 0; }

/* A folder that adds the balance loss is trained with it, or not at all: a plan may add one to others. */
static void read_balance(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    const json_t *on = json_object_get(config, "output_router_logits"),
                 *times = json_object_get(config, "router_aux_loss_coef");
    char text[VALUE_TEXT];
    value_text(given(on) && !json_is_boolean(on) ? on : times, text);
    if (given(on) && !json_is_boolean(on))
        misfit(m, "output_router_logits is %s; only true or false is computed", text);
    if (!json_is_true(on))
        return;
    if (given(times) && (!json_is_number(times) || json_number_value(times) < 0))
        misfit(m, "router_aux_loss_coef is %s; only a number from 0 on is computed", text);
    there->balance = given(times) ? json_number_value(times) : there->family->moe->absent_balance;
    if (!plan || fabs(plan->balance - there->balance) <= 1e-6 * there->balance)
        return;
    snprintf(text, sizeof text, plan->balance > 0 ? "balance %.9g" : "none", plan->balance);
    misfit(m,
           "output_router_logits is true, so that transformers adds %.9g times the balance loss; the model "
           "has %s: write `balance %.9g;` in `moe { ... }`, or set the field to false",
           there->balance, text, there->balance);
}

/* How experts are chosen; left out, it is greedy. */
static void check_method(Misfits *m, const json_t *method)
{
    const char *word = json_string_value(method);
    char text[VALUE_TEXT];
    value_text(method, text);
    if (method && !reads_groups(method) && (!word || strcmp(word, "greedy") != 0))
        misfit(m, "topk_method is %s; only \"greedy\" and \"group_limited_greedy\" are computed", text);
}

/* What fields do not say is the family's. */
static void check_experts(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    const ExpertFields *x = there->family->moe;
    if (!x || there->parts.layer.experts == BURST_EXPERTS_NO)
        return;
    if (!x->normalize)
        there->normalize = x->absent_normalize;
    if (has_balance(there->family))
        read_balance(m, config, plan, there);
    if (x->method)
        check_method(m, json_object_get(config, "topk_method"));
    if (ignores_groups(config, there->family)) {
        there->groups = there->top_groups = 1;
        if (plan && plan->groups > 1)
            misfit(m, "topk_method is not \"group_limited_greedy\", and the plan's experts have groups");
    }
    there->groups += !x->groups, there->top_groups += !x->top_groups;
    there->weight_scale = x->scale ? there->weight_scale : 1;
    there->alpha = x->alpha ? there->alpha : 1;
    if (!x->shared) /* of as many experts' columns, which no field says */
        there->shared_ffn = x->absent_shared;
    if (there->top_groups > there->groups || there->experts % (there->groups ? there->groups : 1))
        misfit(m, "%s is %lld and %s %lld; only groups that divide %s, which is %lld, are computed",
               x->groups, (long long)there->groups, x->top_groups, (long long)there->top_groups, x->experts,
               (long long)there->experts);
    if (there->top > there->experts)
        misfit(m, "%s is %lld; only a number up to %s, which is %lld, is computed", x->top,
               (long long)there->top, x->experts, (long long)there->experts);
    if (plan && !x->normalize && plan->normalize != x->absent_normalize)
        misfit(m, "the plan's experts have 'normalize %s'; a %s %s their weights by their sum",
               plan->normalize ? "yes" : "no", there->family->type,
               x->absent_normalize ? "divides" : "does not divide");
}

/* A type that is not known is read as a llama. */
static void read_family(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    const json_t *type = json_object_get(config, "model_type");
    char text[VALUE_TEXT];
    there->family = family_named(json_string_value(type));
    value_text(type, text);
    if (!there->family)
        misfit(m, "model_type is %s", text);
    if (!there->family)
        there->family = plan ? plan->family : &families[0];
    const bool can = !plan ||
                     (plan->rope.interleaved == there->family->interleaved &&
                      plan->sinks == there->family->sinks && family_has(there->family, &plan->parts));
    if (!can)
        misfit(m, "model_type is %s, expected \"%s\"", text, plan->family->type);
    read_parts(m, config, can ? plan : NULL, there);
}

void model_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    *there = (HfModel){0};
    read_family(m, config, plan, there);
    read_dense(m, config, plan, there);
    for (int i = 0; i < FIELDS; i++)
        if (has_field(there->family, &fields[i]))
            read_field(m, &fields[i], config, plan, there);
    if (there->parts.layer.head_bias && there->tied && !plan)
        misfit(m, "tie_word_embeddings is true; only false is computed of a %s, whose head has a bias",
               there->family->type);
    if (there->family->untied && there->tied && !plan)
        misfit(m, "tie_word_embeddings is true, and transformers ties no weights of a %s; set it to false",
               there->family->type);
    if (plan && plan->softcap > 0 && there->family->softcap == 0)
        misfit(m, "softcap is %.9g in the plan, and transformers computes none of a %s", plan->softcap,
               there->family->type);
    there->head_dim = there->family->parts.layer.latent ? there->own + there->shared : there->head_dim;
    check_experts(m, config, plan, there);
    scans_read(m, config, plan, there);
    rope_read(m, config, plan, there);
    if (there->family->parts.layer.latent)
        there->scale[BURST_SCALE_ATTENTION] = rope_score_scale(config, there);
    scales_read(m, config, plan, there);
    index_check(m, there);
}

bool model_has_field(const Family *f, const char *name)
{
    static const char *const others[] = {"model_type", "rope_scaling", "rope_parameters",
                                         "original_max_position_embeddings"};
    bool found = scales_has_field(f, name);
    for (const PartField *flag = f->flags; flag && flag->name; flag++)
        found = found || strcmp(flag->name, name) == 0;
    found = found || strcmp(name, rope_theta_name(f)) == 0 ||
            (f->part > 0 && strcmp(name, rope_part_name(f)) == 0) ||
            (f->local_theta_field && strcmp(name, f->local_theta_field) == 0) ||
            (f->turns_field && strcmp(name, f->turns_field) == 0) ||
            (f->layer_ropes == ROPES_LISTED && strncmp(name, "no_rope_layer", 13) == 0);
    /* transformers does not read the usual field then */
    found = found || (f->activation_field && strcmp(name, "hidden_act") == 0);
    found = found || (f->dense && f->dense != DENSE_SINGLE && strcmp(name, dense_fields[f->dense]) == 0) ||
            (f->dense == DENSE_START && strcmp(name, "moe_layer_end_index") == 0) ||
            (f->dense == DENSE_LISTED && strcmp(name, "decoder_sparse_step") == 0) ||
            (f->moe && f->moe->method && strcmp(name, "topk_method") == 0) ||
            (has_balance(f) &&
             (strcmp(name, "output_router_logits") == 0 || strcmp(name, "router_aux_loss_coef") == 0));
    found = found || scans_has_field(f, name) ||
            (f->layer_ropes == ROPES_BY_WORD && strcmp(name, "position_embedding_type") == 0);
    for (const FixedField *fixed = f->fixed; fixed && fixed->name; fixed++)
        found = found || strcmp(fixed->name, name) == 0;
    found = found || (f->adjusts_ffn && strncmp(name, "block_", 6) == 0 &&
                      (strcmp(name + 6, "auto_adjust_ff_dim") == 0 ||
                       strcmp(name + 6, "ffn_dim_multiplier") == 0 || strcmp(name + 6, "multiple_of") == 0));
    /* these follow from others, whatever a file has */
    found = found ||
            (f->parts.layer.latent && (strcmp(name, "head_dim") == 0 || strcmp(name, "qk_head_dim") == 0));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        found = found || strcmp(others[i], name) == 0;
    for (int i = 0; i < FIELDS && !found; i++) {
        const char *other = alias_of(f, &fields[i]), *own = field_name(f, &fields[i]);
        found = own && !is_unsaid(f, &fields[i]) && has_field(f, &fields[i]) &&
                (strcmp(own, name) == 0 || (other && strcmp(other, name) == 0));
    }
    return found;
}

/* ---- writing ---- */

bool model_has_no(const HfModel *m, const char *name)
{
    bool none = false;
    for (int i = 0; i < FIELDS; i++) {
        const char *own = field_name(m->family, &fields[i]);
        if (!own || strcmp(own, name) != 0 || !has_field(m->family, &fields[i]))
            continue;
        if (!is_of_none(m, &fields[i]))
            return false;
        none = true;
    }
    return none || (scans_has_field(m->family, name) && !m->parts.layer.scan);
}

/* Of a head turns, where the family has a field for it and another value is meant without it. */
static double rope_part(const HfModel *m)
{
    const double heads = (double)m->head_dim, turns = m->rope.rotary ? m->rope.rotary : heads;
    char written[VALUE_TEXT];
    if (m->family->part == 0 || (!m->rope.rotary && m->family->part == 1))
        return 0;
    /* transformers cuts its product with head_dim to a whole number, which must not be one less */
    snprintf(written, sizeof written, "%.15g", turns / heads);
    return (int64_t)(strtod(written, NULL) * heads) == (int64_t)turns ? turns / heads : (turns + 0.5) / heads;
}

/* Groups that the family reads only by another method of choosing. */
static bool is_idle_group(const HfModel *m, const Field *f)
{
    return is_of_groups(f) && m->family->moe && m->family->moe->method && m->groups <= 1;
}

bool model_write(json_t *config, const HfModel *m)
{
    bool made = json_object_set_new(config, "model_type", json_string(m->family->type)) == 0;
    for (int i = 0; made && i < FIELDS; i++) {
        json_t *value = value_of(m, &fields[i]);
        made = is_unsaid(m->family, &fields[i]) || !has_field(m->family, &fields[i]) ||
               is_of_none(m, &fields[i]) || is_idle_group(m, &fields[i]) ||
               json_object_set(config, field_name(m->family, &fields[i]), value) == 0;
        json_decref(value);
    }
    for (const char *const *off = m->family->off; made && off && *off; off++)
        made = json_object_set_new(config, *off, json_false()) == 0;
    for (const PartField *flag = m->family->flags; made && flag && flag->name; flag++) {
        const bool is = part_field_is_on(flag, &m->parts) != flag->negated;
        made = json_object_set_new(config, flag->name, json_boolean(is)) == 0;
    }
    for (const char *const *zero = m->family->zero; made && zero && *zero; zero++)
        made = json_object_set_new(config, *zero, json_integer(0)) == 0;
    for (const FixedField *fixed = m->family->fixed; made && fixed && fixed->name; fixed++)
        made = json_object_set_new(config, fixed->name, json_loads(fixed->value, JSON_DECODE_ANY, NULL)) == 0;
    made = made && scans_write(config, m);
    if (made && m->family->dense)
        made = write_dense(config, m);
    if (made && m->family->moe && m->family->moe->method)
        made = json_object_set_new(config, "topk_method",
                                   json_string(m->groups > 1 ? "group_limited_greedy" : "greedy")) == 0;
    if (made && m->family->layer_ropes == ROPES_BY_TYPE)
        return rope_write_types(config, &m->rope, &m->local_rope) && scales_write(config, m);
    if (m->family->layer_ropes == ROPES_NONE)
        return made && scales_write(config, m);
    return made && rope_write(config, m->family, &m->rope, rope_part(m)) &&
           rope_write_score_scale(config, m) && scales_write(config, m);
}
