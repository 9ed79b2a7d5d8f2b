/* experts_sm90.cuh: products by experts' matrices on sm_90a: a producer warpgroup fills a ring of stages, two
 * consumer warpgroups multiply 64 lines each (wgmma). The copy engine loads what is contiguous; rows of
 * tokens are gathered by cp.async, a warpgroup's threads eight to a row. */
#ifndef BURST_CUDA_EXPERTS_SM90_CUH
#define BURST_CUDA_EXPERTS_SM90_CUH

#include "cuda/experts/experts.cuh"
#include "kernels/sm90/cuda_hopper.cuh"

/* whole: a side's columns are whole panels, which one instruction loads. */
typedef struct ExpertsLaunch {
    CUtensorMap a, b; /* of what is not gathered */
    ExpertsProduct p;
    int whole_a, whole_b;
} ExpertsLaunch;

template <int FORM, int N> struct ExpertsLayout : ExpertsForm<FORM> {
    using F = ExpertsForm<FORM>;
    static constexpr int BM = BURST_GPU_EXPERTS_TILE, BN = N, BK = 64, THREADS = 384;
    static constexpr int A = 0, B = BM * 128, STAGE = (BM + BN) * 128; /* bytes */
    static constexpr int STAGES = 4 + (256 - BN) / 64;
    static constexpr int OUT = STAGES * STAGE; /* 16 rows of 64 columns for each warp of the consumers */
    static constexpr int FULL = OUT + 8 * 2048, EMPTY = FULL + STAGES * 8;
    static constexpr int TILE = EMPTY + STAGES * 8; /* the numbers of this tile and the next */
    static constexpr int TILE_FULL = TILE + 16, TILE_EMPTY = TILE_FULL + 16, BYTES = TILE_EMPTY + 16;
    static constexpr bool GATHERS = F::GATHERS_A || F::GATHERS_B;
    static constexpr int LATE = 2; /* stages whose gathered rows are still in flight */
    static_assert(BYTES <= 227 * 1024 && LATE < STAGES, "shared memory of a block");
    static constexpr int ENGINE_BYTES = (F::GATHERS_A ? 0 : BM * 128) + (F::GATHERS_B ? 0 : BN * 128);
};

namespace burst {

/* Loads ROWS rows of PANELS panels of 64 columns, and zeros beyond the map. */
template <int ROWS, int PANELS>
static __device__ __forceinline__ void load_panels(uint32_t to, const CUtensorMap *map, int row, int column,
                                                   bool whole, uint32_t barrier)
{
#pragma unroll
    for (int i = 0; i < PANELS; i++) {
        const int c0 = whole ? 0 : column + i * 64, c2 = whole ? column / 64 : 0;
        if (i == 0 || !whole)
            asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                         "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(to + (uint32_t)(i * ROWS * 128)),
                         "l"(map), "r"(c0), "r"(row), "r"(c2), "r"(0), "r"(barrier)
                         : "memory");
    }
}

/* What the copy engine brings of a step, at `k` of the sum. */
template <class L, class WALK>
static __device__ __forceinline__ void load_step(const ExpertsLaunch &a, const WALK &walk, uint32_t stage,
                                                 int line, int column, int k, uint32_t barrier)
{
    barrier_expect(barrier, L::ENGINE_BYTES);
    if constexpr (!L::GATHERS_A && L::WEIGHTS)
        load_panels<L::BK, L::BM / 64>(stage + L::A, &a.a, walk.begin + k, line, a.whole_a, barrier);
    else if constexpr (!L::GATHERS_A)
        load_panels<L::BM, 1>(stage + L::A, &a.a, walk.begin + line, k, a.whole_a, barrier);
    if constexpr (!L::GATHERS_B && L::WEIGHTS)
        load_panels<L::BK, L::BN / 64>(stage + L::B, &a.b, walk.begin + k, column, a.whole_b, barrier);
    else if constexpr (L::TURNED_B && !L::WEIGHTS)
        load_panels<L::BK, L::BN / 64>(stage + L::B, &a.b, walk.expert * a.p.inner + k, column, a.whole_b,
                                       barrier);
    else if constexpr (!L::WEIGHTS)
        load_panels<L::BN, 1>(stage + L::B, &a.b, walk.expert * a.p.columns + column, k, a.whole_b, barrier);
}

