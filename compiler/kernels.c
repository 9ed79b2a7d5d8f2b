/* kernels.c: the registry of CUDA attention kernels: which form runs on a cluster's devices, its headers and its tiles.
 *
 * Tiles are those of runtime/burst_kernels.h, which the kernels read too. A program is compiled for one architecture, so a
 * cluster of several takes the form that runs on all of them.
 */
#include "burst.h"

#include <string.h>

/* From the best form on; arch: the only one that runs it, NULL: every one. share: of the rates of a better form's devices, measured at
 * head_dim 128 on an H200 (docs/performance.md) and taken for all; of that, backward with tiles of 64 keys reached `narrow`. */
static const double narrow = 0.73;
static const struct Form { int form; const char *arch, *header[2]; double share[2]; } forms[] = {
    {90, "sm_90a", {"cuda_hopper_forward.cuh", "cuda_hopper_backward.cuh"}, {1, 1}},
    {80, NULL, {"cuda_attention_forward.cuh", "cuda_attention_backward.cuh"}, {0.53, 0.55}},
};

static bool runs_everywhere(const Cluster *c, const char *arch)
{
    for (int i = 0; i < c->group_count && arch; i++)
        if (strcmp(c->groups[i].device->arch, arch) != 0)
            return false;
    return true;
}

/* Of the sm_90a form up to head_dim 64 all registers are in use: with capped scores products would wait for one another. Of 256 all shared
 * memory is: there is no room for the values of a second table. In the sm_80 form threads add to dQ from registers, at no point where
 * a block could wait for its turn; turns were measured at 64 and 128. */
static bool fits(int form, const Program *p)
{
    const Model *m = &p->model;
    if (p->train.deterministic && (form != 90 || (m->head_dim != 64 && m->head_dim != 128)))
        return false;
    return form != 90 || ((m->head_dim > 64 || m->softcap == 0) && (m->head_dim <= 192 || p->table_count <= 1));
}

Kernels kernels_of(const Program *p)
{
    Kernels k = {.share = {1, 1}};
    const struct Form *best = NULL, *of = NULL;
    for (int i = 0; i < countof(forms) && !k.form; i++) {
        const BurstTileSizes tile = burst_tile_sizes(forms[i].form, p->model.head_dim);
        if (!runs_everywhere(&p->cluster, forms[i].arch))
            continue;
        best = best ? best : &forms[i];
        if (tile.forward_k && tile.backward_k && fits(forms[i].form, p))
            of = &forms[i], k.form = of->form, k.tile = tile;
    }
    if (of)
        k.forward = of->header[0], k.backward = of->header[1];
    if (of && of != best)
        k.missed = best->arch, k.share[0] = of->share[0], k.share[1] = of->share[1];
    if (k.form == 80 && k.tile.backward_k == 64)
        k.share[1] *= narrow;
    return k;
}

/* Of the sm_80 form's five products backward two make columns of dK and dV, one those of dQ in groups of 32, two read head_dim as it is. */
double kernels_columns(const Program *p, bool backward)
{
    const int d = p->model.head_dim;
    const Kernels k = p->cluster.target->device_memory ? kernels_of(p) : (Kernels){0};
    if (!k.form)
        return d;
    if (!backward || k.form != 80)
        return d / k.share[backward];
    return (2 * d + 2 * burst_80_columns(d, k.tile.backward_k) + (d + 31) / 32 * 32) / 5.0 / k.share[backward];
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

/* Keys of a launch: one chunk, or its pieces, each with a last tile of its own. */
static int64_t key_tiles(int64_t tokens, int pieces, int tile)
{
    return pieces * tiles((tokens + pieces - 1) / pieces, tile);
}

KernelLists kernels_lists(const Kernels *k, int64_t tokens, int pieces, int turns)
{
    const BurstTileSizes *t = &k->tile;
    const int least = t->forward_k < t->forward_long ? t->forward_k : t->forward_long;
    const int64_t q[2] = {tiles(tokens, t->forward_q), tiles(tokens, t->backward_q)};
    const int64_t kv[2] = {key_tiles(tokens, pieces, least), key_tiles(tokens, pieces, t->backward_k)};
    const int64_t forward = ints(q[0], kv[0]), backward = ints(kv[1], q[1]) + (turns ? (kv[1] + turns) * q[1] : 0);
    return (KernelLists){.ints = forward > backward ? forward : backward,
                         .sides = q[0] + kv[0] > q[1] + kv[1] ? q[0] + kv[0] : q[1] + kv[1]};
}
