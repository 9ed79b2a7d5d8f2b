/* tools/print_kernels.c: --emit=kernels: the forms of the attention kernels, which one the program has and
 * why, and the rates in the simulation of its masks. */
#include "tools/tools.h"
#include "ir/kernels.h"

#include <inttypes.h>

static void print_tiles(const KernelForm *f, const char *state, Text *out)
{
    const BurstTileSizes *t = &f->tile;
    text_printf(out, "%-8s %-8s", f->arch, state);
    if (t->forward_rows)
        text_printf(out, " %3d x %-3d (%d, %d)  %3d x %-3d (%d)", t->forward_q,
                    t->forward_k[BURST_KEYS_USUAL], t->forward_k[BURST_KEYS_LONG],
                    t->forward_k[BURST_KEYS_BLOCKS], t->backward_q, t->backward_k, t->backward_stages);
    if (f->unfit)
        text_printf(out, "%s kernels for %s %s", t->forward_rows ? " " : "", f->arch, f->unfit);
    text_add(out, "\n");
}

static void print_forms(const Program *p, Text *out)
{
    KernelForm form[KERNEL_FORMS];
    const int n = kernels_forms(p, form), chosen = kernels_of(p).form;
    text_printf(out,
                "forms, tiles of queries x keys: forward (keys where rows have %d or more, and where halves "
                "of tiles are empty), backward (stages of queries)\n",
                BURST_LONG_KEYS);
    for (int i = 0; i < n; i++) {
        const char *fits = form[i].form == chosen ? "chosen" : "fits";
        print_tiles(&form[i], form[i].unfit ? "refused" : fits, out);
    }
}

/* TFLOP/s over unmasked pairs: lower than over computed pairs, since masked pairs of a tile are computed
 * too, and head_dim is padded. */
static double unmasked_rate(const Program *p, const Device *d, bool backward, int mask, PairWork w)
{
    const AttentionWork x = attention_work(p, backward, w, p->sequence, p->sequence);
    const double share = x.pairs > 0 ? (double)w.pairs / x.pairs : 0;
    return attention_rate(d, backward, p->model.head_dim, x) * share * model_columns(&p->model, backward) /
           attention_columns(p, d, backward) / attention_slowdown(p, backward, mask, w) / 1e12;
}

static void print_rates(const Draft *t, const Device *d, Text *out)
{
    const Program *p = t->program;
    text_printf(out,
                "%s, TFLOP/s over unmasked pairs of a sequence of %" PRId64 ":\n  %-34s %14s %10s %10s\n",
                d->name, p->sequence, "mask", "keys a query", "forward", "backward");
    for (int m = 0; m < p->mask_count; m++) {
        const PairWork w = pair_whole(t->counts[m]);
        text_printf(out, "  %-34.34s %14.0f %10.4g %10.4g\n", p->masks[m].text,
                    (double)w.pairs / (double)p->sequence, unmasked_rate(p, d, false, m, w),
                    unmasked_rate(p, d, true, m, w));
    }
}

static bool named_before(const Cluster *c, int group)
{
    for (int i = 0; i < group; i++)
        if (c->groups[i].device == c->groups[group].device)
            return true;
    return false;
}

void print_kernels(const Draft *d, Text *out)
{
    const Program *p = d->program;
    const Heads h = d->shape.chunk;
    text_printf(out, "burst-kernels 1\nattention of %d head%s (%d of keys), head_dim %d\n", h.heads,
                plural(h.heads), h.kv_heads, p->model.head_dim);
    if (p->target->device_memory)
        print_forms(p, out);
    else
        text_printf(out, "kernels in C, fp32, any head_dim; tiles of %d x %d\n", BURST_TILE, BURST_TILE);
    for (int i = 0; i < p->cluster.group_count && cost_is_of_program(p); i++)
        if (!named_before(&p->cluster, i))
            print_rates(d, p->cluster.groups[i].device, out);
}