/* ---- tiles: the first thread asks for the next one while this one is loaded, and tells all others ---- */
template <class L> struct TileQueue {
    uint32_t base;
    Stage<2> at;

    __device__ __forceinline__ void put(int tile)
    {
        barrier_wait(base + L::TILE_EMPTY + at.at * 8, at.parity ^ 1);
        asm volatile("st.shared.s32 [%0], %1;" ::"r"(base + L::TILE + at.at * 8), "r"(tile) : "memory");
        barrier_arrive(base + L::TILE_FULL + at.at * 8);
        at.next();
    }
    __device__ __forceinline__ int take(int lane)
    {
        int tile;
        barrier_wait(base + L::TILE_FULL + at.at * 8, at.parity);
        asm volatile("ld.shared.s32 %0, [%1];" : "=r"(tile) : "r"(base + L::TILE + at.at * 8) : "memory");
        __syncwarp();
        warp_arrive(base + L::TILE_EMPTY + at.at * 8, lane);
        at.next();
        return tile;
    }
};

static __device__ __forceinline__ int next_tile(const ExpertsProduct &p)
{
    return (int)gridDim.x + atomicAdd(p.taken, 1);
}

/* ---- producer ---- */

/* Of rows that are all contiguous: one thread. */
template <class L, class WALK>
static __device__ __forceinline__ void experts_produce(const ExpertsLaunch &a, uint32_t base)
{
    Stage<L::STAGES> stage = {0, 0};
    TileQueue<L> queue = {base, {0, 0}};
    WALK walk;
    walk.start(a.p);
    for (int tile = (int)blockIdx.x;;) {
        queue.put(tile);
        if (!walk.seek(a.p, tile))
            return;
        const int line = walk.line(tile), column = walk.column(tile), inner = walk.inner(a.p);
        tile = next_tile(a.p);
        for (int k = 0; k < inner; k += L::BK, stage.next()) {
            barrier_wait(base + L::EMPTY + stage.at * 8, stage.parity ^ 1);
            load_step<L>(a, walk, base + (uint32_t)(stage.at * L::STAGE), line, column, k,
                         base + L::FULL + stage.at * 8);
        }
    }
}

/* A thread of the gathering warpgroup has the 16 bytes at `unit` of a panel, of rows row, row + 16, ... */
template <class L> struct Gatherer {
    const ExpertsLaunch &a;
    uint32_t base, to; /* to: of its first row in a panel */
    int lane, unit, row, late;
    Stage<L::STAGES> stage, done;

    __device__ __forceinline__ void take_stage()
    {
        barrier_wait(base + L::EMPTY + stage.at * 8, stage.parity ^ 1);
    }
    /* The oldest stage in flight has arrived. */
    template <int PENDING> __device__ __forceinline__ void arrived()
    {
        copies_wait<PENDING>();
        stored_for_engines();
        __syncwarp();
        warp_arrive(base + L::FULL + done.at * 8, lane);
        done.next(), late--;
    }
    __device__ __forceinline__ void requested()
    {
        copies_commit();
        stage.next();
        if (++late > L::LATE)
            arrived<L::LATE>();
    }
    __device__ __forceinline__ void finish()
    {
        copies_wait<0>();
        while (late)
            arrived<0>();
    }
};

