/* experts_sm80.cuh: products by experts' matrices on sm_80: eight warps of 64 lines by 32 columns each
 * (mma.sync), two stages filled by cp.async. */
#ifndef BURST_CUDA_EXPERTS_SM80_CUH
#define BURST_CUDA_EXPERTS_SM80_CUH

#include "cuda/experts/experts.cuh"
#include "kernels/cuda_attention.cuh"

enum {
    EXPERTS_THREADS_80 = 256,
    EXPERTS_TILE_80 = BURST_GPU_EXPERTS_TILE,
    EXPERTS_INNER_80 = 64,
    EXPERTS_STAGES_80 = 2
};
enum { EXPERTS_SIDE_80 = EXPERTS_TILE_80 * EXPERTS_INNER_80 * 2 }; /* bytes of a side's tile */
enum { EXPERTS_BYTES_80 = EXPERTS_STAGES_80 * 2 * EXPERTS_SIDE_80 };

namespace burst {

/* Rows of `wide` elements from row `first` on: the row-th of them is a token's if they are gathered. */
typedef struct ExpertsSide80 {
    const BurstBf16 *at;
    int64_t first;
    int wide, rows;
} ExpertsSide80;

/* Starts the copy of a tile from (row, column) on; zeros beyond the side. BROAD: 64 rows of 128 columns,
 * else 128 rows of 64. */
template <bool BROAD, bool GATHERS>
static __device__ __forceinline__ void copy_side(uint32_t to, const ExpertsSide80 &s, const ExpertsProduct &p,
                                                 int row, int column)
{
    constexpr int UNITS = BROAD ? 16 : 8, STEP = EXPERTS_THREADS_80 / UNITS, ROWS = BROAD ? 64 : 128;
    const int thread = thread_number(), unit = thread % UNITS, r0 = thread / UNITS;
    const int at = column + unit * 8;
#pragma unroll
    for (int i = 0; i < ROWS / STEP; i++) {
        const int r = row + r0 + i * STEP;
        const bool there = r < s.rows && at < s.wide;
        int64_t from = s.first + r;
        if (GATHERS)
            from = r < s.rows ? experts_token(p, p.row[from]) : 0;
        copy16(to + (uint32_t)(unit / 8 * ROWS * 128 + (r0 + i * STEP) * 128 + ((unit % 8 ^ (r0 & 7)) << 4)),
               s.at + (there ? from * s.wide + at : 0), there);
    }
}

template <class F>
static __device__ __forceinline__ void copy_stage(uint32_t stage, const ExpertsSide80 &a,
                                                  const ExpertsSide80 &b, const ExpertsProduct &p, int line,
                                                  int column, int k)
{
    copy_side<F::WEIGHTS, F::GATHERS_A>(stage, a, p, F::WEIGHTS ? k : line, F::WEIGHTS ? line : k);
    copy_side<F::TURNED_B, F::GATHERS_B>(stage + EXPERTS_SIDE_80, b, p, F::TURNED_B ? k : column,
                                         F::TURNED_B ? column : k);
    copies_commit();
}

/* A warp's products of 16 of the stage's inner elements, from x * 16 on. */
template <class F>
static __device__ __forceinline__ void stage_products(float (&sum)[4][4][4], uint32_t stage, int x, int down,
                                                      int across, int lane)
{
    const uint32_t b_lanes = (F::TURNED_B ? lanes_down(lane) : lanes_across(lane)) + stage + EXPERTS_SIDE_80,
                   a_lanes = (F::WEIGHTS ? lanes_across(lane) : lanes_down(lane)) + stage;
    uint32_t b[2][4];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (F::TURNED_B)
            load_block_transposed(b[j], moved<64>(b_lanes, x * 16, across * 32 + j * 16));
        else
            load_block(b[j], moved<128>(b_lanes, across * 32 + j * 16, x * 16));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a[4];
        if (F::WEIGHTS)
            load_block_transposed(a, moved<64>(a_lanes, x * 16, down * 64 + i * 16));
        else
            load_block(a, moved<128>(a_lanes, down * 64 + i * 16, x * 16));
#pragma unroll
        for (int j = 0; j < 4; j++)
            mma(sum[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

/* Writes two elements of a line, or adds them to the gradients: each is added to once a launch. */
template <class F>
static __device__ __forceinline__ void write_two(const ExpertsProduct &p, int64_t line, int column, float x,
                                                 float y)
{
    const int64_t at = line * p.columns + column;
    if constexpr (F::WEIGHTS) {
        float2 *const c = reinterpret_cast<float2 *>((float *)p.c + at);
        const float2 old = *c;
        *c = make_float2(old.x + x, old.y + y);
    } else {
        *reinterpret_cast<uint32_t *>((BurstBf16 *)p.c + at) = pack(x, y);
    }
}

} // namespace burst

template <int FORM>
static __global__ void __launch_bounds__(EXPERTS_THREADS_80, 2)
    burst_experts_kernel_80(const ExpertsProduct p)
{
    using namespace burst;
    using F = ExpertsForm<FORM>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t base = shared_address(shared);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, down = warp / 4, across = warp % 4;
    ExpertsWalk<FORM, EXPERTS_TILE_80, EXPERTS_TILE_80> walk;
    walk.start(p);
    for (int tile = (int)blockIdx.x; walk.seek(p, tile); tile += (int)gridDim.x) {
        const int line = walk.line(tile), column = walk.column(tile), inner = walk.inner(p);
        const ExpertsSide80 a = {p.a, walk.begin, F::WEIGHTS ? p.lines : inner, walk.rows};
        const int rows_b = F::TURNED_B ? inner : p.columns, wide_b = F::TURNED_B ? p.columns : inner;
        const int64_t first_b = F::WEIGHTS ? walk.begin : (int64_t)walk.expert * rows_b;
        const ExpertsSide80 b = {p.b, first_b, wide_b, rows_b};
        float sum[4][4][4] = {};
        copy_stage<F>(base, a, b, p, line, column, 0);
        for (int k = 0, stage = 0; k < inner; k += EXPERTS_INNER_80, stage ^= 1) {
            copies_wait<0>();
            __syncthreads(); /* the stage is here, and the other one has been read */
            if (k + EXPERTS_INNER_80 < inner)
                copy_stage<F>(base + (uint32_t)((stage ^ 1) * 2 * EXPERTS_SIDE_80), a, b, p, line, column,
                              k + EXPERTS_INNER_80);
#pragma unroll
            for (int x = 0; x < EXPERTS_INNER_80 / 16; x++, not_ahead())
                stage_products<F>(sum, base + (uint32_t)(stage * 2 * EXPERTS_SIDE_80), x, down, across, lane);
        }
        __syncthreads();
        const int lines = F::WEIGHTS ? p.lines : walk.rows;
        const int64_t first = F::WEIGHTS ? (int64_t)walk.expert * p.lines : walk.begin;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int l = line + down * 64 + i * 16 + half * 8 + lane / 4,
                              c = column + across * 32 + j * 8 + lane % 4 * 2;
                    if (l < lines && c < p.columns)
                        write_two<F>(p, first + l, c, sum[i][j][half * 2], sum[i][j][half * 2 + 1]);
                }
    }
}

template <int FORM>
static cudaError_t experts_launch_80(const ExpertsProduct &p, int multiprocessors, cudaStream_t stream)
{
    const cudaError_t e = cudaFuncSetAttribute(burst_experts_kernel_80<FORM>,
                                               cudaFuncAttributeMaxDynamicSharedMemorySize, EXPERTS_BYTES_80);
    if (e != cudaSuccess)
        return e;
    burst_experts_kernel_80<FORM><<<2 * multiprocessors, EXPERTS_THREADS_80, EXPERTS_BYTES_80, stream>>>(p);
    return cudaGetLastError();
}

#endif
