/* safetensors/import.c: `burstc import FOLDER`: the model that a Hugging Face folder's config.json describes,
 * as a .burst file; or everything of it that no model can say, at once. */
#include "safetensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MOST = 100000 };

static void write_size(FILE *out, const char *name, int64_t n)
{
    const bool kibi = n >= 1024 && n % 1024 == 0;
    fprintf(out, "%s %lld%s;", name, (long long)(kibi ? n / 1024 : n), kibi ? "Ki" : "");
}

static void write_parts(FILE *out, const BurstLayer *l)
{
    static const char *const places[] = {"before", "after", "both"};
    static const char *const parallel[] = {"", " parallel yes;", " parallel two_norms;"};
    if (l->norms)
        fprintf(out, " norms %s;", places[l->norms]);
    fprintf(out, "%s%s%s%s%s%s", parallel[l->parallel], l->norm_bias ? " norm_bias yes;" : "",
            l->o_bias ? " o_bias yes;" : "", l->mlp_bias ? " mlp_bias yes;" : "",
            l->head_bias ? " head_bias yes;" : "", l->attention_gate ? " attention_gate yes;" : "");
}

/* "  ffn layers 0 .. 2, 5: swiglu 10944;" */
static void write_dense(FILE *out, const HfModel *m, const char *activation)
{
    const char *before = "  ffn layers ";
    for (int64_t first = 0, end; first < m->layers; first = end + 1) {
        for (end = first; end < m->layers && layer_is_dense(m->dense_at, end); end++)
            ;
        if (end == first)
            continue;
        fprintf(out, "%s%lld", before, (long long)first);
        if (end - first > 1)
            fprintf(out, " .. %lld", (long long)(end - 1));
        before = ", ";
    }
    fprintf(out, ": %s %lld;\n", activation, (long long)m->ffn);
}

/* What no field of config.json says is the family's. */
static void write_experts(FILE *out, const HfModel *m, const char *activation)
{
    static const char *const scores[] = {
#define X(id, name) name,
        BURST_SCORE_ROWS(X)
#undef X
    };
    static const char *const group_scores[] = {
#define X(id, name) name,
        BURST_GROUP_ROWS(X)
#undef X
    };
    const ExpertFields *x = m->family->moe;
    const BurstExperts *is = &x->is;
    fprintf(out, "  moe { experts %lld; top %lld; ffn %s %lld;%s", (long long)m->experts, (long long)m->top,
            activation, (long long)m->expert_width, m->normalize ? " normalize yes;" : "");
    if (is->score)
        fprintf(out, " score %s;", scores[is->score]);
    if (is->eps > 0 && m->normalize)
        fprintf(out, " eps %.15g;", is->eps);
    if (is->least > 0)
        fprintf(out, " least %.15g;", is->least);
    if (m->weight_scale < 1 || m->weight_scale > 1)
        fprintf(out, " scale %.15g;", m->weight_scale);
    if (m->groups > 1)
        fprintf(out, " groups %lld; top_groups %lld; group_score %s;", (long long)m->groups,
                (long long)m->top_groups, group_scores[is->group_score]);
    if (m->shared_ffn)
        fprintf(out, " shared %lld;%s",
                (long long)(x->shared_counts ? m->shared_ffn * m->expert_width : m->shared_ffn),
                is->shared_gate ? " shared_gate yes;" : "");
    fprintf(out, "%s%s%s", is->correction ? " correction yes;" : "",
            is->router_bias ? " router_bias yes;" : "", is->bias ? " bias yes;" : "");
    if (m->alpha < 1 || m->alpha > 1)
        fprintf(out, " alpha %.15g;", m->alpha);
    if (is->offset > 0)
        fprintf(out, " offset %.15g;", is->offset);
    if (m->limit > 0)
        fprintf(out, " limit %.15g;", m->limit);
    if (is->everywhere)
        fputs(" everywhere yes;", out);
    if (m->balance > 0)
        fprintf(out, " balance %.15g;", m->balance);
    fputs(" }\n", out);
    if (m->balance > 0)
        fputs("  # balance: of each sequence, averaged over a step's; transformers takes those of a forward "
              "together, which is the same for one\n",
              out);
    fputs("  ", out);
}

static void write_model(FILE *out, const HfModel *m)
{
    static const char *const activations[] = {
#define X(id, name) name,
        BURST_ACTIVATION_ROWS(X)
#undef X
    };
    static const char *const qk_norms[] = {"", " qk_norm yes;", " qk_norm all;", " qk_norm rotated;"};
    char rope[ROPE_TEXT];
    rope_text(&m->rope, rope, sizeof rope);
    fprintf(
        out,
        "model %s {\n  family %s;\n  layers %lld; hidden %lld; heads %lld; kv_heads %lld; head_dim %lld;\n",
        m->family->type, m->family->type, (long long)m->layers, (long long)m->hidden, (long long)m->heads,
        (long long)m->kv_heads, (long long)m->head_dim);
    if (m->parts.layer.latent)
        fprintf(out, "  value_dim %lld; latent %lld;", (long long)m->value_dim, (long long)m->latent);
    if (m->query_latent)
        fprintf(out, " query_latent %lld;", (long long)m->query_latent);
    fputs(m->parts.layer.latent ? "\n" : "", out);
    if (m->dense && m->parts.layer.experts)
        write_dense(out, m, activations[m->parts.layer.activation]);
    if (m->parts.layer.experts)
        write_experts(out, m, activations[m->parts.layer.activation]);
    else
        fprintf(out, "  ffn %s %lld; ", activations[m->parts.layer.activation], (long long)m->ffn);
    fprintf(out, "norm %s %.15g; vocab %lld; tied %s;%s%s", m->parts.layer.norm ? "layernorm" : "rmsnorm",
            m->norm_eps, (long long)m->vocab, m->tied ? "yes" : "no",
            m->parts.qkv_bias ? " qkv_bias yes;" : "",
            qk_norms[m->parts.qk_norm + m->parts.layer.qk_norm_all + 2 * m->parts.layer.qk_norm_rotated]);
    write_parts(out, &m->parts.layer);
    fputs("\n ", out);
    scales_text(out, m);
    if (m->rope.rotary)
        fprintf(out, " rotary %d;", abs(m->rope.rotary));
    if (m->rope.interleaved)
        fputs(" rotary_interleaved yes;", out);
    fprintf(out, " rope %s%s\n", rope, m->rope.kind == BURST_ROPE_DEFAULT ? ";" : "");
}