/* Rows of a tile: each of BM lines is a token's. */
template <class L, class WALK>
static __device__ __forceinline__ void gather_lines(Gatherer<L> &g, const WALK &walk, int line, int column)
{
    const ExpertsProduct &p = g.a.p;
    const BurstBf16 *from[L::BM / 16];
    uint32_t there = 0;
#pragma unroll
    for (int i = 0; i < L::BM / 16; i++) {
        const int r = line + g.row + i * 16;
        const bool is = r < walk.rows;
        from[i] = p.a + (is ? experts_token(p, p.row[walk.begin + r]) * p.inner : 0) + g.unit * 8;
        there |= (uint32_t)is << i;
    }
    for (int k = 0; k < p.inner; k += L::BK) {
        const uint32_t stage = g.base + (uint32_t)(g.stage.at * L::STAGE), to = stage + L::A + g.to;
        g.take_stage();
        if (threadIdx.x == 0)
            load_step<L>(g.a, walk, stage, line, column, k, g.base + L::FULL + g.stage.at * 8);
        const bool inside = k + g.unit * 8 < p.inner;
#pragma unroll
        for (int i = 0; i < L::BM / 16; i++)
            copy16(to + (uint32_t)(i * 16 * 128), from[i] + k, (there >> i & 1) && inside);
        g.requested();
    }
}

/* Rows of a step: each of BK is a token's, `wide` columns of it from `at` on. Rows beyond the expert's are
 * zeros, so that the other side's, which are the next expert's, add nothing. */
template <class L, class WALK>
static __device__ __forceinline__ void gather_inner(Gatherer<L> &g, const WALK &walk, int line, int column)
{
    const ExpertsProduct &p = g.a.p;
    constexpr int PANELS = (L::GATHERS_A ? L::BM : L::BN) / 64, ROWS = L::BK / 16;
    const int width = L::GATHERS_A ? p.lines : p.columns, at = (L::GATHERS_A ? line : column) + g.unit * 8;
    const BurstBf16 *const side = (L::GATHERS_A ? p.a : p.b) + at;
    const int32_t *const row = p.row + walk.begin;
    int32_t next[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        next[i] = g.row + i * 16 < walk.rows ? row[g.row + i * 16] : -1;
    for (int k = 0; k < walk.rows; k += L::BK) {
        const uint32_t stage = g.base + (uint32_t)(g.stage.at * L::STAGE),
                       to = stage + (L::GATHERS_A ? L::A : L::B) + g.to;
        const BurstBf16 *from[ROWS];
        uint32_t there = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int r = k + L::BK + g.row + i * 16;
            from[i] = side + (next[i] < 0 ? 0 : experts_token(p, next[i]) * width);
            there |= (uint32_t)(next[i] >= 0) << i;
            next[i] = r < walk.rows ? row[r] : -1;
        }
        g.take_stage();
        if (threadIdx.x == 0)
            load_step<L>(g.a, walk, stage, line, column, k, g.base + L::FULL + g.stage.at * 8);
#pragma unroll
        for (int j = 0; j < PANELS; j++)
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                copy16(to + (uint32_t)(j * L::BK * 128 + i * 16 * 128), from[i] + j * 64,
                       (there >> i & 1) && at + j * 64 < width);
        g.requested();
    }
}

template <class L, class WALK>
static __device__ __forceinline__ void experts_gather(const ExpertsLaunch &a, uint32_t base)
{
    const int thread = (int)threadIdx.x, unit = thread % 8, row = thread / 8;
    Gatherer<L> g = {a,           base,   (uint32_t)(row * 128 + ((unit ^ (row & 7)) << 4)),
                     thread % 32, unit,   row,
                     0,           {0, 0}, {0, 0}};
    TileQueue<L> puts = {base, {0, 0}}, takes = puts;
    WALK walk;
    walk.start(a.p);
    for (int next = (int)blockIdx.x;;) {
        if (thread == 0)
            puts.put(next);
        const int tile = takes.take(g.lane);
        if (!walk.seek(a.p, tile))
            break;
        if (thread == 0)
            next = next_tile(a.p);
        if constexpr (L::WEIGHTS)
            gather_inner<L>(g, walk, walk.line(tile), walk.column(tile));
        else
            gather_lines<L>(g, walk, walk.line(tile), walk.column(tile));
    }
    g.finish();
}

/* ---- consumers ---- */

