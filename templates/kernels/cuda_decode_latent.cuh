/* cuda_decode_latent.cuh: attention of one token with a cache of latents (multi-head latent attention:
 * DeepSeek-V2, arXiv 2405.04434, section 2.1). A token's row has its latent, which is all heads' value, and
 * the elements that all heads' keys share. So a head's query is multiplied by the weights of its keys first,
 * and the output of latents by those of its values last.
 *
 * A block has 16 heads, and a tile of rows in shared memory: a warp has the scores of eight rows, then some
 * columns of the latents with the weights of all rows. Blocks take tiles in turn, and their parts are merged
 * as those of cuda_decode.cuh. */
#ifndef CUDA_DECODE_LATENT_CUH
#define CUDA_DECODE_LATENT_CUH

#include "cuda_decode.cuh"

namespace burst {

enum { LATENT_WARPS = 8, LATENT_HEADS = 16 };

/* Sizes of a block. WIDE: columns in shared memory, zeros after the row; PITCH: bytes from a row to the next,
 * so that eight rows are in different banks. */
template <int LATENT, int SHARED> struct LatentShape {
    static constexpr int ROW = LATENT + SHARED, WIDE = (ROW + 31) / 32 * 32, PITCH = 2 * (WIDE + 8),
                         KEYS = burst_latent_keys(ROW),
                         TILES = (LATENT / 8 + LATENT_WARPS - 1) / LATENT_WARPS, SCORES = KEYS + 4,
                         BYTES = burst_latent_block_bytes(ROW);
    static_assert(BYTES <= BURST_BLOCK_BYTES, "a block has no more shared memory");
};

/* Copies rows of the cache to shared memory; rows after the last become zeros. */
template <class S, int LATENT, int SHARED>
static __device__ __forceinline__ void latent_tile(const BurstDecode &d, uint32_t tile, int row, int rows)
{
    constexpr int VECTORS = S::ROW / 8;
    for (int i = threadIdx.x; i < S::KEYS * VECTORS; i += 32 * LATENT_WARPS) {
        const int key = i / VECTORS, vector = i % VECTORS;
        const int64_t from = row + key < rows ? row + key : 0;
        const __nv_bfloat16 *at = vector < LATENT / 8 ? d.k + from * LATENT + 8 * vector
                                                      : d.v + from * SHARED + (8 * vector - LATENT);
        copy16(tile + (uint32_t)(key * S::PITCH + 16 * vector), at, row + key < rows);
    }
    copies_commit();
}

/* The block's queries and what follows the rows of a tile. */
template <class S>
static __device__ __forceinline__ void latent_begin(const __nv_bfloat16 *q, int count, unsigned char *queries,
                                                    unsigned char *tile)
{
    constexpr int VECTORS = S::WIDE / 8, ROW = S::ROW / 8, AFTER = VECTORS - ROW, EACH = AFTER ? AFTER : 1;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    for (int i = threadIdx.x; i < LATENT_HEADS * VECTORS; i += 32 * LATENT_WARPS) {
        const int head = i / VECTORS, vector = i % VECTORS;
        const bool there = head < count && vector < ROW;
        *(uint4 *)(queries + head * S::PITCH +
                   16 * vector) = there ? *(const uint4 *)(q + head * S::ROW + 8 * vector) : zero;
    }
    for (int i = threadIdx.x; i < S::KEYS * AFTER; i += 32 * LATENT_WARPS)
        *(uint4 *)(tile + i / EACH * S::PITCH + 16 * (ROW + i % EACH)) = zero;
}

/* Scores of 16 heads with eight rows, times log2(e); what is not seen has none. */
template <class S>
static __device__ __forceinline__ void latent_scores(uint32_t queries, uint32_t tile, const uint8_t *seen,
                                                     int first, float scale, float *score)
{
    const int lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const uint32_t a_at = queries + (uint32_t)((lane & 15) * S::PITCH + (lane >> 4) * 16),
                   b_at = tile + (uint32_t)((first + (lane & 7)) * S::PITCH + (lane >> 3) * 16);
    float s[2][4] = {};
#pragma unroll 6
    for (int c = 0; c < S::WIDE / 32; c++) {
        uint32_t a[2][4], b[4];
        load_block(a[0], a_at + (uint32_t)(64 * c));
        load_block(a[1], a_at + (uint32_t)(64 * c + 32));
        load_block(b, b_at + (uint32_t)(64 * c));
        mma(s[0], a[0], b[0], b[1]);
        mma(s[1], a[1], b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int key = first + 2 * j + i % 2;
        score[(g + i / 2 * 8) * S::SCORES + key] = seen[key] ? decode_score(s[0][i] + s[1][i], scale)
                                                             : -CUDART_INF_F;
    }
}

/* A warp's columns of the latents: o[t] of eight; lanes have rows lane / 4 and lane / 4 + 8. */
template <class S, int LATENT> struct LatentOutput {
    float o[S::TILES][4], most[2], sum[2];

    __device__ __forceinline__ void begin()
    {
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
            o[t][0] = o[t][1] = o[t][2] = o[t][3] = 0;
        most[0] = most[1] = -CUDART_INF_F;
        sum[0] = sum[1] = 0;
    }

    /* The tile's weights, as fragments of a product with its rows. Every warp has all of them. */
    __device__ __forceinline__ void weigh(const float *score, uint32_t (&p)[S::KEYS / 16][4])
    {
        const int lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float *row = score + (g + 8 * h) * S::SCORES + 2 * j;
            float2 x[S::KEYS / 8];
            float top = most[h], base, less, all = 0;
#pragma unroll
            for (int i = 0; i < S::KEYS / 8; i++) {
                x[i] = *(const float2 *)(row + 8 * i);
                top = fmaxf(top, fmaxf(x[i].x, x[i].y));
            }
            top = most_of_row(top);
            base = top == -CUDART_INF_F ? 0 : top;
            less = exp2_fast(most[h] - base);
            most[h] = top;
#pragma unroll
            for (int i = 0; i < S::KEYS / 8; i++) {
                x[i].x = exp2_fast(x[i].x - base), x[i].y = exp2_fast(x[i].y - base);
                all += x[i].x + x[i].y;
                p[i / 2][i % 2 * 2 + h] = pack(x[i].x, x[i].y);
            }
            sum[h] = sum[h] * less + all;
#pragma unroll
            for (int t = 0; t < S::TILES; t++)
                o[t][2 * h] *= less, o[t][2 * h + 1] *= less;
        }
    }

    __device__ __forceinline__ void add(uint32_t tile, const uint32_t (&p)[S::KEYS / 16][4])
    {
        const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * S::TILES;
        const uint32_t at = tile + (uint32_t)((lane & 15) * S::PITCH + (lane >> 4) * 16);
#pragma unroll
        for (int t = 0; t < S::TILES; t += 2) {
            if (first + t >= LATENT / 8)
                break;
#pragma unroll
            for (int k = 0; k < S::KEYS / 16; k++) {
                uint32_t b[4];
                load_block_transposed(b, at + (uint32_t)(16 * k * S::PITCH + 16 * (first + t)));
                mma(o[t], p[k], b[0], b[1]);
                if (t + 1 < S::TILES)
                    mma(o[t + 1 < S::TILES ? t + 1 : t], p[k], b[2], b[3]);
            }
        }
    }

    /* part: of the block's first head. */
    __device__ __forceinline__ void write(int count, float *part)
    {
        constexpr int ROW = DecodeShape<LATENT>::ROW;
        const int lane = threadIdx.x % 32, g = lane / 4, j = lane % 4, first = threadIdx.x / 32 * S::TILES;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float all = sum_of_row(sum[h]), less = all > 0 ? 1 / all : 0;
            float *to = part + (g + 8 * h) * ROW;
            if (g + 8 * h >= count)
                continue;
#pragma unroll
            for (int t = 0; t < S::TILES; t++)
                if (first + t < LATENT / 8)
                    *(float2 *)(to + 8 * (first + t) + 2 * j) = make_float2(less * o[t][2 * h],
                                                                            less * o[t][2 * h + 1]);
            if (threadIdx.x < 32 && j == 0)
                to[LATENT] = all > 0 ? (most[h] + log2f(all)) * 0.69314718055994530942f : -CUDART_INF_F;
        }
    }
};

