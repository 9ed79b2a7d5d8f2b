/* attention_lib.cu: the attention kernels for one head_dim (HEAD_DIM) and the masks of masks.cuh, as a library with C
 * functions that attention.py calls. Each returns a cudaError_t as an int; `mask` is a number of TEST_MASKS.
 */
#include "cuda_attention.cuh"
#include "masks.cuh"

#include "cuda_attention_backward.cu"
#include "cuda_attention_forward.cu"

typedef struct Kernels {
    cudaError_t (*forward_setup)(void), (*backward_setup)(void);
    cudaError_t (*lists)(BurstTokens, BurstTokens, int, int, bool, BurstSide *, BurstTileLists, cudaStream_t);
    cudaError_t (*forward)(BurstForward, cudaStream_t);
    cudaError_t (*backward)(BurstBackward, int, cudaStream_t);
} Kernels;

#define KERNELS(i) \
    {burst_forward_setup<HEAD_DIM, PlanMask##i>, burst_backward_setup<HEAD_DIM, PlanMask##i>, burst_make_lists<PlanMask##i>, \
     burst_forward<HEAD_DIM, PlanMask##i>, burst_backward<HEAD_DIM, PlanMask##i>},
#ifndef MASKS /* a compile test takes a few of them */
#define MASKS TEST_MASKS
#endif
static const Kernels kernels[] = {MASKS(KERNELS)};

extern "C" {

int test_setup(int mask)
{
    const cudaError_t e = kernels[mask].forward_setup();
    return e ? e : kernels[mask].backward_setup();
}

/* Tiles of queries and keys, forward and backward. */
void test_tiles(int tiles[4])
{
    using Shape = BurstTileShape<HEAD_DIM>;
    tiles[0] = Shape::FORWARD_Q, tiles[1] = Shape::FORWARD_K, tiles[2] = Shape::BACKWARD_Q, tiles[3] = Shape::BACKWARD_K;
}

/* memory: burst_lists_ints ints; sides: one per tile of both chunks. */
int test_lists(int mask, const BurstTokens *q, const BurstTokens *k, int backward, void *sides, int32_t *memory,
               BurstTileLists *lists, cudaStream_t stream)
{
    int tile[4];
    test_tiles(tile);
    const int tiles_q = burst_tiles(q->n, tile[2 * backward]), tiles_k = burst_tiles(k->n, tile[2 * backward + 1]);
    *lists = burst_lists_place(backward ? tiles_k : tiles_q, backward ? tiles_q : tiles_k, memory);
    return kernels[mask].lists(*q, *k, tile[2 * backward], tile[2 * backward + 1], !backward, (BurstSide *)sides, *lists, stream);
}

int test_gather(int n, const int32_t *position, const int32_t *table, int32_t *value, cudaStream_t stream)
{
    if (n)
        burst_gather_table_kernel<<<(n + 127) / 128, 128, 0, stream>>>(n, position, table, value);
    return cudaGetLastError();
}

int test_forward(int mask, const BurstForward *p, cudaStream_t stream) { return kernels[mask].forward(*p, stream); }

int test_backward(int mask, const BurstBackward *p, int multiprocessors, cudaStream_t stream)
{
    return kernels[mask].backward(*p, multiprocessors, stream);
}

int test_delta(const BurstRows *o, const BurstRows *d_o, int n, int heads, float *delta, cudaStream_t stream)
{
    return burst_delta<HEAD_DIM>(*o, *d_o, n, heads, delta, stream);
}

int test_finish_dq(const float *dq, int n, int heads, float scale, const BurstRows *out, cudaStream_t stream)
{
    return burst_finish_dq<HEAD_DIM>(dq, n, heads, scale, *out, stream);
}

} // extern "C"
