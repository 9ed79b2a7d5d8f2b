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

Model model_with_kind(const Model *m, int kind)
{
    Model one = *m;
    if (model_kinds(m) > 1 && !m->kind[kind].experts)
        one.experts = (BurstExperts){0};
    return one;
}

const char *model_kind_name(const Model *m, int kind)
{
    if (model_kinds(m) == 1)
        return "";
    return m->kind[kind].experts ? "moe" : "ffn";
}