/* Grid: splits, groups of 16 heads. d: k [rows][LATENT], v [rows][SHARED], q [heads][LATENT + SHARED]. */
template <int LATENT, int SHARED, int HEADS, class MASK>
static __global__ void __launch_bounds__(32 * LATENT_WARPS, 2) burst_decode_latent_kernel(BurstDecode d)
{
    using S = LatentShape<LATENT, SHARED>;
    extern __shared__ __align__(16) unsigned char room[];
    unsigned char *queries = room, *tile = queries + LATENT_HEADS * S::PITCH;
    float *score = (float *)(void *)(tile + S::KEYS * S::PITCH);
    uint8_t *seen = (uint8_t *)(score + LATENT_HEADS * S::SCORES);
    const int head = blockIdx.y * LATENT_HEADS, left = HEADS - head,
              count = left < LATENT_HEADS ? left : LATENT_HEADS;
    decode_turn();
    const BurstRunning running = *d.running;
    const int kept = d.kept[1], rows = kept + (running.more + d.ranks - d.rank) / d.ranks;
    LatentOutput<S, LATENT> out;
    out.begin();
    latent_begin<S>(d.q + head * S::ROW, count, queries, tile);
    for (int row = blockIdx.x * S::KEYS; row < rows; row += (int)gridDim.x * S::KEYS) {
        const bool sees = threadIdx.x < S::KEYS &&
                          decode_sees<MASK>(d, running, row + threadIdx.x, kept, rows);
        if (threadIdx.x < S::KEYS)
            seen[threadIdx.x] = sees;
        if (!__syncthreads_or(sees))
            continue;
        latent_tile<S, LATENT, SHARED>(d, shared_address(tile), row, rows);
        copies_wait<0>();
        __syncthreads();
        for (int first = threadIdx.x / 32 * 8; first < S::KEYS; first += 8 * LATENT_WARPS)
            latent_scores<S>(shared_address(queries), shared_address(tile), seen, first, d.scale, score);
        __syncthreads();
        uint32_t p[S::KEYS / 16][4];
        out.weigh(score, p);
        out.add(shared_address(tile), p);
        __syncthreads();
    }
    out.write(count, d.parts + ((int64_t)blockIdx.x * HEADS + head) * DecodeShape<LATENT>::ROW);
}

