/* cuda_hopper.cuh: the sm_90a instructions of the attention kernels: mbarriers, the copy engine (TMA),
 * matrix products of a warpgroup (wgmma), and the host's tensor maps for copies. */
#ifndef CUDA_HOPPER_CUH
#define CUDA_HOPPER_CUH

#include "cuda_attention.cuh"

#include <cuda.h>

namespace burst {

/* ---- mbarriers: addresses in shared memory; a phase ends after all arrivals and all expected bytes ---- */
static __device__ __forceinline__ void barrier_make(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ __forceinline__ void barriers_made()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrivals of a warp at a barrier: its first lane's, on behalf of all lanes after `__syncwarp`.
 * compute-sanitizer's racecheck counts only the arriving lane, so BURST_RACECHECK makes all lanes arrive. */
#ifndef BURST_RACECHECK
#define BURST_RACECHECK 0
#endif
static constexpr int WARP = BURST_RACECHECK ? 32 : 1;

static __device__ __forceinline__ void warp_arrive(uint32_t barrier, int lane)
{
    if (BURST_RACECHECK || lane == 0)
        barrier_arrive(barrier);
}

/* Arrives, and makes the phase wait for so many bytes of the copy engine. */
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Makes the current phase wait for this thread's cp.async copies too. */
static __device__ __forceinline__ void barrier_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, "
                     "1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    while (!done);
}

/* An index in a ring of N stages and the parity of its full barrier; its empty barrier is awaited with the
 * other parity. */
template <int N> struct Stage {
    int at;
    uint32_t parity;
    __device__ __forceinline__ void next()
    {
        if (++at == N)
            at = 0, parity ^= 1;
    }
};

/* ---- named barriers, 1 to 15: bar.sync waits for `threads` arrivals, its own among them ---- */
static __device__ __forceinline__ void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

static __device__ __forceinline__ void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- registers of a thread, for the whole warpgroup from here on; multiples of 8 ---- */
template <int N> static __device__ __forceinline__ void registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* The thread's warp or warpgroup in a uniform register, so that descriptors computed from it are in uniform
 * registers too. */
template <int THREADS> static __device__ __forceinline__ int group_number()
{
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / THREADS, 0);
}

/* ---- the copy engine. One thread requests a whole tile: rows of one head, all panels of their columns; if
 * the last panel is not full, panel by panel. Elements beyond the head become zeros ---- */
template <int ROWS, int D>
static __device__ __forceinline__ void tensor_load(uint32_t to, const CUtensorMap *map, int row, int head,
                                                   uint32_t barrier)
{
#pragma unroll
    for (int column = 0; column < (D % 64 ? D : 1); column += 64)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                     "{%2, %3, %4, %5}], [%6];" ::"r"(to + (uint32_t)(column / 64 * ROWS * 128)),
                     "l"(map), "r"(column), "r"(row), "r"(0), "r"(head), "r"(barrier)
                     : "memory");
}

/* Adds a tile of fp32 from shared memory to panels panel, ... of a head; rows beyond the head are
 * skipped. */