template <class L>
static __device__ __forceinline__ void step_products(float (&sum)[L::BN / 2], uint32_t stage, int me,
                                                     bool add)
{
    const uint64_t a = descriptor(stage + L::A + (uint32_t)(me * 64 * 128), 16),
                   b = descriptor(stage + L::B, L::TURNED_B ? L::BK * 128 : 16);
    products_begin();
#pragma unroll
    for (int x = 0; x < L::BK / 16; x++)
        Wgmma<L::BN>::template shared<L::WEIGHTS, L::TURNED_B>(
            sum, a + (L::WEIGHTS ? inner_rows(x) : inner_columns<L::BM>(x)),
            b + (L::TURNED_B ? inner_rows(x) : inner_columns<L::BN>(x)), x > 0 || add);
    products_end();
}

/* A warp's 16 rows, rounded, 64 columns at a time by way of shared memory, so that a row is written in
 * whole lines. */
template <class L>
static __device__ __forceinline__ void write_rows(float (&sum)[L::BN / 2], const ExpertsProduct &p,
                                                  uint32_t out, int64_t first, int rows, int column, int lane)
{
    BurstBf16 *const c = (BurstBf16 *)p.c;
    const int unit = lane % 8;
    const uint32_t in = out + lanes_down(lane);
#pragma unroll
    for (int panel = 0; panel < L::BN / 64; panel++) {
        __syncwarp();
#pragma unroll
        for (int x = 0; x < 4; x++) {
            const float *const d = sum + panel * 32 + x * 8;
            const uint32_t block[4] = {pack(d[0], d[1]), pack(d[2], d[3]), pack(d[4], d[5]),
                                       pack(d[6], d[7])};
            store_block(in ^ (uint32_t)(x * 32), block);
        }
        __syncwarp();
        const int at = column + panel * 64 + unit * 8;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = i * 4 + lane / 8;
            uint4 bits;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                         : "r"(out + (uint32_t)(r * 128 + ((unit ^ (r & 7)) << 4))));
            if (r < rows && at < p.columns)
                *reinterpret_cast<uint4 *>(c + (first + r) * p.columns + at) = bits;
        }
    }
}

/* Adds a warp's 16 lines to the gradients, 32 columns at a time by way of shared memory, so that a line is
 * added to in whole lines of the cache. Each element is added to once a launch. */
template <class L>
static __device__ __forceinline__ void add_lines(float (&sum)[L::BN / 2], const ExpertsProduct &p,
                                                 uint32_t out, int64_t first, int lines, int column, int lane)
{
    float *const c = (float *)p.c;
    const int unit = lane % 8, own = lane / 4, turn = (own & 3) << 1 | own >> 2; /* without bank conflicts */
#pragma unroll
    for (int block = 0; block < L::BN / 32; block++) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(
                                 out + (uint32_t)((own + half * 8) * 128 +
                                                  (((j * 2 + lane % 4 / 2) ^ turn) << 4) + lane % 2 * 8)),
                             "f"(sum[block * 16 + j * 4 + half * 2]),
                             "f"(sum[block * 16 + j * 4 + half * 2 + 1])
                             : "memory");
        __syncwarp();
        const int at = column + block * 32 + unit * 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = i * 4 + lane / 8, of = (r & 3) << 1 | (r >> 2 & 1);
            float4 x;
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                         : "r"(out + (uint32_t)(r * 128 + ((unit ^ of) << 4))));
            if (r < lines && at < p.columns)
                asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                                 c + (first + r) * p.columns + at),
                             "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                             : "memory");
        }
    }
}

