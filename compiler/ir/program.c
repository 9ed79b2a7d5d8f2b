/* ir/program.c: words of the layout's choices whose rows are in ir.h, and their effect on the model; kinds of
 * layers. */
#include "burst_sizes.h"
#include "ir/choice.h"

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

/* What attention has, a layer with a scan lacks. */
static void remove_attention(Model *m)
{
    m->latent = m->query_latent = m->shared = 0;
    m->qkv_bias = m->qk_norm = m->sinks = false;
    m->layer.qk_norm_all = m->layer.o_bias = m->layer.attention_gate = 0;
}

Model model_with_kind(const Model *m, int kind)
{
    Model one = *m;
    if (model_kinds(m) == 1)
        return one;
    if (!m->kind[kind].experts)
        one.experts = (BurstExperts){0};
    if (m->kind[kind].scan)
        remove_attention(&one);
    else
        one.scan = (BurstScan){0};
    return one;
}

static bool kinds_differ(const Model *m, bool by_mixer)
{
    bool differ = false;
    for (int k = 1; k < model_kinds(m); k++)
        differ |= by_mixer ? m->kind[k].scan != m->kind[0].scan : m->kind[k].experts != m->kind[0].experts;
    return differ;
}

const char *model_kind_name(const Model *m, int kind)
{
    static const char *const name[2][2] = {{"attention_ffn", "attention_moe"}, {"scan_ffn", "scan_moe"}};
    const KindParts *k = &m->kind[kind];
    if (model_kinds(m) == 1)
        return "";
    if (kinds_differ(m, true) && kinds_differ(m, false))
        return name[k->scan][k->experts];
    if (kinds_differ(m, true))
        return k->scan ? "scan" : "attention";
    return k->experts ? "moe" : "ffn";
}
