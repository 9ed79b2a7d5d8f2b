/* decode_lib.cu: attention of a token with a cache (cuda_decode.cuh) as a library that test_decode.py calls:
 * heads of HEAD_DIM elements with values of VALUE_DIM, QUERY_HEADS on KEY_HEADS, under two masks. */
#ifndef VALUE_DIM
#define VALUE_DIM HEAD_DIM
#endif
#include "cuda_decode.cuh"

struct PlanMask0 {
    static __device__ int keep(int32_t q, int32_t k, const int32_t *, const int32_t *) { return k <= q; }
};
struct PlanMask1 { /* window(100) */
    static __device__ int keep(int32_t q, int32_t k, const int32_t *, const int32_t *)
    {
        return k <= q && q - k < 100;
    }
};

static int decode(int mask, const BurstDecode *d, cudaStream_t stream)
{
    return mask ? burst_decode<HEAD_DIM, VALUE_DIM, QUERY_HEADS, KEY_HEADS, PlanMask1>(d, stream)
                : burst_decode<HEAD_DIM, VALUE_DIM, QUERY_HEADS, KEY_HEADS, PlanMask0>(d, stream);
}

extern "C" {

/* Floats of d->parts. */
int test_decode_floats(void)
{
    return burst_decode_splits(QUERY_HEADS, KEY_HEADS) * QUERY_HEADS * burst_decode_row(VALUE_DIM, 1);
}

int test_decode(int mask, const BurstDecode *d, __nv_bfloat16 *o, float *lse, cudaStream_t stream)
{
    const int e = decode(mask, d, stream);
    if (e)
        return e;
    return burst_merge_parts<VALUE_DIM, burst_decode_splits(QUERY_HEADS, KEY_HEADS)>(QUERY_HEADS, d->parts,
                                                                                     NULL, o, lse, stream);
}

/* The rank's own part, [QUERY_HEADS][burst_decode_row]. */
int test_decode_part(int mask, const BurstDecode *d, float *part, cudaStream_t stream)
{
    const int e = decode(mask, d, stream);
    if (e)
        return e;
    return burst_merge_parts<VALUE_DIM, burst_decode_splits(QUERY_HEADS, KEY_HEADS)>(QUERY_HEADS, d->parts,
                                                                                     part, NULL, NULL,
                                                                                     stream);
}

/* Two ranks' parts merged. */
int test_decode_merge(const float *parts, __nv_bfloat16 *o, float *lse, cudaStream_t stream)
{
    return burst_merge_parts<VALUE_DIM, 2>(QUERY_HEADS, parts, NULL, o, lse, stream);
}

int test_keep_row(const BurstRunning *running, int ranks, int rank, const int32_t *kept,
                  const __nv_bfloat16 *k, const __nv_bfloat16 *v, __nv_bfloat16 *cache_k,
                  __nv_bfloat16 *cache_v, cudaStream_t stream)
{
    return burst_keep_row(running, ranks, rank, kept, KEY_HEADS * HEAD_DIM, KEY_HEADS * VALUE_DIM, k, v,
                          cache_k, cache_v, stream);
}

} /* extern "C" */
