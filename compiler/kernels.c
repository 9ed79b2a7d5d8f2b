/* kernels.c: the registry of CUDA attention kernels: which form runs on a cluster's devices, its headers and its tiles.
 *
 * Tiles are those of runtime/burst_kernels.h, which the kernels read too. A program is compiled for one architecture, so a
 * cluster of several takes the form that runs on all of them.
 */
#include "burst.h"

#include "burst_kernels.h"

#include <string.h>

/* From the best form on; arch: the only one that runs it, NULL: every one. */
static const struct Form { int form; const char *arch, *forward, *backward; } forms[] = {
    {90, "sm_90a", "cuda_hopper_forward.cuh", "cuda_hopper_backward.cuh"},
    {80, NULL, "cuda_attention_forward.cuh", "cuda_attention_backward.cuh"},
};

typedef struct Row { int form, head_dim; Kernels kernels; } Row;
static const Row rows[] = {
#define ROW(form_, d, fq, fk, fl, bq, bk) \
    {form_, d, {.forward_q = fq, .forward_k = fk, .forward_long = fl, .backward_q = bq, .backward_k = bk}},
    BURST_KERNELS(ROW)
#undef ROW
};

static bool runs_everywhere(const Cluster *c, const char *arch)
{
    for (int i = 0; i < c->group_count && arch; i++)
        if (strcmp(c->groups[i].device->arch, arch) != 0)
            return false;
    return true;
}

static const Row *row_of(int form, int head_dim)
{
    for (int i = 0; i < countof(rows); i++)
        if (rows[i].form == form && rows[i].head_dim == head_dim)
            return &rows[i];
    return NULL;
}

/* Of the sm_90a form at head_dim 64 all registers are in use: with capped scores products would wait for one another. In the sm_80
 * form threads add to dQ from registers, at no point where a block could wait for its turn. */
static bool fits(const Row *r, const Program *p)
{
    return r->form == 90 ? r->head_dim > 64 || p->model.softcap == 0 : !p->train.deterministic;
}

Kernels kernels_of(const Program *p)
{
    Kernels k = {0};
    for (int i = 0; i < countof(forms); i++) {
        const Row *row = row_of(forms[i].form, p->model.head_dim);
        if (!row || !fits(row, p) || !runs_everywhere(&p->cluster, forms[i].arch))
            continue;
        k = row->kernels;
        k.form = forms[i].form, k.forward = forms[i].forward, k.backward = forms[i].backward;
        break;
    }
    return k;
}

static int64_t tiles(int64_t tokens, int tile)
{
    return (tokens + tile - 1) / tile;
}

/* As burst_lists_ints in templates/cuda_attention.cuh. */
static int64_t ints(int64_t own, int64_t other)
{
    return own * (other + 5) + 1;
}

KernelLists kernels_lists(const Kernels *k, int64_t tokens, int turns)
{
    const int least = k->forward_k < k->forward_long ? k->forward_k : k->forward_long;
    const int64_t q[2] = {tiles(tokens, k->forward_q), tiles(tokens, k->backward_q)};
    const int64_t kv[2] = {tiles(tokens, least), tiles(tokens, k->backward_k)};
    const int64_t forward = ints(q[0], kv[0]), backward = ints(kv[1], q[1]) + (turns ? (kv[1] + turns) * q[1] : 0);
    return (KernelLists){.ints = forward > backward ? forward : backward,
                         .sides = q[0] + kv[0] > q[1] + kv[1] ? q[0] + kv[0] : q[1] + kv[1]};
}