enum { LATENT_COLUMNS = 64, LATENT_GROUPS = 32 };

/* to [heads][LATENT + SHARED]: a head's own elements times the weights of its keys, [OWN][LATENT], and the
 * elements that it shares. Grid: heads, each LATENT_COLUMNS of a latent; a group of threads takes every 32nd
 * row. */
template <int LATENT, int SHARED, int OWN>
static __global__ void __launch_bounds__(8 * LATENT_GROUPS)
    burst_latent_query_kernel(const __nv_bfloat16 *q, const __nv_bfloat16 *weight, __nv_bfloat16 *to)
{
    __shared__ float part[LATENT_GROUPS][LATENT_COLUMNS];
    const int head = blockIdx.x, lane = threadIdx.x % 8, group = threadIdx.x / 8,
              column = blockIdx.y * LATENT_COLUMNS + 8 * lane;
    const __nv_bfloat16 *own = q + head * (OWN + SHARED);
    float sum[8] = {};
    decode_turn();
    for (int i = group; i < OWN && column < LATENT; i += LATENT_GROUPS) {
        const uint4 w = *(const uint4 *)(weight + ((int64_t)head * OWN + i) * LATENT + column);
        const uint32_t x[4] = {w.x, w.y, w.z, w.w};
        const float factor = __bfloat162float(own[i]);
#pragma unroll
        for (int c = 0; c < 8; c++)
            sum[c] += factor * __uint_as_float(c % 2 ? x[c / 2] & 0xffff0000u : x[c / 2] << 16);
    }
#pragma unroll
    for (int c = 0; c < 8; c++)
        part[group][8 * lane + c] = sum[c];
    __syncthreads();
    const int at = blockIdx.y * LATENT_COLUMNS + threadIdx.x;
    if (threadIdx.x < LATENT_COLUMNS && at < LATENT) {
        float all = 0;
        for (int i = 0; i < LATENT_GROUPS; i++)
            all += part[i][threadIdx.x];
        to[head * (LATENT + SHARED) + at] = __float2bfloat16(all);
    }
    for (int i = threadIdx.x; i < SHARED && blockIdx.y == 0; i += 8 * LATENT_GROUPS)
        to[head * (LATENT + SHARED) + LATENT + i] = own[OWN + i];
}