static __device__ __forceinline__ void tensor_add(const CUtensorMap *map, uint32_t from, int row, int panel,
                                                  int head)
{
    asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3, "
                 "%4}], [%5];" ::"l"(map),
                 "r"(0), "r"(row), "r"(panel), "r"(head), "r"(from)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until all but this thread's last PENDING additions were read from shared memory; until they were
 * made. */
template <int PENDING> static __device__ __forceinline__ void adds_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

template <int PENDING> static __device__ __forceinline__ void adds_made()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Prefetches memory into the L2 cache; at and bytes: multiples of 16. */
static __device__ __forceinline__ void bring_near(const void *at, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
}

/* Makes this thread's stores to shared memory visible to wgmma and the copy engine after the next
 * barrier. */
static __device__ __forceinline__ void stored_for_engines()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The chunk of a launch that contains a tile, numbered over all chunks. */
template <class CHUNK> static __device__ __forceinline__ int chunk_of(const CHUNK *of, int chunks, int tile)
{
    int chunk = 0;
    while (chunk + 1 < chunks && tile >= of[chunk + 1].first)
        chunk++;
    return chunk;
}

/* The next work number of a persistent grid; called by one lane. The last caller resets the counter. */
static __device__ __forceinline__ int ask_number(const BurstTileLists &lists, int total)
{
    const int before = atomicAdd(lists.taken, 1);
    if (before == total - 1)
        *(volatile int32_t *)lists.taken = 0;
    return (int)gridDim.x + before;
}

/* Copies a side's tokens for partial tiles with one warp: ints[0 .. TILE) positions, then the values of each
 * table that the mask reads; zeros beyond the tokens. */
template <int TILE, class MASK>
static __device__ __forceinline__ void copy_tokens_warp(uint32_t ints, const BurstTokens &tokens, int first,
                                                        int lane)
{
#pragma unroll
    for (int v = 0; v <= BURST_MAX_TABLES; v++)
        if (v == 0 || MASK::TABLES >> (v - 1) & 1) {
            const int32_t *const from = (v ? tokens.table[v ? v - 1 : 0] : tokens.position) + first;
#pragma unroll 1
            for (int i = lane; i < TILE; i += 32) {
                const bool there = first + i < tokens.n;
                copy4(ints + (uint32_t)(v * TILE + i) * 4, there ? from + i : tokens.position, there);
            }
        }
}

/* ---- wgmma ---- A tile in shared memory is panels of 64 columns as in cuda_attention.cuh. Its descriptor:
 * address, bytes from panel to panel (used if the columns are the operand's long side), 1024 bytes from 8
 * rows to the next 8, 128-byte swizzle. An operand is K-major if its tile's columns are the product's inner
 * dimension: 16 of them are 32 bytes apart, or in the next panel; else it is transposed (TA, TB = 1), and 16
 * rows are 2048 bytes apart. ---- */
static __device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t panel)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(panel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* Descriptor units of the 16 inner columns x of a K-major operand in panels of ROWS rows, and of the 16 rows
 * x of a transposed one. */
template <int ROWS> static __device__ __forceinline__ constexpr uint64_t inner_columns(int x)
{
    return (uint64_t)((x / 4 * ROWS * 128 + x % 4 * 32) >> 4);
}
static __device__ __forceinline__ constexpr uint64_t inner_rows(int x) { return (uint64_t)(x * 2048 >> 4); }

/* Wgmma<N>: d (+)= A B of 64 rows by N columns over 16; d[4j], d[4j + 1] are row lane/4 of the warp's 16,
 * columns 8j + 2 * (lane % 4) (+ 1); d[4j + 2], d[4j + 3] the same of row lane/4 + 8. `registers`: A is four
 * registers of two bf16: d[8i ...] packed in their order for the 16 columns i. add 0: d's old values are not
 * read. */
template <int N> struct Wgmma;
#define BURST_TEN(t) \
    "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define BURST_NAMES_16 BURST_TEN() ",%10,%11,%12,%13,%14,%15"
#define BURST_NAMES_32 BURST_TEN() "," BURST_TEN(1) "," BURST_TEN(2) ",%30,%31"
#define BURST_NAMES_40 BURST_TEN() "," BURST_TEN(1) "," BURST_TEN(2) "," BURST_TEN(3)
#define BURST_NAMES_48 \
    BURST_TEN() "," BURST_TEN(1) "," BURST_TEN(2) "," BURST_TEN(3) ",%40,%41,%42,%43,%44,%45,%46,%47"
#define BURST_NAMES_56 \
    BURST_TEN() \
    "," BURST_TEN(1) "," BURST_TEN(2) "," BURST_TEN(3) "," BURST_TEN(4) ",%50,%51,%52,%53,%54,%55"
#define BURST_NAMES_64 \
    BURST_TEN() \
    "," BURST_TEN(1) "," BURST_TEN(2) "," BURST_TEN(3) "," BURST_TEN(4) "," BURST_TEN(5) ",%60,%61,%62,%63"
#define BURST_NAMES_88 \
    BURST_TEN() \
    "," BURST_TEN(1) "," BURST_TEN(2) "," BURST_TEN(3) "," BURST_TEN(4) "," BURST_TEN(5) "," \
    BURST_TEN(6) "," BURST_TEN(7) ",%80,%81,%82,%83,%84,%85,%86,%87"
#define BURST_NAMES_96 BURST_NAMES_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define BURST_NAMES_128 \
    BURST_NAMES_96 \
        ",%96,%97,%98,%99," BURST_TEN(10) "," BURST_TEN(11) ",%120,%121,%122,%123,%124,%125,%126,%127"
#define BURST_EIGHT(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define BURST_SUMS_16(d) BURST_EIGHT(d, 0), BURST_EIGHT(d, 8)
#define BURST_SUMS_32(d) BURST_SUMS_16(d), BURST_EIGHT(d, 16), BURST_EIGHT(d, 24)
#define BURST_SUMS_40(d) BURST_SUMS_32(d), BURST_EIGHT(d, 32)
#define BURST_SUMS_48(d) BURST_SUMS_40(d), BURST_EIGHT(d, 40)
#define BURST_SUMS_56(d) BURST_SUMS_48(d), BURST_EIGHT(d, 48)
#define BURST_SUMS_64(d) BURST_SUMS_56(d), BURST_EIGHT(d, 56)
#define BURST_SUMS_88(d) BURST_SUMS_64(d), BURST_EIGHT(d, 64), BURST_EIGHT(d, 72), BURST_EIGHT(d, 80)
#define BURST_SUMS_96(d) BURST_SUMS_88(d), BURST_EIGHT(d, 88)
#define BURST_SUMS_128(d) \
    BURST_SUMS_96(d), BURST_EIGHT(d, 96), BURST_EIGHT(d, 104), BURST_EIGHT(d, 112), BURST_EIGHT(d, 120)
/* N, its registers R of d, and the numbers of the operands after them. */
#define BURST_WGMMA(N, R, i0, i1, i2, i3, i4, i5, i6) \
    template <> struct Wgmma<N> { \
        template <int TA, int TB> \
        static __device__ __forceinline__ void shared(float (&d)[R], uint64_t a, uint64_t b, int add) \
        { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" BURST_NAMES_##R \
                         "}, %" #i0 ", %" #i1 ", p, 1, 1, %" #i3 ", %" #i4 ";\n}\n" \
                         : BURST_SUMS_##R(d) \
                         : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB)); \
        } \
        template <int TB> \
        static __device__ __forceinline__ void registers(float (&d)[R], const uint32_t *a, uint64_t b, \
                                                         int add) \
        { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i5 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" BURST_NAMES_##R \
                         "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4 ", p, 1, 1, %" #i6 ";\n}\n" \
                         : BURST_SUMS_##R(d) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB)); \
        } \
    };
