/* backward.cu: gradients of recurrent layers, and the maps of their states' gradients. */
#include "cuda/ops/scan/launch.cuh"

void scan_backward(const ScanCall &c, const float *before, const Bf16 *d_o, const float *d_after, Bf16 *dx,
                   float *d_beta, float *d_decay, float *d_skip, float *d_before)
{
    SCAN_CALL(c.s, backward, c, before, d_o, d_after, dx, d_beta, d_decay, d_skip, d_before);
}

void scan_map_back(const ScanCall &c, const Bf16 *d_o, float *maps)
{
    SCAN_CALL(c.s, map_back, c, d_o, maps);
    if (!c.s->read)
        scan_decays(c, maps);
}
