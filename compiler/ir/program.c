/* ir/program.c: words of the layout's choices whose rows are in ir.h, and their effect on the model. */
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