BURST_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
BURST_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
BURST_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46)
BURST_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
BURST_WGMMA(112, 56, 56, 57, 58, 59, 60, 61, 62)
BURST_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
BURST_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94)
BURST_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102)
BURST_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)

/* Delimits each batch of products. Ordinary writes of its registers come before `begin`; after `end`,
 * wait<P> leaves the last P batches running. No batch may run across a loop's end, or ptxas waits after
 * every product (C7514, C7515). */
static __device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void products_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> static __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Issues s = A B^T over D columns: 64 rows of a tile of ROWS by the COLUMNS rows of another. */
template <int D, int ROWS, int COLUMNS>
static __device__ __forceinline__ void tile_scores(float (&s)[COLUMNS / 2], uint32_t rows, uint32_t columns)
{
    const uint64_t a = descriptor(rows, 16), b = descriptor(columns, 16);
    products_begin();
#pragma unroll
    for (int x = 0; x < D / 16; x++)
        Wgmma<COLUMNS>::template shared<0, 0>(s, a + inner_columns<ROWS>(x), b + inner_columns<COLUMNS>(x),
                                              x > 0);
    products_end();
}

/* Keeps the compiler from moving uses of d across this point: needed after a wait, and before a batch that
 * adds to d. */
template <int N> static __device__ __forceinline__ void hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* Stores an A fragment (16 rows by 16 columns of two-byte elements) for load_block with lanes "down". */
static __device__ __forceinline__ void store_block(uint32_t address, const uint32_t *a)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a[0]),
                 "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
}

