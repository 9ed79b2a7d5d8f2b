/* ir/program.c: the words of a layout's choices whose rows are in ir.h, and what they make of the model. */
#include "ir/ir.h"
#include "burst_sizes.h"

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

int program_tensor(const Program *p)
{
    return p->tensor ? p->tensor : 1;
}

int program_key_copies(const Program *p)
{
    return p->key_copies ? p->key_copies : 1;
}

int program_head_chunks(const Program *p)
{
    return p->head_chunks ? p->head_chunks : 1;
}

int program_kv_heads(const Program *p)
{
    return p->model.kv_heads * program_head_chunks(p) - p->short_chunks;
}

int program_heads(const Program *p)
{
    return p->model.heads / p->model.kv_heads * program_kv_heads(p);
}

int program_chunk_kv_heads(const Program *p, bool is_short)
{
    return p->model.kv_heads - is_short;
}

static Model model_of_heads(const Model *m, int kv_heads)
{
    Model some = *m;
    some.heads = m->heads / m->kv_heads * kv_heads;
    some.kv_heads = kv_heads;
    return some;
}

Model program_chunk_model(const Program *p, bool is_short)
{
    return model_of_heads(&p->model, program_chunk_kv_heads(p, is_short));
}

const Program *program_chunked(Arena *a, const Program *p, int chunks)
{
    const int kv_heads = program_kv_heads(p), most = (kv_heads + chunks - 1) / chunks;
    if (chunks == program_head_chunks(p))
        return p;
    Program *chunked = NEW(a, Program);
    *chunked = *p;
    chunked->head_chunks = chunks > 1 ? chunks : 0;
    chunked->short_chunks = most * chunks - kv_heads;
    chunked->model = model_of_heads(&p->model, most);
    return chunked;
}

bool program_reads(const Program *p, const char *path)
{
    for (int i = 0; i < p->inputs.n; i++)
        if (same_file(path, p->inputs.at[i]))
            return true;
    return false;
}
