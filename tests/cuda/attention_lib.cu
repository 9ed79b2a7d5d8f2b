/* attention_lib.cu: the attention kernels for one head_dim (HEAD_DIM) and the masks of masks.cuh, or of
 * MASKS_FILE, as a library with C functions that attention.py calls. HOPPER: their sm_90a form.
 * PLAN_DETERMINISTIC: its sums in order. Each returns a cudaError_t as an int; `mask` is a number of
 * TEST_MASKS.
 */
#ifdef HOPPER /* the sm_90a form */
#define BURST_FORM 90
#endif
#include "cuda_attention.cuh"
#ifdef MASKS_FILE
#include MASKS_FILE
#else
#include "masks.cuh"
#endif

#if BURST_FORM == 90
#include "cuda_hopper_forward.cuh"
#include "cuda_hopper_backward.cuh"
#else
#include "cuda_attention_forward.cuh"
#include "cuda_attention_backward.cuh"
#endif

#ifdef TEST_OPEN
#include "cuda_select.cuh"
#endif

typedef struct Kernels {
    cudaError_t (*forward_setup)(void), (*backward_setup)(void);
    cudaError_t (*lists)(const BurstTokens *, int, const BurstTokens *, int, const BurstTileRanges *, int,
                         int, bool, int, BurstSide *, BurstTileLists, cudaStream_t);
    cudaError_t (*forward)(const BurstForward *, int, int, int, cudaStream_t);
    cudaError_t (*backward)(const BurstBackward *, int, int, int, cudaStream_t);
    int tile[4]; /* queries and keys, forward and backward */
} Kernels;

#ifndef VALUE_DIM
#define VALUE_DIM HEAD_DIM /* of values, outputs and their gradients */
#endif
#define OF(i) HEAD_DIM, PlanMask##i, VALUE_DIM
#define KERNELS(i) \
    {burst_forward_setup<OF(i)>, burst_backward_setup<OF(i)>, burst_make_lists<PlanMask##i>, \
     burst_forward<OF(i)>, burst_backward<OF(i)>, \
     {BurstTiles<OF(i)>::FORWARD_Q, BurstTiles<OF(i)>::FORWARD_K, BurstTiles<OF(i)>::BACKWARD_Q, \
      BurstTiles<OF(i)>::BACKWARD_K}},
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

void test_tiles(int mask, int tiles[4]) { memcpy(tiles, kernels[mask].tile, sizeof kernels[mask].tile); }

/* lists: with what a selection chose, and with heads, bands and sets. memory: burst_lists_ints ints of all
 * sets, with turns of q_heads heads where PLAN_DETERMINISTIC, and then one set; sides: one per tile of all
 * chunks. home > 0: in two parts, lists[1] those of the second. */
int test_lists(int mask, const BurstTokens *q, int queries, const BurstTokens *k, int keys, int backward,
               int home, void *sides, int32_t *memory, BurstTileLists *lists, cudaStream_t stream)
{
    const int *const tile = kernels[mask].tile;
    int tiles_q = 0, tiles_k = 0;
    for (int c = 0; c < queries; c++)
        tiles_q += burst_tiles(q[c].n, tile[2 * backward]);
    for (int c = 0; c < keys; c++)
        tiles_k += burst_tiles(k[c].n, tile[2 * backward + 1]);
    const BurstTileLists how = *lists;
    const int own = backward ? tiles_k : tiles_q, other = backward ? tiles_q : tiles_k;
    *lists = burst_lists_place(own, other, PLAN_DETERMINISTIC && backward, home ? 2 : 1, memory);
    lists->chosen = how.chosen;
    if (how.sets > 1)
        *lists = burst_lists_place_sets(own, other, how.sets, home ? 2 : 1, how, memory);
    if (home)
        lists[1] = burst_lists_rest(lists[0]);
    return kernels[mask].lists(q, queries, k, keys, NULL, tile[2 * backward], tile[2 * backward + 1],
                               !backward, home, (BurstSide *)sides, *lists, stream);
}