/* o [heads][VALUE] of the output of latents, [heads][LATENT], and the weights of values,
 * [heads][VALUE][LATENT]: a warp an element. */
template <int LATENT, int VALUE>
static __global__ void __launch_bounds__(256)
    burst_latent_value_kernel(const __nv_bfloat16 *latent, const __nv_bfloat16 *weight, __nv_bfloat16 *o)
{
    const int at = blockIdx.y * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * VALUE + at;
    float sum = 0;
    decode_turn();
    for (int i = 8 * lane; i < LATENT && at < VALUE; i += 256) {
        const uint4 w = *(const uint4 *)(weight + row * LATENT + i),
                    l = *(const uint4 *)(latent + blockIdx.x * LATENT + i);
        const uint32_t x[4] = {w.x, w.y, w.z, w.w}, y[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
        for (int c = 0; c < 4; c++) {
            sum += __uint_as_float(x[c] << 16) * __uint_as_float(y[c] << 16);
            sum += __uint_as_float(x[c] & 0xffff0000u) * __uint_as_float(y[c] & 0xffff0000u);
        }
    }
#pragma unroll
    for (int i = 16; i; i /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, i);
    if (lane == 0 && at < VALUE)
        o[row] = __float2bfloat16(sum);
}

} /* namespace burst */

/* Once before launches. */
template <int LATENT, int SHARED, int HEADS, class MASK>
static inline cudaError_t burst_decode_latent_setup(void)
{
    return cudaFuncSetAttribute(burst::burst_decode_latent_kernel<LATENT, SHARED, HEADS, MASK>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                burst::LatentShape<LATENT, SHARED>::BYTES);
}

/* d->parts: [burst_latent_splits][heads][burst_decode_row(LATENT)]. */
template <int LATENT, int SHARED, int HEADS, class MASK>
static inline cudaError_t burst_decode_latent(const BurstDecode *d, cudaStream_t stream)
{
    const dim3 grid((unsigned)burst_latent_splits(HEADS), (unsigned)burst_latent_groups(HEADS));
    return burst::decode_launch_with(burst::burst_decode_latent_kernel<LATENT, SHARED, HEADS, MASK>, grid,
                                     32 * burst::LATENT_WARPS, burst::LatentShape<LATENT, SHARED>::BYTES,
                                     stream, *d);
}

/* q [heads][OWN + SHARED] to [heads][LATENT + SHARED]. */
template <int LATENT, int SHARED, int OWN>
static inline cudaError_t burst_latent_query(int heads, const __nv_bfloat16 *q, const __nv_bfloat16 *weight,
                                             __nv_bfloat16 *to, cudaStream_t stream)
{
    const dim3 grid((unsigned)heads, (LATENT + burst::LATENT_COLUMNS - 1) / burst::LATENT_COLUMNS);
    return burst::decode_launch(burst::burst_latent_query_kernel<LATENT, SHARED, OWN>, grid,
                                8 * burst::LATENT_GROUPS, stream, q, weight, to);
}

template <int LATENT, int VALUE>
static inline cudaError_t burst_latent_value(int heads, const __nv_bfloat16 *latent,
                                             const __nv_bfloat16 *weight, __nv_bfloat16 *o,
                                             cudaStream_t stream)
{
    return burst::decode_launch(burst::burst_latent_value_kernel<LATENT, VALUE>,
                                dim3((unsigned)heads, (VALUE + 7) / 8), 256, stream, latent, weight, o);
}

#endif