/* Sets -inf where the mask drops a pair or there is no key, in the thread's rows of scores, `row` and row +
 * 8, and all columns. TURNED: rows are keys and columns queries. keys: their number from the tile's first
 * on. */
template <int ROWS, int COLUMNS, class MASK, bool TURNED>
static __device__ __forceinline__ void mask_scores(float (&s)[COLUMNS / 2], const int32_t *row_ints,
                                                   const int32_t *column_ints, int row, int lane, int keys,
                                                   const BurstChosen &chosen, int list)
{
    int32_t row_value[2][BURST_MAX_TABLES];
    token_values<ROWS, MASK>(row_ints, row, row_value[0]);
    token_values<ROWS, MASK>(row_ints, row + 8, row_value[1]);
    const int32_t row_position[2] = {row_ints[row], row_ints[row + 8]};
    const uint32_t bits =
        chosen_bits<MASK, ROWS, COLUMNS, 1, COLUMNS / 16, TURNED>(chosen, list, row_ints + row, column_ints);
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
        if (TURNED)
            not_ahead();
        const int column0 = j * 8 + lane % 4 * 2;
        const int2 both = *(const int2 *)(column_ints + column0);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int32_t value[BURST_MAX_TABLES];
            token_values<COLUMNS, MASK>(column_ints, column0 + e % 2, value);
            const int position = e % 2 ? both.y : both.x, key = TURNED ? row + e / 2 * 8 : column0 + e % 2;
            set_chosen<MASK>(TURNED ? row_value[e / 2] : value, bits, j / 2);
            const bool keep =
                (key < keys) &
                (MASK::ALL ||
                 (TURNED ? MASK::keep(position, row_position[e / 2], value, row_value[e / 2])
                         : MASK::keep(row_position[e / 2], position, row_value[e / 2], value)) != 0);
            s[j * 4 + e] = keep ? s[j * 4 + e] : -CUDART_INF_F;
        }
    }
}

} // namespace burst

/* ---- tensor maps, made on the host for each launch ---- */
typedef CUresult BurstEncode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                             const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                             CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                             CUtensorMapFloatOOBfill);

/* [heads][n][d] of elements of `size` bytes, strides in bytes. A tile is `rows` rows of one head, in
 * `panels` panels of 128 bytes or, if the last panel is not full, a single panel. An empty array's map stays
 * zero and is not loaded from. The driver's function is looked up by name, so that programs need not link
 * its library. */
static cudaError_t burst_tensor_map(CUtensorMap *map, const void *at, int size, int d, int n, int heads,
                                    int64_t row, int64_t head, int rows, int panels)
{
    static BurstEncode *encode;
    const int width = 128 / size, whole = d % width == 0;
    const cuuint64_t extent[4] = {(cuuint64_t)(whole ? width : d), (cuuint64_t)n,
                                  (cuuint64_t)(whole ? d / width : 1), (cuuint64_t)heads};
    const cuuint64_t stride[3] = {(cuuint64_t)row, 128, (cuuint64_t)head};
    const cuuint32_t box[4] = {(cuuint32_t)width, (cuuint32_t)rows, (cuuint32_t)(whole ? panels : 1), 1},
                     step[4] = {1, 1, 1, 1};
    if (n == 0 || heads == 0)
        return cudaSuccess;
    if (!encode) {
        void *function = NULL;
        cudaDriverEntryPointQueryResult found;
        const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &found);
        if (e != cudaSuccess || !function)
            return e != cudaSuccess ? e : cudaErrorNotSupported;
        encode = (BurstEncode *)function;
    }
    return encode(map, size == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4,
                  (void *)(uintptr_t)at, extent, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

static cudaError_t burst_rows_map(CUtensorMap *map, BurstRows x, int d, int n, int heads, int rows)
{
    return burst_tensor_map(map, x.at, 2, d, n, heads, x.row * 2, x.head * 2, rows, d / 64);
}

#endif