int test_gather(int n, const int32_t *position, const int32_t *table, int32_t *value, cudaStream_t stream)
{
    if (n)
        burst_gather_table_kernel<<<(n + 127) / 128, 128, 0, stream>>>(n, position, table, value);
    return cudaGetLastError();
}

#ifdef TEST_OPEN /* with selections */
/* What represents blocks or, of `queries`, tiles of a chunk: own, and placed in the sequence in `all`. */
int test_represent(const BurstChoose *s, const BurstChoosing *c, const BurstRows *rows, int queries,
                   float *own, float *all, cudaStream_t stream)
{
    const int64_t words = queries
                              ? s->q_heads * burst_select_query_width(s->how.query, HEAD_DIM)
                              : s->kv_heads * burst_select_device_words(s->how.key, s->how.block, HEAD_DIM),
                  blocks = burst_select_units(s->sequence, s->how.block);
    const bool whole = queries || s->how.key == BURST_SELECT_MAX_KEY;
    const cudaError_t e = queries ? burst_choose_queries(*s, *c, *rows, HEAD_DIM, own, stream)
                                  : burst_choose_keys(*s, *c, *rows, HEAD_DIM, own, stream);
    return e ? e
             : burst_choose_place(*c, queries ? s->how.queries : s->how.block, words, own, whole ? words : 1,
                                  whole ? 1 : blocks, all, stream);
}

int64_t test_choose_work(int64_t blocks, int64_t tiles) { return burst_select_work(blocks, tiles, tiles); }

/* The lists of a chunk's tiles, by the number of the selection. */
int test_choose(int selection, const BurstChoose *s, const BurstChoosing *c, const float *queries,
                const float *keys, char *work, int32_t *lists, cudaStream_t stream)
{
#define CHOOSE(i) burst_choose_lists<PlanMask##i>,
    static cudaError_t (*const choose[])(const BurstChoose &, BurstChoosing, int, const float *,
                                         const float *, char *, int32_t *,
                                         cudaStream_t) = {TEST_OPEN(CHOOSE)};
    return choose[selection](*s, *c, HEAD_DIM, queries, keys, work, lists, stream);
}
#endif

int test_lists_at_once(void) { return BURST_LISTS; }

/* Chunks of queries, and as many of keys, that a launch may take. */
void test_chunks(int chunks[2]) { chunks[0] = BURST_FORWARD_CHUNKS, chunks[1] = BURST_BACKWARD_CHUNKS; }

int test_forward(int mask, const BurstForward *pair, int queries, int keys, int multiprocessors,
                 cudaStream_t stream)
{
    return kernels[mask].forward(pair, queries, keys, multiprocessors, stream);
}

int test_backward(int mask, const BurstBackward *pair, int queries, int keys, int multiprocessors,
                  cudaStream_t stream)
{
    return kernels[mask].backward(pair, queries, keys, multiprocessors, stream);
}

int test_delta(const BurstRows *o, const BurstRows *d_o, int n, int heads, float *delta, cudaStream_t stream)
{
    return burst_delta<VALUE_DIM>(*o, *d_o, n, heads, delta, stream);
}

int test_finish_dq(const float *dq, int n, int heads, float scale, const BurstRows *out, cudaStream_t stream)
{
    return burst_finish_dq<HEAD_DIM>(dq, n, heads, scale, *out, stream);
}

/* The clock of a multiprocessor over so many nanoseconds, beside whatever else runs there: cycles and
 * nanoseconds. */
static __global__ void clock_kernel(int64_t *out, int64_t length)
{
    int64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    const int64_t cycles = clock64();
    do {
        __nanosleep(2000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < length);
    out[0] = clock64() - cycles, out[1] = now - begin;
}

int test_clock(int64_t *out, int64_t length, cudaStream_t stream)
{
    clock_kernel<<<1, 1, 0, stream>>>(out, length);
    return cudaGetLastError();
}

} // extern "C"
