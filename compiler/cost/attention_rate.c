/* attention_rate.c: how fast a device's kernels compute a pair of chunks, from its rates (docs/cost.md).
 *
 * A tile takes the same time whether few or many of its pairs are masked. A partial tile takes more than a
 * full one, and each row of tiles has a cost of its own. So with x = 1 / keys a query (backward: queries a
 * key) the time of a pair is linear in x. Rates for several numbers of keys are points of that line; the
 * rate of long rows is its value at x = 0. */
#include "cost/cost.h"
#include "burst_sizes.h"
#include "ir/kernels.h"

#include <math.h>

enum { TILE = 64, PROBED_HEAD_DIM = 128, PROBED_HEADS = 2 };

double attention_tile_sides(const Program *p, bool backward)
{
    const BurstTileSizes t = kernels_of(p).tile;
    const int sides = backward ? t.backward_q + t.backward_k : t.forward_q + t.forward_k[BURST_KEYS_USUAL];
    return p->cluster.target->device_memory && sides ? sides : 2 * TILE;
}

/* Kernels compute whole tiles, partial ones too, up to the chunks' ends. Tiles of 64 by 64 are counted; the
 * masked pairs that they compute lie along the mask's edges, and grow with the tiles' sides. */
AttentionWork attention_work_of(double sides, bool backward, PairWork w, int64_t q_tokens, int64_t k_tokens)
{
    const double all = (double)q_tokens * (double)k_tokens, area = TILE * TILE, larger = sides / (2 * TILE);
    const double tiles = (double)(w.tiles_full + w.tiles_partial) * area, pairs = (double)w.pairs,
                 excess = fmax(0, fmin(tiles, all) - pairs);
    AttentionWork x = {.pairs = fmin(all, pairs + excess * larger)};
    x.partial = fmin(x.pairs, (double)w.tiles_partial * area * larger);
    x.rows = fmin((double)(backward ? k_tokens : q_tokens), (double)(w.tiles_full + w.tiles_partial) * TILE);
    return x;
}

AttentionWork attention_work(const Program *p, bool backward, PairWork w, int64_t q_tokens, int64_t k_tokens)
{
    return attention_work_of(attention_tile_sides(p, backward), backward, w, q_tokens, k_tokens);
}

double attention_slowdown(const Program *p, bool backward, int mask, PairWork whole)
{
    const double pairs = attention_work(p, backward, whole, p->sequence, p->sequence).pairs,
                 parts = (double)(whole.tiles_full + whole.tiles_partial) * TILE * TILE;
    return pairs > 0 ? fmax(1, mask_block_time(p, mask, backward) * parts / pairs) : 1;
}

/* On a processor a pair's predicate takes the same time for any head_dim, and is evaluated once for all heads
 * of a walk (runtime/host/ops/attend_kernel.h). Devices' kernels evaluate it for each head, overlapped with
 * products. */
double attention_predicate(const Program *p, int mask, int head_dim)
{
    const int group = p->model.heads / p->model.kv_heads,
              heads = group < BURST_ATTEND_HEADS ? group : BURST_ATTEND_HEADS;
    if (p->cluster.target->device_memory)
        return 1;
    return mask_row_time(p->masks[mask].expr) * PROBED_HEAD_DIM / head_dim * PROBED_HEADS / heads;
}

/* The device's rate of that kind and value; 0: none. */
static double row_of(const Device *d, bool backward, AttentionKind kind, int64_t value)
{
    for (int i = 0; i < d->rates; i++)
        if (d->rate[i].kind == kind && d->rate[i].backward == backward && d->rate[i].value == value)
            return d->rate[i].rate;
    return 0;
}

/* Seconds per operation at x = 1 / keys: interpolated between the nearest points; beyond the last point
 * extrapolated from the last two, but never decreasing. */
static double at_keys(const Device *d, bool backward, double base, double x)
{
    double x0 = 0, y0 = 1 / base, x1 = 0, y1 = y0; /* the points before and after; 0: none yet */
    for (int i = 0; i < d->rates; i++) {
        const AttentionRate *r = &d->rate[i]; /* sorted by falling keys */
        if (r->kind != ATTENTION_KEYS || r->backward != backward)
            continue;
        if (x1 > 0)
            x0 = x1, y0 = y1;
        x1 = 1 / (double)r->value, y1 = 1 / r->rate;
        if (x <= x1)
            break;
    }
    const double slope = x1 > 0 ? (y1 - y0) / (x1 - x0) : 0;
    return x > x1 ? y1 + fmax(0, slope) * (x - x1) : y0 + slope * (x - x0);
}

double attention_rate(const Device *d, bool backward, int head_dim, AttentionWork w)
{
    const double base = backward ? d->attention_backward : d->attention_forward;
    const double own = row_of(d, backward, ATTENTION_HEAD_DIM, head_dim),
                 partial = row_of(d, backward, ATTENTION_PARTIAL, 0);
    if (!d->rates || w.pairs <= 0)
        return base;
    const double longer = partial > 0 ? fmax(0, 1 / partial - 1 / base) * w.partial / w.pairs : 0;
    return (own > 0 ? own / base : 1) / (at_keys(d, backward, base, w.rows / w.pairs) + longer);
}

/* A measured rate of a head_dim includes all losses but those of kernels that are not of the device's own
 * form. */
double attention_columns(const Program *p, const Device *d, bool backward)
{
    if (row_of(d, backward, ATTENTION_HEAD_DIM, p->model.head_dim) <= 0)
        return kernels_columns(p, backward);
    const Kernels k = kernels_of(p);
    return model_columns(&p->model, backward) / (k.missed ? k.share[backward] : 1);
}
