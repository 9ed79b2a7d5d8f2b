/* scan.cu: the operations of recurrent layers: sizes that there are kernels for, then scan.h. */
#include "cuda/gpu.h"
#include "cuda/ops/scan/scan.h"

/* addresses: of x and what has its rows. */
static int scan_fits(BurstGpu *g, const char *name, const BurstScan *s, const BurstPieces *p,
                     uintptr_t addresses)
{
    BURST_TRY(gpu_aligned(g, name, s->columns | s->q | s->k | s->v, addresses));
    const bool keys = s->key_dim == 64 || s->key_dim == 128 || s->key_dim == 256;
    if (keys && s->value_dim % 64 == 0 && s->heads % s->key_heads == 0 && p->count <= BURST_MOST_PIECES)
        return BURST_OK;
    return burst_fail(
        g->ctx, BURST_E_PLAN,
        "%s: key_dim %d, value_dim %d, %d heads on %d of keys, %d pieces: key_dim must be 64, 128 "
        "or 256, value_dim a multiple of 64, pieces at most %d",
        name, s->key_dim, s->value_dim, s->heads, s->key_heads, p->count, BURST_MOST_PIECES);
}

int burst_op_scan(BurstGpu *g, int64_t n, const BurstScan *s, const BurstPieces *p, const int32_t *place,
                  const BurstBf16 *x, const float *beta, const float *decay, const BurstBf16 *skip,
                  const float *before, BurstBf16 *o, float *after, void *scratch)
{
    const ScanCall c = {s, p, place, x, skip, beta, decay, (char *)scratch, g->compute};
    BURST_TRY(scan_fits(g, "scan", s, p, address(x) | address(o)));
    if (n > 0)
        scan_forward(c, before, o, after);
    return gpu_launched(g, "scan");
}

int burst_op_scan_back(BurstGpu *g, int64_t n, const BurstScan *s, const BurstPieces *p, const int32_t *place,
                       const BurstBf16 *x, const float *beta, const float *decay, const BurstBf16 *skip,
                       const float *before, const BurstBf16 *d_o, const float *d_after, BurstBf16 *dx,
                       float *d_beta, float *d_decay, float *d_skip, float *d_before, void *scratch)
{
    const ScanCall c = {s, p, place, x, skip, beta, decay, (char *)scratch, g->compute};
    const int used = 2 * s->key_heads * s->key_dim + s->heads * s->value_dim;
    BURST_TRY(scan_fits(g, "scan_back", s, p, address(x) | address(d_o) | address(dx)));
    if (n > 0 && s->columns > used)
        BURST_TRY(burst_gpu_zero(g, dx, (size_t)(n * s->columns) * sizeof *dx));
    if (n > 0)
        scan_backward(c, before, d_o, d_after, dx, d_beta, d_decay, d_skip, d_before);
    return gpu_launched(g, "scan_back");
}

int burst_op_scan_map(BurstGpu *g, int64_t n, const BurstScan *s, const BurstPieces *p, const int32_t *place,
                      const BurstBf16 *x, const float *beta, const float *decay, float *maps, void *scratch)
{
    const ScanCall c = {s, p, place, x, NULL, beta, decay, (char *)scratch, g->compute};
    BURST_TRY(scan_fits(g, "scan_map", s, p, address(x)));
    if (n > 0)
        scan_map(c, maps);
    return gpu_launched(g, "scan_map");
}

int burst_op_scan_map_back(BurstGpu *g, int64_t n, const BurstScan *s, const BurstPieces *p,
                           const int32_t *place, const BurstBf16 *x, const float *beta, const float *decay,
                           const BurstBf16 *d_o, float *maps, void *scratch)
{
    const ScanCall c = {s, p, place, x, NULL, beta, decay, (char *)scratch, g->compute};
    BURST_TRY(scan_fits(g, "scan_map_back", s, p, address(x) | address(d_o)));
    if (n > 0)
        scan_map_back(c, d_o, maps);
    return gpu_launched(g, "scan_map_back");
}

static int fold(BurstGpu *g, const char *name, const BurstScan *s, const BurstFold *f, bool back,
                const float *maps, float *out)
{
    if (f->total > SCAN_MOST_FOLDED || f->pieces > BURST_MOST_PIECES)
        return burst_fail(g->ctx, BURST_E_PLAN, "%s: %d pieces of %d; at most %d of %d", name, f->pieces,
                          f->total, BURST_MOST_PIECES, SCAN_MOST_FOLDED);
    if (f->pieces == 0)
        return BURST_OK;
    scan_fold(s, f, back, maps, out, g->compute);
    return gpu_launched(g, name);
}

int burst_op_scan_fold(BurstGpu *g, const BurstScan *s, const BurstFold *f, const float *maps, float *before,
                       void *scratch)
{
    (void)scratch;
    return fold(g, "scan_fold", s, f, false, maps, before);
}

int burst_op_scan_fold_back(BurstGpu *g, const BurstScan *s, const BurstFold *f, const float *maps,
                            float *d_after, void *scratch)
{
    (void)scratch;
    return fold(g, "scan_fold_back", s, f, true, maps, d_after);
}
