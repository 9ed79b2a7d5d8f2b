/* ir/program.c: words of the layout's choices whose rows are in ir.h, and their effect on the model; kinds of
 * layers. */
#include "burst_sizes.h"
#include "ir/choice.h"

#include <string.h>

const char *const sharding_names[SHARDINGS] = {
#define X(id, name, weights, gradients) name,
    SHARDING_ROWS(X)
#undef X
};

int64_t choice_loss_tile(const Program *p, const Choice *c)
{
    const int vocab = p->model.vocab;
    if (c->loss_tile)
        return c->loss_tile;
    return p->target->device_memory ? burst_gpu_loss_tile(vocab) : burst_loss_tile(vocab);
}

bool program_reads(const Program *p, const char *path)
{
    for (int i = 0; i < p->inputs.n; i++)
        if (same_file(path, p->inputs.at[i]))
            return true;
    return false;
}

/* ---- kinds of layers ---- */

int model_kinds(const Model *m) { return m->kinds > 1 ? m->kinds : 1; }

int model_kind(const Model *m, int layer) { return m->layer_kind ? m->layer_kind[layer] : 0; }

int model_layers_of(const Model *m, int kind)
{
    int n = 0;
    for (int l = 0; l < m->layers; l++)
        n += model_kind(m, l) == kind;
    return n;
}

/* What attention has, a layer without it lacks. */
static void remove_attention(Model *m)
{
    m->latent = m->query_latent = m->shared = 0;
    m->qkv_bias = m->qk_norm = m->sinks = false;
    m->layer.qk_norm_all = m->layer.qk_norm_rotated = m->layer.o_bias = m->layer.attention_gate = 0;
}

bool model_same_kind(const KindParts *a, const KindParts *b)
{
    return a->experts == b->experts && a->scan == b->scan && a->no_mixer == b->no_mixer &&
           a->no_network == b->no_network && a->indexer == b->indexer;
}

static bool kind_attends(const Model *m, const KindParts *k)
{
    return !k->no_mixer && (!k->scan || m->layer.scan_attends);
}

Model model_with_kind(const Model *m, int kind)
{
    Model one = *m;
    if (model_kinds(m) == 1)
        return one;
    one.no_mixer = m->kind[kind].no_mixer, one.no_network = m->kind[kind].no_network;
    if (!m->kind[kind].experts)
        one.experts = (BurstExperts){0};
    if (!kind_attends(m, &m->kind[kind]))
        remove_attention(&one);
    if (m->kind[kind].scan && m->layer.scan_norms)
        one.layer.norms = m->layer.scan_norms - 1;
    if (!m->kind[kind].scan)
        one.scan = (BurstScan){0};
    if (!m->kind[kind].indexer)
        one.indexer = (BurstIndexer){0};
    return one;
}

bool model_attends(const Model *m, int layer)
{
    return model_kinds(m) == 1 || kind_attends(m, &m->kind[model_kind(m, layer)]);
}

enum { ATTENTION_MIXER, SCAN_MIXER, INDEXED_MIXER, MIXERS };

static int mixer_of(const KindParts *k)
{
    const int attention = k->indexer ? INDEXED_MIXER : ATTENTION_MIXER;
    return k->scan ? SCAN_MIXER : attention;
}

static const char *mixer_name(const KindParts *k)
{
    static const char *const name[MIXERS] = {"attention", "scan", "indexed"};
    return k->no_mixer ? "" : name[mixer_of(k)];
}

static const char *network_name(const KindParts *k)
{
    if (k->no_network)
        return "";
    return k->experts ? "moe" : "ffn";
}

static bool kinds_differ(const Model *m, const char *part(const KindParts *))
{
    bool differ = false;
    for (int k = 1; k < model_kinds(m); k++)
        differ |= strcmp(part(&m->kind[k]), part(&m->kind[0])) != 0;
    return differ;
}

const char *model_kind_name(const Model *m, int kind)
{
    static const char *const name[MIXERS][2] = {{"attention_ffn", "attention_moe"},
                                                {"scan_ffn", "scan_moe"},
                                                {"indexed_ffn", "indexed_moe"}};
    const KindParts *k = &m->kind[kind];
    if (model_kinds(m) == 1)
        return "";
    if (k->no_mixer)
        return network_name(k);
    if (k->no_network)
        return mixer_name(k);
    if (kinds_differ(m, mixer_name) && kinds_differ(m, network_name))
        return name[mixer_of(k)][k->experts];
    return kinds_differ(m, mixer_name) ? mixer_name(k) : network_name(k);
}
