/* decode_latent_lib.cu: attention of a token with a cache of latents (cuda_decode_latent.cuh) as a library
 * that test_decode.py calls: QUERY_HEADS heads of OWN_DIM elements and SHARED_DIM ones, values of VALUE_DIM,
 * a causal mask. */
#define HEAD_DIM (OWN_DIM + SHARED_DIM)
#include "cuda_decode_latent.cuh"

struct PlanMask0 {
    static __device__ int keep(int32_t q, int32_t k, const int32_t *, const int32_t *) { return k <= q; }
};

extern "C" {

/* Floats of d->parts. */
int test_latent_floats(void)
{
    return burst_latent_splits(QUERY_HEADS) * QUERY_HEADS * burst_decode_row(LATENT_DIM, 1);
}

/* d: q [heads][OWN_DIM + SHARED_DIM]. Leaves all splits' parts in d->parts and, merged, this rank's in `part`
 * (NULL: o and lse). weight: of keys [heads][OWN_DIM][LATENT_DIM], then of values
 * [heads][VALUE_DIM][LATENT_DIM]. latent: [heads][LATENT_DIM], query: [heads][LATENT_DIM + SHARED_DIM], both
 * scratch. */
int test_latent(BurstDecode *d, const __nv_bfloat16 *weight, __nv_bfloat16 *query, __nv_bfloat16 *latent,
                float *part, __nv_bfloat16 *o, float *lse, cudaStream_t stream)
{
    enum { SPLITS = burst_latent_splits(QUERY_HEADS) };
    cudaError_t e = burst_decode_latent_setup<LATENT_DIM, SHARED_DIM, QUERY_HEADS, PlanMask0>();
    if (e == cudaSuccess)
        e = burst_latent_query<LATENT_DIM, SHARED_DIM, OWN_DIM>(QUERY_HEADS, d->q, weight, query, stream);
    d->q = query;
    if (e == cudaSuccess)
        e = burst_decode_latent<LATENT_DIM, SHARED_DIM, QUERY_HEADS, PlanMask0>(d, stream);
    if (e == cudaSuccess)
        e = burst_merge_parts<LATENT_DIM, SPLITS>(QUERY_HEADS, d->parts, part, latent, lse, stream);
    if (e != cudaSuccess || part)
        return e;
    return burst_latent_value<LATENT_DIM, VALUE_DIM>(QUERY_HEADS, latent,
                                                     weight + (int64_t)QUERY_HEADS * OWN_DIM * LATENT_DIM, o,
                                                     stream);
}

/* Two ranks' parts. */
int test_latent_merge(const float *parts, const __nv_bfloat16 *weight, __nv_bfloat16 *latent,
                      __nv_bfloat16 *o, float *lse, cudaStream_t stream)
{
    const cudaError_t e = burst_merge_parts<LATENT_DIM, 2>(QUERY_HEADS, parts, NULL, latent, lse, stream);
    if (e != cudaSuccess)
        return e;
    return burst_latent_value<LATENT_DIM, VALUE_DIM>(QUERY_HEADS, latent,
                                                     weight + (int64_t)QUERY_HEADS * OWN_DIM * LATENT_DIM, o,
                                                     stream);
}

} /* extern "C" */
