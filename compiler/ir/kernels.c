/* kernels.c: the registry of CUDA attention kernels: the form for a cluster's devices, its headers and its
 * tiles.
 *
 * Tiles are those of runtime/include/burst_kernels.h, which the kernels read too. A program is compiled
 * for one architecture, so a cluster of several takes the form that runs on all of them.
 */
#include "ir/kernels.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Best form first; arch: the only one that runs it, NULL: all. share: fraction of a better form's rates,
 * measured at head_dim 128 on an H200 (benchmarks/log) and used for all; of that, backward with tiles of 64
 * keys reached `narrow`. */
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

/* The smallest among the devices. */
static BurstKernelRoom kernels_room(const Program *p)
{
    BurstKernelRoom room = {INT_MAX, p->table_count};
    for (int i = 0; i < p->cluster.group_count; i++) {
        const char *arch = p->cluster.groups[i].device->arch;
        const int bytes = burst_block_bytes(atoi(arch + strcspn(arch, "0123456789")));
        room.bytes = bytes < room.bytes ? bytes : room.bytes;
    }
    return room;
}

/* Why a program cannot use a form, after "kernels for sm_…"; NULL: it can. Up to head_dim 64 the sm_90a form
 * uses all registers: with capped scores, products would wait for each other. At 256 it uses all shared
 * memory: a second table's values do not fit. Backward at 192 with values of 128 spills registers if a mask
 * reads a table. In the sm_80 form threads add to dQ from registers, at no point where a block could wait
 * for its turn; turns were measured at 64 and 128. */
static const char *unfit(const struct Form *f, const Program *p)
{
    const Model *m = &p->model;
    const BurstTileSizes tile = burst_tile_sizes(f->form, m->head_dim, m->value_dim, kernels_room(p));
    if (!runs_everywhere(&p->cluster, f->arch))
        return "require that architecture on every device";
    if (f->form == 90 && !burst_90_made(m->head_dim, m->value_dim))
        return "have no tiles for this value_dim: beside head_dim 96 it is 64, beside 192 it is 128, else "
               "head_dim";
    if (!tile.forward_rows || !tile.backward_k)
        return "have no tiles for this head_dim";
    if (p->train.deterministic && f->form != 90)
        return "accumulate dQ in no fixed order";
    if (p->train.deterministic && m->head_dim != 64 && m->head_dim != 128)
        return "accumulate dQ in a fixed order only at head_dim 64 and 128";
    if (f->form == 90 && m->head_dim <= 64 && m->softcap > 0)
        return "do not support softcap at head_dim 64 or less";
    if (f->form == 90 && m->head_dim == 192 && m->value_dim == 128 && p->table_count > 0)
        return "do not support a table at head_dim 192 with value_dim 128";
    if (f->form == 90 && m->head_dim > 192 && p->table_count > 1)
        return "do not support a second table at head_dim above 192";
    return NULL;
}

int kernels_forms(const Program *p, KernelForm out[KERNEL_FORMS])
{
    for (int i = 0; i < countof(forms); i++) {
        const struct Form *f = &forms[i];
        out[i] = (KernelForm){f->form,
                              f->arch ? f->arch : "sm_80",
                              burst_tile_sizes(f->form, p->model.head_dim, p->model.value_dim,
                                               kernels_room(p)),
                              unfit(f, p),
                              {f->header[0], f->header[1]}};
    }
    return countof(forms);
}

Kernels kernels_of(const Program *p)
{
    Kernels k = {.share = {1, 1}};
    KernelForm form[KERNEL_FORMS];
    int best = 0, of = 0;
    const int n = kernels_forms(p, form);
    while (!runs_everywhere(&p->cluster, forms[best].arch))
        best++;
    while (of < n && form[of].unfit)
        of++;
    if (of == n)
        return k;
    k.form = form[of].form, k.tile = form[of].tile, k.forward = form[of].header[0],
    k.backward = form[of].header[1];
    if (of != best)
        k.missed = form[best].arch, k.unfit = form[best].unfit, k.share[0] = forms[of].share[0],
        k.share[1] = forms[of].share[1];
    if (k.form == 80 && k.tile.backward_k == 64)
        k.share[1] *= narrow;
    return k;
}

void kernels_define(const Program *p, Text *out)
{
    const BurstKernelRoom room = kernels_room(p);
    text_printf(out,
                "#define BURST_FORM %d /* of the kernels of attention */\n"
                "#define BURST_BLOCK_BYTES %d /* of shared memory */\n#define BURST_TABLES %d\n",
                kernels_of(p).form, room.bytes, room.tables);
}

double model_columns(const Model *m, bool backward)
{
    return backward ? (3 * m->head_dim + 2 * m->value_dim) / 5.0 : (m->head_dim + m->value_dim) / 2.0;
}

/* Two of the five backward products of the sm_80 form compute columns of dK and dV, one computes dQ in
 * groups of 32 columns, and two read head_dim without padding. */
double kernels_columns(const Program *p, bool backward)
{
    const int d = p->model.head_dim;
    const int e = p->model.value_dim;
    const double columns = model_columns(&p->model, backward);
    const Kernels k = p->cluster.target->device_memory ? kernels_of(p) : (Kernels){0};
    if (!k.form)
        return columns;
    if (!backward || k.form != 80)
        return columns / k.share[backward];
    return (d + e + burst_80_columns(d, k.tile.backward_k) + burst_80_columns(e, k.tile.backward_k) +
            (d + 31) / 32 * 32) /
           5.0 / k.share[backward];
}
