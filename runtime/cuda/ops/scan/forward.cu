/* forward.cu: recurrent layers, and the maps of pieces. */
#include "cuda/ops/scan/launch.cuh"

void scan_forward(const ScanCall &c, const float *before, Bf16 *o, float *after)
{
    SCAN_CALL(c.s, forward, c, before, o, after);
}

void scan_map(const ScanCall &c, float *maps)
{
    SCAN_CALL(c.s, map, c, maps);
    if (!c.s->read)
        scan_decays(c, maps);
}