template <class L, class WALK>
static __device__ __forceinline__ void experts_consume(const ExpertsLaunch &a, uint32_t base, int me)
{
    const ExpertsProduct &p = a.p;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32;
    const uint32_t out = base + L::OUT + (uint32_t)((me * 4 + warp) * 2048);
    Stage<L::STAGES> stage = {0, 0};
    TileQueue<L> queue = {base, {0, 0}};
    WALK walk;
    walk.start(p);
    for (int tile; walk.seek(p, tile = queue.take(lane));) {
        const int line = walk.line(tile) + me * 64 + warp * 16, column = walk.column(tile);
        const int inner = walk.inner(p);
        float sum[L::BN / 2];
        int last = 0;
        for (int k = 0; k < inner; k += L::BK, stage.next()) {
            barrier_wait(base + L::FULL + stage.at * 8, stage.parity);
            step_products<L>(sum, base + (uint32_t)(stage.at * L::STAGE), me, k > 0);
            products_wait<1>();
            if (k > 0) {
                __syncwarp();
                warp_arrive(base + L::EMPTY + last * 8, lane);
            }
            last = stage.at;
        }
        products_wait<0>();
        hold(sum);
        __syncwarp();
        warp_arrive(base + L::EMPTY + last * 8, lane);
        if constexpr (L::WEIGHTS)
            add_lines<L>(sum, p, out, (int64_t)walk.expert * p.lines + line, p.lines - line, column, lane);
        else
            write_rows<L>(sum, p, out, (int64_t)walk.begin + line, walk.rows - line, column, lane);
    }
}

} // namespace burst

template <int FORM, int BN>
static __global__ void __launch_bounds__(ExpertsLayout<FORM, BN>::THREADS, 1)
    burst_experts_kernel(const __grid_constant__ ExpertsLaunch a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using namespace burst;
    using L = ExpertsLayout<FORM, BN>;
    using Walk = ExpertsWalk<FORM, L::BM, BN>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t base = shared_address(shared);
    const int warpgroup = group_number<128>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < L::STAGES; i++) {
            barrier_make(base + L::FULL + i * 8, (L::GATHERS ? 4 * WARP : 0) + 1);
            barrier_make(base + L::EMPTY + i * 8, 8 * WARP);
        }
        for (int i = 0; i < 2; i++) {
            barrier_make(base + L::TILE_FULL + i * 8, 1);
            barrier_make(base + L::TILE_EMPTY + i * 8, (8 + (L::GATHERS ? 4 : 0)) * WARP);
        }
        barriers_made();
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_down<72>();
        if constexpr (L::GATHERS)
            experts_gather<L, Walk>(a, base);
        else if (threadIdx.x == 0)
            experts_produce<L, Walk>(a, base);
    } else {
        registers_up<216>();
        experts_consume<L, Walk>(a, base, warpgroup - 1);
    }
#endif
}

/* Launches it. rows_a, rows_b: of the whole arrays that the copy engine reads. */
template <int FORM, int BN>
static cudaError_t experts_launch_90(const ExpertsProduct &p, int rows_a, int rows_b, int multiprocessors,
                                     cudaStream_t stream)
{
    using L = ExpertsLayout<FORM, BN>;
    ExpertsLaunch a;
    memset(&a, 0, sizeof a);
    a.p = p;
    const int wide_a = L::WEIGHTS ? p.lines : p.inner, wide_b = L::TURNED_B ? p.columns : p.inner;
    a.whole_a = wide_a % 64 == 0, a.whole_b = wide_b % 64 == 0;
    cudaError_t e = cudaFuncSetAttribute(burst_experts_kernel<FORM, BN>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, L::BYTES);
    if (e == cudaSuccess && !L::GATHERS_A)
        e = burst_tensor_map(&a.a, p.a, 2, wide_a, rows_a, 1, (int64_t)wide_a * 2, (int64_t)wide_a * 2,
                             L::WEIGHTS ? L::BK : L::BM, L::WEIGHTS ? L::BM / 64 : 1);
    if (e == cudaSuccess && !L::GATHERS_B)
        e = burst_tensor_map(&a.b, p.b, 2, wide_b, rows_b, 1, (int64_t)wide_b * 2, (int64_t)wide_b * 2,
                             L::TURNED_B ? L::BK : L::BN, L::TURNED_B ? L::BN / 64 : 1);
    if (e != cudaSuccess)
        return e;
    e = cudaMemsetAsync(p.taken, 0, sizeof *p.taken, stream);
    if (e != cudaSuccess)
        return e;
    burst_experts_kernel<FORM, BN><<<multiprocessors, L::THREADS, L::BYTES, stream>>>(a);
    return cudaGetLastError();
}

#endif
