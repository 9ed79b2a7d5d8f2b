/* scan_lib.cu: the kernels of recurrent layers as a library with C functions, which scan.py calls.
 * SCAN_KEY_DIM: the only key_dim of its kernels. Each returns a cudaError_t as an int. */
#define SCAN_KEY_DIMS(X) X(SCAN_KEY_DIM)
#include "cuda/ops/scan/launch.cuh"

extern "C" {

int64_t scan_bytes(const BurstScan *s, int pieces, int64_t longest)
{
    return burst_gpu_scan_bytes(s, pieces, longest);
}

int64_t scan_map_floats(const BurstScan *s) { return burst_scan_map(s); }

int scan_run(const ScanCall *c, const float *before, Bf16 *o, float *after)
{
    SCAN_CALL(c->s, forward, *c, before, o, after);
    return (int)cudaGetLastError();
}

int scan_run_back(const ScanCall *c, const float *before, const Bf16 *d_o, const float *d_after, Bf16 *dx,
                  float *d_beta, float *d_decay, float *d_skip, float *d_before)
{
    SCAN_CALL(c->s, backward, *c, before, d_o, d_after, dx, d_beta, d_decay, d_skip, d_before);
    return (int)cudaGetLastError();
}

/* d_o NULL: of the states, else of their gradients. */
int scan_run_map(const ScanCall *c, const Bf16 *d_o, float *maps)
{
    if (d_o)
        SCAN_CALL(c->s, map_back, *c, d_o, maps);
    else
        SCAN_CALL(c->s, map, *c, maps);
    if (!c->s->read)
        scan_decays(*c, maps);
    return (int)cudaGetLastError();
}
}