/* Runs of layers with the same mask, beside the first layer's. */
static void write_masks(FILE *out, const HfModel *m, const Masks *masks)
{
    char first[MASK_TEXT], text[MASK_TEXT], next[MASK_TEXT];
    masks_layer(masks, 0, first);
    fprintf(out, "attention {\n  default %s;\n", first);
    for (int64_t from = 0, to; from < m->layers; from = to) {
        masks_layer(masks, (int)from, text);
        for (to = from + 1; to < m->layers; to++) {
            masks_layer(masks, (int)to, next);
            if (strcmp(text, next) != 0)
                break;
        }
        if (strcmp(text, first) != 0 && to == from + 1)
            fprintf(out, "  layers %lld: %s;\n", (long long)from, text);
        else if (strcmp(text, first) != 0)
            fprintf(out, "  layers %lld .. %lld: %s;\n", (long long)from, (long long)(to - 1), text);
    }
    if (m->softcap > 0)
        fprintf(out, "  softcap %.15g;\n", m->softcap);
    if (m->family->sinks)
        fputs("  sinks learned;\n", out);
    fputs("}\n", out);
}

/* A path in a string of a model: no other byte has a meaning there. */
static bool path_is_plain(const char *path)
{
    for (; *path; path++)
        if ((unsigned char)*path < 0x20 || *path == '"' || *path == '\\' || *path == 0x7f)
            return false;
    return true;
}

/* Whether all of it can be written, whatever else is wrong. */
static bool has_sizes(const HfModel *m)
{
    return m->layers > 0 && m->layers <= LAYERS_MOST && m->hidden > 0 && m->heads > 0 && m->kv_heads > 0 &&
           m->head_dim > 0 && m->vocab > 0 &&
           (!m->parts.layer.experts || (m->experts > 0 && m->top > 0 && m->expert_width > 0)) &&
           ((m->parts.layer.experts && m->dense == 0) || m->ffn > 0);
}

/* Every layer's, in a sequence of `length` tokens: a window of both directions is no mask that a model can
 * call, where it is shorter. */
static Masks import_masks(Misfits *m, const json_t *config, const HfModel *model, int layers,
                          json_int_t length)
{
    Masks masks = masks_read(m, layers, config, model->family);
    bool windows = false;
    for (int i = 0; i < layers && masks.window; i++)
        windows = windows || masks_has_window(&masks, i);
    if (!masks.causal && masks.window >= length)
        masks.wide = true;
    else if (!masks.causal && windows)
        misfit(
            m,
            "is_causal is false and sliding_window is %lld: no stock mask has a window on both sides; write "
            "the model yourself, with `mask both(w) = abs(q - k) < w;` and `default both(%lld);`",
            (long long)masks.window, (long long)masks.window);
    masks_take_written(m, layers, config, &masks);
    return masks;
}

/* Writes the model; false: it is of no known family, or of no sizes. */
static bool import_config(Misfits *m, const char *folder, const json_t *config, FILE *out)
{
    HfModel model;
    config_read(m, config, NULL, &model);
    const bool known = family_named(json_string_value(json_object_get(config, "model_type"))) != NULL;
    if (model.layers > LAYERS_MOST)
        misfit(m, "num_hidden_layers is %lld; only a number up to %d is computed", (long long)model.layers,
               LAYERS_MOST);
    const int layers = model.layers > 0 && model.layers <= LAYERS_MOST ? (int)model.layers : 0;
    const json_t *most = json_object_get(config, "max_position_embeddings");
    const json_int_t length = json_integer_value(most);
    const Masks masks = import_masks(m, config, &model, layers, length);
    layer_ropes_check(m, NULL, config, &model, &masks);
    scans_check(m, NULL, config, &model);
    const bool is_length = json_is_integer(most) && length >= 2 && length <= INT64_C(1) << 40;
    if (!is_length)
        misfit(m, "max_position_embeddings, the sequence's length, is no whole number from 2 to 2^40");
    if (!path_is_plain(folder))
        misfit(m, "its path has a quote, a backslash or a control character, which no model can say");
    if (!known || !has_sizes(&model))
        return false;
    fprintf(out, "# Written by `burstc import` from a folder of the family %s.\n", model.family->type);
    write_size(out, "sequence", is_length ? length : 2);
    fputs("\n", out);
    write_model(out, &model);
    layer_ropes_text(out, &model, config, &masks);
    scans_text(out, &model, config);
    fputs("}\n", out);
    index_text(out, &model);
    write_masks(out, &model, &masks);
    if (path_is_plain(folder))
        fprintf(out, "train { weights \"%s\"; }\n", folder);
    return true;
}

int folder_import(BurstCtx *c, const char *folder, FILE *out, Misfits *m, bool *written)
{
    char path[PATH_MAX];
    json_t *config = NULL;
    *written = false;
    BURST_TRY(config_open(c, folder, m, path, &config));
    *written = config && import_config(m, folder, config, out);
    json_decref(config);
    return BURST_OK;
}
